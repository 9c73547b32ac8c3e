"""A control that can no longer be run is withdrawn: the trial is closed without its days, the gate
of completeness fails, and every output says so."""

import shutil
from pathlib import Path

import pytest

from evenline.city.embedded import embedded_city
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import actor_spec, save_bundle
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_text
from evenline.trial.closeout import closeout
from evenline.trial.evidence import write_analysis
from evenline.trial.journal import journal
from evenline.trial.matrix import run, standing
from evenline.trial.packed import pack, unpack
from evenline.trial.registration import Trial, open_trial, read_trial, withdraw
from evenline.trial.verify import verify
from made import better_by_ninety, made_up, registered
from reproduce.versions import version_sensitivity

BLOCKS = [(9101, 9201), (9102, 9202)]


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A trial of two blocks; the tensors of its control are lost before the second one."""
    where = tmp_path_factory.mktemp("half")
    town = embedded_city("town")
    spec = actor_spec(town, "raw", {"stable": True})
    save_bundle(where / "actor", spec, random_tensors(len(town.services), 1))
    trial = registered(
        where,
        seeds="[1]",
        levels="[0.75]",
        blocks="{ sumo_seed = 9101, demand_seed = 9201, count = 2 }",
        methods=f'{{ better = "headway", worse = "zero", control = "{where}/actor" }}',
        claim='{ candidate = "better", parent = "worse", level = "0.25", gates = '
        '["completeness", "artifacts", "mean direction", "less time than control"] }',
    )
    assert run(trial.folder, made_up(trial, better_by_ninety)).complete
    for address, job in trial.jobs().items():
        if (job.method, job.block) == ("control", BLOCKS[1]):
            (trial.folder / "records" / f"{address}.json").unlink()
    (trial.folder / "matrix.json").unlink()
    for path in trial.inputs.rglob("*.safetensors"):
        path.unlink()
    return trial


@pytest.fixture
def trial(half_done: Trial, tmp_path: Path) -> Trial:
    return read_trial(Path(shutil.copytree(half_done.folder, tmp_path / "trial")))


def give_up(trial: Trial) -> None:
    withdraw(trial.folder, "control", "its tensors are lost", "A. Tester")


def test_a_trial_without_its_tensors_cannot_go_on_until_the_control_is_withdrawn(
    trial: Trial,
) -> None:
    with pytest.raises(InputError, match=r"tensors\.safetensors differs from the registered file"):
        open_trial(trial.folder)
    assert any("is missing" in line for line in verify(trial.folder).problems)
    give_up(trial)
    progress = standing(open_trial(trial.folder))
    assert (len(progress.done), len(progress.withdrawn), progress.complete) == (5, 1, True)


def test_the_verdict_fails_by_completeness_and_describes_the_days_there_are(trial: Trial) -> None:
    give_up(trial)
    assert run(trial.folder, made_up(trial)).complete
    analysis = write_analysis(trial.folder)
    assert analysis.claim.intersection_union_passed and not analysis.confirmed
    assert analysis.gates == {
        "completeness": False,
        "artifacts": False,  # the registered tensors of the control are gone
        "mean direction": True,
        "less time than control": False,
    }
    assert (analysis.controls["control"].blocks, analysis.claim.primary.blocks) == (1, 2)
    assert any("control: its tensors are lost" in notice for notice in analysis.notices)


def test_a_withdrawn_trial_is_closed_packed_and_verified(trial: Trial, tmp_path: Path) -> None:
    give_up(trial)
    run(trial.folder, made_up(trial))
    write_analysis(trial.folder)
    opinion = verify(trial.folder)
    assert opinion.problems == [] and opinion.report["records"] == 5
    write_text(trial.folder / "verification.json", to_json(opinion.report))
    closed = closeout(trial.folder)
    assert not closed.confirmed
    others = version_sensitivity(
        trial.folder, ["1.25.0"], 2, tmp_path / "versions", made_up(trial, better_by_ninety)
    )
    assert others["1.25.0"].difference.generalized_s == pytest.approx(-90.0)
    packed = pack(trial.folder, tmp_path / "packed")
    assert len(packed.blocks) == 2 and len(packed.detached) == 1
    assert verify(tmp_path / "packed", root=closed.merkle_root).problems == []
    _, missing = unpack(tmp_path / "packed", tmp_path / "again")
    assert len(missing) == 1


def test_a_record_of_the_claim_that_is_missing_is_still_a_problem(trial: Trial) -> None:
    give_up(trial)
    run(trial.folder, made_up(trial))
    address = next(a for a, job in trial.jobs().items() if job.method == "worse")
    (trial.folder / "records" / f"{address}.json").unlink()
    assert any("is missing (worse" in line for line in verify(trial.folder).problems)


@pytest.mark.parametrize(
    ("method", "why", "problem"),
    [
        ("better", "lost", "better is part of the claim and cannot be withdrawn"),
        ("worse", "lost", "worse is part of the claim"),
        ("other", "lost", "unknown method 'other'; choose 'better', 'control' or 'worse'"),
        ("control", " ", "needs a reason"),
    ],
)
def test_what_cannot_be_withdrawn(trial: Trial, method: str, why: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        withdraw(trial.folder, method, why, "A. Tester")
    assert len(journal(trial.folder)) == 1


def test_a_control_is_withdrawn_once(trial: Trial) -> None:
    give_up(trial)
    with pytest.raises(InputError, match="control is already withdrawn"):
        give_up(trial)
