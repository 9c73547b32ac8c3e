"""Centred rewards: a decision's cost minus what a day without holding costs in the same seconds.

Most of a decision's cost depends on the time of day and the demand level alone. That part hides the
effect of an action. We take its mean from the replay's zero-hold days and subtract it. The parts
subtracted over a day have the same sum under every policy, so policies keep their order in a cell.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.control.event import Array
from evenline.replay.store import Store
from evenline.support.errors import InputError


class Baseline(NamedTuple):
    """The mean cost of a zero-hold day from its first decision up to each second."""

    levels: tuple[float, ...]
    spent: Array  # (level, second)

    def level_of(self, demand: float) -> int:
        """The row of a demand level."""
        if demand not in self.levels:
            raise InputError(f"demand {demand}: the replay has no day without holding to centre on")
        return self.levels.index(demand)

    def between(
        self, level: npt.NDArray[np.int64], start_s: npt.ArrayLike, end_s: npt.ArrayLike
    ) -> Array:
        """The mean cost between seconds of the day."""
        start, end = np.asarray(start_s, np.int64), np.asarray(end_s, np.int64)
        return np.asarray(self.spent[level, end] - self.spent[level, start])


def baseline_of(store: Store) -> Baseline:
    """Average the zero-hold days of a replay, level by level."""
    seconds = np.arange(store.city.horizon_s + 1)
    days: dict[float, list[Array]] = {}
    for episode in store.episodes:
        if episode.behaviour == "zero":
            rows = slice(episode.first, episode.last)
            at, first = np.unique(store.columns.time_s[rows], return_index=True)
            spent = np.concatenate([[0], np.cumsum(store.cost[rows], dtype=np.int64)])
            known_at = np.append(at, store.city.horizon_s)
            known = np.append(spent[:-1][first], spent[-1])
            days.setdefault(episode.cell.demand, []).append(np.interp(seconds, known_at, known))
    levels = tuple(sorted(days))
    return Baseline(levels, np.array([np.mean(days[level], axis=0) for level in levels]))


def centred_cost(store: Store, baseline: Baseline) -> npt.NDArray[np.float32]:
    """The centred cost of every decision of a replay."""
    level = np.empty(len(store), np.int64)
    for episode in store.episodes:
        level[episode.first : episode.last] = baseline.level_of(episode.cell.demand)
    start = store.columns.time_s
    expected = baseline.between(level, start, start + store.duration_s())
    return np.asarray(store.cost - expected, np.float32)
