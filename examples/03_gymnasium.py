"""Training through Gymnasium: the cross-entropy method searches a policy with four weights.

You can replace the search with any library that supports Gymnasium. The state has 229 numbers, the
action is one number in [-1, 1], and the reward is minus the passenger-seconds of the step.
"""

import numpy as np

import evenline as el
from evenline.control.state import MAX_SLOTS, PREFIX, SLOT

ROUNDS, TRIED, KEPT, DAYS = 4, 12, 3, 2
env = el.make_env("town")
rng = np.random.default_rng(1)


def action(weights: np.ndarray, state: np.ndarray) -> list[float]:
    """Return -1 (no hold) to 1 (60 s), from three features of the bus that needs a decision."""
    token = round(float(state[2]) * MAX_SLOTS)
    bus = state[PREFIX + token * SLOT :][:SLOT]
    early, gap_behind = bus[11] * (bus[5] - bus[3]), bus[12] * (bus[4] - bus[6])
    value = weights @ [1.0, early, gap_behind, bus[8]]  # bus[8]: load as a share of capacity
    return [float(np.clip(value, -1.0, 1.0))]


def cost(weights: np.ndarray) -> float:
    """Return the mean generalized passenger-seconds of a few days, in thousands."""
    total = 0.0
    for seed in range(DAYS):
        state, _ = env.reset(seed=seed)
        over = False
        while not over:
            state, reward, over, _, _ = env.step(action(weights, state))
            total -= reward
    return total / DAYS / 1000.0


NO_HOLD = np.array([-1.0, 0.0, 0.0, 0.0])
mean, spread = np.array([-1.0, 1.0, 1.0, -1.0]), np.full(4, 1.0)
print(f"no hold: {cost(NO_HOLD):,.0f}")
for number in range(1, ROUNDS + 1):
    tried = mean + spread * rng.standard_normal((TRIED, 4))
    costs = np.array([cost(weights) for weights in tried])
    best = tried[np.argsort(costs)[:KEPT]]
    mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
    print(f"round {number}: best {costs.min():,.0f}, mean policy {cost(mean):,.0f}")
print("weights:", mean.round(2))
