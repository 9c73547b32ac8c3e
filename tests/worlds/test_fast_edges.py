"""The fast world on days small enough to be worked out by hand, and at the edges of a city.

Who boards in which second, at a door that takes one person at a time; and what becomes of days
without people, of buses for one and of trips that the end of the day cuts off.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from evenline.city.cells import demo_cell
from evenline.city.demand import Cell, realise
from evenline.city.embedded import embedded_city
from evenline.city.model import City, Vehicle
from evenline.control.event import BUS_AHEAD, BUS_BEHIND, WAITING, Batch
from evenline.control.world import run_episode
from evenline.support.errors import InputError
from evenline.worlds.fast import layout
from evenline.worlds.fast.world import FastWorld
from random_cities import Day, Person, days, holds, restless, small_city, steady
from side_by_side import CELL, assert_same_day, examples

# -- days worked out by hand ----------------------------------------------------------------------


def departures_of(city: City, cell: Cell = CELL) -> list[int]:
    return realise(city, cell).departure_s.tolist()


def test_a_day_by_hand() -> None:
    """Five people wait for one bus, which is held 7.2 s at the first stop."""
    people = [Person(500, [(0, 2, (0,))]) for _ in range(5)]
    city = small_city([[0, 1, 2]], [(0, 1000)], people)
    departures = departures_of(city)
    day = Day(city, steady(city, run_s=100), CELL)
    fast, _ = assert_same_day(day, [7.2, 0.0])
    assert [(v.arrival_s, v.departure_s, v.boarded, v.alighted) for v in fast.visits] == [
        (1000, 1028, 5, 0),  # 5 times 4 s, and 8 s
        (1128, 1140, 0, 0),  # the shortest dwell
        (1240, 1260, 0, 5),
    ]
    outcome = fast.outcome()
    boarded = [1000, 1003, 1007, 1011, 1015]
    assert outcome.waiting_s == sum(boarded) - sum(departures)
    assert outcome.riding_s == 5 * 240
    assert (outcome.completed, outcome.trips_completed, outcome.decisions) == (5, 1, 2)
    assert (outcome.trip_duration_total_s, outcome.hold_total_s) == (240, 7.2)
    assert outcome.holds_zero == 1
    assert outcome.pre_control_cost == 2 * (5 * 1000 - sum(departures))
    assert outcome.token_cost == outcome.cost - outcome.pre_control_cost


def test_a_bus_for_one_takes_people_in_the_order_they_came() -> None:
    people = [Person(500, [(0, 1, (0,))]) for _ in range(3)]
    city = small_city([[0, 1]], [(0, 1000), (0, 2000)], people, vehicle=Vehicle(capacity=1))
    departures = departures_of(city)
    assert len(set(departures)) == 3
    fast, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert [ride.since_s for ride in slow.rides] == departures[:2]
    outcome = fast.outcome()
    assert (outcome.completed, outcome.denied_boardings) == (2, 2 + 1)
    assert outcome.waiting_s == 1000 + 2000 + 3600 - sum(departures)
    assert outcome.riding_s == 2 * 112


def test_whoever_comes_while_the_bus_stands_still_boards() -> None:
    """The bus comes 5 s before the first person and stands 12 s; a hold waits for the second."""
    people = [Person(500, [(0, 1, (0,))]) for _ in range(2)]
    city = small_city([[0, 1]], [(0, 0)], people)
    cell, first, second = next(
        (cell, *departures)
        for cell in map(demo_cell, range(1, 100))
        if 7 < np.diff(departures := departures_of(city, cell)) < 50
    )
    city = small_city([[0, 1]], [(0, first - 5)], people)
    day = Day(city, steady(city), cell)
    unheld, _ = assert_same_day(day, [0.0])
    assert [visit.boarded for visit in unheld.visits] == [1, 0]
    assert unheld.outcome().waiting_s == 3600 - second
    held, _ = assert_same_day(day, [second - (first - 5) - 12])
    assert [visit.boarded for visit in held.visits] == [1, 0], "leaving in that second is too early"
    longer, _ = assert_same_day(day, [second - (first - 5) - 12 + 0.1])
    assert [visit.boarded for visit in longer.visits] == [2, 0]
    assert longer.outcome().waiting_s == 0, "nobody waits for a bus that stands there"
    assert longer.visits[0].departure_s == second + 1, "the hold is not made longer"


def test_during_a_hold_nobody_boards_whose_turn_comes_after_the_bus_has_left() -> None:
    """Two come in neighbouring seconds when the bus is only held; the door takes four for each."""
    people = [Person(500, [(0, 1, (0,))]) for _ in range(2)]
    city = small_city([[0, 1]], [(0, 0)], people)
    cell, first, _ = next(
        (cell, *departures)
        for cell in map(demo_cell, range(1, 501))
        if np.diff(departures := departures_of(city, cell)) == 1
    )
    city = small_city([[0, 1]], [(0, first - 12)], people)
    for hold, boarded in ((0.0, 0), (1.0, 1), (2.0, 1), (3.0, 1), (4.0, 2)):
        fast, _ = assert_same_day(Day(city, steady(city), cell), [hold])
        assert fast.visits[0].boarded == boarded
        assert fast.visits[0].departure_s == first + hold


def test_whoever_comes_before_the_bus_is_done_keeps_it_at_the_stop() -> None:
    """It stands 12 s and somebody comes in the last of them; passing the door takes four."""
    people = [Person(500, [(0, 1, (0,))])]
    (first,) = departures_of(small_city([[0, 1]], [(0, 0)], people))
    for came_at, stood in ((12, 12), (11, 15), (9, 13), (8, 12)):
        city = small_city([[0, 1]], [(0, first - came_at)], people)
        fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
        visit = fast.visits[0]
        assert (visit.boarded, visit.base_dwell_s) == (came_at < 12, 12)
        assert visit.departure_s - visit.arrival_s == stood


def test_people_get_on_before_others_get_off_while_there_is_room() -> None:
    """Two ride to the middle stop, where two more wait; the bus has room for three."""
    people = [
        Person(500 + i, [leg]) for i, leg in enumerate([(0, 1, (0,)), (0, 1, (0,)), (1, 2, (0,))])
    ]
    people.append(Person(503, [(1, 2, (0,))]))
    city = small_city([[0, 1, 2]], [(0, 1000)], people, vehicle=Vehicle(capacity=3))
    fast, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    at_middle = sorted(
        [(ride.boarded_s, "on") for ride in slow.rides if ride.boarded_s > 1100]
        + [(ride.alighted_s, "off") for ride in slow.rides if ride.leg.alight == 1]
    )
    assert at_middle == [(1112, "on"), (1115, "off"), (1119, "on"), (1123, "off")]
    assert fast.visits[1].departure_s == 1112 + 4 * 4
    assert fast.outcome().denied_boardings == 0


@pytest.mark.parametrize("hold", [0.0, 0.25, 1.0, 33.5, 59.0, 60.0])
@pytest.mark.parametrize("size", [0, 2, 4, 11])
def test_a_hold_comes_on_top_of_the_dwell_when_everybody_was_there(size: int, hold: float) -> None:
    people = [Person(500, [(0, 1, (0,))]) for _ in range(size)]
    city = small_city([[0, 1]], [(0, 1000)], people)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [hold])
    assert fast.visits[0].departure_s == 1000 + max(12, 4 * size) + math.ceil(hold)


def test_the_next_leg_begins_when_the_last_has_really_ended() -> None:
    """The other service's first bus has left the place of change before anybody alights there."""
    people = [Person(500, [(0, 1, (0,)), (1, 2, (1,))]) for _ in range(2)]
    city = small_city([[0, 1], [1, 2]], [(0, 1000), (1, 1100), (1, 2000)], people)
    departures = departures_of(city)
    fast, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert [(ride.since_s, ride.boarded_s) for ride in slow.rides[2:]] == [
        (1112, 2000),
        (1115, 2003),
    ]
    outcome = fast.outcome()
    assert outcome.completed == 2
    assert outcome.waiting_s == 1000 + 1003 - sum(departures) + 2 * 888
    assert outcome.riding_s == 2 * 112 + 2 * 112


