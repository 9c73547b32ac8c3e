"""What a planner looks at first in a city: routes, headways, speeds, demand, duties; and warnings.

A warning names a service, stop or trip that looks wrong. It is not an error: the city can be used.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from evenline.city.clock import clock_text
from evenline.city.geometry import apart_m
from evenline.city.model import City, Floats, Stop, road_ways, visit_offsets
from evenline.city.schedule import HOUR_S, scheduled_s

_FAST_KMH, _SLOW_KMH = 100.0, 3.0
_HOLE_S, _HOLE = 3600, 2.0  # a gap this long, and so many times those on each side, lacks trips
_AROUND = 3  # gaps on each side of one
_SHOWN = 5  # services without a headway that are named
_CLOSE_S = 60  # trips of a service that start closer to each other look like one
_FAR_M = 300.0
KMH = 3.6  # for 1 m/s


@dataclass(frozen=True)
class ShownTable:
    """A table for people: its title, its heading, its rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Overview:
    """The tables, and what looks wrong."""

    tables: tuple[ShownTable, ...]
    warnings: tuple[str, ...]


def overview(city: City) -> Overview:
    """What a planner looks at first."""
    speeds = [] if city.due_s is None else _speeds(city)
    tables = [_services(city, speeds), _headways(city), _demand(city), *_blocks(city)]
    warnings = (
        *_odd_speeds(city, speeds), *_close(city), *_holes(city), *without_headway(city),
        *_far(city), *_late(city), *_overlapping(city), *_unused(city),
        *_crowded(city),
    )  # fmt: skip
    return Overview(tuple(tables), warnings)


def called(stop: Stop) -> str:
    """A stop as people know it."""
    return f"{stop.name} ({stop.id})" if stop.name else stop.id


# -- tables ---------------------------------------------------------------------------------------


def _services(city: City, speeds: Sequence[Floats]) -> ShownTable:
    head = ["service", "stops", "km", "trips", "first", "last", "headway, min"]
    head += ["minutes", "km/h", "slowest", "fastest"] if speeds else []
    rows = []
    for number, service in enumerate(city.services):
        starts = [city.trips[trip].departure_s for trip in city.trips_of[number]]
        gaps = np.diff(starts) / 60
        row = [
            f"{service.id} {service.name}".strip(),
            f"{len(service.stops)}",
            f"{service.length_m / 1000:.1f}",
            f"{len(starts)}",
            clock_text(city, starts[0]) if starts else "",
            clock_text(city, starts[-1]) if starts else "",
            f"{np.median(gaps):.0f}" if len(gaps) else "",
        ]
        if speeds:
            row += _speed_cells(city, number, speeds)
        rows.append(tuple(row))
    return ShownTable("services", tuple(head), tuple(rows))


def _speed_cells(city: City, service: int, speeds: Sequence[Floats]) -> list[str]:
    """Scheduled minutes and speeds: of the whole way, and between two stops."""
    trips = city.trips_of[service]
    if not trips:
        return ["", "", "", ""]
    took_s = float(np.mean([np.ptp(scheduled_s(city, trip)) for trip in trips]))
    way_m = city.services[service].distance_m[-1] - city.services[service].distance_m[0]
    between = np.concatenate([speeds[trip] for trip in trips])
    between = between[np.isfinite(between)]
    whole = f"{KMH * way_m / took_s:.0f}" if took_s else ""
    ends = [f"{between.min():.0f}", f"{between.max():.0f}"] if len(between) else ["", ""]
    return [f"{took_s / 60:.0f}", whole, *ends]


