"""A shadow whose process is killed goes on with the same command, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from evenline.city.model import City
from evenline.live.entries import Begun, PollEntry
from evenline.live.feed import write_message
from evenline.live.record import Recorder, played
from evenline.live.shadow import Rules, Shadow
from evenline.worlds.open import open_city
from on_the_road import Road
from shadow_log import entries, facts

EVERY_S, END_S = 20.0, 800.0


def run(folder: Path, speed: float) -> "subprocess.Popen[bytes]":
    """The command of an agency, on a recording."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "evenline", "shadow", "run", "--city", "town",
            "--policy", "forward:gain=1", "--lines", "1E", "--lead", "45", "--no-page",
            "--every", str(EVERY_S), "--feed", str(folder / "day"), "--speed", str(speed),
            "--log", str(folder / "log"),
        ],
        stdout=subprocess.DEVNULL, env=os.environ,
    )  # fmt: skip


def test_a_killed_run_goes_on_and_loses_nothing(town: City, tmp_path: Path) -> None:
    road, recorder = Road(town, {1: -170.0}), Recorder(tmp_path / "day")
    for second in np.arange(0.0, END_S, EVERY_S):
        recorder.keep(road.frame.moment(float(second)), write_message(road.snapshot(float(second))))
    recorder.close()
    whole = Shadow(
        open_city("town"), "forward:gain=1", ("1E",), Rules(lead_s=45.0), tmp_path / "whole"
    )
    for polled in played(tmp_path / "day", EVERY_S):
        whole.take(polled)
    whole.close()
    child = run(tmp_path, speed=100.0)
    until = time.monotonic() + 60
    while not (tmp_path / "log").is_file() or b'"advice"' not in (tmp_path / "log").read_bytes():
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert 5 < sum(isinstance(e, PollEntry) for e in entries(tmp_path / "log")) < END_S / EVERY_S
    assert run(tmp_path, speed=0.0).wait(timeout=120) == 0
    assert sum(isinstance(e, Begun) for e in entries(tmp_path / "log")) == 2
    assert facts(tmp_path / "log") == facts(tmp_path / "whole"), "each once, and the same"
