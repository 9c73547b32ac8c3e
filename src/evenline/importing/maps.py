"""A SUMO network from a map: an OpenStreetMap extract or a network that somebody made.

An extract is cut to the surroundings of the lines, and netconvert makes streets of it, with lanes,
speed limits, signals, bus lanes and turn restrictions. A network stays as it is. Missing links can
be added to either.
"""

import gzip
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from evenline.city.geometry import EARTH_M, Floats, Origin
from evenline.city.ranges import ID
from evenline.importing.matching import Streets
from evenline.importing.sections import Links
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.worlds.sumo.runtime import binary
from evenline.worlds.sumo.streets import Placing, fitted, parsed, unpacked

_EXTRACTS = (".osm", ".osm.gz", ".osm.bz2", ".osm.pbf", ".pbf")
_NETWORKS = (".net.xml", ".net.xml.gz")
_MARGIN_M = 200.0  # streets this near to a line are kept
_CELL_M = 100.0
_LINK_SPEED_MPS = 13.9
_FARTHEST_OFF_M = 1.0  # of junctions, where they lie by the polynomial and on earth


@dataclass(frozen=True, eq=False)
class Network:
    """A gzipped SUMO network, and how its coordinates and the city's are turned into each other."""

    content: bytes
    placed: Placing
    unplaced: Placing


def network_of(path: Path, origin: Origin, lines: Iterable[Floats], lefthand: bool) -> Network:
    """The network of a map file around some lines, whose points are metres from the origin."""
    if not path.is_file():
        raise InputError(f"{path}: no such map; name a file that ends in {_endings()}")
    if path.name.endswith(_NETWORKS):
        return _given(path, origin)
    if path.name.endswith(_EXTRACTS):
        return _converted(path, origin, lines, lefthand)
    raise InputError(f"{path}: not a map that we can read; it must end in {_endings()}")


def _endings() -> str:
    return ".osm, .osm.pbf, .net.xml or .net.xml.gz"


# -- OpenStreetMap --------------------------------------------------------------------------------


def _converted(path: Path, origin: Origin, lines: Iterable[Floats], lefthand: bool) -> Network:
    """Streets from an extract, in metres from the origin."""
    # The same projection as `Origin`.
    projection = (
        f"+proj=eqc +lat_ts={origin.lat:.9f} +lat_0={origin.lat:.9f} +lon_0={origin.lon:.9f} "
        f"+R={EARTH_M} +units=m +no_defs"
    )
    with tempfile.TemporaryDirectory() as folder:
        cut = Path(folder) / "cut.osm"
        _cut(path, cut, origin, lines)
        content = _netconvert(
            path,
            Path(folder),
            *("--osm-files", str(cut), "--proj", projection),
            *("--offset.disable-normalization", "true", "--lefthand", str(lefthand).lower()),
            *("--keep-edges.by-vclass", "bus", "--geometry.remove", "true"),
            *("--roundabouts.guess", "true", "--ramps.guess", "true"),
            *("--junctions.join", "true", "--osm.turn-lanes", "true", "--osm.lane-access", "true"),
            *("--tls.guess-signals", "true", "--tls.discard-simple", "true", "--tls.join", "true"),
            *("--tls.default-type", "static", "--no-turnarounds.except-deadend", "true"),
        )
    return Network(content, lambda points: points, lambda points: points)


def _cut(path: Path, target: Path, origin: Origin, lines: Iterable[Floats]) -> None:
    """Write the streets of an extract that have a node near a line."""
    osmium = _osmium()
    cells = _cells(lines)
    kept: set[int] = set()
    try:
        with osmium.BackReferenceWriter(
            str(target), ref_src=str(path), remove_tags=False
        ) as writer:
            for thing in osmium.FileProcessor(str(path)).with_locations():
                if thing.is_way() and "highway" in thing.tags:
                    spots = [(n.lat, n.lon) for n in thing.nodes if n.location.valid()]
                    places = np.floor(origin.points(spots) / _CELL_M).astype(int).tolist()
                    if any((x, y) in cells for x, y in places):
                        kept.add(thing.id)
                        writer.add(thing)
                elif thing.is_relation() and thing.tags.get("type") == "restriction":
                    ways = {member.ref for member in thing.members if member.type == "w"}
                    if ways <= kept:
                        writer.add(thing)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not kept:
        raise InputError(f"{path}: has no street within {_MARGIN_M:g} m of the lines")


