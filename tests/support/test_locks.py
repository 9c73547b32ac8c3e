"""A lock keeps others out for as long as its process lives, and no longer."""

import signal
import subprocess
import sys
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
