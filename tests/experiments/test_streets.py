"""Streets in SUMO are slowed until trips take the time of the timetable, as far as they can."""

import datetime
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.city.cells import PURPOSES
from evenline.city.model import City, visit_offsets
from evenline.city.slowness import EMPTY
from evenline.city.tables import load_city, save_city
from evenline.control.world import run_episode
from evenline.experiments.calibrate import calibrate
from evenline.experiments.streets import slow_streets
from evenline.importing.gtfs import read_gtfs
from evenline.importing.imported import Imported
from evenline.importing.timetable import Wanted
from evenline.importing.writing import Demand, write_city, write_people
from evenline.rules.policy import BEHAVIOURS
from evenline.runs.day import open_job, run_job
from evenline.runs.executors import Results, Shard
from evenline.runs.job import Ended, Job
from evenline.support.errors import InputError
from evenline.support.locks import one_runner
from evenline.worlds.open import open_city
from evenline.worlds.sumo.world import SumoWorld
from feeds import EXAMPLE

PEOPLE = Demand("gravity", 60)
BLOCKS = 12  # with fewer, the luck of drivers shows
days_run: list[int] = []  # in each call
killed_at: list[int] = []


def here(jobs: Sequence[Job], *_: object, **__: object) -> Results:
    """An executor that runs days in this process, and may be killed at a call."""
    days_run.append(len(jobs))
    if len(days_run) in killed_at:
        raise KeyboardInterrupt
    for job in jobs:
        opened = open_job(job)
        answer = run_job(job, opened)
        opened.close()
        yield Ended(job=job, answer=answer, failures=(), duration_s=0.0)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both directions of a line for an hour; its timetable is slower than empty streets."""
    folder = tmp_path_factory.mktemp("streets") / "mine"
    wanted = Wanted(("10",), datetime.date(2026, 3, 3), 6 * 3600, 7 * 3600)
    write_city(Imported(timed(read_gtfs(EXAMPLE, wanted, "mine").city, 1.5)), folder, PEOPLE)
    return folder


def timed(city: City, factor: float) -> City:
    """The city with a timetable whose trips are so many times as long."""
    assert city.due_s is not None
    starts_s = np.repeat([trip.departure_s for trip in city.trips], len(city.services[0].stops))
    due_s = starts_s + factor * (city.due_s - starts_s)
    return replace(city, due_s=due_s.astype(np.int32))


@pytest.fixture(scope="module")
def slow(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow") / "slow"
    kept = slow_streets(str(bare), folder, BLOCKS, here)
    assert all(each.empty < 0.7 and each.within for each in kept), kept
    return folder


def shares(city: City, seeds: int = 12) -> list[float]:
    """Of the scheduled time, by service, on days that nobody has fitted anything to."""
    first, took_s = visit_offsets(city), np.zeros((len(city.services), 2))
    assert city.due_s is not None
    with SumoWorld(city) as world:
        for cell in PURPOSES["development"].cells(seeds, (1.0,)):
            run_episode(world, cell, BEHAVIOURS["zero"])
            at = {(visit.trip, visit.position): visit for visit in world.visits}
            for number, trip in enumerate(city.trips):
                last = len(city.services[trip.service].stops) - 1
                due_s = city.due_s[first[number] + last] - city.due_s[first[number]]
                ran_s = at[number, last].arrival_s - at[number, 0].departure_s
                took_s[trip.service] += (ran_s, due_s)
    return (took_s[:, 0] / took_s[:, 1]).tolist()


def test_trips_take_their_scheduled_time_on_other_days(bare: Path, slow: Path) -> None:
    assert all(share < 0.7 for share in shares(load_city(bare), 1))
    assert shares(load_city(slow)) == pytest.approx([1.0] * 2, abs=0.05)  # with luck of drivers


def test_a_slowed_city_keeps_what_it_had_and_says_so(bare: Path, slow: Path) -> None:
    before, after = open_city(str(bare)), open_city(str(slow))
    assert EMPTY in before.notes("sumo") and EMPTY not in after.notes("sumo")
    assert "2 of 2 services do within 3%" in after.notes("sumo")[-1]
    assert before.calibration is not None and after.calibration is not None
    assert (before.calibration.mean_s == after.calibration.mean_s).all()
    for table in ("legs.csv", "schedule.csv", "roads.csv"):
        assert (bare / table).read_bytes() == (slow / table).read_bytes()


def test_other_people_need_other_streets(slow: Path, tmp_path: Path) -> None:
    write_people(str(slow), tmp_path / "other", PEOPLE, "other", False)
    other = load_city(tmp_path / "other")
    assert other.slowness is None and EMPTY in other.notes
    assert not [note for note in other.notes if "slowed from stop" in note]


def test_a_run_that_was_killed_goes_on_and_ends_the_same(
    bare: Path, slow: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(bare, mine)
    (mine / "sketch.txt").write_text("mine")
    days_run.clear()
    killed_at.append(4)
    with pytest.raises(KeyboardInterrupt):
        slow_streets(str(mine), None, BLOCKS, here)
    killed_at.clear()
    assert load_city(mine).slowness is None
    with (
        one_runner(tmp_path / ".mine.streets", "run"),
        pytest.raises(InputError, match="another run for these streets is running"),
    ):
        slow_streets(str(mine), None, BLOCKS, here)
    slow_streets(str(mine), None, BLOCKS, here)
    assert days_run == [3, 3, 3, 12, 12, 12], "finished days are not run again"
    assert (mine / "slowness.csv").read_bytes() == (slow / "slowness.csv").read_bytes()
    assert (mine / "sketch.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_timetable_that_is_too_fast_is_named(bare: Path, tmp_path: Path) -> None:
    save_city(timed(load_city(bare), 0.2), tmp_path / "hasty")
    kept = slow_streets(str(tmp_path / "hasty"), None, 1, here)
    assert all(each.fastest and each.slowed > 1.5 for each in kept)
    (note,) = (n for n in load_city(tmp_path / "hasty").notes if n.startswith("in SUMO, "))
    assert "0 of 2 services do" in note and "its streets are too slow" in note


def test_a_calibration_never_fits_empty_streets(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"evenline city fit \S+ --streets-only"):
        calibrate(str(bare), tmp_path / "half", 1, shard=Shard.parse("1/2"))
    mine, called = tmp_path / "mine", []
    shutil.copytree(bare, mine)
    path = "evenline.experiments.calibrate.slow_streets"
    monkeypatch.setattr(path, lambda city, **_: called.append(city))
    monkeypatch.setattr("evenline.experiments.calibrate._check_plan", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        calibrate(str(mine), tmp_path / "whole", 1)
    assert called == [str(mine)]


def test_a_city_without_a_timetable_is_refused() -> None:
    with pytest.raises(InputError, match="town has no timetable"):
        slow_streets("town")
