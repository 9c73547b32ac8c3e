"""What if: vary one thing of a city's operation at a time, with and without a controller.

Each setting changes one thing: the longest hold, where buses are held, how many drivers comply,
cancelled trips, demand, headway, or the number of buses. The same days run without holding and
under the policy. The result is a folder with `whatif.json` and `whatif.png`, and sentences that
answer what an operator asks first.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.model import City, Floats, Ints, visit_offsets
from evenline.city.operations import TERMINALS
from evenline.city.tables import digest
from evenline.control.operations import departures
from evenline.control.world import run_episode
from evenline.experiments.compare import Difference, difference, measure, number, signed
from evenline.figures.document import insert
from evenline.figures.plots import LIGHT, png
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.support.errors import InputError
from evenline.support.files import refuse_foreign, to_json, write_bytes, write_listed
from evenline.support.progress import progress_bar
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity, open_city
from evenline.worlds.sumo.world import SumoWorld

RESULT, PICTURE = "whatif.json", "whatif.png"
NOBODY, USUAL = "zero", "as it is"
CAP, WHERE, DRIVERS, CANCELLED = "longest hold", "held at", "holds obeyed", "trips cancelled"
DEMAND, HEADWAY, BUSES = "demand", "headway", "buses on each route"
MORE = (-2, -1, 1, 2)
MOST_BUSES = 8  # the controller's worth is sought up to here
Days = list[dict[str, float]]  # the measures of each cell


# -- the settings ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Setting:
    """A city with one thing changed, and its demand level."""

    factor: str
    name: str
    city: City
    level: float = 1.0


def respaced(city: City, factor: Floats) -> City:
    """The timetable with the headways of each service multiplied, from its first trip to its last.

    Times of the day that had more buses keep more. Every trip has a vehicle of its own, because
    duties and disruptions of single trips do not fit another timetable.
    """
    trips, due, first = [], [], visit_offsets(city)
    for service, own in enumerate(city.trips_of):
        old_s = [city.trips[trip].departure_s for trip in own]
        count = max(round((len(own) - 1) / factor[service]) + 1, 2) if len(own) > 1 else len(own)
        at = np.linspace(0, len(own) - 1, count)
        new_s = np.maximum.accumulate(np.round(np.interp(at, np.arange(len(own)), old_s)))
        for k, (place, departure_s) in enumerate(zip(at, new_s.astype(int).tolist(), strict=True)):
            like = own[round(float(place))]
            trips.append(
                replace(
                    city.trips[like],
                    id=f"{city.services[service].id}~{k}",
                    departure_s=departure_s,
                    block="",
                )
            )
            if city.due_s is not None:
                times = city.due_s[first[like] : first[like + 1]]
                due.append(times + departure_s - city.trips[like].departure_s)
    due_s = None if city.due_s is None else np.concatenate(due).astype(np.int32)
    kept = tuple(each for each in city.operations.disruptions if each.trip < 0)
    operations = replace(city.operations, disruptions=kept, duties=False)
    return replace(city, trips=tuple(trips), due_s=due_s, operations=operations)


def buses_of(city: City, arrivals_s: Ints) -> Floats:
    """How many buses the route of each service needs, by the trip times of a day."""
    first, needed = visit_offsets(city), dict[str, float]()
    for service, own in enumerate(city.trips_of):
        ends = [(arrivals_s[first[t]], arrivals_s[first[t + 1] - 1]) for t in own]
        trip_s = [last - begin for begin, last in ends if min(begin, last) >= 0]
        starts = [city.trips[t].departure_s for t in own]
        if trip_s and len(own) > 1:
            headway_s = (starts[-1] - starts[0]) / (len(own) - 1)
            route = city.services[service].route
            needed[route] = needed.get(route, 0.0) + float(np.mean(trip_s)) / headway_s
    return np.array([np.ceil(needed.get(s.route, 1.0)) for s in city.services])


def operated(city: City, **changes: Any) -> City:
    """The city with some of its operations changed."""
    return replace(city, operations=replace(city.operations, **changes))


def hard_settings(city: City) -> list[Setting]:
    """The settings in which a controller must still be ahead, after the usual one."""
    return [
        Setting(USUAL, USUAL, city),
        Setting(WHERE, "terminals only", operated(city, hold_at=TERMINALS)),
        Setting(DRIVERS, "80 %", operated(city, ignored_share=0.2)),
        Setting(DRIVERS, "50 %", operated(city, ignored_share=0.5)),
        Setting(CANCELLED, "5 %", operated(city, cancelled_share=0.05)),
    ]


def settings(city: City, buses: Floats) -> list[Setting]:
    """All settings of a city; `buses` is how many the route of each service has."""
    found = hard_settings(city)
    found += [Setting(CAP, f"{cap_s:g} s", operated(city, max_hold_s=cap_s)) for cap_s in (15, 30)]
    most = float(city.journeys.min_demand.max(initial=1.0))
    levels = [level for level in DEMAND_LEVELS if level != 1.0 and level <= most]
    found += [Setting(DEMAND, f"{level:.2f}", city, level) for level in levels]
    for name, factor in (("10 % shorter", 0.9), ("10 % longer", 1.1)):
        found.append(Setting(HEADWAY, name, respaced(city, np.full(len(buses), factor))))
    for more in MORE:
        new = np.maximum(buses + more, 1.0)
        found.append(Setting(BUSES, f"{more:+d}", respaced(city, buses / new)))
    order = (USUAL, CAP, WHERE, DRIVERS, CANCELLED, DEMAND, HEADWAY, BUSES)
    return sorted(found, key=lambda setting: order.index(setting.factor))


# -- the days -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Order:
    """Some days of a setting under a policy, in one of our worlds."""

    opened: OpenCity
    setting: Setting
    policy: str
    cells: tuple[Cell, ...]
    world: str = "fast"


def run_days(order: Order) -> Days:
    """The measures of each day of an order."""
    city, found = order.setting.city, Days()
    decide = open_policy(order.policy, city, order.opened.calibration)
    world = SumoWorld(city) if order.world == "sumo" else FastWorld(city, order.opened.fitted())
    with closing(world) if isinstance(world, SumoWorld) else nullcontext():
        for cell in order.cells:
            if isinstance(world, FastWorld):
                outcome, arrivals_s = world.run_day(cell, decide), world.arrivals_s
            else:
                outcome, arrivals_s = run_episode(world, cell, decide), _arrivals_s(world)
            late, lost = departures(city, world.left_s)
            figures = measure(city, cell, outcome, arrivals_s)
            found.append({**figures, "late_departures": late, "lost_trips": lost})
    return found


def _arrivals_s(world: SumoWorld) -> Ints:
    """When each trip reached each of its stops, one entry per visit; -1 if it did not."""
    first = visit_offsets(world.city)
    arrivals_s = np.full(int(first[-1]), -1, np.int32)
    for visit in world.visits:
        arrivals_s[first[visit.trip] + visit.position] = visit.arrival_s
    return arrivals_s


Run = Callable[[Iterable[Order]], Iterator[Days]]


@contextmanager
def running(slow: bool, workers: int | None) -> Iterator[Run]:
    """What runs orders, in their order: fresh processes, or this one if the days are quick."""
    workers = workers or os.cpu_count() or 1
    if not slow or workers == 1:
        yield lambda orders: map(run_days, orders)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield lambda orders: pool.map(run_days, orders)


def is_slow(policy: str, world: str) -> bool:
    """Whether a day takes seconds: in SUMO, or if the policy is no rule."""
    kind = read_policy(policy).kind
    return world == "sumo" or kind.trained or kind.forecasts


@dataclass(frozen=True)
class Finding:
    """A setting: means without holding and under the policy, and what the policy changes."""

    factor: str
    name: str
    without: dict[str, float]
    held: dict[str, float]
    generalized_s: Difference
    completion: Difference

    @property
    def title(self) -> str:
        """What is changed, and how."""
        return self.name if self.factor == USUAL else f"{self.factor}: {self.name}"

    @property
    def verdict(self) -> str:
        """Whether the policy is ahead of no holding, by the interval of generalized time."""
        low, high = self.generalized_s.low, self.generalized_s.high
        if low is None or high is None or low <= 0.0 <= high:
            return "open"
        return "ahead" if high < 0.0 else "behind"


def finding(setting: Setting, cells: Sequence[Cell], without: Days, held: Days) -> Finding:
    """Compare the days of a setting."""

    def column(days: Days, name: str) -> Floats:
        return np.array([day[name] for day in days])

    def change(name: str) -> Difference:
        return difference(cells, column(held, name), column(without, name))

    def means(days: Days) -> dict[str, float]:
        return {name: float(column(days, name).mean()) for name in days[0]}

    return Finding(
        setting.factor,
        setting.name,
        means(without),
        means(held),
        change("generalized_s"),
        change("completion"),
    )


def whatif(
    source: str,
    policy: str,
    out: Path,
    blocks: int = 3,
    calibration: Path | None = None,
    force: bool = False,
    docs: Path | None = None,
    workers: int | None = None,
) -> tuple[list[Finding], list[str]]:
    """Run all settings in the fast world; write the folder, and a document if one is named.

    Returns the findings, and the answers with what must be said of them.
    """
    if blocks < 2:
        raise InputError(f"{blocks} blocks: an interval needs at least 2")
    refuse_foreign(out, RESULT, force=force)
    opened = open_city(source, calibration)
    cells = tuple(PURPOSES["development"].cells(blocks, (1.0,)))
    world = FastWorld(opened.city, opened.fitted())
    world.run_day(cells[0], open_policy(NOBODY, opened.city))
    buses = buses_of(opened.city, world.arrivals_s)
    found = compared(opened, settings(opened.city, buses), policy, cells, workers)
    said = answers(found, lambda: worth(opened, cells, buses, found[0]))
    said += left_aside(opened.city)
    result = {
        "city": digest(opened.city),
        "policy": {"source": policy, "sha256": policy_digest(policy)},
        "evenline": evenline.__version__,
        "blocks": blocks,
        "findings": [asdict(each) | {"verdict": each.verdict} for each in found],
        "answers": said,
    }
    picture = png(figure(found, f"{policy} minus no holding in {opened.name}"))
    made = {PICTURE: picture, RESULT: to_json(result).encode()}
    write_listed(out, made, force, (PICTURE, RESULT))
    if docs is not None:
        name = f"whatif-{opened.name}.png"
        write_bytes(docs.parent / "images" / name, picture)
        command = f"evenline whatif --city {source} --policy {policy} --blocks {blocks}"
        insert(docs, f"whatif {opened.name}", document(found, said, command, name))
    return found, said


def compared(
    opened: OpenCity,
    listed: Sequence[Setting],
    policy: str,
    cells: tuple[Cell, ...],
    workers: int | None = None,
) -> list[Finding]:
    """What the policy changes in each setting, in the fast world."""
    own = [tuple(replace(cell, demand=s.level) for cell in cells) for s in listed]

    def orders(source: str) -> list[Order]:
        return [Order(opened, s, source, days) for s, days in zip(listed, own, strict=True)]

    without = [run_days(order) for order in orders(NOBODY)]
    with progress_bar() as bar, running(is_slow(policy, "fast"), workers) as run:
        days = run(orders(policy))
        held = [*bar.track(days, len(listed), description=f"what if in {opened.name}")]
    return [finding(*each) for each in zip(listed, own, without, held, strict=True)]


# -- in words -------------------------------------------------------------------------------------


def answers(found: Sequence[Finding], worth_of: Callable[[], str]) -> list[str]:
    """What an operator asks first. A share is stated only of a saving that is away from 0."""
    by_name = {(each.factor, each.name): each for each in found}
    usual = by_name[USUAL, USUAL]
    saved = number(-usual.generalized_s.mean, ".1f")
    if usual.verdict == "behind" or usual.generalized_s == Difference(0.0, 0.0, 0.0):
        return [f"As the city is, the policy saves nothing: {_saving(usual)}."]
    if usual.verdict == "open":
        return [f"As the city is, it cannot be told whether the policy saves: {_saving(usual)}."]

    def kept(factor: str, name: str, saves: str) -> str:
        setting = by_name[factor, name]
        if setting.verdict == "behind":
            return f"It costs time there: {_saving(setting)}."
        if setting.verdict == "open":
            return f"That cannot be told: {_saving(setting)}, against {saved} s as the city is."
        share = setting.generalized_s.mean / usual.generalized_s.mean
        left = number(-setting.generalized_s.mean, ".1f")
        return f"{saves} {left} of {saved} s ({100 * share:.0f} %)."

    return [
        f"Is terminal holding enough? {kept(WHERE, 'terminals only', 'It saves')}",
        f"What if half the drivers comply? {kept(DRIVERS, '50 %', 'The policy still saves')}",
        f"How many buses is the controller worth? {worth_of()}",
    ]


def _saving(setting: Finding) -> str:
    """A saving with its interval."""
    d = setting.generalized_s
    shown = f"the saving is {number(0.0 - d.mean, '.1f')} s"
    if d.low is None or d.high is None:
        return shown
    return f"{shown}, its interval {number(0.0 - d.high, '.1f')} to {number(0.0 - d.low, '.1f')} s"


def worth(opened: OpenCity, cells: Sequence[Cell], buses: Floats, usual: Finding) -> str:
    """How many more buses on each route save as much time as the policy, without holding."""

    def time_of(more: int) -> float:
        setting = Setting(BUSES, "", respaced(opened.city, buses / (buses + more)))
        days = run_days(Order(opened, setting, NOBODY, tuple(cells)))
        return float(np.mean([day["generalized_s"] for day in days]))

    # Without duties, the reference must have none either.
    before = time_of(0) if opened.city.operations.duties else usual.without["generalized_s"]
    target = before + usual.generalized_s.mean
    among = f"on each route, which has about {buses.mean():.0f}"
    for more in range(1, MOST_BUSES + 1):
        time_s = time_of(more)
        if time_s <= target:
            share = (before - target) / max(before - time_s, 1e-9)
            return f"About {more - 1 + share:.1f} buses {among}."
        before = time_s
    return f"More than {MOST_BUSES} buses {among}."


def left_aside(city: City) -> list[str]:
    """What the rows with another timetable leave out, if the city has it."""
    lost = ["duties"] if city.operations.duties else []
    if any(each.trip >= 0 for each in city.operations.disruptions):
        lost.append("disruptions of single trips")
    if not lost:
        return []
    return [
        f"The rows of {HEADWAY} and {BUSES}, and the worth in buses, are without the city's "
        f"{' and '.join(lost)}: they do not fit another timetable."
    ]


def rows(found: Sequence[Finding]) -> list[list[str]]:
    """The table: a head, then one row for each setting."""
    lines = [
        [
            "Changed", "Setting", "Without holding, s", "Policy, s", "Difference, s", "Waiting, s",
            "Riding, s", "Completion, points", "Excess wait, s", "Late without holding",
            "Late departures",
        ]
    ]  # fmt: skip
    loses = found[0].held["lost_trips"] > 0.0  # of itself, not by a setting that cancels some
    if loses:
        lines[0].append("Lost trips")
    for each in found:
        a, b = each.without, each.held
        lines.append(
            [
                each.factor,
                each.name,
                number(a["generalized_s"], ",.1f"),
                number(b["generalized_s"], ",.1f"),
                signed(each.generalized_s, ".1f"),
                number(b["waiting_s"] - a["waiting_s"], "+.1f"),
                number(b["riding_s"] - a["riding_s"], "+.1f"),
                signed(each.completion, ".2f", 100.0),
                number(b["excess_wait_s"], ".1f"),
                number(a["late_departures"], ".1f"),
                number(b["late_departures"], ".1f"),
                *([number(b["lost_trips"], ".1f")] if loses else []),
            ]
        )
    return lines


def document(found: Sequence[Finding], said: Sequence[str], command: str, picture: str) -> str:
    """Answers, table and figure as Markdown."""
    head, *lines = [f"| {' | '.join(row)} |" for row in rows(found)]
    answered = [f"- {sentence}" for sentence in said]
    table = [head, "|---" * len(rows(found)[0]) + "|", *lines]
    shown = f"![What each setting changes]({Path('images') / picture})"
    return "\n".join([f"Made by `{command}`.", "", *answered, "", *table, "", shown])


def figure(found: Sequence[Finding], title: str) -> Figure:
    """What the policy saves or costs in each setting, with intervals over blocks."""
    picture = Figure(figsize=(7.5, 0.32 * len(found) + 1.3), layout="constrained")
    axes = picture.subplots()
    for row, each in enumerate(found):
        d = each.generalized_s
        low, high = (d.mean, d.mean) if d.low is None or d.high is None else (d.low, d.high)
        axes.plot([low, high], [row, row], color=LIGHT.policies[0], linewidth=2)
        axes.plot([d.mean], [row], "o", color=LIGHT.policies[0], markersize=5)
    axes.axvline(0.0, color=LIGHT.muted, linewidth=1)
    axes.axvline(found[0].generalized_s.mean, color=LIGHT.muted, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(found)), [each.title for each in found])
    axes.invert_yaxis()
    axes.set_xlabel("difference of generalized time, s per passenger (95 % interval over blocks)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return picture
