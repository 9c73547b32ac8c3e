"""The timetable of a GTFS feed: the trips of some routes on a day, by pattern.

A pattern is the sequence of stops of a trip. Times are seconds since noon minus twelve hours, as in
GTFS, so they may pass midnight. Blank times are interpolated along the distance, and trips by
frequency are written out. Nothing is dropped in silence: the patterns that are not kept are listed.
"""

import datetime
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise

from evenline.city.importers.feed import Feed
from evenline.support.errors import InputError, choice

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ADDED, REMOVED = "1", "2"  # exception_type
EARTH_M = 6_371_008.8  # mean radius
SHOWN = 10  # routes that an error suggests
MOST_TRIPS = 100_000  # of one trip by frequency, and of a city
_TIME = re.compile(r"(\d{1,3}):([0-5]\d):([0-5]\d)")
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})")


@dataclass(frozen=True)
class Place:
    """A stop of the feed."""

    id: str
    name: str
    lat: float
    lon: float


@dataclass(frozen=True)
class Run:
    """One trip: when it reaches and leaves each stop of its pattern."""

    trip: str
    block: str
    arrival_s: tuple[int, ...]
    departure_s: tuple[int, ...]


@dataclass(frozen=True)
class Pattern:
    """A sequence of stops that a route serves in one direction, with its trips in order."""

    route: str
    direction: int
    stops: tuple[str, ...]
    shape: str  # of most of its trips; empty if they have none
    runs: tuple[Run, ...]
    ends: tuple[str, str] = ("", "")  # what people call its first and last stop


@dataclass(frozen=True)
class Timetable:
    """The patterns of a day that are kept, those that are left out, and their stops."""

    patterns: tuple[Pattern, ...]
    left_out: tuple[Pattern, ...]
    places: dict[str, Place]
    routes: dict[str, str]  # what people call each route


@dataclass(frozen=True)
class Wanted:
    """What to take from a feed: routes by id or short name, a date, trips that start in time."""

    routes: tuple[str, ...]
    date: datetime.date
    start_s: int = 0
    end_s: int = 48 * 3600
    all_patterns: bool = False


def read_timetable(feed: Feed, wanted: Wanted) -> Timetable:
    """The trips of the wanted routes on a day, by pattern."""
    routes = chosen_routes(feed, wanted.routes)
    active = active_services(feed, wanted.date)
    headers = _headers(feed, routes, active)
    if not headers:
        raise InputError(
            f"{feed.path}: no trip of {', '.join(sorted(routes.values()))} on {wanted.date}"
        )
    calls = _calls(feed, headers)
    places = _places(feed, {call.stop for each in calls.values() for call in each})
    runs = _runs(feed, headers, calls, places)
    kept = {trip: [r for r in each if wanted.start_s <= r.departure_s[0] < wanted.end_s]
            for trip, each in runs.items()}  # fmt: skip
    patterns = _patterns(headers, calls, kept, places)
    if not patterns:
        raise InputError(f"{feed.path}: no trip starts in the window on {wanted.date}")
    if sum(len(pattern.runs) for pattern in patterns) > MOST_TRIPS:
        raise InputError(f"{feed.path}: more than {MOST_TRIPS:,} trips; choose fewer routes")
    main = patterns if wanted.all_patterns else _main(patterns)
    rank = {route: number for number, route in enumerate(routes)}
    main.sort(key=lambda pattern: (rank[pattern.route], pattern.direction))
    left_out = tuple(pattern for pattern in patterns if pattern not in main)
    used = {stop for pattern in main for stop in pattern.stops}
    return Timetable(tuple(main), left_out, {id: places[id] for id in sorted(used)}, routes)


# -- routes and days ------------------------------------------------------------------------------


