"""The city: roads, stops, services, timetable, vehicle and journeys.

Plain frozen data. Indices are positions in the tuples of `City`; the many passengers are columns of
arrays. A `City` is consistent: it cannot be built with a stop on no road, a service that runs
backwards, or a journey that no service carries.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from evenline.city.operations import (
    BREAKDOWN,
    CANCELLED,
    CLOSED,
    HOLD_AT,
    KINDS,
    LONGEST_HOLD_S,
    MOST_SLOW,
    SLOW,
    USUAL_OPERATIONS,
    Disruption,
    Operations,
)
from evenline.support.errors import InputError, choice

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Node:
    """A junction; `offset_s` shifts its signal cycle and matters only if `signal` is true."""

    id: str
    x_m: float
    y_m: float
    signal: bool
    offset_s: int = 0


@dataclass(frozen=True)
class Road:
    """One direction of a street. A bus lane is an additional lane at the kerb for buses only."""

    id: str
    from_node: str
    to_node: str
    length_m: float
    bus_lane: bool
    shape: tuple[tuple[float, float], ...] = ()  # points between its nodes, in metres


@dataclass(frozen=True)
class Stop:
    """A bay beside a road where buses stand, `pos_m` from the road's start.

    A loop visits its first stop again as another stop at the same place. `name` is what people call
    it, `source` its id in the data that the city was made from; both may be empty.
    """

    id: str
    road: str
    pos_m: float
    x_m: float
    y_m: float
    name: str = ""
    source: str = ""
    lane: int = 0


@dataclass(frozen=True)
class Service:
    """One direction of a route: its stops in order, their distances from the first road's start,
    its roads.
    """

    id: str
    route: str
    stops: tuple[int, ...]
    distance_m: tuple[float, ...]
    roads: tuple[str, ...]
    length_m: float
    name: str = ""
    source: str = ""


@dataclass(frozen=True)
class Trip:
    """One scheduled run of a service, starting at its first stop.

    `vehicle` is its bus type, a position in `City.vehicles`; `block` names the vehicle's duty.
    """

    id: str
    service: int
    departure_s: int
    vehicle: int = 0
    block: str = ""
    source: str = ""


@dataclass(frozen=True)
class Vehicle:
    """A bus type."""

    capacity: int = 50
    min_dwell_s: float = 12
    exchange_s_per_passenger: float = 4
    length_m: float = 12.0
    max_speed_mps: float = 13.9
    accel_mps2: float = 1.2
    decel_mps2: float = 2.5

    @property
    def exchange_ms(self) -> int:
        """The milliseconds that one person needs at the door; SUMO counts in them too."""
        return round(1000 * self.exchange_s_per_passenger)

    def base_dwell_s(self, people: int) -> int:
        """The seconds to let people on and off, rounded up: buses leave at whole seconds."""
        return max(math.ceil(self.min_dwell_s), -(-self.exchange_ms * people // 1000))


@dataclass(frozen=True, eq=False)
class Journeys:
    """Everyone who may travel, sorted by departure.

    Passenger `p` travels at a demand level of at least `min_demand[p]`, and makes the legs
    `leg_start[p]` up to `leg_start[p + 1]`; leg `l` may be ridden on any service of
    `carriers[leg_carriers[l]]`.
    """

    departure_s: Ints
    min_demand: Floats
    leg_start: Ints
    leg_board: Ints
    leg_alight: Ints
    leg_carriers: Ints
    carriers: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.departure_s)


def no_journeys() -> Journeys:
    """Nobody travels."""
    none, start = np.zeros(0, np.int32), np.zeros(1, np.int32)
    return Journeys(none, np.zeros(0), start, none, none, none, ())


@dataclass(frozen=True)
class Traffic:
    """Cars: their routes with weights, and how many enter each hour."""

    routes: tuple[tuple[str, ...], ...] = ()
    weights: tuple[float, ...] = ()
    cars_per_hour: tuple[float, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The place on earth that coordinates are measured from."""

    lat: float
    lon: float


@dataclass(frozen=True)
class Clock:
    """When second 0 of the day is: seconds after midnight of a service date in a time zone."""

    date: str
    start_s: int
    zone: str


@dataclass(frozen=True)
class Variation:
    """How demand differs from day to day: the journeys are a pool of so many typical days, from
    which each day draws; and the standard deviations of the logarithm of a day's and a route's
    factor.
    """

    days: float
    day_sd: float
    line_sd: float


