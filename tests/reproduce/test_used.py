"""A registered trial's cells are published once."""

from pathlib import Path

import pytest

from door import door
from evenline.trial.used import used_by_trials
from made import finished_trial


def test_the_cells_of_a_trial_are_published_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trial, ledger = finished_trial(tmp_path), tmp_path / "list.json"
    publish = door(monkeypatch, capfd, "reproduce.used")
    for _ in range(2):
        assert publish(trial.folder, "--used-cells", ledger).done() == f"{ledger}\n"
    assert used_by_trials(ledger) == (trial.used,)
