"""The Gymnasium environment: Gymnasium's own checker, the day's account, and PettingZoo's twin."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.control.action import action_of
from evenline.control.aec import HoldingAEC
from evenline.control.gym import HoldingEnv
from evenline.support.errors import InputError
from evenline.worlds.sumo.world import SumoWorld
from scripted import ScriptedWorld, cell_of


def scripted_world() -> ScriptedWorld:
    return ScriptedWorld(embedded_city("town"))


@pytest.fixture
def sumo_env(town: City) -> Iterator[HoldingEnv]:
    env = HoldingEnv(lambda: SumoWorld(town), cell_of)
    yield env
    env.close()


def test_sumo_passes_the_checker_without_a_complaint(sumo_env: HoldingEnv, town: City) -> None:
    def another(**_: Any) -> HoldingEnv:
        return HoldingEnv(lambda: SumoWorld(town), cell_of)

    # A spec makes the checker compare two resets and open and close a second environment.
    sumo_env.spec = EnvSpec("evenline/Holding-v0", entry_point=another)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(sumo_env)


def test_the_rewards_of_a_day_in_sumo_are_its_passenger_time(sumo_env: HoldingEnv) -> None:
    rng = np.random.default_rng(1)
    _, info = sumo_env.reset(seed=7)
    cost, steps, over = info["cost"], 0, False
    while not over:
        assert None not in (info["trip"], info["stop"])
        action = np.array([max(-1.0, rng.uniform(-3, 1))], np.float32)
        state, reward, over, truncated, info = sumo_env.step(action)
        assert sumo_env.observation_space.contains(state)
        assert reward == -info["cost"]
        assert not truncated
        cost, steps = cost - reward, steps + 1
    outcome = sumo_env.cycle.world.outcome()
    assert steps == outcome.decisions
    assert cost == pytest.approx(outcome.generalized_s * outcome.departed, rel=1e-9)
    assert info.pop("executed_holds_s") == pytest.approx([30.0 * (float(action[0]) + 1.0)])
    assert info == {"trip": None, "stop": None, "time_s": 7_200, "cost": info["cost"]}
    with pytest.raises(InputError, match="the day is over"):
        sumo_env.step(action)


@settings(deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_both_views_are_the_same_day(seed: int) -> None:
    single, many = HoldingEnv(scripted_world, cell_of), HoldingAEC(scripted_world, cell_of)
    rng, over = np.random.default_rng(seed), False
    state, info = single.reset(seed=seed)
    many.reset(seed=seed)
    while not over:
        assert info["trip"] == many.agent_selection
        assert np.array_equal(state, many.observe(info["trip"]))
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        bus = info["trip"]
        state, reward, over, _, info = single.step(action)
        many.step(action)
        assert reward == many.rewards[bus]
    assert all(many.terminations.values())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.5, -1.0001])
def test_a_refused_action_names_bus_stop_and_value(value: float) -> None:
    env = HoldingEnv(scripted_world, cell_of)
    state, info = env.reset(seed=1)
    with pytest.raises(InputError) as refusal:
        env.step(np.array([value]))
    assert str(refusal.value) == (
        f"bus {info['trip']} at stop {info['stop']}: action {value} is not from -1 to 1"
    )
    with pytest.raises(InputError, match="expected one action, got 2"):
        env.step(np.array([0.0, 0.0]))
    assert np.array_equal(env.cycle.state(), state), "a refusal changes nothing"


def test_minus_one_is_exactly_no_hold_and_one_the_cap() -> None:
    env = HoldingEnv(scripted_world, cell_of)
    world = env.cycle.world
    assert isinstance(world, ScriptedWorld)
    for action, hold in ((-1.0, 0.0), (1.0, 60.0)):
        env.reset(seed=3)
        for _ in range(len(world.batches[0].trips)):
            env.step(np.array([action], np.float32))
        assert world.holds == [[hold] * len(world.batches[0].trips)]
        assert action_of(hold) == action


def test_a_day_without_a_decision_is_refused() -> None:
    env = HoldingEnv(lambda: ScriptedWorld(embedded_city("town"), moments=0), cell_of)
    with pytest.raises(InputError, match=r"^cell 2-502-1\.00: no bus reaches a stop"):
        env.reset(seed=1)
