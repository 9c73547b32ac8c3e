"""The learning commands refuse bad input in one line and write nothing."""

from pathlib import Path

import pytest
from safetensors.numpy import save_file

from door import Door, door
from evenline.policies.actor import random_tensors


@pytest.fixture
def evenline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Door:
    monkeypatch.chdir(tmp_path)
    return door(monkeypatch, capfd)


@pytest.mark.parametrize(
    ("services", "options", "said"),
    [
        (None, [], "actor.safetensors: cannot be read"),
        (3, [], "actor.safetensors: tensor slot0.w has float32"),
        (4, ["--seed", -1], "seed -1: must be from 0 to 4294967295"),
        (4, ["--seed", 2**32], f"seed {2**32}: must be from 0 to 4294967295"),
        (4, ["--days", 2], "give at least 3"),
        (4, ["--days", 99999999999], "99999999999 days: give at most 100000"),
    ],
)
def test_teaching_needs_an_actor_of_the_city_a_seed_and_days(
    evenline: Door, tmp_path: Path, services: int | None, options: list[object], said: str
) -> None:
    actor = tmp_path / "actor.safetensors"
    if services is None:
        actor.write_text("not an actor")
    else:
        save_file(random_tensors(services, 1), actor)
    taught = ["teach", actor, "--city", "town", "--out", "taught.safetensors"]
    evenline(*taught, *options).refused(said)
    assert list(tmp_path.iterdir()) == [actor]


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ("1-99999999999", "seeds 1-99999999999: give at most 1000"),
        (f"{2**32}", f"seed {2**32}: must be from 0 to 4294967295"),
    ],
)
def test_training_needs_seeds_that_it_can_use(
    evenline: Door, tmp_path: Path, seeds: str, said: str
) -> None:
    evenline("train", "--seeds", seeds).refused(said)
    assert list(tmp_path.iterdir()) == []
