"""The two ways to keep a day in SUMO, plain and compiled: the same to the bit.

Both are compared with SUMO's own records through the world (test_sumo_world.py), which takes the
compiled one where it can.
"""

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.rules.policy import BEHAVIOURS, RulePolicy, set_rule
from evenline.support.errors import InputError
from evenline.worlds.sumo import native
from evenline.worlds.sumo.day import PlainDay
from evenline.worlds.sumo.runtime import libsumo
from evenline.worlds.sumo.world import SumoWorld

OpenWorld = Callable[..., SumoWorld]
CROWDED = replace(demo_cell(2), demand=1.25)
RESTLESS = set_rule("restless", "random", share=0.5, longest_s=60.0)
HAS_COMPILER = native._library() is not None
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="there is no C++ compiler here")


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


@needs_compiler
@pytest.mark.parametrize("rule", [BEHAVIOURS["headway-1.0"], RESTLESS], ids=lambda rule: rule.name)
def test_the_compiled_day_is_the_plain_one_to_the_bit(
    town: City, rule: RulePolicy, open_world: OpenWorld
) -> None:
    plain, compiled = open_world(town, native=False), open_world(town)
    expected = everything(plain, CROWDED, rule)
    assert everything(compiled, CROWDED, rule) == expected
    assert (type(plain._day), type(compiled._day)) == (PlainDay, native.NativeDay)
    outcome = expected[-2]
    assert outcome.denied_boardings > 0 and 0 < outcome.holds_zero < outcome.decisions
    assert np.diff(town.journeys.leg_start).max() > 1, "there are people who change"


@needs_compiler
def test_batches_of_a_compiled_day_stay_as_they_were(town: City, open_world: OpenWorld) -> None:
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


@pytest.mark.parametrize("plain", [False, True])
def test_a_sumo_that_is_gone_is_one_line_with_the_time(
    town: City, open_world: OpenWorld, plain: bool
) -> None:
    world = open_world(town, native=not plain)
    batch = world.reset(CROWDED)
    assert batch is not None
    libsumo().close()
    with pytest.raises(InputError, match=rf"^SUMO stopped at {batch.time_s + 1} s of the day: .+$"):
        world.step([0.0] * len(batch.trips))
    assert world.reset(CROWDED) is not None, "the next day is not harmed"


@pytest.mark.parametrize("compiler", [None, "#!/bin/sh\nexit 1\n", "#!/bin/sh\nexit 0\n"])
def test_without_a_compiler_that_works_there_is_no_compiled_day(
    compiler: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler is not None:
        (tmp_path / "c++").write_text(compiler)
        (tmp_path / "c++").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("EVENLINE_CACHE", str(tmp_path / "cache"))
    assert native._library.__wrapped__() is None
