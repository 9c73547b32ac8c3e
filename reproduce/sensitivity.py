"""When a completion reserve helps and when it hurts: candidate minus parent over scenarios.

Each scenario changes one thing: the demand of the city, the reading of "no bus behind", or the
load and window of the reserve's guard. Development days run in the fast world, with holds proposed
by nobody or by an actor. The result is a folder with `sensitivity.json` and `sensitivity.png`, and
a section of a document.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import evenline
from evenline.city.build import build
from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.embedded import CITY, PROFILES, UNTIL_S, with_profile
from evenline.city.model import City
from evenline.city.tables import digest
from evenline.cli.options import (
    BlocksOption,
    CalibrationOption,
    CityOption,
    DocsOption,
    ForceOption,
    OutOption,
    print_notes,
)
from evenline.control.event import BUS_BEHIND, TARGET_BEHIND, TIME, Array
from evenline.control.outcome import Outcome
from evenline.experiments.measures import CONFIDENCE, Difference, difference, number, signed
from evenline.figures.document import insert
from evenline.figures.plots import LIGHT, png
from evenline.policies.actor import Actor, ActorPolicy, actor_of
from evenline.policies.bundle import open_policy, policy_digest
from evenline.rules.chain import (
    CALIBRATE,
    FLOOR_FROM,
    FLOOR_S,
    FLOOR_UNTIL,
    LOW_LOAD,
    RESERVE_FROM,
    RESERVE_S,
    RESERVE_UNTIL,
    apply_chain,
    completion_guard,
)
from evenline.rules.policy import RulePolicy
from evenline.rules.table import Constant, Rule
from evenline.support.compiled import compiled, inlined
from evenline.support.errors import InputError
from evenline.support.files import refuse_foreign, sha256, to_json, write_bytes, write_listed
from evenline.support.progress import progress_bar
from evenline.support.tensors import read_tensors
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.fast.world import FastWorld, Fleet
from evenline.worlds.open import OpenCity, open_city
from reproduce.door import run

RESULT, PICTURE = "sensitivity.json", "sensitivity.png"
NOBODY = "zero"
ENDS_S = range(17_400, 20_401, 600)
LOADS = (0.1, 0.2, LOW_LOAD, 0.3, 0.4, 0.5)
BEGINS = (0.0, RESERVE_FROM, 0.3, 0.4, 0.5)
ENDS = (0.6, 0.65, 0.7, RESERVE_UNTIL, 0.8, 0.9)
PAPERS_JOURNEYS = 15_090  # its differences in unfinished passengers over those in completion
PROFILE, END_OF_DEMAND, READING = "demand profile", "end of demand", "no bus behind"
JOURNEYS = "journeys at demand 1.00"
LOAD, BEGIN, END = "highest load of the guard", "start of the window", "end of the window"
PHRASES = {
    PROFILE: "{} demand",
    END_OF_DEMAND: "demand until {}",
    JOURNEYS: "{} journeys",
    READING: "no bus behind read as {}",
    LOAD: "a load of at most {}",
    BEGIN: "a window from {}",
    END: "a window to {}",
}
UNITS = {
    END_OF_DEMAND: "1,000 s",
    JOURNEYS: "1,000",
    LOAD: "share of the capacity",
    BEGIN: "share of the day",
    END: "share of the day",
}


# -- the guard ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """The guard of a reserve; the defaults are the paper's. An empty window is the parent.

    `behind` is the feature that is 0 where no bus is behind. It counts for the tail floor too.
    """

    load: float = LOW_LOAD
    begin: float = RESERVE_FROM
    end: float = RESERVE_UNTIL
    behind: int = BUS_BEHIND

    @property
    def parent(self) -> "Guard":
        return Guard(begin=0.0, end=0.0, behind=self.behind)

    def constants(self, city: City) -> tuple[float, ...]:
        """The numbers that `guarded` reads."""
        return (float(city.horizon_s), self.load, self.begin, self.end, float(self.behind))


@inlined
def guarded(raw: Array, hold_s: float, constants: Array) -> float:
    """The tail floor and the reserve of a guard, after the calibration."""
    rho, behind = raw[TIME] / constants[0], int(constants[4])
    if completion_guard(raw, rho, FLOOR_FROM, FLOOR_UNTIL, LOW_LOAD, behind):
        hold_s = max(hold_s, FLOOR_S)
    if completion_guard(raw, rho, constants[2], constants[3], constants[1], behind):
        hold_s = max(hold_s, RESERVE_S)
    return hold_s


def reserve(raw: Array, constants: Array, late_s: float) -> float:
    """The guard as a rule of its own: nobody else proposes a hold."""
    return guarded(raw, 0.0, constants)


@compiled
def guarded_holds(raw: Array, holds_s: Array, constants: Array) -> None:
    """Apply a guard to many calibrated holds, in place."""
    for row in range(raw.shape[0]):
        holds_s[row] = guarded(raw[row], holds_s[row], constants)


RESERVE = Rule(
    "reserve",
    reserve,
    tuple(Constant(n, 0.0, 0.0, 1e6) for n in ("horizon_s", "load", "begin", "end", "behind")),
)


# -- the scenarios --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scenario:
    """A setting of one factor: a city and a guard. `at` is its place on the factor's axis."""

    factor: str
    name: str
    at: float
    city: Callable[[], City] = field(repr=False)
    guard: Guard = Guard()
    usual: bool = False  # the setting of `city` and of the paper


