"""Trials from Python: from a plan to a verdict that independent code checks."""

from pathlib import Path

import pytest

import evenline as el

PLAN = """
name = "tiny"
city = "town"
world = "fast"
seeds = [1]
levels = [1.0]
blocks = { sumo_seed = 9101, demand_seed = 9201, count = 6 }
claim = { candidate = "even", parent = "zero" }
methods = { even = ["forward"], zero = "zero" }
limits = { time_s = 60, memory_gib = 8, tries = 2 }
"""


def test_a_plan_becomes_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    trial = el.register(tmp_path / "plan.toml", tmp_path / "trial", tmp_path / "used.json")
    assert trial.rows()["days done"] == "0 of 12" and "even takes less time" in str(trial)
    with pytest.raises(el.InputError, match="12"):
        trial.analyse()
    analysis = trial.run(workers=1).analyse()
    assert analysis.claim.primary.blocks == 6
    assert trial.verify() == [] and el.verify(trial.folder) == []
    assert el.open_trial(trial.folder) == trial and "12 of 12" in trial._repr_html_()
    record = next((trial.folder / "records").glob("*.json"))
    record.write_text(record.read_text().replace('"departed": ', '"departed": 1'))
    assert any(record.name in problem for problem in trial.verify())


def test_a_folder_without_a_trial_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(el.InputError, match=r"has no trial\.json"):
        el.verify(tmp_path)
