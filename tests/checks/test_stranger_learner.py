"""A stranger adds a learner: one file outside the package, its check, the ordinary commands."""

import json
from pathlib import Path

import pytest

from door import Door
from evenline.checks import check_learner
from evenline.checks.learner import fast_replay
from evenline.support.own import load_own
from evenline.worlds.open import open_city

LEARNER = '''
"""Learns nothing, but well formed: holds no bus, whatever the replay says."""
import numpy as np
from evenline.policies.actor import tensor_shapes

def never(store, opened, seed):
    rng = np.random.default_rng([seed, len(store)])
    shapes = tensor_shapes(len(opened.city.services), (8, 8, 8))
    tensors = {n: (0.1 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    tensors["out.w"][:] = 0.0
    tensors["out.b"][:] = [-1.0, 0.0, 0.0]
    return tensors

def short(store, opened, seed):
    return {"slot0.w": np.zeros((2, 2), np.float32)}

def text(store, opened, seed):
    return "an actor"
'''


pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_learner_of_ones_own_trains_is_measured_and_becomes_a_policy(
    tmp_path: Path, evenline: Door
) -> None:
    path, town = tmp_path / "mine.py", open_city("town")
    path.write_text(LEARNER)
    check_learner(load_own(f"{path}:never").thing, town)
    fast_replay(tmp_path / "replay", town, behaviours=("zero", "headway-0.4"))
    asked = ("train", "--city", "town", "--replay", "replay", "--seeds", "1,2", "--blocks", "1")
    ended = evenline(*asked, "--learner", "mine.py:never", "--out", "run")
    assert ended.code == 0, ended.err
    curve = json.loads((tmp_path / "run" / "curve.json").read_text())
    assert curve["never-1"] == curve["never-2"] == curve["zero"], "it holds no bus"
    actor = tmp_path / "run" / "actors" / "never-1.safetensors"
    assert evenline("policy", "export", actor, "--city", "town", "--out", "bundle").code == 0
    compared = evenline("compare", "--policies", "zero,bundle", "--blocks", "1", "--json")
    assert compared.code == 0, compared.err
    for name, words in (("short", "tensor"), ("text", "must return a dictionary of tensors")):
        evenline(*asked, "--learner", f"mine.py:{name}", "--out", "other").refused(words)
    behind = (*asked, "--learner", "mine.py:never", "--chain", "candidate", "--out", "other")
    evenline(*behind).refused("learner mine.py:never: only lessons can be taken behind a chain")
    path.write_text(LEARNER + "# edited")
    evenline(*asked, "--learner", "mine.py:never", "--out", "run").refused("an earlier version")
