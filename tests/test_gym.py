"""The Gymnasium ids: made by name, checked by Gymnasium itself, alone and in vectors."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from evenline import make_env

TOWN, CITY = "evenline.gym:evenline/Town-v0", "evenline.gym:evenline/City-v0"


@pytest.mark.parametrize("name", [TOWN, CITY])
def test_an_id_makes_an_environment_that_passes_the_checker(name: str) -> None:
    with warnings.catch_warnings(action="error"):
        env = gymnasium.make(name)
        check_env(env.unwrapped)
        _, info = env.reset(seed=3)
        assert info["trip"] is not None
        env.step(env.action_space.sample())


def test_the_id_is_the_environment_of_the_python_interface() -> None:
    named, made = gymnasium.make(TOWN), make_env("town")
    assert np.array_equal(named.reset(seed=5)[0], made.reset(seed=5)[0])
    action = np.array([0.5], np.float32)
    for _ in range(20):
        there, here = named.step(action), made.step(action)
        assert np.array_equal(there[0], here[0]) and there[1:] == here[1:]


def test_a_vector_of_two_has_two_days() -> None:
    envs = gymnasium.make_vec(TOWN, num_envs=2)
    try:
        states, _ = envs.reset(seed=[1, 2])
        assert states.shape == (2, 229) and not np.array_equal(states[0], states[1])
        states, rewards, over, _, _ = envs.step(np.array([[-1.0], [1.0]], np.float32))
        assert states.shape == (2, 229) and rewards.shape == over.shape == (2,)
        alone = make_env("town")
        alone.reset(seed=2)
        assert np.array_equal(alone.step(np.array([1.0], np.float32))[0], states[1])
    finally:
        envs.close()
