"""The direction of patterns to which a feed gives none: with their route's main one, or against it.

The main pattern of a route is the one with most trips among those with a direction. If none has a
direction, it is the one with most trips of all, and its direction is 0. All days of a feed count,
so a pattern has the same direction and number on each.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Way = tuple[str, str, tuple[str, ...]]  # route, direction_id or nothing, stops
Spots = Mapping[str, tuple[float, float]]  # latitude and longitude of each stop


def numbered(ways: Counter[Way], spots: Spots) -> dict[Way, tuple[int, int]]:
    """The direction of each way, and its number among those of its route and direction, from 1."""
    known = [way for way in ways if len(way[2]) > 1 and all(stop in spots for stop in way[2])]
    known.sort(key=lambda way: (-ways[way], way))
    number: dict[tuple[str, int, tuple[str, ...]], int] = {}
    count: Counter[tuple[str, int]] = Counter()
    numbers = {}
    for way, direction in zip(known, directions(known, spots), strict=True):
        pattern = (way[0], direction, way[2])
        if pattern not in number:  # some of its trips may lack the direction that others have
            count[way[0], direction] += 1
            number[pattern] = count[way[0], direction]
        numbers[way] = direction, number[pattern]
    return numbers


def directions(ways: Sequence[Way], spots: Spots) -> list[int]:
    """The direction of each way; those with most trips come first."""
    leaders: dict[str, tuple[int, tuple[str, ...]]] = {}
    for route, direction, stops in sorted(ways, key=lambda way: not way[1]):
        leaders.setdefault(route, (int(direction or 0), stops))
    bits = []
    for route, direction, stops in ways:
        lead, leader = leaders[route]
        against = not direction and _against(leader, stops, spots)
        bits.append(int(direction or lead) ^ int(against))
    return bits


def _against(leader: tuple[str, ...], other: tuple[str, ...], spots: Spots) -> bool:
    """Whether a way runs against another: by the order of common stops, else by its bearing."""
    rank = {stop: number for number, stop in enumerate(leader)}
    common = [rank[stop] for stop in other if stop in rank]
    ups = sum(1 if a < b else -1 for a, b in pairwise(common) if a != b)
    if ups:
        return ups < 0
    (north, east), (north2, east2) = (_line(stops, spots) for stops in (leader, other))
    return north * north2 + east * east2 < 0.0


def _line(stops: tuple[str, ...], spots: Spots) -> tuple[float, float]:
    """From the first stop to the last, in degrees of latitude north and east."""
    (lat, lon), (lat2, lon2) = spots[stops[0]], spots[stops[-1]]
    return lat2 - lat, (lon2 - lon) * math.cos(math.radians(lat))
