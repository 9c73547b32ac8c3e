"""The streets of a SUMO network that buses may use, as plain arrays to match lines to."""

from typing import Any

import numpy as np

from evenline.city.geometry import Floats
from evenline.city.ranges import ROAD_M
from evenline.importing.matching import Streets
from evenline.support.errors import InputError
from evenline.worlds.sumo.streets import BUS, CARS, Placing, parsed, placed_lines, unpacked


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
        lengths=np.maximum([edge.getLength() for edge in edges], ROAD_M.low),
        lines=placed_lines([_line(edge) for edge in edges], placed),
        lanes=tuple(_kerb_lane(edge) for edge in edges),
        bus_lanes=tuple(_has_bus_lane(edge) for edge in edges),
        onward=tuple(_onward(edge, number) for edge in edges),
        spots={id: (float(x), float(y)) for id, (x, y) in zip(junctions, spots, strict=True)},
        signals=frozenset(
            id for id, node in junctions.items() if node.getType().startswith("traffic_light")
        ),
        lefthand=b'lefthand="true"' in unpacked(network)[:100_000],
    )


def _ends(edge: Any) -> tuple[Any, Any]:
    return edge.getFromNode(), edge.getToNode()


def _line(edge: Any) -> Floats:
    """The middle of an edge's lanes; of at least two points."""
    line = np.array([point[:2] for point in edge.getShape()], float)
    return line if len(line) > 1 else np.array([node.getCoord()[:2] for node in _ends(edge)], float)


def _kerb_lane(edge: Any) -> int:
    """The lane at the kerb that buses may use."""
    return next(i for i, lane in enumerate(edge.getLanes()) if lane.allows(BUS))


def _has_bus_lane(edge: Any) -> bool:
    return any(lane.allows(BUS) and not lane.allows(CARS) for lane in edge.getLanes())


def _onward(edge: Any, number: dict[str, int]) -> tuple[tuple[int, bool], ...]:
    """The edges that a bus can go on to, and whether by a U-turn."""
    turns = {}
    for target, links in edge.getOutgoing().items():
        usable = [x for x in links if x.getFromLane().allows(BUS) and x.getToLane().allows(BUS)]
        if usable and target.getID() in number:
            turns[number[target.getID()]] = usable[0].getDirection() == "t"
    return tuple(sorted(turns.items()))
