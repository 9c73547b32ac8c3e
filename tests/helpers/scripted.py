"""A world without a simulator: the days follow from the cell, holds are noted and cost time.

It keeps the contract of `World`, so it can stand in wherever the simulator does not matter.
"""

from collections.abc import Sequence

import numpy as np

from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.city.model import City, Ints
from evenline.control.action import check_holds
from evenline.control.event import (
    BASE_DWELL,
    BUS_AHEAD,
    BUS_BEHIND,
    CAPACITY,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    ON_BOARD,
    RATE,
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
)
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS


def cell_of(seed: int) -> Cell:
    """The day that a reset's seed stands for."""
    return demo_cell(1 + seed % 500)


class ScriptedWorld:
    """`moments` batches of one to sixteen buses; `batches`, `holds` and `costs` tell what was."""

    def __init__(self, city: City, moments: int = 30) -> None:
        self.city = city
        self.moments = moments
        self.charged = 0

    def reset(self, cell: Cell) -> Batch | None:
        rng = np.random.Generator(np.random.PCG64(cell.demand_seed))
        self.script = _script(self.city, self.moments, rng)
        self.pauses = [int(pause) for pause in rng.integers(0, 10_000, len(self.script))]
        self.batches: list[Batch] = []
        self.holds: list[list[float]] = []
        self.costs: list[int] = []
        self.charged = self.pre_control = int(rng.integers(1, 10_000))
        return self._next()

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        check_holds(holds_s, len(self.batches[-1].trips), lambda i: (f"bus {i}", "stop"))
        self.holds.append(list(holds_s))
        self.charged = self.pauses[len(self.costs)] + round(sum(holds_s))
        self.costs.append(self.charged)
        return self._next()

    def outcome(self) -> Outcome:
        assert not self.script
        return Outcome(
            departed=1,
            completed=1,
            waiting_s=0,
            riding_s=self.pre_control + sum(self.costs),
            pre_control_cost=self.pre_control,
            token_cost=sum(self.costs),
            decisions=sum(map(len, self.holds)),
            zero_duration_tokens=0,
            holds_zero=0,
            hold_total_s=0.0,
            denied_boardings=0,
            trips_completed=0,
            trip_duration_total_s=0,
        )

    def _next(self) -> Batch | None:
        if not self.script:
            return None
        self.batches.append(self.script.pop(0))
        return self.batches[-1]


def _script(city: City, moments: int, rng: np.random.Generator) -> list[Batch]:
    """Buses move on one stop at a time, whichever the day picks."""
    reached = np.full(len(city.trips), -1, np.int32)
    last = np.array([len(city.services[trip.service].stops) - 2 for trip in city.trips])
    times = np.sort(rng.choice(city.horizon_s, moments, replace=False))
    batches = []
    for time_s in times.tolist():
        running = np.flatnonzero(reached < last)
        width = min(int(rng.integers(1, MAX_SLOTS + 1)), len(running))
        trips = np.sort(rng.choice(running, width, replace=False)).astype(np.int32)
        reached[trips] += 1
        batches.append(Batch(time_s, trips, _raw(city, time_s, trips, reached[trips], rng)))
    return batches


def _raw(city: City, time_s: int, trips: Ints, stops: Ints, rng: np.random.Generator) -> Array:
    raw = np.empty((len(trips), 16))
    raw[:, SERVICE] = [city.trips[trip].service for trip in trips]
    raw[:, STOP] = stops
    raw[:, TIME] = time_s
    for feature in (HEADWAY_AHEAD, HEADWAY_BEHIND, TARGET_AHEAD, TARGET_BEHIND):
        raw[:, feature] = rng.integers(0, 5_000, len(trips))
    raw[:, WAITING] = rng.integers(0, 2_000, len(trips))
    raw[:, ON_BOARD] = rng.integers(0, city.vehicle.capacity + 1, len(trips))
    raw[:, RATE] = rng.random(len(trips))
    raw[:, BASE_DWELL] = rng.integers(12, 1_000, len(trips))
    raw[:, BUS_AHEAD] = rng.integers(0, 2, len(trips))
    raw[:, BUS_BEHIND] = rng.integers(0, 2, len(trips))
    raw[:, CAPACITY] = city.vehicle.capacity
    raw[:, SYSTEM_WAITING] = rng.integers(0, len(city.journeys))
    raw[:, SYSTEM_ON_BOARD] = rng.integers(0, len(city.journeys))
    return raw
