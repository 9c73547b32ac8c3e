"""The checks that ship pass for what we ship, and fail for each promise that is broken."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evenline.checks import check_city, check_learner, check_policy, check_world
from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.city.operations import Disruption, Operations
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import ON_BOARD, RATE, TARGET_AHEAD, Batch
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import open_policy
from evenline.support.errors import InputError
from evenline.worlds.open import OpenCity, open_city, open_world

CELL = demo_cell(2, 1.25)


@pytest.fixture(scope="module")
def town() -> OpenCity:
    return open_city("town")


@pytest.mark.parametrize("name", ["fast", "sumo"])
def test_our_worlds_pass(town: OpenCity, name: str) -> None:
    world = open_world(name, town)
    try:
        assert check_world(world, CELL).decisions > 400
    finally:
        getattr(world, "close", lambda: None)()


class Broken:
    """A fast world with one promise broken."""

    def __init__(self, opened: OpenCity, fault: str) -> None:
        self.inner, self.fault, self.days = opened.fast_world(), fault, 0
        self.city, self.visits = opened.city, []

    @property
    def charged(self) -> int:
        return self.inner.charged + (self.fault == "charges too much")

    def reset(self, cell: Cell) -> Batch | None:
        self.days += 1
        moved = replace(cell, sumo_seed=cell.sumo_seed + self.days)
        return self._shown(self.inner.reset(moved if self.fault == "another day" else cell))

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        if self.fault == "takes any hold":
            holds_s = np.clip(np.nan_to_num(list(holds_s)), 0.0, MAX_HOLD_S).tolist()
        return self._shown(self.inner.step(holds_s))

    def _shown(self, batch: Batch | None) -> Batch | None:
        if batch is None:
            return None
        raw = batch.raw.copy()
        match self.fault:
            case "wrong rate":
                raw[:, RATE] += 1e-9
            case "wrong target":
                raw[:, TARGET_AHEAD] += 1.0
            case "overfull":
                raw[:, ON_BOARD] = 1_000
            case "backwards" if len(raw) > 1:
                return Batch(batch.time_s, batch.trips[::-1], raw[::-1])
        return Batch(batch.time_s, batch.trips, raw)

    def outcome(self) -> Any:
        return self.inner.outcome()


@pytest.mark.parametrize(
    "fault",
    [
        *("takes any hold", "another day", "charges too much", "wrong rate", "wrong target"),
        *("overfull", "backwards"),
    ],
)
def test_a_world_that_breaks_a_promise_fails(town: OpenCity, fault: str) -> None:
    with pytest.raises(AssertionError):
        check_world(Broken(town, fault), CELL)


def operated(town: OpenCity) -> OpenCity:
    """The town with limits of holds, drivers who do not obey, and every kind of disruption."""
    stops, last = town.city.services[0].stops, len(town.city.trips) - 1
    disruptions = (
        Disruption("cancelled", trip=last),
        Disruption("breakdown", trip=0, stop=stops[3]),
        Disruption("closed", stop=stops[2], from_s=1500, until_s=4000),
        Disruption("slow", road=town.city.services[0].roads[1], factor=2.0),
    )
    operations = Operations(max_hold_s=30.0, ignored_share=0.2, disruptions=disruptions)
    return replace(town, city=replace(town.city, operations=operations))


@pytest.mark.parametrize("name", ["fast", "sumo"])
def test_our_worlds_pass_with_operations_and_disruptions(town: OpenCity, name: str) -> None:
    world = open_world(name, operated(town))
    try:
        assert check_world(world, CELL).mean_hold_s < 20.0
    finally:
        getattr(world, "close", lambda: None)()


def test_a_world_that_ignores_the_operations_fails(town: OpenCity) -> None:
    """It holds as long as it was asked to, though its city says otherwise."""
    world = Broken(town, "")
    world.city = operated(town).city
    with pytest.raises(AssertionError, match="as the operations allow"):
        check_world(world, CELL)


def test_a_wrapper_that_breaks_none_passes(town: OpenCity) -> None:
    check_world(Broken(town, "nothing"), CELL)


@pytest.mark.parametrize("name", ["zero", "schedule", "headway+candidate", "lookahead"])
def test_our_policies_pass(town: OpenCity, name: str) -> None:
    check_policy(open_policy(name, town.city, town.calibration), town.fast_world(), CELL)


def test_a_policy_that_breaks_a_promise_fails(town: OpenCity) -> None:
    rng = np.random.default_rng(1)

    def writes(batch: Batch) -> list[float]:
        batch.raw[:, RATE] = 0.0
        return [0.0] * len(batch.trips)

    broken: list[Any] = [
        lambda batch: [61.0] * len(batch.trips),
        lambda batch: [0.0] * (len(batch.trips) + 1),
        lambda batch: rng.uniform(0, 60, len(batch.trips)),
        writes,
    ]
    for policy in broken:
        with pytest.raises(AssertionError):
            check_policy(policy, town.fast_world(), CELL)


def test_our_cities_pass_and_one_whose_stops_stand_still_fails(town: OpenCity) -> None:
    for opened in (town, open_city("city")):
        assert check_city(opened) is opened.city
    first, *rest = town.city.services
    still = replace(first, distance_m=tuple(0.0 for _ in first.distance_m))
    broken = object.__new__(type(town.city))
    broken.__dict__.update(vars(town.city) | {"services": (still, *rest)})
    with pytest.raises((AssertionError, InputError)):
        check_city(replace(town, city=broken, calibration=None))


def test_a_learner_must_make_the_same_actor_of_a_seed(town: OpenCity) -> None:
    def learn(store: Any, opened: OpenCity, seed: int) -> Any:
        return random_tensors(len(opened.city.services), seed)

    assert set(check_learner(learn, town)) == set(learn(None, town, 1))
    calls: list[int] = []

    def forgetful(store: Any, opened: OpenCity, seed: int) -> Any:
        calls.append(seed)
        return learn(store, opened, len(calls))

    with pytest.raises(AssertionError, match="same seed gives the same bits"):
        check_learner(forgetful, town)