@dataclass(frozen=True, eq=False)
class Carried:
    """Files of SUMO that a city brings along; they are used as they are.

    `network` is always there, as gzipped XML. `additional` and `routes` are further files of a
    scenario, by name; with `own_buses` they contain the stops and buses of the city too, and
    `options` are the settings of SUMO with which the scenario runs. The scenario's own clock shows
    `begin_s` when the city's day begins.
    """

    network: bytes
    additional: Mapping[str, bytes] = field(default_factory=dict)
    routes: Mapping[str, bytes] = field(default_factory=dict)
    own_buses: bool = False
    begin_s: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class City:
    """A bus network with its timetable and journeys: all that a world needs.

    `due_s` says when each trip should leave each of its stops (at the last one: arrive), trip by
    trip. Every result repeats the `notes`.
    """

    name: str
    horizon_s: int
    vehicle: Vehicle
    nodes: tuple[Node, ...]
    roads: tuple[Road, ...]
    stops: tuple[Stop, ...]
    services: tuple[Service, ...]
    trips: tuple[Trip, ...]
    journeys: Journeys
    traffic: Traffic = field(default_factory=Traffic)
    more_vehicles: tuple[Vehicle, ...] = ()
    due_s: Ints | None = None
    origin: Origin | None = None
    clock: Clock | None = None
    notes: tuple[str, ...] = ()
    carried: Carried | None = None
    operations: Operations = USUAL_OPERATIONS
    variation: Variation | None = None

    def __post_init__(self) -> None:
        _check_every_name(self)
        _check_day(self)
        _check_fleet(self)
        _check_due(self)
        _check_operations(self)
        _check_places(self)
        _check_journeys(self)
        _check_traffic(self)

    @cached_property
    def routes(self) -> int:
        """The number of routes."""
        return len({service.route for service in self.services})

    @cached_property
    def first_routes(self) -> Ints:
        """The route on which each journey begins, numbered as routes first appear."""
        number: dict[str, int] = {}
        of_service = [number.setdefault(s.route, len(number)) for s in self.services]
        of_set = np.array([of_service[each[0]] for each in self.journeys.carriers], np.int32)
        first = self.journeys.leg_carriers[self.journeys.leg_start[:-1]]
        return of_set[first] if len(first) else np.zeros(0, np.int32)

    @property
    def vehicles(self) -> tuple[Vehicle, ...]:
        """Every bus type; most cities have one."""
        return (self.vehicle, *self.more_vehicles)

    @property
    def own_buses(self) -> bool:
        """Whether the city is a scenario of SUMO that runs its own buses."""
        return self.carried is not None and self.carried.own_buses

    def vehicle_of(self, trip: int) -> Vehicle:
        """The bus type of a trip."""
        return self.vehicles[self.trips[trip].vehicle]

    @cached_property
    def capacities(self) -> Floats:
        """How many people the bus of each trip can carry."""
        return np.array([float(self.vehicle_of(trip).capacity) for trip in range(len(self.trips))])

    def capacity_of(self, service: int) -> int:
        """How many people the largest bus of a service can carry."""
        rooms = [self.vehicle_of(trip).capacity for trip in self.trips_of[service]]
        return max(rooms, default=self.vehicle.capacity)

    @cached_property
    def trips_of(self) -> tuple[tuple[int, ...], ...]:
        """The trips of each service, in timetable order."""
        rows: list[list[int]] = [[] for _ in self.services]
        for index, trip in enumerate(self.trips):
            rows[trip.service].append(index)
        return tuple(tuple(row) for row in rows)

    @cached_property
    def decisions(self) -> int:
        """The number of non-terminal stop visits of a day on which every trip finishes."""
        return sum(len(self.services[trip.service].stops) - 1 for trip in self.trips)

    def headway_targets(self) -> tuple[Floats, Floats]:
        """The target headway of each trip to the previous and to the next one (0 if none)."""
        ahead, behind = np.zeros(len(self.trips)), np.zeros(len(self.trips))
        for trips in self.trips_of:
            for first, second in itertools.pairwise(trips):
                gap = self.trips[second].departure_s - self.trips[first].departure_s
                behind[first] = ahead[second] = gap
        return ahead, behind


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


