"""What makes a city consistent. A `City` that fails one of these checks cannot be built.

Every check names the table, the row and the value at fault, and says what to do.
"""

import math
from itertools import accumulate, pairwise

import numpy as np

from evenline.city.model import City, Road, Service, Trip, service_positions, visit_offsets
from evenline.city.operations import (
    BREAKDOWN,
    CANCELLED,
    CLOSED,
    HOLD_AT,
    KINDS,
    LEAST_SLOWNESS,
    LONGEST_HOLD_S,
    MOST_SLOW,
    SLOW,
    Disruption,
)
from evenline.city.ranges import ROAD_M
from evenline.city.schedule import hours_of
from evenline.city.starts import MOST_S, RANKS
from evenline.support.errors import InputError, choice


def check_sound(city: City) -> None:
    """Refuse a city that contradicts itself."""
    _check_every_name(city)
    _check_day(city)
    _check_fleet(city)
    _check_due(city)
    _check_slowness(city)
    _check_starts(city)
    _check_operations(city)
    _check_places(city)
    _check_journeys(city)
    _check_traffic(city)


def _check_day(city: City) -> None:
    if not city.trips:
        raise InputError("trips: the timetable is empty")
    if city.vehicle.capacity < 1:
        raise InputError(f"vehicle: capacity {city.vehicle.capacity} must be at least 1")
    first = min(trip.departure_s for trip in city.trips)
    if city.horizon_s <= first:
        raise InputError(
            f"horizon_s {city.horizon_s}: must be later than the first trip at {first} s"
        )
    last: dict[int, Trip] = {}
    for row, trip in enumerate(city.trips, 1):
        before = last.get(trip.service)
        if trip.departure_s < 0 or trip.departure_s >= city.horizon_s:
            raise InputError(
                f"trips row {row} ({trip.id}): departure {trip.departure_s} s is outside the day "
                f"of {city.horizon_s} s"
            )
        if before is not None and trip.departure_s <= before.departure_s:
            raise InputError(
                f"trips row {row} ({trip.id}): departure {trip.departure_s} s is not after "
                f"{before.id} at {before.departure_s} s; list trips in order of departure"
            )
        last[trip.service] = trip


def _check_fleet(city: City) -> None:
    for row, vehicle in enumerate(city.more_vehicles, 1):
        if vehicle.capacity < 1:
            raise InputError(f"vehicles row {row}: capacity {vehicle.capacity} must be at least 1")
    for row, trip in enumerate(city.trips, 1):
        if not 0 <= trip.vehicle < len(city.vehicles):
            raise InputError(
                f"trips row {row} ({trip.id}): vehicle {trip.vehicle} is not one of the "
                f"{len(city.vehicles)} bus types; the first is 0"
            )


def _check_due(city: City) -> None:
    if city.due_s is None:
        return
    first = visit_offsets(city)
    if city.due_s.shape != (first[-1],):
        raise InputError(f"schedule: has {city.due_s.size:,} times; expected {first[-1]:,}")
    later = np.diff(city.due_s) >= 0
    later[first[1:-1] - 1] = True  # from one trip to the next
    if not later.all():
        visit = int(np.argmin(later)) + 1
        trip = int(np.searchsorted(first, visit, side="right")) - 1
        raise InputError(
            f"schedule row {visit + 1} ({city.trips[trip].id}): {city.due_s[visit]} s is before "
            "the time at the previous stop"
        )


def _check_slowness(city: City) -> None:
    if city.slowness is None:
        return
    if city.own_buses:
        raise InputError("slowness: the buses of a SUMO scenario drive as it says; remove it")
    places = sum(len(service.stops) for service in city.services)
    if city.slowness.shape != (places, hours_of(city)):
        raise InputError(
            f"slowness: has {city.slowness.shape}; expected {places} places, {hours_of(city)} hours"
        )
    if not ((city.slowness >= LEAST_SLOWNESS) & (city.slowness <= MOST_SLOW)).all():
        raise InputError(f"slowness: factors must be from {LEAST_SLOWNESS} to {MOST_SLOW:g}")


