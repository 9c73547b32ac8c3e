"""The timetable of a GTFS feed: the trips of some routes on a day, by pattern.

A pattern is the sequence of stops that a trip serves. Times are seconds since noon minus twelve
hours, as in GTFS, so they may pass midnight. Blank times lie along straight lines until the way is
known (`along_way`); trips by frequency are written out. What is not kept is listed.
"""

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from evenline.city.geometry import round_m
from evenline.importing.calendars import Calendars, chosen_routes, read_calendars, read_routes
from evenline.importing.calls import (
    REGULAR,
    Call,
    TripFault,
    Visit,
    in_order,
    interpolated,
    number_of,
    read_calls,
    seconds_of,
    visits_of,
)
from evenline.importing.directions import Way, numbered
from evenline.importing.feed import Feed
from evenline.importing.ids import free_id, readable, route_ids
from evenline.support.errors import InputError

MOST_TRIPS = 100_000  # of a city
_MOST_OF_ROUTES = 1_000_000  # trips of routes on all days
FARTHEST_M = 100_000.0  # of a stop from the middle one; a city's tables hold no more
SHOWN = 3  # trips at fault that are named


@dataclass(frozen=True)
class SourceStop:
    """A stop of the feed, and its row there."""

    id: str
    name: str
    lat: float
    lon: float
    row: int = 0

    @property
    def spot(self) -> tuple[float, float]:
        """Its latitude and longitude."""
        return self.lat, self.lon


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
    number: int = 1  # by its trips on all days of the feed, among those of its direction


@dataclass(frozen=True)
class Timetable:
    """The patterns of a day that are kept, those that are left out, and their stops.

    `remarks` say what else of the feed is not in it.
    """

    patterns: tuple[Pattern, ...]
    left_out: tuple[Pattern, ...]
    places: dict[str, SourceStop]
    routes: dict[str, str]  # what people call each route
    ids: dict[str, str]  # what the ids of its services begin with
    remarks: tuple[str, ...] = ()


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
    known = read_routes(feed)
    routes = chosen_routes(feed, known, wanted.routes)
    calendars = read_calendars(feed)
    every = _headers(feed, routes, calendars.active(wanted.date))
    headers = {trip: header for trip, header in every.items() if header.active}
    if not headers:
        services = {header.calendar for header in every.values()}
        raise InputError(
            f"{feed.path}: no trip of {', '.join(sorted(routes.values()))} on {wanted.date}; "
            f"{_days_with_trips(calendars, services, wanted.date)}"
        )
    calls, stops_of = read_calls(feed, headers, every)
    used = {call.stop for of_trip in calls.values() for call in of_trip}
    places = _places(feed, used, {stop for stops in stops_of.values() for stop in stops})
    served, faults, wrapped = _served(feed, calls, places)
    if not served:
        raise InputError(faults[0])
    headers = {trip: headers[trip] for trip, visits in served.items() if len(visits) > 1}
    runs = _runs(feed, {t: _run(t, headers[t].block, calls[t], served[t]) for t in headers})
    kept = {trip: [r for r in of_trip if wanted.start_s <= r.departure_s[0] < wanted.end_s]
            for trip, of_trip in runs.items()}  # fmt: skip
    ways = Counter((every[trip].route, every[trip].direction, s) for trip, s in stops_of.items())
    patterns, repeated = _patterns(headers, served, kept, places, ways)
    if not patterns:
        raise InputError(f"{feed.path}: no trip starts in the window on {wanted.date}")
    main = patterns if wanted.all_patterns else _main(patterns)
    rank = {route: number for number, route in enumerate(routes)}
    main.sort(key=lambda pattern: (rank[pattern.route], pattern.direction))
    left_out = tuple(pattern for pattern in patterns if pattern not in main)
    near = {id: places[id] for id in sorted({stop for p in main for stop in p.stops})}
    _check_near(feed, near)
    remarks = (
        *_faulty(feed, faults, wrapped),
        *_twice(repeated),
        *_not_taken(routes, patterns, main, len(served) - len(headers), wanted),
    )
    return Timetable(tuple(main), left_out, near, routes, route_ids(known), remarks)


def _days_with_trips(calendars: Calendars, services: Collection[str], day: datetime.date) -> str:
    """When trips of some services run, for a day on which none does."""
    first, last = calendars.nearest(services, datetime.date.min, 1), None
    if first is None:
        return "the feed has none on any day"
    last = calendars.nearest(services, datetime.date.max, -1)
    around = [calendars.nearest(services, day, step) for step in (-1, 1)]
    nearest = " and ".join(f"{date:%A} {date}" for date in around if date is not None)
    return f"the feed has some from {first} to {last}, the nearest on {nearest}"


def _faulty(feed: Feed, faults: Sequence[str], wrapped: int) -> list[str]:
    """What is said of trips that contradict themselves, and of those whose clock begins again."""
    remarks = []
    if faults:
        named = "; ".join(fault.removeprefix(f"{feed.path}: ") for fault in faults[:SHOWN])
        more = f"; and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        remarks.append(f"left out: {_trips(len(faults))} at fault: {named}{more}")
    if wrapped:
        remarks.append(
            f"{_trips(wrapped)} past midnight: their times begin at 00:00 again and are read as "
            "24:00 and later"
        )
    return remarks


