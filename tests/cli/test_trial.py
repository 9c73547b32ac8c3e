"""The commands from register to closeout on `town`; nothing is said of outcomes before the end."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from evenline.cli.trial import app
from evenline.support.errors import InputError
from evenline.support.files import sha256
from evenline.trial.matrix import Shard, run
from evenline.trial.verify import endpoints
from made import FEW, analysed_with_actor, day, finished_trial, made_up, plan_text, registered


def trial(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: object) -> str:
    """The one line of an error that the user is meant to read."""
    ended = trial(*arguments)
    assert isinstance(ended.exception, InputError), ended.output
    assert "\n" not in str(ended.exception)
    return str(ended.exception)


def test_a_trial_from_register_to_closeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(plan_text(**FEW))
    ended = trial("register", "plan.toml")
    assert ended.exit_code == 0 and ended.stdout == "results/trial-small\n", ended.output
    folder = Path("results/trial-small")
    registered_as = sha256(folder / "trial.json")
    ended = trial("register", "plan.toml", "--out", "again")
    assert ended.exit_code == 0 and f"repeats trial {registered_as}" in ended.output
    Path("other.toml").write_text(plan_text(**FEW | {"seeds": "[2]"}))
    assert "SUMO seed 9101: trial 'small' has used it" in refused(
        "register", "other.toml", "--out", "other"
    )
    assert trial("run", folder, "--shard", "1/2", "--workers", "1").exit_code == 0
    assert "2 of 4 jobs are not done, and outcomes stay sealed" in refused("analyse", folder)
    assert trial("run", folder).exit_code == 0

    ended = trial("analyse", folder)
    verdict = json.loads((folder / "analysis.json").read_text())
    assert ended.exit_code == (0 if verdict["confirmed"] else 1), ended.output
    assert "not part of the registered claim" in ended.stdout
    assert json.loads(trial("analyse", folder, "--json").stdout) == verdict
    ended = trial("verify", folder)
    assert (ended.exit_code, ended.stdout) == (0, "4 records checked, no problems\n"), ended.output
    ended = trial("close", folder)
    assert ended.exit_code == 0, ended.output
    root = ended.stdout.split()[-1]
    kept = ("--root", root, "--registration", registered_as)
    assert trial("verify", folder, *kept).exit_code == 0
    ended = trial("verify", folder, "--registration", "0" * 64)
    assert ended.exit_code == 1 and "not as the hash you kept" in ended.stdout
    ended = trial("verify", folder, "--root", "0" * 64)
    assert ended.exit_code == 1 and "not the one you kept" in ended.stdout


def test_no_command_tells_an_endpoint_while_the_matrix_is_incomplete(tmp_path: Path) -> None:
    half = registered(tmp_path)
    run(half.folder, made_up(half), Shard(1, 2))
    said = trial("status", half.folder).output + refused("analyse", half.folder)
    said += trial("verify", half.folder).output + refused("close", half.folder)
    said += trial("pack", half.folder, "--out", tmp_path / "packed").output
    said += trial("unpack", tmp_path / "packed", "--out", tmp_path / "again").output
    assert "0 of 6 blocks" in said and "0 of 48 jobs done" in said
    for path in (half.folder / "records").iterdir():
        outcome = json.loads(path.read_text())["outcome"]
        for name, value in endpoints(outcome).items():
            if name != "unfinished":  # a small count may be a count of jobs
                assert f"{float(value):.2f}" not in said


def test_a_trial_is_packed_and_unpacked(tmp_path: Path) -> None:
    whole, out = finished_trial(tmp_path), tmp_path / "packed"
    ended = trial("pack", whole.folder, "--out", out)
    assert ended.exit_code == 0 and "6 of 6 blocks, 0." in ended.output, ended.output
    ended = trial("unpack", out, "--out", tmp_path / "again")
    assert ended.exit_code == 0 and "48 of 48 jobs done" in ended.output, ended.output
    assert "again already exists" in refused("unpack", out, "--out", tmp_path / "again")
    assert "has no trial.json" in refused("unpack", tmp_path, "--out", tmp_path / "more")


def test_a_peek_is_said_to_be_one_and_every_later_output_shows_it(tmp_path: Path) -> None:
    half = registered(tmp_path)
    run(half.folder, made_up(half), Shard(1, 2))
    assert "seal broken" in trial("analyse", half.folder, "--peek").output
    run(half.folder, made_up(half))
    for command in ("status", "analyse", "verify", "close"):
        assert "outcomes of 24 jobs shown" in trial(command, half.folder).output, command


def test_a_deviation_is_shown_by_every_later_output(tmp_path: Path) -> None:
    whole = finished_trial(tmp_path)
    trial("note", whole.folder, "--why", "one machine was replaced", "--by", "A. Person")
    for command in ("run", "status", "analyse", "verify", "close"):
        said = trial(command, whole.folder).output
        assert "A. Person): one machine was replaced" in said, command


def test_a_denied_claim_is_exit_code_1(tmp_path: Path) -> None:
    whole = finished_trial(tmp_path, day)
    ended = trial("analyse", whole.folder)
    assert ended.exit_code == 1 and "confirmed" in ended.stdout


def test_quarantined_jobs_are_named_with_what_to_do_next(tmp_path: Path) -> None:
    stuck = registered(tmp_path, **FEW, limits="{ time_s = 1, memory_gib = 0.1, tries = 1 }")
    assert "4 jobs failed every try; fix the cause and run: evenline trial run" in refused(
        "run", stuck.folder
    )
    said = trial("status", stuck.folder).output
    assert said.count("quarantined: ") == 4 and "quarantined: worse 1 9102-9202-0.75" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nowhere"), "start with: evenline trial register PLAN"),
        (("verify", "nowhere"), "no such folder"),
        (("verify", "."), "has no trial.json; start with: evenline trial register PLAN"),
        (("register", "nowhere.toml"), "nowhere.toml: no such file"),
        (
            ("run", "nowhere", "--executor", "cloud"),
            "unknown executor 'cloud'; choose 'processes' or 'ray'",
        ),
        (("run", "nowhere", "--workers", "0"), "must be at least 1"),
        (("run", "nowhere", "--shard", "9"), "write it like 2/8"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(*arguments)
    assert not list(tmp_path.iterdir())


def test_a_packed_trial_verifies_and_goes_into_a_document(tmp_path: Path) -> None:
    folder, packed = analysed_with_actor(tmp_path), tmp_path / "packed"
    root = trial("close", folder).stdout.split()[-1]
    assert trial("pack", folder, "--out", packed).exit_code == 0
    ended = trial("verify", packed, "--root", root)
    assert ended.exit_code == 0 and ended.stdout.startswith("detached, bound by SHA-256 ")
    assert ended.stdout.endswith("4 records checked, no problems\n"), ended.output
    said = []
    for place in (folder, packed):
        assert trial("analyse", place, "--docs", tmp_path / "page.md").exit_code == 0
        said.append((tmp_path / "page.md").read_text().replace(str(place), ""))
    assert said[0] == said[1] and f"closed under `{root}`" in said[0]


def test_a_document_says_what_is_on_record_against_a_verdict(tmp_path: Path) -> None:
    done, document = registered(tmp_path), tmp_path / "trial.md"
    run(done.folder, made_up(done), Shard(1, 2))
    assert "cannot go into a document" in refused(
        "analyse", done.folder, "--peek", "--docs", document
    )
    assert trial("analyse", done.folder, "--peek").exit_code == 0
    run(done.folder, made_up(done))
    trial("analyse", done.folder, "--docs", document)
    said = document.read_text()
    assert "On record: " in said and "This verdict is not final" in said


def test_a_document_gets_the_verdict_the_methods_and_a_forest_plot(tmp_path: Path) -> None:
    done, document = finished_trial(tmp_path), tmp_path / "docs" / "trial.md"
    document.parent.mkdir()
    document.write_text("before\n<!-- begin trial small -->\n<!-- end trial small -->\nafter\n")
    assert trial("analyse", done.folder, "--docs", document).exit_code == 0
    said = document.read_text()
    assert said.startswith("before\n") and said.endswith("after\n")
    assert "**Confirmed.**" in said and "Gates that failed: none." in said
    analysis = json.loads((done.folder / "analysis.json").read_text())
    for name, row in analysis["means"].items():
        assert f"| {name} | {row['generalized_s']:,.1f} |" in said
    assert f"{analysis['difference']['generalized_s']:+.1f}" in said
    assert "-90.0 s at demand 0.75, -90.0 s at demand 1.25." in said
    image = document.parent / "images" / "trial-small.png"
    assert image.read_bytes().startswith(b"\x89PNG") and f"images/{image.name}" in said
