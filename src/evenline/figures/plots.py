"""The figures: a city's map, time-space diagrams, headways and waiting, for paper and screen.

Each function returns a matplotlib `Figure` and has no side effects; `png` and `svg` turn it into
bytes, the same bytes for the same figure. Colours are those of Okabe and Ito, which colour-blind
readers can tell apart, and no meaning depends on colour alone.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MultipleLocator

from evenline.city.clock import clock_text
from evenline.city.model import City, Floats, Service, road_ways, streets_of_routes
from evenline.control.regularity import BUNCHED
from evenline.figures.measure import (
    column,
    headway_ratios,
    people_setting_out,
    rides_of,
)
from evenline.worlds.sumo.streets import background

ROUTE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", (0, (4, 1.5)))
_LINE_PARTS = 12  # of a line, in the picture of where people board
_NAMES_SHOWN = 12  # of stops along a service
_RATIO_SHOWN = 3.0  # longest headway in the histogram; longer ones count in the last bar


@dataclass(frozen=True)
class Theme:
    """Colours of a figure: paper and ink, two greys, and one colour for each of two policies."""

    paper: str
    ink: str
    muted: str
    faint: str
    policies: tuple[str, str]
    bunched: str
    held: str


LIGHT = Theme(
    "#ffffff", "#1b1f24", "#6a737d", "#d8dde3", ("#0072B2", "#D55E00"), "#D55E00", "#009E73"
)
DARK = Theme(
    "#14181d", "#e8ebee", "#98a2ad", "#39424c", ("#56B4E9", "#E69F00"), "#E69F00", "#35C79A"
)


# -- the map --------------------------------------------------------------------------------------


def network_map(city: City) -> Figure:
    """Streets, bus lanes, signals, stops and routes; routes on one street are drawn side by
    side.
    """
    xs, ys = [node.x_m for node in city.nodes], [node.y_m for node in city.nodes]
    width_m, height_m = max(xs) - min(xs), max(ys) - min(ys)
    width_in = 11.0 if width_m > 10_000 else 8.0
    figure = new_figure(width_in, width_in * height_m / max(width_m, 1.0) + 1.0)
    axes = figure.add_subplot()
    gap_m = max(width_m, height_m) / 190
    _draw_streets(axes, city)
    _draw_routes(axes, city, gap_m)
    axes.set_aspect("equal")
    axes.set_axis_off()
    _draw_scale(axes, min(xs), min(ys) - 6 * gap_m, width_m)
    axes.legend(
        handles=_map_legend(city), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=5,
        frameon=False, fontsize=10, handlelength=1.6,
    )  # fmt: skip
    return figure


def _draw_streets(axes: Axes, city: City) -> None:
    behind = background(city)
    axes.add_collection(LineCollection(behind, colors=LIGHT.faint, linewidths=0.6, zorder=-1))
    ways = road_ways(city)
    lanes = [ways[road.id] for road in city.roads if road.bus_lane]
    axes.add_collection(LineCollection(lanes, colors="#f0e442", linewidths=15, alpha=0.6, zorder=0))
    streets = list(ways.values())
    axes.add_collection(LineCollection(streets, colors=LIGHT.faint, linewidths=1.0, zorder=1))
    signals = [(node.x_m, node.y_m) for node in city.nodes if node.signal]
    axes.plot(*_columns(signals), "s", color=LIGHT.ink, markersize=3.6, zorder=4)
    stops = [(stop.x_m, stop.y_m) for stop in city.stops]
    axes.plot(
        *_columns(stops), "o", markersize=3.4, markerfacecolor="white", zorder=5,
        markeredgecolor=LIGHT.ink, markeredgewidth=0.7,
    )  # fmt: skip


def _draw_routes(axes: Axes, city: City, gap_m: float) -> None:
    routes = _routes(city)
    lines: dict[str, list[Floats]] = {route: [] for route in routes}
    for way, here in streets_of_routes(city):
        points = np.array(way)
        east, north = points[-1] - points[0]
        across = np.array([-north, east])
        # Always to the same side of the map, so that a route does not jump at each junction.
        across *= np.sign(across[1] if abs(across[1]) > abs(across[0]) else across[0])
        across /= max(float(np.hypot(*across)), 1e-9)
        side_by_side = [route for route in routes if route in here]
        for slot, route in enumerate(side_by_side):
            lines[route].append(points + across * gap_m * (slot - (len(side_by_side) - 1) / 2))
    for route, colour in routes.items():
        axes.add_collection(
            LineCollection(lines[route], colors=colour, linewidths=2.4, capstyle="round", zorder=3)
        )
    for name, x_m, y_m in _stop_names(city, 3 * gap_m):
        axes.annotate(
            name, (x_m, y_m), (0, -18), textcoords="offset points", color=LIGHT.ink, fontsize=7,
            ha="center", zorder=6, bbox={"facecolor": "white", "alpha": 0.7, "pad": 0.5, "lw": 0},
        )  # fmt: skip
    for route, x_m, y_m in _terminals(city, 3 * gap_m):
        box = {"boxstyle": "round,pad=0.25", "facecolor": routes[route], "edgecolor": "white"}
        axes.annotate(
            route, (x_m, y_m), color="white", fontsize=10, fontweight="bold", ha="center",
            va="center", zorder=7, bbox=box,
        )  # fmt: skip


def _terminals(city: City, apart_m: float) -> list[tuple[str, float, float]]:
    """The positions of a route's name: both ends of its first service, clear of other names."""
    first: dict[str, Service] = {}
    for service in city.services:
        first.setdefault(service.route, service)
    names: list[tuple[str, float, float]] = []
    for route, service in first.items():
        for stop in (city.stops[service.stops[0]], city.stops[service.stops[-1]]):
            y_m = stop.y_m
            while any(
                abs(stop.x_m - x) < 2 * apart_m and abs(y_m - y) < apart_m for _, x, y in names
            ):
                y_m += apart_m
            names.append((route, stop.x_m, y_m))
    return names


