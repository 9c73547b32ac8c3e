"""The commands about controllers, as a shell meets them."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import typer
from typer.testing import CliRunner

from evenline.cli import policy as commands
from evenline.cli.main import main
from evenline.experiments.tune import TRIES
from evenline.policies import onnx_graph
from evenline.policies.bundle import POLICY, export_bundle, load_bundle
from evenline.rules.table import RULES
from evenline.support.errors import InputError
from small_actors import controller, save_actor, town
from spoilt_bundles import rehash, rewrite

whole = typer.Typer(pretty_exceptions_enable=False)
whole.add_typer(commands.app, name="policy")
whole.command()(commands.tune)
whole.command()(commands.compare)


def evenline(*arguments: object) -> str:
    """What a command prints; a refusal comes out as it would reach the user."""
    result = CliRunner().invoke(whole, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


Refusal = Callable[..., str]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refusal:
    """What the whole command line says, in one line, to what it refuses with code 2."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["evenline", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capfd.readouterr().err
        assert ended.value.code == 2 and told.count("\n") == 1, told
        return told

    return run


def test_a_rule_is_exported_shown_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "schedule"
    assert evenline("policy", "export", "schedule", "--out", folder).strip() == str(folder)
    shown = json.loads(evenline("policy", "show", folder))
    assert shown["rule"] == "schedule" and list(shown["tensors"]) == ["timetable_s"]
    checked = json.loads(evenline("policy", "check", folder))
    assert checked["sha256"] == shown["sha256"] and checked["decisions"] > 400


def test_another_policy_is_not_put_over_an_exported_one(tmp_path: Path) -> None:
    export = ("policy", "export", "zero", "--out", tmp_path / "mine")
    evenline(*export)
    evenline(*export)
    with pytest.raises(InputError, match="has another policy; choose another --out"):
        evenline(*export, "--chain", "candidate")
    assert json.loads(evenline("policy", "show", tmp_path / "mine"))["chain"] == "raw"
    evenline(*export, "--chain", "candidate", "--force")
    assert json.loads(evenline("policy", "show", tmp_path / "mine"))["chain"] == "candidate"


def test_an_actor_is_exported_with_its_graph_and_checked(tmp_path: Path) -> None:
    actor = save_actor(tmp_path / "actor")
    told = evenline(
        "policy", "export", actor, "--chain", "candidate", "--out", tmp_path / "deployed",
        "--onnx", tmp_path / "actor.onnx",
    )  # fmt: skip
    assert "states of fast days" in told and (tmp_path / "actor.onnx").stat().st_size > 1_000_000
    assert json.loads(evenline("policy", "show", tmp_path / "deployed"))["chain"] == "candidate"
    checked = json.loads(evenline("policy", "check", tmp_path / "deployed"))
    assert checked["onnx_states"] > 5_000
    assert checked["onnx_error_s"] <= 1e-5


def test_a_rule_has_no_graph(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only actors can be exported to ONNX"):
        evenline("policy", "export", "zero", "--out", tmp_path / "z", "--onnx", tmp_path / "z.onnx")
    assert not list(tmp_path.iterdir()), "refused before anything is written"


def test_tuning_prints_the_front_and_names_the_bundle(tmp_path: Path) -> None:
    told = evenline(
        "tune", "forward", "--blocks", 1, "--budget", 30, "--out", tmp_path / "tuned"
    ).splitlines()
    assert told[0].split() == ["time,", "s", "completed", "slack_s,", "gain"]
    assert sum("chosen" in line for line in told) == 1
    assert told[-1] == str(tmp_path / "tuned" / "forward-tuned")
    assert json.loads(evenline("policy", "show", told[-1]))["rule"] == "forward"


def test_comparing_prints_a_table_or_json(tmp_path: Path) -> None:
    asked = ["compare", "--policies", "zero,headway", "--blocks", 2, "--out", tmp_path / "c"]
    text = evenline(*asked)
    assert text.startswith("town, fast: mean of 6 days") and "difference from zero" in text
    found = json.loads(evenline(*asked, "--json"))
    assert [policy["name"] for policy in found["policies"]] == ["zero", "headway"]


# -- what is kept ---------------------------------------------------------------------------------


def test_an_exported_bundle_is_replaced_only_if_unchanged(tmp_path: Path) -> None:
    asked = ["policy", "export", "forward", "--out", tmp_path / "b"]
    for _ in range(2):
        evenline(*asked)
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt was not written by Evenline.*--force"):
        evenline(*asked)
    (tmp_path / "b" / "notes.txt").unlink()
    before = (tmp_path / "b" / POLICY).read_text()
    (tmp_path / "b" / POLICY).write_text(before + "\n")
    with pytest.raises(InputError, match=r"policy\.json has changed since.*--force"):
        evenline(*asked)
    evenline(*asked, "--force")
    assert (tmp_path / "b" / POLICY).read_text() == before


def test_a_graph_replaces_only_a_graph_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    onnx_graph.write_onnx(path, controller())
    onnx_graph.refuse_other_file(path)
    model = onnx.load(path)
    model.graph.name = "quantized"
    onnx.save(model, path)
    with pytest.raises(InputError, match=r"a\.onnx has changed since.*--force"):
        onnx_graph.refuse_other_file(path)
    for content in (b"years of work", b"", onnx.ModelProto(producer_name="x").SerializeToString()):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.onnx was not written by Evenline.*--force"):
            onnx_graph.refuse_other_file(path)
        onnx_graph.refuse_other_file(path, force=True)


def test_a_link_folder_or_device_is_never_replaced_by_a_graph(tmp_path: Path) -> None:
    actor = save_actor(tmp_path / "actor")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    asked = ["policy", "export", actor, "--out", tmp_path / "out", "--force", "--onnx"]
    for place in (tmp_path, tmp_path / "link", tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InputError, match="is not a plain file; choose another --onnx"):
            evenline(*asked, place)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("tune forward --budget 3", ["front.json", TRIES, "forward-tuned/policy.json"]),
        ("compare --policies zero,headway", ["comparison.txt", "plan.json"]),
    ],
)
def test_a_rerun_keeps_what_was_changed(command: str, names: list[str], tmp_path: Path) -> None:
    asked = [*command.split(), "--blocks", 1, "--out", tmp_path / "out"]
    evenline(*asked)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    evenline(*asked)
    for name in names:
        path = tmp_path / "out" / name
        before = path.read_text()
        path.write_text(before + "\n")
        with pytest.raises(InputError, match=f"{path.name} has changed since.*--force"):
            evenline(*asked)
        assert path.read_text() == before + "\n"
        evenline(*asked, "--force")
        assert path.read_text() == before
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["forward", "prediction"])
def test_a_bundles_constants_are_there_and_in_range(
    rule: str, tmp_path: Path, refusal: Refusal
) -> None:
    folder = tmp_path / "rule"
    export_bundle(folder, rule, town(), None, {})
    constants = load_bundle(folder).spec.constants
    for constant in RULES[rule].constants:
        name, high = constant.name, constant.high
        for bad in (2**64, 10**400, 1e15, high + 0.1, constant.low - 0.1, "1", True, None, [1]):
            rewrite(folder, {"constants": constants | {name: bad}})
            assert re.search(rf"constants?[ .]{name}(:| is) ", refusal("policy", "show", folder))
        rewrite(folder, {"constants": {n: v for n, v in constants.items() if n != name}})
        assert f"constant {name}: missing" in refusal("policy", "show", folder)
        rewrite(folder, {"constants": constants | {name: high}})
        assert load_bundle(folder).spec.constants[name] == high


