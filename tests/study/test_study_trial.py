"""The real way from policies to a closed trial, with days that are made up instead of simulated."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from safetensors.numpy import save

from evenline.city.embedded import embedded_city
from evenline.control.outcome import Outcome
from evenline.experiments.train import training_is_stable
from evenline.policies.actor import random_tensors
from evenline.runs.executors import Results
from evenline.runs.job import Ended
from evenline.runs.job import Job as Order
from evenline.study import engine
from evenline.study.engine import Step, Study, open_study, run_study
from evenline.study.plan import read_study_plan
from evenline.study.steps import STEPS
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, write_bytes, write_table, write_text
from evenline.trial.used import Used, note_used
from evenline.worlds.open import EMBEDDED
from made import answer, day
from town_plan import TOWN, plan_with

FITTED = (EMBEDDED / "town.json").read_bytes()


def made_up(workers: int | None = None) -> Any:
    """An executor like the local one, with days in which the candidate is better."""
    from evenline.trial.registration import open_trial

    def outcome(order: Order) -> Outcome:
        chain = "rule"
        if order.policy.startswith("policies/"):
            spec = read_json(made_up.inputs / order.policy / "policy.json")  # type: ignore[attr-defined]
            chain = spec["chain"]
        return day(order, 910 if chain == "candidate" else 1_000)

    def run(orders: Sequence[Order], inputs: Path, *_: Any) -> Results:
        made_up.inputs = inputs  # type: ignore[attr-defined]
        trial = open_trial(inputs.parent)
        for order in orders:
            found = answer(trial, order, outcome(order))
            yield Ended(job=order, answer=found, failures=(), duration_s=1.0)

    return run


def stand_in(name: str, files: dict[str, bytes]) -> Callable[[Study], str]:
    def run(study: Study) -> str:
        for path, content in files.items():
            write_bytes(study.folder / name / path, content)
        return f"{name} made up"

    return run


def quick_steps() -> list[Step]:
    """The real graph; what takes SUMO or training is made up."""
    actor = save(random_tensors(len(embedded_city("town").services), 3))

    def train(study: Study) -> str:
        stand_in("train", {"actors/v14-6201.safetensors": actor, "curve.json": b"{}"})(study)
        rows = {"lane": ["v14-6201"], "update": [100], "critic_loss": [0.5]}
        write_table(study.folder / "train" / "metrics.parquet", pa.table(rows))
        return f"trained for {study.plan.train.events} events"

    replaced = {
        "replay": stand_in("replay", {"manifest.json": b"{}"}),
        "replay-audit": stand_in("replay-audit", {"replay.json": b"{}"}),
        "calibration": stand_in("calibration", {"calibration.json": FITTED}),
        "fidelity": stand_in("fidelity", {"fidelity.json": b"{}"}),
        "train": train,
    }

    def page(study: Study) -> str:
        write_text(study.folder / "report.html", "<p>stand-in</p>")
        return "report.html"

    replaced["report"] = page
    return [replace(step, run=replaced.get(step.name, step.run)) for step in STEPS]


def test_from_policies_to_a_closed_trial_and_never_the_same_cells_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    steps, out, said = quick_steps(), tmp_path / "study", list[str]()
    assert run_study(open_study(TOWN, out), TOWN, steps, say=said.append)
    assert any("      confirmed: lower generalized time in 10 of 10" in line for line in said)
    layout = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert layout == {
        *("plan.toml", "state.json", "city", "replay", "replay-audit", "calibration", "fidelity"),
        *("train", "policies", "trial", "trial.toml", "used-cells.json", "report.html"),
        "manifest.json",
    }
    labels = {path.name for path in (out / "policies").iterdir()}
    assert labels == {"candidate-6201", "parent-6201", "reserve-alone", "zero"}
    root = read_json(out / "trial" / "closeout.json")["merkle_root"]
    said.clear()
    assert run_study(open_study(TOWN, out), TOWN, steps, say=said.append)
    assert len(said) == len(steps) and all("up to date" in line for line in said)

    longer = plan_with(tmp_path, events="5000")
    with pytest.raises(InputError, match=r"already has outcomes of seed 8111.*events is 5000"):
        run_study(open_study(longer, out), longer, steps)
    assert (out / "plan.toml").read_bytes() == TOWN.read_bytes()

    longer.write_text(longer.read_text().replace("sumo_seed = 8111", "sumo_seed = 8121"))
    with pytest.raises(InputError, match="seed 8211"):
        run_study(open_study(longer, out), longer, steps)
    longer.write_text(longer.read_text().replace("demand_seed = 8211", "demand_seed = 8221"))
    assert run_study(open_study(longer, out), longer, steps)
    (earlier,) = (out / "earlier").iterdir()
    assert read_json(earlier / "closeout.json")["merkle_root"] == root
    assert read_json(out / "trial" / "trial.json")["plan"]["blocks"][0] == [8121, 8221]


def test_once_there_are_outcomes_nothing_before_them_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Callable[..., tuple[int, str]]
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    monkeypatch.setattr("evenline.study.steps.STEPS", quick_steps())
    run = ("study", "run", TOWN, "--out", tmp_path / "study")
    assert evenline(*run)[0] == 0
    for more in ([], ["--dry-run"], ["--until", "replay"]):
        code, said = evenline(*run, "--from", "replay", *more)
        assert code == 2 and "step replay would run again (requested)" in said
        assert "--out" not in said
    assert (tmp_path / "study" / "replay" / "manifest.json").exists()
    assert evenline(*run, "--from", "report")[0] == 0

    code, said = evenline("study", "run", TOWN, "--out", tmp_path / "second")
    assert code == 2 and "SUMO seed 8111: trial 'town-paper-study' has used it" in said
    assert "name fresh seeds" in said
    assert evenline("study", "run", TOWN, "--out", tmp_path / "second", "--until", "train")[0] == 0
    assert evenline(*run)[0] == 0  # the first goes on all the same


def test_cells_of_the_trial_commands_are_not_fresh_either(
    tmp_path: Path, evenline: Callable[..., tuple[int, str]]
) -> None:
    from evenline.city.tables import digest

    city = digest(embedded_city("town"))
    ledger = tmp_path / "results" / "used-cells.json"
    note_used(ledger, Used(name="mine", trial=None, city=city, blocks=((8113, 9203),)))
    dry = ("study", "run", TOWN, "--dry-run", "--out")
    for out in (tmp_path / "results" / "study", tmp_path / "elsewhere" / "study"):
        assert "SUMO seed 8113: trial 'mine' has used it" in evenline(*dry, out)[1]
    ledger.unlink()
    used = Used(name="mine", trial=None, city=city, blocks=((8123, 9203),))
    note_used(tmp_path / "results" / "study-x" / ledger.name, used)
    code, said = evenline("trial", "register", "town-trial", "--out", tmp_path / "trial")
    assert code == 2 and "trial 'mine' has used it" in said


@pytest.mark.parametrize(
    "what", ["evenline/errors.py differs from the registered source", "sumo is "]
)
def test_without_outcomes_another_source_or_sumo_is_registered_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    steps, out, said = quick_steps(), tmp_path / "study", list[str]()
    run_study(open_study(TOWN, out), TOWN, steps, until="register")
    path = out / "trial" / "trial.json"
    found = read_json(path)
    if what.startswith("sumo"):
        old = found["sumo"] = "0.1-of-yesterday"
    else:
        old = found["evaluator"]["files"]["errors.py"] = "0" * 64
    os.chmod(path, 0o644)
    write_text(path, json.dumps(found))
    state = read_json(out / "state.json")
    state["done"]["register"]["outputs"]["trial/trial.json"] = sha256(path)
    write_text(out / "state.json", json.dumps(state))
    run_study(open_study(TOWN, out), TOWN, steps, until=engine.TRIAL, say=said.append)
    assert any(what in line for line in said)
    assert old not in path.read_text()
    said.clear()
    run_study(open_study(TOWN, out), TOWN, steps, until=engine.TRIAL, say=said.append)
    assert all("up to date" in line for line in said)


def test_every_step_depends_on_our_version_and_the_page_on_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = read_study_plan(plan_with(tmp_path))
    before = [step.settings(plan) for step in STEPS]
    assert "replay" in STEPS[-1].needs
    assert before[-1]["plan"] == sha256(plan.file)
    asset = Path(engine.__file__).parents[1] / "report" / "assets" / "page.css"
    real = sha256

    def changed(path: Path) -> str:
        return "other" if path == asset else real(path)

    monkeypatch.setattr("evenline.support.sources.sha256", changed)
    assert STEPS[-1].settings(plan)["source"] != before[-1]["source"]
    monkeypatch.setattr("evenline.__version__", "0.0.0")
    assert all(a != b for a, b in zip(before, (s.settings(plan) for s in STEPS), strict=True))


@pytest.mark.parametrize(
    ("lanes", "loss", "stable"),
    [
        (["taught-6201", "v14-6201"], 0.5, True),
        (["taught-6201"], float("nan"), False),
        (["v14-6201", "taught-6202"], 0.5, False),
    ],
)
def test_a_training_is_stable_if_its_own_metrics_are_finite(
    tmp_path: Path, lanes: list[str], loss: float, stable: bool
) -> None:
    actor = save(random_tensors(len(embedded_city("town").services), 3))
    write_bytes(tmp_path / "actors" / "taught-6201.safetensors", actor)
    write_table(
        tmp_path / "metrics.parquet",
        pa.table({"lane": lanes, "update": [100] * len(lanes), "loss": [loss] * len(lanes)}),
    )
    assert training_is_stable(tmp_path, "taught", 6201) == stable


def test_a_trial_that_was_tampered_with_is_named_and_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    steps, out = quick_steps(), tmp_path / "study"
    study = open_study(TOWN, out)
    run_study(study, TOWN, steps, until=engine.TRIAL)
    record = next((out / "trial" / "records").iterdir())
    os.chmod(record, 0o644)
    record.write_text(record.read_text().replace('"completed": 1', '"completed": 2', 1))
    with pytest.raises(InputError, match=record.name):
        run_study(study, TOWN, steps)
    assert record.exists()