def scenarios(opened: OpenCity) -> list[Scenario]:
    """All scenarios of a city; only the streets of `city` have other demand."""
    found: list[Scenario] = []

    def own() -> City:
        return opened.city

    if opened.source == CITY.name:
        for at, profile in enumerate(PROFILES):
            usual = profile == "rising"
            make = own if usual else partial(with_profile, CITY.name, profile)
            found.append(Scenario(PROFILE, profile, at, make, usual=usual))
        for until_s in ENDS_S:
            usual = until_s == UNTIL_S
            make = own if usual else partial(with_profile, CITY.name, "rising", until_s)
            name = f"{until_s:,} s"
            found.append(Scenario(END_OF_DEMAND, name, until_s / 1000, make, usual=usual))
        for people in (PAPERS_JOURNEYS, CITY.demand.passengers):
            usual = people == CITY.demand.passengers
            make = own if usual else partial(with_people, people)
            found.append(Scenario(JOURNEYS, f"{people:,}", people / 1000, make, usual=usual))
    readings = (("none started yet", BUS_BEHIND), ("last trips only", TARGET_BEHIND))
    for at, (name, behind) in enumerate(readings):
        guard = Guard(behind=behind)
        found.append(Scenario(READING, name, at, own, guard, usual=guard == Guard()))
    guards: tuple[tuple[str, tuple[float, ...], Callable[[float], Guard]], ...] = (
        (LOAD, LOADS, lambda value: Guard(load=value)),
        (BEGIN, BEGINS, lambda value: Guard(begin=value)),
        (END, ENDS, lambda value: Guard(end=value)),
    )
    for factor, values, with_value in guards:
        for value in values:
            guard, name = with_value(value), f"{value:g}"
            found.append(Scenario(factor, name, value, own, guard, usual=guard == Guard()))
    return found


def with_people(people: int) -> City:
    """`city` with another number of journeys at demand 1.00."""
    demand = replace(CITY.demand, passengers=people)
    return build(replace(CITY, name=f"{CITY.name}-{people}", demand=demand))


# -- the days -------------------------------------------------------------------------------------

Outcomes = list[Outcome]  # one for each cell


class Runner:
    """Runs the days of a city and a guard; the same days run once."""

    def __init__(self, opened: OpenCity, cells: Sequence[Cell], actor: Actor | None) -> None:
        self.calibration, self.cells, self.actor = opened.fitted(), cells, actor
        self.known: dict[tuple[str, Guard], Outcomes] = {}

    def __call__(self, city: City, guard: Guard) -> Outcomes:
        key = (city.name, guard)
        if key not in self.known:
            run = self._alone if self.actor is None else self._with_actor
            self.known[key] = run(city, guard)
        return self.known[key]

    def _alone(self, city: City, guard: Guard) -> Outcomes:
        world = FastWorld(city, self.calibration)
        policy = RulePolicy(RESERVE.name, RESERVE, guard.constants(city))
        return [world.run_day(cell, policy) for cell in self.cells]

    def _with_actor(self, city: City, guard: Guard) -> Outcomes:
        assert self.actor is not None
        fleet = Fleet(city, self.calibration, len(self.cells))
        constants = np.array(guard.constants(city))
        states, holds = fleet.reset(self.cells), np.zeros(len(self.cells))
        while not fleet.over.all():
            live = np.flatnonzero(~fleet.over)
            raw, proposals = fleet.raw[live], self.actor.proposals_s(states[live])
            own = apply_chain(CALIBRATE, raw, proposals, float(city.horizon_s))
            guarded_holds(raw, own, constants)
            holds[live] = own
            states = fleet.step(holds)
        return [fleet.outcome(w) for w in range(len(self.cells))]


