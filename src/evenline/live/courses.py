"""The course of each service: where its street runs, where its stops lie, its usual times.

Made once for a city. `project` finds a place along a course; `usual_s` and `due_times` say how long
a bus needs and when a trip is due, from the calibration, the schedule, or a constant speed.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.geometry import along_m, onto
from evenline.city.model import City, Floats, road_ways, visit_offsets
from evenline.support.compiled import compiled, shared
from evenline.worlds.calibration import HOUR_S, Calibration

_onto = shared(onto)
_PLAIN_MPS = 6.0
_LEAST_RUN_S = 5.0


class Spot(NamedTuple):
    """A place on a line: metres from its beginning, and metres beside it."""

    along_m: float
    aside_m: float


@compiled
def _nearest(
    x: Floats, y: Floats, along: Floats, first: int, end: int, x_m: float, y_m: float,
    expected_m: float, weight: float,
) -> tuple[float, float]:  # fmt: skip
    """The place along a polyline that costs least, and its distance beside it."""
    least = best_m = best_aside_m = np.inf
    for i in range(first, end - 1):
        dx, dy = x[i + 1] - x[i], y[i + 1] - y[i]
        px, py = x_m - x[i], y_m - y[i]
        share, aside_m = _onto(dx, dy, px, py)
        at_m = along[i] + share * (along[i + 1] - along[i])
        cost = aside_m + weight * abs(at_m - expected_m)
        if cost < least:
            least, best_m, best_aside_m = cost, at_m, aside_m
    return best_m, best_aside_m


@dataclass(frozen=True, eq=False)
class Course:
    """A service: its street as a polyline, its stops, usual running times by hour."""

    x_m: Floats
    y_m: Floats
    along_m: Floats  # of each point
    stops_m: tuple[float, ...]
    near_m: tuple[float, ...]  # a bus this close to a stop may stand there
    run_s: Floats  # stop, hour

    @cached_property
    def points_m(self) -> tuple[float, ...]:
        """The same as `along_m`, quicker to search."""
        return tuple(self.along_m.tolist())

    @cached_property
    def _usual_s(self) -> list[list[float]]:
        """The same as `run_s`, quicker to read one by one."""
        rows: list[list[float]] = self.run_s.tolist()
        return rows

    @cached_property
    def last(self) -> int:
        return len(self.stops_m) - 1

    def usual_s(self, stop: int, second: float) -> float:
        """The usual running time from a stop to the next."""
        hour = min(max(int(second) // HOUR_S, 0), self.run_s.shape[1] - 1)
        usual_s: float = self._usual_s[stop][hour]
        return usual_s

    def segment(self, along_m: float) -> int:
        """The last stop before a place, or the first stop."""
        return min(max(bisect_right(self.stops_m, along_m) - 1, 0), self.last - 1)

    def travel_s(self, from_m: float, to_m: float, second: float) -> float:
        """The usual time to drive from one place to another, without standing at stops."""
        total, here = 0.0, from_m
        while here < to_m:
            stop = self.segment(here)
            begin, end = self.stops_m[stop], self.stops_m[stop + 1]
            until = to_m if here >= end else min(to_m, end)
            total += (until - here) / (end - begin) * self.usual_s(stop, second)
            here = until
        return total

    def project(
        self, x_m: float, y_m: float, low_m: float, high_m: float, expected_m: float | None = None
    ) -> Spot:
        """The nearest place on a part of the line. Where it passes a place several times, the
        `expected_m` decides: 50 m too far along weighs as much as 1 m beside it.
        """
        end = min(bisect_left(self.points_m, high_m) + 1, len(self.points_m))
        end = max(end, 2)
        first = min(max(bisect_right(self.points_m, low_m) - 1, 0), end - 2)
        weight = 0.0 if expected_m is None else 1 / 50
        return Spot(
            *_nearest(
                self.x_m, self.y_m, self.along_m, first, end, x_m, y_m, expected_m or 0.0, weight
            )
        )

    def place(self, along_m: float) -> tuple[float, float]:
        """The coordinates of a place on the line."""
        return (
            float(np.interp(along_m, self.along_m, self.x_m)),
            float(np.interp(along_m, self.along_m, self.y_m)),
        )


_NEAR_M = 30.0


def courses_of(city: City, calibration: Calibration | None) -> tuple[Course, ...]:
    """The courses of a city, one for each service."""
    first, ways = service_stop_offsets(city), road_ways(city)
    lengths_m = {road.id: road.length_m for road in city.roads}
    courses = []
    for index, service in enumerate(city.services):
        points: list[tuple[float, float]] = []
        along: list[float] = []
        start_m = 0.0
        for name in service.roads:
            drawn = along_m(np.array(ways[name]))
            along += (start_m + drawn * (lengths_m[name] / max(drawn[-1], 1e-9))).tolist()
            points += ways[name]
            start_m += lengths_m[name]
        stops_m = np.array(service.distance_m)
        run_s = _running(city, index, calibration, slice(first[index], first[index + 1]))
        gap_m = np.diff(stops_m, prepend=-np.inf, append=np.inf)
        near = np.minimum(_NEAR_M, 0.4 * np.minimum(gap_m[:-1], gap_m[1:]))
        xy = np.array(points)
        courses.append(
            Course(
                np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1]), np.array(along),
                tuple(stops_m.tolist()), tuple(near.tolist()), run_s,
            )
        )  # fmt: skip
    return tuple(courses)


def _running(city: City, service: int, calibration: Calibration | None, part: slice) -> Floats:
    """Usual running times of a service, stop by hour."""
    if calibration is not None:
        return np.maximum(calibration.mean_s[part], _LEAST_RUN_S)
    lengths = np.diff(np.array(city.services[service].distance_m), append=0.0)
    plain = np.maximum(lengths / _PLAIN_MPS, _LEAST_RUN_S)
    hours = -(-city.horizon_s // HOUR_S)
    if city.due_s is None:
        return np.repeat(plain[:, None], hours, axis=1)
    offsets, trips = visit_offsets(city), city.trips_of[service]
    total, count = np.zeros((len(plain), hours)), np.zeros((len(plain), hours))
    for trip in trips:
        due = city.due_s[offsets[trip] : offsets[trip + 1]]
        hour = np.minimum(due[:-1] // HOUR_S, hours - 1)
        np.add.at(total, (np.arange(len(due) - 1), hour), np.diff(due))
        np.add.at(count, (np.arange(len(due) - 1), hour), 1.0)
    seen = count.sum(axis=1, keepdims=True)
    mean = np.where(
        seen > 0, total.sum(axis=1, keepdims=True) / np.maximum(seen, 1), plain[:, None]
    )
    scheduled = np.where(count > 0, total / np.maximum(count, 1), mean)
    # A schedule includes the time at stops.
    return np.maximum(scheduled - city.vehicle.min_dwell_s, _LEAST_RUN_S)


def due_times(
    city: City, courses: tuple[Course, ...], calibration: Calibration | None
) -> tuple[Floats, ...]:
    """When each trip is due at each of its stops: by the schedule, or by its start and the usual
    times.
    """
    if city.due_s is not None:
        offsets = visit_offsets(city)
        return tuple(city.due_s[a:b].astype(float) for a, b in pairwise(offsets))
    delay_s = calibration.start_delay_s if calibration is not None else 0
    times = []
    for trip in city.trips:
        course, at = courses[trip.service], float(trip.departure_s + delay_s)
        due = [at]
        for stop in range(course.last):
            at += city.vehicle.min_dwell_s + course.usual_s(stop, at)
            due.append(at)
        times.append(np.array(due))
    return tuple(times)
