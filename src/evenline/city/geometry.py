"""Places on earth as metres, and polylines in metres.

Metres are east and north of an origin, on a sphere that is flat around it, which is good for a
city. A polyline is an array of points, a row each. Whatever needs a distance or a place on a line
uses these few functions.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)

EARTH_M = 6_371_008.8  # mean radius
_METRES_PER_DEGREE = math.radians(1.0) * EARTH_M


@dataclass(frozen=True)
class Origin:
    """The place on earth that coordinates are measured from."""

    lat: float
    lon: float

    def metres(self, lat: Number, lon: Number) -> tuple[Number, Number]:
        """How far a place lies east and north of here."""
        east_m = (lon - self.lon) * _METRES_PER_DEGREE * math.cos(math.radians(self.lat))
        return east_m, (lat - self.lat) * _METRES_PER_DEGREE

    def points(self, spots: Iterable[tuple[float, float]]) -> Floats:
        """Places given by latitude and longitude as metres east and north, a row each."""
        lat, lon = np.array(list(spots), np.float64).reshape(-1, 2).T
        return np.stack(self.metres(lat, lon), axis=1)

    def degrees(self, x_m: Number, y_m: Number) -> tuple[Number, Number]:
        """The latitude and longitude of a place."""
        lon = self.lon + x_m / _METRES_PER_DEGREE / math.cos(math.radians(self.lat))
        return self.lat + y_m / _METRES_PER_DEGREE, lon


def flat_m(lat: Floats, lon: Floats, to_lat: Floats, to_lon: Floats) -> Floats:
    """The straight distance of places that are near each other."""
    east = np.radians(to_lon - lon) * np.cos(np.radians(lat))
    return np.asarray(EARTH_M * np.hypot(np.radians(to_lat - lat), east))


def round_m(lat: float, lon: float, to_lat: float, to_lon: float) -> float:
    """The distance of two places anywhere on earth, as the crow flies."""
    lat, lon, to_lat, to_lon = map(math.radians, (lat, lon, to_lat, to_lon))
    half = math.sin((to_lat - lat) / 2) ** 2
    half += math.cos(lat) * math.cos(to_lat) * math.sin((to_lon - lon) / 2) ** 2
    return 2 * EARTH_M * math.asin(min(1.0, math.sqrt(half)))


# -- polylines ------------------------------------------------------------------------------------


def along_m(line: Floats) -> Floats:
    """The distance of each point of a polyline from its first, along it."""
    steps = np.diff(line, axis=0)
    return np.concatenate([[0.0], np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))])


def points_at(line: Floats, at_m: Floats | float) -> Floats:
    """The points of a polyline at some distances from its first."""
    reached_m = along_m(line)
    return np.stack([np.interp(at_m, reached_m, line[:, axis]) for axis in (0, 1)], axis=-1)


def onto(dx: Number, dy: Number, px: Number, py: Number) -> tuple[Number, Number]:
    """The nearest point of a straight piece to a place: its share of the piece, and how far it is.

    The piece leads from nowhere to `dx, dy`, the place is `px, py`. Takes numbers or arrays, and
    can be compiled.
    """
    share = (px * dx + py * dy) / np.maximum(dx * dx + dy * dy, 1e-12)
    share = np.minimum(np.maximum(share, 0.0), 1.0)
    return share, np.hypot(px - share * dx, py - share * dy)


def apart_m(points: Floats, line: Floats) -> Floats:
    """The distance of each point from a polyline."""
    steps, offset = np.diff(line, axis=0).T, (points[:, None, :] - line[None, :-1]).T
    return np.asarray(onto(*steps[:, :, None], *offset)[1].min(axis=0))
