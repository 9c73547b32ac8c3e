"""Packed states of a replay, to check an actor on."""

import numpy as np

from evenline.control.action import NO_HOLD, action_of
from evenline.control.event import Array
from evenline.control.state import MAX_SLOTS, PACKED_WIDTH, PREFIX, RAW_SLOT
from evenline.replay.store import Store, event_formulas


def replay_states(store: Store, count: int, seed: int) -> Array:
    """Packed states of `count` decisions of a replay, drawn without replacement."""
    rng = np.random.Generator(np.random.PCG64(seed))
    rows = np.sort(rng.choice(len(store), min(count, len(store)), replace=False))
    c, known, features = store.columns, store.known, event_formulas(np.minimum, np.maximum)
    decision, size = c.batch[rows].astype(int), c.batch_size[rows].astype(int)
    out = np.zeros((len(rows), PACKED_WIDTH))
    out[:, 0], out[:, 1], out[:, 2] = c.time_s[rows], size, decision
    out[:, 3], out[:, 4] = c.system_waiting[rows], c.system_on_board[rows]
    slots = out[:, PREFIX:].reshape(len(rows), MAX_SLOTS, RAW_SLOT)
    slots[:, :, -1] = NO_HOLD
    for slot in range(MAX_SLOTS):
        here = np.flatnonzero(slot < size)
        row = rows[here] - decision[here] + slot
        slots[here, slot, 0] = 1.0
        slots[here, slot, 1:-1] = np.stack(np.broadcast_arrays(*features(c, known, row)), axis=1)
        taken = action_of(c.shown_s[row].astype(float))
        slots[here, slot, -1] = np.where(slot < decision[here], taken, NO_HOLD)
    return out
