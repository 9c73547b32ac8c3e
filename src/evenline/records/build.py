"""A city from records: what was driven becomes services, a timetable, stops, roads and people.

The city is for the fast world: its roads are corridors between stops, without a map. Second 0 of
its day is half an hour before the first hour that was asked for, so that people can wait for the
first buses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from evenline.city.model import City, Clock, Floats, Origin, Trip, Vehicle
from evenline.importing.corridor import corridor
from evenline.importing.ids import clean_ids, readable
from evenline.importing.lines import Layout, Shape
from evenline.importing.timetable import SourceStop
from evenline.records.clean import Records
from evenline.records.patterns import (
    Direction,
    Driven,
    Pattern,
    Planned,
    match,
    patterns,
    timetable,
)
from evenline.records.people import Spread, journeys_of, recorded_rides, variation_of
from evenline.support.errors import InputError

_LEAD_S = 1_800
SEED = 23
_WINDING = 1.3  # road metres per straight metre, where no distance is recorded
_UNKNOWN_M = 400.0  # between stops without a place
_FULL_QUANTILE = 0.999  # of recorded loads: taken as the capacity
_LEAST_CAPACITY = 30


@dataclass(frozen=True, eq=False)
class Built:
    """A city with what it was made from; times of `driven` count from the city's second 0."""

    city: City
    patterns: tuple[Pattern, ...]
    driven: Driven
    planned: Planned
    order: tuple[int, ...]  # the planned trip of each trip of the city
    blocks: dict[int, str]  # of trips of `driven`, as far as they are recorded
    spreads: dict[str, Spread]
    left_out: int  # visits of these routes, days and hours that no service explains


def chosen(
    records: Records, routes: tuple[str, ...], days: tuple[str, ...], hours: tuple[int, int]
) -> Records:
    """The records of some routes and days, and of trips that start within some hours."""
    of_days = records.of_days(days)
    known = {str(route) for route in records.trips.route}
    for route in routes:
        if route not in known:
            raise InputError(f"route {route!r} is not in the records of {records.name}")
    visits = of_days.visits
    begins = np.full(len(records.trips), np.inf)
    np.minimum.at(begins, visits.trip, visits.arrival_s)
    keep = (begins >= hours[0] * 3600) & (begins < hours[1] * 3600)
    if routes:
        keep &= np.isin(records.trips.route.astype(str), routes)
    return replace(of_days, visits=visits.only(keep[visits.trip]))


def build(records: Records, name: str, days: tuple[str, ...], hours: tuple[int, int]) -> Built:
    """Make the city of records that were chosen with `chosen`."""
    services = patterns(records)
    start_s = max(hours[0] * 3600 - _LEAD_S, 0)
    driven = match(records, services).moved(start_s)
    if len(driven) and not (np.diff(driven.time_s)[np.diff(driven.trip) == 0] > 0).any():
        raise InputError(f"{records.name}: no trip takes any time; check the times of its visits")
    planned = timetable(driven, len(services))
    ways = _ways(records, services)
    rng = np.random.Generator(np.random.PCG64(SEED))
    ends = float(np.max(driven.time_s))
    horizon_s = int(np.ceil((ends + _LEAD_S) / 3600) * 3600)
    rides = recorded_rides(driven, services, planned, rng)
    variation, spreads = variation_of(driven, services, planned)
    order = np.lexsort((planned.service, planned.departure_s)).tolist()
    block = records.trips.block
    blocks = {trip: readable(str(block[trip] or "")) for trip in np.unique(driven.trip).tolist()}
    city = City(
        name=name,
        horizon_s=horizon_s,
        vehicle=Vehicle(capacity=capacity_of(driven.load), min_dwell_s=0),
        nodes=ways.nodes,
        roads=ways.roads,
        stops=ways.stops,
        services=ways.services,
        trips=_trips(ways, planned, order, blocks),
        journeys=journeys_of(rides, services, [s.stops for s in ways.services], horizon_s, rng),
        origin=_origin(records),
        clock=Clock(days[0], start_s, ""),
        variation=variation,
    )
    left_out = len(records.visits) - len(driven)
    return Built(city, tuple(services), driven, planned, tuple(order), blocks, spreads, left_out)


def patterns_of(city: City, records: Records) -> list[Pattern]:
    """The services of a city that was built from records, in terms of other records of it."""
    stop_of = {readable(str(name)): index for index, name in enumerate(records.stops.id)}
    route_of = {readable(str(route)): str(route) for route in np.unique(records.trips.route)}
    patterns = []
    for service in city.services:
        route, _, rest = service.source.rpartition(" ")
        direction = re.fullmatch(r"(-?\d+)[a-z]*", rest)
        if direction is None:
            raise InputError(f"service {service.id}: was not made from records")
        seen: dict[str, int] = {}
        places = []
        for stop in service.stops:
            source = city.stops[stop].source
            places.append((stop_of.get(source, -1), seen.get(source, 0)))
            seen[source] = seen.get(source, 0) + 1
        patterns.append(
            Pattern(Direction(route_of.get(route, route), int(direction[1])), tuple(places), 0)
        )
    return patterns


