"""The contract of a world as a test: any simulator that passes can stand behind every policy."""

import numpy as np

from evenline.city.demand import Cell
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import BUS_AHEAD, BUS_BEHIND, SERVICE, STOP, TIME
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS
from evenline.control.world import World


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
