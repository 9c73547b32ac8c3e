"""A registration refuses what was seen before, freezes what it names, and is compared with."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.city.embedded import embedded_city
from evenline.city.tables import digest
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import (
    actor_spec,
    export_bundle,
    policy_digest,
    read_policy,
    save_bundle,
)
from evenline.runs.day import library_versions
from evenline.support.errors import InputError
from evenline.support.files import sha256
from evenline.trial import registration, used
from evenline.trial.journal import journal
from evenline.trial.matrix import run
from evenline.trial.records import Source, read_registered
from evenline.trial.registration import deviate, is_stable, notices, open_trial, register
from evenline.trial.used import note_used, used_by_trials
from evenline.worlds.sumo.network import compiled_network
from made import finished_trial, made_up, plan_text, registered


def blocks(sumo_seed: int, demand_seed: int) -> str:
    return f"{{ sumo_seed = {sumo_seed}, demand_seed = {demand_seed}, count = 6 }}"


@pytest.mark.parametrize("purpose", [name for name in PURPOSES if name != "trial"])
@pytest.mark.parametrize("kind", ["SUMO", "demand"])
def test_a_cell_that_any_purpose_has_touched_is_refused(
    tmp_path: Path, purpose: str, kind: str
) -> None:
    used = PURPOSES[purpose]
    last = used.blocks - 1  # one shared seed is enough, be it the last
    shared = last + (used.sumo_seed if kind == "SUMO" else used.demand_seed)
    seeds = (shared, 9201) if kind == "SUMO" else (9101, shared)
    with pytest.raises(InputError, match=f"{kind} seed {shared}: {purpose} has used it"):
        registered(tmp_path, blocks=blocks(*seeds))
    assert not (tmp_path / "trial").exists()


def test_an_earlier_trial_has_used_its_cells_in_its_city_only(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    plan, ledger = tmp_path / "plan.toml", tmp_path / "used-cells.json"
    plan.write_text(plan_text(name='"again"', blocks=blocks(9106, 9301)))
    with pytest.raises(InputError, match="SUMO seed 9106: trial 'small' has used it"):
        register(plan, tmp_path / "again", ledger)
    plan.write_text(plan_text(name='"elsewhere"', city='"city"'))
    register(plan, tmp_path / "elsewhere", ledger)
    assert [entry.name for entry in used_by_trials(ledger)] == ["small", "elsewhere"]
    assert used_by_trials(ledger)[0].trial == trial.sha256


def test_a_folder_is_registered_into_once(tmp_path: Path) -> None:
    registered(tmp_path)
    with pytest.raises(InputError, match="already exists"):
        register(tmp_path / "plan.toml", tmp_path / "trial", tmp_path / "other-ledger.json")


def test_everything_the_claim_depends_on_is_in_the_file(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    file = json.loads((trial.folder / "trial.json").read_text())
    claim = file["plan"]["claim"]
    assert (claim["candidate"], claim["parent"], claim["required_wins"]) == ("better", "worse", 6)
    assert (claim["endpoint"], claim["direction"]) == ("generalized_s", "lower")
    assert (claim["completion_margin"], claim["level"], claim["ties"]) == (
        *("0.003", "0.025", "nonwins"),
    )
    assert file["city"]["digest"] == digest(embedded_city("town"))
    assert [policy["digest"] for policy in file["policies"]] == [
        policy_digest(name) for name in ("headway-1.0", "headway-0.7", "zero", "myopic")
    ]
    assert file["jobs"] == len(trial.jobs()) == 48
    assert file["evaluator"]["files"]["worlds/sumo/world.py"]
    assert file["versions"] == library_versions() and file["calibration"]
    assert file["network"] == compiled_network(embedded_city("town")).sha256
    assert not (trial.folder / "records").exists()


def test_jobs_that_behave_alike_are_not_merged(tmp_path: Path) -> None:
    trial = registered(tmp_path, methods='{ better = "zero", worse = "zero" }')
    assert len(trial.jobs()) == 24


@pytest.mark.parametrize("stable", [True, False])
def test_a_look_ahead_over_an_actor_is_as_stable_as_the_actor(tmp_path: Path, stable: bool) -> None:
    town = embedded_city("town")
    spec = actor_spec(town, "raw", {"stable": stable})
    save_bundle(tmp_path / "actor", spec, random_tensors(len(town.services), 1))
    base, fitted = str(tmp_path / "actor"), calibration_of(town)
    bundle = export_bundle(tmp_path / "look", "lookahead", town, None, {}, fitted, base=base)
    assert is_stable(bundle.spec) is stable
    assert is_stable(read_policy("lookahead").spec)


def test_a_bundle_travels_with_the_trial_and_must_be_on_record_as_stable(tmp_path: Path) -> None:
    town = embedded_city("town")
    for seed, stable in ((1, True), (2, False)):
        spec = actor_spec(town, "candidate", {"stable": stable})
        save_bundle(tmp_path / f"actor-{seed}", spec, random_tensors(len(town.services), seed))
    source = f'"{tmp_path}/actor-{{seed}}"'
    trial = registered(tmp_path / "own", methods=f'{{ better = {source}, worse = "zero" }}')
    shutil.rmtree(tmp_path / "actor-1")
    first, second = (p for p in trial.registered.policies if p.method == "better")
    assert sorted(first.files) == ["hashes.json", "policy.json", "tensors.safetensors"]
    assert (first.stable, second.stable) == (True, False)
    assert policy_digest(str(trial.inputs / first.path)) == first.digest
    (trial.inputs / first.path / "tensors.safetensors").write_bytes(b"other")
    with pytest.raises(InputError, match=r"tensors.safetensors differs from the registered file"):
        open_trial(trial.folder)


def test_an_unknown_policy_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown policy 'nobody'"):
        registered(tmp_path, methods='{ better = "nobody", worse = "zero" }')
    assert not (tmp_path / "trial").exists() and not (tmp_path / "used-cells.json").exists()


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        ("[0.75, 9.0]", "demand 9.0: town has journeys up to demand 1.25"),
        ("[0.0, 1.0]", "demand 0.0: no passenger travels at this level"),
    ],
)
def test_a_level_that_no_day_of_the_city_has_is_refused_before_anything_is_written(
    tmp_path: Path, levels: str, problem: str
) -> None:
    with pytest.raises(InputError, match=f"plan.toml: levels: {problem}"):
        registered(tmp_path, levels=levels)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


@pytest.mark.parametrize("name", ["trial.json", "plan.toml", "inputs/city/trips.csv"])
def test_a_changed_file_stops_every_later_command_and_is_named(tmp_path: Path, name: str) -> None:
    trial = registered(tmp_path)
    path = trial.folder / name
    path.chmod(0o644)
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(InputError, match=f"{name}:? "):
        open_trial(trial.folder)


def change_source(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a file of ours look changed."""

    def changed(files: dict[str, str]) -> dict[str, str]:
        return {file: "0" * 64 if file == name else digest for file, digest in files.items()}

    evaluator, analyser = registration.evaluator_files(), registration.analyser_files()
    monkeypatch.setattr(registration, "evaluator_files", lambda: changed(evaluator))
    monkeypatch.setattr(registration, "analyser_files", lambda: changed(analyser))


