"""The way of a line on the streets of a map: a hidden Markov model, after Newson and Krumm (2009).

Points along the line are the observations, places on streets near them the states. A state is
likely if it is near and leads the same way; a step is likely if it is as long on the streets as
along the line. The result is the likeliest connected way, in pieces where there is none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from evenline.city.geometry import Floats, along_m, onto

Ints = npt.NDArray[np.int64]

_STEP_M = 25.0  # between observations along a shape
_NEAR_M = 60.0  # states are at most this far from an observation
_STATES = 12  # of one observation
_NOISE_M = 12.0  # the standard deviation of a shape's distance from its street
_DETOUR_M = 15.0  # a detour of this length costs 1
_HEADING_COST = 3.0  # of a street at right angles to the line
_SIDE_COST = 1.5  # of a stop on the far side of the street
_BACKWARD_M = 15.0  # a step back by less is noise
_SKIPPED_M = 300.0  # along the line, without any state that fits
_TURNAROUND_M = 150.0  # a U-turn counts as a detour of this length


@dataclass(frozen=True, eq=False)
class Streets:
    """The directed edges of a road network that buses may use, in metres.

    `onward` gives the edges that each leads into, and whether by a U-turn. `lanes` are the lanes at
    the kerb that buses may use.
    """

    ids: tuple[str, ...]
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    lengths: Floats
    lines: tuple[Floats, ...]
    lanes: tuple[int, ...]
    bus_lanes: tuple[bool, ...]
    onward: tuple[tuple[tuple[int, bool], ...], ...]
    spots: dict[str, tuple[float, float]]  # of the junctions
    signals: frozenset[str]
    lefthand: bool = False

    @cached_property
    def number(self) -> dict[str, int]:
        return {id: i for i, id in enumerate(self.ids)}

    @cached_property
    def segments(self) -> "Segments":
        return Segments.of(self)


@dataclass(frozen=True, eq=False)
class Segments:
    """Every straight piece of every edge, with a tree to find those near a point."""

    edge: Ints
    start: Floats
    step: Floats
    length: Floats
    begin: Floats  # metres of the edge's length before the piece
    scale: Floats  # metres of the edge's length per metre of its polyline
    tree: cKDTree
    of_sample: Ints

    @staticmethod
    def of(streets: Streets) -> "Segments":
        steps = [np.diff(line, axis=0) for line in streets.lines]
        lengths = [np.maximum(np.hypot(step[:, 0], step[:, 1]), 1e-9) for step in steps]
        scales = [streets.lengths[i] / pieces.sum() for i, pieces in enumerate(lengths)]
        start = np.concatenate([line[:-1] for line in streets.lines])
        step, length = np.concatenate(steps), np.concatenate(lengths)
        parts = np.ceil(length / _STEP_M).astype(np.int64)
        of_sample = np.repeat(np.arange(len(length)), parts)
        first = np.repeat(np.cumsum(parts) - parts, parts)
        share = (np.arange(len(of_sample)) - first + 0.5) / parts[of_sample]
        return Segments(
            edge=np.repeat(np.arange(len(steps)), [len(step_rows) for step_rows in steps]),
            start=start,
            step=step,
            length=length,
            begin=np.concatenate(
                [
                    (np.cumsum(pieces) - pieces) * scale
                    for pieces, scale in zip(lengths, scales, strict=True)
                ]
            ),
            scale=np.repeat(scales, [len(step_rows) for step_rows in steps]),
            tree=cKDTree(start[of_sample] + share[:, None] * step[of_sample]),
            of_sample=of_sample,
        )


@dataclass(frozen=True, eq=False)
class Observation:
    """A point of a line: metres along it, its direction (zero if unknown), and its stop, if any."""

    along_m: float
    spot: tuple[float, float]
    heading: tuple[float, float] = (0.0, 0.0)
    stop: int = -1


@dataclass(frozen=True)
class State:
    """A place on a street, and what it costs to be there."""

    edge: int
    offset_m: float
    cost: float


@dataclass(frozen=True)
class Matched:
    """Where an observation lies on the way: position of the edge in the way, metres along it."""

    observation: int
    position: int
    offset_m: float


@dataclass(frozen=True)
class Piece:
    """A connected way and the observations on it, in order."""

    edges: tuple[int, ...]
    seen: tuple[Matched, ...]


def observations(
    shape: Floats, stop_at_m: Floats, spots: Floats, shaped: bool
) -> list[Observation]:
    """Points along a shape, closely spaced, with its stops; without a shape only the stops."""
    steps = np.diff(shape, axis=0)
    along = along_m(shape)
    first, last = float(stop_at_m[0]), float(stop_at_m[-1])
    count = max(2, math.ceil((last - first) / _STEP_M) + 1) if shaped else 0
    at_m = [(float(at), -1) for at in np.linspace(first, last, count)]
    at_m += [(float(at), stop) for stop, at in enumerate(stop_at_m)]
    points = []
    for at, stop in sorted(at_m):
        piece = min(max(int(np.searchsorted(along, at, side="right")) - 1, 0), len(steps) - 1)
        length = float(along[piece + 1] - along[piece])
        share = (at - along[piece]) / length if length else 0.0
        spot = shape[piece] + share * steps[piece]
        heading = steps[piece] / length if shaped and length else np.zeros(2)
        if not shaped:
            spot = spots[stop]
        points.append(
            Observation(
                at, (float(spot[0]), float(spot[1])), (float(heading[0]), float(heading[1])), stop
            )
        )
    return points


def match(streets: Streets, seen: Sequence[Observation], spots: Floats) -> list[Piece]:
    """The likeliest way through some observations; more than one piece if it has gaps."""
    states = _states(streets, seen, spots)
    reach = _Reach(streets)
    pieces: list[Piece] = []
    chain: list[_Link] = []
    for i, here in enumerate(states):
        if not here:
            continue
        cost = np.array([state.cost for state in here])
        if not chain:
            chain = [_Link(i, cost, np.zeros(len(here), np.int64))]
            continue
        # If no way leads here, observations before this one may be wrong, or this one.
        for back in range(len(chain), 0, -1):
            before = chain[back - 1]
            far_m = seen[i].along_m - seen[before.observation].along_m
            if back < len(chain) and far_m > _SKIPPED_M:
                break
            steps = _steps(streets, reach, states[before.observation], here, seen, before, i)
            least = steps.min(axis=0) + cost
            if np.isfinite(least).any():
                chain = [*chain[:back], _Link(i, least, np.argmin(steps, axis=0))]
                break
        if chain[-1].observation == i:
            continue
        if seen[i].along_m - seen[chain[-1].observation].along_m > _SKIPPED_M:
            pieces.append(_backtrack(reach, states, chain))
            chain = [_Link(i, cost, np.zeros(len(here), np.int64))]
    if chain:
        pieces.append(_backtrack(reach, states, chain))
    return pieces


@dataclass(frozen=True, eq=False)
class _Link:
    """An observation of a chain: the least cost of each of its states, and the state before it."""

    observation: int
    cost: Floats
    before: Ints


def _states(streets: Streets, seen: Sequence[Observation], spots: Floats) -> list[list[State]]:
    """The places on streets near each observation, with their costs."""
    segments = streets.segments
    points = np.array([point_seen.spot for point_seen in seen])
    near = segments.tree.query_ball_point(points, _NEAR_M + _STEP_M / 2)
    states = []
    for point_seen, point, samples in zip(seen, points, near, strict=True):
        pieces = np.unique(segments.of_sample[samples])
        states.append(_near(streets, point_seen, point, pieces, spots) if len(pieces) else [])
    return states


def _near(
    streets: Streets, seen: Observation, point: Floats, pieces: Ints, spots: Floats
) -> list[State]:
    """The nearest place on each edge that has one of these segments."""
    s = streets.segments
    step, length = s.step[pieces], s.length[pieces]
    share, distance = onto(*step.T, *(point - s.start[pieces]).T)
    along = s.begin[pieces] + share * length * s.scale[pieces]
    cost = 0.5 * (distance / _NOISE_M) ** 2
    unit = step / length[:, None]
    if seen.heading != (0.0, 0.0):
        cost += _HEADING_COST * (1.0 - unit @ np.array(seen.heading))
    if seen.stop >= 0:
        to_stop = spots[seen.stop] - (s.start[pieces] + share[:, None] * step)
        left = unit[:, 0] * to_stop[:, 1] - unit[:, 1] * to_stop[:, 0]
        cost += _SIDE_COST * ((-left if streets.lefthand else left) > 3.0)
    states: dict[int, State] = {}
    for i in np.argsort(distance, kind="stable").tolist():
        edge = int(s.edge[pieces[i]])
        if distance[i] > _NEAR_M or len(states) == _STATES:
            break
        if edge not in states:
            states[edge] = State(edge, float(along[i]), float(cost[i]))
    return list(states.values())


class _Reach:
    """Shortest ways from the end of an edge to the start of others, found once.

    In the graph, an edge is two nodes: its start, by its number, and behind all of those its end.
    """

    def __init__(self, streets: Streets) -> None:
        self._edges = len(streets.ids)
        pairs = [(e, *turn) for e, onward in enumerate(streets.onward) for turn in onward]
        edge, after, turns = np.array(pairs, np.int64).reshape(-1, 3).T
        turn_m = _TURNAROUND_M * turns
        metres = np.concatenate([streets.lengths[edge] + turn_m, turn_m])
        ways = np.concatenate([edge, edge + self._edges]), np.tile(after, 2)
        self._graph = csr_array((metres, ways), shape=(2 * self._edges, 2 * self._edges))
        self._known: dict[int, tuple[float, dict[int, float], dict[int, int]]] = {}

    def distances(self, edge: int, limit_m: float) -> dict[int, float]:
        """Metres from the end of an edge to the start of each edge within a limit."""
        if edge not in self._known or self._known[edge][0] < limit_m:
            end = edge + self._edges
            metres, before = dijkstra(
                self._graph, indices=end, limit=limit_m, return_predecessors=True
            )
            near = np.flatnonzero(np.isfinite(metres[: self._edges]))
            reached = near.tolist()
            self._known[edge] = (
                limit_m,
                dict(zip(reached, metres[near].tolist(), strict=True)),
                dict(zip(reached, before[near].tolist(), strict=True)),
            )
        return self._known[edge][1]

    def between(self, start: int, end: int) -> list[int]:
        """The edges between two, without them; the search has found a way."""
        before = self._known[start][2]
        way: list[int] = []
        at = before[end]
        while at < self._edges:
            way.append(at)
            at = before[at]
        return way[::-1]


def _steps(
    streets: Streets,
    reach: _Reach,
    before: Sequence[State],
    after: Sequence[State],
    seen: Sequence[Observation],
    link: _Link,
    here: int,
) -> Floats:
    """The cost of each step between the states of two observations, with all costs before it.

    Infinite if there is no way.
    """
    line_m = seen[here].along_m - seen[link.observation].along_m
    limit_m = 2.0 * line_m + 300.0
    metres = np.full((len(before), len(after)), np.inf)
    for row, one in enumerate(before):
        left_m = float(streets.lengths[one.edge]) - one.offset_m
        away = reach.distances(one.edge, limit_m)
        for column, other in enumerate(after):
            ahead_m = other.offset_m - one.offset_m
            if other.edge == one.edge and ahead_m >= -_BACKWARD_M:
                metres[row, column] = max(ahead_m, 0.0)
            elif other.edge in away:
                metres[row, column] = left_m + away[other.edge] + other.offset_m
    metres[metres > limit_m] = np.inf
    return link.cost[:, None] + np.abs(metres - line_m) / _DETOUR_M


def _backtrack(
    reach: _Reach,
    states: Sequence[Sequence[State]],
    chain: Sequence[_Link],
) -> Piece:
    """The best way through a chain of observations."""
    at = int(np.argmin(chain[-1].cost))
    way = [states[chain[-1].observation][at]]
    for link, before in pairwise(chain[::-1]):
        at = int(link.before[at])
        way.append(states[before.observation][at])
    way.reverse()
    edges = [way[0].edge]
    seen = [Matched(chain[0].observation, 0, way[0].offset_m)]
    for link, (one, other) in zip(chain[1:], pairwise(way), strict=True):
        offset_m = other.offset_m
        if other.edge == one.edge and offset_m >= one.offset_m - _BACKWARD_M:
            offset_m = max(offset_m, seen[-1].offset_m)
        else:
            edges += [*reach.between(one.edge, other.edge), other.edge]
        seen.append(Matched(link.observation, len(edges) - 1, offset_m))
    return Piece(tuple(edges), tuple(seen))
