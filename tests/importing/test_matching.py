"""Lines find their way on streets: exactly, in the direction of travel, around errors of shapes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.importing.lines import Shape
from evenline.importing.matching import Piece, Streets, match, observations
from small_maps import (
    BLOCK_M,
    Corner,
    corners,
    edge_id,
    grid,
    line_along,
    streets_between,
)

TOWN = grid(streets_between(corners(6, 6)))


def pieces_of(streets: Streets, line: Shape) -> list[Piece]:
    seen = observations(line.points, line.distance_m, line.spots, line.shaped)
    return match(streets, seen, line.spots)


def ids_of(streets: Streets, piece: Piece) -> list[str]:
    return [streets.ids[edge] for edge in piece.edges]


def ends(way: list[Corner]) -> dict[str, tuple[float, float]]:
    """Stops in the middle of the first and the last street of a way."""
    (a, b), (c, d) = way[:2], way[-2:]
    middles = [
        ((p[0] + q[0]) / 2 * BLOCK_M, (p[1] + q[1]) / 2 * BLOCK_M) for p, q in ((a, b), (c, d))
    ]
    return {"first": middles[0], "last": middles[1]}


@st.composite
def walks(draw: st.DrawFn) -> list[Corner]:
    """A walk through the town that never turns back."""
    way = [draw(st.sampled_from(corners(6, 6)))]
    for _ in range(draw(st.integers(3, 14))):
        (x, y), before = way[-1], way[-2] if len(way) > 1 else None
        onward = [(x + i, y + j) for i, j in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        way.append(
            draw(st.sampled_from([c for c in onward if c != before and c in set(corners(6, 6))]))
        )
    return way


@settings(max_examples=40, deadline=None)
@given(walks(), st.integers(0, 2**31))
def test_a_line_finds_exactly_the_streets_that_its_shape_follows(
    way: list[Corner], seed: int
) -> None:
    noise = np.random.Generator(np.random.PCG64(seed)).normal(0, 3.0, (200, 2))
    pieces = pieces_of(TOWN, line_along(way, ends(way), noise=noise, inset_m=BLOCK_M / 2))
    assert len(pieces) == 1
    assert ids_of(TOWN, pieces[0]) == [edge_id(*pair) for pair in pairwise(way)]


@settings(max_examples=20, deadline=None)
@given(walks(), st.sampled_from([True, False]))
def test_observations_keep_their_order_on_the_way(way: list[Corner], lefthand: bool) -> None:
    streets = grid(streets_between(corners(6, 6)), lefthand)
    (piece,) = pieces_of(streets, line_along(way, ends(way), inset_m=BLOCK_M / 2))
    places = [(seen.position, seen.offset_m) for seen in piece.seen]
    assert places == sorted(places)


def test_no_street_is_used_against_its_direction() -> None:
    against = ((2, 2), (3, 2))
    streets = grid([edge for edge in streets_between(corners(6, 6)) if edge != against])
    way = [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2)]
    (piece,) = pieces_of(streets, line_along(way, ends(way)))
    for one, other in pairwise(piece.edges):
        assert other in {after for after, _ in streets.onward[one]}
    used = ids_of(streets, piece)
    assert used[0] == edge_id((0, 2), (1, 2))
    assert used[-1] == edge_id((3, 2), (4, 2))


def test_a_spike_in_a_shape_does_not_end_the_way() -> None:
    way = [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2)]
    line = line_along(way, ends(way))
    shape = np.insert(line.points, 3, [2.4 * BLOCK_M, 1.2 * BLOCK_M], axis=0)
    longer_m = np.hypot(*np.diff(shape, axis=0).T).sum() - 5 * BLOCK_M
    spiked = replace(line, points=shape, distance_m=line.distance_m + np.array([0.0, longer_m]))
    pieces = pieces_of(TOWN, spiked)
    assert len(pieces) == 1
    assert ids_of(TOWN, pieces[0])[-1] == edge_id((4, 2), (5, 2))


@pytest.mark.parametrize("lefthand", [False, True])
def test_without_a_shape_a_stop_is_on_the_street_whose_kerb_it_is_at(lefthand: bool) -> None:
    """Two stops of a loop, on both sides of one street: the bus passes both at its kerb."""
    streets = grid(streets_between(corners(4, 2)), lefthand)
    side = 6.0 if lefthand else -6.0
    stops = {"out": (1.5 * BLOCK_M, side), "far": (2.5 * BLOCK_M, BLOCK_M - side),
             "back": (1.5 * BLOCK_M, BLOCK_M - side)}  # fmt: skip
    (piece,) = pieces_of(streets, line_along([(0, 0), (1, 0)], stops, shaped=False))
    seen = [streets.ids[piece.edges[each.position]] for each in piece.seen]
    assert seen == [edge_id((1, 0), (2, 0)), edge_id((3, 1), (2, 1)), edge_id((2, 1), (1, 1))]


def test_streets_that_do_not_meet_leave_a_gap() -> None:
    there = [c for c in corners(8, 3) if c[0] not in (3, 4)]
    streets = grid(streets_between(there))
    way = [(x, 1) for x in range(8)]
    pieces = pieces_of(streets, line_along(way, ends(way)))
    assert [ids_of(streets, piece) for piece in pieces] == [
        [edge_id((0, 1), (1, 1)), edge_id((1, 1), (2, 1))],
        [edge_id((5, 1), (6, 1)), edge_id((6, 1), (7, 1))],
    ]
