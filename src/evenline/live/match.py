"""Find the trip of a vehicle and its place on the line, and say how sure that is.

A trip that the feed names is believed if it runs today. Otherwise a vehicle goes on with the trip
that it was on, then with the next one of its duty; last, its route, place and time decide. A
vehicle that is beside its line, of another day, or of an unknown or cancelled trip gets no trip,
and a reason.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evenline.city.model import City, Floats
from evenline.live.feed import Position
from evenline.live.frame import Frame
from evenline.live.lines import Line, Spot

OFF_M = 60.0  # farther beside its line, a bus is not on it
MOST_MPS = 35.0
SLIP_M = 100.0  # how far a report may lie before the last one
EARLY_S, LATE_S = 900.0, 2700.0  # a trip is looked for from so long before it to so long after
SURE = {"trip": 1.0, "block": 0.8, "place": 0.5}
MOVED_M = 40.0


class Match(NamedTuple):
    """The trip of a vehicle; -1 if none, and then `how` says why."""

    trip: int
    how: str
    sure: float = 0.0
    along_m: float = 0.0
    x_m: float = 0.0
    y_m: float = 0.0


@dataclass(slots=True)
class Known:
    """What is known of a vehicle from its reports before."""

    trip: int = -1
    how: str = ""
    along_m: float = 0.0
    at_s: float = -1e9
    x_m: float = 0.0
    y_m: float = 0.0
    block: str = ""
    done: set[int] = field(default_factory=set)  # trips that it has finished


class Matcher:
    """Matches reports of a city's vehicles."""

    def __init__(
        self, city: City, frame: Frame, lines: tuple[Line, ...], due_s: tuple[Floats, ...]
    ) -> None:
        self.city, self.frame, self.lines, self.due_s = city, frame, lines, due_s
        self.cancelled: frozenset[int] = frozenset()
        self._named: dict[str, list[int]] = {}
        self._block: dict[str, list[int]] = {}
        for number, trip in enumerate(city.trips):
            self._named.setdefault(trip.source or trip.id, []).append(number)
            if trip.duty:
                self._block.setdefault(trip.duty, []).append(number)
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
            return Match(-1, "another day", 0.0, 0.0, x_m, y_m)
        trip, how = self._trip(position, second, known, x_m, y_m)
        if trip in self.cancelled:
            trip, how = -1, "cancelled trip"
        if trip < 0:
            return Match(-1, how, 0.0, 0.0, x_m, y_m)
        spot = self._spot(position, trip, second, known, x_m, y_m)
        if spot.aside_m > OFF_M:
            return Match(-1, "off the line", 0.0, spot.along_m, x_m, y_m)
        sure = SURE[how] * (1.0 if spot.aside_m <= OFF_M / 2 else 0.8)
        return Match(trip, how, sure, spot.along_m, x_m, y_m)

    def cancel(self, names: Collection[str]) -> frozenset[int]:
        """Match no vehicle to the trips of these names, and to all others again."""
        self.cancelled = frozenset(trip for name in names for trip in self._named.get(name, ()))
        return self.cancelled

    def stop_of(self, trip: int, position: Position) -> int:
        """The stop that a report names, as a position of the trip's service, or -1."""
        return self._stop[self.city.trips[trip].service].get(position.stop, -1)

    def expected_m(self, trip: int, second: float) -> float:
        """Where a trip should be by its timetable."""
        line = self.lines[self.city.trips[trip].service]
        return float(np.interp(second, self.due_s[trip], line.stops_m))

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
        found = self._by_block(second, known, x_m, y_m)
        if found >= 0:
            return found, "block"
        found = self._by_place(position, second, known, x_m, y_m)
        return (found, "place") if found >= 0 else (-1, "unknown trip")

    def _runs(self, trip: int, second: float, known: Known) -> bool:
        due = self.due_s[trip]
        within = due[0] - EARLY_S <= second <= due[-1] + LATE_S
        return within and trip not in known.done and trip not in self.cancelled

    def _goes_on(self, second: float, known: Known, x_m: float, y_m: float) -> bool:
        """Whether a bus is still on the trip that it was on: not over, and not behind its place."""
        if not self._runs(known.trip, second, known):
            return False
        line, low_m = self.lines[self.city.trips[known.trip].service], known.along_m - SLIP_M
        return line.project(x_m, y_m, low_m, 1e9, known.along_m).aside_m <= OFF_M

    def _by_block(self, second: float, known: Known, x_m: float, y_m: float) -> int:
        """The trip of the vehicle's duty that is due nearest to now where the vehicle is."""
        best, least_s = -1, np.inf
        block = self.city.trips[known.trip].duty if known.trip >= 0 else known.block
        for trip in self._block.get(block, ()):
            if trip == known.trip or not self._runs(trip, second, known):
                continue
            line = self.lines[self.city.trips[trip].service]
            spot = line.project(x_m, y_m, -1e9, 1e9, self.expected_m(trip, second))
            due_s = float(np.interp(spot.along_m, line.stops_m, self.due_s[trip]))
            if spot.aside_m <= OFF_M and abs(second - due_s) < least_s:
                best, least_s = trip, abs(second - due_s)
        return best

    def _by_place(
        self, position: Position, second: float, known: Known, x_m: float, y_m: float
    ) -> int:
        """A trip of the route that is due here now, for a bus that moves along its line."""
        ago_s = second - known.at_s
        if not 0 < ago_s < 300 or np.hypot(x_m - known.x_m, y_m - known.y_m) < MOVED_M:
            return -1
        best, least_s = -1, 600.0
        for service in self._route.get(position.route, ()):
            line = self.lines[service]
            for trip in self.city.trips_of[service]:
                if not self._runs(trip, second, known):
                    continue
                expected_m = self.expected_m(trip, second)
                spot = line.project(x_m, y_m, -1e9, 1e9, expected_m)
                before = line.project(
                    known.x_m, known.y_m, spot.along_m - MOST_MPS * ago_s, spot.along_m + SLIP_M
                )
                on = max(spot.aside_m, before.aside_m) <= OFF_M
                due_s = float(np.interp(spot.along_m, line.stops_m, self.due_s[trip]))
                forward = spot.along_m > before.along_m + MOVED_M / 2
                if on and forward and abs(second - due_s) < least_s:
                    best, least_s = trip, abs(second - due_s)
        return best

    def _spot(
        self, position: Position, trip: int, second: float, known: Known, x_m: float, y_m: float
    ) -> Spot:
        """The place of a report on the line of its trip."""
        line = self.lines[self.city.trips[trip].service]
        if known.trip == trip:
            ahead_m = MOST_MPS * max(second - known.at_s, 0.0)
            spot = line.project(
                x_m, y_m, known.along_m - SLIP_M, known.along_m + SLIP_M + ahead_m, known.along_m
            )
            if spot.aside_m <= OFF_M:
                return spot
        stop = self.stop_of(trip, position)
        if stop >= 0:
            low, high = line.stops_m[max(stop - 1, 0)] - SLIP_M, line.stops_m[stop] + SLIP_M
            spot = line.project(x_m, y_m, low, high)
            if spot.aside_m <= OFF_M:
                return spot
        return line.project(x_m, y_m, -1e9, 1e9, self.expected_m(trip, second))


def _seconds(start: str, frame: Frame, second: float) -> float:
    """The second of the day of a trip's start, HH:MM:SS after midnight; now if it is not said."""
    parts = start.split(":")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) <= 3 for part in parts):
        return second
    hours, minutes, seconds = map(int, parts)
    return 3600 * hours + 60 * minutes + seconds - frame.start_s
