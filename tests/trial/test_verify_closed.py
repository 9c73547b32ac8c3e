"""Everything in a closed trial's folder is bound: any change to any file is found and named."""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evenline.support.errors import InputError
from evenline.support.files import read_json, to_json
from evenline.trial import verify as module
from evenline.trial.closeout import closeout
from evenline.trial.registration import read_trial
from evenline.trial.verify import verify
from made import analysed_with_actor

STATEMENT = "provenance.intoto.json"
Keys = tuple[str | int, ...]  # the keys that lead to a leaf


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trial that is ready to be closed, with a bundle in it. Not to be changed."""
    return analysed_with_actor(tmp_path_factory.mktemp("bound"))


@pytest.fixture(scope="module")
def closed(analysed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trial, closed. A test that changes it puts it back."""
    folder = Path(shutil.copytree(analysed, tmp_path_factory.mktemp("closed") / "trial"))
    closeout(folder)
    assert verify(folder).problems == []
    return folder


@pytest.fixture
def ready(analysed: Path, tmp_path: Path) -> Path:
    """A copy that is ready to be closed, for a test to change."""
    return Path(shutil.copytree(analysed, tmp_path / "ready"))


@contextmanager
def changed(path: Path, content: bytes) -> Iterator[None]:
    """The file with another content."""
    before = path.read_bytes()
    assert content != before
    path.chmod(0o644)
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def named(folder: Path, name: str) -> bool:
    """Whether the problems name a file or a folder; each of them is one line."""
    problems = verify(folder).problems
    assert all(len(line.splitlines()) == 1 for line in problems)
    return any(name in line for line in problems)


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a closed trial by name, without locks, which are empty."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {p.relative_to(folder).as_posix(): p for p in paths if p.name[0] != "."}


def leaves(value: Any, path: Keys = ()) -> Iterator[Keys]:
    """The paths to all leaves of a JSON value."""
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def with_leaf(value: Any, path: Keys, new: Any = None) -> bytes:
    """The JSON text of a value with another leaf: of the same type if `new` is not given."""
    value = inner = copy.deepcopy(value)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = other(inner[path[-1]]) if new is None else new
    return to_json(value).encode()


def other(leaf: Any) -> Any:
    """Another value of the same type."""
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, str):
        return f"{leaf}x"
    return leaf + 1 if isinstance(leaf, int | float) else "x"


