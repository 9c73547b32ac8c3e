"""The commands about policies, as a shell meets them."""

import json
import os
import re
from pathlib import Path

import onnx
import pytest

from door import Door
from evenline.experiments.tune import TRIES
from evenline.policies import onnx_graph
from evenline.policies.bundle import export_bundle, load_bundle
from evenline.policies.names import POLICY
from evenline.rules.table import RULES
from evenline.support.errors import InputError
from small_actors import save_actor, town, untrained
from spoilt_bundles import rewrite


def test_a_rule_is_exported_shown_and_checked(tmp_path: Path, evenline: Door) -> None:
    folder = tmp_path / "schedule"
    assert evenline("policy", "export", "schedule", "--out", folder).done().strip() == str(folder)
    shown = json.loads(evenline("policy", "show", folder).done())
    assert shown["rule"] == "schedule" and list(shown["tensors"]) == ["timetable_s"]
    checked = json.loads(evenline("policy", "check", folder).done())
    assert checked["sha256"] == shown["sha256"] and checked["decisions"] > 400


def test_another_policy_is_not_put_over_an_exported_one(tmp_path: Path, evenline: Door) -> None:
    export = ("policy", "export", "zero", "--out", tmp_path / "mine")
    evenline(*export).done()
    evenline(*export).done()
    evenline(*export, "--chain", "candidate").refused("has another policy; choose another --out")
    assert json.loads(evenline("policy", "show", tmp_path / "mine").done())["chain"] == "raw"
    evenline(*export, "--chain", "candidate", "--force").done()
    assert json.loads(evenline("policy", "show", tmp_path / "mine").done())["chain"] == "candidate"


def test_an_actor_is_exported_with_its_graph_and_checked(tmp_path: Path, evenline: Door) -> None:
    actor = save_actor(tmp_path / "actor")
    told = evenline(
        "policy", "export", actor, "--chain", "candidate", "--out", tmp_path / "deployed",
        "--onnx", tmp_path / "actor.onnx",
    ).done()  # fmt: skip
    assert "states of fast days" in told and (tmp_path / "actor.onnx").stat().st_size > 1_000_000
    assert (
        json.loads(evenline("policy", "show", tmp_path / "deployed").done())["chain"] == "candidate"
    )
    checked = json.loads(evenline("policy", "check", tmp_path / "deployed").done())
    assert checked["onnx_states"] > 5_000
    assert checked["onnx_error_s"] <= 1e-5


def test_a_rule_has_no_graph(tmp_path: Path, evenline: Door) -> None:
    evenline(
        "policy", "export", "zero", "--out", tmp_path / "z", "--onnx", tmp_path / "z.onnx"
    ).refused("only actors can be exported to ONNX")
    assert not list(tmp_path.iterdir()), "refused before anything is written"


def test_tuning_prints_the_front_and_names_the_bundle(tmp_path: Path, evenline: Door) -> None:
    told = (
        evenline("tune", "forward", "--blocks", 1, "--budget", 30, "--out", tmp_path / "tuned")
        .done()
        .splitlines()
    )
    assert told[0].split() == ["time,", "s", "completed", "slack_s,", "gain"]
    assert sum("chosen" in line for line in told) == 1
    assert told[-1] == str(tmp_path / "tuned" / "forward-tuned")
    assert json.loads(evenline("policy", "show", told[-1]).done())["rule"] == "forward"


def test_comparing_prints_a_table_or_json(tmp_path: Path, evenline: Door) -> None:
    asked = ["compare", "--policies", "zero,headway", "--blocks", 2, "--out", tmp_path / "c"]
    text = evenline(*asked).done()
    assert text.startswith("town, fast: mean of 6 days") and "difference from zero" in text
    found = json.loads(evenline(*asked, "--json").done())
    assert [policy["name"] for policy in found["policies"]] == ["zero", "headway"]


# -- what is kept ---------------------------------------------------------------------------------