def chosen_routes(feed: Feed, names: Iterable[str]) -> dict[str, str]:
    """The routes with these ids or short names, by id, with what people call them."""
    known = {
        route: short or long or route
        for _, (route, short, long) in feed.rows(
            "routes.txt", ["route_id"], ["route_short_name", "route_long_name"]
        )
    }
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
    match = _DATE.fullmatch(text)
    try:
        if match:
            return datetime.date(*map(int, match.groups()))
    except ValueError:
        pass
    raise InputError(f"{where}: {text!r} is not a date such as 20260303")


def seconds_of(where: str, text: str) -> int:
    """A time of a feed, which may be past midnight, in seconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: {text!r} is not a time such as 08:05:00")
    hours, minutes, seconds = map(int, match.groups())
    return 3600 * hours + 60 * minutes + seconds


# -- trips and their stops ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    """A row of `trips.txt`."""

    route: str
    direction: str
    block: str
    shape: str


@dataclass(frozen=True)
class _Call:
    """A row of `stop_times.txt`; times may be blank."""

    row: int
    sequence: int
    stop: str
    arrival_s: int | None
    departure_s: int | None
    distance: float | None


def _headers(feed: Feed, routes: dict[str, str], active: set[str]) -> dict[str, _Header]:
    """The trips of some routes and services, by id."""
    found: dict[str, _Header] = {}
    needed, optional = (
        ("trip_id", "route_id", "service_id"),
        ("direction_id", "block_id", "shape_id"),
    )
    for row, (trip, route, service, *rest) in feed.rows("trips.txt", needed, optional):
        if route not in routes or service not in active:
            continue
        if trip in found:
            raise InputError(f"{feed.path}: trips.txt: row {row}: trip {trip!r} appears twice")
        if rest[0] not in ("", "0", "1"):
            raise InputError(
                f"{feed.path}: trips.txt: row {row}: direction_id is {rest[0]!r}; must be 0 or 1"
            )
        found[trip] = _Header(route, *rest)
    return found


def _calls(feed: Feed, headers: dict[str, _Header]) -> dict[str, list[_Call]]:
    """The stops of each trip, in order."""
    found: dict[str, list[_Call]] = defaultdict(list)
    needed = ("trip_id", "stop_id", "stop_sequence")
    optional = ("arrival_time", "departure_time", "shape_dist_traveled")
    for row, (trip, stop, sequence, *rest) in feed.rows("stop_times.txt", needed, optional):
        if trip not in headers:
            continue
        where = f"{feed.path}: stop_times.txt: row {row}"
        arrival, departure = (seconds_of(where, text) if text else None for text in rest[:2])
        found[trip].append(
            _Call(
                row,
                int(number_of(where, "stop_sequence", sequence)),
                stop,
                departure if arrival is None else arrival,
                arrival if departure is None else departure,
                number_of(where, "shape_dist_traveled", rest[2]) if rest[2] else None,
            )
        )
    for trip in headers:
        calls = found.get(trip, [])
        calls.sort(key=lambda call: call.sequence)
        for first, second in pairwise(calls):
            if first.sequence == second.sequence:
                raise InputError(
                    f"{feed.path}: stop_times.txt: row {second.row}: trip {trip!r} has "
                    f"stop_sequence {second.sequence} twice"
                )
        found[trip] = _joined(calls)
        if len(found[trip]) < 2:
            raise InputError(f"{feed.path}: stop_times.txt: trip {trip!r} has fewer than two stops")
    return found


def _joined(calls: Sequence[_Call]) -> list[_Call]:
    """A stop that is listed twice in a row, to arrive and to leave, is served once."""
    found: list[_Call] = []
    for call in calls:
        before = found[-1] if found else None
        if before is None or before.stop != call.stop:
            found.append(call)
        elif before.arrival_s is None:
            found[-1] = replace(call, distance=before.distance)
        elif call.departure_s is not None:
            found[-1] = replace(before, departure_s=call.departure_s)
    return found


def number_of(where: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where}: {column} is {text!r}; must be a number of at least 0")
    return value


def _places(feed: Feed, used: set[str]) -> dict[str, Place]:
    """The stops that trips use."""
    found: dict[str, Place] = {}
    for row, (stop, lat, lon, name) in feed.rows(
        "stops.txt", ["stop_id", "stop_lat", "stop_lon"], ["stop_name"]
    ):
        if stop not in used:
            continue
        where = f"{feed.path}: stops.txt: row {row} ({stop})"
        if stop in found:
            raise InputError(f"{where}: appears twice")
        found[stop] = Place(stop, name or stop, *spot_of(where, lat, lon))
    for stop in sorted(used - found.keys()):
        raise InputError(f"{feed.path}: stop_times.txt uses stop {stop!r}, which stops.txt lacks")
    return found


def spot_of(where: str, lat: str, lon: str) -> tuple[float, float]:
    """A place on earth."""
    try:
        here = float(lat), float(lon)
    except ValueError:
        here = (math.nan, math.nan)
    if not (abs(here[0]) <= 90.0 and abs(here[1]) <= 180.0):
        raise InputError(f"{where}: {lat!r}, {lon!r} is not a latitude and a longitude")
    return here


def distance_m(one: Place, other: Place) -> float:
    """The distance between two places as the crow flies."""
    lat, lon, lat2, lon2 = map(math.radians, (one.lat, one.lon, other.lat, other.lon))
    half = math.sin((lat2 - lat) / 2) ** 2
    half += math.cos(lat) * math.cos(lat2) * math.sin((lon2 - lon) / 2) ** 2
    return 2 * EARTH_M * math.asin(min(1.0, math.sqrt(half)))


# -- times ----------------------------------------------------------------------------------------


def _runs(
    feed: Feed,
    headers: dict[str, _Header],
    calls: dict[str, list[_Call]],
    places: dict[str, Place],
) -> dict[str, list[Run]]:
    """The runs of each trip: one, or those that `frequencies.txt` asks for."""
    runs = {
        trip: [_timed(feed, trip, header.block, calls[trip], places)]
        for trip, header in headers.items()
    }
    if not feed.has("frequencies.txt"):
        return runs
    repeated: dict[str, list[Run]] = defaultdict(list)
    columns = ["trip_id", "start_time", "end_time", "headway_secs"]
    for row, (trip, start, end, headway) in feed.rows("frequencies.txt", columns):
        if trip not in runs:
            continue
        where = f"{feed.path}: frequencies.txt: row {row}"
        begin, until = seconds_of(where, start), seconds_of(where, end)
        every = int(number_of(where, "headway_secs", headway))
        if every < 1:
            raise InputError(f"{where}: headway_secs is {headway!r}; must be at least 1")
        if (until - begin) / every > MOST_TRIPS:
            raise InputError(f"{where}: more than {MOST_TRIPS:,} trips")
        for at in range(begin, until, every):
            repeated[trip].append(_moved(runs[trip][0], at, len(repeated[trip])))
    return runs | repeated


def _moved(run: Run, start_s: int, number: int) -> Run:
    """A run that starts at another time."""
    shift = start_s - run.departure_s[0]
    return replace(
        run,
        trip=f"{run.trip}.{number + 1}",
        arrival_s=tuple(at + shift for at in run.arrival_s),
        departure_s=tuple(at + shift for at in run.departure_s),
    )


def _timed(
    feed: Feed, trip: str, block: str, calls: Sequence[_Call], places: dict[str, Place]
) -> Run:
    """A run with every time filled in; refuses times that go backward."""
    where = f"{feed.path}: stop_times.txt"
    for end in (calls[0], calls[-1]):
        if end.arrival_s is None:
            raise InputError(
                f"{where}: row {end.row}: trip {trip!r} has no time at its first or last stop"
            )
    before = -1
    for call in calls:
        if call.arrival_s is None or call.departure_s is None:
            continue
        if call.arrival_s < before or call.departure_s < call.arrival_s:
            raise InputError(f"{where}: row {call.row}: times of trip {trip!r} go backward")
        before = call.departure_s
    along = _along(calls, places)
    arrivals, departures = [0] * len(calls), [0] * len(calls)
    known = [i for i, call in enumerate(calls) if call.arrival_s is not None]
    for i in known:
        arrivals[i], departures[i] = int(calls[i].arrival_s or 0), int(calls[i].departure_s or 0)
    for first, second in pairwise(known):
        span = along[second] - along[first]
        for i in range(first + 1, second):
            share = (along[i] - along[first]) / span if span else (i - first) / (second - first)
            at = departures[first] + share * (arrivals[second] - departures[first])
            arrivals[i] = departures[i] = round(at)
    return Run(trip, block, tuple(arrivals), tuple(departures))


def _along(calls: Sequence[_Call], places: dict[str, Place]) -> list[float]:
    """How far along each stop is: by the feed, or by straight lines between stops."""
    given = [call.distance for call in calls if call.distance is not None]
    if len(given) == len(calls) and all(a <= b for a, b in pairwise(given)):
        return given
    along = [0.0]
    for first, second in pairwise(calls):
        along.append(along[-1] + distance_m(places[first.stop], places[second.stop]))
    return along


# -- patterns -------------------------------------------------------------------------------------


def _patterns(
    headers: dict[str, _Header],
    calls: dict[str, list[_Call]],
    runs: dict[str, list[Run]],
    places: dict[str, Place],
) -> list[Pattern]:
    """Trips by route, direction and sequence of stops; those with most trips come first."""
    members: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for trip, header in headers.items():
        if runs[trip]:
            stops = tuple(call.stop for call in calls[trip])
            members[header.route, header.direction, stops].append(trip)
    found = []
    for (route, direction, stops), trips in members.items():
        every = sorted(
            (run for trip in trips for run in runs[trip]),
            key=lambda run: (run.departure_s[0], run.trip),
        )
        shape = Counter(headers[trip].shape for trip in trips).most_common(1)[0][0]
        number = int(direction) if direction else -1
        ends = places[stops[0]].name, places[stops[-1]].name
        found.append(Pattern(route, number, stops, shape, tuple(every), ends))
    found.sort(key=lambda pattern: (pattern.route, -len(pattern.runs), pattern.stops))
    return _directed(found, places)


def _directed(patterns: Sequence[Pattern], places: dict[str, Place]) -> list[Pattern]:
    """Patterns without a direction go with the route's first, or against it."""
    first: dict[str, Pattern] = {}
    found = []
    for pattern in patterns:
        if pattern.direction < 0:
            leader = first.setdefault(pattern.route, pattern)
            pattern = replace(pattern, direction=int(_against(leader, pattern, places)))
        found.append(pattern)
    return found