def _stop_names(city: City, apart_m: float) -> list[tuple[str, float, float]]:
    """The names of first and last stops, as far as they have room."""
    ends = {stop for service in city.services for stop in (service.stops[0], service.stops[-1])}
    names: list[tuple[str, float, float]] = []
    for stop in (city.stops[end] for end in sorted(ends)):
        near = any(
            abs(stop.x_m - x) < 6 * apart_m and abs(stop.y_m - y) < apart_m for _, x, y in names
        )
        if stop.name and not near:
            names.append((_short(stop.name), stop.x_m, stop.y_m))
    return names


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}\u2026"


def _map_legend(city: City) -> list[Line2D]:
    routes = [
        Line2D([], [], color=colour, linewidth=3, label=f"route {route}")
        for route, colour in _routes(city).items()
    ]
    return [
        *routes,
        Line2D(
            [], [], linestyle="none", marker="o", markersize=5, label="stop",
            markerfacecolor="white", markeredgecolor=LIGHT.ink,
        ),
        Line2D([], [], linestyle="none", marker="s", markersize=5, color=LIGHT.ink, label="signal"),
        Line2D([], [], color="#f0e442", alpha=0.6, linewidth=9, label="bus lane"),
        Line2D([], [], color=LIGHT.faint, linewidth=1.5, label="other street"),
    ]  # fmt: skip


def _draw_scale(axes: Axes, x_m: float, y_m: float, width_m: float) -> None:
    length_m = 1000 if width_m < 10_000 else 2000
    axes.plot([x_m, x_m + length_m], [y_m, y_m], color=LIGHT.ink, linewidth=2)
    axes.annotate(
        f"{length_m // 1000} km", (x_m + length_m / 2, y_m), (0, 4), textcoords="offset points",
        ha="center", fontsize=10, color=LIGHT.ink,
    )  # fmt: skip


def _routes(city: City) -> dict[str, str]:
    names = list(dict.fromkeys(service.route for service in city.services))
    return {name: ROUTE_COLOURS[i % len(ROUTE_COLOURS)] for i, name in enumerate(names)}


# -- demand ---------------------------------------------------------------------------------------


def demand_profile(city: City) -> Figure:
    """People who set out through the day at demand 1.00, by the hour or, on a short day, by the
    quarter; and the parts of the line where rides begin and end.
    """
    figure = new_figure(9.0, 3.8)
    by_time, along = figure.subplots(1, 2)
    bin_h = 1.0 if city.horizon_s > 3 * 3600 else 0.25
    people, first = people_setting_out(city, int(3600 * bin_h)), LIGHT.policies[0]
    begins = bin_h * np.arange(len(people))
    bars = by_time.bar(begins, people, width=0.9 * bin_h, align="edge", color=first)
    counts = [f"{count:,}" if count and len(people) <= 24 else "" for count in people]
    by_time.bar_label(bars, counts, fontsize=8.5, color=LIGHT.ink)
    lasts_h = [city.trips[trips[-1]].departure_s / 3600 for trips in city.trips_of if trips]
    by_time.plot(
        lasts_h, [0.97] * len(lasts_h), "v", transform=by_time.get_xaxis_transform(),
        color=LIGHT.ink, markersize=5, label="the last bus of a service leaves",
    )  # fmt: skip
    by_time.margins(y=0.14)
    by_time.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    _clock(by_time, bin_h * len(people), city)
    title = f"{city.name}: when {people.sum():,} people set out"
    often = "an hour" if bin_h == 1.0 else "a quarter of an hour"
    label(by_time, LIGHT, title, "time of day (h:mm)", f"people in {often}")
    rides, edges = rides_of(city), np.linspace(0, 1, _LINE_PARTS + 1)
    weight = 100 * rides.weight / max(1.0, rides.weight.sum())
    begin, end = (np.histogram(at, edges, weights=weight)[0] for at in (rides.begin, rides.end))
    along.stairs(begin, 100 * edges, fill=True, color=first, label="board")
    along.stairs(
        end, 100 * edges, color=LIGHT.policies[1], linestyle=_DASHES[1], linewidth=1.8,
        label="alight",
    )  # fmt: skip
    along.set_xlim(0, 100)
    label(
        along,
        LIGHT,
        "where they board and alight",
        "way along the line, % of its stops",
        "% of rides",
    )
    _legend(figure, LIGHT, [h for axes in figure.axes for h in axes.get_legend_handles_labels()[0]])
    return figure


