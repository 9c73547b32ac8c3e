"""The exported graph: its operators, and its holds on packed and on recorded states."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from evenline.city.tables import open_city
from evenline.control.event import Batch
from evenline.control.state import canonical, contract_of
from evenline.policies.actor import ActorPolicy, actor_of, random_tensors
from evenline.policies.onnx_graph import current_events, holds_of, worst_error_s, write_onnx
from evenline.replay.states import replay_states
from evenline.replay.store import open_store
from evenline.rules.chain import CHAINS
from small_actors import town_states, untrained

REPLAY = Path(os.environ.get("EVENLINE_REPLAY", "data/replay-city"))


def test_the_graph_is_made_of_standard_operators(tmp_path: Path) -> None:
    write_onnx(tmp_path / "actor.onnx", untrained("candidate"))
    model = onnx.load(str(tmp_path / "actor.onnx"))
    assert {node.domain for node in model.graph.node} == {""}
    assert [value.name for value in model.graph.input] == ["state"]
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    assert kinds == {onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64}  # no constant was rounded


def test_packed_states_are_judged_as_the_batches_they_came_from() -> None:
    """The event of the last decision, and the hold as in a batch with the same actions taken."""
    policy, packed = untrained("candidate"), town_states()
    alone = packed[packed[:, 1] == 1.0][:50]
    holds, _ = holds_of(policy, alone)
    for state, raw, hold in zip(alone, current_events(alone), holds, strict=True):
        batch = Batch(int(state[0]), np.zeros(1, np.int32), raw[None])
        assert policy(batch)[0] == pytest.approx(hold, abs=1e-9)


@pytest.mark.skipif(not REPLAY.is_dir(), reason="the replay of city is not here")
def test_ten_thousand_real_states_agree(tmp_path: Path) -> None:
    city = open_city("city")
    store = open_store(REPLAY, city)
    states = replay_states(store, 10_000, seed=1)
    assert len(states) == 10_000
    rows = np.sort(
        np.random.Generator(np.random.PCG64(1)).choice(len(store), 10_000, replace=False)
    )
    assert np.array_equal(canonical(states, contract_of(city)), store.canonical(rows))
    services = len(city.services)
    actor = actor_of(random_tensors(services, 2), services)
    policy = ActorPolicy("untrained", actor, contract_of(city), CHAINS["candidate"])
    write_onnx(tmp_path / "actor.onnx", policy)
    assert worst_error_s(tmp_path / "actor.onnx", policy, states) <= 1e-5
