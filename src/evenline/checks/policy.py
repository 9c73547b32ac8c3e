"""The promises of a policy as a test: holds in range, one for each bus, the same every time."""

import numpy as np

from evenline.city.demand import Cell
from evenline.control.action import MAX_HOLD_S
from evenline.control.outcome import Outcome
from evenline.control.world import Policy, World


def check_policy(policy: Policy, world: World, cell: Cell) -> Outcome:
    """Drive the day of a cell twice and assert what every world relies on.

    A policy may remember the day it follows; it must begin anew with the day's first batch.
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
        found = [float(hold) for hold in policy(batch)]
        assert np.array_equal(batch.raw, before), "a policy reads the batch and does not write it"
        assert len(found) == len(batch.trips), "one hold for each bus of the batch"
        assert all(0.0 <= hold <= MAX_HOLD_S for hold in found), f"holds {found} not in 0..60 s"
        holds += found
        batch = world.step(found)
    return world.outcome(), holds
