"""Test a learner: it makes the tensors of an actor, and the same ones for the same seed.

Your own learner is a function of a replay, an opened city and a training seed. The check records a
few fast days as a replay, so it needs no SUMO.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import evenline
from evenline.checks.policy import check_policy
from evenline.city.cells import PURPOSES
from evenline.city.tables import digest
from evenline.control.state import contract_of
from evenline.learn.own import OwnLearner
from evenline.policies.actor import ActorPolicy, actor_of
from evenline.replay.episode import record_episode, write_episode
from evenline.replay.sealed import FORMAT, PLAN, ReplayPlan, episode_path, seal
from evenline.replay.store import Store, open_store
from evenline.rules.policy import BEHAVIOURS, recorded
from evenline.support.records import write_record
from evenline.worlds.open import OpenCity


def fast_replay(
    folder: Path, opened: OpenCity, blocks: int = 1, behaviours: tuple[str, ...] = tuple(BEHAVIOURS)
) -> Store:
    """Record a small replay in the fast world, enough to test a learner."""
    city, world, paths = opened.city, opened.fast_world(), []
    for name in behaviours:
        for cell in PURPOSES["replay"].cells(blocks):
            path = episode_path(folder, name, cell)
            decisions, outcome = record_episode(world, cell, BEHAVIOURS[name])
            provenance = {
                "city": digest(city),
                "cell": {name: getattr(cell, name) for name in cell.__dataclass_fields__},
                "policy": recorded(BEHAVIOURS[name]),
                "sumo": "none: the fast world",
                "evenline": evenline.__version__,
            }
            write_episode(path, decisions, outcome, provenance)
            paths.append(path)
    plan = ReplayPlan(
        format=FORMAT, city=digest(city), city_name=city.name, blocks=blocks, behaviours=()
    )
    write_record(folder / PLAN, plan)
    seal(folder, paths, None)
    return open_store(folder, city)


def check_learner(learn: OwnLearner, opened: OpenCity, seed: int = 1) -> Mapping[str, Any]:
    """Train twice on a small replay and assert all that `train`, bundles and trials rely on."""
    with tempfile.TemporaryDirectory() as folder:
        store = fast_replay(Path(folder), opened, behaviours=("zero", "headway-0.4"))
        holds = store.columns.hold_s.copy()
        first, again = (dict(learn(store, opened, seed)) for _ in range(2))
    assert np.array_equal(holds, store.columns.hold_s), "a learner does not change the replay"
    actor = actor_of({n: np.asarray(t) for n, t in first.items()}, len(opened.city.services))
    assert first.keys() == again.keys()
    for name, tensor in first.items():
        assert np.array_equal(tensor, again[name]), f"{name}: the same seed gives the same bits"
    policy = ActorPolicy("learned", actor, contract_of(opened.city), 0)
    check_policy(policy, opened.fast_world(), PURPOSES["development"].cells(1)[0])
    return first
