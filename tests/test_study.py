"""The study: steps run when and only when they must, survive a kill, and say why.

The graph is tested with small steps that write one file each. The way from policies to the closed
trial is the real one on `town`, with days that are made up instead of simulated.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from safetensors.numpy import save
from typer.testing import CliRunner

from evenline import study as engine
from evenline.city.embedded import embedded_city
from evenline.city.tables import save_city
from evenline.cli import main
from evenline.control.outcome import Outcome
from evenline.errors import InputError
from evenline.files import read_json, sha256, write_bytes, write_table, write_text
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import export_bundle
from evenline.study import Step, Study, open_study, run_study, survey
from evenline.study_commands import app
from evenline.study_plan import find_plan, read_study_plan
from evenline.study_steps import STEPS, steps_with, training_is_stable, trial_toml
from evenline.trial.executors import Ended, Order
from evenline.trial.used import note_used

sys.path.append(str(Path(__file__).parent / "trial"))
from made import answer, day

TOWN = find_plan("town").resolve()
NAMES = [step.name for step in STEPS]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other trials have used is looked for in the working directory too."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def evenline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs a command as a person does: its exit code, and what it says on standard error."""

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["evenline", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capfd.readouterr().err

    return run


def plan_with(tmp_path: Path, **changes: str) -> Path:
    """The town's plan with some lines replaced."""
    text = TOWN.read_text()
    for old, new in changes.items():
        key = old.replace("__", " ")
        lines = [line for line in text.splitlines() if line.startswith(f"{key} =")]
        assert lines, key
        text = text.replace(lines[0], f"{key} = {new}", 1)
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path


# -- the graph, with small steps ------------------------------------------------------------------


class Small:
    """Three steps in a row; each writes what it read, in capitals, and counts its runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails: str | None = None
        self.error: BaseException = InputError("two fails")

    def steps(self, width: int = 1) -> list[Step]:
        def make(name: str, needs: tuple[str, ...], text: Callable[[Study], str]) -> Step:
            def run(study: Study) -> str:
                self.ran.append(name)
                write_text(study.folder / name / "half.txt", "half")
                if self.fails == name:
                    raise self.error
                write_text(study.folder / name / "made.txt", text(study))
                return f"made {name}"

            asks = {"width": width} if name == "one" else {}
            makes = (f"{name}/made.txt", f"{name}/half.txt")
            return Step(
                name, name, needs, lambda p: asks, makes, run, lambda s: 1.0, owns=name,
                leaves=(f"{name}/found.txt",),
            )  # fmt: skip

        def read(study: Study, name: str) -> str:
            return (study.folder / name / "made.txt").read_text()

        return [
            make("one", (), lambda s: f"width over 9: {width > 9}"),
            make("two", ("one",), lambda s: read(s, "one").upper()),
            make("three", ("two",), lambda s: read(s, "two")[::-1]),
        ]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return open_study(TOWN, tmp_path / "study")


def test_what_is_up_to_date_does_not_run_and_every_file_is_in_the_manifest(study: Study) -> None:
    small, said = Small(), list[str]()
    assert run_study(study, TOWN, small.steps(), say=said.append)
    assert small.ran == ["one", "two", "three"]
    assert said[0] == " 1/3 one: not done yet"
    manifest = read_json(study.folder / "manifest.json")
    for name, own in manifest["files"].items():
        assert sha256(study.folder / name) == own
    assert {"plan.toml", "three/made.txt"} <= manifest["files"].keys()
    before = (study.folder / "manifest.json").stat().st_mtime_ns
    said.clear()
    assert run_study(study, TOWN, small.steps(), say=said.append)
    assert small.ran == ["one", "two", "three"] and all("up to date" in line for line in said)
    assert (study.folder / "manifest.json").stat().st_mtime_ns == before


def test_a_changed_setting_runs_what_depends_on_it_and_no_more(study: Study) -> None:
    small, said = Small(), list[str]()
    run_study(study, TOWN, small.steps())
    small.ran.clear()
    assert [s.reason for s in survey(study, small.steps(width=2))] == [
        "width is 2, was 1",
        "if step one makes something else",
        "if step two makes something else",
    ]
    run_study(study, TOWN, small.steps(width=2), say=said.append)
    assert small.ran == ["one"]  # it made the same again
    run_study(study, TOWN, small.steps(width=10), say=said.append)
    assert small.ran == ["one", "one", "two", "three"]
    assert any("step one has made something else" in line for line in said)


def test_damage_is_found_by_hash_and_mended(study: Study) -> None:
    small = Small()
    run_study(study, TOWN, small.steps())
    small.ran.clear()
    (study.folder / "two" / "made.txt").write_text("edited by hand")
    assert survey(study, small.steps())[1].reason == "two/made.txt is not as it was left"
    run_study(study, TOWN, small.steps())
    assert small.ran == ["two"]
    (study.folder / "one" / "half.txt").unlink()
    assert survey(study, small.steps())[0].reason == "one/half.txt is gone"


def test_where_damage_is_mended_only_the_damaged_and_the_seal_are_removed(study: Study) -> None:
    seen: list[list[str]] = []

    def run(study: Study) -> str:
        folder = study.folder / "many"
        seen.append(sorted(path.name for path in folder.glob("*")))
        for name in ("seal", "a", "b"):
            write_text(folder / name, name)
        return ""

    step = Step(
        "many", "many", (), lambda p: {}, ("many/seal", "many/*"), run, lambda s: 1.0, "many", True
    )
    run_study(study, TOWN, [step])
    (study.folder / "many" / "a").write_text("flipped")
    run_study(study, TOWN, [step])
    assert seen == [[], ["b"]]


def test_a_failed_step_goes_on_where_it_stopped_unless_its_inputs_changed(study: Study) -> None:
    small = Small()
    small.fails = "two"
    with pytest.raises(InputError, match="two fails"):
        run_study(study, TOWN, small.steps())
    assert survey(study, small.steps())[1].reason == "goes on where it stopped"
    assert engine.load_state(study.folder).spent_s.keys() == {"two"}
    (study.folder / "two" / "found.txt").write_text("work of an hour")
    small.fails = None
    run_study(study, TOWN, small.steps())
    assert (study.folder / "two" / "found.txt").exists()
    run_study(study, TOWN, small.steps(width=10))
    assert not (study.folder / "two" / "found.txt").exists()


def test_from_and_until(study: Study) -> None:
    small = Small()
    assert not run_study(study, TOWN, small.steps(), until="two")
    assert small.ran == ["one", "two"] and not (study.folder / "manifest.json").exists()
    assert run_study(study, TOWN, small.steps(), again_from="two")
    assert small.ran == ["one", "two", "two", "three"]
    with pytest.raises(InputError, match="there are one, two, three"):
        run_study(study, TOWN, small.steps(), until="four")
    with pytest.raises(InputError, match="comes after"):
        run_study(study, TOWN, small.steps(), again_from="three", until="one")


def test_a_stop_is_told_with_the_way_on_and_what_was_asked_for_is_all_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Callable[..., tuple[int, str]]
) -> None:
    small = Small()
    small.error = KeyboardInterrupt()
    monkeypatch.setattr("evenline.study_steps.STEPS", small.steps())
    run = ("study", "run", TOWN, "--out", tmp_path / "study")
    small.fails = "two"
    code, said = evenline(*run)
    assert code == 130 and said.endswith("stopped; the same command goes on where it was\n")
    small.fails = None
    assert evenline(*run)[0] == 0
    assert small.ran == ["one", "two", "two", "three"]

    small.fails = "two"
    code, said = evenline(*run, "--from", "one")
    assert code == 130
    assert said.endswith("the same command without --from goes on where it was\n")
    (tmp_path / "study" / "two" / "found.txt").write_text("work of an hour")
    small.ran.clear()
    small.fails = None
    assert evenline(*run)[0] == 0
    assert small.ran == ["two", "three"]  # as asked for, though both make the same again
    assert (tmp_path / "study" / "two" / "found.txt").exists()


@pytest.mark.parametrize("made_by_pattern", [True, False])
def test_a_strangers_file_is_named_and_stays(study: Study, made_by_pattern: bool) -> None:
    small = Small()
    steps = small.steps()
    if made_by_pattern:
        steps = [replace(step, makes=(f"{step.name}/*",)) for step in steps]
    run_study(study, TOWN, steps)
    thesis = study.folder / "two" / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(InputError, match=r"two/thesis\.tex: is no file of step two"):
        run_study(study, TOWN, steps, again_from="one")
    assert thesis.exists() and small.ran == ["one", "two", "three"]
    thesis.unlink()
    assert run_study(study, TOWN, steps, again_from="one")


def test_what_lies_where_a_step_will_work_is_not_removed(study: Study) -> None:
    (study.folder / "one").mkdir(parents=True)
    write_text(study.folder / "plan.toml", "")
    (study.folder / "one" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"one/thesis\.tex"):
        run_study(study, TOWN, Small().steps())


def test_a_kill_before_the_plan_is_written_leaves_a_folder_that_can_be_used(
    tmp_path: Path,
) -> None:
    (tmp_path / "study" / ".cache").mkdir(parents=True)
    (tmp_path / "study" / ".lock").touch()
    (tmp_path / "study" / ".cache" / "x").touch()
    study = open_study(TOWN, tmp_path / "study")
    assert run_study(study, TOWN, Small().steps())
    files = read_json(study.folder / "manifest.json")["files"]
    assert files and not any(name.startswith(".") for name in files)


def test_a_broken_memory_is_one_line(study: Study) -> None:
    run_study(study, TOWN, Small().steps())
    write_text(study.folder / "state.json", '{"format": "evenline-study-1"}')
    with pytest.raises(InputError, match=r"state\.json: not what a study has written"):
        run_study(study, TOWN, Small().steps())


def test_the_last_time_counts_only_for_work_of_the_same_size(study: Study) -> None:
    small = Small()
    run_study(study, TOWN, small.steps())
    state = engine.load_state(study.folder)
    memory = read_json(study.folder / "state.json")
    memory["took_s"] = dict.fromkeys(state.took_s, 99.0)
    write_text(study.folder / "state.json", json.dumps(memory))
    assert [s.about_s for s in survey(study, small.steps())] == [99.0, 99.0, 99.0]
    assert [s.about_s for s in survey(study, small.steps(width=2))] == [1.0, 1.0, 1.0]


def test_a_foreign_folder_and_a_second_runner_are_refused(study: Study, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="choose another --out"):
        open_study(TOWN, tmp_path / "mine")

    def again(study: Study) -> str:
        with pytest.raises(InputError, match="another study is at work"):
            run_study(study, TOWN, [])
        write_text(study.folder / "x.txt", "")
        return ""

    run_study(study, TOWN, [Step("x", "x", (), lambda p: {}, ("x.txt",), again, lambda s: 1.0)])


KILLED = """
import os, signal, sys
from pathlib import Path
from evenline.study import Step, open_study, run_study
from evenline.study_plan import find_plan
from evenline.files import write_text

def run(study):
    folder = study.folder / "slow"
    for number in range(5):
        path = folder / f"{number}.txt"
        if not path.exists():
            write_text(path, str(number))
            if sys.argv[2] == str(number):
                os.kill(os.getpid(), signal.SIGKILL)
            print("made", number)
    return ""

plan = find_plan("town")
study = open_study(plan, Path(sys.argv[1]))
step = Step("slow", "slow", (), lambda p: {"a": 1}, ("slow/*",), run, lambda s: 1.0, owns="slow")
assert run_study(study, plan, [step])
"""


def test_a_kill_costs_nothing_that_was_finished(tmp_path: Path) -> None:
    def run(kill_at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / "study"), str(kill_at)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run(2).returncode == -signal.SIGKILL
    done = run(-1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["made", "3", "made", "4"]
    assert read_json(tmp_path / "study" / "state.json")["done"]["slow"]["outputs"].keys() == {
        f"slow/{number}.txt" for number in range(5)
    }


# -- plans and commands ---------------------------------------------------------------------------


def test_the_plans_of_the_project_say_what_they_should() -> None:
    town, city = (read_study_plan(find_plan(name)) for name in ("town", "city"))
    assert (town.checked_trial().jobs, city.checked_trial().jobs) == (120, 1_350)
    assert town.learners == ["v14"] and len(city.learners) == 7
    assert (city.train.iql_updates, city.train.events, city.replay.blocks) == (50_000, 25_000, 10)
    assert len(town.checked_trial().blocks) == 10 and len(town.levels) == 3
    for plan in (town, city):
        import tomllib

        trial = plan.trial(Path("somewhere"))
        assert tomllib.loads(trial_toml(trial)) == json.loads(json.dumps(trial))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("events", '"many"', "events"),
        ("learner", '"v99"', "v99"),
        ("widths", "[64, 128]", "three positive"),
        ("iql_updates", "-1", "negative"),
        ("blocks", "11", "1 to 10"),
        ("candidate", '{ chain = "steel" }', "steel"),
        ("candidate", '{ chian = "raw" }', "chian"),
        ("zero", '"nobody"', "nobody"),
        ("required_wins", "8", "require 9"),
        ("seeds", "[1, 1]", "twice"),
        ("required", "1", "should be like False"),
        ("level", '"1/0"', "claim: level"),
        ("completion_margin", '"1/0"', "claim: completion_margin"),
        ("completion_margin", "nan", "claim: completion_margin"),
        ("required_wins", '"9"', "claim: required_wins"),
        ("parent", "[1]", "methods: parent"),
        ("seeds", "[inf]", "seeds = inf"),
        ("seeds", '"6201"', "seeds = '6201'"),
        ("seeds", "[1.9]", "seeds = 1.9"),
        ("seeds", "[true]", "seeds = True"),
        ("seeds", "[-1]", "seeds = "),
        ("widths", "[64, 128, inf]", "train: widths = inf"),
        ("levels", '"1"', "trial: levels = '1'"),
        ("levels", "[nan]", "trial: levels = nan"),
        ("levels", "[0.0]", "trial: levels: demand 0"),
        ("levels", "[1.0, 3.0]", "trial: levels: demand 3.0: the journeys of town go up"),
        ("learner", '"all"', "train: learner|methods: candidate: learner 'all'"),
        ("learner", '"v14,sac"', "learner 'v14,sac': name one"),
        ("candidate", '{ learner = "v14,sac" }', "methods: candidate: learner"),
        ("events", "0", "train: .*events = 0"),
        ("events", "1", "train: events = 1: learner v14"),
        ("widths", "[64, 128, 128]\ncurve_blocks = 501", "train: curve_blocks: 501"),
        ("widths", '[64, 128, 128]\ndevice = "abacus"', "train: device: device 'abacus'"),
        ("city", '"atlantis"', "city: city 'atlantis': neither"),
        ("city", "3", "city = 3"),
        ("time_s", '"long"', "limits: time_s"),
        ("memory_gib", "inf", "limits: memory_gib"),
        ("blocks", '"three"', "replay: blocks"),
        ("zero", '"some/where"', "methods: zero: policy 'some/where'"),
    ],
)
def test_a_bad_plan_is_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = plan_with(tmp_path, **{old: new})
    with pytest.raises(InputError, match=words) as told:
        read_study_plan(path)
    assert str(told.value).startswith(f"{path}: ") and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ("{ sumo_seed = 8101, demand_seed = 8201, count = 1000000 }", "count = 1000000: from 1 to"),
        ("{ sumo_seed = 8101, demand_seed = 8201, count = 0 }", "count = 0"),
        ("{ sumo_seed = 8101, demand_seed = 8201, count = 9.9 }", "blocks: count = 9.9"),
        ("{ sumo_seed = 8101, count = 10 }", "'demand_seed' is missing"),
        ("{ sumo_seed = -5, demand_seed = 8201, count = 10 }", "seed -5"),
        ("{ sumo_seed = 1101, demand_seed = 8201, count = 10 }", "1101: calibration has used it"),
        ("10", "trial: blocks: should be a table"),
    ],
)
def test_bad_blocks_of_the_trial_are_one_line(tmp_path: Path, blocks: str, words: str) -> None:
    path = tmp_path / "plan.toml"
    before = "{ sumo_seed = 8101, demand_seed = 8201, count = 10 }"
    path.write_text(TOWN.read_text().replace(before, blocks))
    with pytest.raises(InputError, match=words) as told:
        read_study_plan(path)
    assert str(told.value).startswith(f"{path}: trial") and "\n" not in str(told.value)


def test_a_bad_plan_ends_with_code_2_and_no_folder(
    tmp_path: Path, evenline: Callable[..., tuple[int, str]]
) -> None:
    path = plan_with(tmp_path, level='"1/0"')
    for command in (["run"], ["run", "--dry-run"], ["status"]):
        code, said = evenline("study", *command, path, "--out", tmp_path / "study")
        assert code == 2 and said.count("\n") == 1
        assert said.startswith(f"evenline: {path}: claim: level = '1/0'")
    assert not (tmp_path / "study").exists()


def test_folders_that_a_plan_names_lie_beside_it_or_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Callable[..., tuple[int, str]]
) -> None:
    project = tmp_path / "project"
    save_city(embedded_city("town"), project / "cities" / "mine")
    export_bundle(project / "bundle", "zero", embedded_city("town"), None, {})
    (project / "plans").mkdir()
    path = plan_with(project / "plans", city='"cities/mine"', zero='"bundle"')
    path.write_text(path.read_text().replace("[replay]", '[replay]\nreuse = "data/sealed"'))
    plan = read_study_plan(path)
    assert plan.open_city().decisions == embedded_city("town").decisions
    assert plan.policy(plan.methods["zero"]) == str(project / "bundle")
    code, said = evenline("study", "run", path, "--dry-run", "--out", tmp_path / "study")
    assert code == 0 and "replay: reuse = 'data/sealed': not found" in said
    (project / "data" / "sealed").mkdir(parents=True)
    assert "not found" not in evenline("study", "run", path, "--dry-run")[1]


def test_a_bundle_is_known_by_its_content(tmp_path: Path) -> None:
    town, path = embedded_city("town"), plan_with(tmp_path, zero='"bundle"')
    settings = next(step.settings for step in STEPS if step.name == "policies")
    made = []
    for source in ("zero", "headway", "zero"):
        export_bundle(tmp_path / "bundle", source, town, None, {})
        made.append(settings(read_study_plan(path)))
    assert made[0] == made[2] != made[1]


def test_an_unknown_plan_and_unknown_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="town, city"):
        find_plan("village")
    path = tmp_path / "plan.toml"
    path.write_text("colour = 1\n" + TOWN.read_text())
    with pytest.raises(InputError, match="'colour' is not known"):
        read_study_plan(path)
    path.write_text(TOWN.read_text().replace("[claim]", "[clam]"))
    with pytest.raises(InputError, match="clam"):
        read_study_plan(path)
    path.write_text("name = [")
    with pytest.raises(InputError, match="not valid TOML"):
        read_study_plan(path)


def test_a_dry_run_names_every_step_and_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "study"
    for arguments in (["run", "town", "--dry-run"], ["status", "city"]):
        done = CliRunner().invoke(app, [*arguments, "--out", str(out)])
        assert done.exit_code == 0, done.output
        assert all(name in done.output for name in NAMES)
        assert "not done yet" in done.output and "about" in done.output
    assert not out.exists()
    refused = CliRunner().invoke(app, ["run", "town", "--until", "lunch", "--out", str(out)])
    assert isinstance(refused.exception, InputError) and not out.exists()


def test_a_replay_of_another_size_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenline.city.tables import digest

    plan = plan_with(tmp_path)
    plan.write_text(plan.read_text().replace("[replay]", f'[replay]\nreuse = "{tmp_path}"'))
    asked = {"city": digest(embedded_city("town")), "blocks": 10}
    monkeypatch.setattr("evenline.replay.collect.check_sealed", lambda folder: {"plan": asked})
    with pytest.raises(InputError, match="replay of another blocks"):
        run_study(open_study(plan, tmp_path / "study"), plan, STEPS, until="replay")
    assert not (tmp_path / "study" / "replay").exists()


def test_needs_come_before_those_who_need_them() -> None:
    for number, step in enumerate(STEPS):
        assert set(step.needs) <= set(NAMES[:number])


# -- from policies to a closed trial, with made-up days -------------------------------------------


def made_up(workers: int | None = None) -> Any:
    """An executor like the local one, with days in which the candidate is better."""
    from evenline.trial.registration import open_trial

    def outcome(order: Order) -> Outcome:
        chain = "rule"
        if order.policy.startswith("policies/"):
            spec = read_json(made_up.inputs / order.policy / "policy.json")  # type: ignore[attr-defined]
            chain = spec["chain"]
        return day(order, 910 if chain == "candidate" else 1_000)

    def run(orders: Mapping[str, Order], inputs: Path) -> Generator[tuple[str, Ended], None, None]:
        made_up.inputs = inputs  # type: ignore[attr-defined]
        trial = open_trial(inputs.parent)
        for address, order in orders.items():
            yield address, Ended(answer(trial, order, outcome(order)), (), 1.0)

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
        "calibration": stand_in("calibration", {"calibration.json": b"{}"}),
        "fidelity": stand_in("fidelity", {"fidelity.json": b"{}"}),
        "train": train,
    }

    def page(folder: Path) -> Path:
        write_text(folder / "report.html", "<p>stand-in</p>")
        return folder / "report.html"

    return [replace(step, run=replaced.get(step.name, step.run)) for step in steps_with(page)]


def test_from_policies_to_a_closed_trial_and_never_the_same_cells_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.trial.executors.local", made_up)
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
    assert labels == {"candidate-6201", "parent-6201", "reserve-alone-6201", "zero-6201"}
    root = read_json(out / "trial" / "closeout.json")["merkle_root"]
    said.clear()
    assert run_study(open_study(TOWN, out), TOWN, steps, say=said.append)
    assert len(said) == len(steps) and all("up to date" in line for line in said)

    longer = plan_with(tmp_path, events="5000")
    with pytest.raises(InputError, match=r"seen the outcomes of seed 8101.*events is 5000"):
        run_study(open_study(longer, out), longer, steps)
    assert (out / "plan.toml").read_bytes() == TOWN.read_bytes()

    longer.write_text(longer.read_text().replace("sumo_seed = 8101", "sumo_seed = 8111"))
    with pytest.raises(InputError, match="seed 8201"):
        run_study(open_study(longer, out), longer, steps)
    longer.write_text(longer.read_text().replace("demand_seed = 8201", "demand_seed = 8211"))
    assert run_study(open_study(longer, out), longer, steps)
    (earlier,) = (out / "earlier").iterdir()
    assert read_json(earlier / "closeout.json")["merkle_root"] == root
    assert read_json(out / "trial" / "trial.json")["plan"]["blocks"][0] == [8111, 8211]


def test_once_there_are_outcomes_nothing_before_them_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Callable[..., tuple[int, str]]
) -> None:
    monkeypatch.setattr("evenline.trial.executors.local", made_up)
    monkeypatch.setattr("evenline.study_steps.STEPS", quick_steps())
    run = ("study", "run", TOWN, "--out", tmp_path / "study")
    assert evenline(*run)[0] == 0
    for more in ([], ["--dry-run"], ["--until", "replay"]):
        code, said = evenline(*run, "--from", "replay", *more)
        assert code == 2 and "step replay would be made anew (asked for)" in said
        assert "--out" not in said
    assert (tmp_path / "study" / "replay" / "manifest.json").exists()
    assert evenline(*run, "--from", "report")[0] == 0

    code, said = evenline("study", "run", TOWN, "--out", tmp_path / "second")
    assert code == 2 and "SUMO seed 8101: trial 'town-study' has used it" in said
    assert "name fresh seeds" in said
    assert evenline("study", "run", TOWN, "--out", tmp_path / "second", "--until", "train")[0] == 0
    assert evenline(*run)[0] == 0  # the first goes on all the same


def test_cells_of_the_trial_commands_are_not_fresh_either(
    tmp_path: Path, evenline: Callable[..., tuple[int, str]]
) -> None:
    from evenline.city.tables import digest

    entry = {"name": "mine", "trial": "", "city": digest(embedded_city("town"))}
    ledger = tmp_path / "results" / "used-cells.json"
    note_used(ledger, entry | {"blocks": [[8103, 9203]]})
    dry = ("study", "run", TOWN, "--dry-run", "--out")
    for out in (tmp_path / "results" / "study", tmp_path / "elsewhere" / "study"):
        assert "SUMO seed 8103: trial 'mine' has used it" in evenline(*dry, out)[1]
    ledger.unlink()
    note_used(tmp_path / "results" / "study-x" / ledger.name, entry | {"blocks": [[8123, 9203]]})
    plan = find_plan("town").parent / "town-trial.toml"
    code, said = evenline("trial", "register", plan, "--out", tmp_path / "trial")
    assert code == 2 and "trial 'mine' has used it" in said


@pytest.mark.parametrize("what", ["evenline/errors.py is not the source", "sumo is "])
def test_without_outcomes_another_source_or_sumo_is_registered_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("evenline.trial.executors.local", made_up)
    steps, out, said = quick_steps(), tmp_path / "study", list[str]()
    run_study(open_study(TOWN, out), TOWN, steps, until="register")
    path = out / "trial" / "trial.json"
    found = read_json(path)
    if what.startswith("sumo"):
        found["sumo"] = "of yesterday"
    else:
        found["evaluator"]["files"]["errors.py"] = "of yesterday"
    os.chmod(path, 0o644)
    write_text(path, json.dumps(found))
    state = read_json(out / "state.json")
    state["done"]["register"]["outputs"]["trial/trial.json"] = sha256(path)
    write_text(out / "state.json", json.dumps(state))
    run_study(open_study(TOWN, out), TOWN, steps, until=engine.TRIAL, say=said.append)
    assert any(what in line for line in said)
    assert "of yesterday" not in path.read_text()
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
    asset = Path(engine.__file__).parent / "report" / "study_assets" / "page.css"
    real = sha256
    monkeypatch.setattr(
        "evenline.trial.source.sha256", lambda p: "other" if p == asset else real(p)
    )
    assert STEPS[-1].settings(plan)["source"] != before[-1]["source"]
    monkeypatch.setattr("evenline.__version__", "0.0.0")
    assert all(a != b for a, b in zip(before, (s.settings(plan) for s in STEPS), strict=True))


@pytest.mark.parametrize(
    ("lanes", "loss", "stable"),
    [
        (["iql-6201", "v14-6201"], 0.5, True),
        (["iql-6201"], float("nan"), False),
        (["v14-6201", "iql-6202"], 0.5, False),
    ],
)
def test_what_is_taught_is_as_stable_as_where_it_started(
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
    monkeypatch.setattr("evenline.trial.executors.local", made_up)
    steps, out = quick_steps(), tmp_path / "study"
    study = open_study(TOWN, out)
    run_study(study, TOWN, steps, until=engine.TRIAL)
    record = next((out / "trial" / "records").iterdir())
    os.chmod(record, 0o644)
    record.write_text(record.read_text().replace('"completed": 1', '"completed": 2', 1))
    with pytest.raises(InputError, match=record.name):
        run_study(study, TOWN, steps)
    assert record.exists()
