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
    for kind, name in (("train", "v14-1"), ("taught", "taught-1")):
        actors = tmp_path / "data" / f"{kind}-town" / "actors"
        actors.mkdir(parents=True)
        tensors = safetensors.numpy.save(random_tensors(4, 0))
        (actors / f"{name}.safetensors").write_bytes(tensors)
    run = door(monkeypatch, capfd)
    told = run("bench", "policy", "--city", "town", "--docs", "page.md", "--json").done()
    found = json.loads(told)
    assert set(found["policies"]) == {*BUILT_IN, "v14-1", "taught-1"}
    assert found["decisions"] >= found["batches"] > 100
    for name, times in found["policies"].items():
        assert 0.0 < times["p50_ms"] <= times["p99_ms"], name
    assert 100 < found["lookahead"]["calls_per_decision"] < 1_000
    page = (tmp_path / "page.md").read_text()
    assert all(f"| {name} | " in page for name in found["policies"])
