"""SUMO's networks as we unpack, read and draw them, and how coordinates turn into each other."""

import gzip
import io
import re
import tempfile
import zlib
from collections.abc import Callable
from typing import Any
from xml.sax import SAXException

import numpy as np

from evenline.city.model import City, Floats
from evenline.support.errors import InputError
from evenline.support.files import SMALL_BYTES, SWELLS

MOST_BYTES = 2**31  # of a network, unpacked
BUS = "bus"
CARS = "passenger"
_KERB = re.compile(r'<lane id="[^":][^"]*_0"([^>]*) shape="([^"]+)"')
_JUNCTION = re.compile(r'<junction id="([^":][^"]*)" type="[^"]*" x="([^"]+)" y="([^"]+)"')
Placing = Callable[[Floats], Floats]  # points of the network in metres from the city's origin


def unpacked(network: bytes, where: str = "the network") -> bytes:
    """The XML of a gzipped network; refuses to unpack without end."""
    most = min(MOST_BYTES, max(SMALL_BYTES, SWELLS * len(network)))
    try:
        with gzip.open(io.BytesIO(network)) as stream:
            text = stream.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{where}: cannot be unpacked ({error})") from None
    if len(text) > most:
        raise InputError(f"{where}: unpacks to more than {most // 2**20:,} MiB; too large")
    return text


def background(city: City, near_m: float = 400.0) -> list[Floats]:
    """The streets of a city's own network near its lines, as polylines in the city's metres."""
    if city.carried is None:
        return []
    # sumolib would take seconds.
    text = unpacked(city.carried.network, city.name).decode(errors="replace")
    placed = _as_in_city(text, city)
    lanes = [
        _points(shape)
        for permissions, shape in _KERB.findall(text)
        if _for_road_traffic(permissions)
    ]
    if placed is None or not lanes:
        return []
    ends = [(node.x_m, node.y_m) for node in city.nodes]
    from scipy.spatial import cKDTree  # which takes long to import

    tree = cKDTree(np.array(ends + [point for road in city.roads for point in road.shape]))
    return [line for line in placed_lines(lanes, placed) if tree.query(line)[0].min() <= near_m]


def _points(shape: str) -> Floats:
    return np.array([point.split(",")[:2] for point in shape.split()], float)


def _for_road_traffic(permissions: str) -> bool:
    allowed = re.search(r' allow="([^"]*)"', permissions)
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


def placed_lines(lines: list[Floats], placed: Placing) -> tuple[Floats, ...]:
    if not lines:
        return ()
    cuts = np.cumsum([len(line) for line in lines])[:-1]
    return tuple(np.split(placed(np.concatenate(lines)), cuts))


def _as_in_city(network: str, city: City) -> Placing | None:
    """From the network's coordinates to the city's, by the junctions that both have."""
    known = {id: (float(x), float(y)) for id, x, y in _JUNCTION.findall(network)}
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
