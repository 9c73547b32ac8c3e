"""The parallel PettingZoo environment: PettingZoo's own tests, then what a bus sees and pays."""

import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import parallel_api_test, parallel_seed_test

from evenline.city.demand import Cell
from evenline.city.embedded import embedded_city
from evenline.control.aec import HoldingAEC
from evenline.control.gym import HoldingEnv
from evenline.control.parallel import HoldingParallel
from evenline.control.state import CANONICAL_WIDTH
from evenline.control.world import World
from evenline.support.errors import InputError
from evenline.worlds.open import open_city
from scripted import ScriptedWorld, cell_of

PREFIX, SLOT = 5, 14  # the paper's canonical layout: 5 + 16 x (active, 12 features, action)
SEEDS = st.integers(0, 2**31 - 1)


def scripted_world(moments: int = 30) -> ScriptedWorld:
    return ScriptedWorld(embedded_city("town"), moments)


def scripted_env(moments: int = 30) -> HoldingParallel:
    return HoldingParallel(lambda: scripted_world(moments), cell_of)


def fast_world() -> World:
    return open_city("town").fast_world()


@pytest.mark.parametrize("make_world", [scripted_world, fast_world])
def test_it_passes_pettingzoos_own_tests(make_world: Callable[[], World]) -> None:
    def make() -> HoldingParallel:
        return HoldingParallel(make_world, cell_of)

    with warnings.catch_warnings(action="error"):
        parallel_api_test(make(), num_cycles=100)
        parallel_seed_test(make, num_cycles=100)


@settings(deadline=None, max_examples=10)
@given(SEEDS)
def test_the_buses_of_a_batch_decide_together_and_see_no_action_of_it(seed: int) -> None:
    env, rng = scripted_env(), np.random.default_rng(seed)
    states, infos = env.reset(seed=seed)
    world = env.cycle.world
    assert isinstance(world, ScriptedWorld)
    while env.agents:
        batch = world.batches[-1]
        buses = [world.city.trips[trip].id for trip in batch.trips]
        assert [bus for bus in env.agents if infos[bus]["decides"]] == sorted(
            buses, key=env.agents.index
        )
        for agent in env.agents:
            state, token = states[agent], buses.index(agent) if agent in buses else 0
            assert env.observation_space(agent).contains(state)
            assert state[0] == np.float32(batch.time_s / world.city.horizon_s)
            size = len(buses) if agent in buses else 0
            assert (state[1] * 16, state[2] * 16) == (size, token)
            slots = state[PREFIX:].reshape(16, SLOT)
            assert slots[:, 0].sum() == size and (slots[:, -1] == -1.0).all()
        actions = {bus: rng.uniform(-1, 1, 1).astype(np.float32) for bus in buses}
        states, _, _, cut, infos = env.step(actions)
        assert world.holds[-1] == [(float(actions[bus].item()) + 1) / 2 * 60 for bus in buses]
        assert not any(cut.values())
    assert not any(info["decides"] for info in infos.values())


@settings(deadline=None, max_examples=10)
@given(SEEDS)
def test_all_three_views_are_the_same_day(seed: int) -> None:
    """The same actions give the same outcome; a bus is paid the same in both PettingZoo views."""
    worlds = [scripted_world() for _ in range(3)]
    _same_day(worlds, seed)
    assert worlds[0].outcome() == worlds[1].outcome() == worlds[2].outcome()


def test_all_three_views_are_the_same_day_in_the_fast_world() -> None:
    opened = open_city("town")
    worlds = [opened.fast_world() for _ in range(3)]
    _same_day(worlds, 7)
    assert worlds[0].outcome() == worlds[1].outcome() == worlds[2].outcome()


def _same_day(worlds: list[Any], seed: int) -> None:
    one, many, all_at_once = (
        view(lambda world=world: world, cell_of)
        for view, world in zip((HoldingEnv, HoldingAEC, HoldingParallel), worlds, strict=True)
    )
    rng = np.random.default_rng(seed)
    _, info = one.reset(seed=seed)
    before = info["cost"]
    many.reset(seed=seed)
    _, infos = all_at_once.reset(seed=seed)
    paid, owed, single = defaultdict(float), defaultdict(float), 0.0
    while all_at_once.agents:
        actions = {agent: rng.uniform(-1, 1, 1).astype(np.float32) for agent in infos}
        for _ in [agent for agent in infos if infos[agent]["decides"]]:
            bus = many.agent_selection
            single += one.step(actions[bus])[1]
            many.step(actions[bus])
            owed[bus] += many.rewards[bus]
        _, rewards, ended, _, infos = all_at_once.step(actions)
        for bus, reward in rewards.items():
            paid[bus] += reward
    assert all(ended.values()) and all(many.terminations.values())
    assert {bus: total for bus, total in paid.items() if total} == {
        bus: total for bus, total in owed.items() if total
    }
    assert before - sum(paid.values()) == before - single == worlds[0].outcome().cost


def test_a_refused_step_names_bus_and_stop_and_changes_nothing() -> None:
    env = scripted_env(moments=2)
    _, infos = env.reset(seed=1)
    buses = [str(asked.trip) for asked in env.cycle.batch]
    assert len(buses) > 1
    actions = {bus: np.array([0.0], np.float32) for bus in buses}
    place = f"^bus {buses[-1]} at stop {infos[buses[-1]]['stop']}: "
    with pytest.raises(InputError, match=place + "got no action"):
        env.step({bus: actions[bus] for bus in buses[:-1]})
    with pytest.raises(InputError, match=place + r"action 2\.0 is not from -1 to 1"):
        env.step(actions | {buses[-1]: np.array([2.0], np.float32)})
    world = env.cycle.world
    assert isinstance(world, ScriptedWorld) and world.holds == []
    env.step(actions)
    assert world.holds == [[30.0] * len(buses)]


def test_after_the_horizon_nobody_acts() -> None:
    env = scripted_env(moments=1)
    env.reset(seed=1)
    states, _, ended, _, _ = env.step(dict.fromkeys(env.agents, np.array([0.0], np.float32)))
    assert env.agents == [] and all(ended.values()) and set(ended) == set(env.possible_agents)
    assert all(state.shape == (CANONICAL_WIDTH,) and state[0] == 1.0 for state in states.values())
    with pytest.raises(InputError, match="the day is over"):
        env.step({})


def test_a_seed_is_a_day_and_no_seed_is_the_next_one() -> None:
    cells: list[Cell] = []

    def noted(seed: int) -> Cell:
        cells.append(cell_of(seed))
        return cells[-1]

    env = HoldingParallel(lambda: scripted_world(2), noted)
    for seed in (1, None, 1, None, 2):
        env.reset(seed=seed)
    assert cells[:2] == cells[2:4] and len(set(cells)) == 3
