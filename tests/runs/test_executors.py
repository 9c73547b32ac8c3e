"""Days in processes of their own: the same bytes each time, whatever happens to the process."""

import os
import signal
import subprocess
import sys
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import evenline
from evenline.city.build import build
from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.city.embedded import TOWN
from evenline.city.model import City
from evenline.city.tables import digest, open_city, save_city
from evenline.control.world import run_episode
from evenline.policies.bundle import open_policy, policy_digest
from evenline.replay.episode import read_decisions, read_outcome
from evenline.runs import executors
from evenline.runs.day import evaluator, evaluator_files, open_job, run_job
from evenline.runs.executors import Shard, processes
from evenline.runs.job import USUAL, Answer, Ended, Failure, Job, Limits, from_line, to_line
from evenline.support.errors import InputError
from evenline.worlds.sumo.runtime import installed_version
from evenline.worlds.sumo.world import SumoWorld
from faults import VERSION, faulty_sumo, processes_in, wait_until
from small_actors import save_actor

CELL = demo_cell(2)
JOB = Job(city="town", policy="headway-1.0", cell=Cell(9101, 9201, 0.75))
FAST = replace(JOB, world="fast", arrivals=True)


def ran(job: Job, limits: Limits = USUAL, **options: Any) -> Ended:
    (ended,) = processes(1)([job], limits=limits, **options)
    return ended


def answered(ended: Ended) -> Answer:
    assert ended.answer is not None, ended.error
    return ended.answer


# -- a day ----------------------------------------------------------------------------------------


def test_a_job_is_the_episode_and_measures_what_it_depends_on(town: City) -> None:
    answer = answered(ran(JOB))
    with SumoWorld(town) as world:
        outcome = run_episode(world, JOB.cell, open_policy("headway-1.0", town))
    assert answer.outcome == outcome
    assert (answer.city, answer.cell) == (digest(open_city("town")), JOB.cell)
    assert (answer.policy.digest, answer.policy.files) == (policy_digest("headway-1.0"), {})
    assert answer.evaluator == evaluator() and set(answer.versions) == {"numpy", "numba"}
    assert answer.calibration is None, "neither SUMO nor this rule uses one"
    assert answer.simulator.version == installed_version()
    assert answer.simulator.options[-4:-2] == ("--xml-validation", "never")
    assert not any("/" in option for option in answer.simulator.options)
    assert from_line(to_line(answer), Answer) == answer


def test_an_episode_is_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    def run(folder: Path) -> dict[str, bytes]:
        jobs = [
            Job(
                city="town",
                policy=name,
                cell=CELL,
                tokens=folder / f"{name}.tokens",
                visits=folder / f"{name}.visits",
            )
            for name in ("zero", "headway-1.0")
        ]
        for ended in processes(2)(jobs):
            answered(ended)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    first, second = run(tmp_path / "first"), run(tmp_path / "second")
    assert first == second
    assert len(first) == 4
    assert len(set(first.values())) == 4, "the policies do differ"


# -- what a result depends on ---------------------------------------------------------------------


@pytest.mark.parametrize("world", ["sumo", "fast"])
def test_every_module_an_episode_loads_is_part_of_the_evaluators_hash(world: str) -> None:
    program = (
        "import sys; from evenline.runs.day import open_job, run_job; "
        "from evenline.runs.job import Job, from_line; "
        "job = from_line(sys.argv[1].encode(), Job); run_job(job, open_job(job)); "
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'evenline'))"
    )
    for policy in ("headway-1.0", "schedule+candidate"):  # the latter asks for a timetable
        order = to_line(replace(JOB, policy=policy, world=world)).decode()
        command = [sys.executable, "-c", program, order]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        package = Path(evenline.__file__).parent
        loaded = {Path(name).relative_to(package).as_posix() for name in said.stdout.split()}
        assert f"worlds/{world}/world.py" in loaded
        assert loaded <= evaluator_files().keys()


def test_what_cannot_change_a_day_is_not_part_of_the_evaluators_hash() -> None:
    files = evaluator_files()
    assert {"runs/day.py", "rules/formulas.py", "worlds/fast/kernel.py"} <= files.keys()
    outside = (
        "cli/",
        "report/",
        "figures/",
        "study/",
        "trial/",
        "experiments/",
        "learn/",
    )
    assert not [name for name in files if name.startswith(outside)]
    assert not files.keys() & {"runs/executors.py", "runs/staging.py", "front.py"}


# -- where a day runs -----------------------------------------------------------------------------


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> object:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(executors, "Worker", refused)