def capacity_of(loads: Floats) -> int:
    """The load that all but one in a thousand visits stay below, rounded up to tens."""
    loads = loads[np.isfinite(loads)]
    most = float(np.quantile(loads, _FULL_QUANTILE)) if len(loads) else 0.0
    return max(_LEAST_CAPACITY, int(np.ceil(most / 10) * 10))


def _trips(
    ways: Layout, planned: Planned, order: Sequence[int], blocks: Mapping[int, str]
) -> tuple[Trip, ...]:
    """The planned trips in order; a trip has the block of the first recorded one that has any."""
    count = [0] * len(ways.services)
    trips = []
    for row in order:
        service = int(planned.service[row])
        name = f"{ways.services[service].id}.{count[service]}"
        count[service] += 1
        block = next((blocks[trip] for trip in planned.seen[row] if blocks[trip]), "")
        trips.append(Trip(name, service, max(int(planned.departure_s[row]), 0), duty=block))
    return tuple(trips)


# -- places ---------------------------------------------------------------------------------------


def _origin(records: Records) -> Origin | None:
    known = np.isfinite(records.stops.latitude)
    if not known.any():
        return None
    lat, lon = records.stops.latitude[known].mean(), records.stops.longitude[known].mean()
    return Origin(round(float(lat), 6), round(float(lon), 6))


def _metres(records: Records) -> Floats:
    """Where stops lie, in metres from the middle; a stop without a place lies there."""
    origin, stops = _origin(records), records.stops
    here = (origin or Origin(0.0, 0.0)).metres(stops.latitude, stops.longitude)
    return np.asarray(np.nan_to_num(np.stack(here, axis=1)))


def _ways(records: Records, services: Sequence[Pattern]) -> Layout:
    recorded_m, metres, stops = _recorded_m(records), _metres(records), records.stops
    ways, count = [], {pattern.line: 0 for pattern in services}
    routes = clean_ids(pattern.line.route for pattern in services)
    for pattern in services:
        letter = "" if not count[pattern.line] else chr(ord("a") + count[pattern.line] - 1)
        count[pattern.line] += 1
        route, direction = pattern.line
        served = np.array([stop for stop, _ in pattern.places])
        steps = [
            recorded_m.get(pair) or _straight_m(records, *pair)
            for pair in pairwise(served.tolist())
        ]
        ways.append(
            Shape(
                id=f"{route}-{direction}{letter}",
                route=routes[route],
                name=readable(f"{stops.name[served[0]]} - {stops.name[served[-1]]}"),
                source=f"{readable(route)} {direction}{letter}",
                places=tuple(_spot(records, stop) for stop in served),
                spots=metres[served],
                points=metres[served],
                distance_m=np.concatenate([[0.0], np.cumsum(steps)]),
                shaped=False,
            )
        )
    return corridor(ways)


def _spot(records: Records, stop: int) -> SourceStop:
    stops = records.stops
    lat, lon = np.nan_to_num(stops.latitude[stop]), np.nan_to_num(stops.longitude[stop])
    return SourceStop(str(stops.id[stop]), readable(str(stops.name[stop])), float(lat), float(lon))


def _recorded_m(records: Records) -> dict[tuple[int, int], float]:
    """The median recorded distance from a stop to the next; else the difference along a route."""
    visits, number = records.visits, {str(name): i for i, name in enumerate(records.stops.id)}
    between_m: dict[tuple[int, int], float] = {}
    along = sorted(
        (route, way, metres, stop) for (route, way, stop), metres in records.along_m.items()
    )
    for (route, way, metres, stop), (other, back, farther, after) in pairwise(along):
        if (route, way) == (other, back) and stop in number and after in number:
            between_m[number[stop], number[after]] = farther - metres
    next_to = visits.follows() & (np.diff(visits.order) == 1) & (visits.distance_m[1:] > 0)
    seen: dict[tuple[int, int], list[float]] = {}
    pairs = zip(visits.stop[:-1][next_to].tolist(), visits.stop[1:][next_to].tolist(), strict=True)
    for pair, metres in zip(pairs, visits.distance_m[1:][next_to].tolist(), strict=True):
        seen.setdefault(pair, []).append(metres)
    return between_m | {pair: float(np.median(metres)) for pair, metres in seen.items()}


def _straight_m(records: Records, first: int, second: int) -> float:
    apart: Floats = records.stops.apart_m(np.array([first], np.int32), np.array([second], np.int32))
    return float(apart[0]) * _WINDING if np.isfinite(apart[0]) else _UNKNOWN_M
