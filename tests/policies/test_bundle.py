"""Bundles: what is saved comes back, what was touched is refused, nothing is executed."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from calibrated import calibration_of, policy_in
from evenline.city.cells import PURPOSES
from evenline.city.embedded import embedded_city
from evenline.control.state import contract_of
from evenline.control.world import run_episode
from evenline.policies.bundle import (
    HASHES,
    TENSORS,
    export_bundle,
    load_bundle,
    open_policy,
    policy_digest,
    read_policy,
    rule_spec,
    save_bundle,
)
from evenline.policies.names import BUILT_IN, POLICY
from evenline.rules.policy import BEHAVIOURS, RulePolicy
from evenline.support.errors import InputError
from evenline.support.files import sha256
from evenline.worlds.fast.world import FastWorld
from small_actors import save_actor, town
from spoilt_bundles import rehash, rewrite

CELL = PURPOSES["development"].cells(1)[0]


def day(policy: Any) -> Any:
    return run_episode(FastWorld(town(), calibration_of(town())), CELL, policy)


@pytest.mark.parametrize("name", ["forward", "schedule", "virtual-schedule", "headway"])
def test_an_exported_rule_does_what_the_built_in_one_does(name: str, tmp_path: Path) -> None:
    fitted = calibration_of(town())
    export_bundle(tmp_path / "rule", name, town(), "candidate", {"made": "here"}, fitted)
    kept = open_policy(str(tmp_path / "rule"), town())
    assert kept.name == "rule"
    assert day(kept) == day(policy_in(f"{name}+candidate", town()))


def test_an_actor_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor", "parent")
    bundle = load_bundle(folder)
    assert bundle.spec.chain == "parent" and bundle.spec.provenance == {"trained": "no"}
    again = tmp_path / "again"
    save_bundle(again, bundle.spec, bundle.tensors)
    for name in (POLICY, TENSORS, HASHES):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_bare_tensors_become_a_bundle_with_the_citys_contract(tmp_path: Path) -> None:
    tensors = save_actor(tmp_path / "actor", seed=3) / TENSORS
    export_bundle(tmp_path / "made", str(tensors), town(), "parent", {"learner": "none"})
    made = load_bundle(tmp_path / "made")
    assert made.spec.chain == "parent"
    assert made.spec.provenance == {"learner": "none", "tensors_sha256": sha256(tensors)}
    assert day(open_policy(str(tmp_path / "made"), town())).decisions > 400
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    with pytest.raises(InputError, match="cannot be read"):
        export_bundle(tmp_path / "n", str(tmp_path / "noise.safetensors"), town(), None, {})


def test_every_behaviour_is_a_policy_by_name() -> None:
    for name, rule in BEHAVIOURS.items():
        policy = policy_in(name, town())
        assert policy.name == name
        assert isinstance(policy, RulePolicy)
        assert (policy.rule, policy.values) == (rule.rule, rule.values)


def test_an_unknown_policy_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"policy 'no-such'; choose 'zero'.*'lookahead'"):
        open_policy("no-such", town())
    with pytest.raises(InputError, match="chain 'v9'"):
        open_policy("zero+v9", town())


@pytest.mark.parametrize("more", ["+candidate", ":gain=0.9", "+v9"])
def test_what_is_added_to_a_bundles_path_is_carried_out_or_refused(
    more: str, tmp_path: Path
) -> None:
    folder = str(save_actor(tmp_path / "actor"))
    with suppress(InputError):
        assert policy_digest(f"{folder}{more}") != policy_digest(folder), "ignored in silence"


# -- digests --------------------------------------------------------------------------------------


def test_digests_tell_what_differs_and_nothing_else(tmp_path: Path) -> None:
    digests = {name: policy_digest(name) for name in BUILT_IN}
    assert digests.pop("headway") == digests["headway-1.0"]
    assert len(set(digests.values())) == len(digests)
    assert policy_digest("zero+candidate") != policy_digest("zero")
    one, same = save_actor(tmp_path / "one"), save_actor(tmp_path / "same")
    other, chained = save_actor(tmp_path / "o", seed=1), save_actor(tmp_path / "c", "candidate")
    assert policy_digest(str(one)) == policy_digest(str(same))
    assert len({policy_digest(str(folder)) for folder in (one, other, chained)}) == 3


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [POLICY, TENSORS, HASHES])
def test_a_bundle_of_links_to_what_never_ends_is_refused(name: str, tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    os.mkfifo(tmp_path / "pipe")
    shutil.copy(folder / name, tmp_path / "copy")
    for place in ("/dev/zero", tmp_path / "pipe", tmp_path / "copy"):
        (folder / name).unlink()
        (folder / name).symlink_to(place)
        with pytest.raises(InputError, match=r"is not a regular|is a link out|does not list the"):
            load_bundle(folder)


@pytest.mark.parametrize("name", [POLICY, TENSORS])
def test_a_changed_file_is_refused(name: str, tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    content = bytearray((folder / name).read_bytes())
    at = content.rindex(b"trained") if name == POLICY else len(content) - 1
    content[at] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} has changed since it was saved"):
        load_bundle(folder)


@pytest.mark.parametrize("name", [POLICY, TENSORS, HASHES])
def test_a_missing_file_is_refused(name: str, tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    (folder / name).unlink()
    with pytest.raises(InputError):
        read_policy(str(folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chain": "v21"}, "chain 'v21'"),
        ({"format": "evenline-policy-9"}, "format is not 'evenline-policy-1'"),
        ({"code": "0" * 64}, "a bundle contains no code"),
        ({"kind": "own"}, "a bundle contains no code"),
        (
            {"constants": {"gain": 1.0}},
            "unexpected constant 'gain'; a policy of kind actor has none",
        ),
    ],
)
def test_a_specification_of_another_make_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = save_actor(tmp_path / "actor")
    rewrite(folder, change)
    with pytest.raises(InputError, match=message):
        load_bundle(folder)


def test_tensors_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    tensors = safetensors.numpy.load((folder / TENSORS).read_bytes())
    tensors["out.w"] = tensors["out.w"][:, :2].copy()
    (folder / TENSORS).write_bytes(safetensors.numpy.save(tensors))
    rehash(folder)
    with pytest.raises(InputError, match=r"tensor out\.w"):
        load_bundle(folder)


def test_what_is_no_safetensors_file_is_refused_and_never_run(tmp_path: Path) -> None:
    """A pickle that would leave a mark if anything unpickled it."""
    folder, mark = save_actor(tmp_path / "actor"), tmp_path / "mark"
    (folder / TENSORS).write_bytes(f"cos\nsystem\n(S'touch {mark}'\ntR.".encode())
    rehash(folder)
    with pytest.raises(InputError, match="cannot be read"):
        load_bundle(folder)
    assert not mark.exists()


def test_another_city_is_refused(tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    with pytest.raises(InputError, match="was made for a city with different services"):
        open_policy(str(folder), embedded_city("city"))


def test_other_features_are_refused(tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    spec = json.loads((folder / POLICY).read_text())
    rewrite(folder, {"contract": spec["contract"] | {"features": ["time_s"]}})
    with pytest.raises(InputError, match="was made for a city with different features"):
        open_policy(str(folder), town())


def test_a_rule_that_needs_a_timetable_is_refused_without(tmp_path: Path) -> None:
    spec = rule_spec("schedule", {"slack_s": 2.0}, "raw", town(), {})
    stops = sum(contract_of(town()).stops)
    with pytest.raises(InputError, match=f"timetable_s, with {stops} numbers"):
        save_bundle(tmp_path / "a", spec, {})
    with pytest.raises(InputError, match="finite float64"):
        save_bundle(tmp_path / "b", spec, {"timetable_s": np.full(stops, np.nan)})
    with pytest.raises(InputError, match="kind rule has none"):
        save_bundle(tmp_path / "c", rule_spec("zero", {}, "raw", town(), {}), {"x": np.zeros(1)})
    assert not list(tmp_path.iterdir())


def test_a_bundle_replaces_no_folder_that_is_not_one(tmp_path: Path) -> None:
    folder = save_actor(tmp_path / "actor")
    save_actor(tmp_path / "actor", seed=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"has no policy\.json"):
        save_actor(tmp_path / "mine")
    shutil.copytree(folder, tmp_path / "moved")
    assert policy_digest(str(tmp_path / "moved")) == policy_digest(str(folder))
    assert os.listdir(tmp_path / "mine") == ["letter.txt"]