def _check_starts(city: City) -> None:
    late_s, shape = city.late_starts_s, (len(city.services), hours_of(city), len(RANKS))
    if late_s is None:
        return
    if city.own_buses:
        raise InputError("starts: the buses of a SUMO scenario start as it says; remove it")
    if late_s.shape != shape:
        raise InputError(
            f"starts: has {late_s.shape}; expected {shape}: services, hours, quantiles"
        )
    if not (np.abs(late_s) <= MOST_S).all():  # also refuses NaN
        raise InputError(f"starts: lateness must be from {-MOST_S:g} to {MOST_S:g} s")
    if not (np.diff(late_s, axis=2) >= 0).all():
        service, hour, _ = np.argwhere(np.diff(late_s, axis=2) < 0)[0]
        raise InputError(
            f"starts: {city.services[service].id}, hour {hour}: the quantiles must not fall"
        )


def _check_operations(city: City) -> None:
    o = city.operations
    if o.hold_at not in HOLD_AT:
        raise InputError(f"operations: hold_at {o.hold_at!r}; choose {choice(HOLD_AT)}")
    for name, value, most in (
        ("max_hold_s", o.max_hold_s, LONGEST_HOLD_S),
        ("most_load", o.most_load, 1.0),
        ("ignored_share", o.ignored_share, 1.0),
        ("cut_share", o.cut_share, 1.0 - o.ignored_share),
        ("round_s", o.round_s, LONGEST_HOLD_S),
        ("cancelled_share", o.cancelled_share, 1.0),
        ("recovery_s", o.recovery_s, float(city.horizon_s)),
    ):
        if not 0.0 <= value <= most:
            raise InputError(f"operations: {name} {value} must be from 0 to {most:g}")
    for name, allowance_s in (("earliest_s", o.earliest_s), ("latest_s", o.latest_s)):
        if allowance_s is not None and city.due_s is None:
            raise InputError(f"operations: {name} needs a schedule; add schedule.csv")
        if allowance_s is not None and not math.isfinite(allowance_s):
            raise InputError(f"operations: {name} {allowance_s} must be a finite number")
    if o.earliest_s is not None and o.latest_s is not None and o.earliest_s + o.latest_s < 0.0:
        raise InputError(
            f"operations: earliest_s {o.earliest_s} and latest_s {o.latest_s}: the earliest "
            "departure is after the latest; their sum must be at least 0"
        )
    for row, point in enumerate(o.control_points, 1):
        if not 0.0 <= point.max_hold_s <= LONGEST_HOLD_S:
            raise InputError(
                f"control_points row {row}: max_hold_s {point.max_hold_s} must be from 0 to "
                f"{LONGEST_HOLD_S:g}"
            )
    for row, event in enumerate(o.disruptions, 1):
        _check_disruption(city, f"disruptions row {row}", event)


def _check_disruption(city: City, where: str, event: Disruption) -> None:
    if event.kind not in KINDS:
        raise InputError(f"{where}: kind {event.kind!r}; choose {choice(KINDS)}")
    if event.kind in (CANCELLED, BREAKDOWN) and not 0 <= event.trip < len(city.trips):
        raise InputError(f"{where}: {event.kind} needs a trip of the city")
    if event.kind == CANCELLED and (event.from_s, event.until_s) != (0, None):
        raise InputError(f"{where}: a trip is cancelled as a whole; leave from_s and until_s empty")
    if event.kind == BREAKDOWN and event.stop >= 0:
        trip = city.trips[event.trip]
        if event.stop not in city.services[trip.service].stops[:-1]:
            raise InputError(
                f"{where}: a bus breaks down before the last stop of its trip; name one of the "
                f"other stops of {trip.id}"
            )
    if event.kind == CLOSED and not any(event.stop in s.stops[1:-1] for s in city.services):
        raise InputError(
            f"{where}: a stop is closed to the buses that pass it; name one that is not only the "
            "first or last stop of services"
        )
    if event.kind == SLOW:
        if all(road.id != event.road for road in city.roads):
            raise InputError(f"{where}: no road {event.road}")
        if not 1.0 <= event.factor <= MOST_SLOW:
            raise InputError(f"{where}: factor {event.factor} must be from 1 to {MOST_SLOW:g}")
    if event.until_s is not None and not 0 <= event.from_s < event.until_s:
        raise InputError(f"{where}: until_s {event.until_s} must be after from_s {event.from_s}")


