"""The fast world and the reference simulator side by side: the same day under the same holds.

Also what the tests of the fast world share: how many examples they draw, policies that give out
fixed holds, and who rode which bus.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.control.event import RATE, Batch
from evenline.control.outcome import Outcome
from evenline.control.world import World, run_episode
from evenline.worlds.fast.world import FastWorld
from random_cities import Day
from reference_simulator import ReferenceWorld

CELL = demo_cell(1)
EXACT_BUT_RATE = [column for column in range(16) if column != RATE]


def examples(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def in_turn(given_out: Sequence[float]) -> Callable[[Batch], list[float]]:
    """A policy that hands out the same holds again and again, whatever happens."""
    left = itertools.cycle(given_out)
    return lambda batch: [next(left) for _ in batch.trips]


def run(world: World, cell: Cell, some_holds: Sequence[float] = (0.0,)) -> Outcome:
    return run_episode(world, cell, in_turn(some_holds))


def fast_world(day: Day) -> FastWorld:
    return FastWorld(day.city, day.calibration, keep_visits=True)


def assert_same_day(day: Day, some_holds: Sequence[float]) -> tuple[FastWorld, ReferenceWorld]:
    """Both worlds side by side under the same holds: they never differ."""
    fast, slow = fast_world(day), ReferenceWorld(day.city, day.calibration)
    policy = in_turn(some_holds)
    left, right = fast.reset(day.cell), slow.reset(day.cell)
    assert fast.charged == slow.charged
    while left is not None and right is not None:
        assert (left.time_s, left.trips.tolist()) == (right.time_s, right.trips.tolist())
        assert np.array_equal(left.raw[:, EXACT_BUT_RATE], right.raw[:, EXACT_BUT_RATE])
        assert np.allclose(left.raw[:, RATE], right.raw[:, RATE], rtol=1e-12, atol=0)
        decided = policy(left)
        left, right = fast.step(decided), slow.step(decided)
        assert fast.charged == slow.charged
    assert left is None and right is None
    assert fast.outcome() == slow.outcome()
    assert fast.visits == sorted(slow.visits)
    on_bus = {(ride.leg, ride.trip) for ride in rides(fast)}
    assert on_bus == {(ride.leg.number, ride.trip) for ride in slow.rides}
    return fast, slow


@dataclass(frozen=True)
class Ride:
    """A leg for which the kernel found a bus, read from its memory after the day."""

    leg: int
    trip: int
    boarded: int  # position on the trip
    alights: int


def rides(world: FastWorld) -> list[Ride]:
    city, static = world.city, world._days.static
    found = []
    for leg, visit in enumerate(world._days.fleet.ride[0].tolist()):
        if visit >= 0:
            trip = int(np.searchsorted(static.first_visit, visit, side="right")) - 1
            stops = city.services[city.trips[trip].service].stops
            board = int(city.journeys.leg_board[leg])
            assert board in stops, "nobody gets on where the bus does not stop"
            alights = visit - int(static.first_visit[trip])
            found.append(Ride(leg, trip, stops.index(board), alights))
    return found
