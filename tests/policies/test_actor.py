"""The frozen actor: its proposals, alone and in company. `test_one_network` compares its forms."""

import time

import numpy as np
import pytest

from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.control.state import MAX_SLOTS, PREFIX, SLOT, canonical, contract_of
from evenline.control.world import run_episode
from evenline.policies.actor import actor_of, random_tensors, tensor_shapes
from evenline.runs.day import run_fleet
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld, Fleet
from small_actors import sigmoid, town, town_states, untrained


def states() -> np.ndarray:
    return canonical(town_states(), contract_of(town()))


def test_twelve_services_make_the_papers_widths() -> None:
    shapes = tensor_shapes(12)
    assert shapes["slot0.w"] == (28, 128) and shapes["fuse0.w"] == (645, 256)
    assert shapes["out.w"] == (256, 3) and len(shapes) == 14


def test_a_proposal_is_a_share_of_a_minute_or_exactly_nothing() -> None:
    actor, some = untrained().actor, states()
    out, proposals = actor.outputs(some), actor.proposals_s(some)
    closed = out[:, 0] < 0
    assert (proposals[closed] == 0.0).all()
    assert np.allclose(proposals[~closed], 60.0 * sigmoid(out[~closed, 1]), atol=1e-12)
    assert 0 < closed.sum() < len(closed), "both an open and a closed gate were seen"


def test_inactive_slots_change_nothing() -> None:
    actor, some = untrained().actor, states()
    noisy = some.copy()
    slots = noisy[:, PREFIX:].reshape(len(some), MAX_SLOTS, SLOT)
    idle = slots[:, :, 0] == 0.0
    slots[:, :, 1:][idle] = np.random.default_rng(0).normal(size=(idle.sum(), SLOT - 1))
    assert np.array_equal(actor.outputs(noisy), actor.outputs(some))


def test_a_state_is_judged_alone_as_in_company() -> None:
    actor, some = untrained().actor, states()
    alone = np.concatenate([actor.outputs(some[i : i + 1]) for i in range(len(some))])
    assert np.allclose(alone, actor.outputs(some), rtol=0, atol=1e-12)


@pytest.mark.parametrize("chain", ["raw", "candidate"])
def test_a_fleet_of_days_comes_out_as_each_day_alone(chain: str) -> None:
    cells = PURPOSES["development"].cells(1)
    calibration = calibration_of(town())
    fleet, policy = Fleet(town(), calibration, len(cells)), untrained(chain)
    run_fleet(fleet, cells, policy)
    world = FastWorld(town(), calibration)
    for w, cell in enumerate(cells):
        alone = run_episode(world, cell, policy).as_dict()
        assert fleet.outcome(w).as_dict() == pytest.approx(alone, rel=1e-12)


def test_one_decision_takes_well_under_a_millisecond() -> None:
    """The 99th percentile of the processor's time: what else the machine does is left out."""
    actor, some = untrained().actor, states()
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
