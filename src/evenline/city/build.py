"""Build a city from a plan on a grid of streets: roads, signals, stops, timetable, cars.

The plan and its seed determine every byte: we use only uniform draws of a PCG64 stream, in a fixed
order. `demand` makes the journeys.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenline.city.demand import DemandPlan, Peaks, make_journeys
from evenline.city.model import City, Node, Road, Service, Stop, Traffic, Trip, Vehicle

Corner = tuple[int, int]

_STOP_CLEAR_OF_JUNCTION_M = 60.0
_STUB_SHARE = 0.4  # side streets end after this share of a block
SIGNAL_CYCLE_S = 90


@dataclass(frozen=True)
class ServicePlan:
    """One directional service: the corners it passes and a short form of its timetable."""

    id: str
    route: str
    corners: tuple[Corner, ...]
    stops: int
    trips: int
    first_departure_s: int
    last_departure_s: int
    even: bool = False
    express: tuple[Corner, ...] = ()  # no stop on the way between these corners


@dataclass(frozen=True)
class CityPlan:
    """A city before it is built."""

    name: str
    seed: int
    horizon_s: int
    block_m: float
    services: tuple[ServicePlan, ...]
    unsignalled: frozenset[Corner]
    bus_lanes: tuple[tuple[Corner, ...], ...]
    cars_per_hour: tuple[float, ...]
    busy: Peaks  # when services that are not even run closer together
    demand: DemandPlan
    car_routes: int = 200


def build(plan: CityPlan) -> City:
    """Build the city of a plan."""
    layout_rng, stop_rng, trip_rng, car_rng, people_rng = (
        np.random.Generator(np.random.PCG64([plan.seed, stream])) for stream in range(5)
    )
    nodes, roads = _lay_streets(plan, layout_rng)
    stops, services = _place_stops(plan, nodes, roads, stop_rng)
    trips = _make_timetable(plan, trip_rng)
    return City(
        name=plan.name,
        horizon_s=plan.horizon_s,
        vehicle=Vehicle(),
        nodes=tuple(nodes.values()),
        roads=tuple(roads.values()),
        stops=stops,
        services=services,
        trips=trips,
        journeys=make_journeys(plan.demand, services, trips, plan.horizon_s, people_rng),
        traffic=_make_traffic(plan, roads, car_rng),
    )


def legs_of(corners: Sequence[Corner]) -> list[Corner]:
    """All grid corners on a path given by its turning points."""
    way = [corners[0]]
    for col, row in corners[1:]:
        while way[-1] != (col, row):
            c, r = way[-1]
            if c != col and r != row:
                raise ValueError(f"from {way[-1]} to {(col, row)} is not along one street")
            way.append((c + int(np.sign(col - c)), r + int(np.sign(row - r))))
    return way


def _node_id(corner: Corner) -> str:
    def part(number: int) -> str:
        return f"m{-number}" if number < 0 else str(number)

    return f"n{part(corner[0])}_{part(corner[1])}"


def _road_id(start: str, end: str) -> str:
    return f"{start}-{end}"


def _lay_streets(
    plan: CityPlan, rng: np.random.Generator
) -> tuple[dict[str, Node], dict[str, Road]]:
    ways = [legs_of(service.corners) for service in plan.services]
    corners = sorted({corner for way in ways for corner in way})
    streets = {tuple(sorted(pair)) for way in ways for pair in itertools.pairwise(way)}
    lanes = {
        tuple(sorted(pair))
        for way in map(legs_of, plan.bus_lanes)
        for pair in itertools.pairwise(way)
    }
    nodes: dict[str, Node] = {}
    for corner in corners:
        dx, dy, offset = rng.random(3)
        nodes[_node_id(corner)] = Node(
            _node_id(corner),
            round((corner[0] + 0.24 * (dx - 0.5)) * plan.block_m, 1),
            round((corner[1] + 0.24 * (dy - 0.5)) * plan.block_m, 1),
            signal=corner not in plan.unsignalled,
            offset_s=int(offset * SIGNAL_CYCLE_S),
        )
    roads: dict[str, Road] = {}

    def lay(start: Node, end: Node, bus_lane: bool) -> None:
        length = round(float(np.hypot(start.x_m - end.x_m, start.y_m - end.y_m)), 1)
        for a, b in ((start, end), (end, start)):
            road = Road(_road_id(a.id, b.id), a.id, b.id, length, bus_lane)
            roads[road.id] = road

    for first, second in sorted(streets):
        lay(nodes[_node_id(first)], nodes[_node_id(second)], (first, second) in lanes)
    for corner in corners:
        node = nodes[_node_id(corner)]
        if not node.signal:
            continue
        for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1)):
            beside = (corner[0] + dx, corner[1] + dy)
            if tuple(sorted((corner, beside))) in streets:
                continue
            reach = _STUB_SHARE * plan.block_m
            end = Node(
                f"{node.id}{'ENWS'[((1, 0), (0, 1), (-1, 0), (0, -1)).index((dx, dy))]}",
                round(node.x_m + dx * reach, 1),
                round(node.y_m + dy * reach, 1),
                signal=False,
            )
            nodes[end.id] = end
            lay(node, end, bus_lane=False)
    return nodes, roads


def _place_stops(
    plan: CityPlan, nodes: dict[str, Node], roads: dict[str, Road], rng: np.random.Generator
) -> tuple[tuple[Stop, ...], tuple[Service, ...]]:
    """Give each service its number of stops; stops already on its roads are shared.

    A new stop goes to the middle of the widest gap, moved to the nearest position that is clear of
    junctions and of express stretches.
    """
    stops: list[Stop] = []
    on_road: dict[str, list[int]] = defaultdict(list)
    services: list[Service] = []
    for service in plan.services:
        way = [_node_id(corner) for corner in legs_of(service.corners)]
        path = [roads[_road_id(a, b)] for a, b in itertools.pairwise(way)]
        starts = np.concatenate([[0.0], np.cumsum([road.length_m for road in path])])
        express = legs_of(service.express) if service.express else []
        closed = {_road_id(_node_id(a), _node_id(b)) for a, b in itertools.pairwise(express)}
        served = [
            (float(starts[i]) + stops[s].pos_m, s)
            for i, road in enumerate(path)
            for s in on_road[road.id]
        ]

        def add(
            at_m: float,
            path: list[Road] = path,
            starts: np.ndarray = starts,
            served: list[tuple[float, int]] = served,
        ) -> None:
            index = int(np.searchsorted(starts, at_m, side="right")) - 1
            road, pos = path[index], round(at_m - float(starts[index]), 1)
            x, y = _point(nodes, road, pos)
            stops.append(Stop(f"s{len(stops):03d}", road.id, pos, x, y))
            on_road[road.id].append(len(stops) - 1)
            served.append((at_m, len(stops) - 1))
            served.sort()

        places = _open_places(path, starts, closed)
        for at_m, here in ((places[0], path[0]), (places[-1], path[-1])):
            if not on_road[here.id]:
                add(float(at_m))
        while len(served) < service.stops:
            add(_widest_gap(served, places, rng))
        services.append(
            Service(
                service.id,
                service.route,
                tuple(stop for _, stop in served),
                tuple(round(at, 1) for at, _ in served),
                tuple(road.id for road in path),
                round(float(starts[-1]), 1),
            )
        )
    return tuple(stops), tuple(services)


def _open_places(path: list[Road], starts: np.ndarray, closed: set[str]) -> np.ndarray:
    spans = [
        np.arange(
            starts[i] + _STOP_CLEAR_OF_JUNCTION_M,
            starts[i] + road.length_m - _STOP_CLEAR_OF_JUNCTION_M,
            1.0,
        )
        for i, road in enumerate(path)
        if road.id not in closed
    ]
    return np.round(np.concatenate(spans), 1)


def _widest_gap(
    served: list[tuple[float, int]], places: np.ndarray, rng: np.random.Generator
) -> float:
    """The free position nearest the middle of the widest gap, with a small random offset."""
    at = np.array([a for a, _ in served])
    clear = np.abs(places[:, None] - at[None, :]).min(axis=1)
    best = float(clear.max())
    near = places[clear >= 0.9 * best]
    return float(near[int(rng.random() * len(near))])


def _point(nodes: dict[str, Node], road: Road, pos_m: float) -> tuple[float, float]:
    a, b = nodes[road.from_node], nodes[road.to_node]
    share = pos_m / road.length_m
    return round(a.x_m + share * (b.x_m - a.x_m), 1), round(a.y_m + share * (b.y_m - a.y_m), 1)


def _make_timetable(plan: CityPlan, rng: np.random.Generator) -> tuple[Trip, ...]:
    """Make the timetable from the plan's first and last departure and number of trips.

    An uneven service has shorter headways in the peaks, on whole minutes, with small irregularities
    as in a real timetable.
    """
    trips: list[Trip] = []
    for index, service in enumerate(plan.services):
        first, last, count = service.first_departure_s, service.last_departure_s, service.trips
        if service.even:
            departures = np.round(np.linspace(first, last, count)).astype(int)
        else:
            clock = np.linspace(first, last, 2001)
            supply = np.cumsum(0.75 + plan.busy.intensity(clock))
            supply = (supply - supply[0]) / (supply[-1] - supply[0])
            even = np.linspace(0, 1, count)
            even[1:-1] += 0.5 * (rng.random(count - 2) - 0.5) / (count - 1)
            departures = (np.interp(even, supply, clock) / 60).round().astype(int) * 60
            departures[0], departures[-1] = first, last
        trips += [
            Trip(f"{service.id}.{number:02d}", index, int(departure))
            for number, departure in enumerate(departures)
        ]
    return tuple(trips)


def _make_traffic(plan: CityPlan, roads: dict[str, Road], rng: np.random.Generator) -> Traffic:
    """Short car trips: mostly straight on, never straight back."""
    onward: dict[str, list[Road]] = defaultdict(list)
    for road in roads.values():
        onward[road.from_node].append(road)
    every = list(roads.values())
    bus_roads = sorted(
        {
            _road_id(_node_id(a), _node_id(b))
            for service in plan.services
            for way in [legs_of(service.corners)]
            for a, b in itertools.pairwise(way)
        }
    )
    entries = [road for road in every if road.id in set(bus_roads)]
    routes: list[tuple[str, ...]] = []
    weights: list[float] = []
    while len(routes) < plan.car_routes:
        road = entries[int(rng.random() * len(entries))]
        route = [road]
        for _ in range(2 + int(rng.random() * 3)):
            options = [r for r in onward[road.to_node] if r.to_node != road.from_node]
            if not options:
                break
            straight = [r for r in options if _same_heading(road, r)]
            pick = straight if straight and rng.random() < 0.75 else options
            road = pick[int(rng.random() * len(pick))]
            route.append(road)
        if len(route) >= 3:
            routes.append(tuple(r.id for r in route))
            weights.append(round(0.5 + float(rng.random()), 3))
    return Traffic(tuple(routes), tuple(weights), plan.cars_per_hour)


def _same_heading(first: Road, second: Road) -> bool:
    """Read the heading from grid names: along a street, one coordinate stays the same."""

    def axis(road: Road) -> int:
        if road.to_node[-1] in "EWNS" or road.from_node[-1] in "EWNS":
            name = road.to_node if road.to_node[-1] in "EWNS" else road.from_node
            return 0 if name[-1] in "EW" else 1
        a, b = road.from_node[1:].split("_"), road.to_node[1:].split("_")
        return 0 if a[1] == b[1] else 1

    return axis(first) == axis(second)
