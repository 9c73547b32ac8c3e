"""The rollout policy: tries a few holds in the fast world for each bus and takes the best.

It keeps a mirror: a fast day with its own passengers and random numbers, in which buses arrive when
they do in the world it controls, SUMO or fast. It tries each hold from the mirror with the same
random numbers, lets the base rule decide for all other buses, and compares the passenger cost of
the next half hour. It knows no more than any other policy: it guesses who will come and how buses
will run.
"""

from dataclasses import dataclass, field

import numpy as np

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.event import Array, Batch
from evenline.rules.chain import apply_chain
from evenline.rules.policy import Decision, RulePolicy
from evenline.support.errors import InputError
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.lookahead import Mirror

LOOK_AHEAD_S = 1800
TRIED_S = (0.0, 20.0, 40.0, 60.0)  # in addition to the base rule's hold
BASE = "schedule"


@dataclass(eq=False)
class Rollout:
    """A policy that looks ahead. It follows one day at a time, from the first batch of the day."""

    name: str
    city: City
    calibration: Calibration
    chain: int
    base: RulePolicy
    look_ahead_s: int = LOOK_AHEAD_S
    mirror: Mirror = field(init=False)
    _now_s: int = field(init=False, default=-1)
    _misfit: Array = field(init=False)
    _kept: list[tuple[Batch, Array]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = Mirror(self.city, self.calibration)
        self._misfit = np.zeros(len(self.mirror.levels))

    @property
    def horizon_s(self) -> float:
        return float(self.city.horizon_s)

    def decide(self, batch: Batch) -> Decision:
        self._follow(batch)
        proposals, holds = np.empty(len(batch.trips)), np.empty(len(batch.trips))
        for i in range(len(batch.trips)):
            tried, costs = self.costs(i)
            proposals[i] = tried[int(np.argmin(costs))]
            one = batch.raw[i : i + 1]
            holds[i] = apply_chain(self.chain, one, proposals[i : i + 1], self.horizon_s)[0]
            self.mirror.serve(holds[i : i + 1], i)
        if not self.level_known:
            self._kept.append((batch, holds))
        return Decision(proposals, holds)

    def __call__(self, batch: Batch) -> list[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]

    def costs(self, i: int) -> tuple[Array, Array]:
        """The tried holds and their costs for the next bus of the moment; the base's hold first."""
        tried = (self.mirror.base_hold_s(i, self.base), *TRIED_S)
        until_s = min(self._now_s + self.look_ahead_s, self.city.horizon_s)
        return np.array(tried), self.mirror.try_holds(i, tried, self.base, until_s)

    @property
    def level(self) -> float:
        """The demand level that explains the day's events best; among equals, the usual one."""
        levels = self.mirror.levels
        best = min(range(len(levels)), key=lambda i: (self._misfit[i], abs(levels[i] - 1.0)))
        return levels[best]

    @property
    def level_known(self) -> bool:
        """Whether no other level explains the day's events as well."""
        return int((self._misfit == self._misfit.min()).sum()) == 1

    def _follow(self, batch: Batch) -> None:
        """Advance the mirror to the batch; a batch that does not follow the last one starts a new
        day.
        """
        if batch.time_s < self._now_s or not self.mirror.expects(batch):
            self._misfit[:] = 0.0
            self._kept.clear()
            self._begin()
            if not self.mirror.expects(batch):
                raise InputError(f"{self.name} must see every batch of a day from the first one")
        if not self.level_known:
            self._read_level(batch)
        self._now_s = batch.time_s
        self.mirror.bring(batch)

    def _read_level(self, batch: Batch) -> None:
        """Learn from a batch; a mirror that was started at another level repeats the day.

        At the first stops of a day levels may look the same, so batches are kept until they differ.
        """
        before = self.level
        self._misfit += self.mirror.misfits(batch)
        if self.level != before:
            self._begin()
            for seen, holds in self._kept:
                self.mirror.bring(seen)
                self.mirror.serve(holds)
        if self.level_known:
            self._kept.clear()

    def _begin(self) -> None:
        block = PURPOSES["calibration"].cells(1)[0]
        self.mirror.begin(Cell(block.sumo_seed, block.demand_seed, self.level))
