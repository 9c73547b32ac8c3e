"""How much faster several workers are than one, on the same jobs of `demo` cells in turn.

Other work on the machine affects wall time but hardly the jobs' own CPU seconds. If these stay the
same with more workers, our code does not prevent linear speed-up.
"""

import resource
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.meter import Figures, print_figures
from evenline.city.cells import demo_cell
from evenline.city.tables import open_city, save_city
from evenline.cli.options import CityOption
from evenline.runs.executors import processes
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder
from reproduce.door import run


def measure(city: str, count: int, workers: int, repeats: int) -> Figures:
    """Seconds for the same jobs with one and with several workers, and the share of linear."""
    with ScratchFolder() as folder:
        inputs = Path(folder)
        save_city(open_city(city), inputs / "city")
        cells = [demo_cell(seed) for seed in range(1, count + 1)]
        jobs = [Job(city="./city", policy="headway-1.0", cell=cell) for cell in cells]
        _timed(jobs[:1], inputs, 1)  # the network is compiled at first use
        turns = [(_timed(jobs, inputs, 1), _timed(jobs, inputs, workers)) for _ in range(repeats)]
    (wall_1, cpu_1), (wall_n, cpu_n) = (
        np.median(turn, axis=0) for turn in zip(*turns, strict=True)
    )
    return {
        "city": city,
        "jobs": count,
        "workers": workers,
        "seconds_1_worker": round(wall_1, 2),
        "seconds_all_workers": round(wall_n, 2),
        "share_of_linear": round(wall_1 / wall_n / workers, 4),
        "cpu_seconds_1_worker": round(cpu_1, 2),
        "cpu_seconds_all_workers": round(cpu_n, 2),
    }


def _timed(jobs: list[Job], inputs: Path, workers: int) -> tuple[float, float]:
    """Wall seconds of the jobs, and CPU seconds."""
    began, before = time.monotonic(), _cpu_s()
    for ended in processes(workers)(jobs, inputs):
        if ended.answer is None:
            raise InputError(f"{ended.job.name}: {ended.error}")
    return time.monotonic() - began, _cpu_s() - before


def _cpu_s() -> float:
    """CPU seconds of the processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(
    city: CityOption = "town",
    jobs: Annotated[int, typer.Option(min=1, help="Days to run each time.")] = 12,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers to compare with one.")] = 2,
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of alternating runs of each; medians count.")
    ] = 3,
) -> None:
    """Measure how much faster several workers are than one; prints JSON."""
    print_figures(measure(city, jobs, workers, repeats))


if __name__ == "__main__":
    run("bench.trial", main)
