"""The timetable of a GTFS feed: the trips of some routes on a day, by pattern.

A pattern is the sequence of stops that a trip serves. Times are seconds since noon minus twelve
hours, as in GTFS, so they may pass midnight. Blank times lie along straight lines until the way is
known (`along_way`); trips by frequency are written out. What is not kept is listed.
"""

import datetime
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from evenline.city.importers.calendars import active_services, chosen_routes
from evenline.city.importers.directions import directions
from evenline.city.importers.feed import Feed
from evenline.city.importers.ids import free_id, said
from evenline.support.errors import InputError

EARTH_M = 6_371_008.8  # mean radius
MOST_TRIPS = 100_000  # of a city
MOST_CALLS = 1_000_000  # that are kept at a time
FARTHEST_M = 100_000.0  # of a stop from the middle one; a city's tables hold no more
REGULAR, NONE = "0", "1"  # pickup_type and drop_off_type; 2 and 3 are on request
_TIME = re.compile(r"(\d{1,3}):([0-5]\d):([0-5]\d)")


@dataclass(frozen=True)
class Place:
    """A stop of the feed, and its row there."""

    id: str
    name: str
    lat: float
    lon: float
    row: int = 0


@dataclass(frozen=True)
class Run:
    """One trip: when it reaches and leaves each stop of its pattern, and if the feed gives it.

    `limited` calls let people only on, only off, or on request; `unserved` ones, which are not in
    the pattern, let nobody on or off.
    """

    trip: str
    block: str
    arrival_s: tuple[int, ...]
    departure_s: tuple[int, ...]
    given: tuple[bool, ...]
    limited: int = 0
    unserved: int = 0


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
    """The patterns of a day that are kept, those that are left out, and their stops.

    `told` says what else of the feed is not in it.
    """

    patterns: tuple[Pattern, ...]
    left_out: tuple[Pattern, ...]
    places: dict[str, Place]
    routes: dict[str, str]  # what people call each route
    told: tuple[str, ...] = ()


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
    served = {trip: _served(feed, trip, each, places) for trip, each in calls.items()}
    headers = {trip: header for trip, header in headers.items() if len(served[trip]) > 1}
    runs = _runs(feed, {t: _run(t, headers[t].block, calls[t], served[t]) for t in headers})
    kept = {trip: [r for r in each if wanted.start_s <= r.departure_s[0] < wanted.end_s]
            for trip, each in runs.items()}  # fmt: skip
    patterns = _patterns(headers, served, kept, places)
    if not patterns:
        raise InputError(f"{feed.path}: no trip starts in the window on {wanted.date}")
    main = patterns if wanted.all_patterns else _main(patterns)
    rank = {route: number for number, route in enumerate(routes)}
    main.sort(key=lambda pattern: (rank[pattern.route], pattern.direction))
    left_out = tuple(pattern for pattern in patterns if pattern not in main)
    used = {stop for pattern in main for stop in pattern.stops}
    near = {id: places[id] for id in sorted(used)}
    _check_near(feed, near)
    told = _told(routes, patterns, main, len(served) - len(headers), wanted)
    return Timetable(tuple(main), left_out, near, routes, told)


def along_way(pattern: Pattern, distance_m: Sequence[float]) -> Pattern:
    """A pattern whose blank times lie along the distances of its stops."""
    runs = []
    for run in pattern.runs:
        times = zip(run.arrival_s, run.departure_s, run.given, strict=True)
        known = {i: (arrives, leaves) for i, (arrives, leaves, given) in enumerate(times) if given}
        arrival_s, departure_s = zip(*_interpolated(known, distance_m), strict=True)
        runs.append(replace(run, arrival_s=arrival_s, departure_s=departure_s))
    return replace(pattern, runs=tuple(runs))


def _told(
    routes: Mapping[str, str],
    patterns: Sequence[Pattern],
    main: Sequence[Pattern],
    empty: int,
    wanted: Wanted,
) -> tuple[str, ...]:
    """What of the feed is not in the timetable: routes, trips, and calls of the trips kept."""
    running = {pattern.route for pattern in patterns}
    told = [
        f"left out: route {routes[route]} ({route}): none of its trips starts in the window on "
        f"{wanted.date}"
        for route in routes
        if route not in running
    ]
    if empty:
        told.append(
            f"left out: {empty:,} trips: people may get on or off at fewer than two of their stops"
        )
    unserved = sum(run.unserved for pattern in main for run in pattern.runs)
    if unserved:
        told.append(
            f"left out: {unserved:,} calls: nobody may get on or off there (pickup_type and "
            "drop_off_type are 1)"
        )
    return tuple(told)


# -- trips and their stops ------------------------------------------------------------------------


