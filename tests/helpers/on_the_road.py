"""Buses of a city that drive by the timetable, as reports of a feed, without any simulator."""

from collections.abc import Iterator

import numpy as np

from evenline.city.model import City
from evenline.live.courses import courses_of, due_times
from evenline.live.feed import Position, Snapshot
from evenline.live.frame import frame_of


class Road:
    """The buses of a city; `late_s` delays a trip."""

    def __init__(self, city: City, late_s: dict[int, float] | None = None) -> None:
        self.city, self.frame, self.late_s = city, frame_of(city), late_s or {}
        self.courses = courses_of(city, None)
        self.due_s = due_times(city, self.courses, None)

    def report(self, trip: int, second: float, **said: object) -> Position:
        """What the bus of a trip reports at a second."""
        planned = self.city.trips[trip]
        course, due = self.courses[planned.service], self.due_s[trip] + self.late_s.get(trip, 0.0)
        times = np.stack([due, due + 12.0]).T.ravel()
        along = float(np.interp(second, times, np.repeat(course.stops_m, 2)))
        lat, lon = self.frame.degrees(*course.place(along))
        base = Position(
            vehicle=f"bus-{planned.id}",
            at_s=self.frame.moment(second),
            lat=lat,
            lon=lon,
            trip=planned.source or planned.id,
            route=self.city.services[planned.service].route,
            date=self.frame.date,
        )
        return base._replace(**said)  # type: ignore[arg-type]

    def running(self, second: float) -> Iterator[int]:
        """The trips on the road at a second."""
        for trip, due in enumerate(self.due_s):
            late_s = self.late_s.get(trip, 0.0)
            if due[0] - 60 <= second <= due[-1] + late_s + 30:
                yield trip

    def snapshot(self, second: float, **said: object) -> Snapshot:
        reports = tuple(self.report(trip, second, **said) for trip in self.running(second))
        return Snapshot(self.frame.moment(second), reports)
