"""Random states that are well formed, and a small network for them."""

import numpy as np

from evenline.control.state import CANONICAL_WIDTH, MAX_SLOTS, PREFIX, SLOT
from evenline.learn.plan import Size

SERVICES = 5
SIZE = Size(SERVICES, slot=24, fused=32, hidden=16)


def states(seed: int, count: int, widest: int = MAX_SLOTS) -> np.ndarray:
    """Random states that are well formed."""
    rng = np.random.default_rng(seed)
    out = np.zeros((count, CANONICAL_WIDTH), np.float32)
    for row in out:
        size = int(rng.integers(1, widest + 1))
        token = int(rng.integers(size))
        row[:PREFIX] = [rng.random(), size / 16, token / 16, rng.random(), rng.random()]
        slots = row[PREFIX:].reshape(MAX_SLOTS, SLOT)
        slots[:, -1] = -1.0
        slots[:size] = rng.normal(size=(size, SLOT))
        slots[:size, 0] = 1.0
        slots[:size, 1] = rng.integers(0, SERVICES, size)
        slots[token:, -1] = -1.0
    return out