@pytest.mark.parametrize("name", ["worlds/sumo/world.py", "trial/analyse.py"])
def test_changed_source_stops_the_trial_until_it_is_signed_off_for_all_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trial = registered(tmp_path)
    change_source(monkeypatch, name)
    with pytest.raises(InputError, match=f"evenline/{name} differs from the registered source"):
        open_trial(trial.folder)
    deviate(trial.folder, "a spelling mistake in a comment", "A. Person")
    assert open_trial(trial.folder) == trial
    (notice,) = notices(trial.folder)
    assert "A. Person): a spelling mistake in a comment" in notice and name in notice
    monkeypatch.undo()
    change_source(monkeypatch, "control/ledger.py")
    with pytest.raises(InputError, match="control/ledger"):
        open_trial(trial.folder)


def test_a_changed_help_text_is_no_deviation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = registered(tmp_path)
    for name in ("cli/trial.py", "report/page.py", "study/steps.py", "figures/plots.py"):
        assert name not in trial.registered.evaluator.files
        change_source(monkeypatch, name)
        assert open_trial(trial.folder) == trial


def test_an_own_rule_is_copied_hashed_and_run_from_the_copy(tmp_path: Path) -> None:
    rule = tmp_path / "mine.py"
    rule.write_text("def half(bus):\n    return 30.0\n")
    trial = registered(tmp_path, methods=f'{{ better = "{rule}:half", worse = "zero" }}')
    (mine, _) = trial.registered.policies
    copy = trial.inputs / mine.path.partition(":")[0]
    assert copy.read_bytes() == rule.read_bytes() and mine.files == {copy.name: sha256(copy)}
    rule.write_text("raise SystemExit\n")
    assert policy_digest(str(trial.inputs / mine.path)) == mine.digest, "the copy stands alone"
    copy.write_text(copy.read_text().replace("30.0", "31.0"))
    with pytest.raises(InputError, match=rf"{copy.name} differs from the registered file"):
        open_trial(trial.folder)