def _against(leader: Pattern, other: Pattern, places: dict[str, Place]) -> bool:
    """Whether a pattern runs against another: by the order of common stops, else by direction."""
    rank = {stop: number for number, stop in enumerate(leader.stops)}
    common = [rank[stop] for stop in other.stops if stop in rank]
    ups = sum(1 if a < b else -1 for a, b in pairwise(common) if a != b)
    if ups:
        return ups < 0
    return _heading(leader, other, places) < 0.0


def _heading(one: Pattern, other: Pattern, places: dict[str, Place]) -> float:
    """The scalar product of two patterns' lines from first to last stop, in degrees of latitude."""
    (north, east), (north2, east2) = (_line(pattern, places) for pattern in (one, other))
    return north * north2 + east * east2


def _line(pattern: Pattern, places: dict[str, Place]) -> tuple[float, float]:
    start, end = places[pattern.stops[0]], places[pattern.stops[-1]]
    return end.lat - start.lat, (end.lon - start.lon) * math.cos(math.radians(start.lat))


def _main(patterns: Sequence[Pattern]) -> list[Pattern]:
    """The pattern with most trips of each route and direction."""
    best: dict[tuple[str, int], Pattern] = {}
    for pattern in patterns:
        best.setdefault((pattern.route, pattern.direction), pattern)
    return list(best.values())