def seconds_of(where: str, text: str) -> int:
    """A time of a feed, which may be past midnight, in seconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: {text!r} is not a time such as 08:05:00")
    hours, minutes, seconds = map(int, match.groups())
    return 3600 * hours + 60 * minutes + seconds


@dataclass(frozen=True)
class _Header:
    """A row of `trips.txt`."""

    route: str
    direction: str
    block: str
    shape: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A row of `stop_times.txt`; times may be blank."""

    row: int
    sequence: int
    stop: str
    arrival_s: int | None
    departure_s: int | None
    pickup: str
    drop_off: str

    @property
    def served(self) -> bool:
        return not self.pickup == self.drop_off == NONE


@dataclass(frozen=True, slots=True)
class _Visit:
    """A call that people can use, with its times, and whether the feed gives them."""

    call: _Call
    arrival_s: int
    departure_s: int
    given: bool


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
        if len(found) == MOST_TRIPS:
            raise InputError(f"{feed.path}: more than {MOST_TRIPS:,} trips; choose fewer routes")
        found[trip] = _Header(route, *rest)
    return found


def _calls(feed: Feed, headers: dict[str, _Header]) -> dict[str, list[_Call]]:
    """The stops of each trip, in order."""
    found: dict[str, list[_Call]] = defaultdict(list)
    needed = ("trip_id", "stop_id", "stop_sequence")
    optional = ("arrival_time", "departure_time", "pickup_type", "drop_off_type")
    kept = 0
    for row, (trip, stop, sequence, *rest) in feed.rows("stop_times.txt", needed, optional):
        if trip not in headers:
            continue
        where = f"{feed.path}: stop_times.txt: row {row}"
        if (kept := kept + 1) > MOST_CALLS:
            raise InputError(f"{where}: more than {MOST_CALLS:,} stop times; choose fewer routes")
        arrival, departure = (seconds_of(where, text) if text else None for text in rest[:2])
        for column, kind in zip(optional[2:], rest[2:], strict=True):
            if kind not in ("", "0", "1", "2", "3"):
                raise InputError(f"{where}: {column} is {kind!r}; must be 0, 1, 2 or 3")
        found[trip].append(
            _Call(
                row,
                int(number_of(where, "stop_sequence", sequence)),
                stop,
                departure if arrival is None else arrival,
                arrival if departure is None else departure,
                *(kind or REGULAR for kind in rest[2:]),
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
            continue
        if before.arrival_s is None:
            before = replace(before, arrival_s=call.arrival_s, departure_s=call.departure_s)
        elif call.departure_s is not None:
            before = replace(before, departure_s=call.departure_s)
        kinds = min(before.pickup, call.pickup), min(before.drop_off, call.drop_off)
        found[-1] = replace(before, pickup=kinds[0], drop_off=kinds[1])
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
        found[stop] = Place(stop, said(name or stop), *spot_of(where, lat, lon), row)
    for stop in sorted(used - found.keys()):
        raise InputError(f"{feed.path}: stop_times.txt uses stop {stop!r}, which stops.txt lacks")
    return found


def _check_near(feed: Feed, places: Mapping[str, Place]) -> None:
    """Refuse a stop that is far from the others, such as one at 0, 0."""
    lat = median(place.lat for place in places.values())
    lon = median(place.lon for place in places.values())
    for place in places.values():
        away_m = distance_m(Place("", "", lat, lon), place)
        if away_m > FARTHEST_M:
            where = f"{feed.path}: stops.txt: row {place.row} ({place.id})"
            raise InputError(
                f"{where}: {place.lat}, {place.lon} is {away_m / 1000:,.0f} km from the other "
                "stops; correct it, or choose other routes"
            )


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


def _runs(feed: Feed, templates: Mapping[str, Run]) -> dict[str, list[Run]]:
    """The runs of each trip: one, or those that `frequencies.txt` asks for."""
    runs = {trip: [run] for trip, run in templates.items()}
    if not feed.has("frequencies.txt"):
        return runs
    repeated: dict[str, list[Run]] = defaultdict(list)
    taken, count = set(runs), len(runs)
    columns = ["trip_id", "start_time", "end_time", "headway_secs"]
    for row, (trip, start, end, headway) in feed.rows("frequencies.txt", columns):
        if trip not in runs:
            continue
        where = f"{feed.path}: frequencies.txt: row {row}"
        begin, until = seconds_of(where, start), seconds_of(where, end)
        every = int(number_of(where, "headway_secs", headway))
        if every < 1:
            raise InputError(f"{where}: headway_secs is {headway!r}; must be at least 1")
        if until <= begin:
            raise InputError(f"{where}: end_time {end} is not after start_time {start}")
        count += len(range(begin, until, every))
        if count > MOST_TRIPS:
            raise InputError(f"{where}: more than {MOST_TRIPS:,} trips; choose fewer routes")
        for at in range(begin, until, every):
            own = free_id(f"{trip}.{len(repeated[trip]) + 1}", taken)
            repeated[trip].append(_moved(templates[trip], at, own))
    return runs | repeated


def _moved(run: Run, start_s: int, trip: str) -> Run:
    """A run that starts at another time. No vehicle runs all repetitions, so it has no block."""
    shift = start_s - run.departure_s[0]
    return replace(
        run,
        trip=trip,
        block="",
        arrival_s=tuple(at + shift for at in run.arrival_s),
        departure_s=tuple(at + shift for at in run.departure_s),
    )


def _run(trip: str, block: str, calls: Sequence[_Call], served: Sequence[_Visit]) -> Run:
    """A trip as it is served. Where the calls around are not, an end may have had no time."""
    given = [visit.given for visit in served]
    given[0] = given[-1] = True
    # Nobody wants to get on at the last stop, or off at the first.
    on = [*(visit.call.pickup == REGULAR for visit in served[:-1]), True]
    off = [True, *(visit.call.drop_off == REGULAR for visit in served[1:])]
    return Run(
        trip,
        block,
        tuple(visit.arrival_s for visit in served),
        tuple(visit.departure_s for visit in served),
        tuple(given),
        limited=sum(not (both[0] and both[1]) for both in zip(on, off, strict=True)),
        unserved=sum(not call.served for call in calls),
    )


def _served(
    feed: Feed, trip: str, calls: Sequence[_Call], places: Mapping[str, Place]
) -> list[_Visit]:
    """The calls that people can use, with every time; refuses times that go backward."""
    where = f"{feed.path}: stop_times.txt"
    for end in (calls[0], calls[-1]):
        if end.arrival_s is None:
            raise InputError(
                f"{where}: row {end.row}: trip {trip!r} has no time at its first or last stop"
            )
    known: dict[int, tuple[int, int]] = {}
    before = -1
    for number, call in enumerate(calls):
        if call.arrival_s is None or call.departure_s is None:
            continue
        if call.arrival_s < before or call.departure_s < call.arrival_s:
            raise InputError(f"{where}: row {call.row}: times of trip {trip!r} go backward")
        before = call.departure_s
        known[number] = call.arrival_s, call.departure_s
    along = [0.0]
    for first, second in pairwise(calls):
        along.append(along[-1] + distance_m(places[first.stop], places[second.stop]))
    found: list[_Visit] = []
    for call, (arrives, leaves) in zip(calls, _interpolated(known, along), strict=True):
        if found and call.served and found[-1].call.stop == call.stop:
            found[-1] = replace(found[-1], departure_s=leaves)
        elif call.served:
            found.append(_Visit(call, arrives, leaves, call.arrival_s is not None))
    return found


def _interpolated(
    known: Mapping[int, tuple[int, int]], along: Sequence[float]
) -> list[tuple[int, int]]:
    """Arrival and departure at every stop: those known; between them, by the share of the way."""
    times = [known.get(number, (0, 0)) for number in range(len(along))]
    for first, second in pairwise(sorted(known)):
        span, left_s, until_s = along[second] - along[first], known[first][1], known[second][0]
        for i in range(first + 1, second):
            share = (along[i] - along[first]) / span if span else (i - first) / (second - first)
            at_s = round(left_s + share * (until_s - left_s))
            times[i] = at_s, at_s
    return times


# -- patterns -------------------------------------------------------------------------------------


def _patterns(
    headers: Mapping[str, _Header],
    served: Mapping[str, Sequence[_Visit]],
    runs: Mapping[str, Sequence[Run]],
    places: Mapping[str, Place],
) -> list[Pattern]:
    """Trips by route, direction and sequence of stops; those with most trips come first."""
    given: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for trip, header in headers.items():
        if runs[trip]:
            stops = tuple(visit.call.stop for visit in served[trip])
            given[header.route, header.direction, stops].append(trip)
    ways = sorted(given, key=lambda way: (-sum(len(runs[trip]) for trip in given[way]), way))
    spots = {id: (place.lat, place.lon) for id, place in places.items()}
    members: dict[tuple[str, int, tuple[str, ...]], list[str]] = defaultdict(list)
    for way, direction in zip(ways, directions(ways, spots), strict=True):
        members[way[0], direction, way[2]] += given[way]
    found = []
    for (route, direction, stops), trips in members.items():
        every = sorted(
            (run for trip in trips for run in runs[trip]),
            key=lambda run: (run.departure_s[0], run.trip),
        )
        shape = Counter(headers[trip].shape for trip in trips).most_common(1)[0][0]
        ends = places[stops[0]].name, places[stops[-1]].name
        found.append(Pattern(route, direction, stops, shape, tuple(every), ends))
    return sorted(found, key=lambda pattern: (pattern.route, -len(pattern.runs), pattern.stops))


def _main(patterns: Sequence[Pattern]) -> list[Pattern]:
    """The pattern with most trips of each route and direction."""
    best: dict[tuple[str, int], Pattern] = {}
    for pattern in patterns:
        best.setdefault((pattern.route, pattern.direction), pattern)
    return list(best.values())
