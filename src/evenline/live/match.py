"""Find the trip of a vehicle and its place on the line, and say how sure that is.

A trip that the feed names is believed if it runs today. Otherwise a vehicle goes on with the trip
that it was on, then with the next one of its duty; last, its route, place and time decide. A
vehicle that is beside its line, of another day, or of an unknown or cancelled trip gets no trip,
and a reason.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evenline.city.model import City, Floats
from evenline.live.courses import Course, Spot
from evenline.live.feed import Position
from evenline.live.frame import Frame

_OFF_M = 60.0  # farther beside its line, a bus is not on it
_MOST_MPS = 35.0
_SLIP_M = 100.0  # how far a report may lie before the last one
_EARLY_S, _LATE_S = 900.0, 2700.0  # a trip is looked for from so long before it to so long after
_SURE = {"trip": 1.0, "block": 0.8, "place": 0.5}
_MOVED_M = 40.0


class Match(NamedTuple):
    """The trip of a vehicle; -1 if none, and then `how` says why."""

    trip: int
    how: str
    x_m: float
    y_m: float
    sure: float = 0.0
    along_m: float = 0.0


@dataclass(slots=True)
class Known:
    """What is known of a vehicle from its reports before."""

    trip: int = -1
    how: str = ""
    along_m: float = 0.0
    at_s: float = -1e9
    x_m: float = 0.0
    y_m: float = 0.0
    duty: str = ""
    done: set[int] = field(default_factory=set)  # trips that it has finished


class Matcher:
    """Matches reports of a city's vehicles."""

    def __init__(
        self, city: City, frame: Frame, courses: tuple[Course, ...], due_s: tuple[Floats, ...]
    ) -> None:
        self.city, self.frame, self.courses, self.due_s = city, frame, courses, due_s
        self.cancelled: frozenset[int] = frozenset()
        self._named: dict[str, list[int]] = {}
        self._duty: dict[str, list[int]] = {}
        for number, trip in enumerate(city.trips):
            self._named.setdefault(trip.source or trip.id, []).append(number)
            if trip.duty:
                self._duty.setdefault(trip.duty, []).append(number)
        self._stop = [
            {city.stops[stop].source or city.stops[stop].id: k for k, stop in enumerate(s.stops)}
            for s in city.services
        ]
        self._route: dict[str, list[int]] = {}
        for number, service in enumerate(city.services):
            for name in {service.route, service.source, service.id} - {""}:
                self._route.setdefault(name, []).append(number)

    def find(self, position: Position, second: float, known: Known) -> Match:
        """The trip and the place of a report."""
        x_m, y_m = self.frame.metres(position.lat, position.lon)
        if position.date and position.date != self.frame.date:
            return Match(-1, "another day", x_m, y_m)
        trip, how = self._trip(position, second, known, x_m, y_m)
        if trip in self.cancelled:
            trip, how = -1, "cancelled trip"
        if trip < 0:
            return Match(-1, how, x_m, y_m)
        spot = self._spot(position, trip, second, known, x_m, y_m)
        if spot.aside_m > _OFF_M:
            return Match(-1, "off the line", x_m, y_m, 0.0, spot.along_m)
        sure = _SURE[how] * (1.0 if spot.aside_m <= _OFF_M / 2 else 0.8)
        return Match(trip, how, x_m, y_m, sure, spot.along_m)

    def cancel(self, names: Collection[str]) -> frozenset[int]:
        """Match no vehicle to the trips of these names, and to all others again."""
        self.cancelled = frozenset(trip for name in names for trip in self._named.get(name, ()))
        return self.cancelled

    def course_of(self, trip: int) -> Course:
        """The course of a trip's service."""
        return self.courses[self.city.trips[trip].service]

    def stop_of(self, trip: int, position: Position) -> int:
        """The stop that a report names, as a position of the trip's service, or -1."""
        return self._stop[self.city.trips[trip].service].get(position.stop, -1)

    def expected_m(self, trip: int, second: float) -> float:
        """Where a trip should be by its timetable."""
        course = self.course_of(trip)
        return float(np.interp(second, self.due_s[trip], course.stops_m))

    def _trip(
        self, position: Position, second: float, known: Known, x_m: float, y_m: float
    ) -> tuple[int, str]:
        named = self._named.get(position.trip, []) if position.trip else []
        if len(named) == 1:
            return named[0], "trip"
        if named:  # one id for several runs, as with frequencies: the start decides, else the time
            start_s = _seconds(position.start, self.frame, second)
            return min(named, key=lambda t: abs(self.due_s[t][0] - start_s)), "trip"
        if known.trip >= 0 and self._goes_on(second, known, x_m, y_m):
            return known.trip, "block" if known.how == "trip" else known.how
        trip = self._by_duty(second, known, x_m, y_m)
        if trip >= 0:
            return trip, "block"
        trip = self._by_place(position, second, known, x_m, y_m)
        return (trip, "place") if trip >= 0 else (-1, "unknown trip")

    def _runs(self, trip: int, second: float, known: Known) -> bool:
        due = self.due_s[trip]
        within = due[0] - _EARLY_S <= second <= due[-1] + _LATE_S
        return within and trip not in known.done and trip not in self.cancelled

    def _goes_on(self, second: float, known: Known, x_m: float, y_m: float) -> bool:
        """Whether a bus may still be on its trip: it is not over, and the bus did not go back."""
        if not self._runs(known.trip, second, known):
            return False
        course, low_m = self.course_of(known.trip), known.along_m - _SLIP_M
        return course.project(x_m, y_m, low_m, 1e9, known.along_m).aside_m <= _OFF_M

    def _near(
        self, trips: Iterable[int], second: float, known: Known, x_m: float, y_m: float
    ) -> Iterator[tuple[float, int, Spot]]:
        """The trips that run now and pass a place: how far from when they are due there."""
        for trip in trips:
            if self._runs(trip, second, known):
                course = self.course_of(trip)
                spot = course.project(x_m, y_m, -1e9, 1e9, self.expected_m(trip, second))
                if spot.aside_m <= _OFF_M:
                    due_s = float(np.interp(spot.along_m, course.stops_m, self.due_s[trip]))
                    yield abs(second - due_s), trip, spot

    def _by_duty(self, second: float, known: Known, x_m: float, y_m: float) -> int:
        """The trip of the vehicle's duty that is due nearest to now where the vehicle is."""
        duty = self.city.trips[known.trip].duty if known.trip >= 0 else known.duty
        trips = (trip for trip in self._duty.get(duty, ()) if trip != known.trip)
        near = ((off_s, trip) for off_s, trip, _ in self._near(trips, second, known, x_m, y_m))
        return min(near, default=(0.0, -1))[1]

    def _by_place(
        self, position: Position, second: float, known: Known, x_m: float, y_m: float
    ) -> int:
        """A trip of the route that is due here now, for a bus that moves along its line."""
        ago_s = second - known.at_s
        if not 0 < ago_s < 300 or np.hypot(x_m - known.x_m, y_m - known.y_m) < _MOVED_M:
            return -1
        best, least_s = -1, 600.0
        services = self._route.get(position.route, ())
        trips = (trip for service in services for trip in self.city.trips_of[service])
        for off_s, trip, spot in self._near(trips, second, known, x_m, y_m):
            before = self.course_of(trip).project(
                known.x_m, known.y_m, spot.along_m - _MOST_MPS * ago_s, spot.along_m + _SLIP_M
            )
            forward = spot.along_m > before.along_m + _MOVED_M / 2
            if before.aside_m <= _OFF_M and forward and off_s < least_s:
                best, least_s = trip, off_s
        return best

    def _spot(
        self, position: Position, trip: int, second: float, known: Known, x_m: float, y_m: float
    ) -> Spot:
        """The place of a report on the line of its trip."""
        course = self.course_of(trip)
        if known.trip == trip:
            ahead_m = _MOST_MPS * max(second - known.at_s, 0.0)
            spot = course.project(
                x_m, y_m, known.along_m - _SLIP_M, known.along_m + _SLIP_M + ahead_m, known.along_m
            )
            if spot.aside_m <= _OFF_M:
                return spot
        stop = self.stop_of(trip, position)
        if stop >= 0:
            low, high = course.stops_m[max(stop - 1, 0)] - _SLIP_M, course.stops_m[stop] + _SLIP_M
            spot = course.project(x_m, y_m, low, high)
            if spot.aside_m <= _OFF_M:
                return spot
        return course.project(x_m, y_m, -1e9, 1e9, self.expected_m(trip, second))


def _seconds(start: str, frame: Frame, second: float) -> float:
    """The second of the day of a trip's start, HH:MM:SS after midnight; now if it is not said."""
    parts = start.split(":")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) <= 3 for part in parts):
        return second
    hours, minutes, seconds = map(int, parts)
    return 3600 * hours + 60 * minutes + seconds - frame.start_s