# -- time and space -------------------------------------------------------------------------------


def time_space_diagram(
    panels: Mapping[str, pa.Table],
    service: str,
    theme: Theme = LIGHT,
    width_in: float = 9.0,
    city: City | None = None,
    dots: str = "held (area: how long)",
) -> Figure:
    """The buses of one service over the day, one panel for each of several days or policies.

    With the city, stops that have names are named. `dots` says what a hold in the tables means.
    """
    figure = new_figure(width_in, 2.9 * len(panels) + 0.5, theme)
    all_axes = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (title, visits) in zip(all_axes, panels.items(), strict=True):
        _draw_trips(axes, visits, service, theme, city)
        label(axes, theme, title=title, y="km along the route")
        _name_stops(axes, city, service, theme)
    label(all_axes[-1], theme, x="time of day (h:mm)")
    shown = [*panels.values()]
    held = any((column(visits, "hold_s") > 0).any() for visits in shown)
    _legend(figure, theme, _trip_legend(theme, held, dots))
    return figure


def _name_stops(axes: Axes, city: City | None, service: str, theme: Theme) -> None:
    """Names of stops at the right, as many as have room."""
    here = next((s for s in city.services if s.id == service), None) if city is not None else None
    if city is None or here is None or not any(city.stops[stop].name for stop in here.stops):
        return
    shown: list[int] = []
    for position in (len(here.stops) - 1, *range(len(here.stops) - 1)):
        at_m = here.distance_m[position]
        if all(abs(at_m - here.distance_m[p]) > here.length_m / _NAMES_SHOWN for p in shown):
            shown.append(position)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(
        [here.distance_m[p] / 1000 for p in shown],
        [_short(city.stops[here.stops[p]].name) for p in shown],
    )
    beside.tick_params(labelsize=7, length=2, colors=theme.muted)
    beside.spines["right"].set_visible(False)


def time_space_grid(visits: pa.Table, theme: Theme = LIGHT, city: City | None = None) -> Figure:
    """Every service of a day in its own panel; services without a stop visit have none."""
    services = list(dict.fromkeys(column(visits, "service").tolist()))
    columns = 2 if len(services) <= 6 else 3
    rows = max(1, -(-len(services) // columns))
    figure = new_figure(5.2 * columns, 2.7 * rows + 0.5, theme)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes in grid.flat[len(services) :]:
        axes.set_axis_off()
    for axes, service in zip(grid.flat, services, strict=False):
        _draw_trips(axes, visits, service, theme, city)
        label(axes, theme, title=f"service {service}")
        _name_stops(axes, city, service, theme)
    for axes in grid[:, 0]:
        label(axes, theme, y="km")
    for axes in grid[-1]:
        label(axes, theme, x="time of day (h:mm)")
    _legend(figure, theme, _trip_legend(theme, bool((column(visits, "hold_s") > 0).any())))
    return figure


def _draw_trips(
    axes: Axes, visits: pa.Table, service: str, theme: Theme, city: City | None
) -> None:
    here = column(visits, "service").astype(str) == service
    trip, bunched = column(visits, "trip")[here], headway_ratios(visits)[here] < BUNCHED
    arrival_h, departure_h = (
        column(visits, f"{n}_s")[here] / 3600 for n in ("arrival", "departure")
    )
    km, hold_s = column(visits, "distance_m")[here] / 1000, column(visits, "hold_s")[here]
    lines = []
    for name in np.unique(trip.astype(str)):
        rows = trip == name
        hours = np.stack([arrival_h[rows], departure_h[rows]], axis=1).ravel()
        lines.append(np.column_stack([hours, np.repeat(km[rows], 2)]))
    axes.add_collection(LineCollection(lines, colors=theme.muted, linewidths=0.9, zorder=2))
    held = hold_s > 0
    axes.scatter(
        departure_h[held], km[held], s=hold_s[held] * 0.5, c=theme.held, alpha=0.75,
        linewidths=0, zorder=3,
    )  # fmt: skip
    axes.plot(
        arrival_h[bunched], km[bunched], "x", color=theme.bunched, markersize=3.6,
        markeredgewidth=1.0, zorder=4,
    )  # fmt: skip
    axes.set_ylim(0, max(km, default=1.0) * 1.03)
    last_h = float(column(visits, "departure_s").max(initial=3600)) / 3600
    _clock(axes, last_h * 1.01, city)


def _clock(axes: Axes, end_h: float, city: City | None) -> None:
    """An axis of hours from the start of the day, with the city's time of day."""
    axes.set_xlim(0, end_h)
    axes.xaxis.set_major_locator(MultipleLocator(1.0 if end_h > 3 else 0.25))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: clock_text(city, 3600 * hour)))


