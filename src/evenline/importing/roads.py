"""The roads, stops and services of a city from lines whose streets are known.

Stops lie on the streets of their lines in order, at the kerb in the direction of travel, and off
the ends of a street if it is long enough. Lines that serve a stop share its place if they can. The
report says how far each service is from the shape of its line.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from evenline.city.geometry import Floats, along_m, apart_m, points_at
from evenline.city.model import Carried, Node, Road, Service, Stop
from evenline.importing.ids import clean_ids, free_id, readable
from evenline.importing.lines import Fit, Layout, Shape
from evenline.importing.matching import Streets
from evenline.importing.sections import Way
from evenline.importing.timetable import SourceStop
from evenline.support.errors import InputError

_FROM_START_M, _FROM_END_M = 30.0, 15.0  # of a stop's end, if its road is long enough
_SHIFT_M = 40.0  # along its line, that a stop may move to share a road or to leave a short one
_SHORT_M = 25.0
FAR_M = 100.0  # of a stop from its street
CLOSEST_M = 5.0  # two stops of a line
_ON_ROAD_M = 1.0  # of a stop from the start of its road, if the road is that long
_SAMPLE_M = 10.0  # of a line and its shape, to measure how far apart they are


@dataclass(frozen=True)
class _Place:
    """Where a line could stop: an edge at a position of its way, and the end of the stop on it."""

    position: int
    edge: int
    offset_m: float
    moved_m: float


@dataclass(frozen=True, eq=False)
class _Visit:
    """A stop of a line, and the places where it could be, the best first."""

    line: int
    number: int
    stop: SourceStop
    spot: Floats
    places: tuple[_Place, ...]


def laid_out(
    streets: Streets,
    lines: Sequence[Shape],
    ways: Sequence[Way],
    bridges: set[str],
    carried: Carried,
) -> Layout:
    """The city's parts, from the way of each line on the streets."""
    numbered = [[streets.number[edge] for edge in way.edges] for way in ways]
    for line, way in zip(lines, numbered, strict=True):
        _check_connected(streets, line, way)
    stops, chosen = _placed_stops(streets, lines, numbered, ways)
    ids = clean_ids(line.id for line in lines)
    services, fits = [], []
    for line, way, visited in zip(lines, numbered, chosen, strict=True):
        first, last = visited[0][1].position, visited[-1][1].position
        way = way[first : last + 1]
        begins = _begins(streets, way)
        at_m = [begins[place.position - first] + stops[row].pos_m for row, place in visited]
        service = Service(
            ids[line.id],
            line.route,
            tuple(row for row, _ in visited),
            tuple(round(at, 2) for at in at_m),
            tuple(streets.ids[edge] for edge in way),
            round(begins[-1], 2),
            line.name,
            line.source or line.id,
        )
        services.append(service)
        fits.append(_fit(streets, line, way, at_m, service, bridges))
    used = dict.fromkeys(road for service in services for road in service.roads)
    nodes, roads = _roads(streets, [streets.number[road] for road in used], bridges)
    places = defaultdict(set)
    for stop in stops:
        places[stop.source].add(stop.road)
    split = tuple(sorted(stop for stop, visited in places.items() if len(visited) > 1))
    far = tuple(filter(None, (_astray(streets, stop) for stop in stops)))
    return Layout(nodes, roads, tuple(stops), tuple(services), carried, tuple(fits), split, far)


def _check_connected(streets: Streets, line: Shape, way: Sequence[int]) -> None:
    for one, other in pairwise(way):
        if other not in {after for after, _ in streets.onward[one]}:
            raise InputError(
                f"line {line.id}: netconvert made no connection from {streets.ids[one]} to "
                f"{streets.ids[other]}; leave the line out or use another map"
            )


def _astray(streets: Streets, stop: Stop) -> str:
    """A complaint about a stop that is far from its street; empty if it is not."""
    line = streets.lines[streets.number[stop.road]]
    far_m = float(apart_m(np.array([[stop.x_m, stop.y_m]]), line)[0])
    if far_m <= FAR_M:
        return ""
    return f"stop {stop.id} ({stop.name}) is {far_m:,.0f} m from its street"


