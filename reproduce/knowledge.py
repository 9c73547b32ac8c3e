"""What each piece of knowledge is worth to the look-ahead, in the fast world.

The same development days run with more or less knowledge, with other bases, lengths, steps and
prices of a passenger who is left, under other controllers, and under a clairvoyant that knows the
day. Everything is compared with no holding. `worth_page` writes the result.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from evenline.city.demand import DEMAND_LEVELS, RATE_BIN_S, Cell
from evenline.city.embedded import CITY, CITY_TWO_PEAKS, embedded_city
from evenline.control.event import BASE_DWELL, SERVICE, STOP, TIME, Array, Batch
from evenline.control.outcome import Outcome
from evenline.control.world import Policy
from evenline.experiments.clairvoyant import Operator, day_tables, hindsight
from evenline.experiments.measures import Difference, difference
from evenline.policies.bundle import open_policy
from evenline.policies.lookahead import (
    ALIGHTING,
    LOOKAHEAD,
    RATE,
    RUN,
    USUAL_BASE,
    Lookahead,
    forecast_tables,
)
from evenline.support.progress import progress_bar
from evenline.worlds.open import OpenCity, open_city
from reproduce.sensitivity import Guard, guarded_holds

NOBODY, CLAIRVOYANT = "zero", "clairvoyant"
CONTROLLER, KNOWLEDGE, BASE = "controller", "knowledge", "base of the forecast"
LENGTH, PRICE, STEP = "buses behind", "price of a passenger left", "step between holds"
CONTROLLERS = (
    "headway-0.4", "schedule", "virtual-schedule", USUAL_BASE.name, "zero+candidate", LOOKAHEAD,
    f"{LOOKAHEAD}+candidate",
)  # fmt: skip
BASES = (
    "zero", "zero+candidate", "schedule", "virtual-schedule", "headway-0.2", "forward:gain=0.1",
    "two-way:gain=0.05", "two-way:gain=0.1", "two-way:gain=0.2",
)  # fmt: skip
LENGTHS = (0, 1, 2, 3, 6)
STEPS_S = (15, 10, 5, 2, 1)
RESERVED = f"{LOOKAHEAD}, reserve alone on top"
RIVALS = ("zero+candidate", f"{LOOKAHEAD}+candidate", RESERVED, CLAIRVOYANT)
PRICES_S = (0, 500, 2_000, 10_000, 50_000)
CERTAIN = 1e9  # people; no day changes what is believed so firmly
UNSEEN_SHARE, LATE_S = 0.1, 30
LEADER_TRUST = 0.3  # weight of a new running time in today's factor of a segment


# -- what is known --------------------------------------------------------------------------------


def exact(operator: Operator, cell: Cell) -> Policy:
    """Knows how many people come to each place in each half hour of this day."""
    return operator.look(day_tables(operator, cell, RATE_BIN_S))


def believed(operator: Operator, cell: Cell, error: float) -> Policy:
    """Believes in a multiple of the day's level of demand, and never learns better."""
    rate = error * cell.demand * operator.tables[RATE]
    return operator.look({RATE: rate}, prior=CERTAIN)


def flat(operator: Operator, cell: Cell) -> Policy:
    """Knows how many people come to each place in a day, but not when."""
    rate = operator.tables[RATE]
    return operator.look({RATE: np.repeat(rate.mean(1, keepdims=True), rate.shape[1], axis=1)})


def counted_once(operator: Operator, cell: Cell) -> Policy:
    """Knows the usual rates only from a count of one other day, with all its chance."""
    rng = _stream(cell, 0xC047)
    return operator.look({RATE: rng.poisson(operator.tables[RATE] * RATE_BIN_S) / RATE_BIN_S})


def _stream(cell: Cell, use: int) -> np.random.Generator:
    seeds = [cell.sumo_seed, cell.demand_seed, int(100 * cell.demand), use]
    return np.random.Generator(np.random.PCG64(seeds))


def outdated(operator: Operator, cell: Cell) -> Policy:
    """Knows the people of other days: those of the other demand of the same streets."""
    other = CITY if operator.opened.source == CITY_TWO_PEAKS.name else CITY_TWO_PEAKS
    old = forecast_tables(embedded_city(other.name), operator.opened.fitted())
    return operator.look({RATE: old[RATE], ALIGHTING: old[ALIGHTING]})


# -- what is seen ---------------------------------------------------------------------------------


