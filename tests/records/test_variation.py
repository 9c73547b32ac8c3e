"""A pool of people that days draw from, and trips that start late: only where a city has them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.demand import Cell, departure_shifts, drawn_from_pool, realise
from evenline.city.model import City, Variation
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.calibration import LATE_QUANTILES, Runs, fit_runs
from evenline.worlds.fast.world import FastWorld
from recorded_truth import true_calibration, true_city


@pytest.fixture(scope="module")
def pooled() -> City:
    return replace(true_city(), variation=Variation(1.25, 0.1, 0.05))


def test_a_city_without_a_pool_draws_nobody() -> None:
    assert drawn_from_pool(true_city(), Cell(1, 1)) is None


def test_days_differ_and_have_the_typical_number_on_average(pooled: City) -> None:
    counts = [len(realise(pooled, Cell(1, seed)).journey) for seed in range(60)]
    typical = len(pooled.journeys) / 1.25
    assert np.mean(counts) == pytest.approx(typical, rel=0.05)
    assert 0.06 < np.std(counts) / typical < 0.16, "about the declared spread of days"


def test_people_of_a_pool_keep_their_random_times(pooled: City) -> None:
    people = realise(pooled, Cell(1, 5))
    own = pooled.journeys.departure_s[people.journey]
    np.testing.assert_array_equal(people.departure_s, own)
    assert not departure_shifts(pooled, Cell(1, 5)).any()
    assert departure_shifts(true_city(), Cell(1, 5)).any()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 500), level=st.sampled_from([0.25, 0.5, 0.75]))
def test_a_higher_level_contains_the_people_of_a_lower_one(
    pooled: City, seed: int, level: float
) -> None:
    low, high = (set(realise(pooled, Cell(1, seed, x)).journey.tolist()) for x in (level, 1.0))
    assert low <= high


def test_the_fast_world_carries_the_people_that_were_drawn(pooled: City) -> None:
    world = FastWorld(pooled, true_calibration(pooled))
    for seed in (1, 2):
        outcome = world.run_day(Cell(1, seed), BEHAVIOURS["zero"])
        assert outcome.departed == len(realise(pooled, Cell(1, seed)).journey)


def test_lateness_moves_first_arrivals_and_no_other_draw() -> None:
    city = true_city()
    plain = true_calibration(city)
    on_time = replace(plain, lateness_s=np.zeros((2, LATE_QUANTILES)))
    late = replace(plain, lateness_s=np.full((2, LATE_QUANTILES), 45.0))
    worlds = [FastWorld(city, each) for each in (plain, on_time, late)]
    outcomes = [world.run_day(Cell(3, 4), BEHAVIOURS["zero"]) for world in worlds]
    assert outcomes[0] == outcomes[1], "no lateness is no change, to the bit"
    first = FastWorld(city, plain), FastWorld(city, late)
    for world in first:
        world.run_day(Cell(3, 4), BEHAVIOURS["zero"])
    starts = np.array([8 * trip for trip in range(len(city.trips))])
    apart = first[1].arrivals_s[starts] - first[0].arrivals_s[starts]
    assert (apart[first[1].arrivals_s[starts] >= 0] == 45).all()


def test_the_pace_of_followers_is_found_whatever_the_numbers_of_trips() -> None:
    """Records number trips as they come; neighbours are neighbours in time on the same day."""
    city, rng = true_city(), np.random.default_rng(2)
    shared = rng.standard_normal((3, 2, 41))
    rows = []
    for number, (day, service, trip) in enumerate(
        rng.permutation([(d, s, t) for d in range(3) for s in range(2) for t in range(40)]).tolist()
    ):
        pace = 1 + 0.1 * (shared[day, service, trip] + shared[day, service, trip + 1])
        rows += [
            (8 * service + stop, number, day, 360.0 * trip + 70.0 * stop, 60.0 * pace)
            for stop in range(7)
        ]
    runs = Runs(*(np.array(column, float) for column in zip(*rows, strict=True)))
    found = fit_runs(city, runs, 0, {}).residuals
    assert found["correlation_of_followers_pace"] == pytest.approx(0.5, abs=0.12)
    assert found["sd_of_day_pace"] < 0.05
