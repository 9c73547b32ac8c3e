"""The structured network: padding, both ways of encoding, the first actor."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.control.state import MAX_SLOTS, PREFIX, SLOT
from evenline.learn import network
from evenline.learn.hurdle import deterministic, hurdle
from evenline.learn.network import (
    Params,
    Size,
    critic_values,
    init_actor,
    init_critic,
    init_value,
    state_value,
)
from small_states import SIZE, states

# Compiled whole, as training does, and sooner than one operation at a time.
compiled = partial(jax.jit, static_argnames="packed")
encode, actor_outputs = compiled(network.encode), compiled(network.actor_outputs)


@compiled
def outputs(actor: Params, critic: Params, value: Params, s: jax.Array, packed: bool) -> Any:
    """All that the three networks say of some states."""
    q = critic_values(critic, encode(critic, s, packed), s[:, 0])
    return actor_outputs(actor, s, packed), state_value(value, s, packed), q


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.booleans())
def test_what_the_padding_holds_never_changes_any_output(seed: int, packed: bool) -> None:
    clean = states(seed, 64, widest=3)
    dirty = clean.copy()
    garbage = np.random.default_rng(seed).normal(0, 1e6, (64, MAX_SLOTS, SLOT))
    size = np.round(clean[:, 1] * 16).astype(int)
    for row, slots, rubbish in zip(size, dirty[:, PREFIX:].reshape(64, MAX_SLOTS, SLOT), garbage,
                                   strict=True):  # fmt: skip
        slots[row:] = rubbish[row:]
    dirty[0, -1] = np.nan
    nets = [init(jax.random.key(seed), SIZE) for init in (init_actor, init_critic, init_value)]
    for one, other in zip(
        outputs(*nets, clean, packed), outputs(*nets, dirty, packed), strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("widest", [1, 2, 3, 16])
def test_active_slots_alone_give_the_features_and_gradients_of_the_full_grid(widest: int) -> None:
    batch, params = jnp.asarray(states(widest, 96, widest)), init_actor(jax.random.key(2), SIZE)

    def loss(p: dict[str, jax.Array], packed: bool) -> jax.Array:
        return (encode(p, batch, packed) ** 2).sum()

    slope_of = compiled(jax.value_and_grad(loss))
    dense, packed = (slope_of(params, packed=way) for way in (False, True))
    assert float(packed[0]) == pytest.approx(float(dense[0]), rel=1e-5)
    for name, slope in dense[1].items():
        np.testing.assert_allclose(packed[1][name], slope, rtol=1e-3, atol=1e-3, err_msg=name)


def test_slots_count_only_through_the_five_views_so_their_order_within_a_view_is_free() -> None:
    params = init_actor(jax.random.key(3), SIZE)
    state = states(4, 40)
    size, token = (np.round(state[:, i] * 16).astype(int) for i in (1, 2))
    row = int(np.argmax(size - token))
    assert size[row] - token[row] > 3
    swapped = state.copy()
    slots = swapped[row, PREFIX:].reshape(MAX_SLOTS, SLOT)
    slots[[token[row] + 1, token[row] + 2]] = slots[[token[row] + 2, token[row] + 1]]
    # relative position is part of a slot, so a swap is seen; a change of nothing is not
    before, after = (encode(params, jnp.asarray(s), False)[row] for s in (state, swapped))
    assert not np.array_equal(before, after)


def test_the_current_slot_is_the_one_the_token_names() -> None:
    params = init_actor(jax.random.key(5), SIZE)
    state = states(6, 30, widest=4)
    moved = state.copy()
    wide = np.flatnonzero(np.round(state[:, 1] * 16) > 1)
    moved[wide, 2] = (np.round(state[wide, 2] * 16 + 1) % np.round(state[wide, 1] * 16)) / 16
    same = np.isclose(encode(params, jnp.asarray(state), False),
                      encode(params, jnp.asarray(moved), False)).all(1)  # fmt: skip
    assert not same[wide].any()


def test_a_fresh_actor_would_hold_about_a_third_of_the_buses_and_briefly() -> None:
    d = hurdle(
        actor_outputs(init_actor(jax.random.key(0), Size(12)), jnp.asarray(states(1, 64)), 0)
    )
    share = np.asarray(jax.nn.sigmoid(d.gate))
    assert share == pytest.approx(0.35, abs=0.05)
    assert np.asarray(60 * jax.nn.sigmoid(d.mean)) == pytest.approx(10.0, abs=3.0)
    assert (np.asarray(deterministic(d)) == -1.0).all()


def test_the_two_critics_differ_and_both_look_at_the_action() -> None:
    critic = init_critic(jax.random.key(1), SIZE)
    features = encode(critic, jnp.asarray(states(2, 32)), False)
    low, high = (critic_values(critic, features, jnp.full(32, a)) for a in (-1.0, 1.0))
    assert low.shape == (2, 32)
    assert not np.allclose(low[0], low[1], atol=1e-9)
    assert (low != high).all()
