"""The rollout controller: its mirror keeps step with the world, and looking ahead pays."""

import numpy as np
import pytest
from small_actors import town

from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS
from evenline.control.event import BUS_AHEAD, HEADWAY_AHEAD, STOP, Batch
from evenline.control.world import run_episode
from evenline.errors import InputError
from evenline.policies.bundle import open_policy
from evenline.policies.controller import RuleController
from evenline.policies.rollout import MIRROR, Rollout, demand_level
from evenline.worlds.calibration import embedded_calibration
from evenline.worlds.fast.world import FastWorld

CELLS = PURPOSES["development"].cells(2)


def world() -> FastWorld:
    return FastWorld(town(), embedded_calibration(town()))


def rollout() -> Rollout:
    policy = open_policy("rollout", town())
    assert isinstance(policy, Rollout)
    return policy


def test_the_mirror_sees_the_same_buses_at_the_same_distance() -> None:
    """Other passengers, other luck, but every bus arrives when it does in the world."""
    policy, same, far = rollout(), [], []

    def watched(batch: Batch) -> list[float]:
        holds = policy(batch)
        mirror = policy._days.fleet.raw[MIRROR, : len(batch.raw)]
        same.append(np.array_equal(mirror[:, :3], batch.raw[:, :3]))
        here = batch.raw[:, BUS_AHEAD] == 1.0
        far.append(np.array_equal(mirror[here, HEADWAY_AHEAD], batch.raw[here, HEADWAY_AHEAD]))
        return holds

    run_episode(world(), CELLS[1], watched)
    assert all(same) and all(far) and len(same) > 400


def test_looking_changes_nothing() -> None:
    policy, day = rollout(), world()
    batch = day.reset(CELLS[0])
    assert batch is not None
    policy._follow(batch)
    before = [array[MIRROR].copy() for array in policy._days.fleet]
    first = policy.costs(0)
    second = policy.costs(0)
    assert np.array_equal(first, second)
    after = [array[MIRROR] for array in policy._days.fleet]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_chosen_hold_is_no_dearer_than_the_base_rules() -> None:
    policy, chosen = rollout(), []
    costs = policy.costs

    def noted(i: int) -> tuple[np.ndarray, np.ndarray]:
        tried, cost = costs(i)
        chosen.append(cost.min() <= cost[0])
        return tried, cost

    policy.costs = noted  # type: ignore[method-assign]
    run_episode(world(), CELLS[0], policy)
    assert all(chosen) and len(chosen) > 400


def test_every_day_is_followed_from_its_own_beginning() -> None:
    """A policy that has been through other days decides like a fresh one."""
    day, used = world(), rollout()
    for cell in CELLS[:3]:
        assert run_episode(day, cell, used) == run_episode(day, cell, rollout())


def test_a_day_broken_off_is_not_mixed_into_the_next() -> None:
    day, used = world(), rollout()
    batch = day.reset(CELLS[0])
    for _ in range(3):
        assert batch is not None
        batch = day.step(used(batch))
    assert run_episode(day, CELLS[1], used) == run_episode(day, CELLS[1], rollout())


def test_a_day_is_followed_from_its_first_bus_or_not_at_all() -> None:
    day = world()
    batch = day.reset(CELLS[0])
    while batch is not None and batch.raw[:, STOP].max() == 0:
        batch = day.step([0.0] * len(batch.trips))
    assert batch is not None
    with pytest.raises(InputError, match="must follow a day from its first bus on"):
        rollout()(batch)


def test_looking_ahead_beats_the_rule_it_looks_ahead_with() -> None:
    day, policy = world(), rollout()
    assert isinstance(policy.base, RuleController)
    ahead = [run_episode(day, cell, policy).generalized_s for cell in CELLS]
    base = [day.run_controller(cell, policy.base).generalized_s for cell in CELLS]
    assert np.mean(ahead) < np.mean(base)


@pytest.mark.parametrize("level", DEMAND_LEVELS)
def test_the_demand_level_is_read_off_the_events(level: float) -> None:
    day = world()
    batch = day.reset(PURPOSES["development"].cells(1, (level,))[0])
    assert batch is not None
    assert demand_level(town(), batch) == level
