"""Which routes of a GTFS feed are meant, and on which days its services run."""

import datetime
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from evenline.importing.feed import Feed
from evenline.importing.ids import readable
from evenline.support.errors import InputError, choice

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ADDED, _REMOVED = "1", "2"  # exception_type
MOST_ROUTES = 100_000
SHOWN = 10  # routes that an error suggests
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})")


def read_routes(feed: Feed) -> dict[str, str]:
    """What people call each route of a feed, by id."""
    known: dict[str, str] = {}
    columns = ["route_short_name", "route_long_name"]
    for _, (route, short, long) in feed.rows("routes.txt", ["route_id"], columns):
        known[route] = readable(short or long or route)
        if len(known) > MOST_ROUTES:
            raise InputError(f"{feed.path}: routes.txt: more than {MOST_ROUTES:,} routes")
    return known


def chosen_routes(feed: Feed, known: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Those of the known routes that have these ids or short names."""
    chosen: dict[str, str] = {}
    for name in names:
        ids = [name] if name in known else [route for route in known if known[route] == name]
        if not ids:
            near = get_close_matches(name, known.values(), SHOWN, 0.0)
            raise InputError(
                f"{feed.path}: routes.txt: no route {name!r}; choose {choice(near)}; "
                f"evenline city check {feed.path} lists them all"
            )
        chosen |= {route: known[route] for route in ids}
    if not chosen:
        raise InputError(
            f"{feed.path}: choose at least one of its {len(known)} routes; "
            f"evenline city check {feed.path} lists them"
        )
    return chosen


@dataclass(frozen=True, slots=True)
class Week:
    """A row of `calendar.txt`: the weekdays on which a service runs, and its first and last day."""

    runs: tuple[bool, ...]
    first: int  # days are numbered as by `date.toordinal`
    last: int


@dataclass(frozen=True)
class Calendars:
    """The days of each service: its weeks, and the days that are added or removed."""

    weeks: Mapping[str, list[Week]]
    exceptions: Mapping[str, dict[int, str]]

    @property
    def services(self) -> set[str]:
        return {*self.weeks, *self.exceptions}

    def runs(self, service: str, day: int) -> bool:
        """Whether a service runs on a day."""
        kind = self.exceptions.get(service, {}).get(day)
        if kind is not None:
            return kind == _ADDED
        return any(
            week.first <= day <= week.last and week.runs[(day - 1) % 7]
            for week in self.weeks.get(service, ())
        )

    def active(self, date: datetime.date) -> set[str]:
        """The services that run on a date."""
        day = date.toordinal()
        return {service for service in self.services if self.runs(service, day)}

    def nearest(
        self, services: Collection[str], date: datetime.date, step: int
    ) -> datetime.date | None:
        """The first day from a date on, or with step -1 back, on which one of the services runs."""
        start = date.toordinal()
        days = [day for service in services for day in self._candidates(service, start, step)]
        nearest = min(days, key=lambda day: abs(day - start), default=None)
        return None if nearest is None else datetime.date.fromordinal(nearest)

    def _candidates(self, service: str, start: int, step: int) -> list[int]:
        special = self.exceptions.get(service, {})
        days = [
            day for day, kind in special.items() if kind == _ADDED and (day - start) * step >= 0
        ]
        for week in self.weeks.get(service, ()):
            day = max(start, week.first) if step > 0 else min(start, week.last)
            while week.first <= day <= week.last and any(week.runs) and not self.runs(service, day):
                day += step
            if week.first <= day <= week.last and any(week.runs):
                days.append(day)
        return days


def read_calendars(feed: Feed) -> Calendars:
    """When services run, by `calendar.txt` and `calendar_dates.txt`."""
    weeks: dict[str, list[Week]] = defaultdict(list)
    exceptions: dict[str, dict[int, str]] = defaultdict(dict)
    if not feed.has("calendar.txt") and not feed.has("calendar_dates.txt"):
        raise InputError(f"{feed.path}: has neither calendar.txt nor calendar_dates.txt")
    if feed.has("calendar.txt"):
        columns = ["service_id", *WEEKDAYS, "start_date", "end_date"]
        for row, (service, *runs, first, last) in feed.rows("calendar.txt", columns):
            where = f"{feed.path}: calendar.txt: row {row}"
            for weekday, flag in zip(WEEKDAYS, runs, strict=True):
                if flag not in ("0", "1"):
                    raise InputError(f"{where}: {weekday} is {flag!r}; must be 0 or 1")
            on = tuple(flag == "1" for flag in runs)
            weeks[service].append(Week(on, _day(where, first), _day(where, last)))
    if feed.has("calendar_dates.txt"):
        columns = ["service_id", "date", "exception_type"]
        for row, (service, date, kind) in feed.rows("calendar_dates.txt", columns):
            where = f"{feed.path}: calendar_dates.txt: row {row}"
            if kind not in (_ADDED, _REMOVED):
                raise InputError(f"{where}: exception_type is {kind!r}; must be 1 or 2")
            exceptions[service][_day(where, date)] = kind
    return Calendars(weeks, exceptions)


def _day(where: str, text: str) -> int:
    try:
        if match := _DATE.fullmatch(text):
            return datetime.date(*map(int, match.groups())).toordinal()
        raise ValueError
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a date such as 20260303") from None
