"""A line in sections: parts on connected streets, and gaps that the map leaves.

A gap is named by its place for people, or closed by straight links that lines share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from evenline.city.geometry import Floats, Origin, along_m, points_at
from evenline.importing.lines import Shape
from evenline.importing.matching import (
    Observation,
    Piece,
    Streets,
    match,
    observations,
)

_END_M = 150.0  # that a map may lack at the end of a line without a gap
_SHORTEST_PIECE_M = 100.0  # of a line; shorter pieces between gaps are chance
_STOP_LINK_M = 40.0  # of a stop that the map lacks
_NAMED_GAPS = 3  # in an error


@dataclass(frozen=True)
class Gap:
    """A part of a line that the map lacks, between two distances, with its stops."""

    line: Shape
    from_m: float
    to_m: float
    stops: tuple[int, ...]


@dataclass(frozen=True)
class Way:
    """The streets of a line or a part of it, and for each stop the position of its street and the
    metres along it.
    """

    edges: tuple[str, ...]
    stops: tuple[tuple[int, float], ...]


def sections_of(streets: Streets, line: Shape) -> list[Way | Gap]:
    """A line in order: parts on connected streets, and the gaps between them."""
    seen = observations(line.points, line.distance_m, line.spots, line.shaped)
    pieces = [
        piece for piece in match(streets, seen, line.spots)
        if _end_m(seen, piece) - _start_m(seen, piece) >= _SHORTEST_PIECE_M
    ]  # fmt: skip
    sections: list[Way | Gap] = []
    last_m, done = float(line.distance_m[0]), 0
    for piece in pieces:
        start_m, end_m = _start_m(seen, piece), _end_m(seen, piece)
        inside = [i for i in range(done, len(line.distance_m)) if line.distance_m[i] < start_m]
        if sections or start_m - last_m > _END_M:
            sections.append(Gap(line, last_m, start_m, tuple(inside)))
            done += len(inside)
        stops = [i for i in range(done, len(line.distance_m)) if line.distance_m[i] <= end_m]
        if piece is pieces[-1] and line.distance_m[-1] - end_m <= _END_M:
            stops = list(range(done, len(line.distance_m)))
        sections.append(_section(streets, line, seen, piece, stops))
        done, last_m = done + len(stops), end_m
    if done < len(line.distance_m):
        left = tuple(range(done, len(line.distance_m)))
        sections.append(Gap(line, last_m, float(line.distance_m[-1]), left))
    return sections


def _start_m(seen: Sequence[Observation], piece: Piece) -> float:
    return seen[piece.seen[0].observation].along_m


def _end_m(seen: Sequence[Observation], piece: Piece) -> float:
    return seen[piece.seen[-1].observation].along_m


def _section(
    streets: Streets,
    line: Shape,
    seen: Sequence[Observation],
    piece: Piece,
    stops: Sequence[int],
) -> Way:
    """A matched piece, with its stops between the observations around them."""
    begins = [0.0, *accumulate(float(streets.lengths[edge]) for edge in piece.edges)]
    line_m = [seen[place.observation].along_m for place in piece.seen]
    way_m = [begins[place.position] + place.offset_m for place in piece.seen]
    placed = []
    for at_m in np.interp(line.distance_m[list(stops)], line_m, way_m).tolist():
        position = min(int(np.searchsorted(begins, at_m, side="left")) or 1, len(piece.edges)) - 1
        placed.append((position, at_m - begins[position]))
    return Way(tuple(streets.ids[edge] for edge in piece.edges), tuple(placed))


def refusal(gaps: Sequence[Gap], origin: Origin) -> str:
    """What the map does not connect, in one line."""
    texts = []
    for gap in gaps[:_NAMED_GAPS]:
        line, at_m = gap.line, gap.line.distance_m
        before = line.places[max(int(np.searchsorted(at_m, gap.from_m, side="right")) - 1, 0)]
        after = line.places[min(int(np.searchsorted(at_m, gap.to_m)), len(at_m) - 1)]
        lat, lon = origin.degrees(*points_at(line.points, gap.from_m).tolist())
        texts.append(f"{line.id} from {before.name!r} to {after.name!r} after {lat:.5f}, {lon:.5f}")
    more = f" and {len(gaps) - _NAMED_GAPS} more" if len(gaps) > _NAMED_GAPS else ""
    return (
        f"no street connects {'; '.join(texts)}{more}; use a larger map, leave the line out, "
        "or close gaps by straight links with --bridge"
    )


# -- gaps -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Links:
    """What a map lacks: nodes with their places, edges between nodes, and connections of edges."""

    nodes: dict[str, tuple[float, float]] = field(default_factory=dict)
    edges: dict[str, tuple[str, str]] = field(default_factory=dict)
    connections: set[tuple[str, str]] = field(default_factory=set)
    _known: dict[tuple[str, ...], str] = field(default_factory=dict)

    def edge(self, start: str, end: str) -> str:
        """The link between two nodes."""
        if (start, end) not in self._known:
            id = self._known[start, end] = f"bridge{len(self.edges)}"
            self.edges[id] = (start, end)
        return self._known[start, end]

    def stop(self, stop: str, spot: Floats, step: Floats) -> str:
        """The short link of a stop, from one step before it to one behind.

        Lines in opposite directions do not share it.
        """
        key = (stop, "", "north" if step[1] >= 0 else "south")
        if key not in self._known:
            ends = []
            for x, y in (spot - step, spot + step):
                ends.append(f"bridge-node{len(self.nodes)}")
                self.nodes[ends[-1]] = (float(x), float(y))
            self._known[key] = self.edge(*ends)
        return self._known[key]


def whole_way(streets: Streets, sections: Sequence[Way | Gap], links: Links) -> Way:
    """The edges of a whole line; gaps are closed by links, which are added to those there are."""
    edges: list[str] = []
    stops: list[tuple[int, float]] = []
    for number, part in enumerate(sections):
        if isinstance(part, Way):
            stops += [(len(edges) + position, offset_m) for position, offset_m in part.stops]
            edges += part.edges
            continue
        following = sections[number + 1] if number + 1 < len(sections) else None
        head = following.edges[0] if isinstance(following, Way) else None
        link_edges, places = _bridge(streets, part, edges[-1] if edges else None, head, links)
        stops += [(len(edges) + place, _STOP_LINK_M) for place in places]
        edges += link_edges
    return Way(tuple(edges), tuple(stops))


def _bridge(
    streets: Streets, gap: Gap, tail: str | None, head: str | None, links: Links
) -> tuple[list[str], list[int]]:
    """Links from the end of one street to the start of another, by way of the stops between.

    Returns them, and the positions of those with a stop.
    """
    at = streets.ends[streets.number[tail]] if tail else None
    target = streets.starts[streets.number[head]] if head else None
    way: list[str] = []
    places = []
    for stop in gap.stops:
        link = links.stop(gap.line.places[stop].id, gap.line.spots[stop], _step(gap.line, stop))
        start, end = links.edges[link]
        if at is not None:
            way.append(links.edge(at, start))
        places.append(len(way))
        way.append(link)
        at = end
    if at is not None and target is not None and at != target:
        way.append(links.edge(at, target))
    whole = [*([tail] if tail else []), *way, *([head] if head else [])]
    links.connections.update(pairwise(whole))
    return way, places


def _step(line: Shape, stop: int) -> Floats:
    """Half of a stop's link: along the shape, short enough for the stops around it."""
    at_m = line.distance_m[stop]
    near_m = float(np.abs(np.delete(line.distance_m, stop) - at_m).min())
    around_m = np.clip([at_m - 10.0, at_m + 10.0], 0.0, along_m(line.points)[-1])
    step = np.diff(points_at(line.points, around_m), axis=0)[0]
    length = max(float(np.hypot(*step)), 1e-9)
    return np.asarray(step / length * max(min(_STOP_LINK_M, 0.8 * near_m) / 2, 1.0))
