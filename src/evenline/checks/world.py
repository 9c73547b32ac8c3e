"""Test a world against the contract. Every policy works with a simulator that passes.

The test checks the order and the features of batches, the ledger, that the same cell gives the same
day, that invalid holds are refused, and that a hold is executed as the operations allow.
"""

import math
from collections.abc import Sequence

import numpy as np

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, service_stop_offsets
from evenline.city.operations import BREAKDOWN, CLOSED
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import (
    BASE_DWELL,
    BUS_AHEAD,
    BUS_BEHIND,
    CAPACITY,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    ON_BOARD,
    RATE,
    RAW_FEATURES,
    SERVICE,
    STOP,
    SYSTEM_ON_BOARD,
    SYSTEM_WAITING,
    TARGET_AHEAD,
    TARGET_BEHIND,
    TIME,
    WAITING,
    Array,
    Batch,
    headway_behind,
    new_headways,
    record_arrival,
)
from evenline.control.operations import driver_luck, executed_s, limits_of
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS
from evenline.control.world import World
from evenline.support.errors import InputError

_BAD_HOLDS: tuple[float, ...] = (-1.0, MAX_HOLD_S + 1.0, math.nan, math.inf)


def check_world(world: World, cell: Cell) -> Outcome:
    """Run the day of a cell twice under random holds and assert every promise of the contract."""
    _check_refusals(world, cell)
    first = _checked_day(world, cell)
    assert _checked_day(world, cell) == first, "the same cell and holds give the same day"
    return first


def _check_refusals(world: World, cell: Cell) -> None:
    """Assert that the world refuses holds outside 0 to 60 s and a wrong number of holds."""
    batch = world.reset(cell)
    assert batch is not None, "the cell has no decisions; choose a cell with buses"
    count = len(batch.trips)
    bad: list[Sequence[float]] = [[hold] * count for hold in _BAD_HOLDS]
    for holds in [*bad, [0.0] * (count + 1)]:
        try:
            world.step(holds)
        except InputError:
            continue
        raise AssertionError(f"holds {list(holds)} for {count} buses must be an InputError")


def _checked_day(world: World, cell: Cell) -> Outcome:
    """Run one day under random holds and check every batch."""
    city, rng = world.city, np.random.Generator(np.random.PCG64(cell.demand_seed))
    batch = world.reset(cell)
    known = _Known(world, cell)
    pre, decision_cost, now, decisions = world.charged, 0, -1, 0
    while batch is not None:
        count = len(batch.trips)
        assert 1 <= count <= MAX_SLOTS and batch.raw.shape == (count, len(RAW_FEATURES))
        assert np.isfinite(batch.raw).all()
        assert now <= batch.time_s < city.horizon_s and (batch.raw[:, TIME] == batch.time_s).all()
        assert now < batch.time_s or world.charged == 0, "no time passes inside a moment"
        known.check(batch)
        now, decisions = batch.time_s, decisions + count
        holds = list(rng.random(count) * MAX_HOLD_S)
        expected = known.executed(batch, holds)
        batch = world.step(holds)
        executed = getattr(world, "executed_s", holds)
        assert np.allclose(executed, expected), "a hold is executed as the operations allow"
        decision_cost += world.charged
    outcome = world.outcome()
    assert outcome.decisions == decisions
    assert pre + decision_cost == outcome.cost, "the ledger charges every second once"
    assert 0 <= outcome.completed <= outcome.departed
    return outcome


class _Known:
    """The facts that events must agree with: the city, the cell, and the arrivals so far."""

    def __init__(self, world: World, cell: Cell) -> None:
        self.city, self.seen = world.city, set[tuple[int, int]]()
        self.headways, self.first = new_headways(world.city), service_stop_offsets(world.city)
        self.rates = arrival_rates(world.city, cell.demand)
        self.ahead_s, self.behind_s = world.city.headway_targets()
        self.now = -1
        self.limits, self.luck = limits_of(world.city), driver_luck(world.city, cell)
        # A bus that breaks down or passes a stop is there, but asks nothing.
        self.unseen = world.city.operations.has(BREAKDOWN, CLOSED)

    def executed(self, batch: Batch, holds: Sequence[float]) -> list[float]:
        """What becomes of the holds of a batch."""
        if not len(self.limits.cap_s):
            return list(holds)
        visits = self.headways.first_visit[batch.trips] + batch.raw[:, STOP].astype(int)
        asked = zip(visits.tolist(), batch.raw, holds, strict=True)
        return [executed_s(self.limits, v, raw, hold, self.luck[v]) for v, raw, hold in asked]

    def check(self, batch: Batch) -> None:
        """Check the order, the stops and the features of a batch."""
        pairs = list(zip(batch.raw, batch.trips.tolist(), strict=True))
        keys = [(int(row[SERVICE]), trip) for row, trip in pairs]
        assert keys == sorted(keys), "a batch is ordered by service and vehicle"
        if batch.time_s > self.now:
            self.gaps: dict[int, int] = {}
            self.now = batch.time_s
        for row, trip in pairs:
            service, stop = int(row[SERVICE]), int(row[STOP])
            assert self.city.trips[trip].service == service
            assert 0 <= stop < len(self.city.services[service].stops) - 1, "not a last stop"
            assert (trip, stop) not in self.seen, "a stop visit is decided once"
            self.seen.add((trip, stop))
            self.gaps[trip] = record_arrival(self.headways, trip, stop, batch.time_s)
        for row, trip in pairs:
            # The rest of a wider moment comes in the next batch, which may contain the bus behind.
            self._check_features(row, trip, batch.time_s, len(pairs) < MAX_SLOTS)

    def _check_features(self, row: Array, trip: int, now: int, whole: bool) -> None:
        """Check the features that follow from the city and from the arrivals so far."""
        city, gap = self.city, self.gaps[trip]
        slot = min(now // RATE_BIN_S, self.rates.shape[1] - 1)
        rate = self.rates[self.first[int(row[SERVICE])] + int(row[STOP]), slot]
        behind = headway_behind(self.headways, trip, now)
        if not self.unseen:
            assert row[BUS_AHEAD] == (gap >= 0) and row[HEADWAY_AHEAD] == max(gap, 0)
            assert not whole or row[HEADWAY_BEHIND] == max(behind, 0)
        assert row[BUS_BEHIND] in (0, 1) and (row[BUS_BEHIND] == 1 or row[HEADWAY_BEHIND] == 0)
        assert row[TARGET_AHEAD] == self.ahead_s[trip] and row[TARGET_BEHIND] == self.behind_s[trip]
        assert row[RATE] == rate, "the arrival rate is the city's"
        vehicle = city.vehicle_of(trip)
        assert row[CAPACITY] == vehicle.capacity and 0 <= row[ON_BOARD] <= row[CAPACITY]
        assert row[BASE_DWELL] >= vehicle.min_dwell_s
        assert 0 <= row[WAITING] <= row[SYSTEM_WAITING] and row[ON_BOARD] <= row[SYSTEM_ON_BOARD]
