"""The streets of a SUMO network that buses may use, as plain arrays.

For matching lines to a map, and for drawing streets behind the lines of a city.
"""

import gzip
import io
import re
import tempfile
import zlib
from collections.abc import Callable
from typing import Any
from xml.sax import SAXException

import numpy as np
from scipy.spatial import cKDTree

from evenline.city.importers.matching import Floats, Streets
from evenline.city.model import City
from evenline.support.errors import InputError

MOST_BYTES = 2**31  # of a network, unpacked
BUS = "bus"
CARS = "passenger"
KERB = re.compile(r'<lane id="[^":][^"]*_0"([^>]*) shape="([^"]+)"')
JUNCTION = re.compile(r'<junction id="([^":][^"]*)" type="[^"]*" x="([^"]+)" y="([^"]+)"')
Placing = Callable[[Floats], Floats]  # points of the network in metres from the city's origin


def unpacked(network: bytes, where: str = "the network") -> bytes:
    """The XML of a gzipped network; refuses to unpack without end."""
    try:
        with gzip.open(io.BytesIO(network)) as stream:
            text = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{where}: cannot be unpacked ({error})") from None
    if len(text) > MOST_BYTES:
        raise InputError(f"{where}: more than {MOST_BYTES // 2**20:,} MiB; too large")
    return text


def read_streets(network: bytes, placed: Placing, where: str = "the network") -> Streets:
    """The streets of a gzipped network that buses may use."""
    net = parsed(network, where)
    edges = [edge for edge in net.getEdges(withInternal=False) if edge.allows(BUS)]
    if not edges:
        raise InputError(f"{where}: has no street for buses")
    number = {edge.getID(): i for i, edge in enumerate(edges)}
    junctions = {node.getID(): node for edge in edges for node in _ends(edge)}
    spots = placed(np.array([node.getCoord()[:2] for node in junctions.values()], float))
    return Streets(
        ids=tuple(number),
        starts=tuple(edge.getFromNode().getID() for edge in edges),
        ends=tuple(edge.getToNode().getID() for edge in edges),
        lengths=np.array([edge.getLength() for edge in edges], float),
        lines=_placed_lines([_line(edge) for edge in edges], placed),
        lanes=tuple(_kerb_lane(edge) for edge in edges),
        bus_lanes=tuple(_has_bus_lane(edge) for edge in edges),
        onward=tuple(_onward(edge, number) for edge in edges),
        spots={id: (float(x), float(y)) for id, (x, y) in zip(junctions, spots, strict=True)},
        signals=frozenset(
            id for id, node in junctions.items() if node.getType().startswith("traffic_light")
        ),
        lefthand=b'lefthand="true"' in unpacked(network)[:100_000],
    )


def background(city: City, near_m: float = 400.0) -> list[Floats]:
    """The streets of a city's own network near its lines, as polylines in the city's metres."""
    if city.carried is None:
        return []
    # sumolib would take seconds.
    text = unpacked(city.carried.network, city.name).decode(errors="replace")
    placed = _as_in_city(text, city)
    lanes = [_points(shape) for said, shape in KERB.findall(text) if _for_road_traffic(said)]
    if placed is None or not lanes:
        return []
    ends = [(node.x_m, node.y_m) for node in city.nodes]
    tree = cKDTree(np.array(ends + [point for road in city.roads for point in road.shape]))
    return [line for line in _placed_lines(lanes, placed) if tree.query(line)[0].min() <= near_m]


def _points(shape: str) -> Floats:
    return np.array([point.split(",")[:2] for point in shape.split()], float)


def _for_road_traffic(said: str) -> bool:
    allowed = re.search(r' allow="([^"]*)"', said)
    return allowed is None or not {BUS, CARS}.isdisjoint(allowed[1].split())


def parsed(network: bytes, where: str) -> Any:
    """A gzipped network as sumolib reads it."""
    import sumolib

    with tempfile.NamedTemporaryFile(suffix=".net.xml") as file:
        file.write(unpacked(network, where))
        file.flush()
        try:
            return sumolib.net.readNet(file.name)
        except (SAXException, LookupError, ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: not a SUMO network ({error})") from None


def _ends(edge: Any) -> tuple[Any, Any]:
    return edge.getFromNode(), edge.getToNode()


def _line(edge: Any) -> Floats:
    """The middle of an edge's lanes; of at least two points."""
    line = np.array([point[:2] for point in edge.getShape()], float)
    return line if len(line) > 1 else np.array([node.getCoord()[:2] for node in _ends(edge)], float)


def _placed_lines(lines: list[Floats], placed: Placing) -> tuple[Floats, ...]:
    if not lines:
        return ()
    cuts = np.cumsum([len(line) for line in lines])[:-1]
    return tuple(np.split(placed(np.concatenate(lines)), cuts))


def _kerb_lane(edge: Any) -> int:
    """The lane at the kerb that buses may use."""
    return next(i for i, lane in enumerate(edge.getLanes()) if lane.allows(BUS))


def _has_bus_lane(edge: Any) -> bool:
    return any(lane.allows(BUS) and not lane.allows(CARS) for lane in edge.getLanes())


def _onward(edge: Any, number: dict[str, int]) -> tuple[tuple[int, bool], ...]:
    """The edges that a bus can go on to, and whether by a U-turn."""
    found = {}
    for target, links in edge.getOutgoing().items():
        usable = [x for x in links if x.getFromLane().allows(BUS) and x.getToLane().allows(BUS)]
        if usable and target.getID() in number:
            found[number[target.getID()]] = usable[0].getDirection() == "t"
    return tuple(sorted(found.items()))


def _as_in_city(network: str, city: City) -> Placing | None:
    """From the network's coordinates to the city's, by the junctions that both have."""
    known = {id: (float(x), float(y)) for id, x, y in JUNCTION.findall(network)}
    common = [node for node in city.nodes if node.id in known]
    if len(common) < 3:
        return None
    return fitted(
        np.array([known[node.id] for node in common], float),
        np.array([(node.x_m, node.y_m) for node in common]),
        degree=1,
    )


def fitted(points: Floats, images: Floats, degree: int) -> Placing:
    """The polynomial of this degree that takes points to their images, by least squares."""
    centre, scale = points.mean(axis=0), max(float(np.ptp(points)), 1.0)

    def terms(of: Floats) -> Floats:
        x, y = ((of - centre) / scale).T
        powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]
        return np.stack([x**i * y**j for i, j in powers], axis=1)

    factors = np.linalg.lstsq(terms(points), images, rcond=None)[0]
    return lambda of: terms(of) @ factors