def _headways(city: City) -> ShownTable:
    """The mean minutes to the trip before, of the trips that start in an hour."""
    hours = sorted({trip.departure_s // HOUR_S for trip in city.trips})
    rows = []
    for number, service in enumerate(city.services):
        starts = np.array([city.trips[trip].departure_s for trip in city.trips_of[number]])
        gaps_min, hour_of = np.diff(starts) / 60, starts[1:] // HOUR_S
        cells = []
        for hour in hours:
            here = gaps_min[hour_of == hour]
            first = len(starts) and starts[0] // HOUR_S == hour
            cells.append(f"{here.mean():.0f}" if len(here) else ("first" if first else ""))
        rows.append((service.id, *cells))
    head = ("service", *(clock_text(city, HOUR_S * hour) for hour in hours))
    return ShownTable(
        "minutes since the trip before, by the hour that begins at", head, tuple(rows)
    )


def _demand(city: City) -> ShownTable:
    present = city.journeys.min_demand <= 1.0
    hours = city.journeys.departure_s[present] // HOUR_S
    count = np.bincount(hours, minlength=1)
    used = range(int(np.argmax(count > 0)), len(count)) if len(hours) else range(0)
    rows = [("passengers", *(f"{count[hour]:,}" for hour in used), f"{len(hours):,}")]
    head = ("", *(clock_text(city, HOUR_S * hour) for hour in used), "all")
    return ShownTable(
        "passengers who set out at demand 1.00, by the hour that begins at", head, tuple(rows)
    )


def _blocks(city: City) -> list[ShownTable]:
    """How many trips the duties of vehicles have, if there are any."""
    trips = defaultdict(list)
    for number, trip in enumerate(city.trips):
        trips[trip.duty].append(number)
    free = len(trips.pop("", []))
    if not trips:
        return []
    counts = [len(duty) for duty in trips.values()]
    row = (f"{len(counts)}", f"{np.mean(counts):.1f}", f"{max(counts)}", f"{free}")
    head = ("duties", "trips of one, mean", "most", "trips without one")
    return [ShownTable("duties of vehicles (block_id)", head, (row,))]


# -- warnings -------------------------------------------------------------------------------------


def _speeds(city: City) -> list[Floats]:
    """The scheduled speed of each trip from stop to stop, km/h; infinite without time."""
    speeds = []
    for number, trip in enumerate(city.trips):
        metres = np.diff(city.services[trip.service].distance_m)
        seconds = np.diff(scheduled_s(city, number))
        with np.errstate(divide="ignore"):
            speeds.append(KMH * metres / seconds)
    return speeds


def _odd_speeds(city: City, speeds: Sequence[Floats]) -> Iterable[str]:
    """Pairs of stops between which trips would have to hurry, or to crawl, with the worst."""
    odd_speeds: dict[tuple[int, int, bool], list[float]] = defaultdict(list)
    for trip, of_trip in zip(city.trips, speeds, strict=False):
        for position in np.flatnonzero((of_trip > _FAST_KMH) | (of_trip < _SLOW_KMH)).tolist():
            speed = float(of_trip[position])
            odd_speeds[trip.service, position, speed > _FAST_KMH].append(speed)
    for (number, position, hurry), odd in odd_speeds.items():
        service = city.services[number]
        first, second = (city.stops[stop] for stop in service.stops[position : position + 2])
        how = f"{max(odd):,.0f} km/h" if hurry else f"only {min(odd):.1f} km/h"
        how = how if np.isfinite(max(odd)) else "no time at all"
        yield (
            f"{service.id}: {how} by the schedule from {called(first)} to {called(second)}, "
            f"{_some(len(odd), 'trip')}"
        )


def _close(city: City) -> Iterable[str]:
    for number, service in enumerate(city.services):
        starts = [city.trips[trip].departure_s for trip in city.trips_of[number]]
        close = [at_s for at_s, after_s in pairwise(starts) if after_s - at_s < _CLOSE_S]
        if close:
            yield (
                f"{service.id}: headway of (nearly) zero: {_some(len(close), 'trip')} less than "
                f"{_CLOSE_S} s before the next, the first at {clock_text(city, close[0])}"
            )


def _holes(city: City) -> Iterable[str]:
    """Long gaps between trips of a service that comes much more often around them."""
    for number, service in enumerate(city.services):
        starts = [city.trips[trip].departure_s for trip in city.trips_of[number]]
        gaps = np.diff(starts)
        for at in np.flatnonzero(gaps >= _HOLE_S).tolist():
            around = (gaps[max(at - _AROUND, 0) : at], gaps[at + 1 : at + 1 + _AROUND])
            usual_s = max((float(np.median(side)) for side in around if len(side)), default=np.inf)
            if gaps[at] >= _HOLE * usual_s:
                yield (
                    f"{service.id}: no trip starts between {clock_text(city, starts[at])} and "
                    f"{clock_text(city, starts[at + 1])}; around that, one starts every "
                    f"{usual_s / 60:.0f} min"
                )


def without_headway(city: City) -> list[str]:
    """What is said of services with a single trip, where no bus can be compared with another."""
    lone = [s.id for n, s in enumerate(city.services) if len(city.trips_of[n]) == 1]
    if not lone:
        return []
    named = ", ".join(lone[:_SHOWN]) + (", ..." if len(lone) > _SHOWN else "")
    return [
        f"{len(lone):,} of {_some(len(city.services), 'service')} with a single trip, so without a "
        f"headway that holding could keep: {named}"
    ]


def _far(city: City) -> Iterable[str]:
    ways = road_ways(city)
    for stop in city.stops:
        away_m = float(apart_m(np.array([[stop.x_m, stop.y_m]]), np.array(ways[stop.road]))[0])
        if away_m > _FAR_M:
            yield f"stop {called(stop)}: {away_m:,.0f} m from its road {stop.road}"


def _late(city: City) -> Iterable[str]:
    if city.due_s is None:
        return
    ends_s = city.due_s[visit_offsets(city)[1:] - 1]
    late = np.flatnonzero(ends_s > city.horizon_s)
    if len(late):
        yield (
            f"{_some(len(late), 'trip')} due after the day ends at "
            f"{clock_text(city, city.horizon_s)}, the first is {city.trips[late[0]].id}"
        )


def _overlapping(city: City) -> Iterable[str]:
    """Duties in which a trip starts before the one before it is due to end."""
    if city.due_s is None:
        return
    ends_s = city.due_s[visit_offsets(city)[1:] - 1]
    blocks = defaultdict(list)
    for number, trip in enumerate(city.trips):
        if trip.duty:
            blocks[trip.duty].append((trip.departure_s, number))
    for block, trips in blocks.items():
        for (_, first), (start_s, second) in pairwise(sorted(trips)):
            if start_s < ends_s[first]:
                yield (
                    f"duty {block}: trip {city.trips[second].id} starts before "
                    f"{city.trips[first].id} is due to end"
                )
                break


def _unused(city: City) -> Iterable[str]:
    for number, service in enumerate(city.services):
        if not city.trips_of[number]:
            yield f"{service.id}: has no trip"
    served = {stop for service in city.services for stop in service.stops}
    idle = [stop for number, stop in enumerate(city.stops) if number not in served]
    if idle:
        yield f"{_some(len(idle), 'stop')} of no service, the first is {called(idle[0])}"
    if not len(city.journeys):
        yield "nobody travels; add passengers with: evenline city people"


def _crowded(city: City) -> Iterable[str]:
    """The stop and the second in which more people come than a bus carries, as only an error in
    the table makes it.
    """
    journeys, room = city.journeys, max(vehicle.capacity for vehicle in city.vehicles)
    starts = journeys.leg_board[journeys.leg_start[:-1]]
    places, counts = np.unique([journeys.departure_s, starts], axis=1, return_counts=True)
    if counts.max(initial=0) > room:
        second, stop = places[:, counts.argmax()].tolist()
        yield (
            f"stop {called(city.stops[stop])}: {counts.max():,} passengers come in the same second "
            f"at {clock_text(city, second)}, and a bus has room for {room}; spread their departures"
        )


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