def test_those_who_change_wait_from_the_second_they_are_out_of_the_door() -> None:
    """Five alight for a bus that comes meanwhile, full, and leaves as the last of them is out."""
    changing = [Person(500, [(0, 1, (0,)), (1, 2, (1,))]) for _ in range(5)]
    riding = [Person(500, [(3, 2, (1,))]) for _ in range(5)]
    city = small_city(
        [[0, 1], [3, 1, 2]],
        [(0, 1000), (1, 1003)],
        changing + riding,
        vehicle=Vehicle(capacity=5),
    )
    day = Day(city, steady(city), CELL)
    fast, slow = assert_same_day(day, [0.0])
    out_of_the_door = [ride.alighted_s for ride in slow.rides if ride.leg.alight == 1]
    assert sorted(out_of_the_door) == [1120, 1123, 1127, 1131, 1135]
    (full,) = [visit for visit in fast.visits if (visit.trip, visit.position) == (1, 1)]
    assert (full.arrival_s, full.departure_s, full.left_behind) == (1123, 1135, 5)

    waiting = []

    def look(batch: Batch) -> list[float]:
        waiting.extend(row[WAITING] for row in batch.raw if batch.time_s == 1123)
        return [0.0] * len(batch.trips)

    run_episode(fast, CELL, look)
    assert waiting == [2], "as the full bus comes, two are out"