@dataclass(frozen=True)
class Finding:
    """Candidate minus parent in one scenario, with intervals over blocks."""

    factor: str
    setting: str
    at: float
    usual: bool
    generalized_s: Difference
    completion: Difference
    generalized_s_by_level: dict[str, float]
    held_share: float  # of the candidate's decisions

    @property
    def verdict(self) -> str:
        """What the interval of generalized time says."""
        low, high = self.generalized_s.low, self.generalized_s.high
        if low is None or high is None or low <= 0.0 <= high:
            return "open"
        return "helps" if high < 0.0 else "hurts"


def finding(
    scenario: Scenario, cells: Sequence[Cell], candidate: Outcomes, parent: Outcomes
) -> Finding:
    """Compare the days of candidate and parent."""
    at = {level: [i for i, c in enumerate(cells) if c.demand == level] for level in DEMAND_LEVELS}
    time_s, completion = (
        [np.array([getattr(day, name) for day in days]) for days in (candidate, parent)]
        for name in ("generalized_s", "completion")
    )
    by_level = {f"{x:.2f}": float((time_s[0] - time_s[1])[rows].mean()) for x, rows in at.items()}
    held = np.mean([1.0 - day.holds_zero / day.decisions for day in candidate])
    return Finding(
        scenario.factor,
        scenario.name,
        scenario.at,
        scenario.usual,
        difference(cells, *time_s),
        difference(cells, *completion),
        by_level,
        float(held),
    )


def sensitivity(
    city_name: str,
    out: Path,
    source: str = NOBODY,
    blocks: int = 10,
    docs: Path | None = None,
    calibration: Path | None = None,
    force: bool = False,
) -> list[Finding]:
    """Run all scenarios, write the folder, and the section of a document if one is named."""
    if blocks < 2:
        raise InputError(f"{blocks} blocks: an interval needs at least 2")
    refuse_foreign(out, RESULT, force=force)
    opened, cells = open_city(city_name, calibration), PURPOSES["development"].cells(blocks)
    actor, sha = _actor(source, opened)
    run, listed, found = Runner(opened, cells, actor), scenarios(opened), list[Finding]()
    with progress_bar() as bar:
        for scenario in bar.track(listed, description=f"sensitivity of {opened.name}"):
            city, guard = scenario.city(), scenario.guard
            days = run(city, guard), run(city, guard.parent)
            found.append(finding(scenario, cells, *days))
    picture = png(figure(found, f"{opened.name}, holds proposed by {_proposer(source)}"))
    result = {
        "city": digest(opened.city),
        "calibration": calibration_digest(opened.fitted()),
        "policy": {"source": source, "sha256": sha},
        "evenline": evenline.__version__,
        "blocks": blocks,
        "findings": [asdict(each) | {"verdict": each.verdict} for each in found],
    }
    made = {PICTURE: picture, RESULT: to_json(result).encode()}
    write_listed(out, made, force, (PICTURE, RESULT))
    if docs is not None:
        tail = "" if source == NOBODY else f"-{Path(source).stem}"
        name = f"sensitivity-{opened.name}{tail}.png"
        write_bytes(docs.parent / "images" / name, picture)
        command = f"python -m reproduce.sensitivity --city {city_name} --policy {source}"
        command += f" --blocks {blocks}"
        text = document(found, command, len(cells), source, name)
        insert(docs, f"sensitivity of {opened.name}{tail}", text)
    return found