def test_an_exported_bundle_is_replaced_only_if_unchanged(tmp_path: Path, evenline: Door) -> None:
    asked = ["policy", "export", "forward", "--out", tmp_path / "b"]
    for _ in range(2):
        evenline(*asked).done()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    evenline(*asked).refused("notes.txt was not written by Evenline", "--force")
    (tmp_path / "b" / "notes.txt").unlink()
    before = (tmp_path / "b" / POLICY).read_text()
    (tmp_path / "b" / POLICY).write_text(before + "\n")
    evenline(*asked).refused("policy.json has changed since", "--force")
    evenline(*asked, "--force").done()
    assert (tmp_path / "b" / POLICY).read_text() == before


def test_a_graph_replaces_only_a_graph_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    onnx_graph.write_onnx(path, untrained())
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


def test_a_link_folder_or_device_is_never_replaced_by_a_graph(
    tmp_path: Path, evenline: Door
) -> None:
    actor = save_actor(tmp_path / "actor")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    asked = ["policy", "export", actor, "--out", tmp_path / "out", "--force", "--onnx"]
    for place in (tmp_path, tmp_path / "link", tmp_path / "pipe", Path("/dev/null")):
        evenline(*asked, place).refused("is not a plain file; choose another --onnx")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("tune forward --budget 3", ["front.json", TRIES, "forward-tuned/policy.json"]),
        ("compare --policies zero,headway", ["comparison.txt", "plan.json"]),
    ],
)
def test_a_rerun_keeps_what_was_changed(
    command: str, names: list[str], tmp_path: Path, evenline: Door
) -> None:
    asked = [*command.split(), "--blocks", 1, "--out", tmp_path / "out"]
    evenline(*asked).done()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    evenline(*asked).done()
    for name in names:
        path = tmp_path / "out" / name
        before = path.read_text()
        path.write_text(before + "\n")
        evenline(*asked).refused(f"{path.name} has changed since", "--force")
        assert path.read_text() == before + "\n"
        evenline(*asked, "--force").done()
        assert path.read_text() == before
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["forward", "prediction"])
def test_a_bundles_constants_are_there_and_in_range(
    rule: str, tmp_path: Path, evenline: Door
) -> None:
    folder = tmp_path / "rule"
    export_bundle(folder, rule, town(), None, {})
    constants = load_bundle(folder).spec.constants
    for constant in RULES[rule].constants:
        name, high = constant.name, constant.high
        for bad in (2**64, 10**400, 1e15, high + 0.1, constant.low - 0.1, "1", True, None, [1]):
            rewrite(folder, {"constants": constants | {name: bad}})
            assert re.search(
                rf"constants?[ .]{name}(:| is) ", evenline("policy", "show", folder).refused()
            )
        rewrite(folder, {"constants": {n: v for n, v in constants.items() if n != name}})
        evenline("policy", "show", folder).refused(f"constant {name}: missing")
        rewrite(folder, {"constants": constants | {name: high}})
        assert load_bundle(folder).spec.constants[name] == high


@pytest.mark.parametrize(
    ("option", "value"),
    [("seed", -1), ("seed", 0), ("seed", 2**32), ("seed", 10**22), ("budget", 2), ("blocks", 0)],
)
def test_a_search_has_a_seed_and_a_budget(
    option: str, value: int, tmp_path: Path, evenline: Door
) -> None:
    told = evenline("tune", "forward", f"--{option}", value, "--out", tmp_path / "out").refused()
    assert option in told and str(value) in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [0, -1])
def test_a_comparison_has_workers(workers: int, tmp_path: Path, evenline: Door) -> None:
    told = evenline("compare", "--workers", workers, "--out", tmp_path / "out").refused()
    assert f"workers {workers}: must be at least 1" in told and not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["check", "export"])
def test_a_graph_that_gives_no_number_fails(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenline: Door
) -> None:
    monkeypatch.setattr(onnx_graph, "worst_error_s", lambda *arguments: float("nan"))
    actor = save_actor(tmp_path / "actor")
    more = ["--out", tmp_path / "out", "--onnx", tmp_path / "a.onnx"] if command == "export" else []
    asked = ["policy", command, actor, *more]
    assert evenline(*asked).code == 1