def _check_places(city: City) -> None:
    _check_spots("nodes", [(node.x_m, node.y_m) for node in city.nodes])
    _check_spots("stops", [(stop.x_m, stop.y_m) for stop in city.stops])
    nodes = {node.id for node in city.nodes}
    roads = {road.id: road for road in city.roads}
    for row, road in enumerate(city.roads, 1):
        for end in (road.from_node, road.to_node):
            if end not in nodes:
                raise InputError(f"roads row {row} ({road.id}): no node {end}")
        if not ROAD_M.low <= road.length_m <= ROAD_M.high:
            raise InputError(
                f"roads row {row} ({road.id}): length_m {road.length_m} must be {ROAD_M}"
            )
    for row, stop in enumerate(city.stops, 1):
        if stop.road not in roads:
            raise InputError(f"stops row {row} ({stop.id}): no road {stop.road}")
        if not ROAD_M.low <= stop.pos_m <= roads[stop.road].length_m:
            raise InputError(
                f"stops row {row} ({stop.id}): pos_m {stop.pos_m} is not on road {stop.road}, "
                f"which is {roads[stop.road].length_m} m long"
            )
    for row, service in enumerate(city.services, 1):
        _check_service(city, row, service, roads)


def _check_every_name(city: City) -> None:
    for kind, ids in (
        ("nodes", [node.id for node in city.nodes]),
        ("roads", [road.id for road in city.roads]),
        ("stops", [stop.id for stop in city.stops]),
        ("services", [service.id for service in city.services]),
        ("trips", [trip.id for trip in city.trips]),
    ):
        _check_names(kind, ids)


def _check_names(kind: str, names: list[str]) -> None:
    seen: set[str] = set()
    for row, name in enumerate(names, 1):
        if not name or not name.isprintable() or " " in name:
            raise InputError(
                f"{kind} row {row}: {name!r} is not a name; use printable characters without spaces"
            )
        if name in seen:
            raise InputError(f"{kind} row {row}: {name} appears twice")
        seen.add(name)


def _check_spots(kind: str, spots: list[tuple[float, float]]) -> None:
    for row, (x_m, y_m) in enumerate(spots, 1):
        if not (np.isfinite(x_m) and np.isfinite(y_m)):
            raise InputError(f"{kind} row {row}: coordinates {x_m}, {y_m} must be finite numbers")


def _check_service(city: City, row: int, service: Service, roads: dict[str, Road]) -> None:
    where = f"services row {row} ({service.id})"
    if len(service.stops) < 2:
        raise InputError(f"{where}: needs at least two stops, has {len(service.stops)}")
    if len(set(service.stops)) != len(service.stops):
        twice = next(stop for stop in service.stops if service.stops.count(stop) > 1)
        raise InputError(
            f"{where}: serves stop {city.stops[twice].id} twice; give the second visit a stop of "
            "its own at the same place"
        )
    for road in service.roads:
        if road not in roads:
            raise InputError(f"{where}: no road {road}")
    for first, second in pairwise(service.roads):
        if roads[first].to_node != roads[second].from_node:
            raise InputError(f"{where}: road {second} does not start where {first} ends")
    for before, after in pairwise(service.distance_m):
        if after <= before:
            raise InputError(
                f"{where}: the stop at {after} m follows the one at {before} m; "
                "list stops in order of distance"
            )
    lengths = [roads[road].length_m for road in service.roads]
    starts: dict[str, list[float]] = {}  # a service may use a road twice
    for road, start_m in zip(service.roads, accumulate(lengths, initial=0.0), strict=False):
        starts.setdefault(road, []).append(start_m)
    for stop, distance_m in zip(service.stops, service.distance_m, strict=True):
        place = city.stops[stop]
        if place.road not in starts:
            raise InputError(f"{where}: stop {place.id} is not on any road of the service")
        lies_m = min(
            (start_m + place.pos_m for start_m in starts[place.road]),
            key=lambda at_m: abs(at_m - distance_m),
        )
        if not abs(lies_m - distance_m) <= 1.0:
            raise InputError(
                f"{where}: stop {place.id} is at {lies_m:.1f} m by its road, but "
                f"shape_dist_traveled_m says {distance_m} m"
            )
    if not abs(sum(lengths) - service.length_m) <= 1.0:
        raise InputError(f"{where}: length_m {service.length_m} differs from the sum of its roads")


