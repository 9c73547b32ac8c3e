"""Centred rewards: the same order of policies, less noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.learn.centre import baseline_of, centred_cost
from evenline.learn.data import mean_return
from evenline.learn.lineage import lanes_of
from evenline.learn.online import Online
from evenline.learn.plan import Plan
from evenline.learn.run import Run, chosen_device, training_cell
from evenline.learn.schedule import LEARNERS, Budget
from evenline.learn.training import shortened
from evenline.replay.store import Store
from evenline.support.errors import InputError
from evenline.worlds.open import open_city
from small import fast_store

TOWN = open_city("town")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return fast_store(tmp_path_factory.mktemp("replay"), blocks=3)


def test_centring_adds_the_same_sum_to_every_policy_in_a_cell(store: Store) -> None:
    added = centred_cost(store, baseline_of(store)).astype(np.float64) - store.cost
    sums: dict[object, list[float]] = {}
    for episode in store.episodes:
        sums.setdefault(episode.cell, []).append(added[episode.first : episode.last].sum())
    assert all(len(each) == 8 for each in sums.values())
    for each in sums.values():
        np.testing.assert_allclose(each, each[0], rtol=1e-5)


def test_a_zero_hold_day_of_one_block_is_centred_to_nothing(store: Store) -> None:
    """With a single day, the mean is that day itself: every decision costs what was expected."""
    (alone,) = (
        e
        for e in store.episodes
        if e.behaviour == "zero" and e.cell.demand == 1.0 and e.cell.sumo_seed == 2101
    )
    baseline = baseline_of(replace(store, episodes=(alone,)))
    rows = slice(alone.first, alone.last)
    start = store.columns.time_s[rows]
    level = np.zeros(len(start), np.int64)
    expected = baseline.between(level, start, start + store.duration_s()[rows])
    np.testing.assert_allclose(expected, store.cost[rows], atol=1e-6)
    with pytest.raises(InputError, match=r"demand 0\.75: the replay has no day without holding"):
        baseline.level_of(0.75)


def test_centred_costs_spread_far_less(store: Store) -> None:
    centred = centred_cost(store, baseline_of(store))
    inside = ~store.terminal  # the last decision of a day carries the time to the horizon
    assert centred[inside].std() < 0.5 * store.cost[inside].std()


def test_simulated_days_are_centred_by_the_same_baseline(store: Store, tmp_path: Path) -> None:
    """A lane's events carry the fleet's costs minus the mean of its level between the times."""
    budget = Budget(iql_updates=0, warmup_events=150, events=150)
    events = {}
    for centred in (False, True):
        plan = Plan((LEARNERS["v14"],), (1,), slot=8, fused=16, hidden=8, centred=centred)
        plan = shortened(plan, budget)
        folder = tmp_path / str(centred)
        run = Run(folder, plan, TOWN.city, TOWN.fitted(), store, chosen_device("cpu"))
        online = Online.begin(run, lanes_of(run.plan), run.offline())
        online.run(150, folder / "end.safetensors")
        (events[centred],) = online.days
    horizon_s = TOWN.city.horizon_s
    times = np.rint(np.asarray(events[True].state[0, :, 0]) * horizon_s)
    baseline = baseline_of(store)
    level = np.full(150, baseline.level_of(training_cell(1, 0).demand))
    expected = baseline.between(level, times[:-1], times[1:])
    assert not np.asarray(events[True].over).any(), "all on the first day"
    np.testing.assert_allclose(
        np.asarray(events[True].cost[0]), np.asarray(events[False].cost[0]) - expected, atol=0.5
    )


def test_the_mean_return_is_that_of_every_row_to_the_end_of_its_day(store: Store) -> None:
    slow = [
        -1e-4 * store.cost[row : episode.last].sum()
        for episode in store.episodes[:2]
        for row in range(episode.first, episode.last)
    ]
    two = replace(store, episodes=store.episodes[:2], cost=store.cost[: store.episodes[1].last])
    assert mean_return(two) == pytest.approx(np.mean(slow))
