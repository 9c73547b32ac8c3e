"""What each piece of knowledge is worth to the look-ahead, in the fast world.

The same development days run with more or less knowledge, with other bases, lengths and prices of
a passenger who is left, under other controllers, and under a clairvoyant that knows the day.
Everything is compared with no holding. The result is a folder with `worth.json` and `worth.png`,
and a section of a document.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, RATE_BIN_S, Cell, realise
from evenline.city.embedded import CITY, CITY_TWO_PEAKS, embedded_city
from evenline.city.tables import digest
from evenline.control.event import BASE_DWELL, SERVICE, STOP, TIME, Array, Batch
from evenline.control.outcome import Outcome
from evenline.control.visits import Visit
from evenline.control.world import Policy
from evenline.experiments.compare import (
    CONFIDENCE,
    PURPOSE,
    Difference,
    difference,
    number,
    signed,
)
from evenline.experiments.sensitivity import Guard, guarded_holds
from evenline.figures.document import insert
from evenline.figures.plots import LIGHT, png
from evenline.policies.bundle import base_rule, open_policy
from evenline.policies.lookahead import (
    ALIGHTING,
    LOOKAHEAD,
    RATE,
    RUN,
    USUAL_BASE,
    Lookahead,
    Tables,
    forecast_of,
    forecast_tables,
    rates_of,
)
from evenline.rules.policy import RulePolicy
from evenline.support.errors import InputError
from evenline.support.files import refuse_foreign, to_json, write_bytes, write_listed
from evenline.support.progress import progress_bar
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity, open_city

RESULT, PICTURE = "worth.json", "worth.png"
NOBODY, CLAIRVOYANT = "zero", "clairvoyant"
CONTROLLER, KNOWLEDGE, BASE = "controller", "knowledge", "base of the forecast"
LENGTH, PRICE = "buses behind", "price of a passenger left"
CONTROLLERS = (
    "headway-0.4", "schedule", "virtual-schedule", USUAL_BASE.name, "zero+candidate", LOOKAHEAD,
    f"{LOOKAHEAD}+candidate",
)  # fmt: skip
BASES = (
    "zero", "zero+candidate", "schedule", "virtual-schedule", "headway-0.2", "forward:gain=0.1",
    "two-way:gain=0.05", "two-way:gain=0.1", "two-way:gain=0.2",
)  # fmt: skip
HINDSIGHT_BASES = ("zero", "two-way:gain=0.05", "two-way:gain=0.1", "two-way:gain=0.2")
LENGTHS = (0, 1, 2, 3, 6)
RESERVED = f"{LOOKAHEAD}, reserve alone on top"
RIVALS = ("zero+candidate", f"{LOOKAHEAD}+candidate", RESERVED, CLAIRVOYANT)
PRICES_S = (0, 500, 2_000, 10_000, 50_000)
CERTAIN = 1e9  # people; no day changes what is believed so firmly
UNSEEN_SHARE, LATE_S = 0.1, 30
LEADER_TRUST = 0.3  # weight of a new running time in today's factor of a segment
FINE_S = 60  # the clairvoyant knows people and running times by the minute


# -- what is known --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Operator:
    """A city as its operator knows it before the day."""

    opened: OpenCity

    @cached_property
    def tables(self) -> Tables:
        return forecast_tables(self.opened.city, self.opened.fitted())

    def look(
        self,
        changed: Tables,
        bin_s: int = RATE_BIN_S,
        base: RulePolicy = USUAL_BASE,
        **constants: float,
    ) -> Lookahead:
        """The look-ahead with some tables replaced."""
        forecast = forecast_of(self.opened.city, {**self.tables, **changed}, base, bin_s)
        return Lookahead(LOOKAHEAD, self.opened.city, forecast, 0, **constants)

    def rule(self, name: str) -> RulePolicy:
        """A base by its name."""
        found = open_policy(base_rule(name), self.opened.city, self.opened.fitted())
        assert isinstance(found, RulePolicy)
        return found

    def world(self, keep_visits: bool = False) -> FastWorld:
        return self.opened.fast_world(keep_visits)


def day_tables(operator: Operator, cell: Cell, bin_s: int) -> Tables:
    """The people of a day, counted by place and period."""
    city = operator.opened.city
    rate, alighting = rates_of(city, realise(city, cell), bin_s)
    return {RATE: rate, ALIGHTING: alighting}


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


def outdated(operator: Operator, cell: Cell) -> Policy:
    """Knows the people of other days: those of the other demand of the same streets."""
    other = CITY if operator.opened.source == CITY_TWO_PEAKS.name else CITY_TWO_PEAKS
    old = forecast_tables(embedded_city(other.name), operator.opened.fitted())
    return operator.look({RATE: old[RATE], ALIGHTING: old[ALIGHTING]})


# -- what is seen ---------------------------------------------------------------------------------


def unseen(operator: Operator, cell: Cell) -> Policy:
    """A share of the events is lost: such a bus is neither held nor noted."""
    policy, seeds = operator.look({}), [cell.sumo_seed, cell.demand_seed, int(100 * cell.demand)]
    rng = np.random.Generator(np.random.PCG64([*seeds, 0x105E]))

    def decide(batch: Batch) -> Sequence[float]:
        holds_s, kept = np.zeros(len(batch.trips)), rng.random(len(batch.trips)) >= UNSEEN_SHARE
        if kept.any():
            holds_s[kept] = policy(Batch(batch.time_s, batch.trips[kept], batch.raw[kept]))
        return [float(hold) for hold in holds_s]

    return decide


def late(operator: Operator, cell: Cell) -> Policy:
    """What a bus reports is known to the others only after some seconds."""
    policy, on_the_way = operator.look({}), deque[tuple[int, int, Array, float]]()

    def decide(batch: Batch) -> Sequence[float]:
        while on_the_way and on_the_way[0][0] <= batch.time_s - LATE_S:
            _, trip, raw, hold_s = on_the_way.popleft()
            policy.note(trip, raw, hold_s)
        policy.follow(batch)
        holds_s = []
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            holds_s.append(best_s(policy, trip, raw))
            on_the_way.append((batch.time_s, trip, raw, holds_s[-1]))
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
    return float(policy.holds_s[int(np.argmin(policy.costs(trip, raw)))])


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
    """The look-ahead with another rule for the buses of its forecast."""
    return operator.look({}, base=operator.rule(base))


# -- the clairvoyant ------------------------------------------------------------------------------


def clairvoyant(operator: Operator, cell: Cell) -> Policy:
    """Knows the day: its people by the minute, the running times of each trip, and how it ends.

    It tries the same search with several bases on the very day, with and without this knowledge,
    and keeps what turned out best. The luck of a trip does not depend on its holds, so the running
    times are those of the same day under the look-ahead.
    """
    world, people = operator.world(keep_visits=True), day_tables(operator, cell, FINE_S)
    usual_s = np.repeat(operator.tables[RUN], RATE_BIN_S // FINE_S, axis=1)
    known = {**people, RUN: np.ascontiguousarray(usual_s[:, : people[RATE].shape[1]])}
    tried = [(world.run_day(cell, usual := operator.look({})).generalized_s, usual)]
    trip_run_s = day_running_times(operator, world.visits)
    for base in HINDSIGHT_BASES:
        policy = operator.look(known, FINE_S, base=operator.rule(base))
        policy.forecast = policy.forecast._replace(trip_run_s=trip_run_s)
        tried.append((world.run_day(cell, policy).generalized_s, policy))
    return min(tried, key=lambda each: each[0])[1]


def day_running_times(operator: Operator, visits: Sequence[Visit]) -> Array:
    """The running times of a day by trip and stop; the usual ones where a bus did not arrive."""
    city, first = operator.opened.city, operator.look({}).forecast.first_place
    most = max(len(service.stops) for service in city.services)
    run_s = np.zeros((len(city.trips), most))
    for row, trip in zip(run_s, city.trips, strict=True):
        usual_s = operator.tables[RUN][first[trip.service] : first[trip.service + 1]]
        row[: len(usual_s)] = usual_s.mean(1)
    arrived = {(visit.trip, visit.position): visit.arrival_s for visit in visits}
    for visit in visits:
        then = arrived.get((visit.trip, visit.position + 1))
        if then is not None:
            run_s[visit.trip, visit.position] = then - visit.departure_s
    return run_s


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


def settings(opened: OpenCity, policies: Sequence[str] = ()) -> list[Setting]:
    """All settings; the first is the reference, the last the clairvoyant."""
    named = (NOBODY, *CONTROLLERS, *policies)
    found = [Setting(CONTROLLER, Path(name).name, _named(name)) for name in named]
    found.append(Setting(CONTROLLER, RESERVED, with_reserve))
    known: dict[str, Callable[[Operator, Cell], Policy]] = {
        "exact people of the day": exact,
        "usual rates, level known": lambda op, cell: believed(op, cell, 1.0),
        "usual rates, level believed 20 % too low": lambda op, cell: believed(op, cell, 0.8),
        "usual rates, level believed 20 % too high": lambda op, cell: believed(op, cell, 1.2),
        "rates without time of day": flat,
    }
    if opened.source in (CITY.name, CITY_TWO_PEAKS.name):
        known["rates of another demand"] = outdated
    known[f"{UNSEEN_SHARE:.0%} of events unseen".replace("%", " %")] = unseen
    known[f"other buses known {LATE_S} s late"] = late
    known["running times of today's leaders"] = from_leaders
    found += [Setting(KNOWLEDGE, name, policy) for name, policy in known.items()]
    found += [Setting(BASE, f"base {base}", partial(based, base=base)) for base in BASES]
    found += [
        Setting(LENGTH, f"{count} in full", _named(f"{LOOKAHEAD}:behind={count}"))
        for count in LENGTHS
    ]
    found += [
        Setting(PRICE, f"{price:,} s", _named(f"{LOOKAHEAD}:price_s={price}")) for price in PRICES_S
    ]
    return [*found, Setting(CONTROLLER, CLAIRVOYANT, clairvoyant)]


@dataclass(frozen=True)
class Question:
    """What is asked: a city, its calibration if another is named, further policies."""

    source: str
    calibration: Path | None = None
    policies: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def _prepared(asked: Question) -> tuple[Operator, list[Setting]]:
    """A city and its settings, opened once in each process."""
    opened = open_city(asked.source, asked.calibration)
    return Operator(opened), settings(opened, asked.policies)


def _day(order: tuple[Question, int, Cell]) -> Outcome:
    """The day of one setting, by its number, on one cell."""
    asked, number, cell = order
    operator, listed = _prepared(asked)
    return operator.world().run_day(cell, listed[number].policy(operator, cell))


def run_settings(
    asked: Question, cells: Sequence[Cell], workers: int | None = None
) -> list[list[Outcome]]:
    """The outcomes of every setting on every cell; one worker is this process itself."""
    source, (_, listed) = asked.source, _prepared(asked)
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


def worth(
    city_name: str,
    out: Path,
    blocks: int = 5,
    docs: Path | None = None,
    calibration: Path | None = None,
    force: bool = False,
    workers: int | None = None,
    policies: Sequence[str] = (),
) -> list[Worth]:
    """Run all settings, write the folder, and the section of a document if one is named."""
    if workers is not None and workers < 1:
        raise InputError(f"workers {workers}: must be at least 1")
    refuse_foreign(out, RESULT, force=force)
    opened, cells = open_city(city_name, calibration), PURPOSES[PURPOSE].cells(blocks)
    opened.fitted()
    for name in policies:  # refused before any day
        open_policy(name, opened.city, opened.fitted())
    asked = Question(city_name, calibration, tuple(policies))
    _, listed = _prepared(asked)
    found = worths(listed, cells, run_settings(asked, cells, workers))
    picture = png(figure(found, f"{opened.name}, fast world, {len(cells)} days"))
    result = {
        "city": digest(opened.city),
        "calibration": calibration_digest(opened.fitted()),
        "evenline": evenline.__version__,
        "blocks": blocks,
        "settings": [asdict(each) for each in found],
    }
    write_listed(out, {PICTURE: picture, RESULT: to_json(result).encode()}, force)
    if docs is not None:
        name = f"{docs.stem}-{opened.name}.png"
        write_bytes(docs.parent / "images" / name, picture)
        command = f"evenline worth --city {city_name} --blocks {blocks}"
        command += "".join(f" --policy {name}" for name in policies)
        insert(docs, f"worth {opened.name}", document(found, command, len(cells), name))
    return found


# -- as text and figure ---------------------------------------------------------------------------


HEAD = (
    "Setting", "Time, s", "Change, s", "Completion, %", "Change, points", "At the worst level",
    "Share of the clairvoyant's gain, %",
)  # fmt: skip


def rows(found: Sequence[Worth], group: str) -> list[list[str]]:
    """A table: the head, then one row for each setting of a group."""
    lines = [list(HEAD)]
    for each in (each for each in found if each.group == group):
        usual = each.name == NOBODY
        lines.append(
            [
                each.name,
                number(each.generalized_s, ",.1f"),
                "" if usual else signed(each.time_change_s, ",.1f"),
                number(100 * each.completion, ".2f"),
                "" if usual else signed(each.completion_change, ".2f", 100.0),
                "" if usual else number(100 * each.least_completion_change, "+.2f"),
                "" if usual else number(round(100 * each.share), "d"),
            ]
        )
    return lines


TITLES = {
    CONTROLLER: "Controllers, and the clairvoyant:",
    KNOWLEDGE: "The look-ahead with other knowledge:",
    BASE: "The look-ahead with another base rule for the buses of its forecast:",
    LENGTH: "The look-ahead with more or fewer buses behind computed in full (`behind`):",
    PRICE: "The look-ahead with other prices of a passenger who is left (`price_s`):",
}


def document(found: Sequence[Worth], command: str, days: int, picture: str) -> str:
    """The result for a document in Markdown."""
    lines = [
        f"Made by `{command}` (Evenline {evenline.__version__}), {days} days of the fast world on "
        f"the {PURPOSE} seeds. Changes are differences from no holding (`{NOBODY}`), with "
        f"{CONFIDENCE:.0%} intervals over blocks."
    ]
    for group, title in TITLES.items():
        head, *body = rows(found, group)
        table = [head, ["---", *["---:"] * (len(head) - 1)], *body]
        lines += ["", title, "", *("| " + " | ".join(row) + " |" for row in table)]
    alt = "Change of time by setting, and time against completion"
    return "\n".join([*lines, "", f"![{alt}](images/{picture})"])


def figure(found: Sequence[Worth], title: str) -> Figure:
    """Change of time by setting on the left, time against completion on the right."""
    result = Figure(figsize=(12.0, 6.2), layout="constrained", facecolor=LIGHT.paper)
    left, right = result.subplots(1, 2, width_ratios=(1.0, 1.1))
    shown = (CONTROLLER, KNOWLEDGE)
    _draw_changes(left, [e for e in found if e.group in shown and e.name != NOBODY])
    _draw_front(right, found)
    for axis in (left, right):
        axis.grid(color=LIGHT.faint, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, labelsize=9)
    result.suptitle(title, fontsize=11, color=LIGHT.ink)
    return result


COLOURS = {CONTROLLER: LIGHT.policies[0], KNOWLEDGE: LIGHT.policies[1], PRICE: LIGHT.held}
MARKERS = {CONTROLLER: "o", KNOWLEDGE: "s", PRICE: "D"}


def _draw_changes(axis: Axes, shown: Sequence[Worth]) -> None:
    """The change of time of each setting with its interval, the largest gain at the bottom."""
    order = sorted(shown, key=lambda each: each.time_change_s.mean)
    for at, each in enumerate(order):
        change, colour = each.time_change_s, COLOURS[each.group]
        low = change.mean if change.low is None else change.low
        high = change.mean if change.high is None else change.high
        axis.hlines(at, low, high, color=colour, linewidth=2.0)
        axis.plot(change.mean, at, MARKERS[each.group], color=colour, markersize=5)
    axis.axvline(0.0, color=LIGHT.muted, linewidth=1.0)
    axis.set_yticks(range(len(order)), [each.name for each in order])
    axis.set_xlabel(f"change of time from no holding, s ({CONFIDENCE:.0%} interval over blocks)")


def _draw_front(axis: Axes, found: Sequence[Worth]) -> None:
    """Mean time against completion: a line joins the prices, beside what competes with them."""
    near = [each for each in found if each.group == CONTROLLER and each.name in RIVALS]
    prices = [each for each in found if each.group == PRICE]
    times_s = [each.generalized_s for each in (*near, *prices)]
    apart_s, labelled_s = (max(times_s) - min(times_s)) / 30, -1.0
    for members, line in ((near, ""), (prices, "-")):
        colour, marker = COLOURS[members[0].group], MARKERS[members[0].group]
        for each in members:
            if line and abs(each.generalized_s - labelled_s) < apart_s:
                continue  # its label would cover another
            labelled_s, left = each.generalized_s, bool(line)
            axis.annotate(
                each.name,
                (100 * each.completion, each.generalized_s),
                (-7 if left else 7, -3),
                textcoords="offset points",
                fontsize=8,
                color=LIGHT.ink,
                ha="right" if left else "left",
            )
        completed = [100 * each.completion for each in members]
        axis.plot(
            completed, [each.generalized_s for each in members], marker + line, color=colour,
            markersize=5, linewidth=1.2, label="look-ahead, by price" if line else "controller",
        )  # fmt: skip
    axis.plot(
        [], [], MARKERS[KNOWLEDGE], color=COLOURS[KNOWLEDGE], markersize=5,
        label="look-ahead, other knowledge (left)",
    )  # fmt: skip
    axis.margins(x=0.35)
    axis.set_xlabel("completion, %")
    axis.set_ylabel("generalized time, s a passenger")
    axis.legend(frameon=False, fontsize=9)
