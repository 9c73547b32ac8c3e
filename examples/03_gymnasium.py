"""Training through Gymnasium: a policy with four weights, found by the cross-entropy method.

Any library that knows Gymnasium can take the place of the search: it sees a state of 229 numbers,
answers with one in [-1, 1], and is rewarded with minus the passenger-seconds of the step.
"""

import numpy as np

import evenline as el
from evenline.control.state import MAX_SLOTS, PREFIX, SLOT

ROUNDS, TRIED, KEPT, DAYS = 4, 12, 3, 2
env = el.make_env("town")
rng = np.random.default_rng(1)


def action(weights: np.ndarray, state: np.ndarray) -> list[float]:
    """-1 (no hold) up to 1 (60 s), from three features of the bus that is asked."""
    token = round(float(state[2]) * MAX_SLOTS)
    bus = state[PREFIX + token * SLOT :][:SLOT]
    early, gap_behind = bus[11] * (bus[5] - bus[3]), bus[12] * (bus[4] - bus[6])
    value = weights @ [1.0, early, gap_behind, bus[8]]  # bus[8]: share of the places taken
    return [float(np.clip(value, -1.0, 1.0))]


def cost(weights: np.ndarray) -> float:
    """Generalized passenger-seconds of a few days, per day, in thousands."""
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
