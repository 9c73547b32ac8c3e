"""Ways through a city by its timetable: the first bus that can carry each leg.

A place is a stop with its split visits (`S`, `S~2`). A way has the fewest transfers that the
timetable allows, two at most, and then the earliest arrival. People change buses at one and the
same stop; walking is not modelled.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from evenline.city.model import City, Ints, visit_offsets

SPEED_MPS = 5.0  # of a bus, stops included, where the city has no schedule
_MOST_LEGS = 3

Leg = tuple[int, int]  # board, alight
Way = tuple[int, int, tuple[Leg, ...]]  # its arrival, that of its first leg, its legs
_VISIT = re.compile(r"(.+)~\d+")


def due_times(city: City) -> tuple[Ints, ...]:
    """When each trip of a service is due at each stop: for each service, trips by positions."""
    due, first = [], visit_offsets(city)
    for service, trips in zip(city.services, city.trips_of, strict=True):
        starts_s = np.array([city.trips[trip].departure_s for trip in trips], np.int32)
        along_m = np.array(service.distance_m) - service.distance_m[0]
        due_s = starts_s[:, None] + np.rint(along_m / SPEED_MPS).astype(np.int32)
        if city.due_s is not None:
            visits = first[list(trips)][:, None] + np.arange(len(service.stops))
            due_s = city.due_s[visits]
        due.append(due_s)
    return tuple(due)


def places_of(city: City) -> tuple[str, ...]:
    """The place of each stop: its id in the source, or the id that its split visits begin with."""
    ids = {stop.id for stop in city.stops}
    places = []
    for stop in city.stops:
        visit = _VISIT.fullmatch(stop.id)
        id = visit[1] if visit and visit[1] in ids else stop.id
        places.append(stop.source or id)
    return tuple(places)


@dataclass(frozen=True)
class Rides:
    """The buses that carry a leg, in the order in which they leave; of two at once, the faster."""

    departure_s: list[int]
    arrival_s: list[int]
    service: list[int]

    def first(self, at_s: int) -> int | None:
        """The arrival of the first bus to leave at `at_s` or later, if there is one."""
        index = bisect_left(self.departure_s, at_s)
        return self.arrival_s[index] if index < len(self.arrival_s) else None

    def bus(self, at_s: int) -> tuple[int, int, int]:
        """That bus, which must be there: its service, when it leaves and when it arrives."""
        index = bisect_left(self.departure_s, at_s)
        return self.service[index], self.departure_s[index], self.arrival_s[index]


class Ways:
    """The ways through a city. What was looked up once is kept, as most questions return."""

    def __init__(self, city: City) -> None:
        self.city = city
        self.due_s = due_times(city)
        self.places = places_of(city)
        self._rides: dict[Leg, Rides] = {}
        self._connected: dict[tuple[str, str], bool] = {}

    @cached_property
    def stops_of(self) -> dict[str, list[int]]:
        """The stops of each place."""
        stops: dict[str, list[int]] = defaultdict(list)
        for stop, place in enumerate(self.places):
            stops[place].append(stop)
        return dict(stops)

    @cached_property
    def calls(self) -> list[list[tuple[int, int]]]:
        """The calls at each stop, as (service, position)."""
        calls: list[list[tuple[int, int]]] = [[] for _ in self.city.stops]
        for index, service in enumerate(self.city.services):
            for position, stop in enumerate(service.stops):
                calls[stop].append((index, position))
        return calls

    @cached_property
    def _after(self) -> list[set[int]]:
        """The stops that one bus reaches from each stop."""
        services = self.city.services
        return [{s for i, p in calls for s in services[i].stops[p + 1 :]} for calls in self.calls]

    @cached_property
    def _changes(self) -> list[list[int]]:
        """Those of them at which another service calls."""
        hubs = {stop for stop, calls in enumerate(self.calls) if len(calls) > 1}
        return [sorted(after & hubs) for after in self._after]

    def rides(self, leg: Leg) -> Rides:
        """The buses of all services that carry a leg and leave before the day ends."""
        if leg not in self._rides:
            alight = dict(self.calls[leg[1]])
            buses: list[tuple[int, int, int]] = []
            for index, position in self.calls[leg[0]]:
                if alight.get(index, -1) > position:
                    due_s = self.due_s[index][:, [position, alight[index]]]
                    in_time = due_s[due_s[:, 0] < self.city.horizon_s]
                    buses += ((*pair, index) for pair in in_time.tolist())
            buses.sort()
            self._rides[leg] = Rides(*([bus[column] for bus in buses] for column in range(3)))
        return self._rides[leg]

    def arrival_s(self, legs: tuple[Leg, ...], at_s: int) -> int | None:
        """When someone arrives who takes the first bus of each leg; None if there is none."""
        now: int | None = at_s
        for leg in legs:
            now = None if now is None else self.rides(leg).first(now)
        return now

    def find(self, origin: str, destination: str, at_s: int) -> tuple[Leg, ...] | None:
        """The legs from a place to a place for someone who sets out at `at_s`, if there are any."""
        if origin == destination:
            return None
        ends = list(product(self.stops_of[origin], self.stops_of[destination]))
        for count in range(1, _MOST_LEGS + 1):
            ways = (self._way(board, alight, at_s, count) for board, alight in ends)
            usable = [way for way in ways if way is not None]
            if usable:  # at a place visited twice, board later if that arrives no later
                key = [(*way[:2], -self.rides(way[2][0]).bus(at_s)[1]) for way in usable]
                return usable[key.index(min(key))][2]
        return None

    def connects(self, origin: str, destination: str) -> bool:
        """Whether there is a way at any time of the day."""
        pair = (origin, destination)
        if pair not in self._connected:
            self._connected[pair] = self.find(*pair, -(2**31)) is not None
        return self._connected[pair]

    def _way(self, board: int, alight: int, at_s: int, count: int) -> Way | None:
        """The best way of so many legs.

        Of ways that arrive together the one that changes first wins: it has the most time to spare.
        """
        if count == 1:
            arrival_s = self.rides((board, alight)).first(at_s)
            return None if arrival_s is None else (arrival_s, arrival_s, ((board, alight),))
        best: Way | None = None
        for change in self._changes[board]:
            if count == 2 and alight not in self._after[change]:
                continue
            at_change_s = self.rides((board, change)).first(at_s)
            if at_change_s is None or (best is not None and at_change_s >= best[0]):
                continue
            rest = self._way(change, alight, at_change_s, count - 1)
            if rest is not None:
                way = (rest[0], at_change_s, ((board, change), *rest[2]))
                best = way if best is None else min(best, way)
        return best
