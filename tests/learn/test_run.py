"""Whole training runs on `town`, small: same bits after a kill, bad input, a lean machine."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrated import calibration_of
from evenline.city.tables import open_city
from evenline.experiments.train import seeds_of, training_of
from evenline.learn import lanes as ln
from evenline.learn import run as run_module
from evenline.learn import training
from evenline.learn.data import replay_states, resident
from evenline.learn.online import Online
from evenline.learn.plan import Config, Plan, check_plan
from evenline.learn.run import chosen_device, training_cell
from evenline.learn.schedule import LEARNERS, TAUGHT, Budget
from evenline.learn.training import shortened, train
from evenline.replay.store import Store
from evenline.support.errors import InputError
from evenline.support.records import read_record
from evenline.support.tensors import read_tensors
from small import fast_store

TOWN = open_city("town")
CALIBRATION = calibration_of(TOWN)
BUDGET = Budget(iql_updates=60, warmup_events=20, events=150)
PLAN = shortened(
    Plan((LEARNERS["v13"], LEARNERS["v14"], LEARNERS["sac"]), (1, 2), slot=8, fused=16, hidden=8),
    BUDGET,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return fast_store(tmp_path_factory.mktemp("replay"), blocks=3)


@pytest.fixture(scope="module")
def finished(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "whole"
    train(folder, PLAN, TOWN, CALIBRATION, store)
    return folder


def assert_same_actors(a: Path, b: Path) -> None:
    names = sorted(path.name for path in (a / "actors").iterdir())
    assert names == sorted(path.name for path in (b / "actors").iterdir())
    for name in names:
        one, other = (read_tensors(folder / "actors" / name) for folder in (a, b))
        for tensor in one:
            assert np.array_equal(one[tensor], other[tensor]), (name, tensor)


def test_states_built_on_the_device_are_those_of_the_store(store: Store) -> None:
    rows = np.random.default_rng(1).integers(0, len(store), 2_000)
    found = np.asarray(replay_states(resident(store), jnp.asarray(rows)))
    np.testing.assert_allclose(found, store.canonical(rows), rtol=1e-6, atol=1e-6)


def test_a_run_leaves_actors_metrics_and_curves(finished: Path) -> None:
    actors = {path.stem for path in (finished / "actors").iterdir()}
    assert {"iql-1", "v14-2", "sac-1", "v13-1-at-150"} <= actors
    rows = pq.read_table(finished / "metrics.parquet").to_pylist()
    assert {row["lane"] for row in rows} >= {"iql-2", "v14-1", "sac-2"}
    assert all(np.isfinite(row["gradient"]) for row in rows)
    assert (finished / "branch.safetensors").stat().st_mode & 0o222 == 0, "sealed"


def test_an_actor_tells_about_its_training(finished: Path, tmp_path: Path) -> None:
    told = training_of(finished / "actors" / "v14-2.safetensors")
    assert (told["learner"], told["seed"], told["centred"]) == ("v14", 2, False)
    assert told["stable"] is True and len(str(told["replay"])) == 64
    assert training_of(finished / "actors" / "v14-2-at-150.safetensors") == {}
    assert training_of(tmp_path / "v14-2.safetensors") == {}


def test_learners_of_one_seed_part_at_the_branch_and_not_before(finished: Path) -> None:
    load = lambda name: read_tensors(finished / "actors" / f"{name}.safetensors")["out.w"]  # noqa: E731
    assert np.array_equal(load("iql-1"), load("v13-1-at-60")), "the actor is frozen to the branch"
    assert not np.array_equal(load("v13-1"), load("v14-1")), "the taper has made a difference"
    assert np.array_equal(load("v13-1-at-90"), load("v14-1-at-90")), "it begins at 90"


def test_a_run_says_what_its_bits_depend_on(finished: Path) -> None:
    told = json.loads((finished / "summary.json").read_text())["made_with"]
    assert told["jax"] == jax.__version__ and told["threads"] == os.cpu_count()
    assert told["cpu"] and told["device"] == "cpu"


def test_training_again_in_another_process_gives_the_same_bits(
    finished: Path, store: Store, tmp_path: Path
) -> None:
    script = (
        "import sys; from pathlib import Path; from calibrated import calibration_of\n"
        "from evenline.city.tables import open_city; from evenline.learn.plan import Config\n"
        "from evenline.learn.training import train; from evenline.replay.store import open_store\n"
        "from evenline.support.records import read_record\n"
        "config, replay, out = map(Path, sys.argv[1:]); town = open_city('town')\n"
        "plan = read_record(config, Config).plan\n"
        "train(out, plan, town, calibration_of(town), open_store(replay, town))\n"
    )
    paths = [finished / "config.json", store.folder, tmp_path / "run"]
    helpers = {"PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}
    subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)], check=True, env=os.environ | helpers
    )
    for path in sorted((finished / "actors").iterdir()):
        assert path.read_bytes() == (tmp_path / "run" / "actors" / path.name).read_bytes()


def test_a_run_that_is_killed_goes_on_to_the_same_bits(
    finished: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, checkpoint_s=0.0)
    marks = iter([("note", 1), ("_one_event", 130), ("_one_event", 12)])
    for name, calls in marks:
        owner = run_module.Run if name == "note" else Online
        real, left = getattr(owner, name), [calls]

        def dies(self, *args, real=real, left=left):  # type: ignore[no-untyped-def]
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dies)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "run", plan, TOWN, CALIBRATION, store)
    train(tmp_path / "run", plan, TOWN, CALIBRATION, store)
    assert_same_actors(finished, tmp_path / "run")
    whole, pieces = (
        pq.read_table(folder / "metrics.parquet").to_pylist()
        for folder in (finished, tmp_path / "run")
    )
    key = lambda row: (row["phase"], row["lane"], row["update"])  # noqa: E731
    assert sorted(map(key, whole)) == sorted(map(key, pieces))


def test_an_accelerator_compiles_the_continuation_beside_iql_and_learns_the_same(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_init, real_continued = run_module.Run.__init__, training.continued
    plan = replace(PLAN, learners=PLAN.learners[:2], seeds=(1,))  # they part at the taper
    programs = (ln.first_actions, ln.observe, ln.learn, ln.choose, ln._joined)

    def vectorised(self: run_module.Run, *args: Any) -> None:
        real_init(self, *args)
        self.packed = False  # as where the device is not a CPU

    def counted(run: run_module.Run, offline: Any) -> Online:
        before = [program._cache_size() for program in programs]
        state = real_continued(run, offline)
        assert [program._cache_size() for program in programs] == before, "all was compiled"
        return state

    monkeypatch.setattr(run_module.Run, "__init__", vectorised)
    with monkeypatch.context() as patch:
        patch.setattr(training, "continued", counted)
        train(tmp_path / "rehearsed", plan, TOWN, CALIBRATION, store)
    monkeypatch.setattr(training, "rehearse", lambda run, stop: 1 / 0)  # it only saves time
    train(tmp_path / "plain", plan, TOWN, CALIBRATION, store)
    assert_same_actors(tmp_path / "rehearsed", tmp_path / "plain")


def test_what_interrupts_iql_does_not_wait_for_the_rehearsal(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_module.Run(tmp_path / "run", PLAN, TOWN, CALIBRATION, store, chosen_device("cpu"))
    run.packed = False
    begun, told = threading.Event(), []

    def endless(run: run_module.Run, stop: threading.Event) -> None:
        begun.set()
        told.append(stop.wait(30))

    monkeypatch.setattr(training, "rehearse", endless)

    def interrupted() -> None:
        with training._compiling_beside(run):
            begun.wait(30)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert told == [True]


def test_a_loss_that_is_not_finite_stops_the_run_with_step_term_and_state(
    store: Store, tmp_path: Path
) -> None:
    broken = replace(store, cost=store.cost.copy())
    plan = shortened(replace(PLAN, learners=(LEARNERS["iql"],)), BUDGET)
    real = run_module.resident

    def poisoned(given: Store, cost: Any):  # type: ignore[no-untyped-def]
        replay = real(given, cost)
        return replay._replace(cost=jnp.full(replay.rows, jnp.inf))

    run_module.resident = poisoned
    try:
        with pytest.raises(InputError, match=r"iql update 1 of iql-1: \w+ is (nan|inf|-inf); the"):
            train(tmp_path / "run", plan, TOWN, CALIBRATION, broken)
    finally:
        run_module.resident = real
    assert (tmp_path / "run" / "stopped.safetensors").exists()


# -- bad input ------------------------------------------------------------------------------------


def test_a_folder_with_another_runs_settings_is_refused(finished: Path, store: Store) -> None:
    with pytest.raises(InputError, match="plan has changed"):
        train(finished, replace(PLAN, seeds=(1, 3)), TOWN, CALIBRATION, store)


def test_a_checkpoint_of_another_architecture_is_refused(
    finished: Path, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    wide = replace(PLAN, slot=9)
    (tmp_path / "run" / "iql.safetensors").write_bytes((finished / "iql.safetensors").read_bytes())
    with pytest.raises(InputError, match="it belongs to another architecture"):
        train(tmp_path / "run", wide, TOWN, CALIBRATION, store)


def test_a_replay_without_a_single_hold_is_refused(tmp_path: Path) -> None:
    empty = fast_store(tmp_path / "replay", blocks=1, rules=("zero",))
    with pytest.raises(InputError, match="contains no decisions"):
        train(tmp_path / "run", PLAN, TOWN, CALIBRATION, empty)


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InputError, match="device 'tpu' is not available; choose 'cpu'"):
        chosen_device("tpu")


@pytest.mark.parametrize("own", ["", "--xla_gpu_deterministic_ops=false"])
def test_an_accelerator_is_asked_for_the_same_bits_unless_somebody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setenv("XLA_FLAGS", own)
    with suppress(InputError):  # where there is none
        chosen_device("cuda")
    flags = os.environ["XLA_FLAGS"].split()
    assert "--xla_gpu_deterministic_ops=true" in flags
    assert flags[-1] == (own or flags[-1]), "the last of a kind counts"


@pytest.mark.parametrize("text", ["x", "1-", "1,,2"])
def test_seeds_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="seeds"):
        seeds_of(text)


def test_seeds_are_ranges_or_lists() -> None:
    assert seeds_of("6201-6203") == (6201, 6202, 6203)
    assert seeds_of("5,7") == (5, 7)


def test_training_cells_belong_to_training_and_differ_between_seeds() -> None:
    cells = {training_cell(seed, day) for seed in range(5) for day in range(20)}
    assert len(cells) == 100
    assert all(100_001 <= cell.sumo_seed < 200_001 for cell in cells)


def test_training_imports_on_a_machine_without_sumo_environments_or_plots() -> None:
    missing = ["libsumo", "traci", "sumolib", "pettingzoo", "gymnasium", "matplotlib", "scipy",
               "minari", "onnx", "onnxruntime", "cma", "ray", "tensorboardX"]  # fmt: skip
    script = (
        f"import sys\nfor m in {missing}: sys.modules[m] = None\nimport evenline.learn.training\n"
        "import evenline.experiments.train"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert ended.returncode == 0


def test_lessons_need_no_replay(tmp_path: Path) -> None:
    plan = Plan((TAUGHT,), (1,), BUDGET, slot=4, fused=8, hidden=8)
    run_module.Run(tmp_path, plan, TOWN, CALIBRATION, None, chosen_device("cpu"))
    assert read_record(tmp_path / "config.json", Config).replay is None


def test_only_lessons_can_be_taken_behind_a_chain() -> None:
    check_plan(Plan((TAUGHT,), (1,), BUDGET, chain="candidate"))
    with pytest.raises(InputError, match="learner iql: only lessons can be taken behind a chain"):
        check_plan(Plan((LEARNERS["iql"], TAUGHT), (1,), BUDGET, chain="candidate"))
    with pytest.raises(InputError, match="unknown chain 'gold'; choose 'raw'"):
        check_plan(Plan((TAUGHT,), (1,), BUDGET, chain="gold"))
