"""Things that go wrong on purpose, and how the tests watch processes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from evenline.support.cache import cached_folder

VERSION = "9.9.9"  # what the faulty runtime's folder is called; SUMO itself reports its own


def faulty_sumo(runtimes: Path, fault: str, times: int) -> None:
    """Install a SUMO that runs `fault` at the start of a day, so many times, and is then well."""
    folder, left = runtimes / VERSION, runtimes / "left"
    text = f"""
import os, pathlib, sys, time
sys.path.remove({str(folder)!r})
del sys.modules["libsumo"]
import libsumo
real_start, left = libsumo.start, pathlib.Path({str(left)!r})
def start(*arguments):
    count = int(left.read_text())
    left.write_text(str(count - 1))
    if count > 0:
        {fault}
    return real_start(*arguments)
libsumo.start = start
"""
    install_libsumo(folder, text)
    left.write_text(str(times))


def install_libsumo(folder: Path, text: str) -> None:
    """A runtime whose libsumo is this text."""

    def fill(aside: Path) -> None:
        (aside / "libsumo").mkdir()
        (aside / "libsumo" / "__init__.py").write_text(text)

    cached_folder(folder, fill)


def wait_until(happened: Callable[[], object], timeout_s: float = 40.0) -> None:
    """Wait for something that other processes do."""
    until = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.05)


def processes_in(folder: Path) -> list[int]:
    """The processes whose working folder this is."""
    return [pid for pid in _pids() if _link(pid, "cwd") == str(folder)]


def descendants(parent: int) -> dict[int, str]:
    """The processes that one has started, and those that they have, with their command lines."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _text(pid, "stat").rpartition(")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found, todo = {}, [parent]
    while todo:
        for pid in children.get(todo.pop(), []):
            found[pid] = _text(pid, "cmdline").replace("\0", " ")
            todo.append(pid)
    return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:  # it has just ended
        return ""


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""
