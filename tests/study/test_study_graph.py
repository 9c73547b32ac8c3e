"""The study's graph: steps run when and only when they must, survive a kill, and say why.

The steps here are small ones that write one file each.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from door import Door
from evenline.study.engine import Step, Study, open_study, run_study, survey
from evenline.support.errors import InputError
from evenline.support.files import read_json, write_text
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

            settings = {"width": width} if name == "one" else {}
            makes = (f"{name}/made.txt", f"{name}/half.txt")
            return Step(
                name, name, needs, makes, run, lambda p: settings, lambda s: 100.0, owns=name,
                leaves=(f"{name}/partial.txt",),
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


def test_what_is_up_to_date_does_not_run(study: Study) -> None:
    small, lines = Small(), list[str]()
    assert run_study(study, small.steps(), say=lines.append)
    assert small.ran == ["one", "two", "three"]
    assert lines[0] == " 1/3 one: to do, about 2 min"
    lines.clear()
    assert run_study(study, small.steps(), say=lines.append)
    assert small.ran == ["one", "two", "three"] and all("up to date" in line for line in lines)


def test_another_version_runs_everything_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(study, Small().steps())
    monkeypatch.setattr("evenline.__version__", "0.0.0")
    assert all("evenline is " in str(s.reason) for s in survey(study, Small().steps()))


def test_a_changed_setting_runs_what_depends_on_it_and_no_more(study: Study) -> None:
    small, lines = Small(), list[str]()
    run_study(study, small.steps())
    small.ran.clear()
    assert [s.reason for s in survey(study, small.steps(width=2))] == [
        "width is 2, was 1",
        "if step one gives new results",
        "if step two gives new results",
    ]
    run_study(study, small.steps(width=2), say=lines.append)
    assert small.ran == ["one"]  # it made the same again
    run_study(study, small.steps(width=10), say=lines.append)
    assert small.ran == ["one", "one", "two", "three"]
    assert any("step one has new results" in line for line in lines)


def test_damage_is_found_by_hash_and_mended(study: Study) -> None:
    small = Small()
    run_study(study, small.steps())
    small.ran.clear()
    (study.folder / "two" / "made.txt").write_text("edited by hand")
    assert survey(study, small.steps())[1].reason == "two/made.txt has changed"
    run_study(study, small.steps())
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

    step = Step("many", "many", (), ("many/seal", "many/*"), run, owns="many", mends=True)
    run_study(study, [step])
    (study.folder / "many" / "a").write_text("flipped")
    run_study(study, [step])
    assert seen == [[], ["b"]]


def test_a_failed_step_goes_on_where_it_stopped_unless_its_inputs_changed(study: Study) -> None:
    small = Small()
    small.fails = "two"
    with pytest.raises(InputError, match="two fails"):
        run_study(study, small.steps())
    assert survey(study, small.steps())[1].reason == "continues where it stopped"
    (study.folder / "two" / "partial.txt").write_text("work of an hour")
    small.fails = None
    run_study(study, small.steps())
    assert (study.folder / "two" / "partial.txt").exists()
    run_study(study, small.steps(width=10))
    assert not (study.folder / "two" / "partial.txt").exists()


def test_from_and_until(study: Study) -> None:
    small = Small()
    assert not run_study(study, small.steps(), until="two")
    assert small.ran == ["one", "two"]
    assert run_study(study, small.steps(), again_from="two")
    assert small.ran == ["one", "two", "two", "three"]
    with pytest.raises(InputError, match="choose 'one', 'two' or 'three'"):
        run_study(study, small.steps(), until="four")
    with pytest.raises(InputError, match="comes after"):
        run_study(study, small.steps(), again_from="three", until="one")


def test_a_stop_is_told_with_the_way_on_and_what_was_asked_for_is_all_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Door
) -> None:
    small = Small()
    small.error = KeyboardInterrupt()
    monkeypatch.setattr("evenline.study.steps.STEPS", small.steps())
    run = ("study", "run", TOWN, "--out", tmp_path / "study")
    small.fails = "two"
    ended = evenline(*run)
    assert ended.code == 130 and ended.err.endswith("stopped; run the same command to continue\n")
    small.fails = None
    evenline(*run).done()
    assert small.ran == ["one", "two", "two", "three"]

    small.fails = "two"
    ended = evenline(*run, "--from", "one")
    assert ended.code == 130
    assert ended.err.endswith("run the same command without --from to continue\n")
    (tmp_path / "study" / "two" / "partial.txt").write_text("work of an hour")
    small.ran.clear()
    small.fails = None
    evenline(*run).done()
    assert small.ran == ["two", "three"]  # as asked for, though both make the same again
    assert (tmp_path / "study" / "two" / "partial.txt").exists()


@pytest.mark.parametrize("made_by_pattern", [True, False])
def test_a_strangers_file_is_named_and_stays(study: Study, made_by_pattern: bool) -> None:
    small = Small()
    steps = small.steps()
    if made_by_pattern:
        steps = [replace(step, makes=(f"{step.name}/*",)) for step in steps]
    run_study(study, steps)
    thesis = study.folder / "two" / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(InputError, match=r"two/thesis\.tex does not belong to step two"):
        run_study(study, steps, again_from="one")
    assert thesis.exists() and small.ran == ["one", "two", "three"]
    thesis.unlink()
    assert run_study(study, steps, again_from="one")


def test_what_lies_where_a_step_will_work_is_not_removed(study: Study) -> None:
    (study.folder / "one").mkdir(parents=True)
    write_text(study.folder / "plan.toml", "")
    (study.folder / "one" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"one/thesis\.tex"):
        run_study(study, Small().steps())


def test_a_kill_before_the_plan_is_written_leaves_a_folder_that_can_be_used(
    tmp_path: Path,
) -> None:
    (tmp_path / "study" / ".cache").mkdir(parents=True)
    (tmp_path / "study" / ".lock").touch()
    (tmp_path / "study" / ".cache" / "x").touch()
    study = open_study(TOWN, tmp_path / "study")
    assert run_study(study, Small().steps())


def test_what_was_done_before_a_stop_is_not_expected_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, clock = Small(), iter(range(0, 1_000, 30))
    assert [s.left_s for s in survey(study, small.steps())] == [100.0, 100.0, 100.0]
    monkeypatch.setattr("evenline.study.engine.time.monotonic", lambda: float(next(clock)))
    small.fails = "two"
    with pytest.raises(InputError, match="two fails"):
        run_study(study, small.steps())
    assert [s.left_s for s in survey(study, small.steps())] == [0.0, 70.0, 100.0]
    assert [s.left_s for s in survey(study, small.steps(width=10))] == [100.0, 70.0, 100.0]
    small.fails = None
    run_study(study, small.steps())
    assert [s.took_s for s in survey(study, small.steps())] == [30.0, 60.0, 30.0]


def test_a_foreign_folder_and_a_second_runner_are_refused(study: Study, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="choose another --out"):
        open_study(TOWN, tmp_path / "mine")

    def again(study: Study) -> str:
        with pytest.raises(InputError, match="another study is running"):
            run_study(study, [])
        write_text(study.folder / "x.txt", "")
        return ""

    run_study(study, [Step("x", "x", (), ("x.txt",), again)])


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
step = Step("slow", "slow", (), ("slow/*",), run, lambda p: {"a": 1}, owns="slow")
assert run_study(study, [step])
"""


def test_a_kill_costs_nothing_that_was_finished(tmp_path: Path) -> None:
    def run(kill_at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / "study"), str(kill_at)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run(2).returncode == -signal.SIGKILL
    done = run(-1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["made", "3", "made", "4"]
    assert read_json(tmp_path / "study" / "state.json")["steps"]["slow"]["outputs"].keys() == {
        f"slow/{number}.txt" for number in range(5)
    }
