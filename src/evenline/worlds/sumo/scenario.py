"""The files SUMO reads: network, stops, buses, cars and people of one cell.

The network depends only on the city: its own, or one that netconvert compiles. It lies in a cache
that you may delete at any time. All other files are written per cell in well under a second.
"""

import hashlib
import math
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np

from evenline.city.build import SIGNAL_CYCLE_S
from evenline.city.demand import Cell, realise
from evenline.city.model import (
    Carried,
    City,
    Node,
    Road,
    Service,
    Stop,
    Trip,
    Vehicle,
    road_ways,
)
from evenline.control.operations import running_trips
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder, new_folder, write_bytes, write_text
from evenline.worlds.sumo.carried import exact_cell, own_options, write_own
from evenline.worlds.sumo.config import check_harmless
from evenline.worlds.sumo.runtime import binary, runtime_version
from evenline.worlds.sumo.streets import unpacked

STOP_LENGTH_M = 30.0
BAY_LENGTH_M = 200.0
SPEED_LIMIT_MPS = 13.9
TURNED_BACK = math.cos(math.radians(140))  # netconvert avoids turns of this size
NO_ERROR = ("Quitting", "Warning", "pj_obj_create")  # beginnings of lines beside an error
CAR_VOLUME_SPREAD = 0.25  # blocks differ: volume is drawn from 1 -+ this


@dataclass(frozen=True)
class Scenario:
    """The input files of a cell, and the options for SUMO."""

    options: tuple[str, ...]
    folder: Path


def write_scenario(city: City, cell: Cell, folder: Path) -> Scenario:
    """Write a cell's files to a folder and return the options to start SUMO on them."""
    if city.own_buses:
        return Scenario(options=write_own(city, cell, folder), folder=folder)
    network = compiled_network(city)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stops.add.xml").write_text(_stops_xml(city))
    (folder / "buses.rou.xml").write_text(_buses_xml(city, cell))
    (folder / "cars.rou.xml").write_text(_cars_xml(city, cell))
    (folder / "people.rou.xml").write_text(_people_xml(city, cell))
    return Scenario(options=sumo_options(city, cell, network, folder), folder=folder)


def sumo_options(city: City, cell: Cell, network: Path, folder: Path) -> tuple[str, ...]:
    """The options to start SUMO on a cell's files."""
    if city.own_buses:
        return own_options(city, cell, network, folder)
    routes = ",".join(str(folder / f"{kind}.rou.xml") for kind in ("buses", "cars", "people"))
    # On the streets of a map buses change lanes. SUMO calls it a collision, and teleports the bus,
    # if one comes closer than its minimal gap; there, only buses that touch collide.
    touch = () if city.carried is None else ("--collision.mingap-factor", "0")
    return (
        *("--net-file", str(network)),
        *("--additional-files", str(folder / "stops.add.xml")),
        *("--route-files", routes),
        *("--begin", "0", "--end", str(city.horizon_s), "--step-length", "1"),
        *("--seed", str(cell.sumo_seed)),
        *("--default.departspeed", "0", "--default.departlane", "best"),
        *("--pedestrian.model", "nonInteracting"),
        *("--time-to-teleport", "300", "--max-depart-delay", "-1", *touch),
        *("--no-step-log", "true", "--no-warnings", "true", "--duration-log.disable", "true"),
        *("--xml-validation", "never", "--xml-validation.net", "never"),
    )


