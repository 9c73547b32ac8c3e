"""Lasting files: whoever looks sees the old or the new, whole, whatever becomes of the writer."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.support.errors import InputError
from evenline.support.files import (
    LISTING,
    ScratchFolder,
    new_folder,
    read_json,
    refuse_changed,
    refuse_foreign,
    result_folder,
    sha256,
    to_json,
    write_bytes,
    write_listed,
    write_table,
    write_text,
)


class Died(Exception):
    """What happens to a writer in these tests."""


def die(*args: Any, **kwargs: Any) -> None:
    raise Died


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- one file -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.binary(max_size=2_000), st.binary(max_size=2_000))
def test_the_last_content_written_is_the_content(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, second: bytes
) -> None:
    path = tmp_path_factory.mktemp("files") / "deep" / "er" / "x"
    for content in (first, second):
        write_bytes(path, content)
        assert path.read_bytes() == content
        assert sha256(path) == hashlib.sha256(content).hexdigest()
    assert names(path.parent) == ["x"]


@pytest.mark.parametrize("moment", ["os.fsync", "os.chmod", "os.replace"])
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_writer_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, old: bytes | None
) -> None:
    path = tmp_path / "x"
    if old is not None:
        path.write_bytes(old)
    monkeypatch.setattr(moment, die)
    with pytest.raises(Died):
        write_bytes(path, b"new")
    assert names(tmp_path) == (["x"] if old is not None else [])
    assert old is None or path.read_bytes() == old


def test_a_writer_that_fails_after_the_rename_leaves_the_new_content_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr("evenline.support.files.sync_folder", die)
    with pytest.raises(Died):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and names(tmp_path) == ["x"]


def test_content_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def noted(*args: Any, name: str = name, real: Any = real) -> Any:
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(os, name, noted)
    write_bytes(tmp_path / "x", b"new")
    assert calls == ["fsync", "replace", "fsync"], "the file, its name, the folder's names"


def test_a_killed_writer_leaves_whole_content(tmp_path: Path) -> None:
    """A process writes one letter a million times over, another letter each time, and is killed."""
    path = tmp_path / "x"
    script = (
        "import itertools, pathlib, sys; from evenline.support.files import write_bytes\n"
        "for letter in itertools.cycle(b'abcdefgh'):\n"
        "    write_bytes(pathlib.Path(sys.argv[1]), bytes([letter]) * 1_000_000)\n"
    )
    for pause_s in (0.0, 0.013, 0.031):
        path.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", script, str(path)])
        try:
            until = time.monotonic() + 30
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(pause_s)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        content = path.read_bytes()
        assert len(content) == 1_000_000 and len(set(content)) == 1


def test_text_is_utf_8_and_a_table_comes_back(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "Ünter den Linden\n")
    assert (tmp_path / "text").read_bytes() == "Ünter den Linden\n".encode()
    table = pa.table({"stop": ["s1", "s2"], "hold_s": [0.5, 1.5]})
    write_table(tmp_path / "table.parquet", table)
    assert pq.read_table(tmp_path / "table.parquet").equals(table)
    assert names(tmp_path) == ["table.parquet", "text"]


# -- JSON -----------------------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(plain)
def test_json_comes_back_and_is_the_same_text_in_any_order_of_keys(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    path = tmp_path_factory.mktemp("json") / "x.json"
    path.write_text(to_json(value), encoding="utf-8")
    assert read_json(path) == value
    if isinstance(value, dict):
        assert to_json(dict(reversed(value.items()))) == to_json(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"x": [float("-inf")]}])
def test_what_json_cannot_hold_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(value)


@pytest.mark.parametrize("content", [b"", b"{", b"{'a': 1}", b"\xff\xfe", b"[1, 2"])
def test_a_file_that_is_no_json_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: not valid JSON (")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_json(tmp_path / "x.json")
    assert str(caught.value) == f"{tmp_path / 'x.json'}: no such file"


def test_a_folder_in_place_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a regular file"):
        read_json(tmp_path)


@pytest.mark.parametrize("special", ["/dev/zero", "pipe", "outside"])
def test_a_file_of_a_folder_is_a_regular_file_inside_it(tmp_path: Path, special: str) -> None:
    """Others may never end, or be somebody's secret."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "outside").write_text("{}")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x.json").symlink_to(tmp_path / special)
    with pytest.raises(InputError, match=r"x\.json: is (not a regular file|a link out of its)"):
        read_json(folder / "x.json", folder)
    (folder / "x.json").unlink()
    (folder / "real.json").write_text("{}")
    (folder / "x.json").symlink_to("real.json")
    assert read_json(folder / "x.json", folder) == {}