def _actor(source: str, opened: OpenCity) -> tuple[Actor | None, str]:
    """The actor that proposes holds, or None for nobody, and the digest of the source."""
    if source.endswith(".safetensors"):
        path = Path(source)
        tensors = read_tensors(path)
        return actor_of(tensors, len(opened.city.services)), sha256(path)
    policy = open_policy(source, opened.city, opened.calibration)
    if source != NOBODY and not isinstance(policy, ActorPolicy):
        raise InputError(
            f"policy {source!r} is not an actor; choose {NOBODY!r}, or name an actor's bundle or "
            ".safetensors file"
        )
    return getattr(policy, "actor", None), policy_digest(source)


def _proposer(source: str) -> str:
    return "nobody" if source == NOBODY else Path(source).stem


# -- as text and figure ---------------------------------------------------------------------------


def rows(found: Sequence[Finding]) -> list[list[str]]:
    """The table: a head, then one row for each finding."""
    levels = [f"at {level:.2f}" for level in DEMAND_LEVELS]
    head = ["Setting", "Generalized time, s", *levels, "Completion, points", "Held, %"]
    lines = [["Changed", *head]]
    for each in found:
        by_level = [number(x, "+,.0f") for x in each.generalized_s_by_level.values()]
        setting = f"**{each.setting}**" if each.usual else each.setting
        lines.append(
            [
                each.factor,
                setting,
                signed(each.generalized_s, ",.1f"),
                *by_level,
                signed(each.completion, ".2f", 100.0),
                f"{100 * each.held_share:.1f}",
            ]
        )
    return lines


def sentences(found: Sequence[Finding]) -> list[str]:
    """What the findings say to an operator."""
    unlike = [each for each in found if not each.usual]
    usual = next(each for each in found if each.usual)
    best, worst = (pick(unlike, key=lambda f: f.generalized_s.mean) for pick in (min, max))
    verdicts = {v: [f for f in unlike if f.verdict == v] for v in ("helps", "hurts", "open")}
    lines = [
        f"As it is, the reserve changes generalized time by {signed(usual.generalized_s, ',.1f')} "
        f"s per passenger and completion by {signed(usual.completion, '.2f', 100.0)} points.",
        f"Of {len(unlike)} other settings it helps in {len(verdicts['helps'])} and hurts in "
        f"{len(verdicts['hurts'])}; the interval contains 0 in {len(verdicts['open'])}.",
        f"The best is {_named(best)}, the worst is {_named(worst)}.",
    ]
    if profiles := [each for each in found if each.factor == PROFILE]:
        lines.append(f"By the shape of demand: {', '.join(map(_named, profiles))}.")
    for verdict, said in (
        ("hurts", "It hurts with"),
        ("open", "There is no clear difference with"),
    ):
        if verdicts[verdict]:
            lines.append(f"{said} {', '.join(map(_named, verdicts[verdict]))}.")
    above = [
        f"{_phrase(each)} at demand {level} ({number(mean_s, '+,.0f')} s)"
        for each in found
        for level, mean_s in each.generalized_s_by_level.items()
        if mean_s >= 0.5
    ]
    if above:
        lines.append(f"At single demand levels, time grows with {', '.join(above)}.")
    return lines


def _phrase(each: Finding) -> str:
    return PHRASES[each.factor].format(each.setting)


def _named(each: Finding) -> str:
    return f"{_phrase(each)} ({number(each.generalized_s.mean, '+,.1f')} s)"


def document(found: Sequence[Finding], command: str, days: int, source: str, picture: str) -> str:
    """The section of a document in Markdown."""
    head, *body = rows(found)
    table = [head, ["---", "---", *["---:"] * (len(head) - 2)], *body]
    return "\n".join(
        [
            f"Made by `{command}` (Evenline {evenline.__version__}): candidate minus parent in the "
            f"fast world, holds proposed by {_proposer(source)}, {days} development days for each "
            f"row, {CONFIDENCE:.0%} intervals over blocks. Bold is the usual setting.",
            "",
            *sentences(found),
            "",
            f"![Candidate minus parent in generalized time and completion over demand and guard]"
            f"(images/{picture})",
            "",
            *("| " + " | ".join(row) + " |" for row in table),
        ]
    )


