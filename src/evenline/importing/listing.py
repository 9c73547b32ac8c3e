"""What a GTFS feed has to choose from: its routes, with their names, their days and their trips."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evenline.importing.calendars import Calendars, read_calendars, read_routes
from evenline.importing.feed import Feed
from evenline.importing.ids import readable
from evenline.importing.timetable import frequencies
from evenline.support.errors import InputError

KINDS = {"Monday to Friday": range(5), "Saturday": range(5, 6), "Sunday": range(6, 7)}
_MOST_PAIRS = 20_000_000  # of a service and a day
_WEEK = 7


@dataclass(frozen=True)
class Listed:
    """A route: its names, how many trips start on days of each kind, its first and last day."""

    id: str
    name: str
    long_name: str
    trips: tuple[int, ...]
    first: datetime.date | None
    last: datetime.date | None


def listed_routes(feed: Feed, date: datetime.date | None = None) -> list[Listed]:
    """The routes of a feed in its order.

    `trips` counts those of a date; without one, those of the day with most trips among the days
    from Monday to Friday, the Saturdays and the Sundays.
    """
    known, calendars = read_routes(feed), read_calendars(feed)
    trips = _trips(feed)
    days = [date.toordinal()] if date is not None else _different_days(feed, calendars)
    kinds = [np.ones(1, bool)]
    if date is None:
        weekday = (np.array(days, int) - 1) % _WEEK
        kinds = [np.isin(weekday, list(kind)) for kind in KINDS.values()]
    on = {
        service: np.array([calendars.runs(service, day) for day in days], bool)
        for service in {service for of_kinds in trips.values() for service in of_kinds}
    }
    routes = []
    for route, (name, long_name) in _names(feed, known).items():
        of_service = trips.get(route, Counter())
        count = np.zeros(len(days), int)
        for service, number in of_service.items():
            count += number * on[service]
        of_kinds = tuple(int(count[kind].max(initial=0)) for kind in kinds)
        ends = [
            calendars.nearest(of_service, start, step)
            for start, step in ((datetime.date.min, 1), (datetime.date.max, -1))
        ]
        routes.append(Listed(readable(route), name, long_name, of_kinds, ends[0], ends[1]))
    return routes


def _names(feed: Feed, known: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The short name of each route, or what else people call it, and its long name."""
    rows = feed.rows("routes.txt", ["route_id"], ["route_long_name"])
    return {route: (known[route], readable(long)) for _, (route, long) in rows}


def _trips(feed: Feed) -> dict[str, Counter[str]]:
    """How many trips each route has by service; those by frequency count as often as they run."""
    repeated: Counter[str] = Counter()
    for _, trip, starts in frequencies(feed):
        repeated[trip] += len(starts)
    trips: dict[str, Counter[str]] = defaultdict(Counter)
    columns = ["trip_id", "route_id", "service_id"]
    for _, (trip, route, service) in feed.rows("trips.txt", columns):
        trips[route][service] += repeated.get(trip, 1)
    return trips


def _different_days(feed: Feed, calendars: Calendars) -> list[int]:
    """Days that stand for all: the week after each day on which services change."""
    changes = {
        day
        for weeks in calendars.weeks.values()
        for week in weeks
        for day in (week.first, week.last + 1)
    }
    changes |= {
        day + later
        for special in calendars.exceptions.values()
        for day in special
        for later in (0, 1)
    }
    days = sorted({day + later for day in changes for later in range(_WEEK)})
    if len(days) * len(calendars.services) > _MOST_PAIRS:
        raise InputError(
            f"{feed.path}: its {len(calendars.services):,} services change too often to compare "
            "all days; add --date"
        )
    return days
