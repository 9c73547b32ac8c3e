"""A rule of your own in both worlds: hold a bus that is early, unless many people are on board.

A policy is a function that takes a batch and returns a hold for each bus, in seconds from 0 to 60.
"""

from collections.abc import Sequence

import evenline as el
from evenline.control.event import (
    BUS_AHEAD,
    CAPACITY,
    HEADWAY_AHEAD,
    ON_BOARD,
    TARGET_AHEAD,
    Batch,
)


def few_on_board(batch: Batch) -> Sequence[float]:
    """Hold for half of the missing headway, if the load is at most a fifth of the capacity."""
    bus = batch.raw.T  # one row per feature, one column per bus
    missing_s = bus[BUS_AHEAD] * (bus[TARGET_AHEAD] - bus[HEADWAY_AHEAD])
    few = bus[ON_BOARD] <= 0.2 * bus[CAPACITY]
    holds: list[float] = (0.5 * missing_s * few).clip(0.0, 60.0).tolist()
    return holds


town = el.open_city("town")
print(el.compare_policies(town, "zero", "headway", few_on_board, blocks=5))
for policy in ("zero", few_on_board):
    print(el.run_day(town, policy, world="sumo"))
