"""Speed of the SUMO world compared with the bare binary on the same files.

Both sides read the same cell and simulate the whole day with zero hold, in turn, each in its own
process, ours with the memory settings of our workers. Loading counts on both sides; for our world,
so does writing the input files. Imports and compilation do not count: a day of `town` runs first.

The world's process runs `time_world`.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

from bench.meter import Figures, RepeatsOption, print_figures, seconds_of
from evenline.city.cells import demo_cell
from evenline.city.model import City
from evenline.city.tables import open_city
from evenline.cli.options import CityOption
from evenline.control.event import Batch
from evenline.control.world import run_episode
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder
from evenline.worlds.sumo.runtime import binary, runtime_environment, runtime_version
from evenline.worlds.sumo.scenario import write_scenario
from evenline.worlds.sumo.world import SumoWorld
from reproduce.door import run

CELL = demo_cell(1)
ROOT = str(Path(__file__).parents[1])
WORLD = "import sys; from bench.sumo import time_world; print(time_world(sys.argv[1]))"


def measure(city: str, repeats: int) -> Figures:
    """Seconds of our world and of bare SUMO, their ratio, and our peak memory."""
    worlds: list[dict[str, float]] = []
    bare_s: list[float] = []
    with ScratchFolder() as folder:
        options = write_scenario(open_city(city), CELL, Path(folder)).options
        for _ in range(repeats):
            ours = [sys.executable, "-c", WORLD, city]
            environment = runtime_environment(None) | {"PYTHONPATH": ROOT}
            worlds.append(json.loads(_output(ours, environment)))
            bare_s.append(seconds_of(lambda: _output([binary("sumo"), *options])))
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


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{Path(command[0]).name} ended with code {done.returncode}: {last}")
    return done.stdout


def time_world(name: str) -> str:
    """Seconds and peak memory of one day in this process, as JSON."""
    city = open_city(name)
    _run_day(open_city("town"))
    return json.dumps({"seconds": seconds_of(lambda: _run_day(city)), "peak_mib": _peak_mib()})


def _run_day(city: City) -> None:
    with SumoWorld(city) as world:
        run_episode(world, CELL, _no_hold)


def _no_hold(batch: Batch) -> list[float]:
    return [0.0] * len(batch.trips)


def _peak_mib() -> float:
    """The peak memory of this program. `getrusage` would include its parent's."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(s.split()[1]) / 1024 for s in status.open() if s.startswith("VmHWM"))


def main(city: CityOption = "city", repeats: RepeatsOption = 5) -> None:
    """Compare a day in our SUMO world with the bare sumo program; prints JSON."""
    print_figures(measure(city, repeats))


if __name__ == "__main__":
    run("bench.sumo", main)
