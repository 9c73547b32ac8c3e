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

import numpy as np
import numpy.typing as npt

from evenline.city.geometry import Floats as Floats
from evenline.city.geometry import Origin as Origin
from evenline.city.operations import USUAL_OPERATIONS, Operations

Ints = npt.NDArray[np.int32]


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

    `vehicle` is its bus type, a position in `City.vehicles`; `duty` names those of one vehicle.
    """

    id: str
    service: int
    departure_s: int
    vehicle: int = 0
    duty: str = ""
    source: str = ""


@dataclass(frozen=True)
class Vehicle:
    """A bus type.

    Everybody needs as long at the door, unless one of the last three says more of the doors.
    """

    capacity: int = 50
    min_dwell_s: float = 12
    exchange_s_per_passenger: float = 4
    length_m: float = 12.0
    max_speed_mps: float = 13.9
    accel_mps2: float = 1.2
    decel_mps2: float = 2.5
    opening_s: float = 0.0  # to open and close the doors, when anybody gets on or off
    alighting_s_per_passenger: float | None = None  # where the exchange is only boarding
    crowding_s_per_passenger: float = 0.0  # added for each person on board when the bus comes

    @property
    def exchange_ms(self) -> int:
        """The milliseconds that one person needs at the door; SUMO counts in them too."""
        return round(1000 * self.exchange_s_per_passenger)

    @property
    def alighting_ms(self) -> int:
        """The milliseconds of one person who gets off."""
        seconds = self.alighting_s_per_passenger
        return self.exchange_ms if seconds is None else round(1000 * seconds)

    @property
    def plain_doors(self) -> bool:
        """Whether the doors are those that SUMO has too."""
        return self.alighting_s_per_passenger is None and not (
            self.opening_s or self.crowding_s_per_passenger
        )

    def base_dwell_s(self, boarding: int, alighting: int = 0, load: int = 0) -> int:
        """The seconds to let people on and off, rounded up: buses leave at whole seconds.

        `load` is how many are on board when the bus comes.
        """
        people = boarding + alighting
        stands_ms = self.exchange_ms * boarding + self.alighting_ms * alighting
        if people:
            more_ms = round(1e6 * self.crowding_s_per_passenger) * load // 1000
            stands_ms += round(1000 * self.opening_s) + more_ms * people
        return max(math.ceil(self.min_dwell_s), -(-stands_ms // 1000))


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
    trip. Every result repeats the `notes`. `slowness` says how many times slower than its driver
    would a bus in SUMO drives from each place of a service to the next stop, by the hour in which
    it leaves; below 1 it is faster, up to the limit of the street. `late_starts_s` has quantiles of
    how late trips start, by service, hour and rank; without it all are ready when they are due.
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
    slowness: Floats | None = None
    late_starts_s: Floats | None = None

    def __post_init__(self) -> None:
        from evenline.city.soundness import check_sound  # it knows our types

        check_sound(self)

    @cached_property
    def routes(self) -> int:
        """The number of routes."""
        return len({service.route for service in self.services})

    @cached_property
    def first_routes(self) -> Ints:
        """The route on which each journey begins, numbered as routes first appear."""
        number: dict[str, int] = {}
        of_service = [number.setdefault(s.route, len(number)) for s in self.services]
        of_set = np.array(
            [of_service[services[0]] for services in self.journeys.carriers], np.int32
        )
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

    @property
    def service_end_s(self) -> int:
        """When the last trip is due to leave its first stop; at the latest the horizon."""
        last_s = max((trip.departure_s for trip in self.trips), default=self.horizon_s)
        return min(last_s, self.horizon_s)

    def headway_targets(self) -> tuple[Floats, Floats]:
        """The target headway of each trip to the previous and to the next one (0 if none)."""
        ahead, behind = np.zeros(len(self.trips)), np.zeros(len(self.trips))
        for trips in self.trips_of:
            for first, second in itertools.pairwise(trips):
                gap = self.trips[second].departure_s - self.trips[first].departure_s
                behind[first] = ahead[second] = gap
        return ahead, behind


def road_ways(city: City) -> dict[str, list[tuple[float, float]]]:
    """The points of each road from its start to its end, in metres."""
    nodes = {node.id: (node.x_m, node.y_m) for node in city.nodes}
    return {r.id: [nodes[r.from_node], *r.shape, nodes[r.to_node]] for r in city.roads}


def streets_of_routes(city: City) -> list[tuple[list[tuple[float, float]], set[str]]]:
    """The streets that buses use, with the routes on each.

    Both directions of a straight street are one.
    """
    ways, roads = road_ways(city), {road.id: road for road in city.roads}
    streets: dict[tuple[str, ...], tuple[list[tuple[float, float]], set[str]]] = {}
    for service in city.services:
        for road in map(roads.__getitem__, service.roads):
            ends = sorted((road.from_node, road.to_node))
            street = streets.setdefault(
                (road.id,) if road.shape else tuple(ends), (ways[road.id], set())
            )
            street[1].add(service.route)
    return list(streets.values())


def doors_of(city: City) -> Ints:
    """Milliseconds to open the doors of each trip's bus and of one who alights, and microseconds of
    crowding; no rows if all doors are plain.
    """
    if all(vehicle.plain_doors for vehicle in city.vehicles):
        return np.zeros((0, 3), np.int32)
    rows = [
        (round(1000 * v.opening_s), v.alighting_ms, round(1e6 * v.crowding_s_per_passenger))
        for v in map(city.vehicle_of, range(len(city.trips)))
    ]
    return np.array(rows, np.int32)


def segments(city: City) -> Ints:
    """The number of the way from each place of a service to its next stop.

    Services that go from one and the same stop to the next share it. A last stop has none: -1.
    """
    number: dict[tuple[int, int], int] = {}
    numbers = []
    for service in city.services:
        numbers += [
            number.setdefault(pair, len(number)) for pair in itertools.pairwise(service.stops)
        ]
        numbers.append(-1)
    return np.array(numbers, np.int32)


def visit_offsets(city: City) -> Ints:
    """The offset of each trip in a table of all stop visits, and their number."""
    stops = [len(city.services[trip.service].stops) for trip in city.trips]
    return np.concatenate([[0], np.cumsum(stops)]).astype(np.int32)


def service_positions(services: Sequence[Service]) -> dict[tuple[int, int], int]:
    """The position of each stop within each service, by (service, stop)."""
    return {
        (index, stop): position
        for index, service in enumerate(services)
        for position, stop in enumerate(service.stops)
    }