def _cells(lines: Iterable[Floats]) -> set[tuple[int, int]]:
    """The cells of a grid that lie within the margin of a line."""
    cells: set[tuple[int, int]] = set()
    for line in lines:
        for start, end in pairwise(line):
            count = int(np.hypot(*(end - start)) // _CELL_M) + 2
            cells |= {
                (int(x), int(y)) for x, y in np.floor(np.linspace(start, end, count) / _CELL_M)
            }
    wide = int(_MARGIN_M // _CELL_M)
    around = range(-wide, wide + 1)
    return {(x + i, y + j) for x, y in cells for i in around for j in around}


def _osmium() -> Any:
    with extra("import"):
        import osmium
    return osmium


# -- networks of SUMO -----------------------------------------------------------------------------


def _given(path: Path, origin: Origin) -> Network:
    """A network as it is; edges whose ids our tables cannot take are numbered."""
    raw = path.read_bytes()
    content = raw if raw[:2] == b"\x1f\x8b" else gzip.compress(raw, mtime=0)
    net = parsed(content, str(path))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not all(ID.allows(edge.getID()) for edge in net.getEdges(withInternal=False)):
            content = _netconvert(path, folder, *_input(content, folder), "--numerical-ids", "true")
            net = parsed(content, str(path))
        spots = _on_earth(path, content, folder)
    points = np.array([node.getCoord()[:2] for node in net.getNodes()], float)
    metres = origin.points(spots[node.getID()] for node in net.getNodes())
    placed, unplaced = fitted(points, metres, degree=3), fitted(metres, points, degree=3)
    off_m = float(np.abs(placed(points) - metres).max())
    if off_m > _FARTHEST_OFF_M:
        raise InputError(f"{path}: its projection is off by {off_m:.0f} m; use a smaller network")
    return Network(content, placed, unplaced)


def _on_earth(path: Path, content: bytes, folder: Path) -> dict[str, tuple[float, float]]:
    """Latitude and longitude of each junction, as netconvert computes them."""
    head = unpacked(content)[:100_000].decode(errors="replace")
    if 'projParameter="!"' in head or "projParameter" not in head:
        raise InputError(
            f"{path}: does not say where on earth it lies; use a network with a projection"
        )
    plain = ("--plain-output-prefix", str(folder / "plain"), "--proj.plain-geo", "true")
    _netconvert(path, folder, *_input(content, folder), *plain, "--precision.geo", "9")
    text = (folder / "plain.nod.xml").read_text()
    rows = re.findall(r'<node id="([^"]+)" x="([^"]+)" y="([^"]+)"', text)
    return {id: (float(lat), float(lon)) for id, lon, lat in rows}


# -- links ----------------------------------------------------------------------------------------


def with_links(network: Network, streets: Streets, links: Links) -> Network:
    """A network with more links, each of one lane for buses; they join its streets at the kerb."""
    lane = dict(zip(streets.ids, streets.lanes, strict=True))
    spots = network.unplaced(np.array([*links.nodes.values()], float).reshape(-1, 2))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = [
            {"id": id, "x": f"{x:.2f}", "y": f"{y:.2f}", "type": "priority"}
            for id, (x, y) in zip(links.nodes, spots, strict=True)
        ]
        edges = [
            {"id": id, "from": start, "to": end, "numLanes": 1, "speed": _LINK_SPEED_MPS,
             "priority": 1, "allow": "bus"}
            for id, (start, end) in links.edges.items()
        ]  # fmt: skip
        connections = [
            {"from": one, "to": other, "fromLane": lane.get(one, 0), "toLane": lane.get(other, 0)}
            for one, other in sorted(links.connections)
        ]
        content = _netconvert(
            Path("the bridged network"),
            folder,
            *_input(network.content, folder),
            *("--node-files", _plain(folder, "node", nodes)),
            *("--edge-files", _plain(folder, "edge", edges)),
            *("--connection-files", _plain(folder, "connection", connections)),
            *("--offset.disable-normalization", "true", "--no-turnarounds.except-deadend", "true"),
        )
    return Network(content, network.placed, network.unplaced)


def _plain(folder: Path, tag: str, rows: Iterable[Mapping[str, object]]) -> str:
    """Write a file of plain XML for netconvert; return its path."""
    lines = [
        f"<{tag} {' '.join(f'{key}={quoteattr(str(row[key]))}' for key in row)}/>" for row in rows
    ]
    path = folder / f"{tag}.xml"
    path.write_text("\n".join([f"<{tag}s>", *lines, f"</{tag}s>", ""]))
    return str(path)


def _input(content: bytes, folder: Path) -> tuple[str, str]:
    path = folder / "input.net.xml.gz"
    path.write_bytes(content)
    return "--sumo-net-file", str(path)


def _netconvert(source: Path, folder: Path, *options: str) -> bytes:
    """Run netconvert; return the gzipped network, without the comment that has its time."""
    target = folder / "output.net.xml"
    command = [binary("netconvert"), *options, "--output-file", str(target)]
    command += ["--no-warnings", "true", "--xml-validation", "never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line.removeprefix("Error: ") for line in done.stderr.splitlines() if line.strip()]
        reason = errors[0] if errors else f"exit code {done.returncode}"
        raise InputError(f"{source}: netconvert made no network of it: {reason}")
    text = re.sub(rb"<!--.*?-->\s*", b"", target.read_bytes(), count=1, flags=re.DOTALL)
    return gzip.compress(text, mtime=0)