def test_a_fast_rule_runs_in_this_process(no_worker: None) -> None:
    jobs = [replace(FAST, cell=demo_cell(seed)) for seed in (1, 2)]
    found = {ended.job: answered(ended) for ended in processes()(jobs)}
    assert list(found) == jobs
    for job, answer in found.items():
        alone = run_job(job, open_job(job))
        assert (answer.outcome, answer.arrivals_s) == (alone.outcome, alone.arrivals_s)
        assert len(answer.arrivals_s) > 600 and answer.calibration is not None


def test_days_of_an_actor_as_a_fleet_are_the_days_alone(tmp_path: Path) -> None:
    actor = str(save_actor(tmp_path / "actor", "candidate"))
    jobs = [replace(FAST, policy=actor, cell=demo_cell(seed)) for seed in (1, 2, 3)]
    together = {ended.job: answered(ended) for ended in processes(1)(jobs)}
    opened = open_job(jobs[0])
    for job in jobs:
        alone = run_job(job, opened)
        assert together[job].arrivals_s == alone.arrivals_s
        assert together[job].outcome == alone.outcome
        assert together[job].policy.files == alone.policy.files != {}


def test_inputs_may_lie_in_another_folder(tmp_path: Path, town: City) -> None:
    save_city(town, tmp_path / "city")
    ended = ran(replace(JOB, city="./city"), folder=tmp_path)
    assert answered(ended).outcome == answered(ran(JOB)).outcome


def test_another_sumo_that_is_not_installed_is_refused_before_any_day() -> None:
    jobs = [replace(JOB, policy="nobody"), replace(JOB, sumo="0.0.1")]
    with pytest.raises(InputError, match=r"SUMO 0\.0\.1 is not installed; .* sumo 0\.0\.1"):
        next(processes()(jobs))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_shards_are_the_whole_and_share_nothing(count: int) -> None:
    parts = [Shard.parse(f"{index}/{count}").of(range(20)) for index in range(1, count + 1)]
    assert sorted(number for part in parts for number in part) == list(range(20))


