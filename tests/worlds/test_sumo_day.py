"""A day in SUMO, run twice or broken off; test_sumo_world.py compares it with SUMO's records."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.rules.policy import BEHAVIOURS, RulePolicy, set_rule
from evenline.support.errors import InputError
from evenline.worlds.sumo.runtime import libsumo
from evenline.worlds.sumo.world import SumoWorld

OpenWorld = Callable[..., SumoWorld]
CROWDED = replace(demo_cell(2), demand=1.25)
RESTLESS = set_rule("restless", "random", share=0.5, longest_s=60.0)


def everything(world: SumoWorld, cell: Cell, rule: RulePolicy) -> list[Any]:
    """All that a world says in a day, in order."""
    said: list[Any] = []
    batch = world.reset(cell)
    while batch is not None:
        said.append((batch.time_s, batch.trips.tolist(), batch.raw.tolist(), world.charged))
        assert (batch.trips.dtype, batch.raw.dtype) == (np.int32, np.float64)
        batch = world.step(rule(batch))
    said += [world.charged, world.outcome(), world.visits]
    world.close()
    return said


@pytest.mark.parametrize("rule", [BEHAVIOURS["headway-1.0"], RESTLESS], ids=lambda rule: rule.name)
def test_the_next_world_says_the_same_to_the_bit(
    town: City, rule: RulePolicy, open_world: OpenWorld
) -> None:
    expected = everything(open_world(town), CROWDED, rule)
    assert everything(open_world(town), CROWDED, rule) == expected
    outcome = expected[-2]
    assert outcome.denied_boardings > 0 and 0 < outcome.holds_zero < outcome.decisions
    assert np.diff(town.journeys.leg_start).max() > 1, "there are people who change"


def test_batches_of_a_day_stay_as_they_were(town: City, open_world: OpenWorld) -> None:
    world = open_world(town)
    batch = world.reset(CROWDED)
    assert batch is not None
    raw, trips = batch.raw.copy(), batch.trips.copy()
    later = batch
    for _ in range(50):
        after = world.step([0.0] * len(later.trips))
        assert after is not None
        later = after
    assert np.array_equal(batch.raw, raw) and np.array_equal(batch.trips, trips)


def test_a_sumo_that_is_gone_is_one_line_with_the_time(town: City, open_world: OpenWorld) -> None:
    world = open_world(town)
    batch = world.reset(CROWDED)
    assert batch is not None
    libsumo().close()
    with pytest.raises(InputError, match=rf"^SUMO stopped at {batch.time_s + 1} s of the day: .+$"):
        world.step([0.0] * len(batch.trips))
    assert world.reset(CROWDED) is not None, "the next day is not harmed"
