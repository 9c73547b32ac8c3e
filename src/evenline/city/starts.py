"""How unevenly trips start: late or early at their first stop, by service and hour.

On real lines, much of the irregularity of headways is there at the first stop. The lateness of a
day is drawn from its cell, so it is the same under every policy and in both worlds. A city has the
quantiles of lateness at `RANKS` for each service and hour of departure; negative is early.
"""

import math

import numpy as np
import numpy.typing as npt

RANKS = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 1.0)  # closer at the tails
MOST_S = 3_600.0
# The quantiles of |Z| at these ranks, Z standard normal, cut at 3.
_HALF_NORMAL = (0.0, 0.0251, 0.0627, 0.1257, 0.3186, 0.6745, 1.1503, 1.6449, 1.96, 2.3263, 3.0)


def half_normal(sd_s: float) -> npt.NDArray[np.float64]:
    """Quantiles of starts that are never early and vary by `sd_s`: |Z| times a constant."""
    scale_s: float = sd_s / (1 - 2 / math.pi) ** 0.5
    return scale_s * np.array(_HALF_NORMAL)
