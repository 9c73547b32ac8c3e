"""The second program stands alone, agrees with the first, and finds whatever was tampered with."""

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrated import calibration_of
from evenline.city.demand import Cell
from evenline.city.embedded import embedded_city
from evenline.policies.actor import random_tensors
from evenline.policies.bundle import actor_spec, export_bundle, save_bundle
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import read_json, to_json, write_text
from evenline.support.records import plain
from evenline.trial import verify as module
from evenline.trial.analyse import analyse, endpoints_of
from evenline.trial.closeout import closeout, root_of
from evenline.trial.evidence import write_analysis
from evenline.trial.matrix import run, seal_of
from evenline.trial.plan import GATES, Claim
from evenline.trial.records import Day, JobRecord
from evenline.trial.registration import Trial, deviate
from evenline.trial.verify import verify
from made import day, finished_trial, made_up, registered

PROGRAM = Path(module.__file__)


def analysed(where: Path, **changes: str) -> Trial:
    """A trial with a complete matrix, both analyses written, and not closed."""
    trial = finished_trial(where, **changes)
    write_analysis(trial.folder)
    opinion = verify(trial.folder)
    assert opinion.problems == []
    write_text(trial.folder / "verification.json", to_json(opinion.report))
    return trial


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """An analysed trial with a bundle in it. Not to be changed."""
    where, town = tmp_path_factory.mktemp("whole"), embedded_city("town")
    spec = actor_spec(town, "raw", {"stable": True})
    save_bundle(where / "actor", spec, random_tensors(len(town.services), 1))
    methods = f'{{ better = "{where}/actor", worse = "zero", control = "myopic" }}'
    return analysed(where, methods=methods)


@pytest.fixture
def folder(whole: Trial, tmp_path: Path) -> Path:
    """A copy of it for a test to change."""
    return Path(shutil.copytree(whole.folder, tmp_path / "trial"))


def records(folder: Path) -> list[Path]:
    return sorted((folder / "records").iterdir())


def rewrite(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file by hand."""
    value = read_json(path)
    change(value)
    path.chmod(0o644)
    path.write_text(to_json(value))


def reseal(record: dict[str, Any]) -> None:
    """Make a record's seals those of its content, as a careful forger would."""
    del record["record_sha256"], record["result_sha256"]
    inner = {key: value for key, value in record.items() if key not in ("trial", "run")}
    record["result_sha256"] = seal_of(inner)
    record["record_sha256"] = seal_of(record)


def problems(folder: Path, where: object, what: str) -> list[str]:
    """The problems that are told of a place; a failing test shows them all."""
    problems = verify(folder).problems
    print(*problems, sep="\n")
    return [line for line in problems if str(where) in line and what in line]


# -- agreement ------------------------------------------------------------------------------------


def test_it_imports_nothing_but_the_standard_library() -> None:
    for node in ast.walk(ast.parse(PROGRAM.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "evenline"]
        else:
            continue
        assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), names


def test_it_runs_alone_anywhere(folder: Path, tmp_path: Path) -> None:
    program = shutil.copy(PROGRAM, tmp_path / "verify.py")
    command = [sys.executable, "-I", "-S", str(program), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "36 records checked, no problems\n"), ended
    records(folder)[0].unlink()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "is missing (" in ended.stdout


def test_both_programs_come_to_the_same_figures(whole: Trial) -> None:
    first, second = read_json(whole.folder / "analysis.json"), verify(whole.folder).report
    for part in ("claim", "gates", "confirmed", "means", "difference", "by_level", "by_seed"):
        assert first[part] == second[part]
    assert first["confirmed"] and second["analysis_agrees"]


def job_record(row: dict[str, Any]) -> JobRecord:
    """A record with nothing in it but what the analysis reads."""
    empty = dict.fromkeys(JobRecord.__struct_fields__)
    return JobRecord(**empty | row | {"cell": Cell(**row["cell"]), "outcome": Day(**day_of(row))})


def day_of(row: dict[str, Any]) -> dict[str, int]:
    return {name: row["outcome"][name] for name in Day.__struct_fields__}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 40]))
