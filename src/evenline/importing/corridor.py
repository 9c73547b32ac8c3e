"""A corridor city: roads that follow lines, for data without a map.

Each stop has a short road of its own, and links lead from one of these roads to the next. Lines
that serve a stop share its road, and lines of about the same length between two stops share the
link. There are no cross streets, so buses meet only each other.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from evenline.city.geometry import Floats, along_m
from evenline.city.model import Node, Road, Service, Stop
from evenline.importing.ids import clean_ids, free_id, readable
from evenline.importing.lines import Layout, Shape
from evenline.importing.timetable import SourceStop
from evenline.support.errors import InputError

_BEFORE_M, _AFTER_M = 35.0, 5.0  # of a stop's road; SUMO must see a bus leave its last stop
CLOSEST_M = 15.0  # stops that are closer on a line are taken to be this far apart
_SAME_M, _SAME_SHARE = 20.0, 0.1  # ways between two stops that differ by less share a link

Point = tuple[float, float]
Points = list[Point]


def corridor(lines: Sequence[Shape]) -> Layout:
    """Lay the roads of lines, set the stops beside them, and make a service of each line.

    Services come in the order of the lines. A stop that a line serves twice becomes two stops.
    """
    _check(lines)
    pieces, gaps = [_pieces(line) for line in lines], [_gaps(line) for line in lines]
    ids = clean_ids(place.id for line in lines for place in line.places)
    streets = _Streets(ids, _approaches(lines, gaps))
    for parts in zip(lines, pieces, gaps, strict=True):
        streets.lay_stops(*parts)
    ways = [streets.lay_links(*parts) for parts in zip(lines, pieces, gaps, strict=True)]
    stops, visits = _stops(lines, ids, streets)
    names = clean_ids(line.id for line in lines)
    return Layout(
        tuple(streets.nodes.values()),
        tuple(streets.roads.values()),
        stops,
        tuple(
            _service(line, names[line.id], visited, way, streets.roads)
            for line, visited, way in zip(lines, visits, ways, strict=True)
        ),
    )


def _check(lines: Sequence[Shape]) -> None:
    names = set()
    for line in lines:
        if line.id in names:
            raise InputError(f"line {line.id}: appears twice")
        names.add(line.id)
        count = len(line.places)
        if count < 2 or line.spots.shape != (count, 2) or line.distance_m.shape != (count,):
            raise InputError(
                f"line {line.id}: needs at least two stops, each with a place and a distance"
            )


def _gaps(line: Shape) -> list[float]:
    """Metres from each stop to the next."""
    steps = np.diff(line.distance_m).tolist()
    return [max(CLOSEST_M, round(step_m, 1)) for step_m in steps]


def _approaches(lines: Sequence[Shape], gaps: Sequence[Sequence[float]]) -> dict[str, float]:
    """Metres from the start of each stop's road to the stop; half of each way there is a link."""
    approaches: dict[str, float] = defaultdict(lambda: _BEFORE_M)
    for line, metres in zip(lines, gaps, strict=True):
        for place, gap_m in zip(line.places[1:], metres, strict=True):
            approaches[place.id] = min(approaches[place.id], round((gap_m - _AFTER_M) / 2, 1))
    return approaches


# -- geometry -------------------------------------------------------------------------------------


def _pieces(line: Shape) -> list[Points]:
    """The polyline from each stop to the next."""
    if not line.shaped:
        return [[(x, y), (x2, y2)] for (x, y), (x2, y2) in pairwise(line.spots.tolist())]
    along = along_m(line.points)
    return [
        _between(line.points, along, start_m, end_m)
        for start_m, end_m in pairwise(line.distance_m.tolist())
    ]


def _between(shape: Floats, along: Floats, start_m: float, end_m: float) -> Points:
    """The part of a polyline between two distances."""
    inner = (along > start_m) & (along < end_m)
    at_m = np.concatenate([[start_m], along[inner], [end_m]])
    x, y = (np.interp(at_m, along, shape[:, axis]).tolist() for axis in (0, 1))
    return list(zip(x, y, strict=True))


def _part(piece: Points, start: float, end: float) -> Points:
    """The part of a polyline between two shares of its length."""
    shape = np.array(piece, np.float64)
    along = along_m(shape)
    return _between(shape, along, start * float(along[-1]), end * float(along[-1]))


def _on(points: Points, length_m: float) -> Point:
    """The point that lies straight on after a polyline."""
    (x, y), *back = reversed(points)
    before = next((p for p in back if math.dist(p, (x, y)) > 0.1), (x - 1.0, y))
    share = length_m / math.dist(before, (x, y))
    return x + share * (x - before[0]), y + share * (y - before[1])


# -- roads ----------------------------------------------------------------------------------------


