"""The embedded cities are the ones the paper and the issue ask for, and the same every time.

The figures of `PAPER` and `SHARED` are those of the network the paper studies: its table of
services (trips, first and last departure, stops, length, signals, share of bus lanes) and its
table of stops that two services have in common.
"""

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from evenline.city.build import build, legs_of
from evenline.city.demand import Cell, realise
from evenline.city.embedded import (
    BOARDING_7X,
    HOURS_7X,
    PLANS,
    TOWN,
    embedded_city,
    same_streets,
    with_hours,
    with_profile,
)
from evenline.city.model import City, Service, segments
from evenline.city.tables import digest, network_digest
from evenline.support.errors import InputError

# service: trips, first departure, last departure, stops, length in m, signals, bus lane share
PAPER = {
    "7X": (50, 0, 17_940, 25, 13_298, 17, 0.40),
    "7S": (52, 0, 17_940, 26, 13_481, 17, 0.40),
    "102X": (31, 2_160, 17_580, 38, 21_938, 26, 0.37),
    "102S": (35, 2_160, 17_580, 40, 23_938, 31, 0.31),
    "122X": (32, 1_680, 17_880, 36, 16_857, 26, 0.19),
    "122S": (33, 1_200, 17_940, 35, 16_843, 26, 0.20),
    "311X": (26, 1_800, 17_640, 43, 23_908, 36, 0.17),
    "311S": (28, 1_800, 17_940, 42, 23_777, 36, 0.17),
    "406X": (28, 2_220, 17_760, 40, 18_303, 29, 0.15),
    "406S": (28, 1_800, 17_460, 39, 18_527, 30, 0.13),
    "705X": (21, 2_760, 17_880, 48, 22_259, 34, 0.17),
    "705S": (25, 1_860, 17_040, 47, 22_037, 35, 0.14),
}
# Every other pair has no stop in common.
SHARED = {
    ("7X", "7S"): 1,
    ("7X", "102X"): 19,
    ("7X", "311X"): 1,
    ("7X", "705X"): 8,
    ("7S", "102S"): 22,
    ("7S", "311S"): 1,
    ("7S", "705S"): 9,
    ("102X", "102S"): 1,
    ("102X", "122S"): 2,
    ("102X", "311S"): 2,
    ("102X", "406X"): 2,
    ("102X", "705X"): 10,
    ("102S", "122X"): 2,
    ("102S", "311X"): 2,
    ("102S", "406S"): 2,
    ("102S", "705S"): 9,
    ("122X", "311X"): 11,
    ("122X", "406S"): 7,
    ("122X", "705X"): 1,
    ("122S", "311S"): 10,
    ("122S", "406X"): 7,
    ("122S", "705S"): 1,
    ("311X", "406S"): 5,
    ("311S", "406X"): 5,
    ("406X", "406S"): 1,
}


@pytest.fixture(scope="module")
def city() -> City:
    return embedded_city("city")


def service_of(city: City, name: str) -> Service:
    return next(service for service in city.services if service.id == name)


def test_city_runs_the_twelve_services_of_the_paper_in_both_directions(city: City) -> None:
    assert [service.id for service in city.services] == list(PAPER)
    routes = [service.route for service in city.services]
    assert all(routes.count(route) == 2 for route in routes) and len(set(routes)) == 6


@pytest.mark.parametrize("name", PAPER)
def test_trips_departures_and_stops_of_a_service_are_exactly_the_papers(
    city: City, name: str
) -> None:
    trips, first, last, stops, *_ = PAPER[name]
    index = [service.id for service in city.services].index(name)
    departures = [trip.departure_s for trip in city.trips if trip.service == index]
    assert (len(departures), departures[0], departures[-1]) == (trips, first, last)
    assert departures == sorted(set(departures))
    assert len(service_of(city, name).stops) == stops


def test_the_day_has_389_trips_459_service_stops_and_13787_decisions(city: City) -> None:
    assert len(city.trips) == 389
    assert sum(len(service.stops) for service in city.services) == 459
    assert city.decisions == 13_787 == sum(row[0] * (row[3] - 1) for row in PAPER.values())
    assert city.horizon_s == 24_000 and city.vehicle.capacity == 50


@pytest.mark.parametrize("name", PAPER)
def test_a_route_is_within_five_percent_of_the_papers_length(city: City, name: str) -> None:
    service, roads = service_of(city, name), {road.id: road for road in city.roads}
    assert service.length_m == pytest.approx(PAPER[name][4], rel=0.05)
    assert service.length_m == pytest.approx(sum(roads[r].length_m for r in service.roads), abs=0.1)


@pytest.mark.parametrize("name", PAPER)
def test_signals_on_a_route_are_within_ten_percent_of_the_papers(city: City, name: str) -> None:
    """A signal of a route is a junction with a signal inside its way, not at its ends."""
    nodes, roads = {node.id: node for node in city.nodes}, {road.id: road for road in city.roads}
    inside = [roads[road].to_node for road in service_of(city, name).roads[:-1]]
    signals, paper = sum(nodes[node].signal for node in inside), PAPER[name][5]
    assert 10 * abs(signals - paper) <= paper