def test_an_own_rule_that_imports_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("HOLD_S = 5.0\n")
    rule = tmp_path / "mine.py"
    rule.write_text("from helper import HOLD_S\ndef f(bus):\n    return HOLD_S\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(InputError, match="imports helper, which is not an installed package"):
            registered(tmp_path, methods=f'{{ better = "{rule}:f", worse = "zero" }}')
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("helper")


def test_other_library_versions_stop_the_trial_before_any_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = registered(tmp_path)
    monkeypatch.setattr(registration, "library_versions", lambda: {"numba": "1", "numpy": "2"})
    with pytest.raises(InputError, match="numba 1 and numpy 2 is installed"):
        open_trial(trial.folder)


def test_a_deviation_needs_a_reason_and_a_name(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    with pytest.raises(InputError, match="needs a reason"):
        deviate(trial.folder, "  ", "A. Person")


def test_another_machine_with_other_files_cannot_contribute(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    other = structs.replace(trial.registered, evaluator=Source(sha256="f" * 64, files={}))
    stranger = replace(trial, registered=other)
    progress = run(trial.folder, made_up(stranger))
    assert len(progress.quarantined) == 48 and not progress.done
    error = json.loads(next((trial.folder / "quarantine").iterdir()).read_text())["errors"][-1]
    assert error.startswith("made-up has other source files of evenline than registered")


def test_a_day_on_another_network_cannot_contribute(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    other = structs.replace(trial.registered, network="f" * 64)
    progress = run(trial.folder, made_up(replace(trial, registered=other)))
    assert len(progress.quarantined) == 48 and not progress.done
    error = json.loads(next((trial.folder / "quarantine").iterdir()).read_text())["errors"][-1]
    assert error.startswith(f"made-up has another network than registered: {'f' * 64}")


def test_a_line_taken_out_of_the_journal_is_missed(tmp_path: Path) -> None:
    trial = finished_trial(tmp_path)
    deviate(trial.folder, "the first", "A. Person")
    deviate(trial.folder, "the second", "A. Person")
    path = trial.folder / "journal.jsonl"
    first, _, third = path.read_text().splitlines(keepends=True)
    path.write_text(first + third)
    with pytest.raises(InputError, match="line 2 does not contain the hash"):
        journal(trial.folder)


def test_a_registration_of_an_earlier_version_opens_and_means_sumo(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    path = trial.folder / "trial.json"
    file = json.loads(path.read_text())
    assert file["plan"].pop("world") == "sumo"
    path.chmod(0o644)
    path.write_text(json.dumps(file))
    assert read_registered(trial.folder) == trial.registered


# -- cells that published trials have used --------------------------------------------------------


def test_a_published_trial_has_used_its_cells_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, published = registered(tmp_path / "one"), tmp_path / "published.json"
    monkeypatch.setattr(used, "PUBLISHED", published)
    note_used(published, trial.used)
    note_used(published, trial.used)
    assert used_by_trials(published) == (trial.used,)
    with pytest.raises(InputError, match=r"SUMO seed 9101: trial 'small' has used it \(published"):
        registered(tmp_path / "two", levels="[0.75]")
    again = registered(tmp_path / "three")
    (notice,) = notices(again.folder)
    assert notice == (
        f"repeats trial {trial.sha256}: the same plan has used these days, so they are not fresh"
    )


def register_together(
    where: Path, plans: list[Path], folders: list[Path], lists: list[Path]
) -> int:
    """Register in processes that are released together; returns how many succeeded."""
    program = (
        "import sys, time; from pathlib import Path\n"
        "from evenline.trial.registration import register\n"
        "plan, folder, ledger, gate = map(Path, sys.argv[1:])\n"
        "gate.with_name(plan.stem + '.ready').touch()\n"
        "while not gate.exists(): time.sleep(0.001)\n"
        "register(plan, folder, ledger)\n"
    )
    gate = where / "gates" / "go"
    gate.parent.mkdir()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, *map(str, places), str(gate)], stderr=subprocess.DEVNULL
        )
        for places in zip(plans, folders, lists, strict=True)
    ]
    while len(list(gate.parent.glob("*.ready"))) < len(running):
        assert all(process.poll() is None for process in running)
        time.sleep(0.01)
    gate.touch()
    return sum(process.wait() == 0 for process in running)


def test_of_many_registrations_at_once_into_one_folder_one_succeeds(tmp_path: Path) -> None:
    """Each has a list of its own, so that only the folder is shared."""
    plans = [tmp_path / f"plan-{number}.toml" for number in range(3)]
    for plan in plans:
        plan.write_text(plan_text(name=f'"{plan.stem}"'))
    lists = [tmp_path / plan.stem / "used-cells.json" for plan in plans]
    assert register_together(tmp_path, plans, [tmp_path / "trial"] * 3, lists) == 1


def test_the_former_trials_of_city_are_published() -> None:
    published = {entry.blocks[0]: entry for entry in used_by_trials(used.PUBLISHED)}
    for first in ((8131, 8231), (8141, 8241)):
        assert (
            published[first].name.startswith("city-taught") and len(published[first].blocks) == 10
        )


def test_the_published_list_is_no_source_of_a_trial(tmp_path: Path) -> None:
    """Otherwise publishing one trial would change the source of all others."""
    frozen = registered(tmp_path).registered
    files = [*frozen.evaluator.files, *frozen.analyser.files]
    assert not any(name.endswith(".json") or name == "trial/used.py" for name in files)
