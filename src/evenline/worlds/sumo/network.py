"""The city's network as SUMO reads it: its own, or one that netconvert compiles from its tables.

A compiled network depends only on the city and on SUMO's version. It lies in a cache that you may
delete at any time, and is checked before each use.
"""

import hashlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from evenline.city.build import SIGNAL_CYCLE_S
from evenline.city.model import Carried, City, Node, Road, road_ways
from evenline.city.tables import save_city
from evenline.support.cache import cached_folder
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder, write_bytes, write_text
from evenline.worlds.sumo.carried import exact_cell, write_own
from evenline.worlds.sumo.config import check_harmless
from evenline.worlds.sumo.errors import first_error, loading_error
from evenline.worlds.sumo.runtime import (
    binary,
    installed_version,
    runtime_environment,
    runtime_version,
)
from evenline.worlds.sumo.streets import unpacked

_COMPILED = "city.net.xml"
_TURNED_BACK = math.cos(math.radians(140))  # netconvert avoids turns of this size
_SPEED_LIMIT_MPS = 13.9
_NETCONVERT = (
    *("--tls.cycle.time", str(SIGNAL_CYCLE_S), "--tls.default-type", "static"),
    *("--no-turnarounds.except-deadend", "true", "--no-internal-links", "false"),
)


class Network(NamedTuple):
    """A network as SUMO reads it, and the SHA-256 of its bytes."""

    path: Path
    sha256: str


def _cache_folder() -> Path:
    """The folder of compiled networks; safe to delete."""
    if named := os.environ.get("EVENLINE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "evenline"


def compiled_network(city: City) -> Network:
    """The city's network as SUMO reads it: its own, or compiled at first use.

    The bytes depend only on the city and SUMO's version: netconvert's comment, which has the time
    and the paths, is removed.
    """
    if city.carried is not None:
        content = city.carried.network
        recipe: tuple[str | bytes, ...] = (content,)

        def fill(aside: Path) -> None:
            text = unpacked(content, f"network of {city.name}")
            check_harmless(text, f"network of {city.name}")
            write_bytes(aside / _COMPILED, text)

    else:
        recipe = (
            *(_nodes_xml(city), _edges_xml(city), _connections_xml(city)),
            *(
                " ".join(f"{n.id} {n.offset_s}" for n in city.nodes),
                *_NETCONVERT,
                runtime_version(),
            ),
        )

        def fill(aside: Path) -> None:
            _compile(city, aside)

    parts = (part if isinstance(part, bytes) else part.encode() for part in recipe)
    key = hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]
    folder = _cache_folder() / f"network-{city.name}-{key}"
    return Network(folder / _COMPILED, cached_folder(folder, fill)[_COMPILED])


def network_sha256(city: City, version: str | None = None) -> str:
    """The SHA-256 of the network that SUMO reads, as a version of SUMO compiles it."""
    if city.carried is not None and city.own_buses:
        return hashlib.sha256(city.carried.network).hexdigest()
    if version in (None, installed_version()):
        return compiled_network(city).sha256
    with ScratchFolder() as folder:
        save_city(city, Path(folder, "city"))
        code = (
            "import sys; from evenline.city.tables import load_city; "
            "from evenline.worlds.sumo.network import compiled_network as c; "
            "from pathlib import Path; print(c(load_city(Path(sys.argv[1]))).sha256)"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, str(Path(folder, "city"))],
            env=runtime_environment(version),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{city.name}: SUMO {version} cannot compile its roads: {last}")
    return done.stdout.strip()


def _compile(city: City, aside: Path) -> None:
    """Compile a city's roads with netconvert into a folder."""
    (aside / "city.nod.xml").write_text(_nodes_xml(city))
    (aside / "city.edg.xml").write_text(_edges_xml(city))
    (aside / "city.con.xml").write_text(_connections_xml(city))
    command = [
        binary("netconvert"),
        *("--node-files", str(aside / "city.nod.xml")),
        *("--edge-files", str(aside / "city.edg.xml")),
        *("--connection-files", str(aside / "city.con.xml")),
        *_NETCONVERT,
        *("--output-file", str(aside / _COMPILED), "--no-warnings", "true"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = first_error(city, done.stderr) or f"exit code {done.returncode}"
        raise InputError(f"netconvert rejected the roads of {city.name}: {reason}")
    text = (aside / _COMPILED).read_text()
    write_text(aside / _COMPILED, _with_offsets(text, city.nodes))


def check_network(city: City) -> None:
    """Check that each road of a route leads into the next in the network, own or compiled.

    A scenario's own files are used as they are; SUMO must load them.
    """
    if city.carried is not None and city.own_buses:
        _check_loads(city, city.carried)
        return
    network = compiled_network(city).path.read_text(errors="replace")
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
        if reason := first_error(city, loading_error(options)):
            raise InputError(f"SUMO does not load the scenario: {reason}")


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


def _with_offsets(net: str, nodes: Iterable[Node]) -> str:
    """Give each signal its own offset, and remove the comment with the creation time."""
    offset = {node.id: node.offset_s for node in nodes}
    net = re.sub(r"<!--.*?-->\s*", "", net, flags=re.DOTALL)
    return re.sub(
        r'(<tlLogic id="([^"]+)"[^>]* offset=")[^"]*"',
        lambda match: f'{match.group(1)}{offset.get(match.group(2), 0)}"',
        net,
    )


def _nodes_xml(city: City) -> str:
    return document(
        "nodes",
        (
            element(
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
            f'numLanes="{2 if road.bus_lane else 1}" speed="{_SPEED_LIMIT_MPS}" '
            f'length="{road.length_m}" priority="2"'
        )
        if road.shape:
            head += f' shape="{" ".join(f"{x},{y}" for x, y in ways[road.id])}"'
        lane = '><lane index="0" allow="bus"/></edge>' if road.bus_lane else "/>"
        lines.append(head + lane)
    return document("edges", lines)


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
    return document("connections", lines)


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
        if math.cos(course(ways[second][:2]) - course(ways[first][-2:])) < _TURNED_BACK
    }


def _link(road: Road, target: Road, start: int, end: int) -> str:
    return f'<connection from="{road.id}" to="{target.id}" fromLane="{start}" toLane="{end}"/>'


def document(tag: str, lines: Iterable[str]) -> str:
    """An XML document of one element a line."""
    return "\n".join((f"<{tag}>", *lines, f"</{tag}>", ""))


def element(tag: str, **attributes: object) -> str:
    """An element of XML without content."""
    text = " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
    return f"<{tag} {text}/>"