def _twice(repeated: Sequence[tuple[str, str]]) -> list[str]:
    """What is said of trips that two calendars of a day have."""
    if not repeated:
        return []
    again, first = repeated[0]
    return [
        f"left out: {_trips(len(repeated))} that another calendar of the day repeats, stop by stop "
        f"and second by second (the first: {readable(again)}, which is {readable(first)})"
    ]


def _trips(count: int) -> str:
    return f"{count:,} {'trip' if count == 1 else 'trips'}"


def along_way(pattern: Pattern, distance_m: Sequence[float]) -> Pattern:
    """A pattern whose blank times lie along the distances of its stops."""
    runs = []
    for run in pattern.runs:
        times = zip(run.arrival_s, run.departure_s, run.given, strict=True)
        known = {i: (arrives, leaves) for i, (arrives, leaves, given) in enumerate(times) if given}
        arrival_s, departure_s = zip(*interpolated(known, distance_m), strict=True)
        runs.append(replace(run, arrival_s=arrival_s, departure_s=departure_s))
    return replace(pattern, runs=tuple(runs))


def _not_taken(
    routes: Mapping[str, str],
    patterns: Sequence[Pattern],
    main: Sequence[Pattern],
    empty: int,
    wanted: Wanted,
) -> tuple[str, ...]:
    """What of the feed is not in the timetable: routes, trips, and calls of the trips kept."""
    running = {pattern.route for pattern in patterns}
    remarks = [
        f"left out: route {routes[route]} ({route}): none of its trips starts in the window on "
        f"{wanted.date}"
        for route in routes
        if route not in running
    ]
    if empty:
        remarks.append(
            f"left out: {_trips(empty)}: people may get on or off at fewer than two of their stops"
        )
    unserved = sum(run.unserved for pattern in main for run in pattern.runs)
    if unserved:
        remarks.append(
            f"left out: {unserved:,} calls: nobody may get on or off there (pickup_type and "
            "drop_off_type are 1)"
        )
    return tuple(remarks)


# -- trips and their stops ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Header:
    """A row of `trips.txt`, and whether the trip runs on the day."""

    active: bool
    route: str
    calendar: str
    direction: str
    block: str
    shape: str


def _headers(feed: Feed, routes: Collection[str], active: Collection[str]) -> dict[str, _Header]:
    """The trips of some routes on all days, by id."""
    headers: dict[str, _Header] = {}
    needed, optional = (
        ("trip_id", "route_id", "service_id"),
        ("direction_id", "block_id", "shape_id"),
    )
    count = 0
    for row, (trip, route, calendar, *rest) in feed.rows("trips.txt", needed, optional):
        if route not in routes:
            continue
        where = f"{feed.path}: trips.txt: row {row}"
        runs = calendar in active
        if trip in headers and (runs or headers[trip].active):
            raise InputError(f"{where}: trip {trip!r} appears twice")
        if rest[0] not in ("", "0", "1"):
            raise InputError(f"{where}: direction_id is {rest[0]!r}; must be 0 or 1")
        count += runs
        if count > MOST_TRIPS or len(headers) == _MOST_OF_ROUTES:
            raise InputError(f"{feed.path}: more than {MOST_TRIPS:,} trips; choose fewer routes")
        headers[trip] = _Header(runs, route, calendar, *rest)
    return headers


def _places(feed: Feed, used: set[str], others: set[str]) -> dict[str, SourceStop]:
    """The stops that trips of the day use, and those of other days that can be read."""
    stops: dict[str, SourceStop] = {}
    for row, (stop, lat, lon, name) in feed.rows(
        "stops.txt", ["stop_id", "stop_lat", "stop_lon"], ["stop_name"]
    ):
        where = f"{feed.path}: stops.txt: row {row} ({stop})"
        if stop not in used and stop not in others:
            continue
        if stop in used and stop in stops:
            raise InputError(f"{where}: appears twice")
        with suppress(*(() if stop in used else (InputError,))):
            stops[stop] = SourceStop(stop, readable(name or stop), *spot_of(where, lat, lon), row)
    for stop in sorted(used - stops.keys()):
        raise InputError(f"{feed.path}: stop_times.txt uses stop {stop!r}, which stops.txt lacks")
    return stops


def _check_near(feed: Feed, places: Mapping[str, SourceStop]) -> None:
    """Refuse a stop that is far from the others, such as one at 0, 0."""
    lat = median(place.lat for place in places.values())
    lon = median(place.lon for place in places.values())
    for place in places.values():
        away_m = round_m(lat, lon, *place.spot)
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


# -- times ----------------------------------------------------------------------------------------


