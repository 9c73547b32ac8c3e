"""Lines on the streets of a map: the roads, stops and services of a city that carries its network.

Each line is matched to connected streets along its shape. A line that the map does not connect is
refused with its place, or bridged by straight links.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evenline.city.geometry import Origin
from evenline.city.model import Carried
from evenline.importing.lines import Layout, Shape
from evenline.importing.maps import network_of, with_links
from evenline.importing.roads import laid_out
from evenline.importing.sections import (
    Gap,
    Links,
    refusal,
    sections_of,
    whole_way,
)
from evenline.importing.streets import read_streets
from evenline.support.errors import InputError


@dataclass(frozen=True)
class Map:
    """A map file, and how to use it."""

    path: Path
    bridge: bool = False
    lefthand: bool = False


def matched(lines: Sequence[Shape], origin: Origin, source: Map) -> Layout:
    """Lay lines on the streets of a map; their places are metres from the origin."""
    network = network_of(source.path, origin, [line.points for line in lines], source.lefthand)
    streets = read_streets(network.content, network.placed, str(source.path))
    sections = [sections_of(streets, line) for line in lines]
    gaps = [gap for parts in sections for gap in parts if isinstance(gap, Gap)]
    if gaps and not source.bridge:
        raise InputError(f"{source.path}: {refusal(gaps, origin)}")
    links = Links()
    ways = [whole_way(streets, parts, links) for parts in sections]
    if links.connections:
        network = with_links(network, streets, links)
        streets = read_streets(network.content, network.placed, str(source.path))
    return laid_out(streets, lines, ways, set(links.edges), Carried(network.content))