def _roads(
    streets: Streets, edges: Sequence[int], bridges: set[str]
) -> tuple[tuple[Node, ...], tuple[Road, ...]]:
    """The roads of some edges, and their junctions."""
    ends = dict.fromkeys(node for e in edges for node in (streets.starts[e], streets.ends[e]))
    ids = clean_ids(ends)
    nodes = tuple(
        Node(
            ids[node],
            round(streets.spots[node][0], 1),
            round(streets.spots[node][1], 1),
            node in streets.signals,
        )
        for node in ends
    )
    roads = tuple(
        Road(
            streets.ids[e],
            ids[streets.starts[e]],
            ids[streets.ends[e]],
            round(float(streets.lengths[e]), 2),
            streets.bus_lanes[e] and streets.ids[e] not in bridges,
            tuple((round(float(x), 1), round(float(y), 1)) for x, y in streets.lines[e]),
        )
        for e in edges
    )
    return nodes, roads


# -- stops ----------------------------------------------------------------------------------------


def _placed_stops(
    streets: Streets,
    lines: Sequence[Shape],
    numbered: Sequence[Sequence[int]],
    ways: Sequence[Way],
) -> tuple[list[Stop], list[list[tuple[int, _Place]]]]:
    """The stops of a city, and for each line the rows and places of its stops in order."""
    visits = [
        _Visit(i, k, place, line.spots[k], _places(streets, numbered[i], *ways[i].stops[k]))
        for i, line in enumerate(lines)
        for k, place in enumerate(line.places)
    ]
    by_stop: dict[str, list[_Visit]] = defaultdict(list)
    for visit in visits:
        by_stop[visit.stop.id].append(visit)
    place = {
        (visit.line, visit.number): spot
        for of_stop in by_stop.values()
        for visit, spot in _shared(of_stop)
    }
    for i, way in enumerate(numbered):
        of_stop = [visit for visit in visits if visit.line == i]
        spot = _in_order(streets, way, lines[i], [place[i, v.number] for v in of_stop])
        place |= {(i, k): at for k, at in enumerate(spot)}
    return _rows(streets, visits, place)


def _places(
    streets: Streets, way: Sequence[int], position: int, offset_m: float
) -> tuple[_Place, ...]:
    """The edges of a way near a spot on it, where a stop could be, the best first."""
    begins = _begins(streets, way)
    spot_m = begins[position] + min(offset_m, float(streets.lengths[way[position]]))
    places = []
    for at, (start_m, end_m) in enumerate(pairwise(begins)):
        if start_m - _SHIFT_M <= spot_m <= end_m + _SHIFT_M:
            length_m = end_m - start_m
            place_m = _clear_of_ends(spot_m - start_m, length_m)
            moved_m = abs(start_m + place_m - spot_m) + _SHIFT_M * (length_m < _SHORT_M)
            places.append(_Place(at, way[at], place_m, moved_m))
    return tuple(sorted(places, key=lambda place: place.moved_m))


def _begins(streets: Streets, way: Sequence[int]) -> list[float]:
    """The metres of a way before each of its edges, and its length."""
    return [0.0, *accumulate(float(streets.lengths[edge]) for edge in way)]


def _clear_of_ends(offset_m: float, length_m: float) -> float:
    """The end of a stop on a road, off the ends of the road if it is long enough."""
    if length_m < _FROM_START_M + _FROM_END_M:
        return max(length_m - min(_FROM_END_M, length_m / 4), min(_ON_ROAD_M, length_m))
    return min(max(offset_m, _FROM_START_M), length_m - _FROM_END_M)


def _shared(visits: Sequence[_Visit]) -> list[tuple[_Visit, _Place]]:
    """A place for each visit of a stop, on as few streets as possible."""
    left, shared = list(visits), []
    while left:
        usable: dict[int, list[tuple[_Visit, _Place]]] = defaultdict(list)
        for visit in left:
            best = visit.places[0].moved_m
            for edge, place in {p.edge: p for p in reversed(visit.places)}.items():
                if place.moved_m <= best + _SHIFT_M:
                    usable[edge].append((visit, place))
        _, together = min(
            usable.items(),
            key=lambda item: (-len(item[1]), sum(p.moved_m for _, p in item[1]), item[0]),
        )
        at_m = float(np.median([place.offset_m for _, place in together]))
        for visit, place in together:
            shared.append((visit, _Place(place.position, place.edge, at_m, place.moved_m)))
            left.remove(visit)
    return shared


