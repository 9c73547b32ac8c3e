"""How much faster several workers are than one, on the same jobs of `demo` cells in turn.

Other work on the machine affects wall time but hardly the jobs' own CPU seconds. If these stay the
same with more workers, our code does not prevent linear speed-up.
"""

import os
import resource
import time
from pathlib import Path
from statistics import median
from typing import Any

from evenline.city.cells import demo_cell
from evenline.city.tables import open_city, save_city
from evenline.runs.executors import processes
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder

Timing = tuple[float, float]  # wall seconds, CPU seconds of the jobs


def bench_trial(city: str, jobs: int, workers: int, repeats: int) -> dict[str, Any]:
    """Seconds for the same jobs with one and with several workers, and the share of linear."""
    with ScratchFolder() as folder:
        inputs = Path(folder)
        save_city(open_city(city), inputs / "city")
        orders = [
            Job(city="./city", policy="headway-1.0", cell=demo_cell(seed))
            for seed in range(1, jobs + 1)
        ]
        _timed(orders[:1], inputs, 1)  # the network is compiled at first use
        load_before = os.getloadavg()[0]
        alone: list[Timing] = []
        together: list[Timing] = []
        for _ in range(repeats):
            alone.append(_timed(orders, inputs, 1))
            together.append(_timed(orders, inputs, workers))
    (wall_1, cpu_1), (wall_n, cpu_n) = _medians(alone), _medians(together)
    shares = [one[0] / many[0] / workers for one, many in zip(alone, together, strict=True)]
    return {
        "city": city,
        "jobs": jobs,
        "repeats": repeats,
        "workers": workers,
        "seconds_1_worker": round(wall_1, 2),
        "seconds_all_workers": round(wall_n, 2),
        "share_of_linear": round(wall_1 / wall_n / workers, 4),
        "share_of_linear_by_repeat": [round(share, 4) for share in shares],
        "cpu_seconds_1_worker": round(cpu_1, 2),
        "cpu_seconds_all_workers": round(cpu_n, 2),
        "cores": os.cpu_count(),
        "load_before": round(load_before, 2),
    }


def _medians(timings: list[Timing]) -> Timing:
    return median(wall for wall, _ in timings), median(cpu for _, cpu in timings)


def _timed(orders: list[Job], inputs: Path, workers: int) -> Timing:
    began, before = time.monotonic(), _cpu_s()
    for ended in processes(workers)(orders, inputs):
        if ended.answer is None:
            raise InputError(f"{ended.job.name}: {ended.error}")
    return time.monotonic() - began, _cpu_s() - before


def _cpu_s() -> float:
    """CPU seconds of the processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
