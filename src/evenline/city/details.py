"""The tables that only some cities have: names, shapes of roads, bus types, blocks, schedule,
slowness.

A city writes one of them only if it has something to say there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

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
from evenline.city.ranges import RANGES, VEHICLE
from evenline.city.rows import Row, csv_text
from evenline.city.schedule import hours_of
from evenline.support.errors import InputError

Named = TypeVar("Named", Stop, Service, Trip)
Rows = dict[str, list[Row]]


def optional_tables(city: City) -> dict[str, str]:
    """The tables that only some cities have."""
    named: list[tuple[str, Sequence[Stop | Service | Trip]]]
    named = [("stop", city.stops), ("service", city.services), ("trip", city.trips)]
    due_s, first = city.due_s, visit_offsets(city).tolist()
    rows: dict[str, list[tuple[object, ...]]] = {
        "names.csv": [
            (kind, each.id, each.source, getattr(each, "name", ""))
            for kind, things in named
            for each in things
            if each.source or getattr(each, "name", "")
        ],
        "road_shapes.csv": [
            (road.id, " ".join(f"{x:g},{y:g}" for x, y in road.shape))
            for road in city.roads
            if road.shape
        ],
        "stop_details.csv": [(stop.id, stop.lane) for stop in city.stops if stop.lane],
        "vehicles.csv": [_vehicle_row(vehicle) for vehicle in city.more_vehicles],
        "trip_details.csv": [
            (trip.id, trip.vehicle, trip.block) for trip in city.trips if trip.vehicle or trip.block
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
        "control_points.csv": [
            (city.stops[point.stop].id, point.max_hold_s)
            for point in city.operations.control_points
        ],
        "disruptions.csv": [_told(city, each) for each in city.operations.disruptions],
    }
    return {name: csv_text(name, table) for name, table in rows.items() if table}


def with_details(city: City, rows: Rows) -> City:
    """Add what the optional tables say."""
    trips = _named("trip", city.trips, rows)
    stops = _named("stop", city.stops, rows)
    lanes = _by_id(rows["stop_details.csv"], "stop_id", [s.id for s in stops])
    details = _by_id(rows["trip_details.csv"], "trip_id", [t.id for t in trips])
    shapes = _by_id(rows["road_shapes.csv"], "road_id", [road.id for road in city.roads])
    return replace(
        city,
        services=_named("service", city.services, rows),
        stops=tuple(
            replace(stop, lane=lanes[stop.id].number("lane", int)) if stop.id in lanes else stop
            for stop in stops
        ),
        trips=tuple(
            _detailed(trip, details[trip.id]) if trip.id in details else trip for trip in trips
        ),
        roads=tuple(
            replace(road, shape=_points(shapes[road.id])) if road.id in shapes else road
            for road in city.roads
        ),
        more_vehicles=tuple(_vehicle(row) for row in rows["vehicles.csv"]),
        due_s=_schedule(city, rows["schedule.csv"]),
        slowness=_slowness(city, rows["slowness.csv"]),
    )


def operations_of(city: City, usual: Operations, rows: Rows) -> Operations:
    """The operations of the manifest with what the optional tables add."""
    stops = [stop.id for stop in city.stops]
    points = _by_id(rows["control_points.csv"], "stop_id", stops)
    return replace(
        usual,
        control_points=tuple(
            ControlPoint(stops.index(stop), row.number("max_hold_s", float))
            for stop, row in points.items()
        ),
        disruptions=tuple(_disruption(city, row) for row in rows["disruptions.csv"]),
    )


def _disruption(city: City, row: Row) -> Disruption:
    """A row of disruptions; `id` is a trip, a stop or a road."""
    kind = row["kind"]
    stops = {stop.id: i for i, stop in enumerate(city.stops)}
    trips = {trip.id: i for i, trip in enumerate(city.trips)}
    unused = {"factor": kind != SLOW, "stop_id": kind != BREAKDOWN}
    unused |= dict.fromkeys(("from_s", "until_s"), kind == CANCELLED)
    for column, empty in unused.items():
        if empty and row[column]:
            raise InputError(f"{row.where}: leave {column} empty for the kind {kind}")
    of_trip = kind in (CANCELLED, BREAKDOWN)
    stop = row.one_of("stop_id", stops, "stop") if row["stop_id"] else -1
    return Disruption(
        kind,
        trip=row.one_of("id", trips, "trip") if of_trip else -1,
        stop=row.one_of("id", stops, "stop") if kind == CLOSED else stop,
        road=row["id"] if kind == SLOW else "",
        from_s=row.number("from_s", int) if row["from_s"] else 0,
        until_s=row.number("until_s", int) if row["until_s"] else None,
        factor=row.number("factor", float) if row["factor"] else 1.0,
        day=row.number("day", int) if row["day"] else None,
    )


def _told(city: City, each: Disruption) -> tuple[object, ...]:
    """The row of a disruption."""
    stop = city.stops[each.stop].id if each.stop >= 0 else ""
    trip = city.trips[each.trip].id if each.trip >= 0 else ""
    return (
        each.kind,
        trip or each.road or stop,
        stop if trip else "",
        each.from_s or "",
        "" if each.until_s is None else each.until_s,
        each.factor if each.kind == SLOW else "",
        "" if each.day is None else each.day,
    )


def _by_id(rows: list[Row], column: str, known: list[str]) -> dict[str, Row]:
    """The rows of a table by id; each id must be known and may appear once."""
    ids, found = dict.fromkeys(known, True), dict[str, Row]()
    for row in rows:
        row.one_of(column, ids, column.removesuffix("_id"))
        if row[column] in found:
            raise InputError(f"{row.where}: {row[column]} appears twice")
        found[row[column]] = row
    return found


def _named(kind: str, things: tuple[Named, ...], rows: Rows) -> tuple[Named, ...]:
    own = [row for row in rows["names.csv"] if row["kind"] == kind]
    found = _by_id(own, "id", [each.id for each in things])
    named = []
    for each in things:
        row = found.get(each.id)
        if row is not None:
            each = replace(each, source=row["source_id"])
            if not isinstance(each, Trip):
                each = replace(each, name=row["name"])
        named.append(each)
    return tuple(named)


def _detailed(trip: Trip, row: Row) -> Trip:
    return replace(trip, vehicle=row.number("vehicle", int), block=row["block_id"])


def _points(row: Row) -> tuple[tuple[float, float], ...]:
    try:
        pairs = [point.split(",") for point in row["points"].split()]
        return tuple((float(x), float(y)) for x, y in pairs)
    except ValueError:
        raise InputError(
            f"{row.where}: points must be {RANGES['road_shapes.csv']['points']}"
        ) from None


def _vehicle_row(vehicle: Vehicle) -> tuple[object, ...]:
    if not vehicle.plain_doors:
        raise InputError(
            "vehicles.csv: only the bus type of the manifest may have opening_s, "
            "alighting_s_per_passenger or crowding_s_per_passenger"
        )
    return tuple(getattr(vehicle, key) for key in VEHICLE)


def _vehicle(row: Row) -> Vehicle:
    """A bus type. A whole number stays whole, because hashes depend on it."""
    values = {}
    for key in VEHICLE:
        number = row.number(key, float)
        values[key] = int(number) if row[key].isdigit() else number
    return Vehicle(**values)  # type: ignore[arg-type]


def _slow_ways(city: City) -> Iterator[tuple[Service, list[list[float]]]]:
    """Each service with the slowness of the ways between its stops."""
    if city.slowness is not None:
        first = service_stop_offsets(city)
        for service, start, end in zip(city.services, first[:-1], first[1:], strict=True):
            yield service, city.slowness[start : end - 1].tolist()


def _slowness(city: City, rows: list[Row]) -> Floats | None:
    if not rows:
        return None
    first, hours = service_stop_offsets(city).tolist(), hours_of(city)
    services = {service.id: i for i, service in enumerate(city.services)}
    slowness, seen = np.ones((first[-1], hours)), set[tuple[int, int]]()
    for row in rows:
        service, hour = row.one_of("service_id", services, "service"), row.number("hour", int)
        place = first[service] + row.number("stop_sequence", int)
        if place >= first[service + 1] - 1:
            raise InputError(
                f"{row.where}: {row['service_id']} goes nowhere from stop {row['stop_sequence']}"
            )
        if hour >= hours:
            raise InputError(f"{row.where}: the day has {hours} hours, numbered from 0")
        if (place, hour) in seen:
            raise InputError(f"{row.where}: the same stop and hour appear twice")
        seen.add((place, hour))
        slowness[place, hour] = row.number("factor", float)
    return slowness


def _schedule(city: City, rows: list[Row]) -> Ints | None:
    if not rows:
        return None
    first = visit_offsets(city).tolist()
    trips = {trip.id: i for i, trip in enumerate(city.trips)}
    due_s = np.full(first[-1], -1, np.int32)
    for row in rows:
        trip, position = row.one_of("trip_id", trips, "trip"), row.number("stop_sequence", int)
        visit = first[trip] + position
        if not 0 <= position < first[trip + 1] - first[trip]:
            raise InputError(f"{row.where}: {row['trip_id']} has no stop {position}")
        if due_s[visit] >= 0:
            raise InputError(f"{row.where}: stop {position} of {row['trip_id']} appears twice")
        due_s[visit] = row.number("due_s", int)
    if (due_s < 0).any():
        trip = int(np.searchsorted(first, int(np.argmax(due_s < 0)), side="right")) - 1
        raise InputError(f"schedule.csv: {city.trips[trip].id} has no time at one of its stops")
    return due_s
