"""Corridor roads are as long as their lines, shared where lines meet, and SUMO accepts them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.model import City, Trip, Vehicle, no_journeys
from evenline.city.ranges import ID
from evenline.importing.corridor import CLOSEST_M, corridor
from evenline.importing.ids import clean_ids
from evenline.importing.lines import Shape
from evenline.importing.timetable import SourceStop
from evenline.support.errors import InputError
from evenline.worlds.sumo.network import check_network


def line(name: str, stops: str, spots: dict[str, tuple[float, float]], bent: float = 0.0) -> Shape:
    """A line that serves stops with one letter, bent aside between them."""
    here = np.array([spots[stop] for stop in stops], float)
    places = tuple(SourceStop(stop, f"Stop {stop}", 0.0, 0.0) for stop in stops)
    points = [here[0]]
    for first, second in pairwise(here):
        east, north = second - first
        points += [(first + second) / 2 + bent * np.array([-north, east]), second]
    shape = np.array(points)
    steps = np.hypot(*np.diff(shape, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])[::2]
    return Shape(name, "1", name, name, places, here, shape, along)


def city_of(*lines: Shape) -> City:
    """The corridor city of lines, with a trip on each; raises if it is inconsistent."""
    found = corridor(lines)
    trips = tuple(Trip(f"t{n}", n, 60) for n in range(len(lines)))
    parts = (found.nodes, found.roads, found.stops, found.services)
    return City("made", 7200, Vehicle(), *parts, trips, no_journeys())


SPOTS = {"A": (0, 0), "B": (600, 0), "C": (1200, 300), "D": (600, 700), "E": (2000, 400)}


def test_the_way_between_stops_is_as_long_as_along_the_shape() -> None:
    made = line("1", "ABCE", SPOTS, bent=0.2)
    service = city_of(made).services[0]
    assert np.diff(service.distance_m) == pytest.approx(np.diff(made.distance_m), abs=0.11)
    assert service.length_m == pytest.approx(service.distance_m[-1] + 5.0)


def test_lines_share_stops_and_links() -> None:
    """An express line shares the roads of its stops; a line with the same stops shares all."""
    city = city_of(line("1", "ABCE", SPOTS), line("2", "ABC", SPOTS), line("3", "ACE", SPOTS))
    all_stops, short, express = city.services
    assert short.roads == all_stops.roads[: len(short.roads)]
    assert {city.stops[stop].road for stop in express.stops} <= set(all_stops.roads)
    assert set(express.roads) - set(all_stops.roads) == {"A_C"}
    assert len(city.stops) == 4


def test_a_much_longer_way_between_the_same_stops_is_another_road() -> None:
    city = city_of(line("1", "AB", SPOTS), line("2", "AB", SPOTS, bent=0.6))
    straight, bent = city.services
    assert straight.roads[1] != bent.roads[1]
    assert bent.length_m > straight.length_m + 100


def test_a_loop_ends_at_a_stop_of_its_own_in_the_same_place() -> None:
    city = city_of(line("ring", "ABDA", SPOTS))
    first, again = (city.stops[city.services[0].stops[place]] for place in (0, -1))
    assert (first.id, again.id) == ("A", "A~2")
    assert (first.road, first.pos_m, first.name) == (again.road, again.pos_m, again.name)
    assert first.source == again.source == "A"


def test_roads_follow_the_shape() -> None:
    bent = city_of(line("1", "AB", SPOTS, bent=0.3))
    link = next(road for road in bent.roads if road.id == "A_B")
    assert link.shape == ((300.0, 180.0),)


def test_sumo_accepts_lines_that_turn_back() -> None:
    """Out and back through the same stops, and a stop that is passed in both directions."""
    check_network(city_of(line("1", "ABCBA", SPOTS, 0.1), line("2", "EBE", SPOTS)))


def test_a_line_without_distances_is_refused() -> None:
    made = line("1", "AB", SPOTS)
    short = Shape("1", "1", "", "", made.places, made.spots, made.points, made.distance_m[:1])
    with pytest.raises(InputError, match="line 1: needs at least two stops"):
        corridor([short])
    with pytest.raises(InputError, match="line 1: appears twice"):
        corridor([made, made])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("ABCDE", min_size=2, max_size=7), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_any_lines_make_a_consistent_city(ways: list[str], seed: int) -> None:
    """Also lines with loops, stops in the same place, and ways that go there and back."""
    rng = np.random.default_rng(seed)
    spots = {name: tuple(rng.choice([0.0, 3.0, 400.0, 900.0], 2)) for name in "ABCDE"}
    lines = [line(f"l{n}", way, spots, bent=0.1) for n, way in enumerate(ways)]
    city = city_of(*lines)
    for service, made in zip(city.services, lines, strict=True):
        assert [city.stops[stop].source for stop in service.stops] == [p.id for p in made.places]
        gaps = np.maximum(np.diff(made.distance_m), CLOSEST_M)
        assert np.diff(service.distance_m) == pytest.approx(gaps, rel=0.12, abs=21.0)
    assert len({(node.x_m, node.y_m) for node in city.nodes}) == len(city.nodes)


@given(st.lists(st.text(max_size=120), max_size=8))
def test_any_ids_become_ids_that_sumo_takes_and_stay_different(sources: list[str]) -> None:
    ids = clean_ids(sources)
    assert set(ids) == set(sources) and len(set(ids.values())) == len(ids)
    assert all(ID.allows(f"{own}_{own}-stop") for own in ids.values())


def test_most_ids_stay_as_they_are() -> None:
    assert clean_ids(["750337", "R4", "ANY", "car7", "a b", "a/b", "..", "x."]) == {
        "750337": "750337", "R4": "R4", "ANY": "ANY-", "car7": "car7-", "a b": "a-b",
        "a/b": "a-b~2", "..": ".-", "x.": "x.-",
    }  # fmt: skip
