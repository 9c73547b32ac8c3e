"""A way is what somebody who has the timetable finds: against all ways, in small cities."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.model import City
from evenline.importing.ways import SPEED_MPS, Ways, due_times, places_of
from on_time import timed_cities, ways
from random_cities import LOOP_M, small_city


@settings(max_examples=40, deadline=None)
@given(timed_cities(), st.data())
def test_a_way_has_the_fewest_transfers_and_then_arrives_first(
    city: City, data: st.DataObject
) -> None:
    stops = st.integers(0, len(city.stops) - 1)
    found = Ways(city)
    for _ in range(5):
        origin, destination = data.draw(stops), data.draw(stops)
        at_s = data.draw(st.integers(0, city.horizon_s))
        legs = found.find(city.stops[origin].id, city.stops[destination].id, at_s)
        options = [list(ways(city, origin, destination, at_s, count)) for count in (1, 2, 3)]
        some = next((each for each in options if each), None)
        if origin == destination or some is None:
            assert legs is None
        else:
            assert legs is not None
            assert (legs[0][0], legs[-1][1]) == (origin, destination)
            assert (min(some)[0], legs) in some
            assert found.arrival_s(legs, at_s) == min(some)[0]


def at_stops(city: City, **ids: str) -> City:
    """The city with some stops renamed."""
    return replace(city, stops=tuple(replace(s, id=ids.get(s.id, s.id)) for s in city.stops))


def test_people_change_where_the_services_first_meet() -> None:
    """Both services share three stops; the buses meet at each, so the first leaves most time."""
    city = small_city([[0, 1, 2, 3], [4, 1, 2, 3, 5]], [(0, 0), (1, 0)])
    late = replace(city, due_s=np.array([0, 60, 120, 180, 0, 70, 130, 190, 250], np.int32))
    assert Ways(late).find("s0", "s5", 0) == ((0, 1), (1, 5))


def test_someone_at_a_stop_that_a_loop_visits_twice_boards_at_the_later_visit() -> None:
    """One bus leaves s0, comes by again as s0~2 and goes on to s3: the tour is not for them."""
    loop = at_stops(small_city([[0, 1, 2, 3]], [(0, 0)]), s2="s0~2")
    assert places_of(loop) == ("s0", "s1", "s0", "s3")
    assert Ways(loop).find("s0", "s3", 0) == ((2, 3),)
    assert Ways(loop).find("s1", "s0", 0) == ((1, 2),)
    assert Ways(loop).find("s0", "s0", 0) is None


def test_stops_with_one_id_in_the_source_are_one_place() -> None:
    city = small_city([[0, 1], [2, 3]], [(0, 0), (1, 0)])
    stops = [replace(s, source="X" if s.id in ("s1", "s3") else "") for s in city.stops]
    assert places_of(replace(city, stops=tuple(stops))) == ("s0", "X", "s2", "X")


def test_an_id_that_only_looks_like_a_second_visit_is_a_place_of_its_own() -> None:
    city = at_stops(small_city([[0, 1]], [(0, 0)]), s0="q~2")
    assert places_of(city) == ("q~2", "s1")


def test_without_a_schedule_buses_run_at_a_steady_speed() -> None:
    city = small_city([[0, 1, 2]], [(0, 50), (0, 500)])
    step = round(LOOP_M / SPEED_MPS)
    assert due_times(city)[0].tolist() == [[t, t + step, t + 2 * step] for t in (50, 500)]


def test_no_bus_is_left_after_the_last_one() -> None:
    city = small_city([[0, 1], [1, 2]], [(0, 0), (1, 100)])
    found = Ways(city)
    assert found.find("s0", "s2", 0) == ((0, 1), (1, 2))
    assert found.find("s0", "s2", 1) is None
    assert found.connects("s0", "s2") and not found.connects("s2", "s0")