def test_both_programs_come_to_the_same_figures_on_any_days(seed: int, spread: int) -> None:
    """A small spread makes ties; whole blocks may tie, and the margin may be met exactly."""
    rng = np.random.Generator(np.random.PCG64(seed))
    gates = (*GATES, "less time than c", "less time than c in 2 of 6 blocks")
    beside = tuple(f"less time than c in {wins} of 6 blocks" for wins in (1, 3, 4, 5, 6))
    claim = Claim(candidate="a", parent="b", required_wins=6, gates=gates, robustness=beside)
    plan = {
        "claim": plain(claim),
        "seeds": [1, 2],
        "levels": [0.75, 1.25],
        "blocks": [[9101 + i, 9201 + i] for i in range(6)],
        "methods": {"a": [], "b": [], "c": []},
    }
    trial = {"plan": plan, "jobs": 72, "policies": []}
    records = []
    for sumo_seed, demand_seed in plan["blocks"]:
        for level in plan["levels"]:
            cell = {"sumo_seed": sumo_seed, "demand_seed": demand_seed, "demand": level}
            departed = int(rng.integers(1, 4)) * 1_000
            for method in plan["methods"]:
                for training_seed in plan["seeds"]:
                    waiting, riding = (int(n) for n in rng.integers(0, spread, 2) * 1_000)
                    outcome = {
                        "departed": departed,
                        "completed": departed - int(rng.integers(0, spread + 1)) * 3,
                        "waiting_s": waiting,
                        "riding_s": riding,
                        "cost": 2 * waiting + riding,
                    }
                    records.append(
                        {"method": method, "seed": training_seed, "cell": cell, "outcome": outcome}
                    )
    sound = {"completeness": True, "artifacts": True, "stability": True}
    first = plain(analyse(endpoints_of(map(job_record, records), plan["seeds"]), claim, sound))
    opinion = module.Opinion()
    module.compare("analysis", module.recompute(trial, records), first, opinion)
    assert opinion.problems == []


@pytest.mark.parametrize("level", ["1e999999999", "0." + "1" * 9_999, "1/3", "nan", ""])
def test_a_forged_level_is_refused_at_once(level: str) -> None:
    with pytest.raises(ValueError, match="is not a decimal number"):
        module.sign_test(3, {"level": level}, 10)


def test_a_denied_claim_is_verified_as_denied(tmp_path: Path) -> None:
    trial = finished_trial(tmp_path, day)
    assert not write_analysis(trial.folder).confirmed
    opinion = verify(trial.folder)
    assert opinion.problems == [] and not opinion.report["confirmed"]
    assert opinion.report["claim"]["primary"]["wins"] == 0, "equal days are ties"


def test_an_unstable_training_fails_its_gate_in_both(tmp_path: Path) -> None:
    town = embedded_city("town")
    spec = actor_spec(town, "raw", {})
    save_bundle(tmp_path / "actor", spec, random_tensors(len(town.services), 1))
    methods = f'{{ better = "{tmp_path}/actor", worse = "zero" }}'
    trial = finished_trial(tmp_path, methods=methods)
    assert write_analysis(trial.folder).gates["stability"] is False
    assert verify(trial.folder).problems == []


@pytest.mark.parametrize("stable", [True, False])
def test_the_training_of_a_look_aheads_base_counts_in_both(tmp_path: Path, stable: bool) -> None:
    town = embedded_city("town")
    spec = actor_spec(town, "raw", {"stable": True} if stable else {})
    save_bundle(tmp_path / "actor", spec, random_tensors(len(town.services), 1))
    base, fitted = str(tmp_path / "actor"), calibration_of(town)
    export_bundle(tmp_path / "look", "lookahead", town, None, {}, fitted, base=base)
    methods = f'{{ better = "{tmp_path}/look", worse = "zero" }}'
    trial = finished_trial(tmp_path, methods=methods)
    assert write_analysis(trial.folder).gates["stability"] is stable
    assert verify(trial.folder).problems == []


def test_the_words_of_the_gates_are_registered_and_the_same_in_both(whole: Trial) -> None:
    assert module.GATES == GATES == read_json(whole.folder / "trial.json")["gates"]