def test_a_leg_of_several_carriers_takes_whichever_comes_first() -> None:
    people = [Person(500, [(0, 2, (0, 1))])]
    for first, trips in enumerate([[(0, 1000), (1, 1100)], [(0, 1100), (1, 1000)]]):
        city = small_city([[0, 1, 2], [0, 2]], trips, people)
        _, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
        (ride,) = slow.rides
        assert city.trips[ride.trip].service == first


@pytest.mark.parametrize(
    ("carriers", "changer_first"),
    [
        pytest.param((1,), False, id="same choice of services: first legs go before changes"),
        pytest.param((1, 2), True, id="another choice of services: always in the same order"),
    ],
)
def test_people_who_begin_to_wait_in_the_same_second_board_in_a_fixed_order(
    carriers: tuple[int, ...], changer_first: bool
) -> None:
    """One changes at stop 1 in the second in which another sets out there; a bus takes one."""
    people = [Person(500, [(0, 1, (0,)), (1, 2, (1,))]), Person(1000, [(1, 2, carriers)])]
    services, trips = [[0, 1], [1, 2], [1, 2]], [(1, 2000), (2, 3000)]
    _, at = departures_of(small_city(services, trips, people))
    city = small_city(services, [(0, at - 112), *trips], people, vehicle=Vehicle(capacity=1))
    _, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    second = slow.rides[1]
    assert (second.since_s, second.boarded_s, second.person.changing) == (at, 2000, changer_first)


def test_people_who_set_out_in_the_same_second_board_in_the_order_of_the_journeys() -> None:
    """Half of those who set out at midnight are moved to before it, that is, to midnight."""
    goals = [1, 2, 3, 2, 1, 3, 3, 1, 2, 1, 3, 2]
    people = [Person(0, [(0, goal, (0,))]) for goal in goals]
    city = small_city([[0, 1, 2, 3]], [(0, 0)], people, vehicle=Vehicle(capacity=4))
    first = realise(city, CELL).journey[: departures_of(city).count(0)].tolist()
    assert len(first) > 4
    _, slow = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert [ride.person.journey for ride in slow.rides[:4]] == sorted(first)[:4]


