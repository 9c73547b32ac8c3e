"""The positive control: an effect that is paid at once is learned from centred rewards."""

import json
from pathlib import Path

import pytest

from door import door
from small import fast_store


def test_an_effect_that_is_paid_at_once_is_learned_from_centred_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    store, page = fast_store(tmp_path / "replay", blocks=3), tmp_path / "page.md"
    run = door(monkeypatch, capfd, "reproduce.control")
    asked = ("--city", "town", "--updates", 400, "--widths", "16,32,32", "--seeds", 1)
    run(*asked, "--replay", store.folder, "--out", tmp_path, "--docs", page).done()
    found = json.loads((tmp_path / "learner.json").read_text())
    (centred,), (raw,) = found["centred"]["correlations"], found["raw"]["correlations"]
    assert centred > 0.5 and centred > raw
    assert f"{centred:.2f}" in page.read_text()