@pytest.mark.parametrize("name", PAPER)
def test_part_of_every_route_runs_on_bus_lanes_about_as_in_the_paper(city: City, name: str) -> None:
    service, roads = service_of(city, name), {road.id: road for road in city.roads}
    lanes = sum(roads[r].length_m for r in service.roads if roads[r].bus_lane)
    assert 0.0 < lanes / service.length_m == pytest.approx(PAPER[name][6], abs=0.10)


def test_between_330_and_380_distinct_stops_are_served(city: City) -> None:
    served = {stop for service in city.services for stop in service.stops}
    assert 330 <= len(served) <= 380
    assert len(served) == len(city.stops), "no stop without a service"


def test_corridors_are_shared_about_as_in_the_paper(city: City) -> None:
    """Each pair within 4 stops, none of the long corridors lost, the total within a tenth."""
    common = {
        (a.id, b.id): len(set(a.stops) & set(b.stops))
        for a, b in itertools.combinations(city.services, 2)
    }
    for pair, count in common.items():
        assert abs(count - SHARED.get(pair, 0)) <= 4, pair
    corridors = {pair for pair, count in SHARED.items() if count >= 5}
    assert all(common[pair] >= 5 for pair in corridors)
    assert sum(common.values()) == pytest.approx(sum(SHARED.values()), rel=0.10)


def test_17200_people_depart_at_demand_one_and_as_many_change_as_in_the_papers_files(
    city: City,
) -> None:
    people = realise(city, Cell(1, 501, 1.0)).journey
    assert len(people) == 17_200
    legs = np.diff(city.journeys.leg_start)[people]
    assert np.mean(legs > 1) == pytest.approx(868 / 15_079, abs=3 * sampling_error(0.058, 17_200))


def sampling_error(share: float, count: int) -> float:
    return math.sqrt(share * (1 - share) / count)


