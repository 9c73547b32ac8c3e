"""Episodes in worker processes: the same bytes every time, and no failure goes unnoticed."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evenline.runs.pool import TRIES, Job, run_jobs

import small_cities
from evenline.city.build import build
from evenline.city.cells import demo_cell
from evenline.city.embedded import TOWN
from evenline.city.model import City
from evenline.city.tables import save_city
from evenline.replay.episode import read_outcome, read_tokens
from evenline.rules.policy import BEHAVIOURS

CELL = demo_cell(2)
ZERO, HEADWAY = BEHAVIOURS["zero"], BEHAVIOURS["headway-1.0"]


def test_an_episode_is_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    def run(folder: Path) -> dict[str, bytes]:
        jobs = [
            Job("town", CELL, rule, folder / f"{rule.name}.tokens", folder / f"{rule.name}.visits")
            for rule in (ZERO, HEADWAY)
        ]
        results = list(run_jobs(jobs, workers=2))
        assert [result.error for result in results] == [None, None]
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    first, second = run(tmp_path / "first"), run(tmp_path / "second")
    assert first == second
    assert len(first) == 4
    assert len(set(first.values())) == 4, "the policies do differ"


def test_a_killed_worker_is_replaced_and_its_episode_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_city(build(replace(TOWN, cars_per_hour=(2_500, 2_500))), tmp_path / "busy")
    job = Job(str(tmp_path / "busy"), CELL, ZERO, tokens=tmp_path / "zero.parquet")
    workers: list[subprocess.Popen[bytes]] = []
    killed_at: list[int] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            workers.append(self)

    def kill_the_first(_: Job, now_s: int) -> None:
        if not killed_at:
            killed_at.append(now_s)
            os.kill(workers[0].pid, signal.SIGKILL)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    (result,) = run_jobs([job], workers=1, progress=kill_the_first)
    assert killed_at[0] > 0, "the worker was killed in the middle of the day"
    assert (result.error, result.tries, len(workers)) == (None, 2, 2)
    outcome = read_outcome(tmp_path / "zero.parquet")
    assert result.answer is not None
    assert result.answer["outcome"] == outcome.as_dict()
    assert outcome.decisions == len(read_tokens(tmp_path / "zero.parquet"))


def test_what_always_fails_is_returned_by_name_and_the_rest_goes_on(
    town: City, tmp_path: Path
) -> None:
    save_city(small_cities.unloadable(town), tmp_path / "unloadable")
    jobs = [
        Job(str(tmp_path / "unloadable"), demo_cell(1), ZERO, tokens=tmp_path / "unloadable.pq"),
        Job("nowhere", demo_cell(2), ZERO, tokens=tmp_path / "nowhere.pq"),
        Job("town", demo_cell(3), ZERO, tokens=tmp_path / "town.pq"),
    ]
    results = {result.job.name: result for result in run_jobs(jobs, workers=1)}
    crashed, unknown, fine = (results[f"zero {n}-{500 + n}-1.00"] for n in (1, 2, 3))

    assert crashed.error is not None
    assert crashed.error.startswith("SUMO stopped at 0 s of the day")
    assert crashed.tries == TRIES, "SUMO may recover: it was tried again"
    assert unknown.error is not None
    assert unknown.error.startswith("city 'nowhere': neither an embedded city")
    assert unknown.tries == 1, "the input itself is at fault"
    assert fine.error is None
    assert [path.name for path in tmp_path.glob("*.pq")] == ["town.pq"]


def test_a_silent_worker_is_given_up() -> None:
    (result,) = run_jobs([Job("town", CELL, ZERO)], workers=1, silence_s=0.0)
    assert (result.error, result.tries) == ("no sign of life for 0 s", TRIES)
