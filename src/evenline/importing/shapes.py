"""Shapes of a feed: polylines in metres, and where the stops of a pattern lie along them.

Coordinates are metres east and north of an origin, good for a city. Stops are placed along a shape
in their order, so that a loop or a street used twice causes no confusion.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.city.geometry import Floats, Origin, along_m, onto
from evenline.importing.calls import number_of
from evenline.importing.feed import Feed
from evenline.importing.timetable import spot_of
from evenline.support.errors import InputError

_GAP_M = 1.0  # between two stops on one segment
_MOST_POINTS = 1_000_000  # that are kept
_ASTRAY_M = 200.0  # a stop that is farther from its shape is an error, and moves no other stop


class Along(NamedTuple):
    """Where stops lie on a polyline: metres from its start, and metres beside it."""

    distance_m: Floats
    aside_m: Floats


def read_shapes(feed: Feed, wanted: set[str]) -> dict[str, list[tuple[float, float]]]:
    """The points of some shapes in order, as latitude and longitude."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    columns = ["shape_id", "shape_pt_lat", "shape_pt_lon", "shape_pt_sequence"]
    kept = 0
    for row, (shape, lat, lon, sequence) in feed.rows("shapes.txt", columns):
        if shape in wanted:
            where = f"{feed.path}: shapes.txt: row {row}"
            if (kept := kept + 1) > _MOST_POINTS:
                raise InputError(f"{where}: more than {_MOST_POINTS:,} points; choose fewer routes")
            number = number_of(where, "shape_pt_sequence", sequence)
            rows.setdefault(shape, []).append((number, *spot_of(where, lat, lon)))
    for shape in sorted(wanted - rows.keys()):
        raise InputError(f"{feed.path}: trips.txt uses shape {shape!r}, which shapes.txt lacks")
    lines = {}
    for shape, points in rows.items():
        points.sort(key=lambda point: point[0])
        lines[shape] = [(lat, lon) for _, lat, lon in points]
        if len(set(lines[shape])) < 2:
            raise InputError(f"{feed.path}: shapes.txt: shape {shape!r} has fewer than two points")
    return lines


def along_shape(shape: Floats, stops: Floats) -> Along:
    """Place stops along a polyline in their order, as near to it as possible together.

    Minimises the sum of squared distances under the condition that no stop lies before the one
    before it (dynamic programming over the segments).
    """
    reached = along_m(shape)
    offset = np.moveaxis(stops[:, None, :] - shape[None, :-1], -1, 0)
    share, aside = onto(*np.diff(shape, axis=0).T, *offset)
    position = reached[:-1] + share * np.diff(reached)
    # A stop that is astray may lie anywhere on a segment, behind the stop before it.
    ends = np.append(reached[1:-1], np.inf)
    for i in range(1, len(stops)):
        behind = np.minimum(np.maximum(position[i], position[i - 1] + 2 * _GAP_M), ends)
        position[i] = np.where(aside[i] > _ASTRAY_M, behind, position[i])
    chosen = _in_order(np.minimum(aside, _ASTRAY_M) ** 2, position)
    rows = np.arange(len(stops))
    return Along(position[rows, chosen], aside[rows, chosen])


def _in_order(cost: Floats, position: Floats) -> npt.NDArray[np.int64]:
    """The segment of each stop: least cost in all, later stops farther along."""
    stops, segments = cost.shape
    total, best = cost[0].copy(), np.zeros((stops, segments), np.int64)
    number = np.arange(segments)
    for i in range(1, stops):
        # From an earlier segment any position will do; from the same one only an earlier one.
        # If both cost the same, the stop before lies as early as possible.
        least = np.concatenate([[np.inf], np.minimum.accumulate(total)[:-1]])
        at = np.maximum.accumulate(np.where(total < least, number, 0))
        at = np.concatenate([[0], at[:-1]])
        same = (position[i] > position[i - 1] + _GAP_M) & (total < least)
        best[i] = np.where(same, number, at)
        total = np.where(same, total, least) + cost[i]
    chosen = np.zeros(stops, np.int64)
    chosen[-1] = int(np.argmin(total))
    for i in range(stops - 1, 0, -1):
        chosen[i - 1] = best[i, chosen[i]]
    return chosen


def middle(spots: Sequence[tuple[float, float]]) -> Origin:
    """An origin in the middle of some places."""
    lats, lons = zip(*spots, strict=True)
    return Origin((min(lats) + max(lats)) / 2, (min(lons) + max(lons)) / 2)
