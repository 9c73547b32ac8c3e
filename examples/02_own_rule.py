"""A rule of your own in both worlds: hold a bus that is early, unless many people are on board.

A rule is a function of a bus that returns the seconds to hold it, from 0 to 60. It also runs by
name: `evenline compare --policies zero,examples/02_own_rule.py:few_on_board`.
"""

import evenline as el
from evenline.rules.own import Bus


def few_on_board(bus: Bus) -> float:
    """Hold for half of the missing headway, if the load is at most a fifth of the capacity."""
    if not bus.bus_ahead or bus.on_board > 0.2 * bus.capacity:
        return 0.0
    return min(max(0.5 * (bus.target_ahead_s - bus.headway_ahead_s), 0.0), 60.0)


if __name__ == "__main__":
    town = el.open_city("town")
    print(el.compare_policies(town, "zero", "headway", few_on_board, blocks=5))
    for policy in ("zero", few_on_board):
        print(el.run_day(town, policy, world="sumo"))
