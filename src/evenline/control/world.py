"""The contract between whoever decides and whoever simulates.

    batch = world.reset(cell)
    while batch is not None:
        batch = world.step(holds_s)     # one hold for each bus of the batch
    outcome = world.outcome()

`check_world` is the contract as a test: any simulator that passes it can stand behind every
policy, environment and trial of this package.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import BUS_AHEAD, BUS_BEHIND, SERVICE, STOP, TIME, Batch
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS


class World(Protocol):
    """A simulated day, asked for holds batch by batch."""

    @property
    def city(self) -> City:
        """The network that is operated."""

    @property
    def charged(self) -> int:
        """Cost of the token just finished: from its batch to the present one or the horizon."""

    def reset(self, cell: Cell) -> Batch | None:
        """Begin the day of a cell; the first batch, or None if no bus ever reaches a stop."""

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        """Apply one hold for each bus of the batch and go on to the next; None at the horizon."""

    def outcome(self) -> Outcome:
        """The day's result; only after the horizon."""


def run_episode(world: World, cell: Cell, policy: "Policy") -> Outcome:
    """One whole day under a policy."""
    batch = world.reset(cell)
    while batch is not None:
        batch = world.step(policy(batch))
    return world.outcome()


class Policy(Protocol):
    """Holds in seconds for the buses of a batch."""

    def __call__(self, batch: Batch) -> Sequence[float]: ...


def check_world(world: World, cell: Cell) -> Outcome:
    """Run a day of a world and assert everything the contract promises."""
    city = world.city
    rng = np.random.Generator(np.random.PCG64(cell.demand_seed))
    batch = world.reset(cell)
    pre, token_cost, now, decisions = world.charged, 0, -1, 0
    seen: set[tuple[int, int]] = set()
    while batch is not None:
        count = len(batch.trips)
        assert 1 <= count <= MAX_SLOTS and batch.raw.shape == (count, 16)
        assert np.isfinite(batch.raw).all()
        assert now <= batch.time_s < city.horizon_s and (batch.raw[:, TIME] == batch.time_s).all()
        keys = [
            (int(row[SERVICE]), int(trip))
            for row, trip in zip(batch.raw, batch.trips, strict=False)
        ]
        assert keys == sorted(keys), "a batch is ordered by service and vehicle"
        for row, trip in zip(batch.raw, batch.trips, strict=True):
            service = city.services[int(row[SERVICE])]
            assert city.trips[trip].service == int(row[SERVICE])
            assert 0 <= row[STOP] < len(service.stops) - 1, "no decision at the last stop"
            assert (int(trip), int(row[STOP])) not in seen, "a stop visit is decided once"
            assert row[BUS_AHEAD] in (0, 1) and row[BUS_BEHIND] in (0, 1)
            seen.add((int(trip), int(row[STOP])))
        if now == batch.time_s:
            assert world.charged == 0, "no time passes inside a moment"
        now, decisions = batch.time_s, decisions + count
        batch = world.step(list(rng.random(count) * MAX_HOLD_S))
        token_cost += world.charged
    outcome = world.outcome()
    assert outcome.decisions == decisions
    assert pre + token_cost == outcome.cost, "the ledger charges every second once"
    assert 0 <= outcome.completed <= outcome.departed
    return outcome
