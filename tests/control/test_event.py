"""Headways against a diary: every arrival written down, every question answered by reading it.

Buses of small random services reach their stops in random order, overtake each other, stand
together in the same second and finish; the linked arrays must answer as the diary does.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.embedded import embedded_city
from evenline.city.model import City, Journeys, Node, Road, Service, Stop, Trip, Vehicle
from evenline.control.event import (
    RAW_FEATURES,
    Headways,
    headway_behind,
    new_headways,
    record_arrival,
    record_finish,
)

Plan = list[tuple[int, int]]  # stops and trips of each service
Arrival = tuple[int, int]  # trip, time


def straight_city(plan: Plan) -> City:
    """Each service on a road of its own, a stop every 100 m."""
    nodes, roads, stops, services, trips = [], [], [], [], []
    for index, (count, runs) in enumerate(plan):
        name, length = f"r{index}", 100.0 * (count + 1)
        nodes += [Node(f"{name}a", 0.0, index, False), Node(f"{name}b", length, index, False)]
        roads.append(Road(name, f"{name}a", f"{name}b", length, False))
        places = [100.0 * (i + 1) for i in range(count)]
        first = len(stops)
        stops += [Stop(f"{name}s{i}", name, at, at, index) for i, at in enumerate(places)]
        order = tuple(range(first, first + count))
        services.append(Service(f"l{index}", name, order, tuple(places), (name,), length))
        trips += [Trip(f"l{index}.{run}", index, 60 * run) for run in range(runs)]
    nobody = Journeys(*(np.zeros(0, np.int32) for _ in range(6)), carriers=())
    return City(
        name="straight",
        horizon_s=3_600,
        vehicle=Vehicle(),
        nodes=tuple(nodes),
        roads=tuple(roads),
        stops=tuple(stops),
        services=tuple(services),
        trips=tuple(trips),
        journeys=nobody,
    )


@dataclass
class Diary:
    """Every arrival in the order it happened: (trip, stop, time)."""

    city: City
    entries: list[tuple[int, int, int]] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)

    def service(self, trip: int) -> int:
        return self.city.trips[trip].service

    def times(self, trip: int) -> list[int]:
        """When a trip reached each of its stops so far."""
        return [time for who, _, time in self.entries if who == trip]

    def last_time_at(self, service: int, stop: int) -> int | None:
        seen = [t for who, s, t in self.entries if s == stop and self.service(who) == service]
        return seen[-1] if seen else None

    def running(self, service: int) -> list[int]:
        """Buses under way, front to rear: further along first, then whoever came there first."""
        latest = {
            trip: (-stop, entry)
            for entry, (trip, stop, _) in enumerate(self.entries)
            if self.service(trip) == service and trip not in self.finished
        }
        return sorted(latest, key=lambda trip: latest[trip])

    def gap_behind(self, trip: int, now: int) -> int:
        order = self.running(self.service(trip))
        rear = order[order.index(trip) + 1 :]
        if not rear:
            return -1
        mine, its = self.times(trip), self.times(rear[0])
        last = len(its) - 1
        gap = its[last] - mine[last]
        return max(gap, now - mine[last + 1]) if len(mine) > len(its) else gap


def running_order(h: Headways, service: int) -> list[int]:
    """Front to rear, read from the tail; both directions of the chain must agree."""
    order, bus = [], int(h.tail[service])
    while bus >= 0:
        order.append(bus)
        bus = int(h.ahead[bus])
        assert len(order) <= len(h.service), "the chain has a loop"
    for rear, front in itertools.pairwise(order):
        assert h.behind[front] == rear
    if order:
        assert h.behind[order[0]] == -1
    return order[::-1]


@st.composite
def days(draw: st.DrawFn) -> tuple[Plan, list[Arrival]]:
    """Services, and their buses' arrivals in any order in which each bus keeps its own."""
    plan = draw(st.lists(st.tuples(st.integers(2, 5), st.integers(1, 5)), min_size=1, max_size=3))
    visits, trip = [], 0
    for stops, runs in plan:
        for _ in range(runs):
            visits += [trip] * stops
            trip += 1
    order = draw(st.permutations(visits))
    steps = draw(st.lists(st.integers(0, 40), min_size=len(order), max_size=len(order)))
    return plan, list(zip(order, np.cumsum(steps).tolist(), strict=True))


@settings(deadline=None)
@given(days(), st.integers(0, 100))
def test_headways_answer_as_a_diary_of_all_arrivals_does(
    day: tuple[Plan, list[Arrival]], later: int
) -> None:
    plan, arrivals = day
    city = straight_city(plan)
    h, diary = new_headways(city), Diary(city)
    for trip, now in arrivals:
        service, stop = diary.service(trip), len(diary.times(trip))
        before = diary.last_time_at(service, stop)
        diary.entries.append((trip, stop, now))
        assert record_arrival(h, trip, stop, now) == (-1 if before is None else now - before)
        assert h.position[trip] == stop
        if stop == len(city.services[service].stops) - 1:
            diary.finished.add(trip)
            record_finish(h, trip)
        for index in range(len(plan)):
            assert running_order(h, index) == diary.running(index)
            for bus in diary.running(index):
                for moment in (now, now + later):
                    assert headway_behind(h, bus, moment) == diary.gap_behind(bus, moment) >= -1
    assert (h.tail == -1).all() and (h.ahead == -1).all() and (h.behind == -1).all()


def test_before_the_first_arrival_nobody_runs_anywhere() -> None:
    city = embedded_city("town")
    h = new_headways(city)
    assert len(h.visited_s) == city.decisions + len(city.trips)
    assert len(h.last_s) == sum(len(service.stops) for service in city.services)
    for index in range(len(city.services)):
        assert running_order(h, index) == []
    assert (h.position == -1).all() and (h.last_s == -1).all() and (h.visited_s == -1).all()


@pytest.fixture
def pair() -> Headways:
    """Two buses of one service: the first at its third stop, the second at its first."""
    h = new_headways(straight_city([(5, 2)]))
    for trip, stop, now in ((0, 0, 100), (0, 1, 160), (1, 0, 190), (0, 2, 220)):
        record_arrival(h, trip, stop, now)
    return h


def test_the_gap_behind_is_what_was_seen_until_the_follower_is_overdue(pair: Headways) -> None:
    """Seen at the first stop: 90 s. From 160 + 90 s on the follower is late at the second."""
    assert headway_behind(pair, 0, 220) == 90
    assert headway_behind(pair, 0, 250) == 90
    assert headway_behind(pair, 0, 275) == 115
    assert headway_behind(pair, 1, 275) == -1


def test_the_raw_event_has_the_papers_sixteen_features() -> None:
    assert len(RAW_FEATURES) == 16 == len(set(RAW_FEATURES))