# -- edges ----------------------------------------------------------------------------------------


def test_a_stop_with_no_demand_is_served_in_the_shortest_dwell() -> None:
    people = [Person(500, [(0, 2, (0,))]) for _ in range(9)]
    city = small_city([[0, 1, 2]], [(0, 1000), (0, 1500)], people)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
    at_empty = [visit for visit in fast.visits if visit.position == 1]
    assert len(at_empty) == 2
    for visit in at_empty:
        assert (visit.boarded, visit.alighted, visit.left_behind) == (0, 0, 0)
        assert visit.departure_s - visit.arrival_s == city.vehicle.min_dwell_s


def test_a_service_with_one_trip_has_no_bus_ahead_and_none_behind() -> None:
    city = small_city([[0, 1, 2, 3], [3, 2, 1, 0]], [(0, 100), (1, 100), (1, 300)])
    world = FastWorld(city, steady(city))
    batch, seen = world.reset(CELL), 0
    while batch is not None:
        for trip, row in zip(batch.trips, batch.raw, strict=True):
            if trip == 0:
                seen += 1
                assert not row[[BUS_AHEAD, BUS_BEHIND, 3, 4, 5, 6]].any()
        batch = world.step([0.0] * len(batch.trips))
    assert seen == 3


@pytest.mark.parametrize("horizon", [1000 + 12 + 100 + 50, 1000 + 12 + 100, 1000 + 5, 1001])
def test_a_bus_that_never_finishes_before_the_horizon_keeps_its_riders(horizon: int) -> None:
    """It ends between two stops, before the second, at the first, and as it comes."""
    people = [Person(500, [(0, 2, (0,))]) for _ in range(3)]
    city = small_city([[0, 1, 2]], [(0, 1000)], people, horizon)
    departures = departures_of(city)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
    outcome = fast.outcome()
    boarded = [at for at in (1000, 1003, 1007) if at < horizon]
    assert (outcome.completed, outcome.trips_completed, outcome.unfinished) == (0, 0, 3)
    assert outcome.riding_s == sum(horizon - at for at in boarded)
    ended = boarded + [horizon] * (3 - len(boarded))
    assert outcome.waiting_s == sum(ended) - sum(departures)


@pytest.mark.parametrize("capacity", [1, 2, 7, 50])
def test_all_people_at_one_stop(capacity: int) -> None:
    people = [Person(500, [(1, 2, (0,))]) for _ in range(40)]
    city = small_city(
        [[0, 1, 2]], [(0, 1000 + 200 * i) for i in range(4)], people,
        vehicle=Vehicle(capacity=capacity),
    )  # fmt: skip
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0, 15.0])
    boarded = {visit.trip: visit.boarded for visit in fast.visits if visit.position == 1}
    expected = [min(capacity, max(0, 40 - capacity * i)) for i in range(4)]
    assert list(boarded.values()) == expected
    assert fast.outcome().completed == sum(expected)
    assert fast.outcome().denied_boardings == sum(max(0, 40 - capacity * (i + 1)) for i in range(4))


@examples(30)
@given(days(), holds())
def test_a_city_of_buses_for_one(day: Day, some_holds: list[float]) -> None:
    city = replace(day.city, vehicle=replace(day.city.vehicle, capacity=1))
    assert_same_day(replace(day, city=city), some_holds)


@examples(20)
@given(days(), holds())
def test_a_city_without_people(day: Day, some_holds: list[float]) -> None:
    city = replace(day.city, journeys=small_city([[0, 1]], [(0, 0)]).journeys)
    fast, _ = assert_same_day(Day(city, day.calibration, Cell(5, 6, 1.0)), some_holds)
    outcome = fast.outcome()
    assert (outcome.cost, outcome.departed, outcome.completed) == (0, 0, 0)
    assert (outcome.generalized_s, outcome.completion) == (0.0, 1.0)


