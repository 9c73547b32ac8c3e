"""The page for an agency: waiting today by the records alone, and what holding would change.

The first part has no model. The second simulates each policy in the city that was fitted to the
records, on several days and with several calibrations that the records might have given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from evenline.city.cells import PURPOSES
from evenline.city.model import Floats
from evenline.experiments.measures import MEASURES, measure
from evenline.figures.document import insert
from evenline.figures.page import Numbers, Picture, simple_page
from evenline.figures.plots import LIGHT, Theme, label, new_figure, png
from evenline.policies.bundle import open_policy
from evenline.records.audit import recorded_days
from evenline.records.build import build, chosen
from evenline.records.files import FittedTo, read_fitted_to
from evenline.records.fit import observe, resampled
from evenline.records.read import open_records
from evenline.records.today import Waiting, lines_of, waiting_today
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.files import write_bytes, write_text
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity, open_city

_PURPOSE = "development"
_SEED = 2_323
_SHOWN = ("waiting_s", "excess_wait_s", "riding_s", "generalized_s", "headway_cv", "bunched_share")


@dataclass(frozen=True, eq=False)
class Simulated:
    """A measure under a policy minus without holding: calibration, day."""

    policy: str
    name: str
    base: float
    change: Floats

    def row(self, form: str, scale: float) -> list[str]:
        days = np.quantile(self.change.mean(axis=0), (0.05, 0.95)) * scale
        fits = np.quantile(self.change.mean(axis=1), (0.05, 0.95)) * scale
        mean = float(self.change.mean()) * scale
        shown = [f"{mean:+{form}}", *(f"{a:+{form}} to {b:+{form}}" for a, b in (days, fits))]
        return [format(self.base * scale, form), *(text.replace("-", "\u2212") for text in shown)]


def write_records_page(
    city: str,
    folder: Path,
    out: Path,
    policies: Sequence[str],
    blocks: int,
    calibrations: int,
    document: Path | None = None,
) -> Path:
    """Write the page of a city that was made from records, and its figures into a document."""
    opened = open_city(city)
    fitted_to = read_fitted_to(Path(city), len(opened.city.trips))
    if "zero" not in policies or len(policies) < 2:
        raise InputError("--policies: name 'zero' and at least one other policy")
    for policy in policies:
        open_policy(policy, opened.city, opened.fitted())
    records, _ = open_records(folder)
    days = recorded_days(opened.city, records, fitted_to, records.days)
    today = [
        wait for day, driven in days.items() for wait in waiting_today(opened.city, day, driven)
    ]
    changes = _simulate(opened, fitted_to, folder, policies, blocks, calibrations)
    tables = [_today_table(opened, today), _model_table(changes)]
    name = f"evenline city report {Path(city).name}"
    made = f"{name}, {blocks} simulated days, {calibrations} more fits"
    write_text(out, _page(opened, today, tables, made))
    if document is not None:
        made = (
            f"{name} --records {folder.name} --out {out.name} --policies {','.join(policies)} "
            f"--blocks {blocks} --fits {calibrations}"
        )
        _write_document(document, opened, today, tables, made)
    return out


def _write_document(
    document: Path,
    opened: OpenCity,
    today: Sequence[Waiting],
    tables: Sequence[Numbers],
    made: str,
) -> None:
    picture = f"{document.stem}-{opened.name}-excess.png"
    write_bytes(document.parent / "images" / picture, png(_excess_figure(opened, today, LIGHT)))
    parts = [f"Made by `{made}`. {_lead(opened)}"]
    for table in tables:
        parts += [f"{table.caption}:", "\n".join(markdown([table.head, *table.rows]))]
    parts.append(f"![Excess waiting of every line, recorded](images/{picture})")
    insert(document, f"report {opened.name}", "\n\n".join(parts))


def _lead(opened: OpenCity) -> str:
    """The notes of the city as sentences, what it was fitted to and how it did first."""
    return " ".join(f"{note[:1].upper()}{note[1:]}." for note in reversed(opened.notes("fast")))


def _simulate(
    opened: OpenCity,
    fitted_to: FittedTo,
    folder: Path,
    policies: Sequence[str],
    blocks: int,
    calibrations: int,
) -> list[Simulated]:
    """Every policy on the same days, with the fit and with fits to trips drawn again."""
    records, _ = open_records(folder)
    hours = (fitted_to.first_hour, fitted_to.last_hour)
    taken = chosen(records, fitted_to.routes, fitted_to.days, hours)
    built = build(taken, opened.name, fitted_to.days, hours)
    seen = observe(built, fitted_to.stamp)
    rng = np.random.Generator(np.random.PCG64(_SEED))
    fits = [(opened.city, opened.fitted())]
    fits += [resampled(built, seen, opened.fitted(), rng) for _ in range(calibrations)]
    cells = PURPOSES[_PURPOSE].cells(blocks, (1.0,))
    table = np.zeros((len(policies), len(fits), len(cells), len(_SHOWN)))
    for f, (city, calibration) in enumerate(fits):
        world = FastWorld(city, calibration)
        for p, source in enumerate(policies):
            policy = open_policy(source, city, calibration)
            for c, cell in enumerate(cells):
                outcome = world.run_day(cell, policy)
                values = measure(city, cell, outcome, world.arrivals_s)
                table[p, f, c] = [values[name] for name in _SHOWN]
    zero = policies.index("zero")
    return [
        Simulated(
            source, name, float(table[zero, ..., m].mean()), table[p, ..., m] - table[zero, ..., m]
        )
        for p, source in enumerate(policies)
        if source != "zero"
        for m, name in enumerate(_SHOWN)
    ]


# -- the page -------------------------------------------------------------------------------------

_EXPLAINED = (
    "The first table comes from the records alone. The wait is that of people who come at random "
    "times; its excess is what they wait beyond the mean headways of the same buses around each. "
    "A gap of more than an hour and three usual headways is a break in service and does not count. "
    "A bus that was not recorded looks like a gap, so both are upper limits where records are "
    "missing. The second table is a simulation; there, excess is what people wait beyond the "
    "timetable. A bus is bunched at less than a quarter of the headway around it. The range over "
    "days shows 90 % of simulated days; the range over fits shows 90 % of models whose doors, "
    "running times, lateness and capacity are fitted to recorded trips drawn again, with a spread "
    "of demand that the days leave open."
)


def _page(opened: OpenCity, today: Sequence[Waiting], tables: Sequence[Numbers], made: str) -> str:
    title, caption, alt = (
        "Excess waiting today",
        "Each dot is a recorded day of a line in one direction; less is better.",
        "Excess waiting of every line, recorded",
    )
    return simple_page(
        f"Waiting and holding in {opened.name}",
        _lead(opened),
        tables,
        [Picture(title, caption, alt, lambda theme: _excess_figure(opened, today, theme))],
        made,
        explained=_EXPLAINED,
    )


def _called(line: str) -> str:
    route, _, direction = line.rpartition(" ")
    return f"route {route}, direction {direction}"


def _today_table(opened: OpenCity, today: Sequence[Waiting]) -> Numbers:
    rows = []
    for line in lines_of(opened.city)[0]:
        of_line = [wait for wait in today if wait.line == line]
        if of_line:
            rows.append(
                [
                    _called(line),
                    f"{np.mean([wait.mean_s for wait in of_line]) / 60:.1f}",
                    f"{np.mean([wait.cv for wait in of_line]):.2f}",
                    f"{100 * np.mean([wait.bunched for wait in of_line]):.1f}",
                    _with_range([wait.wait_s for wait in of_line]),
                    _with_range([wait.excess_s for wait in of_line]),
                ]
            )
    head = ["Line", "Headway, min", "Headway CV", "Bunched, %", "Wait, s", "Excess wait, s"]
    days = len({wait.day for wait in today})
    return Numbers(f"Today, by the records of {days} days (range over days)", head, rows)


def _with_range(values: Sequence[float]) -> str:
    return f"{np.mean(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def _model_table(changes: Sequence[Simulated]) -> Numbers:
    measures = {measure.name: measure for measure in MEASURES}
    rows = []
    for change in changes:
        shown = measures[change.name]
        rows.append([change.policy, shown.heading, *change.row(shown.form, shown.scale)])
    head = ["Policy", "Measure", "Without holding", "Change", "Range over days", "Over fits"]
    return Numbers("What holding would change, by the model (less is better)", head, rows)


def _excess_figure(opened: OpenCity, today: Sequence[Waiting], theme: Theme) -> Figure:
    """Excess waiting of every line, a dot a day."""
    names = [line for line in lines_of(opened.city)[0] if any(w.line == line for w in today)]
    figure = new_figure(7.5, 1.2 + 0.24 * len(names), theme)
    axes = figure.add_subplot()
    rows = [len(names) - 1 - names.index(wait.line) for wait in today]
    axes.plot(
        [wait.excess_s for wait in today], rows, "o", ms=4, color=theme.policies[0], alpha=0.8
    )
    axes.set_yticks(range(len(names)), [_called(name) for name in reversed(names)])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(left=0)
    label(axes, theme, x="excess wait, s (less is better)")
    return figure
