"""Make a city from a SUMO scenario: its network, stops, buses and people, seen by our model.

SUMO runs the scenario once, undisturbed; buses with the same line, roads and stops become a
service, those without a line by roads and stops alone, and rides become journeys. The scenario's
files come along and are what SUMO runs later. What the city leaves out is said.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median_low

import numpy as np

from evenline.city.demand import gathered
from evenline.city.geometry import along_m, points_at
from evenline.city.model import (
    Carried,
    City,
    Node,
    Road,
    Service,
    Stop,
    Trip,
    Vehicle,
)
from evenline.city.ranges import ROAD_M
from evenline.importing.configuration import Configuration, packed, read_configuration
from evenline.importing.demand import NOTE
from evenline.importing.ids import clean_ids, free_id
from evenline.importing.imported import Imported
from evenline.importing.people import Person, extra, levelled
from evenline.importing.watched import Bus, Halt, Progress, Watched, watch
from evenline.support.errors import InputError
from evenline.worlds.sumo.carried import Halts, halts, plan_of, read_plans
from evenline.worlds.sumo.config import parsed

_FARTHEST_M = 1e9  # of a coordinate from the network's origin
_ROUND_S = 600  # a day without an end is this much rounded up, so that held buses arrive too
_LINE_IN_ID = re.compile(r"(?:bus|tram|line|linie|metro)[_-]?((\d+)\w*)", re.I)
Point = tuple[float, float]


@dataclass(frozen=True, eq=False)
class _Net:
    """The network of the scenario, by SUMO's ids."""

    nodes: dict[str, Node]
    roads: dict[str, Road]
    shapes: dict[str, tuple[Point, ...]]  # of lanes
    shift: Point


@dataclass(frozen=True)
class _Pattern:
    """What buses of one service have in common, in SUMO's ids."""

    line: str
    route: str
    named: bool  # by the scenario, not by us
    in_id: bool  # if not, whether the vehicle's id contains the line
    roads: tuple[str, ...]
    halts: tuple[str, ...]


