"""Figures show what the table holds, each thing once, and come out the same every time."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from defusedxml.ElementTree import fromstring
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

import evenline
from evenline.city.embedded import embedded_city
from evenline.figures.plots import (
    DARK,
    demand_profile,
    headway_histogram,
    network_map,
    png,
    svg,
    time_space_diagram,
    time_space_grid,
)
from small_days import two_services


@pytest.mark.parametrize("name", [r"$\frac{1}$", "a$b^{$", "$x$"])
@pytest.mark.parametrize("make", [png, svg])
def test_a_name_with_dollars_is_drawn_as_it_is(name: str, make: Callable[[Figure], bytes]) -> None:
    """Matplotlib takes what stands between dollars for mathematics, and may fail to read it."""

    def drawn(title: str, parsed: bool) -> bytes:
        figure = Figure()
        axes = figure.subplots()
        axes.set_title(title, parse_math=parsed)
        axes.plot([0, 1], [1, 2], label=title)
        axes.legend(loc="upper left")
        axes.set_yticks([1, 2], [title, "b"], parse_math=parsed)
        return make(figure)

    assert drawn(name, True) == drawn(name, False)
    assert drawn(name, True) != drawn(name.replace("$", ""), True)


def test_every_figure_is_written_in_one_place() -> None:
    package = Path(evenline.__file__).parent
    writers = [path.name for path in package.rglob("*.py") if ".savefig(" in path.read_text()]
    assert writers == ["plots.py"]


def buses(axes: Axes) -> int:
    return sum(len(c.get_segments()) for c in axes.collections if isinstance(c, LineCollection))


def holds(axes: Axes) -> int:
    return sum(len(c.get_offsets()) for c in axes.collections if isinstance(c, PathCollection))


def marks(axes: Axes, marker: str) -> int:
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() == marker)


def test_a_time_space_diagram_has_a_line_for_each_bus_of_its_service() -> None:
    day = two_services()
    above, below = time_space_diagram({"one": day, "two": day}, "A").axes
    assert buses(above) == buses(below) == 3
    assert marks(above, "x") == 1, "one arrival of A is bunched"
    assert holds(above) == 0, "the hold is one of B"
    assert (above.get_title("left"), below.get_title("left")) == ("one", "two")


def test_the_grid_has_a_panel_for_each_service_and_marks_holds() -> None:
    panels = [axes for axes in time_space_grid(two_services()).axes if axes.axison]
    assert [axes.get_title("left") for axes in panels] == ["service A", "service B"]
    assert [buses(axes) for axes in panels] == [3, 2]
    assert [holds(axes) for axes in panels] == [0, 1]


def test_a_day_in_which_no_bus_reaches_a_stop_is_an_empty_picture() -> None:
    figure = time_space_grid(two_services().slice(0, 0))
    assert not any(axes.axison for axes in figure.axes) and png(figure)


def test_the_demand_profile_counts_everybody_and_marks_the_last_buses() -> None:
    town = embedded_city("town")
    by_time, along = demand_profile(town).axes
    assert sum(bar.get_height() for bar in by_time.patches) == 2_700
    assert marks(by_time, "v") == len(town.services)
    begin, end = (stairs.get_data().values for stairs in along.patches)
    assert begin.sum() == pytest.approx(100) and end.sum() == pytest.approx(100)
    assert begin[-1] == 0 and end[0] == 0


@pytest.mark.parametrize("name", ["town", "city"])
def test_the_map_shows_every_stop_every_signal_and_names_every_route(name: str) -> None:
    city = embedded_city(name)
    (axes,) = network_map(city).axes
    assert marks(axes, "o") == len(city.stops)
    assert marks(axes, "s") == sum(node.signal for node in city.nodes)
    named = [text.get_text() for text in axes.texts]
    assert all(named.count(service.route) == 2 for service in city.services)


def test_stops_with_names_are_named_on_the_map_and_beside_the_buses() -> None:
    town = embedded_city("town")
    named = replace(town, stops=tuple(replace(s, name=f"Place {s.id}") for s in town.stops))
    service = town.services[0]
    ends = {f"Place {town.stops[stop].id}" for stop in (service.stops[0], service.stops[-1])}
    (axes,) = network_map(named).axes
    assert ends <= {text.get_text() for text in axes.texts}
    (axes,) = time_space_diagram({"day": two_services()}, service.id, city=named).axes
    (beside,) = axes.child_axes
    assert ends <= {label.get_text() for label in beside.get_yticklabels()}


def test_routes_have_colours_of_their_own() -> None:
    (axes,) = network_map(embedded_city("city")).axes
    legend = axes.get_legend()
    assert legend is not None
    colours = [line.get_color() for line in legend.get_lines()[:6]]
    assert len(set(colours)) == 6


def test_a_histogram_counts_every_headway_also_the_longest() -> None:
    figure = headway_histogram({"one": np.array([0.1, 1.0, 1.0, 9.0])})
    shares = figure.axes[0].patches[-1].get_data().values  # type: ignore[attr-defined]
    assert shares.sum() == pytest.approx(100)
    assert (shares[0], shares[-1]) == (25, 25)


def drawings() -> dict[str, Figure]:
    curves = {"one": np.array([1.0, 2.0]), "two": np.array([2.0, 1.0])}
    return {
        "time and space": time_space_diagram({"day": two_services()}, "A"),
        "headways": headway_histogram(curves, DARK),
    }


@pytest.mark.parametrize("name", drawings())
def test_the_same_figure_is_the_same_bytes(name: str) -> None:
    assert svg(drawings()[name]) == svg(drawings()[name])
    assert png(drawings()[name]) == png(drawings()[name])


@pytest.mark.parametrize("name", drawings())
def test_an_svg_stands_alone(name: str) -> None:
    root: ET.Element = fromstring(svg(drawings()[name]))
    links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
    assert all(link.startswith("#") for link in links)
    assert not list(root.iter("{http://www.w3.org/2000/svg}text")), "letters are drawn"
