"""The rollout controller: tries a few holds in the fast world and takes the best, bus by bus.

It keeps a mirror: a fast day with passengers and luck of its own, in which the buses arrive when
they do in the world it controls, SUMO or fast. From the mirror each hold is tried on the same luck,
the base rule drives all other buses, and the people's cost of the next half hour decides. It knows
no more than any other controller: who will come and how buses will run are its own guess.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.city.cells import PURPOSES
from evenline.city.demand import RATE_BIN_S, Cell
from evenline.city.model import City
from evenline.compiled import compiled, inlined
from evenline.control.event import RATE, SERVICE, STOP, Array, Batch
from evenline.errors import InputError
from evenline.policies.chain import apply_chain
from evenline.policies.controller import Decision, RuleController
from evenline.worlds.calibration import embedded_calibration
from evenline.worlds.fast import kernel as k
from evenline.worlds.fast import layout
from evenline.worlds.fast.world import Days

LOOK_AHEAD_S = 1800
TRIED_S = (0.0, 20.0, 40.0, 60.0)  # beside what the base rule would do
BASE = "schedule"
MIRROR, SCRATCH = 0, 1


@dataclass(eq=False)
class Rollout:
    """A policy that looks ahead. It follows one day at a time, from the day's first batch on."""

    name: str
    city: City
    chain: int
    base: RuleController
    look_ahead_s: int = LOOK_AHEAD_S
    _days: Days = field(init=False)
    _now_s: int = field(init=False, default=-1)
    _begun: bool = field(init=False, default=False)
    _misfit: Array = field(init=False)
    _kept: list[tuple[Batch, Array]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._days = Days(self.city, embedded_calibration(self.city), 2, keep_visits=False)
        self._misfit = np.zeros(len(self._days.levels))

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
            k.serve_batch(self._days.static, self._days.fleet, MIRROR, i, holds[i : i + 1])
        if not self.level_known:
            self._kept.append((batch, holds))
        return Decision(proposals, holds)

    def __call__(self, batch: Batch) -> list[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]

    def costs(self, i: int) -> tuple[Array, Array]:
        """(holds, costs) tried for the next bus of the moment to decide; the base's hold first."""
        tried = np.array([0.0, *TRIED_S])
        costs = np.empty(len(tried))
        days, base = self._days, self.base
        until = min(self._now_s + self.look_ahead_s, self.city.horizon_s)
        try_holds(
            days.static, days.fleet, i, until, base.kind, base.constants, base.chain, base.due_s,
            tried, costs,
        )  # fmt: skip
        return tried, costs

    @property
    def level(self) -> float:
        """The demand level that explains the day's events best, the usual one among equals."""
        levels = self._days.levels
        best = min(range(len(levels)), key=lambda i: (self._misfit[i], abs(levels[i] - 1.0)))
        return levels[best]

    @property
    def level_known(self) -> bool:
        """Whether no other level explains the day's events as well."""
        return int((self._misfit == self._misfit.min()).sum()) == 1

    def _follow(self, batch: Batch) -> None:
        """Bring the mirror to the batch; one that does not follow on the last begins a new day."""
        if batch.time_s < self._now_s or not self._expects(batch):
            self._misfit[:] = 0.0
            self._kept.clear()
            self._begin()
            if not self._expects(batch):
                raise InputError(f"{self.name}: must follow a day from its first bus on")
        if not self.level_known:
            self._read_level(batch)
        self._bring(batch)

    def _read_level(self, batch: Batch) -> None:
        """Learn from a batch; a mirror that was begun at another level goes through the day again.

        At the first stops of a day levels may look alike, so batches are kept until they do not.
        """
        before = self.level
        self._misfit += misfits(self._days, batch)
        if self.level != before:
            self._begin()
            for seen, holds in self._kept:
                self._bring(seen)
                k.serve_batch(self._days.static, self._days.fleet, MIRROR, 0, holds)
        if self.level_known:
            self._kept.clear()

    def _begin(self) -> None:
        block = PURPOSES["calibration"].cells(1)[0]
        for world in (MIRROR, SCRATCH):
            self._days.begin(world, Cell(block.sumo_seed, block.demand_seed, self.level))
        self._begun = True

    def _bring(self, batch: Batch) -> None:
        """Let time pass in the mirror until the buses of a batch arrive."""
        self._now_s = batch.time_s
        follow(self._days.static, self._days.fleet, batch.time_s, batch.trips)

    def _expects(self, batch: Batch) -> bool:
        """Whether every bus is at the stop after the one the mirror last saw it at."""
        last = self._days.fleet.trip[MIRROR, batch.trips, layout.POSITION]
        return self._begun and bool((last + 1 == batch.raw[:, STOP]).all())


def misfits(days: Days, batch: Batch) -> Array:
    """How far each demand level's arrival rates are from those that the events report."""
    times, service = days.static.times, batch.raw[:, SERVICE].astype(int)
    place = days.static.first_stop[service] + batch.raw[:, STOP].astype(int)
    rates = times[:, min(batch.time_s // RATE_BIN_S, times.shape[1] - 1), place, layout.RATE]
    return np.asarray(np.abs(rates - batch.raw[:, RATE]).sum(axis=1))


# -- compiled -------------------------------------------------------------------------------------


@compiled
def follow(s: layout.Static, fleet: layout.Day, now: int, trips: npt.NDArray[np.int32]) -> None:
    """Bring the mirror to a second in which these buses reach their next stops.

    Buses it expected before then are still under way in the other world, and put off second by
    second. At last stops, where nobody is asked, buses arrive as the mirror expects them.
    """
    d = layout.row(fleet, MIRROR)
    num, h = d.num, k.headways(d)
    while num[layout.NOW] < now:
        if num[layout.NOW] >= 0:
            num[layout.WAITING_S] += num[layout.WAITING_NOW]
            num[layout.RIDING_S] += num[layout.RIDING_NOW]
        num[layout.NOW] += 1
        at = num[layout.NOW]
        num[layout.WAITING_NOW] += d.second[at, layout.ADD_WAITING]
        num[layout.RIDING_NOW] += d.second[at, layout.ADD_RIDING]
        trip = d.second[at, layout.BUCKET]
        d.second[at, layout.BUCKET] = -1
        while trip >= 0:
            after = d.after[trip]
            ends = d.trip[trip, layout.POSITION] + 1 == d.trip[trip, layout.LAST]
            k.schedule(s, d, trip, at if ends else at + 1)
            trip = after
        if at < now and d.second[at, layout.BUCKET] >= 0:
            k.arrivals(s, d, h, at)
    for i in range(trips.shape[0]):
        _call_in(s, d, trips[i], now)
    num[layout.BATCH] = k.arrivals(s, d, h, now)
    d.second[now, layout.BUCKET] = -1


@inlined
def _call_in(s: layout.Static, d: layout.Day, trip: int, now: int) -> None:
    """Take a bus from the second it was expected in, and let it arrive now."""
    at = now
    while at < s.number[0]:
        before, other = -1, d.second[at, layout.BUCKET]
        while other >= 0 and other != trip:
            before, other = other, d.after[other]
        if other == trip:
            if before < 0:
                d.second[at, layout.BUCKET] = d.after[trip]
            else:
                d.after[before] = d.after[trip]
            break
        at += 1
    k.schedule(s, d, trip, now)


@compiled
def try_holds(
    s: layout.Static,
    fleet: layout.Day,
    i: int,
    until: int,
    kind: int,
    constants: Array,
    chain: int,
    due_s: Array,
    tried_s: Array,
    costs: Array,
) -> None:
    """What the people's time costs until a second, for each hold of the i-th bus.

    The first hold is replaced by what the base rule would do.
    """
    d, e = layout.row(fleet, MIRROR), layout.row(fleet, SCRATCH)
    tried_s[0] = k.controlled_hold(s, d, i, kind, constants, chain, due_s)
    for n in range(tried_s.shape[0]):
        _copy(d, e, d.num[layout.NOW], until)
        k.serve(s, e, i, tried_s[n])
        first, count = i + 1, e.num[layout.BATCH]
        while count:
            for j in range(first, count):
                k.serve(s, e, j, k.controlled_hold(s, e, j, kind, constants, chain, due_s))
            first, count = 0, k.advance_until(s, e, until)
        costs[n] = 2.0 * e.num[layout.WAITING_S] + e.num[layout.RIDING_S]


@inlined
def _copy(d: layout.Day, e: layout.Day, now: int, until: int) -> None:
    """Make one world like another, as far as it matters until a second.

    Both were begun on the same cell, so that what only `begin_day` writes is there already.
    """
    _fill(e.num, d.num, 0, d.num.shape[0])
    _fill(e.hold_s, d.hold_s, 0, d.hold_s.shape[0])
    _fill(e.after, d.after, 0, d.after.shape[0])
    _fill(e.alighting, d.alighting, 0, d.alighting.shape[0])
    _fill(e.tail, d.tail, 0, d.tail.shape[0])
    k.copy_rows(e.second, d.second, now, until)
    k.copy_rows(e.trip, d.trip, 0, d.trip.shape[0])
    k.copy_rows(e.place, d.place, 0, d.place.shape[0])
    k.copy_rows(e.visit, d.visit, 0, d.visit.shape[0])
    k.copy_rows(e.rider, d.rider, 0, d.rider.shape[0])
    k.copy_rows(e.queue, d.queue, 0, d.queue.shape[0])
    for i in range(d.num[layout.BATCH]):
        e.batch[i] = d.batch[i]
        _fill(e.raw[i], d.raw[i], 0, 16)


@inlined
def _fill(to: npt.NDArray[Any], source: npt.NDArray[Any], low: int, high: int) -> None:
    """Copy part of an array, as `k.copy_rows` does of a table."""
    for i in range(low, high):
        to[i] = source[i]
