"""A city with operations of its own, in everything that runs days: all respect them, and only a
calibration leaves them out. Days of SUMO are run in the fast world here."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evenline.city.cells import PURPOSES
from evenline.city.embedded import embedded_city
from evenline.city.operations import Disruption, Operations
from evenline.city.tables import load_city, save_city
from evenline.control.outcome import Outcome
from evenline.control.visits import read_visits
from evenline.experiments.calibrate import calibrate, calibration_jobs
from evenline.experiments.fidelity import fidelity_audit
from evenline.experiments.tune import tune
from evenline.learn.lessons import best_hold, lessons_of_a_day
from evenline.policies.bundle import export_bundle, open_policy
from evenline.runs.day import open_job, run_job
from evenline.runs.executors import Results, processes
from evenline.runs.job import Ended, Job
from evenline.trial.matrix import run
from evenline.worlds.calibration import save_calibration
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import CALIBRATION, open_city
from made import registered

TOWN = embedded_city("town")
CELL = PURPOSES["development"].cells(1, (1.0,))[0]


def folder_of(where: Path, operations: Operations) -> str:
    """The town with these operations, and its calibration, as a folder."""
    save_city(replace(TOWN, operations=operations), where)
    save_calibration(where / CALIBRATION, open_city("town").fitted())
    return str(where)


def in_the_fast_world(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
    """An executor that runs every job here, in the fast world."""
    for job in jobs:
        fast = msgspec.structs.replace(job, world="fast")
        yield Ended(job=job, answer=run_job(fast, open_job(fast)), failures=(), duration_s=0.0)


def by_chain(city: str, folder: Path) -> list[Outcome]:
    opened = open_city(city)
    decide = open_policy("headway+candidate", opened.city, opened.calibration)
    return [opened.fast_world().run_day(CELL, decide)]


def by_bundle(city: str, folder: Path) -> list[Outcome]:
    opened = open_city(city)
    export_bundle(folder, "lookahead", opened.city, None, {}, opened.calibration)
    decide = open_policy(str(folder), opened.city)
    return [opened.fast_world().run_day(CELL, decide)]


def by_tuning(city: str, folder: Path) -> list[Outcome]:
    _, front, bundle = tune("headway", city, folder, budget=6, blocks=1)
    assert len({(each.generalized_s, each.completion) for each in front}) == 1, "no hold matters"
    opened = open_city(city)
    return [opened.fast_world().run_day(CELL, open_policy(str(bundle), opened.city))]


def by_trial(city: str, folder: Path) -> list[Outcome]:
    methods = '{ better = "headway-1.0", worse = "zero" }'
    trial = registered(folder, city=f'"{city}"', methods=methods, world='"fast"')
    assert run(trial.folder, processes()).complete
    records = [json.loads(path.read_text()) for path in (trial.folder / "records").iterdir()]
    return [msgspec.convert(record["outcome"], Outcome) for record in records]


def by_learning(city: str, folder: Path) -> list[Outcome]:
    opened = open_city(city)
    lessons = lessons_of_a_day(opened.city, opened.fitted(), CELL, best_hold)
    assert not lessons.costs.any(), "nothing comes of asking"
    return []


@pytest.mark.parametrize("way", [by_chain, by_bundle, by_tuning, by_trial, by_learning])
def test_nobody_is_held_where_the_city_allows_no_hold(
    tmp_path: Path, way: Callable[[str, Path], list[Outcome]]
) -> None:
    city = folder_of(tmp_path / "city", Operations(hold_at="listed"))
    for outcome in way(city, tmp_path / "out"):
        assert outcome.hold_total_s == 0.0 and outcome.holds_zero == outcome.decisions > 0


DISRUPTED = Operations(
    hold_at="terminals",
    disruptions=(
        Disruption("slow", road=TOWN.services[0].roads[2], factor=5.0),
        Disruption("closed", stop=TOWN.services[0].stops[3]),
    ),
)


def test_a_calibration_is_fitted_to_days_without_the_operations(tmp_path: Path) -> None:
    """A slow road that was fitted would be slow twice."""
    city, out = folder_of(tmp_path / "city", DISRUPTED), tmp_path / "out"
    found, _ = calibrate(city, out, 1, in_the_fast_world)
    job = next(job for job in calibration_jobs(out, city, 1) if job.cell.demand == 1.0)
    plain = FastWorld(TOWN, open_city("town").fitted(), keep_visits=True)
    plain.run_day(job.cell, open_policy("zero", TOWN))
    assert job.visits is not None
    left = read_visits(job.visits)["departure_s"].to_pylist()
    assert left == [visit.departure_s for visit in plain.visits]
    assert np.abs(found.mean_s - open_city("town").fitted().mean_s).max() < 60.0


def test_the_fidelity_audit_works_in_an_operated_city(tmp_path: Path) -> None:
    city = folder_of(tmp_path / "city", DISRUPTED)
    replay, out = tmp_path / "replay", tmp_path / "out"
    lines = fidelity_audit(city, None, replay, out, in_the_fast_world, blocks=1)
    same = [line for line in lines if line.policy == "zero"]
    assert same and all(line.gap == 0.0 for line in same), "one world, twice"
    held = next(line for line in lines if line.quantity == "zero-hold share")
    assert held.sumo > 0.8 and asdict(held)["sumo"] == pytest.approx(held.fast, abs=1e-3)
    assert load_city(Path(city)).operations == DISRUPTED
