"""When a completion reserve helps and when it hurts: candidate minus parent over scenarios.

Each scenario changes one thing: the demand of the city, the reading of "no bus behind", or the
load and window of the reserve's guard. Development days run in the fast world, with holds proposed
by nobody or by an actor. The result is a folder with `sensitivity.json` and `sensitivity.png`, and
a section of a document.
"""

from collections.abc import Callable, Iterator, Sequence
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
from evenline.cli.options import (
    AddressOption,
    BlocksOption,
    CalibrationOption,
    CityOption,
    DocsOption,
    ExecutorOption,
    ForceOption,
    OutOption,
    WorkersOption,
    executor_of,
    print_notes,
)
from evenline.control.event import BUS_BEHIND, TARGET_BEHIND
from evenline.experiments.experiment import Arm, InMemory, Policy, Simulated, Variant, run_arms
from evenline.experiments.frame import Days
from evenline.experiments.measures import (
    CONFIDENCE,
    Difference,
    difference_of,
    number,
    signed,
)
from evenline.figures.document import insert
from evenline.figures.plots import LIGHT, png
from evenline.policies.actor import Actor, ActorPolicy, actor_of
from evenline.policies.bundle import open_policy, policy_digest
from evenline.rules.chain import CALIBRATE, LOW_LOAD, RESERVE_FROM, RESERVE_UNTIL, apply_chain
from evenline.runs.executors import Executor
from evenline.support.columns import aligned, markdown
from evenline.support.errors import InputError
from evenline.support.files import (
    refuse_changed_files,
    refuse_foreign,
    sha256,
    to_json,
    write_bytes,
    write_listed,
)
from evenline.support.tensors import read_tensors
from evenline.worlds.fast.world import Fleet
from evenline.worlds.open import OpenCity, open_city
from reproduce.door import run
from reproduce.policies import Guard, guarded_holds

PLAN, RESULT, PICTURE = "plan.json", "sensitivity.json", "sensitivity.png"
FILES = (PLAN, PICTURE, RESULT)
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


# -- the scenarios --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scenario:
    """A setting of one factor: a city and a guard. `at` is its place on the factor's axis."""

    factor: str
    name: str
    at: float
    city: Callable[[], City] = field(repr=False)
    guard: Guard = field(default_factory=Guard)
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


def proposed(guard: Guard, city: City, actor: Actor | None) -> Policy:
    """A guard as a policy: after nobody's proposals, or after those of an actor."""
    if actor is None:
        return guard.source(city)
    return InMemory(repr(guard), lambda opened, cells: _with_actor(actor, guard, opened, cells))


def _with_actor(
    actor: Actor, guard: Guard, opened: OpenCity, cells: Sequence[Cell]
) -> Iterator[Simulated]:
    """The days of an actor behind the calibration and a guard, all at once."""
    city, fleet = opened.city, Fleet(opened.city, opened.fitted(), len(cells))
    constants = np.array(guard.constants(city))
    states, holds = fleet.reset(cells), np.zeros(len(cells))
    while not fleet.over.all():
        live = np.flatnonzero(~fleet.over)
        raw, proposals = fleet.raw[live], actor.proposals_s(states[live])
        behind = apply_chain(CALIBRATE, raw, proposals, float(city.horizon_s))
        guarded_holds(raw, behind, constants)
        holds[live] = behind
        states = fleet.step(holds)
    for w in range(len(cells)):
        yield Simulated(fleet.outcome(w), fleet.arrivals_s(w), fleet.left_s(w))


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
        return {-1: "helps", 0: "open", 1: "hurts"}[self.generalized_s.sign]


def finding(scenario: Scenario, cells: Sequence[Cell], candidate: Days, parent: Days) -> Finding:
    """Compare the days of candidate and parent."""
    at = {level: [i for i, c in enumerate(cells) if c.demand == level] for level in DEMAND_LEVELS}
    time_s = np.array([day["generalized_s"] for day in candidate])
    change_s = time_s - np.array([day["generalized_s"] for day in parent])
    return Finding(
        scenario.factor,
        scenario.name,
        scenario.at,
        scenario.usual,
        difference_of(cells, candidate, parent, "generalized_s"),
        difference_of(cells, candidate, parent, "completion"),
        {f"{level:.2f}": float(change_s[rows].mean()) for level, rows in at.items()},
        float(np.mean([1.0 - day["zero_hold_share"] for day in candidate])),
    )


def sensitivity(
    city_name: str,
    out: Path,
    source: str = NOBODY,
    blocks: int = 10,
    docs: Path | None = None,
    calibration: Path | None = None,
    force: bool = False,
    executor: Executor | None = None,
) -> list[Finding]:
    """Run all scenarios, write the folder, and the section of a document if one is named."""
    if blocks < 2:
        raise InputError(f"{blocks} blocks: an interval needs at least 2")
    refuse_foreign(out, PLAN, force=force)
    refuse_changed_files(out, FILES, force)
    opened, cells = open_city(city_name, calibration), PURPOSES["development"].cells(blocks)
    actor, sha = _actor(source, opened)
    usual, listed = Variant(opened, source=city_name, calibration=calibration), scenarios(opened)
    plan = to_json({"city": usual.digest, "policy": sha, "cells": [c.name for c in cells]}).encode()
    arms = []
    for scenario in listed:
        city, variant = scenario.city(), usual
        if city is not opened.city:
            variant = usual.changed(scenario.factor, scenario.name, city)
        for guard in (scenario.guard, scenario.guard.parent):
            arms.append(Arm(variant, proposed(guard, city, actor)))
    days = run_arms(
        arms, cells, out, executor, begin=lambda: write_listed(out, {PLAN: plan}, force)
    )
    pairs = zip(listed, days[::2], days[1::2], strict=True)
    found = [finding(scenario, cells, *both) for scenario, *both in pairs]
    picture = png(figure(found, f"{opened.name}, holds proposed by {_proposer(source)}"))
    result = {
        "city": usual.digest,
        "calibration": usual.calibration_digest,
        "policy": {"source": source, "sha256": sha},
        "evenline": evenline.__version__,
        "blocks": blocks,
        "findings": [asdict(each) | {"verdict": each.verdict} for each in found],
    }
    made = {PLAN: plan, PICTURE: picture, RESULT: to_json(result).encode()}
    write_listed(out, made, force, FILES)
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
            *markdown(rows(found), text=2),
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
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Measure when the completion reserve helps and when it hurts, over demand and guard, in the
    fast world.
    """
    folder = out or Path("results") / f"sensitivity-{Path(city).name}"
    runs = executor_of(executor, address, workers)
    found = sensitivity(city, folder, policy, blocks, docs, calibration, force, runs)
    table = [[value.strip("*") for value in row] for row in rows(found)]
    print(*aligned(table, text=2), *sentences(found), sep="\n")
    print_notes(city, "fast", calibration)
    print(folder)


if __name__ == "__main__":
    run("reproduce.sensitivity", main)