def test_a_deviation_is_shown_by_both(tmp_path: Path) -> None:
    trial = registered(tmp_path)
    deviate(trial.folder, "power cut in block 3", "A. Person")
    run(trial.folder, made_up(trial))
    (notice,) = write_analysis(trial.folder).notices
    assert "power cut in block 3" in notice
    assert verify(trial.folder).report["notices"] == [notice]
    rewrite(trial.folder / "analysis.json", lambda analysis: analysis["notices"].clear())
    assert problems(trial.folder, "analysis.json", "does not show the journal's notices")


# -- tampering ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", range(8))
def test_one_flipped_bit_in_any_record(folder: Path, bit: int) -> None:
    for number, path in enumerate(records(folder)[bit::8]):
        content = bytearray(path.read_bytes())
        content[(number * 97) % len(content)] ^= 1 << bit
        path.write_bytes(content)
        assert problems(folder, path.name, "")


def test_a_deleted_record(folder: Path) -> None:
    path = records(folder)[3]
    method = read_json(path)["method"]
    path.unlink()
    assert problems(folder, path.name, f"is missing ({method}")


def test_a_duplicated_record(folder: Path) -> None:
    shutil.copy(records(folder)[0], folder / "records" / f"{'0' * 64}.json")
    assert problems(folder, "0" * 64, "is no job of this trial")
    (folder / "records" / f"{'0' * 64}.json").unlink()
    first, second = records(folder)[:2]
    shutil.copy(first, second)
    assert problems(folder, second.name, f"holds job '{first.stem}'")


def test_two_swapped_records(folder: Path) -> None:
    first, second = records(folder)[:2]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    assert problems(folder, first.name, f"holds job '{second.stem}'")
    assert problems(folder, second.name, f"holds job '{first.stem}'")


def test_labels_of_candidate_and_parent_exchanged_in_the_records(folder: Path) -> None:
    other = {"better": "worse", "worse": "better", "control": "control"}

    def exchange(record: dict[str, Any]) -> None:
        record["method"] = other[record["method"]]
        reseal(record)

    for path in records(folder):
        rewrite(path, exchange)
        if read_json(path)["method"] != "control":
            last = path.name
    assert problems(folder, last, "holds method")


def test_labels_of_candidate_and_parent_exchanged_in_the_registration(folder: Path) -> None:
    rewrite(
        folder / "trial.json",
        lambda trial: trial["plan"]["claim"].update(candidate="worse", parent="better"),
    )
    assert problems(folder, "trial.json", "changed since the journal's first line")
    assert problems(folder, records(folder)[0].name, "holds trial")


def better_day(record: dict[str, Any]) -> None:
    """Flatter a day without a trace in its arithmetic, seals included."""
    saved = 2 * 100_000
    for part in (record["outcome"], record["ledger"]):
        part["waiting_s"] -= saved // 2
        part["cost"] -= saved
        part["token_cost"] -= saved
    record["outcome"]["generalized_s"] = record["outcome"]["cost"] / record["outcome"]["departed"]
    reseal(record)


def test_a_record_edited_together_with_its_hash(folder: Path) -> None:
    path = records(folder)[5]
    rewrite(path, better_day)
    assert problems(folder, path.name, "is not the file that matrix.json lists")


def test_a_record_edited_together_with_every_hash_before_the_analysis(folder: Path) -> None:
    path = records(folder)[5]
    rewrite(path, better_day)

    def relist(matrix: dict[str, Any]) -> None:
        for block in matrix["blocks"].values():
            if path.stem in block:
                block[path.stem] = hashlib.sha256(path.read_bytes()).hexdigest()
        results = {p.stem: read_json(p)["result_sha256"] for p in records(folder)}
        matrix["results_sha256"] = seal_of(results)

    rewrite(folder / "matrix.json", relist)
    assert problems(folder, "analysis.json", "the records give")