@pytest.mark.parametrize("text", ["0/2", "3/2", "a/b", "2", "1/0", "-1/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"shard '{text}': write it like 2/8"):
        Shard.parse(text)


# -- what goes wrong ------------------------------------------------------------------------------


def noted_workers(monkeypatch: pytest.MonkeyPatch) -> "list[subprocess.Popen[bytes]]":
    """Every process that is started from here on."""
    workers: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            workers.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return workers


def test_a_killed_worker_is_replaced_and_its_day_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_city(build(changed(TOWN, cars_per_hour=(2_500, 2_500))), tmp_path / "busy")
    path = tmp_path / "zero.parquet"
    job = Job(city=str(tmp_path / "busy"), policy="zero", cell=CELL, tokens=path)
    workers, killed_at = noted_workers(monkeypatch), list[int]()

    def kill_the_first(_: Job, now_s: int) -> None:
        if not killed_at:
            killed_at.append(now_s)
            os.kill(workers[0].pid, signal.SIGKILL)

    ended = ran(job, progress=kill_the_first)
    assert killed_at[0] > 0, "the worker was killed in the middle of the day"
    (failure,) = ended.failures
    assert failure.kind == "died" and failure.message.startswith("the worker ended with code -9")
    assert len(workers) == 2
    outcome = read_outcome(path)
    assert answered(ended).outcome == outcome
    assert outcome.decisions == len(read_decisions(path))


@pytest.fixture
def runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENLINE_RUNTIMES", str(tmp_path / "runtimes"))
    return tmp_path / "runtimes"


def test_what_always_fails_is_returned_by_name_and_the_rest_goes_on(
    tmp_path: Path, runtimes: Path
) -> None:
    faulty_sumo(runtimes, "raise RuntimeError('out of road')", times=99)
    asked = (("town", VERSION), ("nowhere", None), ("town", None))
    jobs = [
        Job(city=city, policy="zero", cell=demo_cell(n), tokens=tmp_path / f"{n}.pq", sumo=sumo)
        for n, (city, sumo) in enumerate(asked, 1)
    ]
    results = {ended.job.name: ended for ended in processes(1)(jobs)}
    crashed, unknown, fine = (results[f"zero {n}-{500 + n}-1.00"] for n in (1, 2, 3))

    assert crashed.answer is None and not crashed.final
    assert crashed.error.startswith("SUMO stopped at 0 s of the day")
    assert [failure.kind for failure in crashed.failures] == ["simulator"] * USUAL.tries
    assert unknown.answer is None and unknown.final
    assert unknown.error.startswith("unknown city 'nowhere'; choose 'city', ")
    assert [failure.kind for failure in unknown.failures] == ["input"], "not tried again"
    assert answered(fine) and fine.failures == ()
    assert [path.name for path in tmp_path.glob("*.pq")] == ["3.pq"]


def test_a_silent_worker_is_given_up() -> None:
    ended = ran(JOB, Limits(silence_s=0.0))
    assert {failure.message for failure in ended.failures} == {"no progress for 0 s"}
    assert [failure.kind for failure in ended.failures] == ["silent"] * USUAL.tries


def test_a_crash_is_tried_again_with_the_same_seeds(runtimes: Path) -> None:
    faulty_sumo(runtimes, "os.abort()", times=1)
    ended, undisturbed = ran(replace(JOB, sumo=VERSION)), ran(JOB)
    (failure,) = ended.failures
    assert failure.kind == "died" and failure.message.startswith("the worker ended with code -6")
    assert answered(ended).outcome == answered(undisturbed).outcome


@pytest.mark.parametrize(
    ("fault", "limits", "kind", "said"),
    [
        ("time.sleep(600)", Limits(time_s=2, tries=2), "time", "not finished after 2 s"),
        ("bytearray(3 * 2**30)", Limits(memory_gib=2.5, tries=2), "", "SUMO stopped at 0 s"),
        ("raise RuntimeError('no licence')", Limits(tries=2), "simulator",
         "SUMO stopped at 0 s of the day: no licence"),
    ],
)  # fmt: skip
def test_a_hang_a_greedy_job_and_an_error_are_ended_and_named(
    runtimes: Path, fault: str, limits: Limits, kind: str, said: str
) -> None:
    faulty_sumo(runtimes, fault, times=9)
    ended = ran(replace(JOB, sumo=VERSION), limits)
    assert ended.answer is None and not ended.final
    assert len(ended.failures) == 2, ended
    for failure in ended.failures:
        assert failure.message.startswith(said), failure
        assert failure.kind == kind or not kind


def test_an_input_at_fault_is_not_tried_again() -> None:
    ended = ran(replace(JOB, policy="nobody"))
    (failure,) = ended.failures
    assert failure.final and failure.message.startswith("unknown policy 'nobody'")
    assert (ended.final, ended.error) == (True, failure.message)


def test_bad_input_alone_is_final() -> None:
    kinds = ("simulator", "died", "silent", "time", "memory", "lost")
    assert not any(Failure(kind=kind, message="").final for kind in kinds)  # type: ignore[arg-type]
    assert Failure(kind="input", message="").final


def test_closing_an_executor_ends_its_jobs(runtimes: Path, tmp_path: Path) -> None:
    faulty_sumo(runtimes, "time.sleep(600)", times=9)
    quick = replace(JOB, policy="nobody")
    hangs = [replace(JOB, sumo=VERSION, cell=demo_cell(seed)) for seed in (1, 2)]
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    results = processes(2)([quick, *hangs], inputs)
    assert next(results).job == quick
    wait_until(lambda: len(processes_in(inputs)) == 2)
    results.close()
    wait_until(lambda: not processes_in(inputs), 20)


def test_a_killed_owner_leaves_no_process(runtimes: Path, tmp_path: Path) -> None:
    faulty_sumo(runtimes, "time.sleep(600)", times=9)
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    program = (
        "import sys; from pathlib import Path; from evenline.runs.executors import processes; "
        "from evenline.runs.job import Job, from_line; "
        "next(processes(1)([from_line(sys.argv[1].encode(), Job)], Path(sys.argv[2])))"
    )
    order = to_line(replace(JOB, sumo=VERSION)).decode()
    owner = subprocess.Popen([sys.executable, "-c", program, order, str(inputs)])
    wait_until(lambda: processes_in(inputs))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until(lambda: not processes_in(inputs), 20)


@pytest.mark.parametrize(("of_user_gib", "used_gib"), [(6, 6), (None, 8), (9, 8)])
def test_the_smaller_limit_of_memory_holds(of_user_gib: int | None, used_gib: int) -> None:
    set_limit = f"resource.setrlimit(a, ({of_user_gib} << 30,) * 2);" if of_user_gib else ""
    code = (
        f"import resource; a = resource.RLIMIT_AS; {set_limit}"
        "from evenline.runs.worker import limit_memory; limit_memory(8.0);"
        "print(*(limit / 2**30 for limit in resource.getrlimit(a)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{used_gib}.0"] * 2
