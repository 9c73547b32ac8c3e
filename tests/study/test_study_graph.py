"""The study's graph: steps run when and only when they must, survive a kill, and say why.

The steps here are small ones that write one file each.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evenline.study import engine
from evenline.study.engine import Step, Study, open_study, run_study, survey
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, write_text
from town_plan import TOWN


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
        "if step one gives new results",
        "if step two gives new results",
    ]
    run_study(study, TOWN, small.steps(width=2), say=said.append)
    assert small.ran == ["one"]  # it made the same again
    run_study(study, TOWN, small.steps(width=10), say=said.append)
    assert small.ran == ["one", "one", "two", "three"]
    assert any("step one has new results" in line for line in said)


def test_damage_is_found_by_hash_and_mended(study: Study) -> None:
    small = Small()
    run_study(study, TOWN, small.steps())
    small.ran.clear()
    (study.folder / "two" / "made.txt").write_text("edited by hand")
    assert survey(study, small.steps())[1].reason == "two/made.txt has changed"
    run_study(study, TOWN, small.steps())
    assert small.ran == ["two"]
    (study.folder / "one" / "half.txt").unlink()
    assert survey(study, small.steps())[0].reason == "one/half.txt is missing"


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
    assert survey(study, small.steps())[1].reason == "continues where it stopped"
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
    with pytest.raises(InputError, match="choose 'one', 'two' or 'three'"):
        run_study(study, TOWN, small.steps(), until="four")
    with pytest.raises(InputError, match="comes after"):
        run_study(study, TOWN, small.steps(), again_from="three", until="one")


def test_a_stop_is_told_with_the_way_on_and_what_was_asked_for_is_all_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Callable[..., tuple[int, str]]
) -> None:
    small = Small()
    small.error = KeyboardInterrupt()
    monkeypatch.setattr("evenline.study.steps.STEPS", small.steps())
    run = ("study", "run", TOWN, "--out", tmp_path / "study")
    small.fails = "two"
    code, said = evenline(*run)
    assert code == 130 and said.endswith("stopped; run the same command to continue\n")
    small.fails = None
    assert evenline(*run)[0] == 0
    assert small.ran == ["one", "two", "two", "three"]

    small.fails = "two"
    code, said = evenline(*run, "--from", "one")
    assert code == 130
    assert said.endswith("run the same command without --from to continue\n")
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
    with pytest.raises(InputError, match=r"two/thesis\.tex does not belong to step two"):
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
    with pytest.raises(InputError, match=r"state\.json: missing key begun"):
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
        with pytest.raises(InputError, match="another study is running"):
            run_study(study, TOWN, [])
        write_text(study.folder / "x.txt", "")
        return ""

    run_study(study, TOWN, [Step("x", "x", (), lambda p: {}, ("x.txt",), again, lambda s: 1.0)])


KILLED = """
import os, signal, sys
from pathlib import Path
from evenline.study.engine import Step, open_study, run_study
from evenline.study.plan import find_plan
from evenline.support.files import write_text

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