def test_a_record_whose_arithmetic_is_wrong(folder: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["outcome"]["completed"] += 1
        reseal(record)

    path = records(folder)[5]
    rewrite(path, change)
    assert problems(folder, path.name, "completion does not follow from the ledger")


def test_a_day_on_another_network(folder: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["sumo"]["network"] = "f" * 64
        reseal(record)

    path = records(folder)[5]
    rewrite(path, change)
    assert problems(folder, path.name, "holds network 'ffff")


def test_a_bundle_changed_after_registration(folder: Path) -> None:
    path = next((folder / "inputs" / "policies").glob("*/tensors.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert problems(folder, "tensors.safetensors", "changed since it was registered")


def test_a_source_file_changed_after_registration(folder: Path, tmp_path: Path) -> None:
    package = Path(shutil.copytree(PROGRAM.parents[1], tmp_path / "evenline"))
    assert verify(folder, source=package).problems == []
    path = package / "control" / "ledger.py"
    path.write_text(path.read_text().replace("WEIGHT_WAITING = 2", "WEIGHT_WAITING = 3"))
    (problem,) = verify(folder, source=package).problems
    assert problem == "source control/ledger.py: is not the registered source"


def test_an_analysis_edited_by_hand(folder: Path) -> None:
    rewrite(
        folder / "analysis.json",
        lambda analysis: analysis["claim"]["primary"]["block_differences"].__setitem__(2, -91.0),
    )
    assert problems(
        folder, "analysis.json claim primary block_differences 3", "says -91.0, the records give"
    )


def test_a_verdict_edited_by_hand(folder: Path) -> None:
    rewrite(folder / "analysis.json", lambda analysis: analysis.update(confirmed=False))
    assert problems(folder, "analysis.json confirmed", "says False, the records give True")
    with pytest.raises(InputError, match="disagrees with the records"):
        closeout(folder)


def test_an_interval_edited_by_hand_is_found_at_closeout(folder: Path) -> None:
    rewrite(
        folder / "analysis.json",
        lambda a: a["beyond_the_claim"]["generalized_s"]["hodges_lehmann"].update(high=-200.0),
    )
    with pytest.raises(InputError, match=r"analysis.json disagrees with the records"):
        closeout(folder)


def test_other_passengers_in_one_day_of_a_cell(tmp_path: Path) -> None:
    def days(job: Job) -> Any:
        outcome = day(job)
        odd = job.policy == "zero" and job.cell.sumo_seed == 9103
        return replace(outcome, departed=2_001) if odd else outcome

    trial = finished_trial(tmp_path, days)
    assert any("met other passengers" in line for line in verify(trial.folder).problems)


# -- after closeout -------------------------------------------------------------------------------


@pytest.fixture
def closed(folder: Path) -> Path:
    closeout(folder)
    return folder


@pytest.mark.parametrize(
    "name", ["analysis.json", "verification.json", "matrix.json", "plan.toml", "journal.jsonl"]
)
def test_any_file_changed_after_closeout(closed: Path, name: str) -> None:
    (closed / name).chmod(0o644)
    (closed / name).write_text((closed / name).read_text() + " ")
    assert problems(closed, name, "is not the file that closeout.json binds")


def test_the_manifest_edited_together_with_a_file(closed: Path) -> None:
    (closed / "verification.json").chmod(0o644)
    (closed / "verification.json").write_text("{}\n")
    root = read_json(closed / "closeout.json")["merkle_root"]

    def rebind(manifest: dict[str, Any]) -> None:
        content = (closed / "verification.json").read_bytes()
        manifest["files"]["verification.json"] = hashlib.sha256(content).hexdigest()

    rewrite(closed / "closeout.json", rebind)
    assert problems(closed, "closeout.json", "its Merkle root is wrong")
    rewrite(closed / "closeout.json", lambda m: m.update(merkle_root=root_of(m["files"])))
    assert problems(closed, "provenance.intoto.json", "has another hash")
    kept = verify(closed, root=root).problems
    assert any("not the one you kept" in line for line in kept), kept


def test_a_closed_trial_is_verified_by_a_later_version(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Path(shutil.copytree(PROGRAM.parents[1], tmp_path / "later"))
    (later / "control" / "ledger.py").write_text("# rewritten\n")
    monkeypatch.setattr(module, "PACKAGE", later)
    assert verify(closed).problems == [], "the source of the day it was closed is what counts"
    assert verify(closed, source=later).problems == [
        "source control/ledger.py: is not the registered source"
    ]


def test_a_closed_trial_is_verified_without_being_changed(closed: Path) -> None:
    before = {path: path.read_bytes() for path in closed.rglob("*") if path.is_file()}
    root = json.loads((closed / "closeout.json").read_text())["merkle_root"]
    assert verify(closed, root=root).problems == []
    assert before == {path: path.read_bytes() for path in closed.rglob("*") if path.is_file()}