@pytest.mark.parametrize("bit", [0, 5])
def test_one_flipped_bit_in_any_file_is_found_and_the_file_is_named(closed: Path, bit: int) -> None:
    for name, path in files_of(closed).items():
        content = path.read_bytes()
        for place in (0, len(content) // 2, len(content) - 1):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with changed(path, bytes(flipped)):
                assert named(closed, name), (name, place)


@pytest.mark.parametrize("name", ["closeout.json", STATEMENT])
def test_a_flip_of_any_byte_is_found_in_the_files_that_no_hash_binds(
    closed: Path, name: str
) -> None:
    content = (closed / name).read_bytes()
    for place in range(0, len(content), 97):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        with changed(closed / name, bytes(flipped)):
            assert named(closed, name), place


def test_another_form_of_the_same_json_is_found(closed: Path) -> None:
    for name in ("closeout.json", STATEMENT):
        content = (closed / name).read_bytes()
        twice = b'{\n  "name": "x",' + content[1:]  # the later value of a key counts
        for text in (content[:-1] + b" ", json.dumps(json.loads(content)).encode(), twice):
            with changed(closed / name, text):
                assert named(closed, name)


def test_another_leaf_in_any_json_file_is_found_and_the_file_is_named(closed: Path) -> None:
    for name, path in files_of(closed).items():
        if path.suffix == ".json":
            value = read_json(path)
            every = list(leaves(value))
            for leaf in {every[0], every[len(every) // 2], every[-1]}:
                with changed(path, with_leaf(value, leaf)):
                    assert named(closed, name), (name, leaf)


def test_a_closeout_that_cannot_be_read_is_one_problem(closed: Path) -> None:
    path = closed / "closeout.json"
    with changed(path, path.read_bytes()[:-3]):
        (problem,) = verify(closed).problems
        assert problem.startswith("closeout.json: cannot be read (")
    with changed(path, b"null"):
        assert named(closed, path.name)


@pytest.mark.parametrize("new", [None, {}, [1], "x"])
def test_any_other_field_of_the_closeout_is_found(closed: Path, new: Any) -> None:
    value, path = read_json(closed / "closeout.json"), closed / "closeout.json"
    for field in value:
        if new is None and isinstance(value[field], dict | list):
            continue
        with changed(path, with_leaf(value, (field,), new)):
            assert named(closed, path.name), field
        left = {key: part for key, part in value.items() if key != field}
        with changed(path, to_json(left).encode()):
            assert named(closed, path.name), f"without {field}"
    with changed(path, to_json(value | {"more": 1}).encode()):
        assert named(closed, path.name)


def test_any_other_leaf_of_the_statement_is_found(closed: Path) -> None:
    value = read_json(closed / STATEMENT)
    every = list(leaves(value))
    assert any(leaf[0] == "predicate" for leaf in every)
    for leaf in every:
        with changed(closed / STATEMENT, with_leaf(value, leaf)):
            assert named(closed, STATEMENT), leaf
    value["predicate"]["runDetails"]["more"] = 1
    with changed(closed / STATEMENT, to_json(value).encode()):
        assert named(closed, STATEMENT)


def test_any_deleted_file_is_named(closed: Path, tmp_path: Path) -> None:
    for name, path in files_of(closed).items():
        shutil.move(path, tmp_path / "away")
        assert named(closed, name), name
        shutil.move(tmp_path / "away", path)


@pytest.mark.parametrize(
    "name", ["notes.txt", ".hidden", ".lock-1-of-2x", ".runner.lock", "source", "two\nlines"]
)
def test_an_extra_file_or_folder_anywhere_is_named(closed: Path, name: str) -> None:
    folders = [closed, *(path for path in closed.rglob("*") if path.is_dir())]
    assert len(folders) > 4
    for folder in folders:
        extra = folder / name
        shown = extra.relative_to(closed).as_posix().replace("\n", "\\n")
        extra.write_text("")
        assert named(closed, shown)
        extra.unlink()
        extra.mkdir()
        assert named(closed, shown)
        extra.rmdir()


def test_a_link_is_named_even_if_it_leads_to_the_same_content(closed: Path, tmp_path: Path) -> None:
    path = closed / "analysis.json"
    shutil.move(path, tmp_path / "away")
    path.symlink_to(tmp_path / "away")
    assert named(closed, "analysis.json")
    path.unlink()
    shutil.move(tmp_path / "away", path)


def test_a_file_of_the_bound_source_does_not_pass_as_one_of_the_folder(closed: Path) -> None:
    (closed / "source").mkdir()
    (closed / "source" / "front.py").write_text("")
    assert named(closed, "source/front.py")
    shutil.rmtree(closed / "source")


def test_empty_locks_are_tolerated_and_others_named(closed: Path) -> None:
    for name in (".lock", ".journal.lock", ".lock-2-of-8"):
        (closed / name).write_text("")
        assert verify(closed).problems == []
        (closed / name).write_text("x")
        assert named(closed, name)
        (closed / name).write_text("")
    (closed / "records" / ".lock").write_text("")
    assert named(closed, "records/.lock")
    (closed / "records" / ".lock").unlink()


def test_a_statement_with_the_defaults_of_later_keys_is_accepted(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote them for a plan that was registered before the keys existed."""
    value = read_json(closed / STATEMENT)
    plan = value["predicate"]["buildDefinition"]["externalParameters"]["plan"]
    monkeypatch.setattr(module, "LATER", module.LATER | {"later": 1})
    plan["later"] = 1
    with changed(closed / STATEMENT, to_json(value).encode()):
        assert verify(closed).problems == []
    plan["later"] = 2
    with changed(closed / STATEMENT, to_json(value).encode()):
        assert named(closed, STATEMENT)


# -- closing --------------------------------------------------------------------------------------


REGISTERED = ("trial.json", "plan.toml", "journal.jsonl")


@pytest.mark.parametrize("name", [*REGISTERED, "matrix.json", "closeout.json", STATEMENT])
def test_a_pipe_in_the_place_of_a_file_is_named_and_never_read(
    closed: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(closed, tmp_path / "trial"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    alone = [sys.executable, module.__file__, str(folder)]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    assert name in done.stdout
    if name in REGISTERED:
        with pytest.raises(InputError, match=name):
            read_trial(folder)


def test_control_codes_in_a_strangers_trial_do_not_reach_the_terminal(
    closed: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(closed, tmp_path / "\x1b[31mred"))
    hostile = "\x1b]0;title\x07"
    (folder / "inputs" / hostile).touch()
    manifest = read_json(folder / "closeout.json")
    for content in (manifest, manifest | {"name": hostile, "files": {hostile: "0"}}):
        (folder / "closeout.json").write_text(to_json(content))
        for given in ([str(folder)], ["--all", str(tmp_path)]):
            done = subprocess.run(
                [sys.executable, module.__file__, *given], capture_output=True, text=True
            )
            assert done.returncode == 1 and "\\x1b]0;title\\x07" in done.stdout
            assert (done.stdout + done.stderr).replace("\n", "").isprintable()


def test_a_trial_with_an_extra_file_is_not_closed(ready: Path) -> None:
    (ready / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes.txt is no part of the trial; move it"):
        closeout(ready)
    assert not (ready / "closeout.json").exists()
    assert (ready / "notes.txt").read_text() == "mine"


def test_what_a_killed_closeout_left_does_not_matter(ready: Path) -> None:
    (ready / ".closeout.json.a1b2c3_z").write_text("{")
    (ready / STATEMENT).write_text("{}")
    assert verify(ready).problems == [
        f"closeout.json: is missing, but {STATEMENT} exists; close the trial"
    ]
    closeout(ready)
    assert verify(ready).problems == []


# -- no trial -------------------------------------------------------------------------------------


def test_a_folder_that_is_no_trial_is_exit_code_2_when_run_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(module.__file__), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"{tmp_path} has no trial.json; name the folder of a trial\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trial.json", "[]"),
        ("trial.json", "null"),
        ("trial.json", "{}"),
        ("journal.jsonl", ""),
        ("journal.jsonl", "[]\n"),
        ("matrix.json", "{}"),
    ],
)
def test_a_file_of_another_form_is_a_problem_before_the_trial_is_closed(
    ready: Path, name: str, content: str
) -> None:
    (ready / name).chmod(0o644)
    (ready / name).write_text(content)
    assert named(ready, name)
