"""Commands that fit and audit replace their own results, and nothing that somebody changed."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from evenline.experiments import calibrate, fidelity
from evenline.experiments.collect import planned
from evenline.importing.imported import Imported
from evenline.importing.writing import write_city
from evenline.support.errors import InputError
from evenline.support.files import result_folder, write_bytes, write_listed
from evenline.worlds.calibration import save_calibration
from evenline.worlds.open import OpenCity, open_city
from evenline.worlds.timetable import is_declared, timetable_calibration


def assert_keeps_changes(run: Callable[..., object], folder: Path, names: Sequence[str]) -> None:
    """A rerun replaces our own files; a changed or foreign one only by force."""
    run()
    run()
    made = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).write_bytes(b"mine")
        with pytest.raises(InputError, match=f"{name} has changed since .*--force"):
            run()
        assert (folder / name).read_bytes() == b"mine"
        run(force=True)
        assert (folder / name).read_bytes() == made[name]
    (folder / ".evenline.json").unlink()
    with pytest.raises(InputError, match=f"{names[0]} was not written by Evenline"):
        run()


def test_a_calibration_that_was_edited_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fitting takes minutes, so a known fit stands in; the days of the folder are made up."""
    fitted = open_city("town").fitted()
    for name, made in (("fit", fitted), ("fit_figure", Figure()), ("overtaking", {"sumo": 0.25})):
        monkeypatch.setattr(calibrate, name, lambda *_, made=made: made)
    for job in calibrate.calibration_jobs(tmp_path / "fit", "town", 1):
        assert job.visits is not None
        write_bytes(job.visits, b"")

    def run(force: bool = False) -> None:
        calibrate.calibrate("town", tmp_path / "fit", 1, force=force)

    assert_keeps_changes(run, tmp_path / "fit", calibrate.RESULTS)


def test_a_fit_replaces_running_times_from_the_timetable_and_no_other_fit(tmp_path: Path) -> None:
    town = replace(open_city("town").city, name="mine")
    due_s = np.concatenate([
        trip.departure_s + np.array(town.services[trip.service].distance_m) // 5
        for trip in town.trips
    ]).astype(np.int32)  # fmt: skip
    opened, _ = write_city(Imported(replace(town, due_s=due_s)), tmp_path / "mine")
    assert opened.calibration is not None and is_declared(opened.calibration)
    for pace, place in ((0.2, tmp_path / "mine" / "calibration.json"), (0.3, tmp_path / "0.3")):
        fitted = tmp_path / str(pace)
        made = replace(timetable_calibration(opened.city, pace), note="", residuals={"runs": 1.0})
        save_calibration(fitted, made)
        assert calibrate.place_in_city(str(tmp_path / "mine"), fitted) == place
        assert open_city(str(tmp_path / "mine")).fitted().residuals == {"runs": 1.0}


def test_an_audit_of_the_fast_world_that_was_edited_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity, "collect", lambda *_: [])
    monkeypatch.setattr(fidelity, "_outcomes", _fast_twice)

    def run(force: bool = False) -> None:
        replay, out = tmp_path / "replay", tmp_path / "audit"
        fidelity.fidelity_audit("town", None, replay, out, blocks=1, force=force)

    assert_keeps_changes(run, tmp_path / "audit", (fidelity.AUDIT, fidelity.PICTURE))


def _fast_twice(opened: OpenCity, replay: Path, blocks: int | None) -> tuple[Any, Any, set[str]]:
    world, found = opened.fast_world(), dict[str, dict[Any, Any]]()
    for job in planned(replay, opened.source, blocks):
        found.setdefault(job.policy, {})[job.cell] = world.run_day(
            job.cell, fidelity.BEHAVIOURS[job.policy]
        )
    return found, found, {"1.27.1"}


# -- another question in the same folder -----------------------------------------------------------


def asked(command: str, out: Path) -> None:
    """Ask a question of town, quickly."""
    name, *options = command.split()
    ended = subprocess.run(
        [sys.executable, "-m", "evenline", name, "--city", "town", "--out", str(out), *options],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    SAID.append(ended.stderr)


SAID: list[str] = []


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        (
            "compare --policies zero --blocks 1 --no-clairvoyant",
            "compare --policies headway --blocks 1 --no-clairvoyant",
            "comparison.json",
        ),
        ("whatif --policy headway --blocks 2", "whatif --policy zero --blocks 2", "whatif.json"),
        ("simulate --world fast --seed 1", "simulate --world fast --seed 2", "outcome.json"),
    ],
)
def test_the_answer_to_one_question_is_kept_when_another_is_asked(
    tmp_path: Path, one: str, other: str, result: str
) -> None:
    out = tmp_path / "out"
    asked(one, out)
    first = (out / result).read_bytes()
    asked(one, out)
    assert not (out / "earlier").exists() and "earlier" not in SAID[-1], "the same answer"
    asked(other, out)
    (kept,) = (out / "earlier").glob(f"*/{result}")
    assert kept.read_bytes() == first != (out / result).read_bytes()
    assert f"the earlier result of {out} is kept in {kept.parent}" in SAID[-1]
    asked(one, out)
    assert (out / result).read_bytes() == first
    assert len(list((out / "earlier").glob(f"*/{result}"))) == 2


def test_files_of_one_result_are_kept_together(tmp_path: Path) -> None:
    both, names = {"a.json": b"1", "b.png": b"same"}, ("a.json", "b.png")
    write_listed(tmp_path, both, result=names)
    write_listed(tmp_path, {"other.json": b"x"})
    write_listed(tmp_path, both | {"a.json": b"2"}, result=names)
    (kept,) = (tmp_path / "earlier").iterdir()
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == both
    assert {path.name for path in tmp_path.glob("*.*")} == {*names, "other.json", ".evenline.json"}


def test_a_new_folder_takes_the_earlier_results_along(tmp_path: Path) -> None:
    for text in ("one", "two", "two", "three"):
        with result_folder(tmp_path / "out", keep=True) as aside:
            (aside / "deep").mkdir()
            write_bytes(aside / "deep" / "result.txt", text.encode())
    kept = sorted(path.read_text() for path in (tmp_path / "out" / "earlier").rglob("*.txt"))
    assert kept == ["one", "two"]
    assert (tmp_path / "out" / "deep" / "result.txt").read_text() == "three"
