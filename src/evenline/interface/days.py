"""The Python interface: cities, days, comparisons and figures that notebooks can display.

Every function is a few lines over the code of the commands, runs in this process, and writes
nothing unless asked. `import evenline as el` offers these names.
"""

import os
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenline.city.cells import PURPOSES, demo_cell
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.control.outcome import Outcome
from evenline.interface.shown import columns, facts, html_facts, html_table
from evenline.policies.bundle import open_policy, policy_digest
from evenline.rules.own import Function, rule_of
from evenline.rules.policy import ChainedPolicy
from evenline.rules.table import Rule
from evenline.support.errors import InputError, choice
from evenline.worlds.open import OpenCity as Opened
from evenline.worlds.open import open_city as _open_city
from evenline.worlds.open import open_world

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evenline.control.gym import HoldingEnv
    from evenline.experiments.compare import Comparison

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


@dataclass(frozen=True, eq=False)
class Compared:
    """Policies on the same days, with differences from the first and intervals over blocks."""

    comparison: "Comparison"

    def rows(self) -> list[list[str]]:
        """One row per policy, after the heading."""
        from evenline.experiments.compare import CONFIDENCE

        found = self.comparison
        head = ["policy", "generalized time, s", f"difference ({CONFIDENCE:.0%} interval)"]
        head += ["waiting, s", "completion", "headway CV", "mean hold, s"]
        table = [head]
        for policy in found.policies:
            mean = {name: float(found.column(policy, name).mean()) for name in _SHOWN}
            delta = found.difference(policy, "generalized_s")
            said = "" if policy == found.policies[0] else f"{delta.mean:+,.1f}"
            if said and delta.low is not None and delta.high is not None:
                said += f" ({delta.low:+,.1f} to {delta.high:+,.1f})"
            table.append(
                [
                    Path(policy).name, f"{mean['generalized_s']:,.1f}", said,
                    f"{mean['waiting_s']:,.1f}", f"{mean['completion']:.2%}",
                    f"{mean['headway_cv']:.3f}", f"{mean['mean_hold_s']:.2f}",
                ]
            )  # fmt: skip
        return table

    @property
    def title(self) -> str:
        found = self.comparison
        return f"{found.city}, {found.world} world: means of {len(found.cells)} days"

    def __str__(self) -> str:
        notes = (f"note: {note}" for note in self.comparison.notes)
        return "\n".join([columns(self.title, self.rows()), *notes])

    def _repr_html_(self) -> str:
        return html_table(self.title, self.rows())


_SHOWN = ("generalized_s", "waiting_s", "completion", "headway_cv", "mean_hold_s")


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure that notebooks display and that scripts can show or save."""

    figure: "Figure"
    name: str

    def svg(self) -> str:
        """The figure as SVG, for a page."""
        from evenline.figures.plots import svg

        text = svg(self.figure).decode()
        return text[text.index("<svg") :]

    def save(self, path: str | Path) -> Path:
        """Write the figure in the format of the path's suffix: .png, .svg or .pdf."""
        from evenline.figures.plots import save

        save(self.figure, Path(path))
        return Path(path)

    def show(self) -> Path:
        """Open the figure on the screen; without a screen, save it and print the path."""
        with tempfile.NamedTemporaryFile(
            prefix=f"{self.name}-", suffix=".png", delete=False
        ) as file:
            path = self.save(file.name)
        if not (_screen() and webbrowser.open(path.resolve().as_uri())):
            print(path)
        return path

    def _repr_png_(self) -> bytes:
        from evenline.figures.plots import png

        return png(self.figure)


def _screen() -> bool:
    there = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(there)


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


def compare_policies(city: OpenCity | str, *policies: str | Own, blocks: int = 10) -> Compared:
    """Compare policies on the same days of the fast world: `blocks` seeds at three demand levels.

    For SUMO, which takes a thousand times as long, use the command `evenline compare`.
    """
    from evenline.experiments.compare import Comparison, notes_of, refuse_same

    opened = _opened(city)
    labels = [_label(policy) for policy in policies]
    if len(set(labels)) < max(len(labels), 2):
        raise InputError("compare_policies: name at least two different policies")
    cells = tuple(PURPOSES["development"].cells(blocks))
    digests = {policy: policy_digest(policy) for policy in policies if isinstance(policy, str)}
    refuse_same(digests)
    days = {}
    for label, policy in zip(labels, policies, strict=True):
        found = _days(opened, policy, cells)
        days[label] = dict(zip(cells, found, strict=True))
        digests.setdefault(label, "")
    notes = notes_of(opened, "fast", days)
    return Compared(Comparison(opened.name, "fast", cells, digests, days, notes))


def time_space(*days: SimulatedDay, service: str | None = None) -> Picture:
    """Draw the buses of a service as lines over time and distance, one panel per day.

    The default is the service with the most bunching on the first day.
    """
    from evenline.figures.measure import most_bunched_service
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


def network_map(city: OpenCity | str) -> Picture:
    """Draw the streets, signals, stops and routes of a city."""
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


def _days(city: OpenCity, policy: str | Own, cells: Sequence[Cell]) -> list[dict[str, float]]:
    """The figures of a policy's days, one after another; rules run inside the kernel."""
    from evenline.experiments.compare import measure

    ready, world = open_policy(policy, city.city, city.calibration), city.fast_world()
    return [
        measure(city.city, cell, world.run_day(cell, ready), world.arrivals_s) for cell in cells
    ]


def _noted(notes: tuple[str, ...]) -> dict[str, str]:
    """What a city says of itself, as rows of a table."""
    return {f"note {number}": note for number, note in enumerate(notes, 1)}
