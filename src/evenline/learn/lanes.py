"""Lanes: learners and seeds trained together as one program.

On an accelerator all lanes are one vectorised call; on a CPU each lane is a separate call, so that
no time is spent on empty slots. Random numbers depend on the seed and the number of the update,
never on the lane, so that branches of one seed continue with the same streams.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from evenline.learn.data import (
    Days,
    Event,
    Replay,
    append,
    concatenate,
    days_batch,
    new_days,
    replay_batch,
)
from evenline.learn.hurdle import hurdle, sample
from evenline.learn.lineage import Lane
from evenline.learn.network import actor_outputs
from evenline.learn.plan import Size
from evenline.learn.schedule import Budget
from evenline.learn.updates import (
    ACTOR_BATCH,
    CRITIC_BATCH,
    LOGGED,
    VALUE_SHARE,
    Learned,
    Metrics,
    Rates,
    begin,
    continue_update,
    iql_update,
)
from evenline.support.extras import extra

with extra("train"):
    import jax
    import jax.numpy as jnp

# Numbers that keep the random streams of one seed apart.
INIT, OFFLINE, ACT, UPDATE = range(4)


def stream(seed: jax.Array, purpose: int, number: Any = 0) -> jax.Array:
    """The random key of a seed for a purpose and an update."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), number)


# These functions process whole trees in one program. Leaf by leaf, an accelerator would compile a
# program for every shape, which takes half a minute.


@jax.jit
def _joined(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@partial(jax.jit, static_argnames="index")
def _picked(trees: Sequence[Any], index: tuple[int, ...]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[np.asarray(index)], *trees)


def pick(trees: Sequence[Any], index: Sequence[int]) -> Any:
    """Select lanes of stacked trees by index; an index may repeat."""
    return _picked(tuple(trees), tuple(index))


@jax.jit
def choose(first: jax.Array, yes: Any, no: Any) -> Any:
    """Choose one of two trees for each lane."""

    def either(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(first.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(either, yes, no)


def _over_lanes(function: Any, packed: bool) -> Any:
    """The function for a stack of lanes: vectorised, or for the single lane of a CPU's stack."""
    if not packed:
        return jax.vmap(function)

    def alone(*trees: Any) -> Any:
        one = jax.tree.map(lambda leaf: leaf[0], trees)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*one))

    return alone


def begin_lanes(seeds: Sequence[int], size: Size) -> Learned:
    """New learners, one per seed."""
    return _joined([begin(stream(jnp.uint32(seed), INIT), size) for seed in seeds])  # type: ignore[no-any-return]


@partial(jax.jit, static_argnames=("count", "packed"), donate_argnames=("learned",))
def iql_steps(
    learned: Learned, replay: Replay, seeds: jax.Array, first: jax.Array, count: int, packed: bool
) -> tuple[Learned, Metrics]:
    """Make many IQL updates in one call; return the metrics of each."""

    def lane(state: Learned, seed: jax.Array, number: jax.Array) -> tuple[Learned, Metrics]:
        rows = jax.random.randint(stream(seed, OFFLINE, number), (CRITIC_BATCH,), 0, replay.rows)
        return iql_update(state, replay_batch(replay, rows), packed)

    def update(state: Learned, number: jax.Array) -> tuple[Learned, Metrics]:
        numbers = jnp.broadcast_to(number, seeds.shape)
        after, metrics = _over_lanes(lane, packed)(state, seeds, numbers)
        return after, metrics

    return jax.lax.scan(update, learned, first + jnp.arange(count))


def _act(learned: Learned, seed: jax.Array, n: jax.Array, state: jax.Array, packed: bool) -> Any:
    outputs = actor_outputs(learned.actor, state[None], packed)
    return sample(hurdle(outputs), stream(seed, ACT, n))[0]


@partial(jax.jit, static_argnames="packed", donate_argnames=("days",))
def first_actions(
    learned: Learned, days: Days, seeds: jax.Array, state: jax.Array, packed: bool
) -> tuple[Days, jax.Array]:
    """Store the first states and act on them."""

    def lane(learned: Learned, days: Days, seed: jax.Array, state: jax.Array) -> Any:
        days = days._replace(state=days.state.at[0].set(state))
        return days, _act(learned, seed, jnp.int32(0), state, packed)

    return _over_lanes(lane, packed)(learned, days, seeds, state)  # type: ignore[no-any-return]


@partial(jax.jit, static_argnames="packed", donate_argnames=("days",))
def observe(
    learned: Learned, days: Days, seeds: jax.Array, n: jax.Array, event: Event, packed: bool
) -> tuple[Days, jax.Array]:
    """Store the n-th event and act on the state after it."""

    def lane(learned: Learned, days: Days, seed: jax.Array, n: jax.Array, event: Event) -> Any:
        return append(days, n, event), _act(learned, seed, n + 1, event.next_state, packed)

    numbers = jnp.broadcast_to(n, seeds.shape)
    return _over_lanes(lane, packed)(learned, days, seeds, numbers, event)  # type: ignore[no-any-return]


@partial(jax.jit, static_argnames="packed", donate_argnames=("learned",))
def learn(
    learned: Learned,
    days: Days,
    replay: Replay,
    seeds: jax.Array,
    n: jax.Array,
    rates: Rates,
    packed: bool,
) -> tuple[Learned, Metrics]:
    """Make the update of the n-th event, which is already stored."""

    def lane(learned: Learned, days: Days, seed: jax.Array, n: jax.Array, rates: Rates) -> Any:
        rows_key, noise = jax.random.split(stream(seed, UPDATE, n))
        keys = jax.random.split(rows_key)
        logged = jax.random.randint(keys[0], (LOGGED,), 0, replay.rows)
        seen = jax.random.randint(keys[1], (CRITIC_BATCH + ACTOR_BATCH,), 0, n + 1)
        offline = replay_batch(replay, logged)
        online = days_batch(days, seen[:CRITIC_BATCH])
        # A learner without a replay fills its half with more of its own days.
        fresh = CRITIC_BATCH - LOGGED
        first = jax.tree.map(
            lambda a, b: jnp.where(rates.value_share > 0, a, b[fresh:]), offline, online
        )
        batch = concatenate(first, jax.tree.map(lambda leaf: leaf[:fresh], online))
        simulated = days.state[seen[CRITIC_BATCH:]]
        return continue_update(learned, batch, simulated, rates, noise, packed)

    numbers = jnp.broadcast_to(n, seeds.shape)
    return _over_lanes(lane, packed)(  # type: ignore[no-any-return]
        learned, days, seeds, numbers, rates
    )


def set_anchor(learned: Learned, chosen: jax.Array) -> Learned:
    """Store the current actor of the chosen lanes as their anchor."""
    return learned._replace(anchor=choose(chosen, learned.actor, learned.anchor))


def rates_at(lanes: Sequence[Lane], event: int) -> Rates:
    """The schedule values of the lanes after `event` events."""
    rows = [
        (
            lane.learner.rate(event),
            float(event > lane.learner.temperature_from),
            lane.learner.proximal,
            VALUE_SHARE if lane.learner.replay else 0.0,
        )
        for lane in lanes
    ]
    columns: list[Any] = [np.array(column, np.float32) for column in zip(*rows, strict=True)]
    return Rates(*columns)


def new_lane_days(lanes: int, budget: Budget) -> Days:
    """Allocate the simulated days of every lane."""
    return jax.tree.map(  # type: ignore[no-any-return]
        lambda leaf: jnp.zeros((lanes, *leaf.shape), leaf.dtype), new_days(budget.events)
    )