def _check_journeys(city: City) -> None:
    journeys = city.journeys
    if not len(journeys):
        return
    fine = np.isfinite(journeys.min_demand) & (journeys.min_demand >= 0)
    if not fine.all():
        row = int(np.argmin(fine))
        raise InputError(
            f"passengers row {row + 1}: min_demand {journeys.min_demand[row]} must be at least 0"
        )
    outside = (journeys.departure_s < 0) | (journeys.departure_s >= city.horizon_s)
    if outside.any():
        row = int(np.argmax(outside))
        raise InputError(
            f"passengers row {row + 1}: departure {journeys.departure_s[row]} s is outside the "
            f"day of {city.horizon_s} s"
        )
    if (np.diff(journeys.departure_s) < 0).any():
        row = int(np.argmax(np.diff(journeys.departure_s) < 0)) + 1
        raise InputError(
            f"passengers row {row + 1}: departs before the row above; sort the table by departure_s"
        )
    if (np.diff(journeys.leg_start) < 1).any():
        row = int(np.argmax(np.diff(journeys.leg_start) < 1))
        raise InputError(f"passengers row {row + 1}: has no leg")
    places = service_positions(city.services)
    legs = np.stack([journeys.leg_board, journeys.leg_alight, journeys.leg_carriers], axis=1)
    low = legs.min(axis=0)
    size = (legs.max(axis=0) - low + 1).astype(np.int64)
    kind = np.ravel_multi_index(tuple((legs - low).T), tuple(size))
    _, first = np.unique(kind, return_index=True)
    for row in np.sort(first).tolist():  # every kind of leg once, where it first appears
        _check_leg(city, places, row + 1, *legs[row].tolist())
    onward = np.ones(len(legs), bool)
    onward[journeys.leg_start[:-1]] = onward[0] = False
    inner = np.flatnonzero(onward)
    apart = journeys.leg_alight[inner - 1] != journeys.leg_board[inner]
    if apart.any():
        raise InputError(
            f"legs row {inner[apart][0] + 1}: does not start where the previous leg ends"
        )


def _check_leg(
    city: City, places: dict[tuple[int, int], int], row: int, board: int, alight: int, carriers: int
) -> None:
    services = city.journeys.carriers[carriers]
    if not services:
        raise InputError(f"legs row {row}: no service carries this leg")
    for service in services:
        start, end = places.get((service, board)), places.get((service, alight))
        if start is None or end is None or end <= start:
            raise InputError(
                f"legs row {row}: {city.services[service].id} does not go from "
                f"{city.stops[board].id} to {city.stops[alight].id}"
            )


def _check_traffic(city: City) -> None:
    roads = {road.id: road for road in city.roads}
    rows = zip(city.traffic.routes, city.traffic.weights, strict=True)
    for row, (route, weight) in enumerate(rows, 1):
        if not (np.isfinite(weight) and weight >= 0):
            raise InputError(f"car_routes row {row}: weight {weight} must be at least 0")
        for road in route:
            if road not in roads:
                raise InputError(f"car_routes row {row}: no road {road!r}")
        for first, second in pairwise(route):
            if roads[first].to_node != roads[second].from_node:
                raise InputError(
                    f"car_routes row {row}: road {second} does not start where {first} ends"
                )