def cache_folder() -> Path:
    """The folder of compiled networks; safe to delete."""
    if named := os.environ.get("EVENLINE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "evenline"


def compiled_network(city: City) -> Path:
    """The city's network as SUMO reads it: its own, or compiled at first use."""
    if city.carried is not None:
        return _own_network(city, city.carried.network)
    nodes, edges, connections = _nodes_xml(city), _edges_xml(city), _connections_xml(city)
    recipe = "\n".join((nodes, edges, connections, runtime_version()))
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = cache_folder() / f"network-{city.name}-{key}"
    network = folder / "city.net.xml"
    if network.exists():
        return network
    with new_folder(folder) as aside:
        (aside / "city.nod.xml").write_text(nodes)
        (aside / "city.edg.xml").write_text(edges)
        (aside / "city.con.xml").write_text(connections)
        command = [
            binary("netconvert"),
            *("--node-files", str(aside / "city.nod.xml")),
            *("--edge-files", str(aside / "city.edg.xml")),
            *("--connection-files", str(aside / "city.con.xml")),
            *("--tls.cycle.time", str(SIGNAL_CYCLE_S), "--tls.default-type", "static"),
            *("--no-turnarounds.except-deadend", "true", "--no-internal-links", "false"),
            *("--output-file", str(aside / "city.net.xml"), "--no-warnings", "true"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = first_error(city, done.stderr) or f"exit code {done.returncode}"
            raise InputError(f"netconvert rejected the roads of {city.name}: {reason}")
        text = (aside / "city.net.xml").read_text()
        write_text(aside / "city.net.xml", _with_offsets(text, city.nodes))
    return network


def _own_network(city: City, content: bytes) -> Path:
    """The network that a city carries, unpacked at first use."""
    folder = cache_folder() / f"network-{city.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    network = folder / "city.net.xml"
    if not network.exists():
        with new_folder(folder) as aside:
            text = unpacked(content, f"network of {city.name}")
            check_harmless(text, f"network of {city.name}")
            write_bytes(aside / network.name, text)
    return network


def check_network(city: City) -> None:
    """Check that each road of a route leads into the next in the network, own or compiled.

    A scenario's own files are used as they are; SUMO must load them.
    """
    if city.carried is not None and city.own_buses:
        _check_loads(city, city.carried)
        return
    network = compiled_network(city).read_text(errors="replace")
    _check_lanes(city, network)
    bus_lanes = {f"{road.id}_0" for road in city.roads if road.bus_lane}
    links = re.findall(
        r'<connection from="([^":][^"]*)" to="([^"]+)" fromLane="(\d+)" toLane="(\d+)"', network
    )
    for_buses = {(start, end) for start, end, _, _ in links}
    for_cars = {
        (start, end)
        for start, end, lane, target in links
        if not bus_lanes & {f"{start}_{lane}", f"{end}_{target}"}
    }
    for table, routes, allowed in (
        ("services.csv", [service.roads for service in city.services], for_buses),
        ("car_routes.csv", city.traffic.routes, for_cars),
    ):
        for row, route in enumerate(routes, 1):
            for pair in pairwise(route):
                if pair not in allowed:
                    raise InputError(
                        f"{table} row {row}: road {pair[0]} does not lead into {pair[1]} in the "
                        + (
                            "network that netconvert compiles; choose roads without a U-turn"
                            if city.carried is None
                            else "network of the city; choose roads that it connects"
                        )
                    )


def _check_loads(city: City, carried: Carried) -> None:
    """Let SUMO load a scenario and stop at once."""
    short = replace(carried, options={**carried.options, "end": str(carried.begin_s + 1)})
    with ScratchFolder() as folder:
        options = write_own(replace(city, carried=short), exact_cell(city), Path(folder))
        if said := loading_error(city, options):
            raise InputError(f"SUMO does not load the scenario: {said}")


def _check_lanes(city: City, network: str) -> None:
    lanes = set(re.findall(r'<lane id="([^":][^"]*)"', network))
    for row, road in enumerate(city.roads, 1):
        if f"{road.id}_0" not in lanes:
            raise InputError(f"roads.csv row {row}: the network of the city has no road {road.id}")
    for stop in city.stops:
        if f"{stop.road}_{stop.lane}" not in lanes:
            raise InputError(
                f"stop_details.csv: stop {stop.id}: road {stop.road} has no lane {stop.lane}"
            )


def first_error(city: City, text: str) -> str:
    """The first error that a SUMO program printed, with the table and row that it names."""
    lines = (line.removeprefix("Error: ").strip() for line in text.splitlines())
    line = next((line for line in lines if line and not line.startswith(NO_ERROR)), "")
    tables: dict[str, tuple[str, Sequence[Node | Road | Stop | Service | Trip]]] = {
        "edge": ("roads.csv", city.roads),
        "node": ("nodes.csv", city.nodes),
        "junction": ("nodes.csv", city.nodes),
        "busstop": ("stops.csv", city.stops),
        "route": ("services.csv", city.services),
        "vehicle": ("trips.csv", city.trips),
    }
    for kind, name in re.findall(r"(\w+) '([^']+)'", line):
        table, rows = tables.get(kind.lower(), ("", ()))
        for number, row in enumerate(rows, 1):
            if row.id == name:
                return f"{table} row {number}: {line}"
    return line


def loading_error(city: City, options: Sequence[str]) -> str:
    """The error with which SUMO refuses to load; libsumo often says only 'Process Error'."""
    with suppress(subprocess.TimeoutExpired):
        command = [binary("sumo"), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return first_error(city, done.stderr) if done.returncode else ""
    return ""


def _with_offsets(net: str, nodes: Iterable[Node]) -> str:
    """Give each signal its own offset, and remove the comment with the creation time."""
    offset = {node.id: node.offset_s for node in nodes}
    net = re.sub(r"<!--.*?-->\s*", "", net, flags=re.DOTALL)
    return re.sub(
        r'(<tlLogic id="([^"]+)"[^>]* offset=")[^"]*"',
        lambda match: f'{match.group(1)}{offset.get(match.group(2), 0)}"',
        net,
    )


def _document(tag: str, lines: Iterable[str]) -> str:
    return "\n".join((f"<{tag}>", *lines, f"</{tag}>", ""))


def _element(tag: str, **attributes: object) -> str:
    text = " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
    return f"<{tag} {text}/>"


def _nodes_xml(city: City) -> str:
    return _document(
        "nodes",
        (
            _element(
                "node",
                id=node.id,
                x=node.x_m,
                y=node.y_m,
                type="traffic_light" if node.signal else "priority",
            )
            for node in city.nodes
        ),
    )


def _edges_xml(city: City) -> str:
    lines, ways = [], road_ways(city)
    for road in city.roads:
        head = (
            f'<edge id="{road.id}" from="{road.from_node}" to="{road.to_node}" '
            f'numLanes="{2 if road.bus_lane else 1}" speed="{SPEED_LIMIT_MPS}" '
            f'length="{road.length_m}" priority="2"'
        )
        if road.shape:
            head += f' shape="{" ".join(f"{x},{y}" for x, y in ways[road.id])}"'
        lane = '><lane index="0" allow="bus"/></edge>' if road.bus_lane else "/>"
        lines.append(head + lane)
    return _document("edges", lines)


def _connections_xml(city: City) -> str:
    """Keep netconvert's connections, but let buses turn from a bus lane in every direction, and
    let a service turn back, which netconvert does not expect.
    """
    onward: dict[str, list[Road]] = {}
    for road in city.roads:
        onward.setdefault(road.from_node, []).append(road)
    back = _turns_back(city)
    lines = []
    for road in city.roads:
        after = [
            target
            for target in onward.get(road.to_node, [])
            if target.to_node != road.from_node or (road.id, target.id) in back
        ]
        turns = any((road.id, target.id) in back for target in after)
        for target in after if road.bus_lane or turns else ():
            if road.bus_lane:
                lines.append(_link(road, target, 1, 1 if target.bus_lane else 0))
            lines.append(_link(road, target, 0, 0))
    return _document("connections", lines)


def _turns_back(city: City) -> set[tuple[str, str]]:
    """Pairs of roads that a service takes one after the other though they lead back."""
    ways = road_ways(city)

    def course(way: Sequence[tuple[float, float]]) -> float:
        (x, y), (x2, y2) = way
        return math.atan2(y2 - y, x2 - x)

    pairs = {pair for service in city.services for pair in pairwise(service.roads)}
    return {
        (first, second)
        for first, second in pairs
        if math.cos(course(ways[second][:2]) - course(ways[first][-2:])) < TURNED_BACK
    }


def _link(road: Road, target: Road, start: int, end: int) -> str:
    return f'<connection from="{road.id}" to="{target.id}" fromLane="{start}" toLane="{end}"/>'


def _stops_xml(city: City) -> str:
    return _document(
        "additional",
        (
            _element(
                "busStop",
                id=stop.id,
                lane=f"{stop.road}_{stop.lane}",
                startPos=max(0.0, round(stop.pos_m - STOP_LENGTH_M, 1)),
                endPos=stop.pos_m,
                parkingLength=BAY_LENGTH_M,
                personCapacity=10_000,
            )
            for stop in city.stops
        ),
    )


def _buses_xml(city: City, cell: Cell) -> str:
    """Bus types, routes and trips. A trip of another bus type brings its own route, because a
    route says how long its buses stand. Trips that wait for their vehicle are added during the
    day, from a route of their own.
    """
    waits = running_trips(city, cell).waits
    lines = [_bus_type(vehicle, type_id(i)) for i, vehicle in enumerate(city.vehicles)]
    for service in city.services:
        lines.append(_route(city, service, city.vehicle, f'id="{service.id}" '))
    waiting = {city.trips[trip].id for trip in np.flatnonzero(waits)}
    for trip in sorted(city.trips, key=lambda trip: (trip.departure_s, trip.id)):
        service = city.services[trip.service]
        if trip.id in waiting:
            if trip.vehicle:
                own = f'id="{route_id(city, trip)}" '
                lines.append(_route(city, service, city.vehicles[trip.vehicle], own))
            continue
        lane = city.stops[service.stops[0]].lane
        named = "" if trip.vehicle else f' route="{service.id}"'
        head = (
            f'<vehicle id="{trip.id}" type="{type_id(trip.vehicle)}"{named} line="{service.id}" '
            f'depart="{trip.departure_s}" departPos="stop" departLane="{lane}" departSpeed="0"'
        )
        own = _route(city, service, city.vehicles[trip.vehicle])
        lines.append(f"{head}>{own}</vehicle>" if trip.vehicle else f"{head}/>")
    return _document("routes", lines)


def type_id(vehicle: int) -> str:
    """SUMO's name of a bus type."""
    return f"bus{vehicle}" if vehicle else "bus"


def route_id(city: City, trip: Trip) -> str:
    """SUMO's name of the route of a trip that is added during the day."""
    return f"own.{trip.id}" if trip.vehicle else city.services[trip.service].id


def _bus_type(vehicle: Vehicle, name: str) -> str:
    return _element(
        "vType",
        id=name,
        vClass="bus",
        length=vehicle.length_m,
        maxSpeed=vehicle.max_speed_mps,
        accel=vehicle.accel_mps2,
        decel=vehicle.decel_mps2,
        speedFactor="normc(0.78,0.10,0.55,1.00)",
        personCapacity=int(vehicle.capacity),
        boardingDuration=vehicle.exchange_s_per_passenger,
    )


def _route(city: City, service: Service, vehicle: Vehicle, named: str = "") -> str:
    halts = "".join(
        f'<stop busStop="{city.stops[stop].id}" duration="{vehicle.min_dwell_s}" parking="true"/>'
        for stop in service.stops
    )
    return f'<route {named}edges="{" ".join(service.roads)}">{halts}</route>'


def _cars_xml(city: City, cell: Cell) -> str:
    """Cars of a block: the hour's volume times the block's own factor, at random seconds."""
    traffic = city.traffic
    rng = np.random.Generator(np.random.PCG64([cell.sumo_seed, 0xCA25]))
    factor = 1 + CAR_VOLUME_SPREAD * (2 * rng.random() - 1)
    lines = [
        '<vType id="car" vClass="passenger" length="4.5" accel="2.6" decel="4.5" '
        'speedFactor="normc(1.00,0.10,0.70,1.30)"/>'
    ]
    for number, route in enumerate(traffic.routes):
        lines.append(f'<route id="c{number}" edges="{" ".join(route)}"/>')
    cars = []
    share = np.cumsum(traffic.weights) / np.sum(traffic.weights) if traffic.weights else []
    for hour, volume in enumerate(traffic.cars_per_hour):
        count = round(volume * factor) if len(traffic.routes) else 0
        when = np.floor((hour + rng.random(count)) * 3600).astype(int)
        which = np.searchsorted(share, rng.random(count), side="right")
        cars += list(zip(when.tolist(), which.tolist(), strict=True))
    for number, (second, route) in enumerate(sorted(cars)):
        if second < city.horizon_s:
            lines.append(
                f'<vehicle id="car{number}" type="car" route="c{route}" depart="{second}" '
                'departPos="base" departLane="best" departSpeed="max"/>'
            )
    return _document("routes", lines)


def _people_xml(city: City, cell: Cell) -> str:
    """Each passenger waits at a stop from the second of departure and rides leg after leg."""
    journeys, people = city.journeys, realise(city, cell)
    lines_of = [" ".join(city.services[s].id for s in row) for row in journeys.carriers]
    stops = [stop.id for stop in city.stops]
    begin, end = journeys.leg_start[people.journey], journeys.leg_start[people.journey + 1]
    board, alight = journeys.leg_board.tolist(), journeys.leg_alight.tolist()
    carriers = journeys.leg_carriers.tolist()
    lines = []
    for number, second, first, last in zip(
        people.journey.tolist(),
        people.departure_s.tolist(),
        begin.tolist(),
        end.tolist(),
        strict=True,
    ):
        place = city.stops[board[first]]
        rides = "".join(
            f'<ride {_start(place.road, leg == first)}busStop="{stops[alight[leg]]}" '
            f'lines="{lines_of[carriers[leg]]}"/>'
            for leg in range(first, last)
        )
        lines.append(
            f'<person id="p{number}" depart="{second}" '
            f'departPos="{max(place.pos_m - STOP_LENGTH_M / 2, 0.0):.1f}">{rides}</person>'
        )
    return _document("routes", lines)


def _start(road: str, first: bool) -> str:
    return f'from="{road}" ' if first else ""