def import_scenario(
    path: Path, name: str, end_s: int | None = None, progress: Progress = lambda *_: None
) -> Imported:
    """Read a configuration, run it once, and make its city; `end_s` ends it earlier or later."""
    config = read_configuration(path)
    end_s = config.end_s if end_s is None else end_s
    if end_s is not None and end_s <= config.begin_s:
        raise InputError(f"end {end_s} s: must be after the begin at {config.begin_s} s")
    try:
        net = _network(config)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    _refuse_unplanned(config)
    options = {**config.options, "seed": str(config.seed)}
    if end_s is not None:
        options["end"] = str(end_s)
    carried = Carried(
        network=packed(config.network),
        additional=config.additional,
        routes=config.routes,
        own_buses=True,
        begin_s=config.begin_s,
        options=options,
    )
    try:
        seen = watch(carried, config.seed, end_s, progress)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if end_s is None:
        seen.horizon_s = (seen.horizon_s // _ROUND_S + 1) * _ROUND_S
    return _city(config, net, carried, seen, name)


def _refuse_unplanned(config: Configuration) -> None:
    """Refuse buses whose departures depend on the seed, and people who choose their bus on the way:
    a timetable and its journeys must be the same every day.
    """
    for name, content in {**config.additional, **config.routes}.items():
        if b"<flow" not in content and b"<personTrip" not in content:
            continue
        where, root = config.path.parent / name, parsed(content, name)
        serving = {
            route.get("id") for route in root.iter("route") if route.find("stop") is not None
        }
        for flow in root.iter("flow"):
            serves = flow.find(".//stop") is not None or flow.get("route") in serving
            if serves and (flow.get("probability") or "exp" in flow.get("period", "")):
                raise InputError(
                    f"{where}: flow {flow.get('id')} has random departures; give its buses a "
                    "period or a number"
                )
        if any("public" in trip.get("modes", "") for trip in root.iter("personTrip")):
            raise InputError(f"{where}: has people without a route; route them with duarouter")


def _city(config: Configuration, net: _Net, carried: Carried, seen: Watched, name: str) -> Imported:
    patterns, left_out = _patterns(seen.buses, net, seen.halts)
    if not patterns:
        raise InputError(f"{config.path}: no bus serves two stops; nothing can be held")
    stops, places = _stops(patterns, net, seen.halts)
    services = _services(patterns, net, seen.halts, places)
    trips, vehicles = _trips(patterns, services, seen, carried.begin_s)
    if not trips:
        raise InputError(f"{config.path}: no bus reaches its first stop within the day")
    lines: list[set[str]] = [{service.source} for service in services]
    for trip in trips:
        lines[trip.service].add(trip.source)
    by_id: dict[str, list[int]] = defaultdict(list)
    for index, stop in enumerate(stops):
        by_id[stop.source].append(index)
    roads = {halt.id: halt.lane.rpartition("_")[0] for halt in seen.halts.values()}
    people = _people(carried, halts(by_id, roads, stops, services, lines), seen)
    city = City(
        name=name,
        horizon_s=seen.horizon_s,
        vehicle=vehicles[0],
        nodes=tuple(net.nodes.values()),
        roads=tuple(net.roads.values()),
        stops=stops,
        services=services,
        trips=trips,
        journeys=gathered((), services),
        more_vehicles=tuple(vehicles[1:]),
        origin=seen.origin if net.shift == (0.0, 0.0) else None,
        notes=("network, stops, buses and traffic are those of a SUMO scenario",),
        carried=carried,
    )
    routes = dict.fromkeys(service.route for service in services)
    remarks = (
        f"{len(routes):,} lines: {', '.join(routes)}",
        f"{len(services):,} services, {len(stops):,} stops, {len(trips):,} trips of "
        f"{len(vehicles):,} bus types, {len(people):,} journeys, a day of {city.horizon_s:,} s",
    )
    return Imported(_with_rides(city, people), (*remarks, *left_out))


# -- the network ----------------------------------------------------------------------------------


def _network(config: Configuration) -> _Net:
    root = parsed(config.network, str(config.path))
    if root.tag != "net":
        raise InputError(f"{config.path}: its net-file is not a SUMO network")
    junctions = {
        junction.get("id", ""): junction
        for junction in root.iter("junction")
        if junction.get("type") != "internal"
    }
    edges = [
        edge
        for edge in root.iter("edge")
        if not edge.get("function")
        and edge.get("from") in junctions
        and edge.get("to") in junctions
    ]
    node_ids = clean_ids(junctions)
    road_ids = clean_ids(edge.get("id", "") for edge in edges)
    spots = {name: (_number(j.get("x")), _number(j.get("y"))) for name, j in junctions.items()}
    shift = _shift(spots.values())
    nodes = {
        name: Node(
            node_ids[name],
            round(x - shift[0], 2),
            round(y - shift[1], 2),
            (junctions[name].get("type") or "").startswith("traffic_light"),
        )
        for name, (x, y) in spots.items()
    }
    roads, shapes = {}, {}
    for edge in edges:
        name, lanes = edge.get("id", ""), list(edge.iter("lane"))
        if not lanes:
            continue
        for lane in lanes:
            shapes[lane.get("id", "")] = _points(lane.get("shape"), shift)
        roads[name] = Road(
            road_ids[name],
            node_ids[edge.get("from", "")],
            node_ids[edge.get("to", "")],
            max(round(_number(lanes[0].get("length")), 2), ROAD_M.low),
            any((lane.get("allow") or "").split() == ["bus"] for lane in lanes),
            _points(edge.get("shape"), shift)[1:-1],
        )
    if not roads:
        raise InputError(f"{config.path}: its net-file has no road between two junctions")
    return _Net(nodes, roads, shapes, shift)


def _number(text: str | None) -> float:
    try:
        value = float(text or "0")
    except ValueError:
        value = math.nan
    if not abs(value) < _FARTHEST_M:
        raise InputError(f"the network says {text!r} where a number of metres must be")
    return value


def _points(shape: str | None, shift: Point) -> tuple[Point, ...]:
    pairs = (point.split(",")[:2] for point in (shape or "").split())
    return tuple(
        (round(_number(x) - shift[0], 2), round(_number(y) - shift[1], 2)) for x, y in pairs
    )


def _shift(spots: Iterable[Point]) -> Point:
    """Nothing, unless the network lies far from its own origin."""
    xs, ys = zip(*spots, strict=True) if spots else ((0.0,), (0.0,))
    far = max(map(abs, (*xs, *ys))) > 100_000
    return (float(np.floor(min(xs))), float(np.floor(min(ys)))) if far else (0.0, 0.0)


def _along(shape: Sequence[Point], share: float) -> Point:
    """The point at a share of a line's length."""
    if len(shape) < 2:
        return shape[0] if shape else (0.0, 0.0)
    line = np.array(shape)
    x, y = points_at(line, min(max(share, 0.0), 1.0) * along_m(line)[-1]).tolist()
    return round(x, 2), round(y, 2)


# -- services -------------------------------------------------------------------------------------


def _patterns(
    buses: Iterable[Bus], net: _Net, places: dict[str, Halt]
) -> tuple[dict[_Pattern, list[Bus]], list[str]]:
    """The buses of each pattern, and in words which buses have none."""
    patterns: dict[_Pattern, list[Bus]] = {}
    once: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for bus in buses:
        pattern = _pattern(bus)
        if len(pattern.halts) < 2:
            once[pattern.line] += 1
        elif _distances(pattern, net, places) is None:
            lost[pattern.line] += 1
        else:
            patterns.setdefault(pattern, []).append(bus)
    remarks = []
    for count, why in ((once, "serve a single stop"), (lost, "do not pass their stops in order")):
        if count:
            lines = ", ".join(f"{line} ({number})" for line, number in sorted(count.items()))
            remarks.append(f"{count.total()} buses {why}; they run but are not held: {lines}")
    return _merged(patterns), remarks


def _merged(patterns: dict[_Pattern, list[Bus]]) -> dict[_Pattern, list[Bus]]:
    """The buses of each service. Those without a line are one service if they share roads and
    stops; a line that several ids contain stays a line.
    """
    vehicles: Counter[str] = Counter()
    for pattern, buses in patterns.items():
        vehicles[pattern.line] += len(buses)
    merged: dict[_Pattern, list[Bus]] = {}
    rest: dict[object, list[_Pattern]] = defaultdict(list)
    for pattern, buses in patterns.items():
        if pattern.named or (pattern.in_id and vehicles[pattern.line] > 1):
            merged[pattern] = buses
        else:
            rest[pattern.roads, pattern.halts].append(pattern)
    for way, group in rest.items():
        lines = [other for other in merged if not other.named and (other.roads, other.halts) == way]
        head = max(lines or group, key=lambda other: len(patterns[other]))
        merged[head] = [*merged.get(head, ()), *(bus for other in group for bus in patterns[other])]
    return {pattern: merged[pattern] for pattern in patterns if pattern in merged}


def _pattern(bus: Bus) -> _Pattern:
    """The line that the bus names, or that its id contains; its halts without repetitions."""
    stem = re.sub(r"\.\d+$", "", bus.id)
    inferred = _LINE_IN_ID.search(stem)
    line = bus.line or (inferred.group(1) if inferred else stem)
    route = bus.line or (inferred.group(2) if inferred else stem)
    stands = [halt for i, halt in enumerate(bus.halts) if not i or halt != bus.halts[i - 1]]
    return _Pattern(line, route, bool(bus.line), bool(inferred), bus.roads, tuple(stands))


def _distances(pattern: _Pattern, net: _Net, places: dict[str, Halt]) -> list[float] | None:
    """How far along its roads each halt lies, or None if they are not in order."""
    if any(road not in net.roads for road in pattern.roads):
        return None
    starts = list(accumulate((net.roads[r].length_m for r in pattern.roads), initial=0.0))
    distances: list[float] = []
    index = 0
    for halt in pattern.halts:
        road, at = places[halt].lane.rpartition("_")[0], _position(places[halt], net)
        while index < len(pattern.roads) and not (
            pattern.roads[index] == road
            and (not distances or starts[index] + at > distances[-1] + 0.005)
        ):
            index += 1
        if index == len(pattern.roads):
            return None
        distances.append(round(starts[index] + at, 2))
    return distances


def _position(halt: Halt, net: _Net) -> float:
    """Where buses stand on the road of a halt."""
    road = net.roads.get(halt.lane.rpartition("_")[0])
    length = road.length_m if road is not None else halt.end_m
    return round(min(max(halt.end_m, 1.0), length), 2)


def _stops(
    patterns: Iterable[_Pattern], net: _Net, places: dict[str, Halt]
) -> tuple[tuple[Stop, ...], dict[tuple[str, int], int]]:
    """The stops that services use; a stop visited again has a second row. Also their indices by
    SUMO's id and the number of the visit.
    """
    visits: Counter[str] = Counter()
    for pattern in patterns:
        for name, count in Counter(pattern.halts).items():
            visits[name] = max(visits[name], count)
    ids = clean_ids(visits)
    taken = set(ids.values())
    stops: list[Stop] = []
    index: dict[tuple[str, int], int] = {}
    for name, count in visits.items():
        halt = places[name]
        road = net.roads[halt.lane.rpartition("_")[0]]
        at_m = _position(halt, net)
        x_m, y_m = _along(net.shapes[halt.lane], at_m / road.length_m)
        for visit in range(count):
            id = ids[name] if not visit else free_id(ids[name], taken)
            index[name, visit] = len(stops)
            lane = int(halt.lane.rpartition("_")[2])
            called = halt.name if halt.name.isprintable() else ""
            stops.append(Stop(id, road.id, at_m, x_m, y_m, called[:200], name, lane))
    return tuple(stops), index


def _services(
    patterns: Iterable[_Pattern],
    net: _Net,
    places: dict[str, Halt],
    stops: dict[tuple[str, int], int],
) -> tuple[Service, ...]:
    taken: set[str] = set()
    ids = clean_ids(pattern.line for pattern in patterns)
    services = []
    for pattern in patterns:
        distances = _distances(pattern, net, places)
        assert distances is not None
        before: Counter[str] = Counter()
        served = []
        for halt in pattern.halts:
            served.append(stops[halt, before[halt]])
            before[halt] += 1
        services.append(
            Service(
                id=free_id(ids[pattern.line], taken),
                route=re.sub(r"[/\\]|\.\.", "-", pattern.route)[:100],
                stops=tuple(served),
                distance_m=tuple(distances),
                roads=tuple(net.roads[road].id for road in pattern.roads),
                length_m=round(sum(net.roads[road].length_m for road in pattern.roads), 2),
                source=pattern.line if pattern.named else "",
            )
        )
    return tuple(services)


def _trips(
    patterns: dict[_Pattern, list[Bus]], services: Sequence[Service], seen: Watched, begin_s: int
) -> tuple[tuple[Trip, ...], list[Vehicle]]:
    """Trips start when a bus on time would reach the first stop; the city's bus types, most
    frequent first.
    """
    order = [
        kind for kind, _ in Counter(b.type for row in patterns.values() for b in row).most_common()
    ]
    dwell: dict[str, list[float]] = defaultdict(list)
    for row in patterns.values():
        for bus in row:
            dwell[bus.type] += bus.dwells_s
    vehicles: list[Vehicle] = []
    number: dict[str, int] = {}
    for kind in order:
        vehicle = replace(seen.types[kind], min_dwell_s=median_low(dwell[kind]))
        if vehicle not in vehicles:
            vehicles.append(vehicle)
        number[kind] = vehicles.index(vehicle)
    ids = clean_ids(bus.id for row in patterns.values() for bus in row)
    trips: list[Trip] = []
    for index, (_, row) in enumerate(patterns.items()):
        leads = [bus.reached_s - bus.depart_s for bus in row if bus.reached_s is not None]
        lead_s, last_s = min(leads, default=0), -1
        for bus in sorted(row, key=lambda bus: bus.depart_s):
            departure_s = max(bus.depart_s - begin_s + lead_s, last_s + 1, 0)
            if departure_s < seen.horizon_s:
                last_s = departure_s
                trips.append(Trip(ids[bus.id], index, departure_s, number[bus.type], source=bus.id))
    return tuple(trips), vehicles


# -- people ---------------------------------------------------------------------------------------


def _people(carried: Carried, meeting: Halts, seen: Watched) -> list[Person]:
    """The rides of the scenario, from the second at which people waited for them.

    Rides with a walk between them belong to two passengers.
    """
    plans = read_plans(carried, meeting)
    people = []
    for person, since in seen.since.items():
        trips: list[tuple[int | None, list[tuple[int, int]]]] = []
        for ride in plan_of(plans, person):
            leg = (ride.board, ride.alight)
            if trips and trips[-1][1][-1][1] == ride.board:
                trips[-1][1].append(leg)
            else:
                trips.append((since[-ride.left :][0], [leg]))
        people += [
            Person(start_s, tuple(legs), (start_s, start_s + 1))
            for start_s, legs in trips
            if start_s is not None and 0 <= start_s < seen.horizon_s
        ]
    return people


def _with_rides(city: City, people: Sequence[Person]) -> City:
    """The city with its people; at levels above 1.00, some of them travel twice."""
    if not people:
        return city
    rng = np.random.Generator(np.random.PCG64([len(people), 0x5C3A]))
    more = [people[i] for i in rng.integers(len(people), size=extra(len(people)))]
    note = f"{NOTE}is the {len(people):,} journeys of the scenario; above 1.00, some travel twice"
    journeys = levelled(people, more, city, rng)
    return replace(city, journeys=journeys, notes=(*city.notes, note))
