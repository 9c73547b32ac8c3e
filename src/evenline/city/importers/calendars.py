"""Which routes of a GTFS feed are meant, and which of its services run on a day."""

import datetime
import re
from collections.abc import Iterable
from difflib import get_close_matches

from evenline.city.importers.feed import Feed
from evenline.city.importers.ids import said
from evenline.support.errors import InputError, choice

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ADDED, REMOVED = "1", "2"  # exception_type
MOST_ROUTES = 100_000
SHOWN = 10  # routes that an error suggests
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})")


def chosen_routes(feed: Feed, names: Iterable[str]) -> dict[str, str]:
    """The routes with these ids or short names, by id, with what people call them."""
    known: dict[str, str] = {}
    columns = ["route_short_name", "route_long_name"]
    for _, (route, short, long) in feed.rows("routes.txt", ["route_id"], columns):
        known[route] = said(short or long or route)
        if len(known) > MOST_ROUTES:
            raise InputError(f"{feed.path}: routes.txt: more than {MOST_ROUTES:,} routes")
    found: dict[str, str] = {}
    for name in names:
        ids = [name] if name in known else [route for route in known if known[route] == name]
        if not ids:
            near = get_close_matches(name, known.values(), SHOWN, 0.0)
            raise InputError(f"{feed.path}: routes.txt: no route {name!r}; choose {choice(near)}")
        found |= {route: known[route] for route in ids}
    if not found:
        raise InputError(f"{feed.path}: choose at least one of its {len(known)} routes")
    return found


def active_services(feed: Feed, date: datetime.date) -> set[str]:
    """The service ids that run on a date, by `calendar.txt` and `calendar_dates.txt`."""
    active: set[str] = set()
    weekday = WEEKDAYS[date.weekday()]
    if not feed.has("calendar.txt") and not feed.has("calendar_dates.txt"):
        raise InputError(f"{feed.path}: has neither calendar.txt nor calendar_dates.txt")
    if feed.has("calendar.txt"):
        columns = ["service_id", weekday, "start_date", "end_date"]
        for row, (service, runs, first, last) in feed.rows("calendar.txt", columns):
            where = f"{feed.path}: calendar.txt: row {row}"
            if runs not in ("0", "1"):
                raise InputError(f"{where}: {weekday} is {runs!r}; must be 0 or 1")
            if runs == "1" and _date(where, first) <= date <= _date(where, last):
                active.add(service)
    if feed.has("calendar_dates.txt"):
        columns = ["service_id", "date", "exception_type"]
        for row, (service, day, kind) in feed.rows("calendar_dates.txt", columns):
            where = f"{feed.path}: calendar_dates.txt: row {row}"
            if kind not in (ADDED, REMOVED):
                raise InputError(f"{where}: exception_type is {kind!r}; must be 1 or 2")
            if _date(where, day) == date:
                active = active | {service} if kind == ADDED else active - {service}
    return active


def _date(where: str, text: str) -> datetime.date:
    try:
        if match := _DATE.fullmatch(text):
            return datetime.date(*map(int, match.groups()))
        raise ValueError
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a date such as 20260303") from None
