"""Matched lines become a city: stops in order at the kerb, shared by lines; gaps have names."""

import re
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.model import Carried, City, Trip, Vehicle, no_journeys
from evenline.city.tables import load_city, save_city
from evenline.importing.lines import Layout, Shape
from evenline.importing.matching import Streets
from evenline.importing.roads import laid_out
from evenline.importing.sections import Gap, Links, Way, refusal, sections_of, whole_way
from evenline.support.errors import InputError
from small_maps import BLOCK_M, ORIGIN, corners, edge_id, grid, line_along, streets_between

EAST = [(x, 1) for x in range(6)]
TOWN = grid(streets_between(corners(6, 4)))
ISLANDS = grid(streets_between(c for c in corners(9, 3) if c[0] not in (3, 4, 5)))


def layout_of(streets: Streets, *lines: Shape) -> Layout:
    ways = [whole_way(streets, sections_of(streets, line), Links()) for line in lines]
    return laid_out(streets, lines, ways, set(), Carried(b""))


def beside(x: float, y: float = 1.0, aside_m: float = -6.0) -> tuple[float, float]:
    """A stop beside row y, x blocks from the west; to the right of eastbound lines."""
    return BLOCK_M * x, BLOCK_M * y + aside_m


def test_stops_lie_on_their_street_in_order_and_off_its_ends() -> None:
    stops = {"a": beside(0.5), "b": beside(1.02), "c": beside(1.6), "d": beside(3.97),
             "e": beside(4.5)}  # fmt: skip
    layout = layout_of(TOWN, line_along(EAST, stops))
    (service,) = layout.services
    lengths = {road.id: road.length_m for road in layout.roads}
    begins = dict(
        zip(service.roads, accumulate(map(lengths.get, service.roads), initial=0.0), strict=False)
    )
    for index, at_m in zip(service.stops, service.distance_m, strict=True):
        stop = layout.stops[index]
        assert at_m == pytest.approx(begins[stop.road] + stop.pos_m)
        assert 30.0 <= stop.pos_m <= lengths[stop.road] - 15.0
    assert list(service.distance_m) == sorted(set(service.distance_m))
    assert [layout.stops[i].name for i in service.stops] == [f"Stop {key}" for key in stops]


def test_a_service_begins_and_ends_on_the_streets_of_its_end_stops() -> None:
    (service,) = layout_of(TOWN, line_along(EAST, {"a": beside(1.5), "b": beside(3.5)})).services
    assert service.roads == (
        edge_id((1, 1), (2, 1)), edge_id((2, 1), (3, 1)), edge_id((3, 1), (4, 1)),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.1, 60.0), min_size=5, max_size=5),
    st.lists(st.floats(0.0, 4.99), min_size=2, max_size=5, unique=True),
)
def test_what_is_laid_out_can_be_read_again(
    tmp_path_factory: pytest.TempPathFactory, lengths_m: list[float], stops: list[float]
) -> None:
    """Also where streets are shorter than a stop."""
    streets = TOWN
    for number, length_m in enumerate(lengths_m):
        edge = streets.number[edge_id((number, 1), (number + 1, 1))]
        metres = streets.lengths.copy()
        metres[edge] = length_m
        streets = replace(streets, lengths=metres)
    line = line_along(EAST, {f"s{n}": beside(x) for n, x in enumerate(sorted(stops))})
    edges = [edge_id((x, 1), (x + 1, 1)) for x in range(5)]
    way = Way(tuple(edges), tuple((int(x), x % 1 * BLOCK_M) for x in sorted(stops)))
    try:
        layout = laid_out(streets, [line], [way], set(), Carried(b""))
    except InputError as error:
        if "has no room for stop" in str(error):
            return
        raise
    parts = layout.nodes, layout.roads, layout.stops, layout.services
    city = City("laid", 7200, Vehicle(), *parts, (Trip("t", 0, 0),), no_journeys())
    folder = tmp_path_factory.mktemp("laid") / "city"
    save_city(city, folder)
    again = load_city(folder)
    assert again.stops == city.stops and again.roads == city.roads


def test_lines_in_opposite_directions_stop_on_opposite_sides() -> None:
    there = line_along(EAST, {"a": beside(0.5), "b": beside(2.5)}, id="L.0")
    back = line_along(
        EAST[::-1], {"c": beside(2.5, aside_m=6.0), "d": beside(0.5, aside_m=6.0)}, id="L.1"
    )
    layout = layout_of(TOWN, there, back)
    roads = {stop.source: stop.road for stop in layout.stops}
    assert roads["a"] == edge_id((0, 1), (1, 1))
    assert roads["d"] == edge_id((1, 1), (0, 1))
    assert roads["b"] == edge_id((2, 1), (3, 1))
    assert roads["c"] == edge_id((3, 1), (2, 1))