def test_people_set_out_by_the_clock_as_on_7x_and_the_last_rate_goes_on(city: City) -> None:
    rates = np.array([*HOURS_7X, HOURS_7X[-1] * (19_200 - 18_000) / 3600])
    hours = np.bincount(city.journeys.departure_s // 3600, minlength=6)
    count, shares = len(city.journeys), rates / rates.sum()
    for hour, share in zip(hours, shares, strict=True):
        assert hour / count == pytest.approx(share, abs=4 * sampling_error(share, count))
    assert city.journeys.departure_s.max() < 19_200


@pytest.mark.parametrize("name", PAPER)
def test_people_of_a_service_board_along_the_line_as_on_7x(city: City, name: str) -> None:
    """Journeys without a change from the stops that no other service serves."""
    journeys, service = city.journeys, service_of(city, name)
    shared = {stop for other in city.services if other.id != name for stop in other.stops}
    own = [i for i, stop in enumerate(service.stops[:-1]) if stop not in shared]
    boards = journeys.leg_board[journeys.leg_start[:-1][np.diff(journeys.leg_start) == 1]]
    counted = np.bincount(boards, minlength=len(city.stops))[np.array(service.stops)[own]]
    at = np.linspace(0, len(BOARDING_7X), len(service.stops))
    reached = np.interp(at, np.arange(len(BOARDING_7X) + 1), [0, *np.cumsum(BOARDING_7X)])
    wanted = np.diff(reached)[own]
    apart = np.cumsum(counted) / counted.sum() - np.cumsum(wanted) / wanted.sum()
    assert np.abs(apart).max() < 2 / math.sqrt(counted.sum())


def test_demand_rises_until_the_last_buses_leave(city: City) -> None:
    hours = np.bincount(city.journeys.departure_s[city.journeys.departure_s < 18_000] // 3600)
    assert (np.diff(hours) > 0).all()


def test_demand_goes_on_after_the_last_departures(city: City) -> None:
    last = max(trip.departure_s for trip in city.trips)
    late = np.mean(city.journeys.departure_s > last)
    assert 0.01 < late < 0.25


# -- other demand, the same streets ----------------------------------------------------------------


def test_the_former_demand_stays_available_on_the_same_streets(city: City) -> None:
    former = embedded_city("city-two-peaks")
    assert digest(former) == "1720582b55c6edfe702797f40fb32232374629c913994916efd794c7686418fd"
    assert network_digest(former) == network_digest(city)
    assert {name: same_streets(name) for name in PLANS} == {
        "city": "city", "city-two-peaks": "city", "town": "town",
    }  # fmt: skip
    assert digest(with_profile("city", "two-peaks")) == digest(former)


def test_another_profile_changes_the_people_and_nothing_else(town: City) -> None:
    for other in (with_profile("town", "flat", 5_400), with_hours("town", (3, 0), 5_400)):
        assert network_digest(other) == network_digest(town)
        assert len(realise(other, Cell(1, 501, 1.0)).journey) == 2_700
    assert other.name == "town-hours" and other.journeys.departure_s.max() < 3_600
    quarters = np.bincount(other.journeys.departure_s // 900)
    assert quarters == pytest.approx([2_700 * 1.25 / 4] * 4, rel=0.15)
    assert with_profile("town", "rising", 5_400).journeys.departure_s.max() < 5_400


def test_the_hours_of_7x_give_the_people_of_city(city: City) -> None:
    same = with_hours("city", HOURS_7X, 19_200).journeys
    assert np.array_equal(same.departure_s, city.journeys.departure_s)
    assert np.array_equal(same.leg_board, city.journeys.leg_board)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: with_profile("city", "hope"), "'hope'; choose 'rising', 'flat' or 'two-peaks'"),
        (lambda: with_profile("village"), "'village'; choose 'city'"),
        (lambda: with_profile("town"), "19,200 s: the day of town ends at 7,200 s"),
        (lambda: with_profile("town", "two-peaks"), "17,200 s: the day of town ends at 7,200 s"),
        (lambda: with_profile("city", "two-peaks", 9_000), "choose 'rising' or 'flat'"),
        (lambda: with_profile("city", "flat", 0), "0 s: must be at least 1"),
        (lambda: with_hours("city", (1, -1)), "-1 must be a number of at least 0"),
        (lambda: with_hours("city", (1, math.nan)), "nan must be a number of at least 0"),
        (lambda: with_hours("city", (0, 0)), "nobody sets out before 7,200 s"),
        (lambda: with_hours("city", (1, 1, 1), 7_200), "3 hours do not fit before 7,200 s"),
    ],
)
def test_a_demand_that_cannot_be_is_refused(make: Callable[[], City], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        make()


def test_town_has_the_same_features_in_small(town: City) -> None:
    assert len(town.services) == 4 and len({service.route for service in town.services}) == 2
    assert 55 <= len(town.trips) <= 65 and town.horizon_s == 7_200
    assert any(node.signal for node in town.nodes) and any(road.bus_lane for road in town.roads)
    assert any(
        len(set(a.stops) & set(b.stops)) for a, b in itertools.combinations(town.services, 2)
    )
    assert 0.05 <= np.mean(np.diff(town.journeys.leg_start) > 1) <= 0.07


@pytest.mark.parametrize("name", ["city", "town"])
def test_stops_lie_where_their_service_says(name: str) -> None:
    """Distance along the way equals the roads before the stop's road plus its place on it."""
    city = embedded_city(name)
    roads = {road.id: road for road in city.roads}
    for service in city.services:
        starts = np.concatenate([[0.0], np.cumsum([roads[r].length_m for r in service.roads])])
        for stop, at in zip(service.stops, service.distance_m, strict=True):
            here = city.stops[stop]
            places = [
                start + here.pos_m
                for start, road in zip(starts, service.roads, strict=False)
                if road == here.road
            ]
            assert min(abs(place - at) for place in places) <= 0.2


@pytest.mark.parametrize("name", ["city", "town"])
def test_every_leg_names_exactly_the_services_that_can_carry_it(name: str) -> None:
    city = embedded_city(name)
    journeys, orders = city.journeys, [list(service.stops) for service in city.services]
    legs = {
        (int(board), int(alight), int(carriers))
        for board, alight, carriers in zip(
            journeys.leg_board, journeys.leg_alight, journeys.leg_carriers, strict=True
        )
    }
    for board, alight, carriers in legs:
        can = {i for i, order in enumerate(orders) if alight in after(order, board)}
        assert set(journeys.carriers[carriers]) == can and can


def after(order: list[int], stop: int) -> list[int]:
    """What comes after a stop; nothing if the stop is not there."""
    return order[order.index(stop) + 1 :] if stop in order else []


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_city_is_the_same_to_the_byte_in_another_process(hash_seed: str) -> None:
    script = (
        "from evenline.city.embedded import embedded_city; from evenline.city.tables import digest;"
        "print(*(digest(embedded_city(name)) for name in ('city', 'town')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [digest(embedded_city(name)) for name in ("city", "town")]


def test_another_seed_gives_another_city(town: City) -> None:
    others = [build(replace(TOWN, seed=seed)) for seed in (TOWN.seed, 5, 6)]
    digests = [digest(other) for other in others]
    assert digests[0] == digest(town) and len(set(digests)) == 3
    assert [len(other.trips) for other in others] == [len(town.trips)] * 3


def test_a_way_that_leaves_the_grid_is_refused() -> None:
    assert legs_of([(0, 0), (2, 0), (2, -1)]) == [(0, 0), (1, 0), (2, 0), (2, -1)]
    with pytest.raises(ValueError, match="not along one street"):
        legs_of([(0, 0), (1, 1)])


def test_an_unknown_city_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InputError, match=r"'village'; choose 'city', 'city-two-peaks' or 'town'"):
        embedded_city("village")


def test_services_share_the_way_from_one_stop_to_the_next() -> None:
    city = embedded_city("city")
    ways, at = segments(city).tolist(), 0
    pair_of: dict[int, tuple[int, int]] = {}
    for service in city.services:
        for pair in itertools.pairwise(service.stops):
            assert pair_of.setdefault(ways[at], pair) == pair
            at += 1
        assert ways[at] == -1, "a last stop has no way on"
        at += 1
    assert len(set(pair_of.values())) == len(pair_of) == max(ways) + 1
