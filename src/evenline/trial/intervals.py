"""The size of an effect over blocks: not part of the registered claim, and labelled so.

Hodges-Lehmann: the median of all pairwise means, with the interval that inverts the exact
signed-rank test. BCa: SciPy's bias-corrected and accelerated bootstrap of the mean over blocks.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.stats import bootstrap

from evenline.support.records import Number, Record, Share

_CONFIDENCE = 0.95
_RESAMPLES = 9_999
_BOOTSTRAP_SEED = 20_250  # fixed, so that an interval is always the same


class Interval(Record):
    """An estimate and its interval."""

    estimate: Number
    low: Number
    high: Number
    confidence: Share


def signed_rank_tail(n: int, most: int) -> Fraction:
    """The probability that the exact signed-rank sum of n pairs is at most `most`."""
    counts = [1]
    for rank in range(1, n + 1):
        longer = counts + [0] * rank
        for total, count in enumerate(counts):
            longer[total + rank] += count
        counts = longer
    return Fraction(sum(counts[: most + 1]), 2**n)


def hodges_lehmann(differences: Sequence[float]) -> Interval:
    """The estimate and the narrowest exact interval of at least 95 %, or the widest possible."""
    d = np.asarray(differences, float)
    n = len(d)
    first, second = np.triu_indices(n)
    means = np.sort((d[first] + d[second]) / 2)
    cut = 0
    while 2 * signed_rank_tail(n, cut) <= Fraction(1, 20):
        cut += 1
    cut = max(cut, 1)  # the cut smallest and largest sums are left out: P(W < cut) on each side
    return Interval(
        estimate=float(np.median(means)),
        low=float(means[cut - 1]),
        high=float(means[len(means) - cut]),
        confidence=float(1 - 2 * signed_rank_tail(n, cut - 1)),
    )


def bca(differences: Sequence[float]) -> Interval | None:
    """The mean over blocks with its BCa interval; None if all blocks are equal."""
    d = np.asarray(differences, float)
    if len(d) < 2 or np.ptp(d) == 0:
        return None
    result = bootstrap(
        (d,),
        np.mean,
        confidence_level=_CONFIDENCE,
        n_resamples=_RESAMPLES,
        method="BCa",
        rng=np.random.Generator(np.random.PCG64(_BOOTSTRAP_SEED)),
    ).confidence_interval
    if not np.isfinite([result.low, result.high]).all():
        return None
    return Interval(
        estimate=float(np.mean(d)),
        low=float(result.low),
        high=float(result.high),
        confidence=_CONFIDENCE,
    )
