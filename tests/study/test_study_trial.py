"""The real way from policies to a closed trial, with days that are made up instead of simulated."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from door import Door
from evenline.city.embedded import embedded_city
from evenline.control.outcome import Outcome
from evenline.runs.executors import Results
from evenline.runs.job import Ended, Job
from evenline.study import engine
from evenline.study.engine import Step, Study, open_study, run_study
from evenline.study.plan import read_study_plan
from evenline.study.steps import STEPS
from evenline.study.trial_steps import register_trial
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, write_bytes, write_text
from evenline.trial import used
from evenline.trial.used import Used, note_used
from evenline.worlds.open import EMBEDDED
from made import answer, day
from made_training import metrics_of, training_plan, write_training
from town_plan import TOWN, plan_with

FITTED = (EMBEDDED / "town.json").read_bytes()


def made_up(workers: int | None = None) -> Any:
    """An executor like the local one, with days in which the candidate is better."""
    from evenline.trial.registration import open_trial

    def outcome(job: Job) -> Outcome:
        chain = "rule"
        if job.policy.startswith("policies/"):
            spec = read_json(made_up.inputs / job.policy / "policy.json")  # type: ignore[attr-defined]
            chain = spec["chain"]
        return day(job, 910 if chain == "candidate" else 1_000)

    def run(jobs: Sequence[Job], inputs: Path, *_: Any) -> Results:
        made_up.inputs = inputs  # type: ignore[attr-defined]
        trial = open_trial(inputs.parent)
        for job in jobs:
            found = answer(trial, job, outcome(job))
            yield Ended(job=job, answer=found, failures=(), duration_s=1.0)

    return run


def stand_in(name: str, files: dict[str, bytes]) -> Callable[[Study], str]:
    def run(study: Study) -> str:
        for path, content in files.items():
            write_bytes(study.folder / name / path, content)
        return f"{name} made up"

    return run


def quick_steps() -> list[Step]:
    """The real graph; what takes SUMO or training is made up."""

    def train(study: Study) -> str:
        stand_in("train", {"curve.json": b"{}"})(study)
        plan = training_plan("v14", 6201)
        write_training(study.folder / "train", plan, metrics_of(plan))
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
    assert run_study(open_study(TOWN, out), steps, say=said.append)
    assert any("      confirmed: lower generalized time in 10 of 10" in line for line in said)
    layout = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert layout == {
        *("plan.toml", "state.json", "city", "replay", "replay-audit", "calibration", "fidelity"),
        *("train", "policies", "trial", "trial.toml", "used-cells.json", "report.html"),
    }
    labels = {path.name for path in (out / "policies").iterdir()}
    assert labels == {"candidate-6201", "parent-6201", "reserve-alone", "zero"}
    root = read_json(out / "trial" / "closeout.json")["merkle_root"]
    said.clear()
    assert run_study(open_study(TOWN, out), steps, say=said.append)
    assert len(said) == len(steps) and all("up to date" in line for line in said)

    longer = plan_with(tmp_path, events="5000")
    with pytest.raises(InputError, match=r"events is 5000.* already has outcomes of seed 8111"):
        run_study(open_study(longer, out), steps)
    assert (out / "plan.toml").read_bytes() == TOWN.read_bytes()

    longer.write_text(longer.read_text().replace("sumo_seed = 8111", "sumo_seed = 8121"))
    with pytest.raises(InputError, match="seed 8211"):
        run_study(open_study(longer, out), steps)
    longer.write_text(longer.read_text().replace("demand_seed = 8211", "demand_seed = 8221"))
    assert run_study(open_study(longer, out), steps)
    (earlier,) = (out / "earlier").iterdir()
    assert read_json(earlier / "closeout.json")["merkle_root"] == root
    assert read_json(out / "trial" / "trial.json")["plan"]["blocks"][0] == [8121, 8221]


def test_once_there_are_outcomes_nothing_before_them_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Door
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    monkeypatch.setattr("evenline.study.steps.STEPS", quick_steps())
    run = ("study", "run", TOWN, "--out", tmp_path / "study")
    evenline(*run).done()
    for more in ([], ["--dry-run"], ["--until", "replay"]):
        said = evenline(*run, "--from", "replay", *more).refused(
            "step replay would run again (requested)"
        )
        assert "--out" not in said
    assert (tmp_path / "study" / "replay" / "manifest.json").exists()
    evenline(*run, "--from", "report").done()

    other = plan_with(tmp_path, events="5000")
    words = ("SUMO seed 8111: trial 'town-paper-study' has used it", "name fresh seeds")
    evenline("study", "run", other, "--out", tmp_path / "second").refused(*words)
    evenline("study", "run", other, "--out", tmp_path / "second", "--until", "train").done()
    evenline(*run).done()  # the first goes on all the same


def test_the_same_plan_in_another_folder_repeats_the_trial_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    steps, one, two = quick_steps(), tmp_path / "one", tmp_path / "two"
    copied = tmp_path / "mine" / TOWN.name
    copied.parent.mkdir()
    copied.write_text("# copied by somebody\n" + TOWN.read_text())
    assert run_study(open_study(TOWN, one), steps)
    assert run_study(open_study(copied, two), steps)
    first, second = (read_json(place / "trial" / "closeout.json") for place in (one, two))
    (notice,) = set(second["notices"]) - set(first["notices"])
    assert notice.startswith(f"repeats trial {first['trial']}: the same plan has used these days")


def test_of_two_studies_that_register_at_once_one_gets_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    real, together = used.check_fresh, threading.Barrier(2)

    def slow(*given: Any, **named: Any) -> Any:
        """Wait, after reading the lists, until the other study has read them too, or cannot."""
        checked = real(*given, **named)
        with suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return checked

    studies = []
    for name, plan in (("one", TOWN), ("two", plan_with(tmp_path, events="5000"))):
        run_study(open_study(plan, tmp_path / name), quick_steps(), until="policies")
        studies.append(open_study(plan, tmp_path / name))
    monkeypatch.setattr("evenline.study.trial_steps.check_fresh", slow)
    with ThreadPoolExecutor() as threads:
        tries = [threads.submit(register_trial, study) for study in studies]
    refused = [tried.exception() for tried in tries if tried.exception() is not None]
    assert len(refused) == 1 and "'town-paper-study' has used it" in str(refused[0])


def test_a_study_in_the_folder_results_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_study(open_study(TOWN, Path("results")), quick_steps(), until="policies")
    study = open_study(TOWN, Path("results"))
    registers = threading.Thread(target=register_trial, args=(study,), daemon=True)
    registers.start()
    registers.join(300)
    assert not registers.is_alive() and Path("results", "trial", "trial.json").is_file()


def test_cells_of_the_trial_commands_are_not_fresh_either(tmp_path: Path, evenline: Door) -> None:
    from evenline.city.tables import digest

    city = digest(embedded_city("town"))
    ledger = tmp_path / "results" / "used-cells.json"
    note_used(ledger, Used(name="mine", trial=None, city=city, blocks=((8113, 9203),)))
    dry = ("study", "run", TOWN, "--dry-run", "--out")
    for out in (tmp_path / "results" / "study", tmp_path / "elsewhere" / "study"):
        assert "SUMO seed 8113: trial 'mine' has used it" in evenline(*dry, out).err
    ledger.unlink()
    mine = Used(name="mine", trial=None, city=city, blocks=((8123, 9203),))
    note_used(tmp_path / "results" / "study-x" / ledger.name, mine)
    evenline("trial", "register", "town-trial", "--out", tmp_path / "trial").refused(
        "trial 'mine' has used it"
    )


@pytest.mark.parametrize(
    "what", ["evenline/errors.py differs from the registered source", "sumo is "]
)
def test_without_outcomes_another_source_or_sumo_is_registered_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    steps, out, said = quick_steps(), tmp_path / "study", list[str]()
    run_study(open_study(TOWN, out), steps, until="register")
    path = out / "trial" / "trial.json"
    found = read_json(path)
    if what.startswith("sumo"):
        old = found["sumo"] = "0.1-of-yesterday"
    else:
        old = found["evaluator"]["files"]["errors.py"] = "0" * 64
    os.chmod(path, 0o644)
    write_text(path, json.dumps(found))
    state = read_json(out / "state.json")
    state["steps"]["register"]["outputs"]["trial/trial.json"] = sha256(path)
    write_text(out / "state.json", json.dumps(state))
    run_study(open_study(TOWN, out), steps, until="trial", say=said.append)
    assert any(what in line for line in said)
    assert old not in path.read_text()
    said.clear()
    run_study(open_study(TOWN, out), steps, until="trial", say=said.append)
    assert all("up to date" in line for line in said)


def test_the_page_depends_on_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = read_study_plan(plan_with(tmp_path))
    before = STEPS[-1].settings(plan)
    assert "replay" in STEPS[-1].needs
    assert before["plan"] == sha256(plan.file)
    asset = Path(engine.__file__).parents[1] / "report" / "assets" / "page.css"
    real = sha256

    def changed(path: Path) -> str:
        return "other" if path == asset else real(path)

    monkeypatch.setattr("evenline.support.sources.sha256", changed)
    assert STEPS[-1].settings(plan)["source"] != before["source"]


def test_a_trial_that_was_tampered_with_is_named_and_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.runs.executors.processes", made_up)
    monkeypatch.setattr("evenline.study.engine.processes", made_up)
    steps, out = quick_steps(), tmp_path / "study"
    study = open_study(TOWN, out)
    run_study(study, steps, until="trial")
    record = next((out / "trial" / "records").iterdir())
    os.chmod(record, 0o644)
    record.write_text(record.read_text().replace('"completed": 1', '"completed": 2', 1))
    with pytest.raises(InputError, match=record.name):
        run_study(study, steps)
    assert record.exists()
