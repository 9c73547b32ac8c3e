"""Rides from counts: the sums are those that were counted, and nobody rides backwards."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenline.importing.people import whole
from evenline.records.patterns import aligned, common_places, places_of
from evenline.records.people import balanced, ride_tables, spread_of

counts = arrays(float, (3, 6), elements=st.integers(0, 30).map(float))


@settings(max_examples=40, deadline=None)
@given(counts, counts)
def test_rides_have_the_balanced_sums_and_go_forward(on: np.ndarray, off: np.ndarray) -> None:
    boarded, alighted = balanced(on.copy(), off.copy())
    np.testing.assert_allclose(boarded.sum(axis=1), alighted.sum(axis=1))
    assert (np.cumsum(boarded - alighted, axis=1) >= -1e-6).all(), (
        "never fewer than nobody on board"
    )
    rides = ride_tables(on.copy(), off.copy())
    assert (np.tril(rides) == 0).all()
    np.testing.assert_allclose(rides.sum(axis=2), boarded, atol=0.05 + 0.02 * boarded.max())


@given(arrays(float, 20, elements=st.floats(0, 3)), st.integers(0, 99))
def test_whole_numbers_keep_their_sum(expected: np.ndarray, seed: int) -> None:
    found = whole(expected, np.random.default_rng(seed))
    assert (found >= np.floor(expected)).all() and (found <= np.ceil(expected) + 1).all()
    assert abs(found.sum() - expected.sum()) < 1 + 1e-9


@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 5), max_size=8))
def test_common_places_are_in_order_in_both(first: list[int], second: list[int]) -> None:
    one, other = places_of(first), places_of(second)
    pairs = common_places(one, other)
    assert all(one[i] == other[j] for i, j in pairs)
    assert pairs == sorted(pairs) and len({j for _, j in pairs}) == len(pairs)


def test_departures_of_two_days_find_their_partners() -> None:
    plan = [0.0, 600.0, 1200.0, 1800.0, 2400.0]
    assert aligned(plan, [40.0, 580.0, 1900.0, 2390.0]) == [(0, 0), (1, 1), (3, 2), (4, 3)]
    assert aligned(plan, []) == []


def test_a_spread_has_a_wide_interval_where_days_are_few() -> None:
    few, many = spread_of(0.01, 1), spread_of(0.01, 100)
    assert few.low < 0.1 < few.high and few.high > 3 * many.high
    assert spread_of(0.01, 0).freedom == 0 and spread_of(0.01, 10, noise=0.02).sd == 0.0