@examples(20)
@given(days(), holds())
def test_a_level_at_which_nobody_travels_is_an_empty_day(day: Day, some_holds: list[float]) -> None:
    journeys = replace(day.city.journeys, min_demand=np.full(len(day.city.journeys), 0.5))
    city = replace(day.city, journeys=journeys)
    fast, _ = assert_same_day(replace(day, city=city, cell=Cell(1, 2, 0.25)), some_holds)
    assert fast.outcome().departed == 0


def streets_to_hubs(trips_each: int) -> City:
    """Seventy services whose buses set off in the same seconds, two to each hub; some change.

    From one of the hubs two more services go on to the same stop.
    """
    hub, far = 141, 180
    services = [[2 * i, 2 * i + 1, 140 + i // 2] for i in range(70)] + [[hub, 179, far], [hub, far]]
    trips = [(service, 50 * k) for k in range(trips_each) for service in range(71, -1, -1)]
    people = [Person(4 * i, [(2 * i, 140 + i // 2, (i,))]) for i in range(70)]
    people += [Person(300, [(4, hub, (2,)), (hub, far, (70, 71))]) for _ in range(20)]
    return small_city(services, trips, people)


def test_seventy_buses_in_one_second_are_those_of_the_reference() -> None:
    city = streets_to_hubs(trips_each=4)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0, 3.0, 60.0])
    assert max(fast.arrivals_s.tolist().count(at) for at in range(city.horizon_s)) >= 70


def test_of_thousands_of_trips_each_moment_lists_its_own_in_order() -> None:
    city = streets_to_hubs(trips_each=60)
    assert len(city.trips) > 64 * 64  # so many that the kernel's map of them has words of words
    world = FastWorld(city, steady(city), max_batch=len(city.trips))
    seen, batch = 0, world.reset(CELL)
    while batch is not None:
        order = [(city.trips[trip].service, trip) for trip in batch.trips.tolist()]
        assert order == sorted(set(order))
        seen += len(order)
        batch = world.step([0.0] * len(order))
    assert seen == world.outcome().decisions == city.decisions


@pytest.mark.parametrize(("count", "dwell_s", "each_s"), [(3, 600_000, 4), (3000, 12, 200)])
def test_a_bus_that_stands_for_longer_than_any_day(count: int, dwell_s: int, each_s: int) -> None:
    """The kernel's nobody at the end of a queue waits from a second that no day reaches."""
    bus = Vehicle(capacity=5000, min_dwell_s=dwell_s, exchange_s_per_passenger=each_s)
    people = [Person(500, [(0, 1, (0,))]) for _ in range(count)]
    city = small_city([[0, 1, 2]], [(0, 1000), (0, 2000)], people, vehicle=bus)
    fast, _ = assert_same_day(Day(city, steady(city), CELL), [0.0])
    assert max(visit.departure_s for visit in fast.visits) > layout.NEVER_S


@pytest.mark.parametrize(
    ("stops", "horizon_s", "capacity", "message"),
    [
        (2, 3600, 40_000, "capacity 40000"),
        (2, 2**19, 50, "horizon_s 524288"),
        (1025, 3600, 50, "service S0 has 1025 stops"),
    ],
)
def test_what_the_fast_world_has_no_room_for_is_said(
    stops: int, horizon_s: int, capacity: int, message: str
) -> None:
    bus = Vehicle(capacity=capacity)
    city = small_city([range(stops)], [(0, 1000)], horizon_s=horizon_s, vehicle=bus)
    with pytest.raises(InputError, match=message):
        FastWorld(city, steady(city))


def test_a_day_in_the_town_is_that_of_the_reference() -> None:
    """Crowds of thousands and loads of dozens, with running times that bunch."""
    town = embedded_city("town")
    fast, _ = assert_same_day(Day(town, restless(town, 5), demo_cell(9, 1.25)), [0.0, 0.0, 25.3])
    outcome = fast.outcome()
    assert outcome.denied_boardings > 0 and outcome.completed > 1000
