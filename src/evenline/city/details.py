"""The tables that only some cities have: names, shapes of roads, bus types, blocks, schedule,
slowness, late starts.

A city writes one of them only if it has something to say there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints, Service, Stop, Trip, Vehicle, visit_offsets
from evenline.city.operations import (
    BREAKDOWN,
    CANCELLED,
    CLOSED,
    SLOW,
    ControlPoint,
    Disruption,
    Operations,
)
from evenline.city.ranges import VEHICLE
from evenline.city.rows import CityTable, csv_text
from evenline.city.schedule import hours_of
from evenline.city.starts import RANKS
from evenline.support.errors import InputError

Named = TypeVar("Named", Stop, Service, Trip)
Tables = dict[str, CityTable]  # by name


def optional_tables(city: City) -> dict[str, str]:
    """The tables that only some cities have."""
    named: list[tuple[str, Sequence[Stop | Service | Trip]]]
    named = [("stop", city.stops), ("service", city.services), ("trip", city.trips)]
    due_s, first = city.due_s, visit_offsets(city).tolist()
    rows: dict[str, list[tuple[object, ...]]] = {
        "names.csv": [
            (kind, thing.id, thing.source, getattr(thing, "name", ""))
            for kind, things in named
            for thing in things
            if thing.source or getattr(thing, "name", "")
        ],
        "road_shapes.csv": [
            (road.id, " ".join(f"{x:g},{y:g}" for x, y in road.shape))
            for road in city.roads
            if road.shape
        ],
        "stop_details.csv": [(stop.id, stop.lane) for stop in city.stops if stop.lane],
        "vehicles.csv": [_vehicle_row(vehicle) for vehicle in city.more_vehicles],
        "trip_details.csv": [
            (trip.id, trip.vehicle, trip.duty) for trip in city.trips if trip.vehicle or trip.duty
        ],
        "schedule.csv": [
            (trip.id, i, int(due))
            for trip, start, end in zip(city.trips, first, first[1:], strict=False)
            if due_s is not None
            for i, due in enumerate(due_s[start:end])
        ],
        "slowness.csv": [
            (service.id, position, hour, factor)
            for service, rows in _slow_ways(city)
            for position, row in enumerate(rows)
            for hour, factor in enumerate(row)
        ],
        "starts.csv": [
            (service.id, hour, *row)
            for service, rows in _late_starts(city)
            for hour, row in enumerate(rows)
        ],
        "control_points.csv": [
            (city.stops[point.stop].id, point.max_hold_s)
            for point in city.operations.control_points
        ],
        "disruptions.csv": [_row_of(city, event) for event in city.operations.disruptions],
    }
    return {name: csv_text(name, table) for name, table in rows.items() if table}


def with_details(city: City, tables: Tables) -> City:
    """Add what the optional tables say."""
    stops, trips = city.stops, city.trips
    lanes = _by_id(tables["stop_details.csv"], [stop.id for stop in stops])
    details = _by_id(tables["trip_details.csv"], [trip.id for trip in trips])
    points = _by_id(tables["road_shapes.csv"], [road.id for road in city.roads])
    return replace(
        city,
        services=tuple(_named("service", city.services, tables)),
        stops=tuple(
            replace(stop, lane=lanes[stop.id][0]) if stop.id in lanes else stop
            for stop in _named("stop", stops, tables)
        ),
        trips=tuple(
            replace(trip, vehicle=details[trip.id][0], duty=details[trip.id][1])
            if trip.id in details
            else trip
            for trip in _named("trip", trips, tables)
        ),
        roads=tuple(
            replace(road, shape=points[road.id][0]) if road.id in points else road
            for road in city.roads
        ),
        more_vehicles=tuple(_vehicles(tables["vehicles.csv"])),
        due_s=_schedule(city, tables["schedule.csv"]),
        slowness=_slowness(city, tables["slowness.csv"]),
        late_starts_s=_starts(city, tables["starts.csv"]),
    )


def operations_of(city: City, usual: Operations, tables: Tables) -> Operations:
    """The operations of the manifest with what the optional tables add."""
    stops = {stop.id: i for i, stop in enumerate(city.stops)}
    caps = _by_id(tables["control_points.csv"], list(stops))
    return replace(
        usual,
        control_points=tuple(ControlPoint(stops[id], cap_s) for id, (cap_s,) in caps.items()),
        disruptions=tuple(_disruptions(city, tables["disruptions.csv"])),
    )


def _disruptions(city: City, table: CityTable) -> Iterator[Disruption]:
    """The rows of disruptions; `id` is a trip, a stop or a road."""
    stops = {stop.id: i for i, stop in enumerate(city.stops)}
    trips = {trip.id: i for i, trip in enumerate(city.trips)}
    for row, (kind, id, stop, from_s, until_s, factor, day) in enumerate(table.values()):
        given = {"stop_id": stop, "from_s": from_s, "until_s": until_s, "factor": factor}
        unused = [("factor", kind != SLOW), ("stop_id", kind != BREAKDOWN)]
        unused += [("from_s", kind == CANCELLED), ("until_s", kind == CANCELLED)]
        for column, empty in unused:
            if empty and given[column] not in ("", None):
                raise InputError(f"{table.where(row)}: leave {column} empty for the kind {kind}")
        of_trip = kind in (CANCELLED, BREAKDOWN)
        for name, known, what in (
            *([(id, trips, "trip")] if of_trip else []),
            *([(id, stops, "stop")] if kind == CLOSED else []),
            *([(stop, stops, "stop")] if stop else []),
        ):
            if name not in known:
                raise InputError(f"{table.where(row)}: unknown {what} {name!r}")
        yield Disruption(
            kind,
            trip=trips[id] if of_trip else -1,
            stop=stops[id] if kind == CLOSED else stops.get(stop, -1),
            road=id if kind == SLOW else "",
            from_s=from_s or 0,
            until_s=until_s,
            factor=1.0 if factor is None else factor,
            day=day,
        )


def _row_of(city: City, event: Disruption) -> tuple[object, ...]:
    """The row of a disruption."""
    stop = city.stops[event.stop].id if event.stop >= 0 else ""
    trip = city.trips[event.trip].id if event.trip >= 0 else ""
    return (
        event.kind,
        trip or event.road or stop,
        stop if trip else "",
        event.from_s or "",
        "" if event.until_s is None else event.until_s,
        event.factor if event.kind == SLOW else "",
        "" if event.day is None else event.day,
    )


def _by_id(table: CityTable, known: Sequence[str], only: str = "") -> dict[str, list[Any]]:
    """The values of each row beside its id, which comes first, must be known and may appear once.

    In a table of several kinds, only rows of one.
    """
    rows: dict[str, list[Any]] = {}
    ids = dict.fromkeys(known, True)
    for row, values in enumerate(table.values()):
        if only and values.pop(0) != only:
            continue
        id = values.pop(0)
        if id not in ids:
            what = "id" if only else next(iter(table.texts)).removesuffix("_id")
            raise InputError(f"{table.where(row)}: unknown {what} {id!r}")
        if id in rows:
            raise InputError(f"{table.where(row)}: {id} appears twice")
        rows[id] = values
    return rows


def _named(kind: str, things: Sequence[Named], tables: Tables) -> Iterator[Named]:
    names = _by_id(tables["names.csv"], [thing.id for thing in things], kind)
    for thing in things:
        if thing.id in names:
            source, name = names[thing.id]
            thing = replace(thing, source=source)
            if not isinstance(thing, Trip):
                thing = replace(thing, name=name)
        yield thing


def _vehicle_row(vehicle: Vehicle) -> tuple[object, ...]:
    if not vehicle.plain_doors:
        raise InputError(
            "vehicles.csv: only the bus type of the manifest may have opening_s, "
            "alighting_s_per_passenger or crowding_s_per_passenger"
        )
    return tuple(getattr(vehicle, key) for key in VEHICLE)


def _vehicles(table: CityTable) -> Iterator[Vehicle]:
    """The bus types. A whole number stays whole, because hashes depend on it."""
    for row, values in enumerate(table.values()):
        texts = [table.texts[key][row] for key in VEHICLE]
        numbers = [int(v) if text.isdigit() else v for v, text in zip(values, texts, strict=True)]
        yield Vehicle(*numbers)


def _slow_ways(city: City) -> Iterator[tuple[Service, list[list[float]]]]:
    """Each service with the slowness of the ways between its stops."""
    if city.slowness is not None:
        first = service_stop_offsets(city)
        for service, start, end in zip(city.services, first[:-1], first[1:], strict=True):
            yield service, city.slowness[start : end - 1].tolist()


def _slowness(city: City, table: CityTable) -> Floats | None:
    if not table.rows:
        return None
    first, hours = service_stop_offsets(city).tolist(), hours_of(city)
    services = {service.id: i for i, service in enumerate(city.services)}
    slowness, seen = np.ones((first[-1], hours)), set[tuple[int, int]]()
    number = table.one_of("service_id", services, "service")
    for row, (id, position, hour, factor) in enumerate(table.values()):
        place = first[number[row]] + position
        if place >= first[number[row] + 1] - 1:
            raise InputError(f"{table.where(row)}: {id} goes nowhere from stop {position}")
        if hour >= hours:
            raise InputError(f"{table.where(row)}: the day has {hours} hours, numbered from 0")
        if (place, hour) in seen:
            raise InputError(f"{table.where(row)}: the same stop and hour appear twice")
        seen.add((place, hour))
        slowness[place, hour] = factor
    return slowness


def _late_starts(city: City) -> Iterator[tuple[Service, list[list[float]]]]:
    """Each service with the quantiles of its late starts by hour."""
    if city.late_starts_s is not None:
        yield from zip(city.services, city.late_starts_s.tolist(), strict=True)


def _starts(city: City, table: CityTable) -> Floats | None:
    """The late starts; hours that have no row are on time."""
    if not table.rows:
        return None
    services, hours = {service.id: i for i, service in enumerate(city.services)}, hours_of(city)
    late_s, seen = np.zeros((len(services), hours, len(RANKS))), set[tuple[int, int]]()
    number = table.one_of("service_id", services, "service")
    for row, (id, hour, *quantiles_s) in enumerate(table.values()):
        if hour >= hours:
            raise InputError(f"{table.where(row)}: the day has {hours} hours, numbered from 0")
        if (number[row], hour) in seen:
            raise InputError(f"{table.where(row)}: {id} has hour {hour} twice")
        if sorted(quantiles_s) != quantiles_s:
            raise InputError(f"{table.where(row)}: p0_s to p100_s must not fall")
        seen.add((number[row], hour))
        late_s[number[row], hour] = quantiles_s
    return late_s


def _schedule(city: City, table: CityTable) -> Ints | None:
    if not table.rows:
        return None
    first = visit_offsets(city).tolist()
    trips = {trip.id: i for i, trip in enumerate(city.trips)}
    due_s = np.full(first[-1], -1, np.int32)
    number = table.one_of("trip_id", trips, "trip")
    for row, (id, position, at_s) in enumerate(table.values()):
        visit = first[number[row]] + position
        if not 0 <= position < first[number[row] + 1] - first[number[row]]:
            raise InputError(f"{table.where(row)}: {id} has no stop {position}")
        if due_s[visit] >= 0:
            raise InputError(f"{table.where(row)}: stop {position} of {id} appears twice")
        due_s[visit] = at_s
    if (due_s < 0).any():
        trip = int(np.searchsorted(first, int(np.argmax(due_s < 0)), side="right")) - 1
        raise InputError(f"schedule.csv: {city.trips[trip].id} has no time at one of its stops")
    return due_s
