"""The Python interface: cities, days, comparisons and figures that notebooks can display.

Every function is a few lines over the code of the commands, runs in this process, and writes
nothing unless asked. `import evenline as el` offers these names.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenline.city.cells import PURPOSES, demo_cell
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.operations import Operations
from evenline.control.outcome import Outcome
from evenline.interface.shown import facts, html_facts
from evenline.policies.bundle import open_policy, policy_digest
from evenline.rules.own import Function, rule_of
from evenline.rules.policy import ChainedPolicy
from evenline.rules.table import Rule
from evenline.support.errors import InputError, choice
from evenline.worlds.open import OpenCity as Opened
from evenline.worlds.open import open_city as _open_city
from evenline.worlds.open import open_world

if TYPE_CHECKING:
    from evenline.control.gym import HoldingEnv
    from evenline.experiments.experiment import Experiment, Variant
    from evenline.experiments.frame import Frame
    from evenline.figures.picture import Picture

Own = Rule | Function  # a rule of your own: the seconds to hold a bus


# -- what you get ---------------------------------------------------------------------------------


class OpenCity(Opened):
    """A city and the calibration of its fast world, displayed as a table and a map."""

    def rows(self) -> dict[str, str]:
        """The city in a few figures."""
        city = self.city
        return {
            "services": ", ".join(service.id for service in city.services),
            "stops": f"{len(city.stops):,}",
            "trips per day": f"{len(city.trips):,}",
            "decisions per day": f"{city.decisions:,}",
            "passengers' journeys": f"{len(city.journeys):,}",
            "hours": f"{city.horizon_s / 3600:.1f}",
            **_noted(self.notes("fast")),
        }

    def __str__(self) -> str:
        return facts(self.name, self.rows())

    def _repr_html_(self) -> str:
        return html_facts(f"City {self.name}", self.rows()) + network_map(self).svg()


@dataclass(frozen=True, eq=False)
class SimulatedDay:
    """A day under a policy: its outcome and its stop visits."""

    city: OpenCity
    policy: str
    world: str
    cell: Cell
    outcome: Outcome
    visits: pa.Table = field(repr=False)

    @property
    def title(self) -> str:
        return f"{self.policy}, {self.world} world, seed {self.cell.sumo_seed}"

    def rows(self) -> dict[str, str]:
        """The outcome of the day in a few figures."""
        from evenline.experiments.simulate import day_notes

        found = self.outcome
        return {
            "generalized time, s per passenger": f"{found.generalized_s:,.1f}",
            "waiting, s per passenger": f"{found.waiting_each_s:,.1f}",
            "in vehicle, s per passenger": f"{found.riding_each_s:,.1f}",
            "passengers who arrived": f"{found.completed:,} of {found.departed:,}",
            "mean hold, s": f"{found.mean_hold_s:.2f}",
            "decisions": f"{found.decisions:,}",
            **_noted(day_notes(self.city, self.world, self.cell, found)),
        }

    def __str__(self) -> str:
        return facts(f"{self.city.name}: {self.title}", self.rows())

    def _repr_html_(self) -> str:
        return html_facts(f"{self.city.name}: {self.title}", self.rows())


# -- what you ask ---------------------------------------------------------------------------------


def open_city(name_or_folder: str | Path, calibration: str | Path | None = None) -> OpenCity:
    """Open an embedded city (`town`, `city`) or a city folder, with its calibration if it has
    one.
    """
    fitted = None if calibration is None else Path(calibration)
    found = _open_city(str(name_or_folder), fitted)
    return OpenCity(found.source, found.city, found.calibration, found.unfit)


def run_day(
    city: OpenCity | str,
    policy: str | Own = "zero",
    world: str = "fast",
    seed: int = 1,
    demand: float = 1.0,
) -> SimulatedDay:
    """Simulate a day; the same seed gives the same passengers, cars and drivers for every
    policy.
    """
    opened, cell = _opened(city), demo_cell(seed, demand)
    target = open_world(world, opened, keep_visits=True)
    try:
        outcome, visits = _run(target, cell, open_policy(policy, opened.city, opened.calibration))
    finally:
        getattr(target, "close", lambda: None)()
    return SimulatedDay(opened, _label(policy), world, cell, outcome, visits)


def compare_policies(city: OpenCity | str, *policies: str | Own, blocks: int = 10) -> "Frame":
    """Compare policies on the same days of the fast world: `blocks` seeds at three demand levels.

    `run` compares them in variants of a city, or in SUMO, which takes a thousand times as long.
    """
    from evenline.experiments.experiment import Experiment, Variant

    experiment = Experiment([Variant(_opened(city))], policies, days(blocks))
    if len({arm.key for arm in experiment.arms}) < max(len(policies), 2):
        raise InputError("compare_policies: name at least two different policies")
    return run(experiment)


def days(blocks: int = 10, levels: Sequence[float] = DEMAND_LEVELS) -> tuple[Cell, ...]:
    """The days of a comparison: blocks, which share passengers and drivers, by demand levels."""
    return tuple(PURPOSES["development"].cells(blocks, tuple(levels)))


def variants(city: OpenCity | str, **operations: Sequence[Any]) -> "list[Variant]":
    """The city with its operations changed, one at a time: a variant for each value of each.

    The names are those of `operations` in a city's manifest, such as `hold_at`, `max_hold_s`,
    `ignored_share` or `cancelled_share`. Without any, the city as it is.
    """
    from evenline.experiments.experiment import Variant
    from evenline.experiments.variants import operated

    usual = Variant(_opened(city))
    known = [name.name for name in fields(Operations)]
    for name in operations:
        if name not in known:
            raise InputError(f"variants: no operation {name!r}; choose {choice(known)}")
    changed = [
        usual.changed(name, str(value), operated(usual.city, **{name: value}))
        for name, values in operations.items()
        for value in values
    ]
    return changed or [usual]


def run(
    experiment: "Experiment", out: str | Path | None = None, workers: int | None = None
) -> "Frame":
    """Run an experiment; with a folder, days that take long are kept there and not run again."""
    from evenline.experiments.compare import refuse_same
    from evenline.experiments.experiment import run as run_experiment
    from evenline.runs.executors import processes

    named = [policy for policy in experiment.policies if isinstance(policy, str)]
    refuse_same({policy: policy_digest(policy) for policy in named})
    folder = None if out is None else Path(out)
    return run_experiment(experiment, folder, processes(workers))


def time_space(*days: SimulatedDay, service: str | None = None) -> "Picture":
    """Draw the buses of a service as lines over time and distance, one panel per day.

    The default is the service with the most bunching on the first day.
    """
    from evenline.figures.measure import most_bunched_service
    from evenline.figures.picture import Picture
    from evenline.figures.plots import time_space_diagram

    if not days:
        raise InputError("time_space: pass at least one day")
    known = [s.id for s in days[0].city.city.services]
    if service is not None and service not in known:
        raise InputError(f"unknown service {service!r}; choose {choice(known)}")
    shown = service or most_bunched_service(days[0].visits)
    panels: dict[str, pa.Table] = {}
    for day in days:
        title = f"service {shown}: {day.title}"
        panels[title if title not in panels else f"{title} ({len(panels) + 1})"] = day.visits
    return Picture(time_space_diagram(panels, shown, city=days[0].city.city), "time-space")


def network_map(city: OpenCity | str) -> "Picture":
    """Draw the streets, signals, stops and routes of a city."""
    from evenline.figures.picture import Picture
    from evenline.figures.plots import network_map as draw

    opened = _opened(city)
    return Picture(draw(opened.city), f"map-{opened.name}")


def make_env(city: OpenCity | str = "town", state_version: int = 1) -> "HoldingEnv":
    """Make a Gymnasium environment over the fast world, with the days reserved for training."""
    from evenline.control.gym import HoldingEnv

    opened = _opened(city)
    purpose = PURPOSES["training"]

    def cell_of(seed: int) -> Cell:
        block, level = seed % purpose.blocks, DEMAND_LEVELS[seed % len(DEMAND_LEVELS)]
        return Cell(purpose.sumo_seed + block, purpose.demand_seed + block, level)

    return HoldingEnv(opened.fast_world, cell_of, state_version)


def run_study(plan: str | Path = "town", out: str | Path | None = None) -> Path:
    """Run a study, or its remaining steps; return the path of its page."""
    from evenline.study.engine import open_study
    from evenline.study.engine import run_study as run
    from evenline.study.plan import find_plan
    from evenline.study.steps import steps_of

    study = open_study(find_plan(str(plan)), None if out is None else Path(out))
    run(study, steps_of(study.plan), say=lambda line: print(line, file=sys.stderr))
    return study.folder / "report.html"


# -- how ------------------------------------------------------------------------------------------


def _opened(city: OpenCity | str) -> OpenCity:
    return open_city(city) if isinstance(city, str) else city


def _label(policy: str | Own) -> str:
    return policy if isinstance(policy, str) else rule_of(policy).name


def _run(world: Any, cell: Cell, policy: ChainedPolicy) -> tuple[Outcome, pa.Table]:
    """Run a day; its stop visits explain each decision."""
    from evenline.control.world import run_episode
    from evenline.rules.explain import Witness

    witness = Witness(policy)
    outcome = run_episode(world, cell, witness)
    return outcome, witness.table(world.city, world.visits)


def _noted(notes: tuple[str, ...]) -> dict[str, str]:
    """What a city says of itself, as rows of a table."""
    return {f"note {number}": note for number, note in enumerate(notes, 1)}
