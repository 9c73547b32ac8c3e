"""Stops lie on a shape where they should: near it and in order, also on a street used twice."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.geometry import along_m, round_m
from evenline.importing.feed import open_feed
from evenline.importing.shapes import along_shape, middle, read_shapes
from evenline.importing.timetable import SourceStop
from evenline.support.errors import InputError


def test_metres_are_those_of_the_great_circle() -> None:
    here, there = SourceStop("a", "", -30.02, -51.22), SourceStop("b", "", -30.05, -51.19)
    origin = middle([here.spot, there.spot])
    spots = origin.points([here.spot, there.spot])
    assert along_m(spots)[-1] == pytest.approx(round_m(*here.spot, *there.spot), rel=1e-3)


def test_a_street_used_twice_is_used_in_order() -> None:
    """Out and back on the same street: the second stop at the same spot is on the way back."""
    shape = np.array([[0.0, 0.0], [1000.0, 0.0], [0.0, 0.0]])
    stops = np.array([[200.0, 5.0], [800.0, 5.0], [800.0, -5.0], [200.0, -5.0]])
    found = along_shape(shape, stops)
    assert found.distance_m == pytest.approx([200, 800, 1200, 1800])
    assert found.aside_m == pytest.approx([5, 5, 5, 5])


def test_a_loop_ends_where_it_began() -> None:
    shape = np.array([[0, 0], [100, 0], [100, 100], [0, 100], [0, 0]], float)
    stops = np.array([[0, 0], [100, 50], [50, 100], [0, 0]], float)
    assert along_shape(shape, stops).distance_m == pytest.approx([0, 150, 250, 400])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_other_order_is_nearer(seed: int) -> None:
    """Against every choice of segments, on small shapes."""
    rng = np.random.default_rng(seed)
    shape, stops = rng.uniform(0, 100, (5, 2)), rng.uniform(0, 100, (3, 2))
    found = along_shape(shape, stops)
    assert (np.diff(found.distance_m) >= -1e-9).all()
    begins = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(shape, axis=0), axis=1))])
    best = np.inf
    for choice in product(range(4), repeat=3):
        places, cost = [], 0.0
        for stop, segment in zip(stops, choice, strict=True):
            start, step = shape[segment], shape[segment + 1] - shape[segment]
            share = np.clip(np.dot(stop - start, step) / np.dot(step, step), 0, 1)
            places.append(begins[segment] + share * np.linalg.norm(step))
            cost += float(np.sum((stop - start - share * step) ** 2))
        apart = np.diff(places) > np.where(np.diff(choice) == 0, 1.0, -1e-9)
        if (np.diff(choice) >= 0).all() and apart.all():
            best = min(best, cost)
    if np.isfinite(best):
        assert float(np.sum(found.aside_m**2)) == pytest.approx(best)


def test_a_stop_in_the_wrong_place_moves_no_other_stop() -> None:
    """The feed of Porto Alegre ends a line with a stop that is 5 km away."""
    shape = np.array([[0.0, 0.0], [1000.0, 0.0], [1000.0, 800.0]])
    stops = np.array([[100.0, 5.0], [900.0, 5.0], [1005.0, 300.0], [1005.0, 700.0], [-5000.0, 0.0]])
    found = along_shape(shape, stops)
    assert found.distance_m[:4] == pytest.approx([100, 900, 1300, 1700])
    assert found.distance_m[4] >= 1700


def test_shapes_are_read_in_order_and_missing_ones_are_named(tmp_path: Path) -> None:
    columns = "shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence"
    rows = ["a,-30.0,-51.0,2", "a,-30.1,-51.0,1", "b,-30.0,-51.0,1", "b,-30.0,-51.0,2"]
    (tmp_path / "shapes.txt").write_text("\n".join([columns, *rows]) + "\n")
    feed = open_feed(tmp_path)
    assert read_shapes(feed, {"a"}) == {"a": [(-30.1, -51.0), (-30.0, -51.0)]}
    with pytest.raises(InputError, match=r"uses shape 'c', which shapes\.txt lacks"):
        read_shapes(feed, {"a", "c"})
    with pytest.raises(InputError, match="shape 'b' has fewer than two points"):
        read_shapes(feed, {"b"})