def _in_order(
    streets: Streets, way: Sequence[int], line: Shape, places: Sequence[_Place]
) -> list[_Place]:
    """The places of a line's stops, each behind the one before it."""
    begins = _begins(streets, way)
    ordered: list[_Place] = []
    last_m = -CLOSEST_M
    for stop, place in zip(line.places, places, strict=True):
        at_m = begins[place.position] + place.offset_m
        if at_m < last_m + CLOSEST_M:
            at_m = last_m + CLOSEST_M
            if at_m > begins[-1]:
                raise InputError(f"line {line.id}: has no room for stop {stop.name!r} on its way")
            position = int(np.searchsorted(begins, at_m, side="left")) - 1
            length_m = begins[position + 1] - begins[position]
            offset_m = min(max(at_m - begins[position], _ON_ROAD_M), length_m)
            at_m = begins[position] + offset_m
            place = _Place(position, way[position], offset_m, 0.0)
        ordered.append(place)
        last_m = at_m
    return ordered


def _rows(
    streets: Streets,
    visits: Sequence[_Visit],
    place: Mapping[tuple[int, int], _Place],
) -> tuple[list[Stop], list[list[tuple[int, _Place]]]]:
    """One stop for each place, and one more for each time that a line comes again."""
    ids = clean_ids(visit.stop.id for visit in visits)
    taken: set[str] = set(ids.values())
    named: set[str] = set()
    index: dict[tuple[str, int, float, int], int] = {}
    stops: list[Stop] = []
    chosen: list[list[tuple[int, _Place]]] = []
    times: dict[tuple[int, str, int, float], int] = defaultdict(int)
    for visit in visits:
        here, source = place[visit.line, visit.number], visit.stop.id
        again = times[visit.line, source, here.edge, here.offset_m]
        times[visit.line, source, here.edge, here.offset_m] += 1
        key = source, here.edge, here.offset_m, again
        if key not in index:
            index[key] = len(stops)
            first = source not in named
            named.add(source)
            id = ids[source] if first else free_id(ids[source], taken)
            stops.append(_stop(streets, id, visit, here))
        if visit.line == len(chosen):
            chosen.append([])
        chosen[visit.line].append((index[key], here))
    return stops, chosen


def _stop(streets: Streets, id: str, visit: _Visit, place: _Place) -> Stop:
    return Stop(
        id,
        streets.ids[place.edge],
        round(place.offset_m, 2),
        round(float(visit.spot[0]), 1),
        round(float(visit.spot[1]), 1),
        visit.stop.name,
        readable(visit.stop.id),
        streets.lanes[place.edge],
    )


# -- how well a line fits -------------------------------------------------------------------------


def _fit(
    streets: Streets,
    line: Shape,
    way: Sequence[int],
    at_m: Sequence[float],
    service: Service,
    bridges: set[str],
) -> Fit:
    """Compare a service with its shape between the first stop and the last, both ways."""
    drawn = np.concatenate([streets.lines[e] for e in way])
    # Its polyline crosses junctions, which edges do not.
    longer = along_m(drawn)[-1] / service.length_m
    way_points = _sampled(drawn, at_m[0] * longer, at_m[-1] * longer)
    shape = _sampled(line.points, float(line.distance_m[0]), float(line.distance_m[-1]))
    off_m = np.concatenate([apart_m(way_points, shape), apart_m(shape, way_points)])
    return Fit(
        service.id,
        round(float(np.median(off_m)), 1),
        round(float(np.percentile(off_m, 95)), 1),
        service.length_m,
        round(sum(float(streets.lengths[e]) for e in way if streets.ids[e] in bridges), 1),
    )


def _sampled(line: Floats, start_m: float, end_m: float) -> Floats:
    """Points at equal distances on a polyline, between two distances along it."""
    pieces = max(int((end_m - start_m) / _SAMPLE_M), 1)
    return points_at(line, np.linspace(start_m, end_m, pieces + 1))
