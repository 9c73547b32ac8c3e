"""Commands that fit and audit replace their own results, and nothing that somebody changed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from evenline.city.importers.imported import Imported
from evenline.experiments import calibrate, fidelity
from evenline.experiments.collect import planned
from evenline.experiments.importing import write_city
from evenline.support.errors import InputError
from evenline.support.files import write_bytes
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
