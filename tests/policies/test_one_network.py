"""One network in four forms: the frozen actor, training, the ONNX graph and the compiled formula.

Each of them is compared with the definition, written out slot by slot, on random tensors of random
widths and random moments. The chain in the graph is compared with `evenline.rules.chain` for every
set of elements, so an element that the graph does not have fails here.
"""

from functools import reduce
from pathlib import Path

import jax
import numpy as np
import onnxruntime
import pytest

from evenline.control import event
from evenline.control.action import action_of
from evenline.control.event import RAW_FEATURES, Array, Batch
from evenline.control.state import (
    MAX_SLOTS,
    PACKED_WIDTH,
    PREFIX,
    SLOT,
    Contract,
    canonical,
    pack,
)
from evenline.learn.hurdle import deterministic, hurdle
from evenline.learn.network import actor_outputs, init_actor
from evenline.learn.plan import Size
from evenline.policies.actor import Actor, ActorPolicy, actor_of, tensor_shapes
from evenline.policies.actor_formula import address_of_formula, numbers_of
from evenline.policies.onnx_graph import current_events, write_onnx
from evenline.rules.chain import ELEMENTS, apply_chain
from evenline.rules.policy import holds_at

SERVICES = 3
CONTRACT = Contract(
    services=("a", "b", "c"),
    stops=(9, 12, 30),
    horizon_s=24_000,
    capacity=60,
    features=RAW_FEATURES,
)
CHAINS = [
    sum(element for i, element in enumerate(ELEMENTS) if number >> i & 1)
    for number in range(2 ** len(ELEMENTS))
]


def an_actor(seed: int, chain: int = 0) -> ActorPolicy:
    """An actor of random widths whose gate is open for half of the states."""
    rng = np.random.default_rng(seed)
    slot, fused, hidden = rng.integers(2, 40, 3).tolist()
    tensors = {
        name: np.asarray(rng.normal(size=shape) * np.sqrt(2.0 / shape[0]), np.float32)
        for name, shape in tensor_shapes(SERVICES, (slot, fused, hidden)).items()
    }
    some = actor_of(tensors, SERVICES).outputs(canonical(moments(seed, 100), CONTRACT))
    tensors["out.b"][:2] -= np.median(some[:, :2], axis=0).astype(np.float32)
    return ActorPolicy("random", actor_of(tensors, SERVICES), CONTRACT, chain)


def moments(seed: int, count: int, widest: int = MAX_SLOTS) -> Array:
    """Packed states of random moments; in some, no bus is behind and few people are on board."""
    rng = np.random.default_rng(seed)
    states = np.empty((count, PACKED_WIDTH))
    for state in states:
        buses = int(rng.integers(1, widest + 1))
        raw = rng.uniform(0.0, 1_200.0, (buses, len(RAW_FEATURES)))
        raw[:, event.SERVICE] = rng.integers(0, SERVICES, buses)
        raw[:, event.STOP] = rng.integers(0, 8, buses)
        raw[:, event.TIME] = rng.integers(0, CONTRACT.horizon_s)
        raw[:, event.ON_BOARD] = rng.choice([0, 5, 15, 16, 50], buses)
        raw[:, event.RATE] = rng.choice([0.0, 0.02], buses)
        raw[:, event.CAPACITY] = rng.choice([0, 60, 60, 60], buses)
        raw[:, [event.BUS_AHEAD, event.BUS_BEHIND]] = rng.random((buses, 2)) < (0.8, 0.4)
        decision = int(rng.integers(buses))
        taken = action_of(rng.choice([0.0, 20.0, 60.0], buses))
        batch = Batch(int(raw[0, event.TIME]), np.zeros(buses, np.int32), raw)
        state[:] = pack(batch, decision, taken)
    return states