def unseen(operator: Operator, cell: Cell) -> Policy:
    """A share of the events is lost: such a bus is neither held nor noted."""
    policy, rng = operator.look({}), _stream(cell, 0x105E)

    def decide(batch: Batch) -> Sequence[float]:
        holds_s, kept = np.zeros(len(batch.trips)), rng.random(len(batch.trips)) >= UNSEEN_SHARE
        if kept.any():
            holds_s[kept] = policy(Batch(batch.time_s, batch.trips[kept], batch.raw[kept]))
        return [float(hold) for hold in holds_s]

    return decide


def late(operator: Operator, cell: Cell) -> Policy:
    """What a bus reports is known to the others only after some seconds."""
    policy, on_the_way = operator.look({}), deque[tuple[int, int, Array, float, Array]]()

    def decide(batch: Batch) -> Sequence[float]:
        policy.follow(batch)
        while on_the_way and on_the_way[0][0] <= batch.time_s - LATE_S:
            _, trip, raw, hold_s, met = on_the_way.popleft()
            policy.people_met[:] += met
            policy.note(trip, raw, hold_s)
        holds_s = []
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            before = policy.people_met.copy()
            holds_s.append(best_s(policy, trip, raw))
            met = policy.people_met - before
            policy.people_met[:] = before
            on_the_way.append((batch.time_s, trip, raw, holds_s[-1], met))
        return holds_s

    return decide


