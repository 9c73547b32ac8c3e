"""Real episodes for the tests of the replay, run in SUMO once for all test processes."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EVENLINE = str(Path(sys.executable).with_name("evenline"))

# A day of `town` driven by hand, with everything the world showed written beside the episode.
SCRIPT = """
import sys
from dataclasses import asdict
from pathlib import Path
import numpy as np
import evenline
from evenline.city.cells import demo_cell
from evenline.city.tables import digest, open_city
from evenline.rules.policy import BEHAVIOURS, recorded
from evenline.replay.episode import record_episode, write_episode
from evenline.worlds.sumo.runtime import runtime_version
from evenline.worlds.sumo.world import SumoWorld

folder, rule, cell = Path(sys.argv[1]), BEHAVIOURS["random-often"], demo_cell(3)
shown, holds = [], []

def policy(batch):
    shown.append(batch)
    holds.extend(rule(batch))
    return rule(batch)

with SumoWorld(open_city("town")) as world:
    decisions, outcome = record_episode(world, cell, policy)
provenance = {
    "city": digest(open_city("town")),
    "cell": asdict(cell),
    "policy": recorded(rule),
    "sumo": runtime_version(),
    "evenline": evenline.__version__,
}
write_episode(folder / "by-hand.parquet", decisions, outcome, provenance)
np.savez(
    folder / "shown.npz",
    raw=np.concatenate([batch.raw for batch in shown]),
    trips=np.concatenate([batch.trips for batch in shown]),
    sizes=[len(batch.trips) for batch in shown],
    times=[batch.time_s for batch in shown],
    holds=holds,
)
"""


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made by whichever test process comes first and shared by all."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, made = base / name, base / f"{name}.made"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def day_by_hand(folder: Path) -> None:
    """One day of `town` in a process of its own, and what the world showed on the way."""
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], check=True)


def collect_command(folder: Path, city: str = "town") -> list[str]:
    """The smallest collection: 8 behaviours in one block at three levels."""
    return [EVENLINE, "replay", "collect", "--city", city, "--blocks", "1", "--out", str(folder)]


def whole_store(folder: Path, city: str = "town") -> None:
    """A collection that was never interrupted."""
    subprocess.run(collect_command(folder, city), check=True, capture_output=True)
