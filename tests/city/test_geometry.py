"""Places on earth as metres, and places on polylines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenline.city.geometry import (
    EARTH_M,
    Origin,
    along_m,
    apart_m,
    flat_m,
    onto,
    points_at,
    round_m,
)

BEND = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [3.0, 10.0]])  # with a point twice
METRES = st.floats(-50_000, 50_000)


@given(METRES, METRES)
def test_metres_and_degrees_are_each_others_reverse(x_m: float, y_m: float) -> None:
    origin = Origin(46.2, 6.1)
    assert origin.metres(*origin.degrees(x_m, y_m)) == pytest.approx((x_m, y_m), abs=1e-6)


def test_rows_of_points_are_the_same_as_single_places() -> None:
    origin, spots = Origin(46.2, 6.1), [(46.3, 6.2), (46.0, 6.0)]
    assert origin.points(spots).tolist() == [list(origin.metres(*spot)) for spot in spots]
    assert origin.points([]).shape == (0, 2)


def test_a_degree_of_latitude_is_the_same_by_every_measure() -> None:
    degree_m = np.radians(1.0) * EARTH_M
    assert Origin(46.0, 6.0).metres(47.0, 6.0) == pytest.approx((0.0, degree_m))
    assert round_m(46.0, 6.0, 47.0, 6.0) == pytest.approx(degree_m)
    here, there, lon = np.array([46.0]), np.array([47.0]), np.array([6.0])
    assert flat_m(here, lon, there, lon) == pytest.approx(degree_m)


@given(METRES, METRES)
def test_in_a_city_a_flat_earth_is_as_good_as_a_round_one(x_m: float, y_m: float) -> None:
    origin = Origin(46.2, 6.1)
    lat, lon = origin.degrees(x_m / 5, y_m / 5)
    arrays = (np.array([value]) for value in (origin.lat, origin.lon, lat, lon))
    round_earth_m = round_m(origin.lat, origin.lon, lat, lon)
    assert flat_m(*arrays)[0] == pytest.approx(round_earth_m, rel=2e-3, abs=1e-3)


def test_a_polyline_is_measured_along_its_points() -> None:
    assert along_m(BEND).tolist() == [0.0, 5.0, 5.0, 11.0]
    assert points_at(BEND, 8.0).tolist() == [3.0, 7.0]
    assert points_at(BEND, np.array([-1.0, 2.5, 99.0])).tolist() == [[0, 0], [1.5, 2.0], [3, 10]]


@given(METRES, METRES)
def test_the_nearest_place_of_a_piece_is_nearer_than_its_others(x_m: float, y_m: float) -> None:
    share, aside_m = onto(300.0, 400.0, x_m, y_m)
    others = np.linspace(0.0, 1.0, 11)
    assert 0.0 <= share <= 1.0
    assert aside_m <= np.hypot(x_m - 300.0 * others, y_m - 400.0 * others).min() + 1e-6


def test_a_piece_without_length_is_a_point() -> None:
    assert onto(0.0, 0.0, 3.0, 4.0) == (0.0, 5.0)


def test_points_are_as_far_from_a_polyline_as_from_its_nearest_piece() -> None:
    points = np.array([[3.0, 7.0], [5.0, 6.0], [0.0, -2.0], [-4.0, 3.0]])
    assert apart_m(points, BEND).tolist() == [0.0, 2.0, 2.0, 5.0]
