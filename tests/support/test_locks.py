"""A lock keeps others out for as long as its process lives, and no longer."""

import fcntl
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from evenline.support.errors import InputError
from evenline.support.locks import locked, one_runner

HOLDER = """
import sys, time
from pathlib import Path
from evenline.support.locks import one_runner
with one_runner(Path(sys.argv[1]), "runner"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_shards_run_beside_one_another_but_never_beside_the_whole(tmp_path: Path) -> None:
    with one_runner(tmp_path, "runner", 1, 2), one_runner(tmp_path, "runner", 2, 2):
        for shard in ((1, 1), (1, 2), (2, 2)):
            with (
                pytest.raises(InputError, match="another runner is running here"),
                one_runner(tmp_path, "runner", *shard),
            ):
                pass
    with one_runner(tmp_path, "runner"):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(InputError), one_runner(tmp_path, "runner"):
            pass
        holder.send_signal(signal.SIGKILL)
    with one_runner(tmp_path, "runner"):
        assert (tmp_path / ".lock").exists()


def test_a_lock_that_waits_makes_its_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "new" / ".lock"):
        assert (tmp_path / "new" / ".lock").exists()


def test_a_refused_block_leaves_neither_file_nor_folder(tmp_path: Path) -> None:
    waiting, shard = locked(tmp_path / "a" / "b" / ".lock"), one_runner(tmp_path / "c", "it", 1, 2)
    for lock in (waiting, shard):
        with pytest.raises(InputError), lock:
            raise InputError("refused")
    assert not list(tmp_path.iterdir())


def test_a_refused_shard_leaves_the_lock_of_the_others(tmp_path: Path) -> None:
    refused = one_runner(tmp_path, "runner", 1, 2)
    refused.__enter__()
    with one_runner(tmp_path, "runner", 2, 2):
        refused.__exit__(InputError, InputError("refused"), None)
        with pytest.raises(InputError, match="another"), one_runner(tmp_path, "runner"):
            pass


def test_who_waited_for_a_removed_lock_takes_a_new_one(tmp_path: Path) -> None:
    path, held = tmp_path / ".lock", threading.Event()

    def fail() -> None:
        with suppress(InputError), locked(path):
            held.set()
            time.sleep(0.3)
            raise InputError("refused")

    with ThreadPoolExecutor() as threads:
        failing = threads.submit(fail)
        held.wait()
        with locked(path):
            assert path.exists()
            with path.open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        failing.result()