# -- a folder -------------------------------------------------------------------------------------


def fill(folder: Path, text: str) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "a.txt").write_text(text)
    (folder / "b.txt").write_text(text)


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_appears_whole_when_its_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result"
    with new_folder(target) as aside:
        fill(aside, "new")
        assert not target.exists()
    assert content(target) == {"inner/a.txt": "new", "b.txt": "new"}
    assert names(target.parent) == ["result"] and target.stat().st_mode & 0o777 == 0o755


def test_a_new_folder_replaces_an_old_one_at_the_end_and_not_before(tmp_path: Path) -> None:
    target = tmp_path / "result"
    with new_folder(target) as aside:
        fill(aside, "old")
        (aside / "gone.txt").write_text("old")
    (target / "b.txt").chmod(0o444)
    with new_folder(target) as aside:
        fill(aside, "new")
        assert content(target)["gone.txt"] == "old"
    assert content(target) == {"inner/a.txt": "new", "b.txt": "new"}
    assert names(tmp_path) == ["result"]


@pytest.mark.parametrize("error", [Died, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [False, True])
def test_an_error_in_the_block_leaves_nothing_behind(
    tmp_path: Path, error: type[BaseException], old: bool
) -> None:
    target = tmp_path / "result"
    if old:
        with new_folder(target) as aside:
            fill(aside, "old")

    def interrupted() -> None:
        with new_folder(target) as aside:
            fill(aside, "new")
            raise error

    with pytest.raises(error):
        interrupted()
    assert names(tmp_path) == (["result"] if old else [])
    assert not old or set(content(target).values()) == {"old"}


@pytest.mark.parametrize("moment", ["os.fsync", "evenline.support.files.sync_folder", "os.replace"])
def test_a_folder_that_cannot_be_kept_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    target = tmp_path / "result"
    with new_folder(target) as aside:
        fill(aside, "old")

    def unable_in_the_end() -> None:
        with new_folder(target) as aside:
            fill(aside, "new")
            monkeypatch.setattr(moment, die)

    with pytest.raises(Died):
        unable_in_the_end()
    assert set(content(target).values()) == {"old"}


def test_the_old_folder_is_put_back_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "result"
    with new_folder(target) as aside:
        fill(aside, "old")
    replace = os.replace

    def no_second(source: Path, place: Path) -> None:
        if Path(place) == target and (Path(source) / "b.txt").read_text() == "new":
            raise Died
        replace(source, place)

    monkeypatch.setattr(os, "replace", no_second)
    with pytest.raises(Died), new_folder(target) as aside:
        fill(aside, "new")
    assert target.is_dir() and set(content(target).values()) == {"old"}
    assert names(tmp_path) == ["result"]


def test_only_a_folder_of_ours_or_an_empty_one_may_be_replaced(tmp_path: Path) -> None:
    target = tmp_path / "result"
    refuse_foreign(target, "outcome.json")
    target.mkdir()
    refuse_foreign(target, "outcome.json")
    (target / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"result already exists and has no outcome\.json"):
        refuse_foreign(target, "outcome.json")
    (target / "outcome.json").write_text(json.dumps({}))
    refuse_foreign(target, "outcome.json")
    with pytest.raises(InputError, match=r"thesis\.tex already exists"):
        refuse_foreign(target / "thesis.tex", "outcome.json")


def make_result(target: Path, text: str, force: bool = False) -> None:
    with result_folder(target, force) as aside:
        (aside / "days").mkdir()
        (aside / "days" / "1.txt").write_text(text)


def test_a_result_is_replaced_while_it_is_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "result"
    make_result(target, "one")
    make_result(target, "two")
    assert (target / "days" / "1.txt").read_text() == "two"
    assert sorted(os.listdir(target)) == [LISTING, "days"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: (t / "notes.txt").write_text(""), "notes.txt was not written"),
        (lambda t: (t / ".notes").write_text(""), ".notes was not written"),
        (lambda t: (t / "mine").mkdir(), "mine was not written"),
        (lambda t: (t / "link").symlink_to("/nowhere"), "link was not written"),
        (lambda t: os.mkfifo(t / "pipe"), "pipe was not written"),
        (lambda t: (t / "days" / "1.txt").write_text("better"), "1.txt has changed since"),
        (lambda t: (t / LISTING).unlink(), "days was not written"),
        (lambda t: (t / LISTING).write_text("[]"), "not a list of hashes by file"),
        (lambda t: (t / LISTING).write_text("{"), "not valid JSON"),
    ],
)
def test_a_result_with_something_of_the_users_is_replaced_only_by_force(
    tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    target = tmp_path / "result"
    make_result(target, "one")
    spoil(target)
    before = sorted(os.listdir(target))
    with pytest.raises(InputError, match=re.escape(words)):
        make_result(target, "two")
    assert sorted(os.listdir(target)) == before and os.listdir(tmp_path) == ["result"]
    make_result(target, "two", force=True)
    assert sorted(os.listdir(target)) == [LISTING, "days"]
    make_result(target, "three")


def test_a_file_added_while_the_new_result_is_made_stays(tmp_path: Path) -> None:
    target = tmp_path / "result"
    make_result(target, "one")
    with pytest.raises(InputError, match=r"late\.txt"), result_folder(target):
        (target / "late.txt").write_text("mine")
    assert (target / "days" / "1.txt").read_text() == "one"


def test_a_plain_file_is_no_result_folder_even_by_force(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years")
    with pytest.raises(InputError, match="is not a folder"):
        refuse_changed(tmp_path / "thesis", {}, force=True)


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "result").symlink_to("big")
    make_result(tmp_path / "result", "one")
    make_result(tmp_path / "result", "two")
    assert (tmp_path / "result").is_symlink()
    assert (tmp_path / "big" / "days" / "1.txt").read_text() == "two"


def test_a_refused_folder_leaves_no_parents(tmp_path: Path) -> None:
    with pytest.raises(Died), new_folder(tmp_path / "a" / "b" / "c"):
        raise Died
    assert not list(tmp_path.iterdir())


def test_listed_files_are_replaced_one_by_one_while_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_listed(tmp_path, {"a": b"1", "b": b"1"})
    write_listed(tmp_path, {"a": b"2"})
    (tmp_path / "b").write_text("edited")
    (tmp_path / "c").write_text("mine")
    for name in "bc":
        with pytest.raises(InputError, match=f"{name} .*--force"):
            write_listed(tmp_path, {"a": b"3", name: b"3"})
    assert (tmp_path / "a").read_text() == "2", "all are checked before one is written"
    write_listed(tmp_path, {"b": b"3", "c": b"3"}, force=True)
    replace = os.replace

    def die_late(source: object, target: Path) -> None:
        if Path(target).name == "a":
            raise Died
        replace(str(source), target)

    monkeypatch.setattr(os, "replace", die_late)
    with pytest.raises(Died):
        write_listed(tmp_path, {"a": b"4"})
    monkeypatch.undo()
    write_listed(tmp_path, {"a": b"5", "b": b"5", "c": b"5"})
    assert [(tmp_path / name).read_text() for name in "abc"] == ["5", "5", "5"]


def test_a_scratch_folder_of_a_killed_process_goes_when_the_next_is_made_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = "import time; from evenline.support.files import ScratchFolder; f = ScratchFolder()"
    code = f"{owner}; open(f.name + '/day', 'w').close(); print(f.name, flush=True); time.sleep(60)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as alive,
    ):
        assert killed.stdout and alive.stdout
        left, used = (Path(pipe.readline().strip()) for pipe in (killed.stdout, alive.stdout))
        killed.kill()
        killed.wait()
        (tmp_path / "evenline-notes").mkdir()  # somebody else's, without our mark
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with ScratchFolder() as folder:
            there = {Path(folder), used, tmp_path / "evenline-notes"}
            assert left not in there and set(tmp_path.iterdir()) == there
            assert (used / "day").exists()
        assert set(tmp_path.iterdir()) == there - {Path(folder)}
        alive.kill()
