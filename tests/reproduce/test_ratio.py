"""The domain-ratio diagnostic: how it counts, what it holds out, and that it runs once."""

import json
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibrated import calibration_of
from door import door
from evenline.city.tables import open_city
from evenline.learn.data import Transitions
from evenline.learn.plan import Plan
from evenline.learn.schedule import LEARNERS, Budget
from evenline.learn.training import shortened, train
from reproduce import ratio as r
from small import fast_store

TOWN = open_city("town")


def test_the_area_is_the_share_of_pairs_in_order_with_ties_half() -> None:
    rng = np.random.default_rng(1)
    yes, no = (rng.integers(0, 6, 40).astype(float) for _ in range(2))
    pairs = [(a > b) + (a == b) / 2 for a, b in product(yes, no)]
    assert r.auc(yes, no) == pytest.approx(np.mean(pairs))


def test_equal_weights_keep_the_whole_sample_and_one_heavy_weight_keeps_one_row() -> None:
    assert r.effective_share(np.full(50, -3.0)) == pytest.approx(1.0)
    assert r.effective_share(np.array([900.0, *[0.0] * 49])) == pytest.approx(1 / 50)


def test_updates_learn_to_tell_what_differs() -> None:
    def transitions(shift: float, seed: int) -> Transitions:
        state = jax.random.normal(jax.random.key(seed), (r.BATCH, r.CANONICAL_WIDTH))
        flat = jnp.zeros(r.BATCH)
        return Transitions(state, flat, flat, state + shift, flat + 1)

    ratio = r.new_ratio(jax.random.key(0))
    for n in range(60):
        ratio = jax.jit(r.ratio_update)(ratio, transitions(0.5, 2 * n), transitions(0.0, 2 * n + 1))
    area, _ = r.assess(ratio, transitions(0.5, 1_000), transitions(0.0, 1_001))
    assert area > 0.9
    same, _ = r.assess(ratio, transitions(0.5, 1_000), transitions(0.5, 1_001))
    assert abs(same - 0.5) < 0.1


def test_every_seed_is_diagnosed_once_and_written_beside_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(r, "PRETRAINING", 3)
    monkeypatch.setattr(r, "HELD_OUT_BLOCKS", 1)
    monkeypatch.setattr(r, "ASSESSED", 300)
    budget = Budget(iql_updates=20, warmup_events=20, events=60)
    plan = Plan((LEARNERS["iql"], LEARNERS["v14"]), (1,), slot=8, fused=16, hidden=8)
    store = fast_store(tmp_path / "replay", blocks=2)
    train(tmp_path / "train", shortened(plan, budget), TOWN, calibration_of(TOWN), store)
    run = door(monkeypatch, capfd, "reproduce.ratio")
    asked = (tmp_path / "train", "--city", "town", "--replay", store.folder)
    places = ("--out", tmp_path, "--docs", tmp_path / "page.md")
    assert "over 1 seeds of v14" in run(*asked, *places).done()
    rows = json.loads((tmp_path / "ratio.json").read_text())["rows"]
    assert rows.keys() == {"v14-1"}
    assert all(0 <= rows["v14-1"][name] <= 1 for name in r.ROWS)
    page = (tmp_path / "page.md").read_text()
    assert "| held-out joint AUC | 0.4520 (0.4366 to 0.4747) |" in page
    monkeypatch.setattr(r, "diagnosed", None)
    assert run(*asked, *places).done() and (tmp_path / "page.md").read_text() == page
