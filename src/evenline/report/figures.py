"""The report's main figures as vector files for print: SVG and PDF, one colour scheme, no dates.

They are drawn from the same data as the page. `figure_files` leaves out figures without data.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure

from evenline.city.clock import clock_text
from evenline.city.model import City, Floats
from evenline.figures.plots import (
    DASHES,
    LIGHT,
    ROUTE_COLOURS,
    network_map,
    save,
    svg,
    time_space_diagram,
)
from evenline.report.data import Study
from evenline.report.days import ROLES

FOLDER = "figures"
DIVERGING = LinearSegmentedColormap.from_list("headways", ["#A94C86", "#f6f7f9", "#C07F00"])
GROWING = LinearSegmentedColormap.from_list("holds", ["#f6f7f9", "#009E73"])
Days = dict[str, Any]


def figure_files(study: Study, days: Days | None, service: str | None) -> dict[str, bytes]:
    """Every figure that the study has data for, as SVG and PDF, by path inside its folder."""
    drawn: dict[str, Callable[[], Figure]] = {}
    city, trial = study.city, study.trial
    if city is not None:
        drawn["map"] = lambda: network_map(city)
    if trial is not None:
        drawn["forest"] = lambda: forest(trial)
        drawn["effects"] = lambda: effects(trial)
    if days is not None and city is not None and trial is not None and service is not None:
        drawn["time-space"] = lambda: time_space(city, trial, days, service)
        drawn["headways"] = lambda: headways(city, trial, days, service)
        drawn["load"] = lambda: load(city, trial, days, service)
        drawn["holds"] = lambda: holds(city, days)
    if (training := study.training) is not None and training["ends"]:
        drawn["learning"] = lambda: learning(training)
    if training is not None and training["metrics"]:
        drawn["learning-curves"] = lambda: learning_curves(training)
    if (audit := study.fidelity) is not None:
        drawn["fidelity"] = lambda: fidelity(audit)
    if (logged := study.replay) is not None:
        drawn["replay"] = lambda: replay(logged)
    files = {}
    for name, draw in drawn.items():
        figure = draw()
        for kind, make in (("svg", svg), ("pdf", pdf)):
            files[f"{FOLDER}/{name}.{kind}"] = make(figure)
    return files


def pdf(figure: Figure) -> bytes:
    """The figure as PDF with embedded fonts and without a date."""
    out = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):
        save(figure, out, format="pdf", metadata={"CreationDate": None, "Producer": None})
    return out.getvalue()


# -- the trial ------------------------------------------------------------------------------------


def forest(trial: dict[str, Any]) -> Figure:
    """Block differences of generalized time, the range of their days, and the mean over blocks."""
    count = len(trial["blocks"])
    figure, axes = _blank(6.0, 0.26 * count + 1.3)
    for block in range(count):
        found = [p["generalized_s"] for p in trial["pairs"] if p["block"] == block]
        _interval(axes, float(np.mean(found)), min(found), max(found), block)
    names = [f"block {block + 1}" for block in range(count)]
    whole = trial["analysis"]["beyond_the_claim"]["generalized_s"]["bca_mean"]
    if whole:  # no estimate from one block, or if all are equal
        names.append("mean, 95 %")
        axes.errorbar(
            whole["estimate"], count, fmt="D", color=LIGHT.ink, markersize=6,
            xerr=[[whole["estimate"] - whole["low"]], [whole["high"] - whole["estimate"]]],
        )  # fmt: skip
    _rows(axes, names)
    axes.set_xlabel("generalized time, candidate minus parent, s per passenger")
    return figure


def effects(trial: dict[str, Any]) -> Figure:
    """The same by demand level and by training seed, a faint dot for each block."""
    groups = [(f"demand \u00d7 {level:.2f}", "level", level) for level in trial["levels"]]
    if len(trial["seeds"]) > 1:
        groups += [(f"seed {seed}", "seed", seed) for seed in trial["seeds"]]
    figure, axes = _blank(6.0, 0.3 * len(groups) + 1.1)
    for row, (_, key, value) in enumerate(groups):
        members = [p for p in trial["pairs"] if p[key] == value]
        dots = [
            float(np.mean([p["generalized_s"] for p in members if p["block"] == block]))
            for block in range(len(trial["blocks"]))
        ]
        axes.plot(dots, [row] * len(dots), "o", color=LIGHT.muted, alpha=0.4, markersize=3)
        _interval(axes, float(np.mean(dots)), min(dots), max(dots), row)
    _rows(axes, [name for name, _, _ in groups])
    axes.set_xlabel("generalized time, candidate minus parent, s per passenger")
    return figure


def _interval(axes: Axes, value: float, low: float, high: float, row: float) -> None:
    colour, shape = (LIGHT.policies[0], "o") if value < 0 else (LIGHT.policies[1], "s")
    axes.plot([low, high], [row, row], color=LIGHT.muted, linewidth=1)
    axes.plot(value, row, shape, color=colour, markersize=6)


# -- simulated days -------------------------------------------------------------------------------


def time_space(city: City, trial: dict[str, Any], days: Days, service: str) -> Figure:
    """One service of the first block under both policies, holds marked."""
    panels = {
        f"{role}: {trial['claim'][role]}": _visits(city, days["blocks"][0][role], service)
        for role in ROLES
    }
    return time_space_diagram(panels, service, city=city)


def _visits(city: City, day: dict[str, Any], service: str) -> pa.Table:
    """One service of a simulated day as a stop-visit table."""
    rows = day["services"][service]
    number = next(i for i, each in enumerate(city.services) if each.id == service)
    trips = [city.trips[city.trips_of[number][place]] for place in rows["t"]]
    return pa.table(
        {
            "service": [service] * len(trips),
            "trip": [trip.id for trip in trips],
            "stop_sequence": rows["q"],
            "distance_m": [city.services[number].distance_m[stop] for stop in rows["q"]],
            "scheduled_start_s": [trip.departure_s for trip in trips],
            "arrival_s": rows["a"],
            "departure_s": rows["d"],
            "hold_s": rows["h"],
        }
    )


def headways(city: City, trial: dict[str, Any], days: Days, service: str) -> Figure:
    """Headways by stop and bus as a share of the scheduled ones, under both policies."""
    number = next(i for i, each in enumerate(city.services) if each.id == service)
    shape = (len(city.services[number].stops), len(city.trips_of[number]))
    figure = Figure(figsize=(6.5, 5.0), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, role in zip(panels, ROLES, strict=True):
        rows, grid = days["blocks"][0][role]["services"][service], np.full(shape, np.nan)
        for stop, trip, ratio in zip(rows["q"], rows["t"], rows["r"], strict=True):
            grid[stop, trip] = np.nan if ratio is None else ratio
        image = _cells(axes, grid, DIVERGING, 2.0)
        axes.set_title(f"{role}: {trial['claim'][role]}", loc="left", fontsize=10)
        axes.set_ylabel("stop")
    panels[-1].set_xlabel(f"bus of service {service}, in timetable order")
    _scale(figure, image, list(panels), "headway as a multiple of the scheduled one")
    return figure


def load(city: City, trial: dict[str, Any], days: Days, service: str) -> Figure:
    """Mean load when buses leave each stop, under both policies."""
    figure, axes = _blank(6.0, 3.0)
    styles = zip(ROLES, LIGHT.policies, ("-o", "--D"), strict=True)
    for role, colour, style in styles:
        rows = days["blocks"][0][role]["services"][service]
        stop, on_board = np.array(rows["q"]), np.array(rows["l"], float)
        places = np.unique(stop)
        means = [on_board[stop == place].mean() for place in places]
        label = f"{role}: {trial['claim'][role]}"
        axes.plot(places + 1, means, style, color=colour, markersize=4, label=label)
    index = [each.id for each in city.services].index(service)
    room = city.capacity_of(index)
    axes.axhline(room, color=LIGHT.muted, linestyle=":", label="capacity")
    axes.set(xlabel=f"stop along service {service}", ylabel="passengers on board", ylim=(0, None))
    axes.legend(frameon=False, fontsize=9)
    return figure


def holds(city: City, days: Days) -> Figure:
    """The share of decisions that the completion reserve set, or else that were holds, by service
    and hour.
    """
    elements = {row[0] for row in days["activations"]["candidate"]}
    shown = "completion reserve" if "completion reserve" in elements else days["held"]
    names, hours = [each.id for each in city.services], -(-city.horizon_s // 3600)
    acted, asked = np.zeros((len(names), hours)), np.zeros((len(names), hours))
    for element, service, hour, times in days["activations"]["candidate"]:
        if element == shown and hour < hours:
            acted[names.index(service), hour] += times
    for service, hour, times in days["decisions"]:
        if hour < hours:
            asked[names.index(service), hour] += times
    figure = Figure(figsize=(6.0, 0.28 * len(names) + 1.4), layout="constrained")
    axes = figure.subplots()
    image = _cells(axes, 100 * acted / np.maximum(asked, 1), GROWING, None)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(hours), [clock_text(city, 3600 * hour) for hour in range(hours)])
    axes.set(xlabel="hour that begins at", ylabel="service")
    _scale(figure, image, [axes], "% of decisions")
    return figure


# -- training and audit ---------------------------------------------------------------------------


def learning(training: dict[str, Any]) -> Figure:
    """The results of each learner, one dot per training seed."""
    names = list(dict.fromkeys(row["learner"] for row in training["ends"]))
    figure, axes = _blank(6.0, 0.3 * len(names) + 1.1)
    for row in training["ends"]:
        axes.plot(row["generalized_s"], names.index(row["learner"]), "o", alpha=0.6,
                  color=LIGHT.policies[0], markersize=5)  # fmt: skip
    _rows(axes, names)
    if training["zero"]:
        axes.axvline(training["zero"]["generalized_s"], color=LIGHT.muted, linestyle="--")
    axes.set_xlabel("generalized time on fresh days of the fast world, s per passenger")
    return figure


def learning_curves(training: dict[str, Any]) -> Figure:
    """Every quantity of the updates, simulated days to the right of the updates on the replay."""
    series = training["metrics"]
    quantities = list(dict.fromkeys(each["quantity"] for each in series))
    phases = list(dict.fromkeys(each["phase"] for each in series))
    learners = list(dict.fromkeys(each["learner"] for each in series))
    figure = Figure(
        figsize=(3.6 * len(phases) + 1.0, 1.9 * len(quantities) + 0.6), layout="constrained"
    )
    panels = figure.subplots(len(quantities), len(phases), squeeze=False, sharex="col")
    for each in series:
        axes = panels[quantities.index(each["quantity"])][phases.index(each["phase"])]
        _curve(axes, each, learners.index(each["learner"]))
    for row, quantity in enumerate(quantities):
        panels[row][0].set_ylabel(training["quantities"][quantity], fontsize=8)
    for place, phase in enumerate(phases):
        panels[0][place].set_title(_PHASES.get(phase, phase), loc="left", fontsize=10)
        panels[-1][place].set_xlabel("updates")
    for axes in panels.flat:
        _plain(axes)
    handles = {line.get_label(): line for axes in panels.flat for line in axes.get_lines()}
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=6, frameon=False,
        fontsize=8,
    )  # fmt: skip
    return figure


def _curve(axes: Axes, series: dict[str, Any], place: int) -> None:
    """A learner's mean over seeds, with their range behind it."""
    colour = ROUTE_COLOURS[place % len(ROUTE_COLOURS)]
    dashes = DASHES[place // len(ROUTE_COLOURS) % len(DASHES)]
    points = np.array([row for row in series["points"] if row[1] is not None], float)
    update, mean, low, high = points.T
    axes.plot(update, mean, color=colour, linestyle=dashes, linewidth=1.3, label=series["learner"])
    axes.fill_between(update, low, high, alpha=0.12, color=colour, linewidth=0)


_PHASES = {"iql": "IQL on the replay", "online": "simulated days"}


def replay(audit: dict[str, Any]) -> Figure:
    """Histograms of the recorded holds and headways."""
    figure = Figure(figsize=(7.0, 2.6), layout="constrained")
    panels = figure.subplots(1, 2)
    shown = (("hold_histogram", 2, "positive hold, s"), ("headway_histogram", 1, "headway, min"))
    for axes, (key, width, label) in zip(panels, shown, strict=True):
        edges = width * np.arange(len(audit[key]))
        axes.bar(edges, audit[key], width=0.92 * width, align="edge", color=LIGHT.policies[0])
        axes.set(xlabel=label, ylabel="stop visits")
        _plain(axes)
    return figure


def fidelity(audit: dict[str, Any]) -> Figure:
    """Every interval of the audit without holding as a share of its limit."""
    lines = [line for line in audit["lines"] if line["audit"] == "zero"]
    names = list(dict.fromkeys(line["quantity"] for line in lines))
    figure, axes = _blank(6.0, 0.42 * len(names) + 1.0)
    for row, name in enumerate(names):
        members = [line for line in lines if line["quantity"] == name]
        for line, shift in zip(members, np.linspace(-0.25, 0.25, len(members)), strict=True):
            limit, colour = line["limit"], LIGHT.policies[0 if line["passed"] else 1]
            ends = [line["low"] / limit, line["high"] / limit]
            axes.plot(ends, [row + shift] * 2, color=colour, linewidth=1.4)
            axes.plot(line["gap"] / limit, row + shift, "o", color=colour, markersize=3)
    _rows(axes, names)
    for edge in (-1, 1):
        axes.axvline(edge, color=LIGHT.muted, linestyle="--", linewidth=1)
    axes.set_xlabel("fast world minus SUMO, as a share of the limit (95 % interval)")
    return figure


# -- house style ----------------------------------------------------------------------------------


def _blank(width_in: float, height_in: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.grid(color=LIGHT.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _scale(figure: Figure, image: QuadMesh, panels: list[Axes], label: str) -> None:
    """The scale of a heat map as vector graphics, instead of a bitmap."""
    bar = figure.colorbar(image, ax=panels, label=label)
    if bar.solids is not None:
        bar.solids.set_rasterized(False)
        bar.solids.set_edgecolor("face")  # no thin lines between its cells


def _cells(axes: Axes, grid: Floats, colours: Colormap, most: float | None) -> QuadMesh:
    """A heat map of vector cells, the first row on top."""
    down, across = (np.arange(size + 1) - 0.5 for size in grid.shape)
    mesh = axes.pcolormesh(
        across, down, grid, cmap=colours, vmin=0, vmax=most, edgecolor="white", linewidth=0.5
    )
    axes.invert_yaxis()
    return mesh


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Names on the left, the first on top, and a line at zero if zero is visible."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    low, high = axes.get_xlim()
    if low < 0 < high:
        axes.axvline(0, color=LIGHT.ink, linewidth=1)
