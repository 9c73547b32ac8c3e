"""The frozen actor against its definition, written out slot by slot."""

import time

import numpy as np
import pytest

from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.control.state import MAX_SLOTS, PREFIX, SLOT, canonical, contract_of
from evenline.control.world import run_episode
from evenline.policies.actor import Actor, actor_of, random_tensors, tensor_shapes
from evenline.runs.day import run_fleet
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld, Fleet
from small_actors import controller, sigmoid, town, town_states


def states() -> np.ndarray:
    return canonical(town_states(), contract_of(town()))


def by_definition(actor: Actor, state: np.ndarray) -> np.ndarray:
    """(gate logit, mu, log_std) of one state, one slot after the other."""

    def layer(name: str, x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ actor.tensors[f"{name}.w"] + actor.tensors[f"{name}.b"], 0.0)

    prefix, token = state[:PREFIX].astype(float), round(float(state[2]) * 16)
    hidden: dict[int, np.ndarray] = {}
    for k in range(MAX_SLOTS):
        slot = state[PREFIX + k * SLOT : PREFIX + (k + 1) * SLOT].astype(float)
        if slot[0] == 1.0:
            service = np.zeros(actor.services)
            service[int(slot[1])] = 1.0
            place = [float(k == token), float(k < token), (k - token) / 16]
            x = np.concatenate([slot[:1], slot[2:13], slot[13:], service, place])
            hidden[k] = layer("slot1", layer("slot0", x))
    every = np.array(list(hidden.values()))
    nothing = np.zeros(128)
    before = [h for k, h in hidden.items() if k < token]
    after = [h for k, h in hidden.items() if k > token]
    views = [
        hidden[token],
        every.mean(axis=0),
        every.max(axis=0),
        np.mean(before, axis=0) if before else nothing,
        np.mean(after, axis=0) if after else nothing,
    ]
    x = np.concatenate([prefix, *views])
    for name in ("fuse0", "fuse1", "head0", "head1"):
        x = layer(name, x)
    out = x @ actor.tensors["out.w"] + actor.tensors["out.b"]
    return np.array([out[0], out[1], np.clip(out[2], -5.0, 2.0)])


def test_outputs_are_those_of_the_definition() -> None:
    actor, some = controller().actor, states()
    assert (some[:, PREFIX + SLOT] == 1.0).sum() > 50, "batches of several buses are among them"
    expected = np.array([by_definition(actor, state) for state in some])
    assert np.allclose(actor.outputs(some), expected, rtol=0, atol=1e-12)


def test_the_learner_means_the_same_by_its_tensors() -> None:
    """What is trained in JAX proposes the same holds here, to single precision."""
    network = pytest.importorskip("evenline.learn.network")
    actor, some = controller().actor, states()
    params = {name: tensor.astype(np.float32) for name, tensor in actor.tensors.items()}
    theirs = np.asarray(network.actor_outputs(params, some, False))
    mine = actor.outputs(some)
    assert np.allclose(theirs[:, :2], mine[:, :2], rtol=0, atol=1e-4)


def test_twelve_services_make_the_papers_widths() -> None:
    shapes = tensor_shapes(12)
    assert shapes["slot0.w"] == (28, 128) and shapes["fuse0.w"] == (645, 256)
    assert shapes["out.w"] == (256, 3) and len(shapes) == 14


def test_a_proposal_is_a_share_of_a_minute_or_exactly_nothing() -> None:
    actor, some = controller().actor, states()
    out, proposals = actor.outputs(some), actor.proposals_s(some)
    closed = out[:, 0] < 0
    assert (proposals[closed] == 0.0).all()
    assert np.allclose(proposals[~closed], 60.0 * sigmoid(out[~closed, 1]), atol=1e-12)
    assert 0 < closed.sum() < len(closed), "both an open and a closed gate were seen"


def test_inactive_slots_change_nothing() -> None:
    actor, some = controller().actor, states()
    noisy = some.copy()
    slots = noisy[:, PREFIX:].reshape(len(some), MAX_SLOTS, SLOT)
    idle = slots[:, :, 0] == 0.0
    slots[:, :, 1:][idle] = np.random.default_rng(0).normal(size=(idle.sum(), SLOT - 1))
    assert np.array_equal(actor.outputs(noisy), actor.outputs(some))


def test_a_state_is_judged_alone_as_in_company() -> None:
    actor, some = controller().actor, states()
    alone = np.concatenate([actor.outputs(some[i : i + 1]) for i in range(len(some))])
    assert np.allclose(alone, actor.outputs(some), rtol=0, atol=1e-12)


@pytest.mark.parametrize("chain", ["raw", "candidate"])
def test_a_fleet_of_days_comes_out_as_each_day_alone(chain: str) -> None:
    cells = PURPOSES["development"].cells(1)
    calibration = calibration_of(town())
    fleet, policy = Fleet(town(), calibration, len(cells)), controller(chain)
    run_fleet(fleet, cells, policy)
    world = FastWorld(town(), calibration)
    for w, cell in enumerate(cells):
        alone = run_episode(world, cell, policy).as_dict()
        assert fleet.outcome(w).as_dict() == pytest.approx(alone, rel=1e-12)


def test_one_decision_takes_well_under_a_millisecond() -> None:
    """The 99th percentile of the processor's time: what else the machine does is left out."""
    actor, some = controller().actor, states()
    spent = []
    for i in range(len(some)):
        began = time.thread_time()
        actor.proposals_s(some[i : i + 1])
        spent.append(time.thread_time() - began)
    assert np.percentile(spent, 99) < 1e-3


def test_tensors_of_the_wrong_make_are_refused() -> None:
    good = random_tensors(4, 0)
    broken = {
        "tensor slot0.w has float32": good | {"slot0.w": good["slot0.w"][:-1]},
        "tensor out.b has float64": good | {"out.b": good["out.b"].astype(float)},
        "tensor extra: unknown": good | {"extra": good["out.b"]},
        "tensor out.b: missing": {name: t for name, t in good.items() if name != "out.b"},
        "tensor fuse0.b contains a value that is not finite": good
        | {"fuse0.b": np.full_like(good["fuse0.b"], np.nan)},
    }
    for message, tensors in broken.items():
        with pytest.raises(InputError, match=message):
            actor_of(tensors, 4)
