"""The commands about controllers, as a shell meets them."""

import json
from pathlib import Path

import pytest
import typer
from small_actors import save_actor
from typer.testing import CliRunner

from evenline.errors import InputError
from evenline.policies import commands

whole = typer.Typer(pretty_exceptions_enable=False)
whole.add_typer(commands.app, name="policy")
whole.command()(commands.tune)
whole.command()(commands.compare)


def evenline(*arguments: object) -> str:
    """What a command prints; a refusal comes out as it would reach the user."""
    result = CliRunner().invoke(whole, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_rule_is_exported_shown_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "schedule"
    assert evenline("policy", "export", "schedule", "--out", folder).strip() == str(folder)
    shown = json.loads(evenline("policy", "show", folder))
    assert shown["rule"] == "schedule" and list(shown["tensors"]) == ["timetable_s"]
    checked = json.loads(evenline("policy", "check", folder))
    assert checked["sha256"] == shown["sha256"] and checked["decisions"] > 400


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
    with pytest.raises(InputError, match="only actors go into ONNX graphs"):
        evenline("policy", "export", "zero", "--out", tmp_path / "z", "--onnx", tmp_path / "z.onnx")


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
    assert text.startswith("town, fast: mean of 6 days") and "difference to zero" in text
    found = json.loads(evenline(*asked, "--json"))
    assert [policy["name"] for policy in found["policies"]] == ["zero", "headway"]
