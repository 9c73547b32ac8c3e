"""The rollout controller: its mirror keeps step with the world, and looking ahead pays."""

import numpy as np
import pytest

from calibrated import calibration_of, policy_in
from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.embedded import embedded_city
from evenline.control.event import BUS_AHEAD, HEADWAY_AHEAD, STOP, Array, Batch
from evenline.control.world import run_episode
from evenline.policies.rollout import Rollout
from evenline.rules.policy import RulePolicy
from evenline.support.errors import InputError
from evenline.worlds.fast.lookahead import MIRROR, Mirror
from evenline.worlds.fast.world import FastWorld
from small_actors import town

CELLS = PURPOSES["development"].cells(2)


def world() -> FastWorld:
    return FastWorld(town(), calibration_of(town()))


def rollout() -> Rollout:
    policy = policy_in("rollout", town())
    assert isinstance(policy, Rollout)
    return policy


def test_the_mirror_sees_the_same_buses_at_the_same_distance() -> None:
    """Other passengers, other luck, but every bus arrives when it does in the world."""
    policy, same, far = rollout(), [], []

    def watched(batch: Batch) -> list[float]:
        holds = policy(batch)
        mirror = policy.mirror.moment.raw
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
    before = [array[MIRROR].copy() for array in policy.mirror._days.fleet]
    first = policy.costs(0)
    second = policy.costs(0)
    assert np.array_equal(first, second)
    after = [array[MIRROR] for array in policy.mirror._days.fleet]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_proposal_is_the_tried_hold_of_least_cost() -> None:
    policy, wanted, got = rollout(), [], []
    costs = policy.costs

    def noted(i: int) -> tuple[Array, Array]:
        tried, cost = costs(i)
        wanted.append({float(hold) for hold in tried[cost == min(cost)]})
        return tried, cost

    def watched(batch: Batch) -> list[float]:
        proposals, holds = policy.decide(batch)
        got.extend(proposals.tolist())
        return [float(hold) for hold in holds]

    policy.costs = noted  # type: ignore[method-assign]
    run_episode(world(), CELLS[0], watched)
    assert all(hold in best for hold, best in zip(got, wanted, strict=True))
    assert len(got) > 400 and len(set(got)) > 4, "every tried hold and the base rule's are chosen"


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
    with pytest.raises(InputError, match="must see every batch of a day from the first one"):
        rollout()(batch)


def test_looking_ahead_beats_the_rule_it_looks_ahead_with() -> None:
    day, policy = world(), rollout()
    assert isinstance(policy.base, RulePolicy)
    ahead = [run_episode(day, cell, policy).generalized_s for cell in CELLS]
    base = [day.run_day(cell, policy.base).generalized_s for cell in CELLS]
    assert np.mean(ahead) < np.mean(base)


@pytest.mark.parametrize("level", DEMAND_LEVELS)
@pytest.mark.parametrize("name", ["town", "city"])
def test_the_demand_level_is_read_off_the_events(name: str, level: float) -> None:
    """In `city` two levels look alike at first; later the mirror is as if the level were known."""
    city = embedded_city(name)
    calibration = calibration_of(city)
    policy, told = policy_in("rollout", city), Mirror(city, calibration)
    assert isinstance(policy, Rollout)
    block = PURPOSES["calibration"].cells(1)[0]
    told.begin(Cell(block.sumo_seed, block.demand_seed, level))
    day = FastWorld(city, calibration)
    batch = day.reset(PURPOSES["development"].cells(1, (level,))[0])
    for _ in range(30):
        assert batch is not None
        holds = policy(batch)
        told.bring(batch)
        told.serve(holds)
        batch = day.step(holds)
    assert policy.level_known and policy.level == level
    mirror, expected = policy.mirror._days.fleet, told._days.fleet
    for part in ("num", "second", "trip", "visit", "queue"):
        assert np.array_equal(getattr(mirror, part)[MIRROR], getattr(expected, part)[MIRROR]), part
