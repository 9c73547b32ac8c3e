"""A day on which every bus runs on time, the slow way, to test what finds ways by a timetable; and
small cities with a schedule in which no two buses are due in the same second."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from evenline.city.model import City, Journeys, visit_offsets
from random_cities import cities

Bus = tuple[int, int, int]  # when it leaves, when it arrives, its service


@st.composite
def timed_cities(draw: Any) -> City:
    """Small cities with a schedule that differs from trip to trip."""
    city = draw(cities())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    due_s = []
    for number, trip in enumerate(city.trips):
        stops = len(city.services[trip.service].stops)
        steps = rng.integers(1, 60, stops).cumsum()
        due_s += [(trip.departure_s // 9 + int(step)) * len(city.trips) + number for step in steps]
    return replace(city, due_s=np.array(due_s, np.int32))


def first_bus(city: City, board: int, alight: int, at_s: int) -> Bus | None:
    """The first bus to leave a stop at `at_s` or later that goes to the other."""
    assert city.due_s is not None
    found = []
    for trip, first in zip(city.trips, visit_offsets(city), strict=False):
        stops = city.services[trip.service].stops
        if board in stops and alight in stops and stops.index(board) < stops.index(alight):
            leaves = int(city.due_s[first + stops.index(board)])
            arrives = int(city.due_s[first + stops.index(alight)])
            found.append((leaves, arrives, trip.service))
    return min((bus for bus in found if at_s <= bus[0] < city.horizon_s), default=None)


def ways(
    city: City, board: int, alight: int, at_s: int, legs: int
) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Every way of so many legs: when it arrives, and its legs."""
    if legs == 1:
        if bus := first_bus(city, board, alight, at_s):
            yield bus[1], ((board, alight),)
        return
    for change in range(len(city.stops)):
        if bus := first_bus(city, board, change, at_s):
            for arrival, rest in ways(city, change, alight, bus[1], legs - 1):
                yield arrival, ((board, change), *rest)


def door_counts(city: City, journeys: Journeys, level: float = 1.0) -> tuple[Counter[Any], ...]:
    """Boardings and alightings by service, stop and half hour."""
    on: Counter[Any] = Counter()
    off: Counter[Any] = Counter()
    for person in np.flatnonzero(journeys.min_demand <= level):
        at_s = int(journeys.departure_s[person])
        for leg in range(journeys.leg_start[person], journeys.leg_start[person + 1]):
            board, alight = int(journeys.leg_board[leg]), int(journeys.leg_alight[leg])
            bus = first_bus(city, board, alight, at_s)
            assert bus is not None
            leaves, at_s, service = bus
            on[city.services[service].id, city.stops[board].id, leaves // 1800] += 1
            off[city.services[service].id, city.stops[alight].id, at_s // 1800] += 1
    return on, off
