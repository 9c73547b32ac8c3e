"""The fidelity audit as a command: run or resume SUMO, run the fast world, judge, show.

Its SUMO episodes are the replay's: the same cell and policy are never simulated twice.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evenline.city.tables import open_city
from evenline.control.outcome import Outcome
from evenline.errors import InputError
from evenline.files import to_json, write_bytes, write_text
from evenline.policies.rules import BEHAVIOURS
from evenline.replay.collect import collect, planned
from evenline.replay.episode import read_metadata, read_outcome
from evenline.report.figures import png
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.fidelity import (
    GOALS,
    RESAMPLES,
    Line,
    Outcomes,
    accepted,
    audit,
    largest_gaps,
)
from evenline.worlds.sumo.pool import Result

AUDIT = "fidelity.json"


def fidelity_audit(
    city_name: str,
    calibration: Calibration,
    replay: Path,
    out: Path,
    blocks: int | None = None,
    workers: int | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Line]:
    """Both audits; writes `fidelity.json` and `fidelity.png` into `out`."""
    failures = collect(replay, city_name, blocks, workers, on_result)
    if failures:
        raise InputError(f"{replay}: {len(failures)} episodes failed; first: {failures[0].error}")
    sumo, fast, versions = _outcomes(city_name, calibration, replay, blocks)
    lines = audit(sumo, fast)
    write_text(out / AUDIT, to_json(_report(city_name, calibration, lines, versions)))
    write_bytes(out / "fidelity.png", png(fidelity_figure(lines)))
    return lines


def _outcomes(
    city_name: str, calibration: Calibration, replay: Path, blocks: int | None
) -> tuple[Outcomes, Outcomes, set[str]]:
    world = FastWorld(open_city(city_name), calibration)
    sumo: dict[str, dict[Any, Outcome]] = {}
    fast: dict[str, dict[Any, Outcome]] = {}
    versions = set()
    for job in planned(replay, city_name, blocks):
        assert job.tokens is not None
        name = job.rule.name
        sumo.setdefault(name, {})[job.cell] = read_outcome(job.tokens)
        fast.setdefault(name, {})[job.cell] = world.run_rule(job.cell, BEHAVIOURS[name])
        versions.add(read_metadata(job.tokens)["sumo"])
    return sumo, fast, versions


def _report(
    city_name: str, calibration: Calibration, lines: list[Line], versions: set[str]
) -> dict[str, Any]:
    return {
        "city": city_name,
        "city_digest": calibration.city,
        "sumo": sorted(versions),
        "resamples": RESAMPLES,
        "accepted": accepted(lines),
        "largest_zero_gaps": largest_gaps(lines),
        "goals": GOALS,
        "lines": [line.as_dict() for line in lines],
    }


def fidelity_figure(lines: list[Line]) -> Figure:
    """Every interval as a share of its limit: inside -1..1 is inside the limit."""
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