def test_lines_share_a_stop_that_both_can_reach_and_split_one_that_they_cannot() -> None:
    straight = line_along(EAST, {"a": beside(0.5), "b": beside(2.05), "c": beside(3.5)}, id="L.0")
    turning = line_along(
        [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3)],
        {"a": beside(0.5), "b": beside(2.05), "z": (2 * BLOCK_M + 6.0, 2.5 * BLOCK_M)},
        id="M.0",
    )
    layout = layout_of(TOWN, straight, turning)
    assert [stop.source for stop in layout.stops] == ["a", "b", "c", "z"]
    assert layout.split == ()
    far = {"a": beside(0.5), "b": (2 * BLOCK_M + 6.0, 1.4 * BLOCK_M),
           "z": (2 * BLOCK_M + 6.0, 2.5 * BLOCK_M)}  # fmt: skip
    north = line_along([(0, 1), (1, 1), (2, 1), (2, 2), (2, 3)], far, id="M.0")
    apart = layout_of(TOWN, straight, north)
    assert [stop.id for stop in apart.stops] == ["a", "b", "c", "b~2", "z"]
    assert apart.split == ("b",)


def test_a_loop_that_serves_a_stop_twice_has_two_stops_there() -> None:
    way = [(0, 1), (1, 1), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1), (1, 1)]
    line = line_along(way, {"a": beside(0.5), "b": beside(1.5), "c": beside(0.5)})
    again = replace(line.places[0])
    loop = replace(line, places=(line.places[0], line.places[1], again),
                   distance_m=np.array([75.0, 225.0, 6.5 * BLOCK_M]))  # fmt: skip
    layout = layout_of(TOWN, loop)
    assert [(stop.id, stop.source) for stop in layout.stops] == [
        ("a", "a"),
        ("b", "b"),
        ("a~2", "a"),
    ]
    assert layout.services[0].roads[0] == layout.services[0].roads[-1]


def test_the_fit_is_the_distance_from_the_shape() -> None:
    line = line_along(EAST, {"a": beside(0.5), "b": beside(4.5)})
    (fit,) = layout_of(TOWN, line).fits
    assert fit.median_m == pytest.approx(2.0, abs=0.1)  # the lane is 2 m from the middle
    moved = replace(line, points=line.points + np.array([0.0, 12.0]))
    (fit,) = layout_of(TOWN, moved).fits
    assert fit.median_m == pytest.approx(14.0, abs=0.1)


def test_a_gap_is_named_by_its_stops_and_place() -> None:
    way = [(x, 1) for x in range(9)]
    stops = {"a": beside(0.5), "b": beside(1.5), "in": beside(4.5), "c": beside(6.5),
             "d": beside(7.5)}  # fmt: skip
    sections = sections_of(ISLANDS, line_along(way, stops))
    assert [type(part) for part in sections] == [Way, Gap, Way]
    gap = sections[1]
    assert isinstance(gap, Gap)
    assert gap.stops == (2,)
    said = refusal([gap], ORIGIN)
    assert "L.0 from 'Stop b' to 'Stop c'" in said
    assert "--bridge" in said
    lat, lon = map(float, re.findall(r"-\d+\.\d+", said))
    ((x_m, y_m),) = ORIGIN.points([(lat, lon)])
    assert y_m == pytest.approx(BLOCK_M, abs=1.0)
    assert 2.0 * BLOCK_M < x_m < 2.0 * BLOCK_M + 65.0  # the street ends at 2 blocks


def test_lines_share_the_links_that_bridge_a_gap() -> None:
    way = [(x, 1) for x in range(9)]
    stops = {"a": beside(0.5), "in": beside(4.5), "c": beside(7.5)}
    links = Links()
    ways = [
        whole_way(ISLANDS, sections_of(ISLANDS, line_along(way, stops, id=id)), links)
        for id in ("L.0", "M.0")
    ]
    assert ways[0] == ways[1]
    assert len(links.edges) == 3
    tail, *own, head = ways[0].edges[1:6]
    assert (tail, head) == (edge_id((1, 1), (2, 1)), edge_id((6, 1), (7, 1)))
    assert set(own) == set(links.edges)


def test_a_line_that_leaves_the_map_is_bridged_to_its_last_stop() -> None:
    way = [(x, 1) for x in range(16)]
    line = line_along(way, {"a": beside(6.5), "b": beside(7.5), "c": beside(15.0)})
    links = Links()
    whole = whole_way(ISLANDS, sections_of(ISLANDS, line), links)
    end = links.nodes[links.edges[whole.edges[-1]][1]]
    assert end == pytest.approx((15.0 * BLOCK_M + 20.0, BLOCK_M - 6.0), abs=20.0)
    assert len(whole.stops) == 3
