"""Jobs in processes of their own: the same outcome each time, whatever happens to the process."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import evenline
from evenline.city.demand import Cell
from evenline.city.embedded import embedded_city
from evenline.city.tables import digest, open_city, save_city
from evenline.control.world import run_episode
from evenline.policies.bundle import open_policy
from evenline.runs.executors import Ended, Lifeline, Order, local, run_alone
from evenline.runs.source import EVALUATOR, source_files
from evenline.trial.matrix import run, standing
from evenline.worlds.sumo.runtime import installed_version
from evenline.worlds.sumo.world import SumoWorld
from faults import VERSION, faulty_sumo, processes_in, wait_until
from made import registered, results

ORDER = Order(
    "./city",
    "headway-1.0",
    {"sumo_seed": 9101, "demand_seed": 9201, "demand": 0.75},
    None,
    60,
    4,
    3,
)
FEW = {  # two blocks suffice at this level: 2 methods x 2 blocks
    "seeds": "[1]",
    "levels": "[0.75]",
    "blocks": "{ sumo_seed = 9101, demand_seed = 9201, count = 2 }",
    "claim": '{ candidate = "better", parent = "worse", level = "0.25" }',
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    save_city(embedded_city("town"), folder / "city")
    return folder


def ran(order: Order, inputs: Path) -> Ended:
    with Lifeline() as lifeline:
        return run_alone(order, inputs, lifeline)


def test_a_job_is_the_episode_and_measures_what_it_depends_on(inputs: Path) -> None:
    answer = ran(ORDER, inputs).answer
    town = open_city("town")
    with SumoWorld(town) as world:
        policy = open_policy("headway-1.0", town)
        outcome = run_episode(world, Cell(**ORDER.cell), policy)
    assert answer is not None
    assert answer["outcome"] == outcome.as_dict()
    assert answer["city"] == digest(town)
    assert answer["sumo"]["version"] == installed_version()
    assert answer["sumo"]["options"][-4:-2] == ["--xml-validation", "never"]
    assert not any("/" in option for option in answer["sumo"]["options"])


def test_every_module_an_episode_loads_is_part_of_the_evaluators_hash(inputs: Path) -> None:
    program = (
        "import sys, json; from evenline.runs.trial_job import evaluate; "
        "evaluate(json.loads(sys.argv[1])); "
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'evenline'))"
    )
    for policy in ("headway-1.0", "schedule"):  # the latter asks the fast world for a timetable
        order = json.dumps(asdict(replace(ORDER, policy=policy)))
        command = [sys.executable, "-c", program, order]
        said = subprocess.run(command, cwd=inputs, capture_output=True, text=True, check=True)
        package = Path(evenline.__file__).parent
        loaded = {Path(name).relative_to(package).as_posix() for name in said.stdout.split()}
        assert "worlds/sumo/world.py" in loaded
        assert loaded <= source_files(EVALUATOR).keys()


@pytest.fixture
def runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENLINE_RUNTIMES", str(tmp_path / "runtimes"))
    return tmp_path / "runtimes"


def test_a_crash_is_tried_again_with_the_same_seeds(inputs: Path, runtimes: Path) -> None:
    faulty_sumo(runtimes, "os.abort()", times=1)
    ended = ran(replace(ORDER, sumo=VERSION), inputs)
    undisturbed = ran(ORDER, inputs)
    assert ended.errors == ("the process ended with code -6",)
    assert ended.answer is not None and undisturbed.answer is not None
    assert ended.answer["outcome"] == undisturbed.answer["outcome"]


@pytest.mark.parametrize(
    ("fault", "limits", "said"),
    [
        ("time.sleep(600)", {"time_s": 2}, "not done after 2 s"),
        ("bytearray(3 * 2**30)", {"memory_gib": 2.5}, "SUMO stopped at 0 s of the day"),
        ("raise RuntimeError('no licence')", {}, "SUMO stopped at 0 s of the day: no licence"),
    ],
)
def test_a_hang_a_greedy_job_and_an_error_are_ended_and_named(
    inputs: Path, runtimes: Path, fault: str, limits: dict[str, float], said: str
) -> None:
    faulty_sumo(runtimes, fault, times=9)
    ended = ran(replace(ORDER, sumo=VERSION, tries=2, **limits), inputs)  # type: ignore[arg-type]
    assert ended.answer is None
    assert len(ended.errors) == 2 and all(error.startswith(said) for error in ended.errors), ended


def test_an_input_at_fault_is_not_tried_again(inputs: Path) -> None:
    ended = ran(replace(ORDER, policy="nobody"), inputs)
    assert len(ended.errors) == 1 and ended.errors[0].startswith("policy 'nobody'")


def test_closing_an_executor_ends_its_jobs(inputs: Path, runtimes: Path) -> None:
    faulty_sumo(runtimes, "time.sleep(600)", times=9)
    quick, hangs = replace(ORDER, policy="nobody"), replace(ORDER, sumo=VERSION)
    results = local(2)({"quick": quick, "one": hangs, "other": hangs}, inputs)
    assert next(results)[0] == "quick"
    wait_until(lambda: len(processes_in(inputs)) == 2)
    results.close()
    wait_until(lambda: not processes_in(inputs), 20)


def test_a_killed_runner_leaves_no_process_and_loses_no_record(tmp_path: Path) -> None:
    """SIGKILL in the middle, then the same command: the matrix is that of a run never stopped."""
    trial = registered(tmp_path, **FEW)
    twin = replace(trial, folder=Path(shutil.copytree(trial.folder, tmp_path / "twin")))
    program = (
        "from pathlib import Path; from evenline.trial.matrix import run; "
        "from evenline.runs.executors import local; "
        f"run(Path({str(trial.folder)!r}), local(1))"
    )
    runner = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: standing(trial).done)
    wait_until(lambda: processes_in(trial.inputs))
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    wait_until(lambda: not processes_in(trial.inputs), 20)
    kept = {path: path.read_bytes() for path in (trial.folder / "records").glob("*.json")}
    assert 1 <= len(kept) < 4

    assert run(trial.folder, local(2)).complete
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert run(twin.folder, local(2)).complete
    assert results(trial) == results(twin)
