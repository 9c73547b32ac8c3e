"""Training data: the replay, kept compact on the device, and simulated days.

Canonical states of the replay are built on the device for each minibatch, from 26 bytes per row.
The simulated days of a learner are one sequence of states in order; the next state of an event is
that of the event after it.
"""

from typing import Any, NamedTuple

import numpy as np

from evenline.control.action import NO_HOLD, action_of
from evenline.control.state import CANONICAL_WIDTH, MAX_SLOTS, prefix_features, slot_formulas
from evenline.replay.store import Columns, Known, Store, event_formulas
from evenline.support.errors import InputError
from evenline.support.extras import extra

with extra("train"):
    import jax
    import jax.numpy as jnp

REWARD_SCALE = 1e-4


class Transitions(NamedTuple):
    """A minibatch."""

    state: jax.Array
    action: jax.Array
    reward: jax.Array  # scaled
    next_state: jax.Array
    goes_on: jax.Array  # the paper's continuation: 0 after the last decision of a day, otherwise 1


class Replay(NamedTuple):
    """A replay on the device."""

    columns: Columns
    known: Known
    cost: jax.Array
    terminal: jax.Array

    @property
    def rows(self) -> int:
        """Transitions."""
        return int(self.cost.shape[0])


def resident(store: Store, cost: np.ndarray | None = None) -> Replay:
    """Put a replay on the device, with its own costs or others, such as centred ones."""
    if not (store.columns.hold_s > 0).any():
        raise InputError(f"{store.folder} contains no decisions, so there is nothing to learn from")
    once = {id(column): jnp.asarray(column) for column in store.columns}  # some may be the same
    columns: Any = [once[id(column)] for column in store.columns]
    known: Any = [
        jnp.asarray(value, jnp.float32 if np.asarray(value).dtype == np.float64 else None)
        for value in store.known
    ]
    return Replay(
        Columns(*columns),
        Known(*known),
        jnp.asarray(store.cost if cost is None else cost),
        jnp.asarray(store.terminal),
    )


def mean_return(store: Store, cost: np.ndarray | None = None) -> float:
    """The mean over all rows of the rewards from there to the end of the day, scaled."""
    paid = np.asarray(store.cost if cost is None else cost, np.float64)
    total = 0.0
    for episode in store.episodes:
        total += np.cumsum(paid[episode.first : episode.last][::-1]).sum()
    return -REWARD_SCALE * total / len(paid)


def replay_states(replay: Replay, rows: jax.Array) -> jax.Array:
    """Canonical states of some rows."""
    c, k = replay.columns, replay.known
    place, size = c.batch[rows].astype(jnp.int32), c.batch_size[rows].astype(jnp.int32)
    slot = jnp.arange(MAX_SLOTS)
    active = slot < size[:, None]
    at = jnp.where(active, (rows - place)[:, None] + slot, rows[:, None])
    chosen = slot < place[:, None]
    shown: Any = c.shown_s[at]
    action = jnp.where(chosen, jnp.asarray(action_of(shown)), NO_HOLD)
    local = jnp.where(active[..., None], _local(c, k, at), 0.0)
    slots = jnp.concatenate([active[..., None].astype(jnp.float32), local, action[..., None]], -1)
    prefix = jnp.stack(
        prefix_features(
            c.time_s[rows], size, place, c.system_waiting[rows], c.system_on_board[rows], k.scale
        ),
        -1,
    )
    return jnp.concatenate([prefix, slots.reshape(len(rows), -1)], -1).astype(jnp.float32)


def _local(c: Columns, k: Known, at: jax.Array) -> jax.Array:
    """The twelve local features of rows."""
    raw = event_formulas(jnp.minimum, jnp.maximum)(c, k, at)
    features = slot_formulas(jnp.minimum, jnp.maximum)(*raw, k.scale[2 + raw[0]])
    return jnp.stack([jnp.asarray(f, jnp.float32) for f in features], -1)


def actions(replay: Replay, rows: jax.Array) -> jax.Array:
    """Executed actions of some rows; zero hold is exactly -1, the longest hold exactly 1.

    A longer wait for the earliest departure counts as the longest hold.
    """
    held: Any = replay.columns.hold_s[rows]
    return jnp.minimum(jnp.asarray(action_of(held)), 1.0)


def replay_batch(replay: Replay, rows: jax.Array) -> Transitions:
    """The transitions of some rows."""
    both = jnp.concatenate([rows, jnp.minimum(rows + 1, replay.rows - 1)])
    states = replay_states(replay, both)
    return Transitions(
        states[: len(rows)],
        actions(replay, rows),
        -REWARD_SCALE * replay.cost[rows].astype(jnp.float32),
        states[len(rows) :],
        1.0 - replay.terminal[rows].astype(jnp.float32),
    )


class Days(NamedTuple):
    """The simulated days of one learner, event after event."""

    state: jax.Array
    action: jax.Array
    cost: jax.Array
    over: jax.Array


def new_days(events: int) -> Days:
    """Allocate `events` events and the state after the last."""
    return Days(
        jnp.zeros((events + 1, CANONICAL_WIDTH), jnp.float32),
        jnp.zeros(events, jnp.float32),
        jnp.zeros(events, jnp.float32),
        jnp.zeros(events, bool),
    )


class Event(NamedTuple):
    """One decision in a simulated day, and the state after it."""

    action: jax.Array
    cost: jax.Array
    over: jax.Array
    next_state: jax.Array


def append(days: Days, n: jax.Array, event: Event) -> Days:
    """Store the n-th event; its own state is already there."""
    return Days(
        days.state.at[n + 1].set(event.next_state),
        days.action.at[n].set(event.action),
        days.cost.at[n].set(event.cost),
        days.over.at[n].set(event.over),
    )


def days_batch(days: Days, rows: jax.Array) -> Transitions:
    """The transitions of some events."""
    return Transitions(
        days.state[rows],
        days.action[rows],
        -REWARD_SCALE * days.cost[rows],
        days.state[rows + 1],
        1.0 - days.over[rows].astype(jnp.float32),
    )


def concatenate(first: Transitions, second: Transitions) -> Transitions:
    """Two minibatches as one."""
    return Transitions(*(jnp.concatenate(pair) for pair in zip(first, second, strict=True)))
