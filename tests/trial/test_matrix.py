"""A matrix survives whatever stops it, loses and doubles nothing, and keeps its outcomes sealed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.runs.executors import Executor, Results, Shard, processes
from evenline.runs.job import Ended, Failure, Job
from evenline.support.errors import InputError
from evenline.trial.evidence import peek, write_analysis
from evenline.trial.journal import journal
from evenline.trial.matrix import run, standing
from evenline.trial.registration import Trial, notices
from evenline.trial.verify import verify
from faults import wait_until
from made import FEW, answer, better_by_ninety, day, finished_trial, made_up, registered, results


class Killed(Exception):
    """Stands for a power cut."""


def dies_after(trial: Trial, jobs: int) -> Executor:
    left = jobs

    def answers(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        nonlocal left
        for ended in made_up(trial)(jobs):
            if left == 0:
                raise Killed
            left -= 1
            yield ended

    return answers


def test_a_stopped_run_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    ran: list[str] = []
    for jobs in (0, 7, 20):
        with pytest.raises(Killed):
            run(
                trial.folder, dies_after(trial, jobs), on_end=lambda job, _: ran.append(job.address)
            )
    assert not (trial.folder / "matrix.json").exists()
    assert run(trial.folder, made_up(trial), on_end=lambda job, _: ran.append(job.address)).complete
    assert sorted(ran) == sorted(trial.jobs()), "every job was run, and none twice"
    stopped = results(trial)
    for path in (trial.folder / "records").iterdir():
        path.unlink()
    run(trial.folder, made_up(trial))
    assert stopped == results(trial)


def test_whoever_repeats_a_trial_gets_the_same_hash_of_all_results(tmp_path: Path) -> None:
    first, again = finished_trial(tmp_path / "a"), finished_trial(tmp_path / "b", name='"again"')
    assert first.sha256 != again.sha256
    one, other = (json.loads((t.folder / "matrix.json").read_text()) for t in (first, again))
    assert one["results_sha256"] == other["results_sha256"]


def test_what_a_killed_writer_left_aside_counts_for_nothing(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    with pytest.raises(Killed):
        run(trial.folder, dies_after(trial, 5))
    whole = next((trial.folder / "records").iterdir())
    half = trial.folder / "records" / f".{whole.name}.x1"
    half.write_bytes(whole.read_bytes()[:100])
    assert run(trial.folder, made_up(trial)).complete
    assert not half.exists()
    write_analysis(trial.folder)
    assert verify(trial.folder).problems == []


def test_running_a_finished_matrix_runs_nothing(tmp_path: Path) -> None:
    trial = finished_trial(tmp_path)
    before = {path: path.read_bytes() for path in trial.folder.rglob("*.json")}

    def nothing(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        assert not jobs
        yield from ()

    assert run(trial.folder, nothing).complete
    assert before == {path: path.read_bytes() for path in trial.folder.rglob("*.json")}


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 9), st.randoms())
def test_shards_together_are_the_matrix(
    tmp_path_factory: pytest.TempPathFactory, count: int, random: Any
) -> None:
    trial = registered(tmp_path_factory.mktemp("sharded"))
    job = list(range(1, count + 1))
    random.shuffle(job)
    ran: list[str] = []
    for index in job:
        assert not (trial.folder / "matrix.json").exists()
        run(
            trial.folder,
            made_up(trial),
            Shard(index, count),
            on_end=lambda job, _: ran.append(job.address),
        )
    assert sorted(ran) == sorted(trial.jobs())
    assert (trial.folder / "matrix.json").exists()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write it like 2/8"):
        Shard.parse(text)


def test_two_runners_of_the_same_part_do_not_meet(tmp_path: Path) -> None:
    trial = registered(tmp_path)

    def second(other: Shard) -> Executor:
        def answers(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
            run(trial.folder, made_up(trial), other)
            yield from ()

        return answers

    for first, other in ((Shard(), Shard()), (Shard(1, 2), Shard(1, 2)), (Shard(1, 2), Shard())):
        with pytest.raises(InputError, match="another runner is running here"):
            run(trial.folder, second(other), first)
    run(trial.folder, second(Shard(2, 2)), Shard(1, 2))
    assert len(standing(trial).done) == 24


def test_what_fails_every_try_is_quarantined_named_and_never_dropped(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    unlucky = next(iter(trial.jobs()))

    def answers(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        for job in jobs:
            if job == trial.for_executor(trial.jobs()[unlucky]):
                stopped = Failure(kind="simulator", message="SUMO stopped")
                yield Ended(job=job, answer=None, failures=(stopped, stopped), duration_s=0.0)
            else:
                given = answer(trial, job, better_by_ninety(job))
                late = (Failure(kind="time", message="not finished after 60 s"),)
                yield Ended(job=job, answer=given, failures=late, duration_s=1.0)

    progress = run(trial.folder, answers)
    assert list(progress.quarantined) == [unlucky] and len(progress.done) == 47
    with pytest.raises(InputError, match="1 of 48 jobs are not done, and outcomes stay sealed"):
        write_analysis(trial.folder)
    assert not run(trial.folder, made_up(trial)).complete, "only on request is it tried again"
    assert run(trial.folder, made_up(trial), retry=True).complete
    events = [event.event for event in journal(trial.folder)]
    assert events == ["registered", "quarantined", "released"], "it stays on record"
    tried_twice = next(address for address in trial.jobs() if address != unlucky)
    record = json.loads((trial.folder / "records" / f"{tried_twice}.json").read_text())
    assert record["run"]["failed_tries"] == ["not finished after 60 s"]


def test_a_record_that_was_touched_stops_the_next_run(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    with pytest.raises(Killed):
        run(trial.folder, dies_after(trial, 5))
    path = next((trial.folder / "records").iterdir())
    path.write_text(path.read_text().replace('"completed": 19', '"completed": 18'))
    with pytest.raises(InputError, match=f"{path.name} has changed since it was written"):
        run(trial.folder, made_up(trial))


def test_looking_early_is_possible_and_stays_visible(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    with pytest.raises(Killed):
        run(trial.folder, dies_after(trial, 5))
    assert set(peek(trial.folder)) == {"better", "worse"}
    run(trial.folder, made_up(trial))
    analysis = write_analysis(trial.folder)
    assert list(analysis.notices) == notices(trial.folder)
    assert "outcomes of 5 jobs shown" in analysis.notices[0]


def test_a_record_binds_what_the_outcome_depends_on(tmp_path: Path) -> None:
    trial = finished_trial(tmp_path, day)
    address, job = next(iter(trial.jobs().items()))
    record = json.loads((trial.folder / "records" / f"{address}.json").read_text())
    assert record["trial"] == trial.sha256 and record["job"] == address
    assert (record["method"], record["seed"]) == (job.method, job.seed) == ("better", 1)
    assert record["cell"] == {"sumo_seed": 9101, "demand_seed": 9201, "demand": 0.75}
    assert record["policy"]["digest"] == job.policy.digest
    assert record["city"] == trial.registered.city.digest
    assert record["sumo"]["version"] == trial.registered.sumo
    assert record["evaluator"] == trial.registered.evaluator.sha256
    assert record["ledger"]["cost"] == record["outcome"]["cost"]
    assert record["world"] == "sumo" and record["versions"] == trial.registered.versions
    assert (record["run"]["duration_s"], record["run"]["host"]["name"]) == (1.25, "made-up")


def test_a_method_without_training_seeds_runs_once_in_each_cell(tmp_path: Path) -> None:
    methods = '{ better = ["headway-1.0", "headway-0.7"], worse = "zero" }'
    trial = finished_trial(tmp_path, methods=methods)
    assert trial.registered.jobs == 3 * 6 * 2
    assert [p.seed for p in trial.registered.policies] == [1, 2, None]
    analysis = write_analysis(trial.folder)
    assert set(analysis.by_seed) == {"1", "2"}, "the parent counts under every seed"
    assert verify(trial.folder).problems == []


def test_two_methods_that_are_one_policy_are_simulated_once(tmp_path: Path) -> None:
    trial = registered(
        tmp_path, methods='{ better = "headway-1.0", worse = "zero", none = "zero" }'
    )
    asked: list[Job] = []

    def counted(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        asked.extend(jobs)
        yield from made_up(trial)(jobs)

    assert run(trial.folder, counted).complete
    assert len(asked) == 24 and trial.registered.jobs == 36


def test_a_trial_in_the_fast_world_is_simulated_in_seconds_and_says_so(tmp_path: Path) -> None:
    trial = registered(tmp_path, methods='{ better = "schedule", worse = "zero" }', world='"fast"')
    assert trial.registered.sumo is None and trial.registered.calibration is not None
    assert run(trial.folder, processes()).complete
    analysis = write_analysis(trial.folder)
    assert analysis.notices == ("run in the world 'fast', not in SUMO",)
    opinion = verify(trial.folder)
    assert opinion.problems == [] and opinion.report["notices"] == list(analysis.notices)
    record = json.loads(next((trial.folder / "records").iterdir()).read_text())
    assert record["world"] == "fast" and record["sumo"]["version"] is None
    assert record["calibration"] == trial.registered.calibration


def test_a_rule_of_ones_own_that_fails_is_quarantined_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from evenline.rules.own import rule\n"
        "@rule(compiled=True)\ndef far(bus):\n    return 99.0\n"
    )
    methods = f'{{ better = "{tmp_path}/mine.py:far", worse = "zero" }}'
    trial = registered(tmp_path, **FEW | {"methods": methods, "world": '"fast"'})
    progress = run(trial.folder, processes())
    assert len(progress.done) == len(progress.quarantined) == 2
    assert {job.method for job in progress.quarantined.values()} == {"better"}


def test_a_runner_that_is_killed_loses_no_record(tmp_path: Path) -> None:
    trial = registered(tmp_path, **FEW | {"levels": "[0.75, 1.25]"})
    records = trial.folder / "records"
    command = [sys.executable, "-m", "evenline", "trial", "run", str(trial.folder)]
    runner = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(list(records.glob("*.json"))) >= 2)
    runner.kill()
    runner.wait()
    kept = {path.name: path.read_bytes() for path in records.glob("*.json")}
    assert 2 <= len(kept) < 8
    assert run(trial.folder, processes()).complete
    assert kept.items() <= {path.name: path.read_bytes() for path in records.iterdir()}.items()
    write_analysis(trial.folder)
    assert verify(trial.folder).problems == []


def test_a_trial_runs_block_by_block(tmp_path: Path) -> None:
    """So that a finished block can be kept elsewhere while the others run."""
    trial, seen = registered(tmp_path), []

    def counted(jobs: Sequence[Job], *_: Any, **__: Any) -> Results:
        seen.append({(job.cell.sumo_seed, job.cell.demand_seed) for job in jobs})
        yield from made_up(trial)(jobs)

    run(trial.folder, counted)
    assert seen == [{block} for block in trial.plan.blocks]
