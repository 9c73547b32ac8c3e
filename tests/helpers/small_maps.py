"""Small maps: a grid of streets as arrays and as OpenStreetMap XML, with lines on them; and the map
of the small feed, which is `examples/map.osm`.

`python tests/helpers/small_maps.py` writes the latter again.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evenline.city.geometry import Origin
from evenline.importing.lines import Shape
from evenline.importing.matching import Streets
from evenline.importing.shapes import along_shape
from evenline.importing.timetable import SourceStop
from feeds import small_feed

Floats = npt.NDArray[np.float64]
Corner = tuple[int, int]

ORIGIN = Origin(-30.05, -51.2)
EXAMPLE = Path(__file__).parents[2] / "examples" / "map.osm"
BLOCK_M = 150.0
KERB_M = 2.0  # from the middle of a street to the middle of the right-hand lane


def corners(columns: int, rows: int) -> list[Corner]:
    return [(x, y) for x in range(columns) for y in range(rows)]


def streets_between(nodes: Iterable[Corner]) -> list[tuple[Corner, Corner]]:
    """Both directions of every street between neighbours of a grid."""
    there = set(nodes)
    steps = ((1, 0), (0, 1), (-1, 0), (0, -1))
    return [(a, (a[0] + x, a[1] + y)) for a in there for x, y in steps
            if (a[0] + x, a[1] + y) in there]  # fmt: skip


def edge_id(start: Corner, end: Corner) -> str:
    return f"{start[0]}.{start[1]}-{end[0]}.{end[1]}"


def grid(edges: Sequence[tuple[Corner, Corner]], lefthand: bool = False) -> Streets:
    """Streets between corners; every turn but a U-turn is allowed."""
    edges = sorted(edges)
    number = {edge: i for i, edge in enumerate(edges)}
    return Streets(
        ids=tuple(edge_id(*edge) for edge in edges),
        starts=tuple(f"{a[0]}.{a[1]}" for a, _ in edges),
        ends=tuple(f"{b[0]}.{b[1]}" for _, b in edges),
        lengths=np.full(len(edges), BLOCK_M - 10.0),
        lines=tuple(lane(*edge, lefthand) for edge in edges),
        lanes=(0,) * len(edges),
        bus_lanes=(False,) * len(edges),
        onward=tuple(
            tuple((number[c, d], False) for c, d in edges if c == b and d != a) for a, b in edges
        ),
        spots={f"{x}.{y}": (BLOCK_M * x, BLOCK_M * y) for edge in edges for x, y in edge},
        signals=frozenset(),
        lefthand=lefthand,
    )


def lane(start: Corner, end: Corner, lefthand: bool = False) -> Floats:
    """The lane from one corner to another, which ends before the junctions."""
    a, b = BLOCK_M * np.array(start, float), BLOCK_M * np.array(end, float)
    ahead = (b - a) / BLOCK_M
    right = np.array([ahead[1], -ahead[0]]) * (-KERB_M if lefthand else KERB_M)
    return np.stack([a + 5 * ahead + right, b - 5 * ahead + right])


def line_along(
    way: Sequence[Corner],
    stops: Mapping[str, tuple[float, float]],
    shaped: bool = True,
    id: str = "L.0",
    noise: Floats | None = None,
    inset_m: float | None = None,
) -> Shape:
    """A line whose shape goes from corner to corner; stops are metres from the origin.

    With `inset_m`, its two stops are this far from the ends of the shape.
    """
    shape = BLOCK_M * np.array(way, float)
    if noise is not None:
        parts = [np.linspace(a, b, 6)[:-1] for a, b in pairwise(shape)]
        shape = np.concatenate([*parts, shape[-1:]])
        shape = shape + noise[: len(shape)]
    spots = np.array([*stops.values()], float)
    if not shaped:
        shape = spots
    distance_m = along_shape(shape, spots).distance_m
    if inset_m is not None:
        length_m = np.hypot(*np.diff(shape, axis=0).T).sum()
        distance_m = np.array([inset_m, length_m - inset_m])
    places = tuple(SourceStop(key, f"Stop {key}", *degrees(spot)) for key, spot in stops.items())
    return Shape(
        id=id,
        route=id.split(".")[0],
        name="",
        source="",
        places=places,
        spots=spots,
        points=shape,
        distance_m=distance_m,
        shaped=shaped,
    )


def degrees(spot: Sequence[float]) -> tuple[float, float]:
    return ORIGIN.degrees(*spot)


Ways = Mapping[int, tuple[Sequence[tuple[float, float]], Mapping[str, str]]]


def osm_text(ways: Ways, signals: Iterable[tuple[float, float]] = ()) -> str:
    """A map of ways through latitudes and longitudes, each with its tags."""
    nodes = {spot: n for n, spot in enumerate(
        dict.fromkeys(spot for way, _ in ways.values() for spot in way), 1)}  # fmt: skip
    lit = set(signals)
    lines = ["<?xml version='1.0' encoding='UTF-8'?>", '<osm version="0.6">']
    for (lat, lon), n in nodes.items():
        tag = '<tag k="highway" v="traffic_signals"/>' if (lat, lon) in lit else ""
        lines.append(f'<node id="{n}" version="1" lat="{lat:.7f}" lon="{lon:.7f}">{tag}</node>')
    for id, (way, tags) in ways.items():
        refs = "".join(f'<nd ref="{nodes[spot]}"/>' for spot in way)
        said = "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
        lines.append(f'<way id="{id}" version="1">{refs}{said}</way>')
    return "\n".join([*lines, "</osm>", ""])


def village(path: Path) -> Path:
    """Five streets from west to east and five from south to north, and an island in the east.

    Way 100 + y goes east along row y, way 200 + x north along column x. Row 2 is one-way to the
    east with a bus lane, row 3 one-way to the west; the corner (2, 2) has signals.
    """
    street = {"highway": "secondary", "maxspeed": "40", "lanes": "2"}
    one_way = {"highway": "secondary", "maxspeed": "40", "oneway": "yes"}
    bus_lane = {**one_way, "lanes": "2", "busway:right": "lane"}
    tags = {2: bus_lane, 3: one_way}
    ways: dict[int, tuple[list[Corner], dict[str, str]]] = {}
    for y in range(5):
        row = [(x, y) for x in range(5)]
        ways[100 + y] = (row[::-1] if y == 3 else row, tags.get(y, street))
    for x in range(5):
        ways[200 + x] = ([(x, y) for y in range(5)], street)
    ways[300] = ([(9, 2), (10, 2), (11, 2), (12, 2)], street)
    placed = {
        id: ([degrees((BLOCK_M * x, BLOCK_M * y)) for x, y in way], said)
        for id, (way, said) in ways.items()
    }
    lit = degrees((BLOCK_M * 2, BLOCK_M * 2))
    path.write_text(osm_text(placed, [lit]))
    return path


def example_map() -> str:
    """Streets for the small feed: a one-way pair along line 10, the ring of line 11, cross streets.

    The town hall has signals.
    """
    shapes: dict[str, list[tuple[float, float]]] = {"s10": [], "s10b": []}
    for row in small_feed()["shapes.txt"].splitlines()[1:]:
        shape, lat, lon, _ = row.split(",")
        shapes[shape].append((float(lat), float(lon)))
    stops = {}
    for row in small_feed()["stops.txt"].splitlines()[1:]:
        stop, _, lat, lon = row.split(",")
        stops[stop] = (float(lat), float(lon))
    main = {"highway": "secondary", "maxspeed": "50", "oneway": "yes"}
    side = {"highway": "residential", "maxspeed": "30"}
    ways = {
        10: (shapes["s10"], main),
        11: (shapes["s10b"], main),
        12: ([stops[stop] for stop in ("station", "mill", "park", "market")], side),
    }
    for number, stop in enumerate(("hall", "bridge", "clinic", "school"), 20):
        lat, lon = stops[stop]
        ways[number] = ([(lat - 0.003, lon), (lat, lon), (lat + 0.003, lon)], side)
    return osm_text(ways, [stops["hall"]])


if __name__ == "__main__":
    EXAMPLE.write_text(example_map())
    print(EXAMPLE)