@pytest.mark.parametrize("part", ["kind", "chain", "rule"])
@pytest.mark.parametrize("bad", [["raw"], {"name": "raw"}, 7, None])
def test_names_in_a_bundle_are_names(part: str, bad: Any, tmp_path: Path, refusal: Refusal) -> None:
    export_bundle(tmp_path / "rule", "forward", town(), None, {})
    rewrite(tmp_path / "rule", {part: bad})
    assert f"{POLICY}: {part}: " in refusal("policy", "check", tmp_path / "rule")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" * 5000])
def test_numbers_in_a_bundle_are_finite(number: str, tmp_path: Path, refusal: Refusal) -> None:
    folder = tmp_path / "rule"
    export_bundle(folder, "forward", town(), None, {"score": 12345})
    path = folder / POLICY
    path.write_text(path.read_text().replace("12345", number))
    rehash(folder)
    assert "not valid JSON" in refusal("policy", "show", folder)


@pytest.mark.parametrize(
    ("option", "value"),
    [("seed", -1), ("seed", 0), ("seed", 2**32), ("seed", 10**22), ("budget", 2), ("blocks", 0)],
)
def test_a_search_has_a_seed_and_a_budget(
    option: str, value: int, tmp_path: Path, refusal: Refusal
) -> None:
    told = refusal("tune", "forward", f"--{option}", value, "--out", tmp_path / "out")
    assert option in told and str(value) in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "foreign", [[], 3, {}, {"setting": {}, "tries": []}, {"setting": None, "tries": [{}]}]
)
def test_a_file_of_tries_that_is_not_ours_is_refused(
    foreign: Any, tmp_path: Path, refusal: Refusal
) -> None:
    (tmp_path / TRIES).write_text(json.dumps(foreign))
    assert TRIES in refusal("tune", "forward", "--blocks", 1, "--out", tmp_path)


@pytest.mark.parametrize("tries", [7, [7], [{"constants": 1}], [{"constants": [1, "a"]}]])
def test_tries_that_are_none_are_refused(tries: Any, tmp_path: Path, refusal: Refusal) -> None:
    asked = ["tune", "forward", "--blocks", 1, "--budget", 3, "--out", tmp_path / "out"]
    evenline(*asked)
    path = tmp_path / "out" / TRIES
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tries": tries}))
    assert f"{TRIES}: tries" in refusal(*asked)


@pytest.mark.parametrize("workers", [0, -1])
def test_a_comparison_has_workers(workers: int, tmp_path: Path, refusal: Refusal) -> None:
    told = refusal("compare", "--workers", workers, "--out", tmp_path / "out")
    assert f"workers {workers}: must be at least 1" in told and not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["check", "export"])
def test_a_graph_that_gives_no_number_fails(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_graph, "worst_error_s", lambda *arguments: float("nan"))
    actor = save_actor(tmp_path / "actor")
    more = ["--out", tmp_path / "out", "--onnx", tmp_path / "a.onnx"] if command == "export" else []
    asked = ["policy", command, actor, *more]
    assert CliRunner().invoke(whole, [str(a) for a in asked]).exit_code == 1
