"""Figures of an audit on records: recorded and simulated days side by side."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from evenline.city.clock import time_text
from evenline.city.model import City, Floats
from evenline.control.regularity import headway_cv, headways_of, line_of
from evenline.figures.plots import LIGHT, png
from evenline.records.audit import Compared
from evenline.records.patterns import Driven

_SHOWN_H = 3.0  # of a time-space diagram
_PANELS = 4
_REAL, _MODEL = LIGHT.bunched, "#0072B2"


def audit_pictures(city: City, days: Compared) -> dict[str, bytes]:
    """The three pictures of an audit, by name."""
    return {
        "time-space": png(_time_space(city, days)),
        "headways": png(_along_the_line(city, days, _headway_cvs, "CV of headways")),
        "loads": png(_along_the_line(city, days, _mean_load, "people on board")),
    }


def _busiest(city: City, count: int) -> list[int]:
    """The services with the most visits, at most one of each line."""
    visits = [len(city.trips_of[i]) * len(s.stops) for i, s in enumerate(city.services)]
    order = sorted(range(len(visits)), key=lambda i: -visits[i])
    first: dict[str, int] = {}
    for service in order:
        first.setdefault(line_of(city.services[service]), service)
    return list(first.values())[:count]


def _time_space(city: City, days: Compared) -> Figure:
    """The buses of the busiest service on a held-out day and on a simulated one."""
    service = _busiest(city, 1)[0]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    date, held = next(iter(days.held.items()))
    start_h = (city.clock.start_s if city.clock else 0) / 3600
    middle = float(np.median(held.time_s)) / 3600 + start_h
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for panel, title, driven in zip(
        axes, (f"recorded on {date}", "simulated"), (held, days.simulated[0]), strict=True
    ):
        _draw(panel, city, service, driven, start_h)
        panel.set_title(f"{city.services[service].id}, {title}", loc="left")
        panel.set_xlim(middle - _SHOWN_H / 2, middle + _SHOWN_H / 2)
        panel.set_xlabel("time of day")
        panel.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: time_text(3600 * hour)))
    axes[0].set_ylabel("km along the route")
    return figure


def _draw(axes: Axes, city: City, service: int, driven: Driven, start_h: float) -> None:
    here = driven.only(driven.service == service)
    km = np.array(city.services[service].distance_m)[here.position] / 1000
    hours = here.time_s / 3600 + start_h
    parts = np.flatnonzero(np.diff(here.trip)) + 1
    lines = [
        np.column_stack(pair)
        for pair in zip(np.split(hours, parts), np.split(km, parts), strict=True)
    ]
    axes.add_collection(LineCollection(lines, colors="0.35", linewidths=0.9))
    axes.set_ylim(0, max(city.services[service].distance_m) / 1000 * 1.03)


def _headway_cvs(driven: Driven, positions: int) -> Floats:
    """The coefficient of variation of a service's headways at each stop."""
    cvs, headways = np.full(positions, np.nan), headways_of(driven.time_s, driven.position)
    for position in range(positions):
        deviation = headways.deviation[driven.position[headways.row] == position]
        if len(deviation) > 2:
            cvs[position] = headway_cv(deviation)
    return cvs


def _mean_load(driven: Driven, positions: int) -> Floats:
    """The mean load of a service on leaving each stop."""
    means = np.full(positions, np.nan)
    for position in range(positions):
        load = driven.load[driven.position == position]
        if np.isfinite(load).any():
            means[position] = np.nanmean(load)
    return means


def _along_the_line(
    city: City, days: Compared, of: Callable[[Driven, int], Floats], label: str
) -> Figure:
    """A measure along the busiest services: recorded days, and 90 % of simulated ones."""
    services = _busiest(city, _PANELS)
    rows = -(-len(services) // 2)
    figure = Figure(figsize=(11, 3.1 * rows), layout="constrained")
    grid = figure.subplots(rows, min(2, len(services)), squeeze=False)
    for axes in grid.flat[len(services) :]:
        axes.set_axis_off()
    for axes, service in zip(grid.flat, services, strict=False):
        stops = len(city.services[service].stops)
        km = np.array(city.services[service].distance_m) / 1000

        def values(group: Sequence[Driven], service: int = service, stops: int = stops) -> Floats:
            return np.array([of(d.only(d.service == service), stops) for d in group])

        model = values(days.simulated)
        low, middle, high = np.nanquantile(model, (0.05, 0.5, 0.95), axis=0)
        axes.fill_between(km, low, high, color=_MODEL, alpha=0.2, lw=0, label="simulated, 90 %")
        axes.plot(km, middle, color=_MODEL, lw=1.2)
        for row in values(list(days.fitted.values())):
            axes.plot(km, row, color="0.6", lw=0.9)
        for row in values(list(days.held.values())):
            axes.plot(km, row, color=_REAL, lw=1.4)
        axes.set_title(city.services[service].id, loc="left")
        axes.set_ylim(bottom=0)
        axes.set(xlabel="km along the route", ylabel=label)
    grid[0, 0].plot([], [], color="0.6", lw=0.9, label="recorded, fitted to")
    grid[0, 0].plot([], [], color=_REAL, lw=1.4, label="recorded, held out")
    grid[0, 0].legend(frameon=False, fontsize=8)
    return figure
