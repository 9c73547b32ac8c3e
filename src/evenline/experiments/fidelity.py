"""The fidelity audit as a command: run the missing SUMO days, run the fast world, report.

It uses the replay's SUMO days: the same cell and policy are never simulated twice.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from evenline.city.tables import digest
from evenline.control.outcome import Outcome
from evenline.experiments.collect import collect, planned
from evenline.figures.document import insert
from evenline.figures.plots import png
from evenline.replay.episode import read_metadata, read_outcome
from evenline.rules.policy import BEHAVIOURS
from evenline.runs.executors import Executor
from evenline.runs.job import Ended
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.files import refuse_changed_files, to_json, write_bytes, write_listed
from evenline.support.terminal import stdout, words
from evenline.worlds.fidelity import (
    ABSOLUTE,
    GOALS,
    RESAMPLES,
    Line,
    Outcomes,
    accepted,
    audit,
    largest_gaps,
)
from evenline.worlds.open import OpenCity, open_city

AUDIT, PICTURE = "fidelity.json", "fidelity.png"


def fidelity_audit(
    city_name: str,
    calibration_file: Path | None,
    replay: Path,
    out: Path,
    executor: Executor | None = None,
    on_end: Callable[[Ended], None] = lambda ended: None,
    blocks: int | None = None,
    force: bool = False,
) -> list[Line]:
    """Run both audits; write `fidelity.json` and `fidelity.png` to `out`."""
    opened = open_city(city_name, calibration_file)
    opened.fitted()
    refuse_changed_files(out, (AUDIT, PICTURE), force)
    failures = collect(replay, city_name, blocks, executor, on_end)
    if failures:
        raise InputError(f"{replay}: {len(failures)} episodes failed; first: {failures[0].error}")
    sumo, fast, versions = _outcomes(opened, replay, blocks)
    lines = audit(sumo, fast)
    found, picture = to_json(_report(opened, lines, versions)), png(fidelity_figure(lines))
    write_listed(out, {AUDIT: found.encode(), PICTURE: picture}, force)
    return lines


def _outcomes(
    opened: OpenCity, replay: Path, blocks: int | None
) -> tuple[Outcomes, Outcomes, set[str]]:
    world = opened.fast_world()
    sumo: dict[str, dict[Any, Outcome]] = {}
    fast: dict[str, dict[Any, Outcome]] = {}
    versions = set()
    for job in planned(replay, opened.source, blocks):
        assert job.tokens is not None
        name = job.policy
        sumo.setdefault(name, {})[job.cell] = read_outcome(job.tokens)
        fast.setdefault(name, {})[job.cell] = world.run_day(job.cell, BEHAVIOURS[name])
        versions.add(read_metadata(job.tokens).sumo)
    return sumo, fast, versions


def _report(opened: OpenCity, lines: list[Line], versions: set[str]) -> dict[str, Any]:
    return {
        "city": opened.source,
        "city_digest": digest(opened.city),
        "sumo": sorted(versions),
        "resamples": RESAMPLES,
        "accepted": accepted(lines),
        "largest_zero_gaps": largest_gaps(lines),
        "goals": GOALS,
        "lines": [line.as_dict() for line in lines],
    }


def fidelity_figure(lines: list[Line]) -> Figure:
    """Plot every interval as a share of its limit; -1 to 1 is within the limit."""
    groups = {
        "Zero hold, by demand level": [li for li in lines if li.audit == "zero"],
        "Response to seven policies": [li for li in lines if li.audit == "response"],
        "Holds": [li for li in lines if li.audit == "hold"],
    }
    figure = Figure(figsize=(9, 11), layout="constrained")
    sizes = [len({(li.quantity) for li in group}) for group in groups.values()]
    for axes, (title, group) in zip(
        figure.subplots(len(groups), 1, height_ratios=sizes), groups.items(), strict=True
    ):
        names = list(dict.fromkeys(line.quantity for line in group))
        for row, name in enumerate(names):
            members = [line for line in group if line.quantity == name]
            for line, dy in zip(members, np.linspace(-0.32, 0.32, len(members)), strict=True):
                color = "#0072B2" if line.passed else "#D55E00"
                at = row + dy if len(members) > 1 else row
                axes.plot([line.low / line.limit, line.high / line.limit], [at, at], color=color)
                axes.plot(line.gap / line.limit, at, ".", ms=4, color=color)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        for edge in (-1, 1):
            axes.axvline(edge, color="0.4", lw=1)
        axes.axvline(0, color="0.8", lw=0.8)
        axes.set(title=title, xlim=(-1.15, 1.15))
    axes.set_xlabel("gap fast minus SUMO, as a share of its limit (95 % interval)")
    return figure


# -- words ----------------------------------------------------------------------------------------


def _cells(line: Line) -> list[str]:
    form = "{:+.4f}" if line.quantity in ABSOLUTE or line.audit == "response" else "{:+.2%}"
    values = [form.format(value) for value in (line.gap, line.low, line.high)]
    limit = form.format(line.limit).lstrip("+")
    return [line.policy, line.level, line.quantity, values[0], f"{values[1]} to {values[2]}", limit]


def print_lines(lines: list[Line]) -> None:
    """The audit as a table: every line of the zero audit, the widest of each response, failures."""
    table = Table("policy", "demand", "quantity", "gap", "95 % interval", "limit", "pass")
    for line in shown(lines):
        table.add_row(*_cells(line), "yes" if line.passed else words("NO", "bold red"))
    stdout.print(table)
    failed = sum(not line.passed for line in lines)
    verdict = "accepted" if accepted(lines) else f"NOT accepted: {failed} outside their limits"
    stdout.print(f"{len(lines)} intervals: {verdict}")


def shown(lines: list[Line]) -> list[Line]:
    """The most important lines of an audit of about 160 lines."""
    chosen = [line for line in lines if line.audit == "zero" or not line.passed]
    for audit_name in ("response", "hold"):
        for name in dict.fromkeys(li.quantity for li in lines if li.audit == audit_name):
            group = [li for li in lines if li.audit == audit_name and li.quantity == name]
            widest = max(group, key=lambda li: max(abs(li.low), abs(li.high)))
            if widest not in chosen:
                chosen.append(widest)
    return chosen


def write_document(document: Path, name: str, lines: list[Line], folder: Path) -> None:
    """Write the audit of a city between its marks in a document, with its figure."""
    image = document.parent / "images" / f"fidelity-{name}.png"
    write_bytes(image, (folder / PICTURE).read_bytes())
    gaps = largest_gaps(lines)
    text = [
        f"Made by `evenline city judge {name}`: {len(lines)} intervals, "
        + ("all inside their limits." if accepted(lines) else "NOT all inside their limits."),
        "",
    ]
    largest = [["Largest point gap, zero hold", "ours", "goal (the paper's)"]]
    for quantity, goal in GOALS.items():
        form = "{:.4f}" if quantity in ABSOLUTE else "{:.2%}"
        largest.append([quantity, form.format(gaps[quantity]), form.format(goal)])
    rows = [["Policy", "Demand", "Quantity", "Gap", "95 % interval", "Limit", "Pass"]]
    rows += [[*_cells(line), "yes" if line.passed else "**no**"] for line in shown(lines)]
    text += [*markdown(largest), "", *markdown(rows, text=3)]
    text += [
        "",
        f"![Every interval of the audit of {name} as a share of its limit](images/{image.name})",
    ]
    insert(document, f"audit of {name}", "\n".join(text))