def _served(
    feed: Feed, calls: dict[str, list[Call]], places: Mapping[str, SourceStop]
) -> tuple[dict[str, list[Visit]], list[str], int]:
    """The visits of each trip that can be used, what is wrong with the others, and how many trips
    begin again at 00:00. Puts calls in order.
    """
    served, faults, wrapped = dict[str, list[Visit]](), list[str](), 0
    for trip, of_trip in calls.items():
        try:
            ordered = in_order(feed, trip, of_trip)
            along = [0.0]
            for first, second in pairwise(ordered):
                along.append(
                    along[-1] + round_m(*places[first.stop].spot, *places[second.stop].spot)
                )
            served[trip], begins_again = visits_of(feed, trip, ordered, along)
        except TripFault as fault:
            faults.append(str(fault))
            continue
        calls[trip] = ordered
        wrapped += begins_again
    return served, faults, wrapped


def frequencies(
    feed: Feed, trips: Collection[str] | None = None
) -> Iterator[tuple[str, str, range]]:
    """The starts that `frequencies.txt` gives trips, all or some, with their row for messages."""
    if not feed.has("frequencies.txt"):
        return
    columns = ["trip_id", "start_time", "end_time", "headway_secs"]
    for row, (trip, start, end, headway) in feed.rows("frequencies.txt", columns):
        if trips is not None and trip not in trips:
            continue
        where = f"{feed.path}: frequencies.txt: row {row}"
        begin, until = seconds_of(where, start), seconds_of(where, end)
        every = int(number_of(where, "headway_secs", headway))
        if every < 1:
            raise InputError(f"{where}: headway_secs is {headway!r}; must be at least 1")
        if until <= begin:
            raise InputError(f"{where}: end_time {end} is not after start_time {start}")
        yield where, trip, range(begin, until, every)


def _runs(feed: Feed, templates: Mapping[str, Run]) -> dict[str, list[Run]]:
    """The runs of each trip: one, or those that `frequencies.txt` asks for."""
    runs = {trip: [run] for trip, run in templates.items()}
    repeated: dict[str, list[Run]] = defaultdict(list)
    taken, count = set(runs), len(runs)
    for where, trip, starts in frequencies(feed, runs):
        count += len(starts)
        if count > MOST_TRIPS:
            raise InputError(f"{where}: more than {MOST_TRIPS:,} trips; choose fewer routes")
        for at in starts:
            id = free_id(f"{trip}.{len(repeated[trip]) + 1}", taken)
            repeated[trip].append(_moved(templates[trip], at, id))
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


def _run(trip: str, block: str, calls: Sequence[Call], served: Sequence[Visit]) -> Run:
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


# -- patterns -------------------------------------------------------------------------------------


def _patterns(
    headers: Mapping[str, _Header],
    served: Mapping[str, Sequence[Visit]],
    runs: Mapping[str, Sequence[Run]],
    places: Mapping[str, SourceStop],
    ways: Counter[Way],
) -> tuple[list[Pattern], list[tuple[str, str]]]:
    """Trips by route, direction and sequence of stops; those with most trips come first. Also the
    trips that repeat one of another calendar, with that one.
    """
    given = {
        trip: (header.route, header.direction, tuple(v.call.stop for v in served[trip]))
        for trip, header in headers.items()
        if runs[trip]
    }
    spots = {id: place.spot for id, place in places.items()}
    number = numbered(ways | Counter(set(given.values())), spots)
    members: dict[tuple[str, int, tuple[str, ...]], list[str]] = defaultdict(list)
    for trip, way in given.items():
        members[way[0], number[way][0], way[2]].append(trip)
    patterns, repeated = [], list[tuple[str, str]]()
    for (route, direction, stops), trips in members.items():
        every = _once(headers, runs, trips, repeated)
        shape = Counter(headers[trip].shape for trip in trips).most_common(1)[0][0]
        ends = places[stops[0]].name, places[stops[-1]].name
        rank = number[given[trips[0]]][1]
        patterns.append(Pattern(route, direction, stops, shape, tuple(every), ends, rank))
    patterns.sort(key=lambda pattern: (pattern.route, -len(pattern.runs), pattern.stops))
    return patterns, sorted(repeated)


def _once(
    headers: Mapping[str, _Header],
    runs: Mapping[str, Sequence[Run]],
    trips: Sequence[str],
    repeated: list[tuple[str, str]],
) -> list[Run]:
    """The runs of a pattern in order. One that another calendar has at the same times is one bus:
    it joins `repeated`. Two in one calendar are two buses.
    """
    by_times: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[str, Run]]] = {}
    for trip in sorted(trips):
        for run in runs[trip]:
            alike = by_times.setdefault((run.arrival_s, run.departure_s), [])
            calendar = headers[trip].calendar
            if alike and alike[0][0] != calendar:
                repeated.append((run.trip, alike[0][1].trip))
            else:
                alike.append((calendar, run))
    every = [run for alike in by_times.values() for _, run in alike]
    return sorted(every, key=lambda run: (run.departure_s[0], run.trip))


def _main(patterns: Sequence[Pattern]) -> list[Pattern]:
    """The pattern with most trips of each route and direction."""
    best: dict[tuple[str, int], Pattern] = {}
    for pattern in patterns:
        best.setdefault((pattern.route, pattern.direction), pattern)
    return list(best.values())
