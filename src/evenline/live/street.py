"""A simulated street: a day of a world as a feed of vehicle positions, with faults as asked.

Buses drive as in the world. Accepted advice is carried out: a bus that is held at a stop until a
time stays until then, within the world's cap. Every true arrival is known, to be compared with what
the shadow saw.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from evenline.city.demand import Cell
from evenline.city.model import City, Ints, Trip, visit_offsets
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import BASE_DWELL, CAPACITY, ON_BOARD, STOP, TIME, Array, Batch
from evenline.control.outcome import Outcome
from evenline.live.courses import Course, courses_of
from evenline.live.feed import Position, Snapshot
from evenline.live.frame import Frame, frame_of
from evenline.support.errors import InputError
from evenline.worlds.fast.world import Fleet
from evenline.worlds.open import OpenCity

_LAYOVER_S = 150.0  # a bus is at its first stop so long before it starts
_AFTER_S = 45.0  # and reports so long from its last one
_AHEAD_S = 900.0
_GHOST_DEGREES = 0.0002  # a ghost is 22 m beside its bus: on the same line


class Bus(NamedTuple):
    """Where a bus is: metres in the city, speed, people on board as a share of its capacity."""

    trip: int
    at_s: float
    x_m: float
    y_m: float
    speed_mps: float
    occupied: float


class Street(Protocol):
    """A day that goes on as time passes."""

    city: City
    holds: dict[tuple[int, int], float]  # until when a trip is held at a stop

    @property
    def over(self) -> bool:
        """Whether the day has ended."""

    def advance(self, now_s: float) -> None:
        """Let the day go on to a second."""

    def buses(self) -> list[Bus]:
        """The buses on the street now."""

    def arrivals_s(self) -> Ints:
        """When each trip reached each of its stops, one entry per visit; -1 if not yet."""

    def outcome(self) -> Outcome:
        """The outcome of the day when it is over."""

    def close(self) -> None:
        """End the day."""


def hold_for(until_s: float | None, raw: Array) -> float:
    """The hold that keeps a bus at its stop until a time."""
    ready_s = float(raw[TIME] + raw[BASE_DWELL])
    return 0.0 if until_s is None else min(max(until_s - ready_s, 0.0), MAX_HOLD_S)


def _waits(planned: Trip, second: float) -> bool:
    """Whether a bus that has not set out reports from its first stop."""
    return planned.departure_s - _LAYOVER_S <= second < planned.departure_s + 600


class FastStreet:
    """A day of the fast world. Its buses drive evenly from stop to stop."""

    def __init__(self, opened: OpenCity, cell: Cell) -> None:
        self.city, self.courses = opened.city, courses_of(opened.city, opened.calibration)
        self.holds: dict[tuple[int, int], float] = {}
        self._fleet = Fleet(self.city, opened.fitted(), 1)
        self._first = visit_offsets(self.city)
        self._leaves_s = np.full(int(self._first[-1]), -1.0)
        self._load = np.zeros(len(self.city.trips))
        self._now_s = 0.0
        self._fleet.reset([cell])

    @property
    def over(self) -> bool:
        return bool(self._fleet.over[0])

    def advance(self, now_s: float) -> None:
        fleet = self._fleet
        self._now_s = now_s
        while not fleet.over[0] and fleet.raw[0, TIME] <= now_s:
            self._step(self.holds)

    def _step(self, holds: dict[tuple[int, int], float]) -> None:
        trip, raw = int(self._fleet.trips[0]), self._fleet.raw[0]
        stop = int(raw[STOP])
        hold_s = hold_for(holds.get((trip, stop)), raw)
        leaves_s = raw[TIME] + raw[BASE_DWELL] + hold_s
        self._leaves_s[self._first[trip] + stop] = leaves_s
        self._load[trip] = raw[ON_BOARD] / max(raw[CAPACITY], 1.0)
        self._fleet.step(np.array([hold_s]))

    def arrivals_s(self) -> Ints:
        return self._fleet.arrivals_s(0).copy()

    def outcome(self) -> Outcome:
        return self._fleet.outcome(0)

    def close(self) -> None:
        return

    def _arrivals_ahead(self) -> Ints:
        """All arrivals so far, and the next one of every bus: the world runs ahead, and back."""
        kept = {name: array.copy() for name, array in self._fleet.snapshot().items()}
        leaves, load = self._leaves_s.copy(), self._load.copy()
        while not self._fleet.over[0] and self._fleet.raw[0, TIME] <= self._now_s + _AHEAD_S:
            self._step({})
            if self._fleet.raw[0, TIME] > self._now_s and self._known():
                break
        arrivals = self.arrivals_s()
        self._fleet.restore(kept)
        self._leaves_s, self._load = leaves, load
        return arrivals

    def _known(self) -> bool:
        """Whether the next arrival of every bus that drives is known."""
        arrived, first = self._fleet.arrivals_s(0), self._first[:-1]
        seen = np.add.reduceat(arrived >= 0, first, dtype=np.int32)
        past = np.add.reduceat((arrived >= 0) & (arrived <= self._now_s), first, dtype=np.int32)
        return not ((past > 0) & (past < np.diff(self._first)) & (seen == past)).any()

    def buses(self) -> list[Bus]:
        arrived, buses = self._arrivals_ahead(), []
        for trip, planned in enumerate(self.city.trips):
            first, end = int(self._first[trip]), int(self._first[trip + 1])
            part = arrived[first:end]
            past = int(((part >= 0) & (part <= self._now_s)).sum())
            course = self.courses[planned.service]
            if past == 0:
                if _waits(planned, self._now_s):
                    buses.append(self._bus(trip, course, course.stops_m[0], 0.0))
            elif past == end - first:
                if self._now_s - part[-1] <= _AFTER_S:
                    buses.append(self._bus(trip, course, course.stops_m[-1], 0.0))
            else:
                buses.append(self._driving(trip, course, past - 1, part))
        return buses

    def _driving(self, trip: int, course: Course, stop: int, part: Ints) -> Bus:
        begin_m, end_m = course.stops_m[stop], course.stops_m[stop + 1]
        leaves_s, next_s = self._leaves_s[self._first[trip] + stop], float(part[stop + 1])
        if self._now_s <= leaves_s or next_s <= leaves_s:
            return self._bus(trip, course, begin_m, 0.0)
        speed = (end_m - begin_m) / (next_s - leaves_s)
        return self._bus(trip, course, begin_m + speed * (self._now_s - leaves_s), speed)

    def _bus(self, trip: int, course: Course, along_m: float, speed: float) -> Bus:
        return Bus(trip, self._now_s, *course.place(along_m), speed, float(self._load[trip]))


class SumoStreet:
    """A day of SUMO: the places of its vehicles in every second.

    SUMO runs on to the next arrival, where it waits for the holds; the seconds until then are kept.
    It knows a bus only while the bus drives. Like a real one, a bus also reports from its first
    stop before it starts and from its last one after it ends.
    """

    def __init__(self, opened: OpenCity, cell: Cell) -> None:
        from evenline.worlds.sumo.network import compiled_network
        from evenline.worlds.sumo.runtime import libsumo
        from evenline.worlds.sumo.world import SumoWorld

        self.city, self.courses = opened.city, courses_of(opened.city, None)
        self.holds: dict[tuple[int, int], float] = {}
        self._first = visit_offsets(self.city)
        keeps = self.city.own_buses  # a scenario's buses keep their names
        self._trip = {
            trip.source if keeps and trip.source else trip.id: number
            for number, trip in enumerate(self.city.trips)
        }
        self._world, self._sumo = SumoWorld(self.city, on_second=self._look), libsumo()
        with compiled_network(self.city).path.open() as file:
            offset = re.search(r'netOffset="([-\d.]+),([-\d.]+)"', file.read(20_000))
        assert offset is not None
        self._offset = float(offset[1]), float(offset[2])
        self._now_s = 0.0
        self._seen: deque[tuple[int, list[Bus]]] = deque()  # second by second
        self._driving: dict[int, Bus] = {}  # by trip, as last seen
        self._batch: Batch | None = self._world.reset(cell)

    @property
    def over(self) -> bool:
        return self._batch is None

    def advance(self, now_s: float) -> None:
        self._now_s = now_s
        while self._batch is not None and self._batch.time_s <= now_s:
            rows = zip(self._batch.trips.tolist(), self._batch.raw, strict=True)
            holds = [hold_for(self.holds.get((trip, int(raw[STOP]))), raw) for trip, raw in rows]
            self._batch = self._world.step(holds)
        self._forget()

    def _forget(self) -> None:
        while len(self._seen) > 1 and self._seen[1][0] <= self._now_s:
            self._seen.popleft()

    def _look(self, second: int) -> None:
        vehicles, buses = self._sumo.vehicle, []
        for name in vehicles.getIDList():
            trip = self._trip.get(name)
            if trip is not None:
                x_m, y_m = vehicles.getPosition(name)
                people = vehicles.getPersonNumber(name) / self.city.vehicle_of(trip).capacity
                place = (x_m - self._offset[0], y_m - self._offset[1])
                bus = Bus(trip, second, *place, vehicles.getSpeed(name), people)
                buses.append(bus)
                self._driving[trip] = bus
        for trip, planned in enumerate(self.city.trips):
            course, seen = self.courses[planned.service], self._driving.get(trip)
            if seen is None:
                if _waits(planned, second):
                    buses.append(Bus(trip, second, *course.place(course.stops_m[0]), 0.0, 0.0))
            elif 0.0 < second - seen.at_s <= _AFTER_S:
                buses.append(Bus(trip, second, *course.place(course.stops_m[-1]), 0.0, 0.0))
        self._seen.append((second, buses))
        self._forget()

    def buses(self) -> list[Bus]:
        return self._seen[0][1] if self._seen and self._seen[0][0] <= self._now_s else []

    def arrivals_s(self) -> Ints:
        arrivals = np.full(int(self._first[-1]), -1, np.int32)
        for visit in self._world.visits:
            arrivals[self._first[visit.trip] + visit.position] = visit.arrival_s
        return arrivals

    def outcome(self) -> Outcome:
        return self._world.outcome()

    def close(self) -> None:
        self._world.close()


def open_street(world: str, opened: OpenCity, cell: Cell) -> Street:
    """A street of a world by name."""
    if world == "fast":
        return FastStreet(opened, cell)
    if world == "sumo":
        return SumoStreet(opened, cell)
    raise InputError(f"unknown world {world!r} for a street; choose 'fast' or 'sumo'")


# -- the feed of a street -------------------------------------------------------------------------


@dataclass(frozen=True)
class Faults:
    """What is wrong with a feed. Shares are of reports, or of buses where it says so."""

    noise_m: float = 0.0  # standard deviation of a place, each way
    loss: float = 0.0
    delay_s: float = 0.0
    unknown: float = 0.0  # buses whose trip id the schedule lacks
    twice: float = 0.0  # buses that report under two names
    occupancy: bool = False  # whether buses say how full they are
    silent: tuple[float, float] = (0.0, 0.0)  # the feed says nothing new between these seconds


class StreetFeed:
    """The feed of a street. `rng` makes its faults."""

    def __init__(self, street: Street, faults: Faults, rng: np.random.Generator) -> None:
        self.street, self.faults, self._rng = street, faults, rng
        self.frame: Frame = frame_of(street.city)
        count = len(street.city.trips)
        self._unknown = rng.random(count) < faults.unknown
        self._twice = rng.random(count) < faults.twice
        self._past: deque[Snapshot] = deque(maxlen=1000)

    def at(self, now_s: float) -> Snapshot:
        """What the feed says at a second of the day."""
        begin_s, end_s = self.faults.silent
        self.street.advance(now_s)
        if not (begin_s <= now_s < end_s and self._past):
            positions = tuple(self._reports(self.street.buses()))
            self._past.append(Snapshot(self.frame.moment(now_s), positions))
        due = self.frame.moment(now_s - self.faults.delay_s) + 1e-6
        while len(self._past) > 1 and self._past[1].at_s <= due:
            self._past.popleft()
        return self._past[0]

    def _reports(self, buses: list[Bus]) -> Iterable[Position]:
        city, faults, rng = self.street.city, self.faults, self._rng
        for bus in buses:
            if rng.random() < faults.loss:
                continue
            dx, dy = faults.noise_m * rng.standard_normal(2)
            lat, lon = self.frame.degrees(bus.x_m + dx, bus.y_m + dy)
            trip = city.trips[bus.trip]
            service = city.services[trip.service]
            name = trip.source or trip.id
            report = Position(
                vehicle=f"bus-{trip.id}",
                at_s=round(self.frame.moment(bus.at_s)),
                lat=lat,
                lon=lon,
                trip=f"other-{name}" if self._unknown[bus.trip] else name,
                route=service.route,
                date=self.frame.date,
                speed_mps=bus.speed_mps,
                occupied=bus.occupied if faults.occupancy else -1.0,
            )
            yield report
            if self._twice[bus.trip]:
                yield report._replace(vehicle=f"ghost-{trip.id}", lat=lat + _GHOST_DEGREES)
