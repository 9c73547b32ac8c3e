"""The benchmark of policies answers for every built-in policy, with numbers that make sense."""

import json
from pathlib import Path

import pytest
import safetensors.numpy

from door import door
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import BUILT_IN


def test_every_built_in_policy_and_an_actor_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    actors = tmp_path / "data" / "train-town" / "actors"
    actors.mkdir(parents=True)
    (actors / "v14-1.safetensors").write_bytes(safetensors.numpy.save(random_tensors(4, 0)))
    run = door(monkeypatch, capfd)
    told = run("bench", "policy", "--city", "town", "--docs", "page.md", "--json").done()
    found = json.loads(told)
    assert set(found["policies"]) == {*BUILT_IN, "v14-1"}
    assert found["decisions"] >= found["batches"] > 100
    for name, times in found["policies"].items():
        assert 0.0 < times["p50_ms"] <= times["p99_ms"], name
    page = (tmp_path / "page.md").read_text()
    assert all(f"| {name} | " in page for name in found["policies"])
