"""Every meter prints JSON and nothing else, with numbers that make sense."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from bench.cities import copied_city
from door import door
from evenline.city.model import City
from evenline.policies.actor import random_tensors
from evenline.policies.names import BUILT_IN

Capture = pytest.CaptureFixture[str]


def figures_of(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture, meter: str, *arguments: object
) -> Any:
    return json.loads(door(monkeypatch, capfd, f"bench.{meter}")(*arguments).done())


def test_the_sumo_world_is_compared_with_the_bare_program(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    figures = figures_of(monkeypatch, capfd, "sumo", "--city", "town", "--repeats", 1)
    assert figures["ratio"] == pytest.approx(figures["world_s"] / figures["bare_s"], rel=0.02)
    assert 0 < figures["bare_s"] < 60 and 50 < figures["peak_mib"] < 600


def test_several_workers_are_compared_with_one(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    figures = figures_of(monkeypatch, capfd, "trial", "--jobs", 1, "--repeats", 1)
    assert figures["seconds_1_worker"] > 0 and 0 < figures["share_of_linear"] < 1.5


def test_the_fast_world_is_measured_and_a_document_gets_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setattr("bench.fast.SIZES", (1, 2))
    page = tmp_path / "page.md"
    asked = ("--city", "town", "--no-sumo", "--scale", "--repeats", 1, "--docs", page)
    figures = figures_of(monkeypatch, capfd, "fast", *asked)
    one, two = figures["scale"]
    assert two["passengers"] == 2 * one["passengers"] and two["mib"] > one["mib"]
    said = page.read_text()
    assert f"Made by `python -m bench.fast --city town --scale --docs {page}`." in said
    assert f"| kernel_per_s | {figures['kernel_per_s']:,} |" in said and "| 2 |" in said


def test_every_built_in_policy_and_an_actor_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, name in (("train", "v14-1"), ("taught", "taught-1")):
        actors = tmp_path / "data" / f"{kind}-town" / "actors"
        actors.mkdir(parents=True)
        tensors = safetensors.numpy.save(random_tensors(4, 0))
        (actors / f"{name}.safetensors").write_bytes(tensors)
    figures = figures_of(monkeypatch, capfd, "policy", "--city", "town", "--docs", "page.md")
    assert set(figures["policies"]) == {*BUILT_IN, "v14-1", "taught-1"}
    assert figures["decisions"] >= figures["batches"] > 100
    for name, times in figures["policies"].items():
        assert 0.0 < times["p50_ms"] <= times["p99_ms"], name
    assert 100 < figures["lookahead"]["calls_per_decision"] < 1_000
    page = (tmp_path / "page.md").read_text()
    assert all(f"| {name} | " in page for name in figures["policies"])


def test_a_copied_city_has_everything_as_often(town: City) -> None:
    twice = copied_city(town, 2)
    half = len(town.trips)
    for first, again in zip(twice.trips[:half], twice.trips[half:], strict=True):
        assert (again.service, again.departure_s) == (
            first.service + len(town.services),
            first.departure_s,
        )
    journeys = twice.journeys
    first_stop = journeys.leg_board[journeys.leg_start[:-1]]
    for copy in (0, 1):
        here = first_stop // len(town.stops) == copy
        np.testing.assert_array_equal(journeys.departure_s[here], town.journeys.departure_s)
