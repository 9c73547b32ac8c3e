"""Speed of the fast world on one core: in the kernel, with states, as a fleet, and against SUMO.

Every figure includes making the day. `grown` measures how time grows with the size of a city, and
how long this machine takes to read from memory of that size.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from bench.cities import copied_calibration, copied_city
from bench.meter import (
    DocsOption,
    Figures,
    RepeatsOption,
    figure_table,
    least_s,
    print_figures,
    seconds_of,
    write_figures,
)
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.cli.options import CityOption
from evenline.control.world import run_episode
from evenline.rules.policy import BEHAVIOURS
from evenline.support.columns import markdown
from evenline.support.compiled import compiled
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld, Fleet
from evenline.worlds.open import open_city
from evenline.worlds.sumo.world import SumoWorld
from reproduce.door import run

FLEET = 64
SIZES = (1, 3, 10, 30, 100)
ROUNDS = 5
RULE = BEHAVIOURS["headway-1.0"]
FIRST = PURPOSES["demo"]


def _days(seed: int, count: int) -> list[Cell]:
    return [Cell(FIRST.sumo_seed + i, FIRST.demand_seed + i + seed, 1.0) for i in range(count)]


def rates(city: City, calibration: Calibration, repeats: int) -> Figures:
    """Decisions per second, and memory and processor time of a day."""
    world, fleet = FastWorld(city, calibration), Fleet(city, calibration, FLEET)
    cells = _days(0, 10)

    def kernel(states: bool) -> int:
        return sum(world.run_day(cell, RULE, states).decisions for cell in cells)

    def stepped() -> int:
        states, decisions = fleet.reset(_days(1, FLEET)), 0
        while not fleet.over.all():
            decisions += len(fleet) - int(fleet.over.sum())
            states = fleet.step(np.where(states[:, 8] > 0.5, 10.0, 0.0))
        return decisions

    # The first call of each compiles, and says how many decisions it makes.
    kernel_per_s = kernel(False) / least_s(lambda: kernel(False), repeats)
    state_per_s = kernel(True) / least_s(lambda: kernel(True), repeats)
    fleet_per_s = stepped() / least_s(stepped, max(1, repeats // 2))
    return {
        "city": city.name,
        "kernel_per_s": round(kernel_per_s),
        "state_per_s": round(state_per_s),
        "fleet_per_s": round(fleet_per_s),
        "mib_per_world": round(fleet.world_bytes / 2**20, 3),
        "day_cpu_ms": round(1000 * min(_day_cpu_s(world, cell) for cell in cells * repeats), 3),
        "episode_ms": round(1000 * city.decisions / kernel_per_s, 3),
    }


def _day_cpu_s(world: FastWorld, cell: Cell) -> float:
    """The processor time of one day, which other work on the machine does not lengthen much."""
    began = time.process_time()
    world.run_day(cell, RULE)
    return time.process_time() - began


def against_sumo(city: City, calibration: Calibration) -> Figures:
    """A day of the same cell with zero hold in each world, with SUMO's files and loading."""
    world, cell, zero = FastWorld(city, calibration), _days(0, 1)[0], BEHAVIOURS["zero"]
    with SumoWorld(city) as sumo:
        sumo_s = seconds_of(lambda: run_episode(sumo, cell, zero))
    fast_s = least_s(lambda: world.run_day(cell, zero), 10)
    return {"sumo_s": round(sumo_s, 2), "sumo_ratio": round(sumo_s / fast_s)}


# -- growth with the size of a city ---------------------------------------------------------------


def grown(city: City, calibration: Calibration, sizes: Sequence[int]) -> list[Figures]:
    """Milliseconds of a day in cities of growing size; the sizes take turns.

    Each day runs three times in a row, so that a small city is measured with its tables in the
    caches. Just after a large city it would seem slower, and growth smaller.
    """
    worlds = {
        size: FastWorld(copied_city(city, size), copied_calibration(calibration, size))
        for size in sizes
    }
    cell, best_s = _days(0, 1)[0], dict.fromkeys(sizes, float("inf"))
    for size, world in list(worlds.items()) * ROUNDS:
        best_s[size] = min(best_s[size], least_s(partial(world.run_day, cell, RULE), 3))
    return [_size_row(size, world, best_s[size]) for size, world in worlds.items()]


def _size_row(size: int, world: FastWorld, seconds: float) -> Figures:
    outcome = world.outcome()
    mib = world.all_bytes / 2**20
    return {
        "size": size,
        "services": len(world.city.services),
        "trips": len(world.city.trips),
        "passengers": outcome.departed,
        "ms": round(1000 * seconds, 3),
        "ns_per_decision": round(1e9 * seconds / outcome.decisions, 1),
        "mib": round(mib, 1),
        "read_ns": round(read_ns(mib), 1),
    }


def exponent(rows: Sequence[Figures]) -> float:
    """The power of a city's size with which the time of a day grows: 1 if in proportion."""
    size, ms = ([row[name] for row in rows] for name in ("size", "ms"))
    return round(float(np.polyfit(np.log(size), np.log(ms), 1)[0]), 3)


def read_ns(mib: float, reads: int = 1_000_000) -> float:
    """Time one dependent random read in this much memory."""
    order = np.random.Generator(np.random.PCG64(1)).permutation(max(2, int(mib * 2**20 / 8)))
    chain = np.empty_like(order)
    chain[order] = np.roll(order, -1)
    at, best_s = _follow(chain, 0, len(chain)), float("inf")
    for _ in range(3):  # each goes on where the last one ended, far from what is in the caches
        began = time.perf_counter()
        at = _follow(chain, at, reads)
        best_s = min(best_s, time.perf_counter() - began)
    return 1e9 * best_s / reads


@compiled
def _follow(chain: npt.NDArray[np.int64], at: int, reads: int) -> int:
    for _ in range(reads):
        at = chain[at]
    return at


# -- the command ----------------------------------------------------------------------------------


def main(
    city: CityOption = "city",
    repeats: RepeatsOption = 5,
    sumo: Annotated[bool, typer.Option(help="Also run a day in SUMO, for the ratio.")] = True,
    scale: Annotated[
        bool, typer.Option(help="Also measure cities up to 100 times as large.")
    ] = False,
    docs: DocsOption = None,
) -> None:
    """Measure decisions per second of the fast world on one core; prints JSON."""
    opened = open_city(city)
    measured = opened.city, opened.fitted()
    figures = rates(*measured, repeats)
    if sumo:
        figures |= against_sumo(*measured)
    rows = grown(*measured, SIZES) if scale else []
    if rows:
        figures["scale_exponent"] = exponent(rows)
    print_figures(figures | ({"scale": rows} if rows else {}))
    if docs is None:
        return
    lines = figure_table({k: f"{v:,}" for k, v in figures.items() if k != "city"})
    if rows:
        cells = [[f"{value:,}" for value in row.values()] for row in rows]
        lines += ["", *markdown([[*rows[0]], *cells])]
    command = f"python -m bench.fast --city {city}" + " --scale" * scale
    write_figures(docs, f"bench fast {city}", command, lines)


if __name__ == "__main__":
    run("bench.fast", main)