def from_leaders(operator: Operator, cell: Cell) -> Policy:
    """Corrects the mean running time of each segment by what the buses before needed today."""
    policy, usual_s = operator.look({}), operator.tables[RUN]
    policy.forecast = policy.forecast._replace(run_s=usual_s.copy())
    first, today = policy.forecast.first_place, np.ones(len(usual_s))
    left_s: dict[tuple[int, int], float] = {}

    def decide(batch: Batch) -> Sequence[float]:
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            stop = int(raw[STOP])
            leaves_s = left_s.get((trip, stop - 1))
            if leaves_s is not None:
                place = first[int(raw[SERVICE])] + stop - 1
                half = min(int(leaves_s) // RATE_BIN_S, usual_s.shape[1] - 1)
                needed = (raw[TIME] - leaves_s) / max(usual_s[place, half], 1.0)
                today[place] += LEADER_TRUST * (needed - today[place])
                policy.forecast.run_s[place] = usual_s[place] * today[place]
        holds_s = policy(batch)
        for trip, raw, hold_s in zip(batch.trips.tolist(), batch.raw, holds_s, strict=True):
            left_s[trip, int(raw[STOP])] = raw[TIME] + raw[BASE_DWELL] + hold_s
        return holds_s

    return decide


def best_s(policy: Lookahead, trip: int, raw: Array) -> float:
    """The hold that the look-ahead would choose for a bus of the batch that it follows."""
    best = int(np.argmin(policy.costs(trip, raw)))
    return float(policy.kept_s[best])


def with_reserve(operator: Operator, cell: Cell) -> Policy:
    """The look-ahead behind the floor and the reserve of the candidate, without calibration."""
    policy, constants = operator.look({}), np.array(Guard().constants(operator.opened.city))

    def decide(batch: Batch) -> Sequence[float]:
        policy.follow(batch)
        holds_s = []
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            hold_s = np.array([best_s(policy, trip, raw)])
            guarded_holds(raw[None], hold_s, constants)
            policy.note(trip, raw, float(hold_s[0]))
            holds_s.append(float(hold_s[0]))
        return holds_s

    return decide


def based(operator: Operator, cell: Cell, base: str) -> Policy:
    """The look-ahead with another base for the buses of its forecast."""
    return operator.look({}, base=operator.base(base))


# -- the days -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Setting:
    """A way to run the days: a controller, with its knowledge and its price."""

    group: str
    name: str
    policy: Callable[[Operator, Cell], Policy] = field(repr=False)


def _named(source: str) -> Callable[[Operator, Cell], Policy]:
    """A policy by its name."""
    return lambda op, cell: open_policy(source, op.opened.city, op.opened.calibration)


def settings(
    opened: OpenCity, policies: Sequence[str] = (), bases: Sequence[str] = ()
) -> list[Setting]:
    """All settings; the first is the reference, the last the clairvoyant."""
    named = (NOBODY, *CONTROLLERS, *policies)
    found = [Setting(CONTROLLER, Path(name).name, _named(name)) for name in named]
    found.append(Setting(CONTROLLER, RESERVED, with_reserve))
    known: dict[str, Callable[[Operator, Cell], Policy]] = {
        "exact people of the day": exact,
        "usual rates, level known": lambda op, cell: believed(op, cell, 1.0),
        "usual rates, level believed 20 % too low": lambda op, cell: believed(op, cell, 0.8),
        "usual rates, level believed 20 % too high": lambda op, cell: believed(op, cell, 1.2),
        "rates counted on one other day": counted_once,
        "rates without time of day": flat,
    }
    if opened.source in (CITY.name, CITY_TWO_PEAKS.name):
        known["rates of another demand"] = outdated
    known[f"{UNSEEN_SHARE:.0%} of events unseen".replace("%", " %")] = unseen
    known[f"other buses known {LATE_S} s late"] = late
    known["running times of today's leaders"] = from_leaders
    found += [Setting(KNOWLEDGE, name, policy) for name, policy in known.items()]
    found += [
        Setting(BASE, f"base {Path(base).name}", partial(based, base=base))
        for base in (*BASES, *bases)
    ]
    found += [
        Setting(LENGTH, f"{count} in full", _named(f"{LOOKAHEAD}:behind={count}"))
        for count in LENGTHS
    ]
    found += [
        Setting(PRICE, f"{price:,} s", _named(f"{LOOKAHEAD}:price_s={price}")) for price in PRICES_S
    ]
    found += [
        Setting(STEP, f"every {step} s", _named(f"{LOOKAHEAD}:step_s={step}")) for step in STEPS_S
    ]
    return [*found, Setting(CONTROLLER, CLAIRVOYANT, lambda op, cell: hindsight(op, cell)[1])]


@dataclass(frozen=True)
class Question:
    """What is asked: a city, its calibration if another is named, further policies and bases."""

    source: str
    calibration: Path | None = None
    policies: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def prepared(asked: Question) -> tuple[Operator, list[Setting]]:
    """A city and its settings, opened once in each process."""
    opened = open_city(asked.source, asked.calibration)
    return Operator(opened), settings(opened, asked.policies, asked.bases)


def _day(order: tuple[Question, int, Cell]) -> Outcome:
    """The day of one setting, by its number, on one cell."""
    asked, number, cell = order
    operator, listed = prepared(asked)
    return operator.world().run_day(cell, listed[number].policy(operator, cell))


def run_settings(
    asked: Question, cells: Sequence[Cell], workers: int | None = None
) -> list[list[Outcome]]:
    """The outcomes of every setting on every cell; one worker is this process itself."""
    source, (_, listed) = asked.source, prepared(asked)
    orders = [(asked, n, cell) for n in range(len(listed)) for cell in cells]
    with progress_bar() as bar, ExitStack() as stack:
        run: Callable[..., Iterable[Outcome]] = map
        if workers != 1:
            fresh = get_context("spawn")
            run = stack.enter_context(ProcessPoolExecutor(workers, mp_context=fresh)).map
        days = list(bar.track(run(_day, orders), len(orders), description=f"worth, {source}"))
    return [days[i : i + len(cells)] for i in range(0, len(days), len(cells))]


@dataclass(frozen=True)
class Worth:
    """What a setting gives: means, and differences from no holding with intervals over blocks."""

    group: str
    name: str
    generalized_s: float
    completion: float
    time_change_s: Difference
    completion_change: Difference
    least_completion_change: float  # mean of the demand level at which it is least
    share: float  # of the clairvoyant's gain in time


def worths(
    listed: Sequence[Setting], cells: Sequence[Cell], days: Sequence[Sequence[Outcome]]
) -> list[Worth]:
    """Compare every setting with the first, and its gain with that of the last."""
    times_s, completed = (
        np.array([[getattr(day, name) for day in each] for each in days])
        for name in ("generalized_s", "completion")
    )
    gain_s = float((times_s[0] - times_s[-1]).mean())
    at = [[i for i, c in enumerate(cells) if c.demand == level] for level in DEMAND_LEVELS]
    return [
        Worth(
            setting.group,
            setting.name,
            float(time_s.mean()),
            float(done.mean()),
            difference(cells, time_s, times_s[0]),
            difference(cells, done, completed[0]),
            min(float((done - completed[0])[rows].mean()) for rows in at),
            float((times_s[0] - time_s).mean()) / gain_s,
        )
        for setting, time_s, done in zip(listed, times_s, completed, strict=True)
    ]
