"""The PettingZoo environment: PettingZoo's own tests, then what a bus sees, does and pays.

seed_test steps two environments in turn. SUMO allows one world a process, so there each world is
given a process of its own, as anyone who wants two at a time would do.
"""

import warnings
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test, seed_test

from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.control.aec import HoldingAEC
from evenline.support.errors import InputError
from evenline.worlds.sumo.world import SumoWorld
from process_world import ProcessWorld
from scripted import ScriptedWorld, cell_of

PREFIX, SLOT = 5, 14  # the paper's canonical layout: 5 + 16 x (active, 12 features, action)
SEEDS = st.integers(0, 2**31 - 1)


def scripted_env(moments: int = 30) -> HoldingAEC:
    return HoldingAEC(lambda: ScriptedWorld(embedded_city("town"), moments), cell_of)


def random_action(rng: np.random.Generator) -> np.ndarray:
    """Every third action is exactly no hold."""
    value = -1.0 if rng.random() < 0.3 else rng.uniform(-1, 1)
    return np.array([value], np.float32)


# -- PettingZoo's own tests -----------------------------------------------------------------------


def test_sumo_passes_the_api_test(town: City) -> None:
    with (
        closing(HoldingAEC(lambda: SumoWorld(town), cell_of)) as env,
        warnings.catch_warnings(record=True) as complaints,
    ):
        warnings.simplefilter("always")
        api_test(env, num_cycles=1000)
    accepted = ("We recommend agents to be named", "Environment has not defined a render()")
    assert [c for c in complaints if not str(c.message).startswith(accepted)] == []


def test_sumo_passes_the_seed_test() -> None:
    seed_test(lambda: HoldingAEC(lambda: ProcessWorld("town"), cell_of), num_cycles=500)


def test_a_scripted_world_passes_both() -> None:
    with warnings.catch_warnings(action="ignore"):  # the two that are accepted above
        api_test(scripted_env(), num_cycles=100)
    seed_test(scripted_env, num_cycles=100)


# -- what a bus sees, does and pays ---------------------------------------------------------------


@settings(deadline=None)
@given(SEEDS)
def test_each_bus_is_asked_in_turn_and_sees_what_was_decided_before_it(seed: int) -> None:
    env, rng = scripted_env(), np.random.default_rng(seed)
    env.reset(seed=seed)
    world = env.cycle.world
    assert isinstance(world, ScriptedWorld)
    while not env.terminations[env.agent_selection]:
        batch = world.batches[-1]
        taken: list[float] = []
        for token, trip in enumerate(batch.trips):
            assert env.agent_selection == world.city.trips[trip].id
            state, _, _, _, info = env.last()
            slots = state[PREFIX:].reshape(16, SLOT)
            assert state[0] == np.float32(batch.time_s / world.city.horizon_s)
            assert (state[1] * 16, state[2] * 16) == (len(batch.trips), token)
            assert slots[:, 0].sum() == len(batch.trips)
            assert slots[:, -1].tolist() == taken + [-1.0] * (16 - token)
            assert info["time_s"] == batch.time_s
            action = random_action(rng)
            taken.append(action.item())
            env.step(action)
        assert world.holds[-1] == [(action + 1) / 2 * 60 for action in taken]


@settings(deadline=None)
@given(SEEDS)
def test_each_bus_pays_for_its_own_tokens_and_all_together_for_the_day(seed: int) -> None:
    env, rng = scripted_env(), np.random.default_rng(seed)
    env.reset(seed=seed)
    paid: dict[str, float] = defaultdict(float)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        assert not truncated
        paid[agent] -= reward
        env.step(None if terminated else random_action(rng))
    world = env.cycle.world
    assert isinstance(world, ScriptedWorld)
    owed: dict[str, float] = defaultdict(float)
    for batch, cost in zip(world.batches, world.costs, strict=True):
        owed[world.city.trips[batch.trips[-1]].id] += cost
    assert {bus: cost for bus, cost in paid.items() if cost} == {
        bus: cost for bus, cost in owed.items() if cost
    }
    outcome = world.outcome()
    assert outcome.pre_control_cost + sum(paid.values()) == outcome.cost


def test_every_trip_is_an_agent_until_the_horizon(town: City) -> None:
    env = scripted_env(moments=3)
    env.reset(seed=1)
    everyone = [trip.id for trip in town.trips]
    while not env.terminations[env.agent_selection]:
        assert env.agents == everyone
        env.step(np.array([-1.0], np.float32))
    assert env.terminations == dict.fromkeys(everyone, True)
    assert env.truncations == dict.fromkeys(everyone, False)
    for left in range(len(everyone), 0, -1):
        assert env.num_agents == left
        assert env.observation_space(env.agent_selection).contains(env.last()[0])
        env.step(None)
    assert env.agents == []


@settings(deadline=None)
@given(st.floats(width=32).filter(lambda value: not -1 <= value <= 1))
def test_a_refused_action_names_bus_stop_and_value_and_changes_nothing(value: float) -> None:
    env = scripted_env(moments=2)
    env.reset(seed=1)
    bus, (before, _, _, _, info) = env.agent_selection, env.last()
    with pytest.raises(InputError) as refusal:
        env.step(np.array([value], np.float32))
    assert (
        str(refusal.value)
        == f"bus {bus} at stop {info['stop']}: action {value} is not from -1 to 1"
    )
    assert env.agent_selection == bus
    assert np.array_equal(env.last()[0], before)


def test_a_seed_is_a_day_and_no_seed_is_the_next_one() -> None:
    env = scripted_env(moments=2)

    def days(seed: int) -> list[bytes]:
        env.reset(seed=seed)
        first = env.last()[0].tobytes()
        env.reset()
        return [first, env.last()[0].tobytes()]

    assert days(1) == days(1)
    assert len({*days(1), *days(2)}) == 4
