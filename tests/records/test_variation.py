"""A pool of people that days draw from, and trips that start late: only where a city has them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.demand import Cell, drawn_from_pool, realise
from evenline.city.model import City, Variation
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.calibration import LATE_QUANTILES
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
