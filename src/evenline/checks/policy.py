"""Test a policy: it returns one hold per bus, in range, and the same ones every time."""

import numpy as np

from evenline.city.demand import Cell
from evenline.control.action import MAX_HOLD_S
from evenline.control.outcome import Outcome
from evenline.control.world import Policy, World


def check_policy(policy: Policy, world: World, cell: Cell) -> Outcome:
    """Run the day of a cell twice and assert everything that worlds rely on.

    A policy may keep a memory of the day; it must start again with the day's first batch.
    """
    first = _driven(policy, world, cell)
    again = _driven(policy, world, cell)
    assert again == first, "the same day gets the same holds"
    return first[0]


def _driven(policy: Policy, world: World, cell: Cell) -> tuple[Outcome, list[float]]:
    holds: list[float] = []
    batch = world.reset(cell)
    while batch is not None:
        before = batch.raw.copy()
        proposed = [float(hold) for hold in policy(batch)]
        assert np.array_equal(batch.raw, before), "a policy does not change the batch"
        assert len(proposed) == len(batch.trips), "a policy returns one hold per bus of the batch"
        assert all(0.0 <= hold <= MAX_HOLD_S for hold in proposed), f"holds {proposed}: 0 to 60 s"
        holds += proposed
        batch = world.step(proposed)
    return world.outcome(), holds
