"""Evaluation of actors in the fast world: deterministic holds on whole fresh days.

All actors and cells are one fleet with one batched call per decision, so a learning curve of many
snapshots costs one pass through the day.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.action import MAX_HOLD_S, hold_of
from evenline.control.outcome import Outcome
from evenline.learn.hurdle import deterministic, hurdle
from evenline.learn.network import Params, actor_outputs
from evenline.rules.chain import apply_chain, chain_code
from evenline.support.extras import extra
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import Fleet

with extra("train"):
    import jax


@partial(jax.jit, static_argnames="packed")
def _actions(actors: Params, states: jax.Array, packed: bool) -> jax.Array:
    """Deterministic actions of each actor in its own states: (actor, cell, 229)."""

    def one(actor: Params, state: jax.Array) -> jax.Array:
        return deterministic(hurdle(actor_outputs(actor, state, packed)))

    return jax.lax.map(lambda pair: one(*pair), (actors, states)) if packed else jax.vmap(one)(
        actors, states
    )  # fmt: skip


def evaluate(
    city: City,
    calibration: Calibration,
    actors: Sequence[Params],
    cells: Sequence[Cell],
    packed: bool,
    chain: str = "raw",
) -> list[list[Outcome]]:
    """The outcome of each actor, behind a chain, on each cell."""
    stacked: Any = jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *actors))
    shape = (len(actors), len(cells))
    fleet = Fleet(city, calibration, shape[0] * shape[1])
    states = fleet.reset(list(cells) * len(actors))
    while not fleet.over.all():
        actions = _actions(stacked, states.reshape(*shape, -1), packed)
        holds = np.clip(hold_of(np.asarray(actions, np.float64).reshape(-1)), 0.0, MAX_HOLD_S)
        states = fleet.step(apply_chain(chain_code(chain), fleet.raw, holds, city.horizon_s))
    return [[fleet.outcome(i * shape[1] + j) for j in range(shape[1])] for i in range(shape[0])]