def by_definition(actor: Actor, state: Array) -> Array:
    """(gate logit, mu, log_std) of one state, one slot after the other."""

    def layer(x: Array, name: str) -> Array:
        return np.maximum(x @ actor.tensors[f"{name}.w"] + actor.tensors[f"{name}.b"], 0.0)

    prefix, decision = state[:PREFIX].astype(float), round(float(state[2]) * 16)
    hidden: dict[int, Array] = {}
    for k in range(MAX_SLOTS):
        slot = state[PREFIX + k * SLOT : PREFIX + (k + 1) * SLOT].astype(float)
        if slot[0] == 1.0:
            service = np.zeros(actor.services)
            service[int(slot[1])] = 1.0
            position = [float(k == decision), float(k < decision), (k - decision) / 16]
            x = np.concatenate([slot[:1], slot[2:], service, position])
            hidden[k] = layer(layer(x, "slot0"), "slot1")
    slots = np.array(list(hidden.values()))
    before = [h for k, h in hidden.items() if k < decision]
    after = [h for k, h in hidden.items() if k > decision]
    views = [
        hidden[decision],
        slots.mean(axis=0),
        slots.max(axis=0),
        np.mean(before, axis=0) if before else np.zeros(slots.shape[1]),
        np.mean(after, axis=0) if after else np.zeros(slots.shape[1]),
    ]
    x = reduce(layer, ("fuse0", "fuse1", "head0", "head1"), np.concatenate([prefix, *views]))
    gate, mu, log_std = x @ actor.tensors["out.w"] + actor.tensors["out.b"]
    return np.array([gate, mu, np.clip(log_std, -5.0, 2.0)])


def graph(path: Path, policy: ActorPolicy, packed: Array) -> tuple[Array, Array, Array]:
    """Holds, gate logits and mu of the exported graph."""
    write_onnx(path / "actor.onnx", policy)
    session = onnxruntime.InferenceSession(
        str(path / "actor.onnx"), providers=["CPUExecutionProvider"]
    )
    hold_s, logit, mu = session.run(["hold_s", "logit", "mu"], {"state": packed})
    return hold_s, logit, mu


@pytest.mark.parametrize("seed", range(3))
def test_the_four_forms_are_the_network_of_the_definition(seed: int, tmp_path: Path) -> None:
    policy, packed = an_actor(seed), moments(seed, 200)
    actor, states = policy.actor, canonical(packed, CONTRACT)
    expected = np.array([by_definition(actor, state) for state in states])
    assert 0 < (expected[:, 0] < 0.0).sum() < len(states), "the gate is open and closed"

    assert np.allclose(actor.outputs(states), expected, rtol=0, atol=1e-12)

    params = {name: tensor.astype(np.float32) for name, tensor in actor.tensors.items()}
    for packed_slots in (False, True):
        trained = hurdle(actor_outputs(params, jax.numpy.asarray(states), packed_slots))
        learned = np.stack([trained.gate, trained.mean, trained.log_std], axis=1)
        assert np.allclose(learned, expected, rtol=0, atol=1e-4)

    hold_s, logit, mu = graph(tmp_path, policy, packed)
    assert np.allclose(np.stack([logit, mu], axis=1), expected[:, :2], rtol=0, atol=1e-9)
    assert np.allclose(hold_s, actor.proposals_s(states), rtol=0, atol=1e-9)
    clear = np.abs(expected[:, 0]) > 1e-3  # where single precision cannot turn the gate
    share = (np.asarray(deterministic(trained)) + 1.0) / 2.0
    assert np.allclose(60.0 * share[clear], hold_s[clear], atol=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_the_formula_is_the_network_for_a_bus_that_decides_alone(seed: int) -> None:
    policy, packed = an_actor(seed), moments(seed, 100, widest=1)
    expected_s = policy.actor.proposals_s(canonical(packed, CONTRACT))
    formula_s, raw = np.empty(len(packed)), current_events(packed)
    holds_at(address_of_formula(), numbers_of(policy), raw, np.zeros(len(raw)), formula_s)
    assert 0 < (formula_s > 0.0).sum() < len(packed)
    assert np.allclose(formula_s, expected_s, rtol=0, atol=1e-3)  # its state has more digits


@pytest.mark.parametrize("chain", CHAINS)
def test_the_graph_has_every_element_of_a_chain(chain: int, tmp_path: Path) -> None:
    policy, packed = an_actor(0, chain), moments(1, 1_000)
    proposals_s = policy.actor.proposals_s(canonical(packed, CONTRACT))
    expected_s = apply_chain(chain, current_events(packed), proposals_s, CONTRACT.horizon_s)
    if chain in ELEMENTS:
        assert (expected_s != proposals_s).any(), f"the {ELEMENTS[chain]} changes a hold"
    hold_s, _, _ = graph(tmp_path, policy, packed)
    assert np.allclose(hold_s, expected_s, rtol=0, atol=1e-9)


def test_a_new_actor_has_the_tensors_of_the_definition() -> None:
    size = Size(SERVICES, slot=7, fused=11, hidden=5)
    shapes = {name: t.shape for name, t in init_actor(jax.random.key(0), size).items()}
    assert shapes == tensor_shapes(SERVICES, (7, 11, 5))