def road_ways(city: City) -> dict[str, list[tuple[float, float]]]:
    """The points of each road from its start to its end, in metres."""
    nodes = {node.id: (node.x_m, node.y_m) for node in city.nodes}
    return {r.id: [nodes[r.from_node], *r.shape, nodes[r.to_node]] for r in city.roads}


def streets_of_routes(city: City) -> list[tuple[list[tuple[float, float]], set[str]]]:
    """The streets that buses use, with the routes on each.

    Both directions of a straight street are one.
    """
    ways, roads = road_ways(city), {road.id: road for road in city.roads}
    found: dict[tuple[str, ...], tuple[list[tuple[float, float]], set[str]]] = {}
    for service in city.services:
        for road in map(roads.__getitem__, service.roads):
            ends = sorted((road.from_node, road.to_node))
            street = found.setdefault(
                (road.id,) if road.shape else tuple(ends), (ways[road.id], set())
            )
            street[1].add(service.route)
    return list(found.values())


def visit_offsets(city: City) -> Ints:
    """The offset of each trip in a table of all stop visits, and their number."""
    stops = [len(city.services[trip.service].stops) for trip in city.trips]
    return np.concatenate([[0], np.cumsum(stops)]).astype(np.int32)


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
    for row, point in enumerate(o.control_points, 1):
        if not 0.0 <= point.max_hold_s <= LONGEST_HOLD_S:
            raise InputError(
                f"control_points row {row}: max_hold_s {point.max_hold_s} must be from 0 to "
                f"{LONGEST_HOLD_S:g}"
            )
    for row, each in enumerate(o.disruptions, 1):
        _check_disruption(city, f"disruptions row {row}", each)


def _check_disruption(city: City, where: str, each: Disruption) -> None:
    if each.kind not in KINDS:
        raise InputError(f"{where}: kind {each.kind!r}; choose {choice(KINDS)}")
    if each.kind in (CANCELLED, BREAKDOWN) and not 0 <= each.trip < len(city.trips):
        raise InputError(f"{where}: {each.kind} needs a trip of the city")
    if each.kind == BREAKDOWN and each.stop >= 0:
        trip = city.trips[each.trip]
        if each.stop not in city.services[trip.service].stops[:-1]:
            raise InputError(
                f"{where}: a bus breaks down before the last stop of its trip; name one of the "
                f"other stops of {trip.id}"
            )
    if each.kind == CLOSED and not any(each.stop in s.stops[1:-1] for s in city.services):
        raise InputError(
            f"{where}: a stop is closed to the buses that pass it; name one that is not only the "
            "first or last stop of services"
        )
    if each.kind == SLOW:
        if all(road.id != each.road for road in city.roads):
            raise InputError(f"{where}: no road {each.road}")
        if not 1.0 <= each.factor <= MOST_SLOW:
            raise InputError(f"{where}: factor {each.factor} must be from 1 to {MOST_SLOW:g}")
    if each.until_s is not None and not 0 <= each.from_s < each.until_s:
        raise InputError(f"{where}: until_s {each.until_s} must be after from_s {each.from_s}")


def _check_places(city: City) -> None:
    _check_spots("nodes", [(node.x_m, node.y_m) for node in city.nodes])
    _check_spots("stops", [(stop.x_m, stop.y_m) for stop in city.stops])
    nodes = {node.id for node in city.nodes}
    roads = {road.id: road for road in city.roads}
    for row, road in enumerate(city.roads, 1):
        for end in (road.from_node, road.to_node):
            if end not in nodes:
                raise InputError(f"roads row {row} ({road.id}): no node {end}")
        if not (np.isfinite(road.length_m) and road.length_m > 0):
            raise InputError(
                f"roads row {row} ({road.id}): length_m {road.length_m} must be positive"
            )
    for row, stop in enumerate(city.stops, 1):
        if stop.road not in roads:
            raise InputError(f"stops row {row} ({stop.id}): no road {stop.road}")
        if not 0 < stop.pos_m <= roads[stop.road].length_m:
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


def service_positions(services: Sequence[Service]) -> dict[tuple[int, int], int]:
    """The position of each stop within each service, by (service, stop)."""
    return {
        (index, stop): position
        for index, service in enumerate(services)
        for position, stop in enumerate(service.stops)
    }
