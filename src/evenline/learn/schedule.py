"""The eight learners as rows of one table: their schedules and rates.

A learner is data: the training program reads these numbers and has no branch for any of them.
Events count decisions in a learner's own simulated days; the first 5,000 are frozen warm-up.
"""

from dataclasses import dataclass, replace

from evenline.rules.chain import chain_code
from evenline.support.errors import InputError, choice
from evenline.support.records import Line, Number, Positive, Share, Whole, Word


@dataclass(frozen=True)
class Ramp:
    """A multiplier of the actor's rate that changes linearly from one value to another."""

    first: Whole
    last: Whole
    start: Number
    end: Number


FLAT = Ramp(0, 1, 1.0, 1.0)


@dataclass(frozen=True)
class Learner:
    """One row: how a learner starts and which of the paper's mechanisms it has."""

    name: Word
    title: Line
    replay: bool = True  # starts from IQL and also learns from the replay; otherwise from scratch
    continues: bool = True  # continues in the simulator
    actor_from: Whole = 5_000  # the first event after which the actor learns
    temperature_from: Whole = 5_000
    ramp: Ramp = FLAT
    proximal: Share = 0.0  # share of the way back to the actor of event `anchor`, after each update
    anchor: Whole = 10_000
    taper: Ramp = FLAT
    lessons: Whole = 0  # simulated days on which holds are tried: see `lessons`

    def rate(self, event: int) -> float:
        """The actor's rate multiplier at an event; 0 before its release."""
        if event <= self.actor_from:
            return 0.0
        return _along(self.ramp, event) * _along(self.taper, event)


def _along(ramp: Ramp, event: int) -> float:
    share = min(max((event - ramp.first) / (ramp.last - ramp.first), 0.0), 1.0)
    return ramp.start + share * (ramp.end - ramp.start)


@dataclass(frozen=True)
class Budget:
    """How long each phase lasts. The defaults are the paper's."""

    iql_updates: Whole = 50_000
    warmup_events: Whole = 5_000
    events: Whole = 25_000
    lesson_updates: Positive = 6_000  # of each round of lessons

    @property
    def updates(self) -> int:
        """The total number of updates."""
        return self.iql_updates + self.events - self.warmup_events


_BASE = Learner("base", "H2O+ without stabilisers")
_DELAYED = replace(_BASE, name="v10", title="delayed actor", actor_from=10_000)
_HELD = replace(_DELAYED, name="v11", title="actor hold", temperature_from=10_000)
_RAMPED = replace(_HELD, name="v12", title="actor ramp", ramp=Ramp(10_000, 15_000, 0.1, 1.0))
_NEAR = replace(_RAMPED, name="v13", title="proximal", proximal=5e-5)
_FINAL = replace(_NEAR, name="v14", title="terminal quarter", taper=Ramp(15_000, 25_000, 1.0, 0.25))

LEARNERS = {
    learner.name: learner
    for learner in (
        Learner("iql", "IQL alone", continues=False),
        _BASE,
        _DELAYED,
        _HELD,
        _RAMPED,
        _NEAR,
        _FINAL,
        Learner("sac", "online-only SAC", replay=False),
    )
}
# Our own, not the paper's: learns from the look-ahead alone.
TAUGHT = Learner("taught", "lessons of the look-ahead", replay=False, continues=False, lessons=60)
FINAL = _FINAL.name


def named_learners(names: str) -> list[Learner]:
    """Learners by name, separated by commas, or `all` for the paper's eight."""
    if names == "all":
        return list(LEARNERS.values())
    known = {**LEARNERS, TAUGHT.name: TAUGHT}
    chosen = []
    for name in names.split(","):
        if name not in known:
            raise InputError(f"unknown learner {name!r}; choose {choice([*known, 'all'])}")
        chosen.append(known[name])
    return chosen


def scaled(learner: Learner, budget: Budget) -> Learner:
    """The same learner with its events scaled to a shorter or longer continuation."""
    share = budget.events / Budget().events

    def at(event: int) -> int:
        return round(event * share)

    def along(ramp: Ramp) -> Ramp:
        return ramp if ramp == FLAT else replace(ramp, first=at(ramp.first), last=at(ramp.last))

    return replace(
        learner,
        actor_from=at(learner.actor_from),
        temperature_from=at(learner.temperature_from),
        anchor=at(learner.anchor),
        ramp=along(learner.ramp),
        taper=along(learner.taper),
    )


def check_chain(learner: str, lessons: int, chain: str) -> None:
    """Refuse a chain behind which a learner cannot learn."""
    if chain_code(chain) and not lessons:
        raise InputError(
            f"learner {learner}: only lessons can be taken behind a chain; leave the chain out, "
            "and name it when you export the actor"
        )


def check_schedule(learner: Learner, budget: Budget) -> None:
    """Refuse a schedule that cannot be followed."""
    if budget.iql_updates < 0 or not 0 <= budget.warmup_events <= budget.events:
        raise InputError(
            f"budget: cannot use {budget.warmup_events} warm-up events of {budget.events} and"
            f" {budget.iql_updates} IQL updates"
        )
    if budget.lesson_updates < 1:
        raise InputError(f"lesson updates {budget.lesson_updates}: must be at least 1")
    for name, ramp in (("ramp", learner.ramp), ("taper", learner.taper)):
        if ramp.last <= ramp.first:
            raise InputError(
                f"learner {learner.name}: {name} ends at {ramp.last}, before it starts"
                f" at {ramp.first}"
            )
    if learner.proximal and learner.anchor > learner.actor_from:
        raise InputError(
            f"learner {learner.name}: anchor at event {learner.anchor} is after the actor's"
            f" release at {learner.actor_from}"
        )
