"""Packed states of fast days under random holds, to check an actor on."""

import numpy as np

from evenline.city.cells import PURPOSES
from evenline.control.action import MAX_HOLD_S, action_of
from evenline.control.event import Array
from evenline.control.state import pack
from evenline.worlds.open import OpenCity


def fast_states(opened: OpenCity, count: int, seed: int) -> Array:
    """Packed states of fast days under random holds; fewer if the days end earlier."""
    rng = np.random.Generator(np.random.PCG64(seed))
    world = opened.fast_world()
    states: list[Array] = []
    for cell in PURPOSES["demo"].cells(10):
        batch = world.reset(cell)
        while batch is not None and len(states) < count:
            holds = rng.uniform(0.0, MAX_HOLD_S, len(batch.raw))
            taken = np.array([action_of(hold) for hold in holds])
            states += [pack(batch, i, taken) for i in range(len(batch.raw))]
            batch = world.step(holds.tolist())
    return np.array(states[:count])
