"""Cached folders: the first one there wins, nobody ever finds half of one, damage is made good."""

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenline.support.cache import cached_folder
from evenline.support.errors import InputError
from evenline.support.files import LISTING
from evenline.support.notice import MARK

ROUNDS = 200
PROCESSES = 6


def fill(aside: Path) -> None:
    (aside / "inner").mkdir()
    for name in ("city.net.xml", "inner/a"):
        (aside / name).write_text(name)


def meet(folder: Path, start: Any, failures: Any) -> None:
    """Use a folder in every round at the same moment as the others, and read all of it; every
    third is damaged.
    """
    for number in range(ROUNDS):
        target = folder / str(number)
        if number % 3 == 0 and start.wait(60) == 0:
            target.mkdir()
            (target / "city.net.xml").write_text("half")
        start.wait(60)
        try:
            for name in cached_folder(target, fill):
                assert (target / name).read_text() == name
        except BaseException as error:
            failures.put(f"{number}: {error!r}")
        start.wait(60)


def test_many_processes_released_together_share_one_folder(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    start, failures = fork.Barrier(PROCESSES), fork.Queue()
    crowd = [fork.Process(target=meet, args=(tmp_path, start, failures)) for _ in range(PROCESSES)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join(120)
    assert [process.exitcode for process in crowd] == [0] * PROCESSES
    assert failures.empty(), failures.get()
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == ROUNDS, "nothing is left"


def test_a_folder_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    hashes = cached_folder(tmp_path / "c", fill)
    assert sorted(hashes) == ["city.net.xml", "inner/a"]
    inode = (tmp_path / "c").stat().st_ino

    def never(_: Path) -> None:
        raise AssertionError

    (tmp_path / "c" / "inner" / "__pycache__").mkdir()
    (tmp_path / "c" / "inner" / "__pycache__" / "a.pyc").write_bytes(b"")
    assert cached_folder(tmp_path / "c", never) == hashes
    assert (tmp_path / "c").stat().st_ino == inode


def test_whoever_is_second_keeps_the_folder_of_the_first(tmp_path: Path) -> None:
    """Even without a lock, as when somebody empties the cache while it is used."""

    def overtaken(aside: Path) -> None:
        fill(aside)
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        (tmp_path / ".c.lock").unlink()
        cached_folder(tmp_path / "c", fill)
        (tmp_path / "c" / "mark").touch()
        (tmp_path / "c" / "mark").rename(tmp_path / "c" / "__pycache__")

    cached_folder(tmp_path / "c", overtaken)
    assert (tmp_path / "c" / "__pycache__").exists()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "edited": lambda c: (c / "city.net.xml").write_text("faster"),
    "truncated": lambda c: os.truncate(c / "inner" / "a", 3),
    "empty": lambda c: (c / "inner" / "a").write_bytes(b""),
    "missing": lambda c: (c / "inner" / "a").unlink(),
    "foreign": lambda c: (c / "other.xml").write_text("?"),
    "pipe": lambda c: ((c / "inner" / "a").unlink(), os.mkfifo(c / "inner" / "a")),
    "no list": lambda c: (c / LISTING).unlink(),
    "half a list": lambda c: os.truncate(c / LISTING, 20),
    "another list": lambda c: (c / LISTING).write_text("[]"),
    "emptied": lambda c: (shutil.rmtree(c), c.mkdir()),
    "another's files": lambda c: (
        shutil.rmtree(c),
        cached_folder(c.with_name("d"), fill),
        c.with_name("d").rename(c),
        c.with_name(".d.lock").unlink(),
    ),
    "a file in its place": lambda c: (shutil.rmtree(c), c.write_text("?")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_made_again_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    whole = cached_folder(tmp_path / "c", fill)
    assert capsys.readouterr().err == ""
    DAMAGES[damage](tmp_path / "c")
    assert cached_folder(tmp_path / "c", fill) == whole
    output = capsys.readouterr().err
    assert output.startswith(MARK) and output.count("\n") == 1
    assert str(tmp_path / "c") in output and output.endswith("; it is made again\n")
    assert sorted(os.listdir(tmp_path)) == [".c.lock", "c"]
    assert cached_folder(tmp_path / "c", fill) == whole and capsys.readouterr().err == ""


def test_a_cache_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(InputError, match=r"cache/c: the cached folder cannot be made \("):
        cached_folder(tmp_path / "cache" / "c", fill)


def test_a_folder_that_cannot_be_filled_leaves_nothing(tmp_path: Path) -> None:
    def broken(aside: Path) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        cached_folder(tmp_path / "deep" / "c", broken)
    assert not list(tmp_path.iterdir())
