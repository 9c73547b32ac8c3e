"""A cell's people: who departs, when, and what a planner expects at each stop."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenline.city.demand import (
    DEMAND_LEVELS,
    RATE_BIN_S,
    Cell,
    arrival_rates,
    realise,
    service_stop_offsets,
)
from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.support.errors import InputError

levels = st.floats(0.0, 1.25)
seeds = st.integers(0, 2**31 - 1)


def departures(city: City, demand_seed: int, level: float) -> dict[int, int]:
    """Journey to departure of everyone who departs."""
    people = realise(city, Cell(1, demand_seed, level))
    assert len(set(people.journey.tolist())) == len(people.journey)
    return dict(zip(people.journey.tolist(), people.departure_s.tolist(), strict=True))


def shifts(city: City, demand_seed: int) -> np.ndarray:
    """By how much each journey of a city moves in a block."""
    people = realise(city, Cell(1, demand_seed, 1.25))
    moved = np.empty(len(city.journeys))
    moved[people.journey] = people.departure_s
    return moved - city.journeys.departure_s


@settings(deadline=None)
@given(seeds, levels, levels)
def test_a_higher_level_contains_everybody_of_a_lower_one_at_the_same_time(
    seed: int, one: float, other: float
) -> None:
    low, high = (departures(embedded_city("town"), seed, x) for x in sorted((one, other)))
    assert low.items() <= high.items()


@settings(deadline=None)
@given(seeds, levels)
def test_those_depart_whose_level_is_reached(seed: int, level: float) -> None:
    town = embedded_city("town")
    people = realise(town, Cell(1, seed, level))
    assert set(people.journey.tolist()) == {
        p for p, least in enumerate(town.journeys.min_demand.tolist()) if least <= level
    }
    assert (np.diff(people.departure_s) >= 0).all()


@pytest.mark.parametrize(("name", "count"), [("city", 17_200), ("town", 2_700)])
@pytest.mark.parametrize("level", DEMAND_LEVELS)
def test_the_number_of_people_is_in_proportion_to_the_level(
    name: str, count: int, level: float
) -> None:
    assert len(realise(embedded_city(name), Cell(1, 2, level)).journey) == count * level


@settings(deadline=None)
@given(seeds)
def test_nobody_moves_by_more_than_two_minutes(seed: int) -> None:
    moved = shifts(embedded_city("town"), seed)
    assert np.abs(moved).max() <= 120


def test_the_shifts_are_uniform_over_four_minutes() -> None:
    """Whole seconds are spread over the second around them before the test."""
    city = embedded_city("city")
    spread = np.random.default_rng(0).random(len(city.journeys)) - 0.5
    for seed in (8201, 8202, 8203):
        moved = shifts(city, seed)
        assert stats.kstest(moved + spread, stats.uniform(-120, 240).cdf).pvalue > 1e-3
        assert moved.min() == -120 and moved.max() == 120


def test_the_shifts_depend_on_nothing_but_passenger_and_block() -> None:
    city = embedded_city("city")
    first, second = shifts(city, 8201), shifts(city, 8202)
    limit = 4 / math.sqrt(len(first))
    for other in (second, city.journeys.departure_s, city.journeys.min_demand):
        assert abs(np.corrcoef(first, other)[0, 1]) < limit
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < limit


@settings(deadline=None)
@given(seeds, seeds)
def test_another_demand_seed_is_another_day_and_the_sumo_seed_does_not_matter(
    one: int, other: int
) -> None:
    town = embedded_city("town")
    assert (departures(town, one, 1.0) == departures(town, other, 1.0)) == (one == other)
    again = realise(town, Cell(99, one, 1.0))
    assert departures(town, one, 1.0) == dict(
        zip(again.journey.tolist(), again.departure_s.tolist(), strict=True)
    )


@settings(deadline=None)
@given(seeds)
def test_at_the_ends_of_the_day_a_shift_stops_at_the_first_and_last_second(seed: int) -> None:
    town = embedded_city("town")
    edges = np.where(np.arange(len(town.journeys)) < 1000, 3, town.horizon_s - 2).astype(np.int32)
    short = replace(town, journeys=replace(town.journeys, departure_s=edges))
    free = shifts(town, seed)
    expected = np.minimum(np.maximum(edges + free, 0), town.horizon_s - 1)
    assert np.array_equal(shifts(short, seed), expected - edges)
    assert expected.min() == 0 and expected.max() == town.horizon_s - 1


@pytest.mark.parametrize("level", [0.0, 0.4, 1.0, 1.25])
def test_arrival_rates_count_first_legs_for_every_service_that_carries_them(
    town: City, level: float
) -> None:
    journeys, rates = town.journeys, arrival_rates(town, level)
    counted = np.zeros((sum(len(s.stops) for s in town.services), math.ceil(7_200 / RATE_BIN_S)))
    for person in range(len(journeys)):
        if journeys.min_demand[person] > level:
            continue
        leg = journeys.leg_start[person]
        row = 0
        for index, service in enumerate(town.services):
            for stop in service.stops:
                carries = index in journeys.carriers[journeys.leg_carriers[leg]]
                if carries and stop == journeys.leg_board[leg]:
                    counted[row, journeys.departure_s[person] // RATE_BIN_S] += 1
                row += 1
    assert np.allclose(rates * RATE_BIN_S, counted, rtol=1e-12, atol=1e-12)
    assert (rates > 0).any() == (level > 0)


def test_nobody_is_expected_at_a_last_stop(town: City) -> None:
    last = service_stop_offsets(town)[1:] - 1
    rates = arrival_rates(town, 1.25)
    assert (rates[last] == 0).all() and (rates[last - 1] > 0).any()


@pytest.mark.parametrize("demand", [-0.01, math.nan, math.inf, -math.inf])
def test_a_demand_that_is_no_amount_is_refused(demand: float) -> None:
    with pytest.raises(InputError, match=f"demand {demand}: must be"):
        Cell(1, 1, demand)


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_that_sumo_cannot_take_is_refused(seed: int) -> None:
    with pytest.raises(InputError, match=f"SUMO seed {seed}: must be from 0"):
        Cell(seed, 1)
    with pytest.raises(InputError, match=f"demand seed {seed}: must be from 0"):
        Cell(1, seed)


@settings(deadline=None)
@given(st.floats(1.2501, 1e6))
def test_a_level_above_what_the_journeys_hold_is_refused(level: float) -> None:
    with pytest.raises(InputError, match=r"town has journeys up to demand 1\.25"):
        realise(embedded_city("town"), Cell(1, 1, level))


def test_a_cell_is_named_by_its_seeds_and_level() -> None:
    assert Cell(8101, 8201, 0.75).name == "8101-8201-0.75"
