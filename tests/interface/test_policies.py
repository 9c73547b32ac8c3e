"""Tuning and training from Python: what they return runs in every other function."""

from pathlib import Path

import pytest

import evenline as el
from evenline.interface.policies import source_of
from evenline.support.own import load_own

MINE = """
import evenline as el


@el.rule(gain=(0.3, 0.0, 1.5))
def steady(bus, gain):
    early_s = bus.bus_ahead * (bus.target_ahead_s - bus.headway_ahead_s)
    return min(max(gain * early_s, 0.0), 60.0)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_rule_of_a_file_is_tuned_and_runs_by_the_name_that_comes_back(mine: Path) -> None:
    steady = load_own(f"{mine}:steady").thing
    tuned = el.tune(steady, "town", budget=3, blocks=1, out=mine.parent / "tuned", workers=1)
    assert tuned.policy.startswith(f"{mine}:steady:gain=") and tuned.chosen in tuned.front
    assert "gain" in str(tuned) and "chosen" in str(tuned) and "<table>" in tuned._repr_html_()
    chosen = el.run_day("town", tuned.policy).outcome
    assert chosen != el.run_day("town", "zero").outcome


def test_a_built_in_rule_is_tuned_into_a_bundle(tmp_path: Path) -> None:
    tuned = el.tune("two-way", "town", budget=3, blocks=1, out=tmp_path, workers=1)
    assert Path(tuned.policy).is_dir() and tuned.constants == ("slack_s", "gain")


def test_a_rule_without_a_file_says_what_to_do() -> None:
    steady: dict[str, object] = {"__name__": "nowhere"}
    exec("def half(bus):\n    return 30.0\n", steady)
    with pytest.raises(el.InputError, match=r"^rule half: save it in a file"):
        source_of(steady["half"])  # type: ignore[arg-type]


def test_trained_networks_are_saved_behind_a_chain_and_run(tmp_path: Path) -> None:
    actors = el.train("town", "taught", seeds=[6201], out=tmp_path / "run", lesson_updates=4)
    (actor,) = actors
    assert actor.path.is_file() and (actor.learner, actor.seed) == ("taught", 6201)
    saved = actor.behind("candidate").save(tmp_path / "bundle")
    assert el.run_day("town", saved).outcome.decisions > 0
    assert actor.chain == "raw"
    with pytest.raises(el.InputError, match="unknown chain"):
        actor.behind("nothing")


def test_a_budget_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(el.InputError, match=r"^train: .*lesson"):
        el.train("town", lessons=4)
