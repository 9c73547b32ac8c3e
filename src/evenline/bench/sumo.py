"""Speed of the SUMO world compared with the bare binary on the same files, and of the replay.

Both sides read the same cell and simulate the whole day with zero hold, in turn, each in its own
process, ours with the memory settings of our workers. Loading counts on both sides; for our world,
so does writing the input files. Imports and compilation do not count: a day of `town` runs first.
Each figure is the best of the repeats, because other work can only slow a run down.

Run as `python -m evenline.bench.sumo CITY` this file is the world's process.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.cells import demo_cell
from evenline.city.tables import open_city
from evenline.control.event import Batch
from evenline.control.world import run_episode
from evenline.replay.store import open_store
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder
from evenline.worlds.sumo.runtime import binary, runtime_environment, runtime_version
from evenline.worlds.sumo.scenario import write_scenario
from evenline.worlds.sumo.world import SumoWorld

CELL = demo_cell(1)
MINIBATCH = 256


def bench_sumo(city: str, repeats: int) -> dict[str, Any]:
    """Seconds of our world and of bare SUMO, their ratio, and our peak memory."""
    worlds: list[dict[str, float]] = []
    bare_s: list[float] = []
    with ScratchFolder() as folder:
        options = write_scenario(open_city(city), CELL, Path(folder)).options
        for _ in range(repeats):
            ours = [sys.executable, "-m", "evenline.bench.sumo", city]
            worlds.append(json.loads(_run(ours, runtime_environment(None))))
            began = time.perf_counter()
            _run([binary("sumo"), *options])
            bare_s.append(time.perf_counter() - began)
    world_s = min(world["seconds"] for world in worlds)
    return {
        "city": city,
        "repeats": repeats,
        "sumo": runtime_version(),
        "world_s": round(world_s, 3),
        "bare_s": round(min(bare_s), 3),
        "ratio": round(world_s / min(bare_s), 3),
        "peak_mib": round(max(world["peak_mib"] for world in worlds), 1),
    }


def bench_replay(city: str, folder: Path) -> dict[str, Any]:
    """Seconds to open a replay, canonical states per second from random minibatches, bytes."""
    began = time.perf_counter()
    store = open_store(folder, open_city(city))
    load_s = time.perf_counter() - began
    rng = np.random.Generator(np.random.PCG64(1))
    batches = rng.integers(0, len(store), (400, MINIBATCH))
    out = store.canonical(batches[0])
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        for rows in batches:
            store.canonical(rows, out)
        best = max(best, batches.size / (time.perf_counter() - began))
    return {
        "city": city,
        "rows": len(store),
        "load_s": round(load_s, 2),
        "states_per_s": round(best),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*.parquet")),
    }


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{Path(command[0]).name} ended with code {done.returncode}: {last}")
    return done.stdout


def time_world(city_name: str) -> dict[str, float]:
    """Seconds and peak memory of one day in this process."""
    city = open_city(city_name)
    with SumoWorld(open_city("town")) as world:
        run_episode(world, CELL, _no_hold)
    began = time.perf_counter()
    with SumoWorld(city) as world:
        run_episode(world, CELL, _no_hold)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak_mib": _peak_kib() / 1024}


def _no_hold(batch: Batch) -> list[float]:
    return [0.0] * len(batch.trips)


def _peak_kib() -> int:
    """The peak memory of this program. `getrusage` would include its parent's."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.open() if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(time_world(sys.argv[1])))