def _trip_legend(theme: Theme, held: bool, dots: str = "held (area: how long)") -> list[Line2D]:
    bunched = f"bunched: under {BUNCHED:.0%} of the scheduled headway"
    entries = [
        Line2D([], [], color=theme.muted, linewidth=1.2, label="a bus"),
        Line2D([], [], linestyle="none", marker="x", color=theme.bunched, label=bunched),
    ]
    if held:
        entries.append(
            Line2D([], [], linestyle="none", marker="o", color=theme.held, alpha=0.75,
                   label=dots)
        )  # fmt: skip
    return entries


# -- comparisons ----------------------------------------------------------------------------------


def headway_histogram(ratios: Mapping[str, Floats], theme: Theme = LIGHT) -> Figure:
    """Histogram of headways divided by the timetable's, one outline per policy."""
    figure = new_figure(5.8, 3.3, theme)
    axes = figure.add_subplot()
    edges = np.linspace(0, _RATIO_SHOWN, 25)
    axes.axvspan(0, BUNCHED, color=theme.faint, alpha=0.7, linewidth=0)
    for (name, values), colour, dash in zip(ratios.items(), theme.policies, _DASHES, strict=False):
        counts, _ = np.histogram(np.clip(values, 0, _RATIO_SHOWN - 1e-9), edges)
        share = 100 * counts / max(1, counts.sum())
        axes.stairs(share, edges, color=colour, linestyle=dash, linewidth=1.8, label=name)
    axes.set_xlim(0, _RATIO_SHOWN)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x:g}+" if x == _RATIO_SHOWN else f"{x:g}")
    )
    label(axes, theme, x="headway as a multiple of the timetable's", y="% of arrivals")
    axes.annotate(
        "bunched", (BUNCHED / 2, 0.5), xycoords=("data", "axes fraction"), rotation=90,
        ha="center", va="center", fontsize=9, color=theme.muted,
    )  # fmt: skip
    _legend(figure, theme, axes.get_legend_handles_labels()[0])
    return figure


# -- house style and bytes ------------------------------------------------------------------------


def png(figure: Figure, dpi: int = 130) -> bytes:
    """The figure as PNG."""
    out = io.BytesIO()
    save(figure, out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as SVG, without external fonts and without a date."""
    out = io.BytesIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "evenline"}):
        save(figure, out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def save(figure: Figure, out: Path | io.BytesIO, **options: Any) -> None:
    """Write a figure. A name from data with a `$` in it is a name, and no mathematics."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    with rc_context({"text.parse_math": False}):
        figure.savefig(out, **options)


def new_figure(width_in: float, height_in: float, theme: Theme = LIGHT) -> Figure:
    """An empty figure in the colours of a theme."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained", facecolor=theme.paper)
    FigureCanvasAgg(figure)
    return figure


def label(axes: Axes, theme: Theme, title: str = "", x: str = "", y: str = "") -> None:
    """Set labels and house style of one panel; labels that are not given stay."""
    axes.set_facecolor(theme.paper)
    axes.tick_params(colors=theme.muted, labelsize=9)
    axes.grid(color=theme.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(theme.faint)
    if title:
        axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=theme.ink)
    if x:
        axes.set_xlabel(x, fontsize=9.5, color=theme.ink)
    if y:
        axes.set_ylabel(y, fontsize=9.5, color=theme.ink)


def _legend(figure: Figure, theme: Theme, entries: Sequence[Any]) -> None:
    columns = len(entries) if figure.get_figwidth() > 7 else 2
    figure.legend(
        handles=list(entries), loc="outside upper left", ncols=columns, frameon=False,
        fontsize=9, labelcolor=theme.ink,
    )  # fmt: skip


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