def figure(found: Sequence[Finding], title: str) -> Figure:
    """One column of panels for each factor: generalized time above, completion below."""
    factors = list(dict.fromkeys(each.factor for each in found))
    result = Figure(figsize=(2.3 * len(factors), 5.2), layout="constrained", facecolor=LIGHT.paper)
    grid = result.subplots(2, len(factors), sharey="row", sharex="col", squeeze=False)
    for (above, below), factor in zip(grid.T, factors, strict=True):
        here = [each for each in found if each.factor == factor]
        for level, marker in zip(DEMAND_LEVELS, "vD^", strict=True):
            values = [each.generalized_s_by_level[f"{level:.2f}"] for each in here]
            above.plot(
                [each.at for each in here], values, marker, color=LIGHT.muted, markersize=3.5,
                label=f"at demand {level:.2f}",
            )  # fmt: skip
        _panel(above, here, [each.generalized_s for each in here], 1.0)
        _panel(below, here, [each.completion for each in here], 100.0)
        above.set_title(factor, fontsize=10, color=LIGHT.ink)
        _ticks(below, here)
    told = (
        "generalized time, s per\npassenger; below 0 helps",
        "completion, percentage\npoints; above 0 helps",
    )
    for axes, name in zip(grid[:, 0], told, strict=True):
        axes.set_ylabel(name, fontsize=9.5, color=LIGHT.ink)
    handles, _ = grid[0, 0].get_legend_handles_labels()
    result.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9,
        labelcolor=LIGHT.ink,
    )  # fmt: skip
    result.suptitle(
        f"Candidate minus parent: {title}", x=0.01, ha="left", fontsize=11.5, fontweight="bold",
        color=LIGHT.ink,
    )  # fmt: skip
    return result


def _ticks(axes: Axes, here: Sequence[Finding]) -> None:
    """The settings along the axis: words side by side, numbers upright with their unit."""
    at, unit = [each.at for each in here], UNITS.get(here[0].factor)
    if unit is None:
        axes.set_xticks(at, [each.setting.replace(" ", "\n") for each in here])
        axes.set_xlim(-0.6, len(here) - 0.4)
    else:
        axes.set_xticks(at, [f"{x:g}" for x in at], rotation=90)
        axes.set_xlabel(unit, fontsize=9, color=LIGHT.ink)


def _panel(axes: Axes, here: Sequence[Finding], found: Sequence[Difference], scale: float) -> None:
    """Means with intervals; the usual setting has a ring."""
    at, mean = np.array([each.at for each in here]), scale * np.array([d.mean for d in found])
    ends = scale * np.array(
        [[d.mean if end is None else end for end in (d.low, d.high)] for d in found]
    )
    blue, orange = LIGHT.policies
    line = "o-" if here[0].factor in UNITS else "o"
    axes.axhline(0.0, color=LIGHT.ink, linewidth=1.0)
    axes.vlines(at, ends[:, 0], ends[:, 1], color=blue, linewidth=2.0)
    axes.plot(
        at, mean, line, color=blue, markersize=5, linewidth=0.8,
        label=f"mean, {CONFIDENCE:.0%} interval over blocks",
    )  # fmt: skip
    usual = [i for i, each in enumerate(here) if each.usual]
    axes.plot(
        at[usual], mean[usual], "o", color=orange, markersize=11, markerfacecolor="none",
        markeredgewidth=1.6, label="usual setting",
    )  # fmt: skip
    axes.grid(axis="y", color=LIGHT.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, colors=LIGHT.ink, length=2)


# -- the command ----------------------------------------------------------------------------------


def main(
    city: CityOption = "city",
    policy: Annotated[
        str,
        typer.Option(
            help="Who proposes holds: zero (nobody), an actor's bundle or .safetensors file."
        ),
    ] = NOBODY,
    blocks: BlocksOption = 10,
    out: OutOption = None,
    force: ForceOption = False,
    docs: DocsOption = None,
    calibration: CalibrationOption = None,
) -> None:
    """Measure when the completion reserve helps and when it hurts, over demand and guard, in the
    fast world.
    """
    folder = out or Path("results") / f"sensitivity-{Path(city).name}"
    found = sensitivity(city, folder, policy, blocks, docs, calibration, force)
    table = [[value.strip("*") for value in row] for row in rows(found)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)))
    print(*sentences(found), sep="\n")
    print_notes(city, "fast", calibration)
    print(folder)


if __name__ == "__main__":
    run("reproduce.sensitivity", main)