class _Streets:
    """Roads while they are laid."""

    def __init__(self, ids: Mapping[str, str], approach_m: Mapping[str, float]) -> None:
        self.nodes: dict[str, Node] = {}
        self.roads: dict[str, Road] = {}
        self.of_stop: dict[str, str] = {}
        self._links: dict[tuple[str, str], list[Road]] = defaultdict(list)
        self._ids, self.approach_m = ids, approach_m
        self._node_ids: set[str] = set()
        self._road_ids: set[str] = set()
        self._places: set[Point] = set()

    def lay_stops(self, line: Shape, pieces: Sequence[Points], gaps: Sequence[float]) -> None:
        """Give each stop of a line its road, if it has none yet."""
        for number, place in enumerate(line.places):
            if place.id in self.of_stop:
                continue
            id, approach_m = self._ids[place.id], self.approach_m[place.id]
            ahead = [] if number == len(gaps) else pieces[number]
            if number:
                points = _part(pieces[number - 1], 1 - approach_m / gaps[number - 1], 1.0)
            else:
                points = [_on(ahead[::-1], approach_m), ahead[0]]
            if ahead:
                points += _part(ahead, 0.0, _AFTER_M / gaps[number])[1:]
            else:
                points.append(_on(points, _AFTER_M))
            ends = self._node(f"{id}-in", points[0]), self._node(f"{id}-out", points[-1])
            length_m = round(approach_m + _AFTER_M, 1)
            self.of_stop[place.id] = self._road(f"{id}-stop", *ends, length_m, points).id

    def lay_links(
        self, line: Shape, pieces: Sequence[Points], gaps: Sequence[float]
    ) -> tuple[str, ...]:
        """The roads of a line; a link is laid unless there is one of about the same length."""
        stops = [place.id for place in line.places]
        way = [self.of_stop[stops[0]]]
        for pair, piece, gap_m in zip(pairwise(stops), pieces, gaps, strict=True):
            approach_m = self.approach_m[pair[1]]
            length_m = round(gap_m - _AFTER_M - approach_m, 1)
            link = next((r for r in self._links[pair] if _alike(r.length_m, length_m)), None)
            if link is None:
                start, end = (self.roads[self.of_stop[stop]] for stop in pair)
                points = _part(piece, _AFTER_M / gap_m, 1 - approach_m / gap_m)
                name = f"{self._ids[pair[0]]}_{self._ids[pair[1]]}"
                link = self._road(name, start.to_node, end.from_node, length_m, points)
                self._links[pair].append(link)
            way += [link.id, self.of_stop[pair[1]]]
        return tuple(way)

    def _node(self, wanted: str, point: Point) -> str:
        """A node of its own: netconvert refuses roads that end where they start."""
        x, y = round(point[0], 1), round(point[1], 1)
        while (x, y) in self._places:
            x = round(x + 1.0, 1)
        self._places.add((x, y))
        node = Node(free_id(wanted, self._node_ids), x, y, signal=False)
        self.nodes[node.id] = node
        return node.id

    def _road(self, wanted: str, start: str, end: str, length_m: float, points: Points) -> Road:
        inner = tuple((round(x, 1), round(y, 1)) for x, y in points[1:-1])
        id = free_id(wanted, self._road_ids)
        road = Road(id, start, end, length_m, bus_lane=False, shape=inner)
        self.roads[id] = road
        return road


def _alike(one_m: float, other_m: float) -> bool:
    return abs(one_m - other_m) <= max(_SAME_M, _SAME_SHARE * min(one_m, other_m))


# -- stops and services ---------------------------------------------------------------------------


def _stops(
    lines: Sequence[Shape], ids: Mapping[str, str], streets: _Streets
) -> tuple[tuple[Stop, ...], list[tuple[int, ...]]]:
    """The stops, one for each time that some line serves it, and those of each line."""
    taken = set(ids.values())
    index: dict[tuple[str, int], int] = {}
    stops: list[Stop] = []
    visits = []
    for line in lines:
        seen: dict[str, int] = defaultdict(int)
        visited = []
        for place, spot in zip(line.places, line.spots.tolist(), strict=True):
            seen[place.id] += 1
            key = place.id, seen[place.id]
            if key not in index:
                index[key] = len(stops)
                name = ids[place.id]
                if seen[place.id] > 1:
                    name = free_id(f"{name}~{seen[place.id]}", taken)
                stops.append(_stop(name, place, spot, streets))
            visited.append(index[key])
        visits.append(tuple(visited))
    return tuple(stops), visits


def _stop(name: str, place: SourceStop, spot: Sequence[float], streets: _Streets) -> Stop:
    x, y = round(spot[0], 1), round(spot[1], 1)
    road, pos_m = streets.of_stop[place.id], streets.approach_m[place.id]
    return Stop(name, road, pos_m, x, y, place.name, readable(place.id))


def _service(
    line: Shape, name: str, stops: tuple[int, ...], way: tuple[str, ...], roads: Mapping[str, Road]
) -> Service:
    """The service of a line; every second road of its way is that of a stop."""
    ends_m = [round(end, 1) for end in accumulate(roads[road].length_m for road in way)]
    at_m = tuple(round(end_m - _AFTER_M, 1) for end_m in ends_m[::2])
    return Service(name, line.route, stops, at_m, way, ends_m[-1], line.name, line.source)
