"""Estimates with intervals, and the robust regression behind many of them.

Runs of one trip depend on each other, so errors are clustered by trip. Where an interval cannot be
given, it is missing and the note says why.
"""

from dataclasses import dataclass

import numpy as np

from evenline.city.model import Floats, Ints
from evenline.records.people import spread_of

Z = 1.96
HUBER = 1.345
_ROUNDS = 20
_NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """A fitted number with its 95 % interval and the number of observations behind it.

    The interval is NaN where there is none; then the note says why.
    """

    name: str
    value: float
    low: float
    high: float
    observations: int
    note: str = ""

    @property
    def sure(self) -> bool:
        """Whether it has an interval."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))


def estimate(name: str, value: float, error: float, count: int, note: str = "") -> Estimate:
    """An estimate from its standard error."""
    half = Z * float(error)
    return Estimate(name, float(value), float(value - half), float(value + half), count, note)


def unsure(name: str, value: float, count: int, why: str) -> Estimate:
    """An estimate without an interval."""
    return Estimate(name, float(value), _NAN, _NAN, count, f"no interval: {why}")


def spread(name: str, sd: float, count: int) -> Estimate:
    """A standard deviation of independent observations."""
    interval = spread_of(sd**2, max(count - 1, 1))
    return Estimate(name, sd, interval.low, interval.high, count)


def within(values: Floats, group: Ints) -> Floats:
    """Values minus the mean of their group; groups are numbered from 0."""
    mean = np.bincount(group, values) / np.maximum(np.bincount(group), 1)
    return np.asarray(values - mean[group])


def numbered(group: Ints) -> Ints:
    """Groups numbered from 0 on, without gaps."""
    return np.unique(group, return_inverse=True)[1].astype(np.int32)


def robust(
    y: Floats,
    x: Floats,
    cluster: Ints,
    prior: tuple[Floats, Floats] | None = None,
    huber: float = HUBER,
) -> tuple[Floats, Floats]:
    """Slopes without intercept by Huber's weights, and their standard errors over clusters.

    `prior` gives means and standard deviations that the slopes are believed to have beforehand.
    With an infinite `huber` these are least squares.
    """
    mean, sd = prior or (np.zeros(x.shape[1]), np.full(x.shape[1], np.inf))
    weight: Floats = np.ones(len(y))
    slope: Floats = np.zeros(x.shape[1])
    inverse: Floats = np.eye(x.shape[1])
    belief: Floats = np.zeros(x.shape[1])
    for _ in range(_ROUNDS):
        inverse = np.asarray(np.linalg.pinv(x.T @ (weight[:, None] * x) + np.diag(belief)))
        slope = inverse @ (x.T @ (weight * y) + belief * mean)
        rest = y - x @ slope
        scale = max(1.4826 * float(np.median(np.abs(rest))) if len(rest) else 1.0, 1e-6)
        belief = (scale / sd) ** 2
        weight = np.minimum(1.0, huber / np.maximum(np.abs(rest) / scale, 1e-9))
    rest, group = (y - x @ slope) * weight, numbered(cluster)
    score = np.stack([np.bincount(group, rest * column) for column in x.T], axis=1)
    meat = score.T @ score + np.diag(belief * scale**2)
    return slope, np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))
