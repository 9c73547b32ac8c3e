"""Calibrate the fast world: run the missing SUMO days, fit, and plot the fit.

The result is a folder: the stop-visit logs, `calibration.json`, and one figure of fit against data.
If it is killed, only the running days are lost; the next run continues.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell, service_stop_offsets
from evenline.city.model import City
from evenline.city.operations import USUAL_OPERATIONS
from evenline.city.slowness import needs_slowing
from evenline.city.tables import digest, open_city
from evenline.control.visits import read_visits, visit_table
from evenline.experiments.streets import slow_streets
from evenline.figures.plots import png
from evenline.rules.policy import BEHAVIOURS
from evenline.runs.days import run_days
from evenline.runs.executors import WHOLE, Executor, Shard
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import (
    read_json,
    refuse_changed_files,
    to_json,
    write_bytes,
    write_listed,
    write_text,
)
from evenline.worlds.calibration import (
    CYCLE_S,
    PHASE_S,
    Calibration,
    Runs,
    calibration_text,
    fit,
    read_runs,
)
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import CALIBRATION
from evenline.worlds.open import open_city as open_calibrated
from evenline.worlds.sumo.runtime import installed_version
from evenline.worlds.timetable import is_declared

BLOCKS = 8
PLAN, RESULTS = "plan.json", ("calibration.json", "calibration.png", "overtaking.json")
HOLDING = "headway-1.0"  # at demand 1.00 the logs also show days with holds


def calibration_jobs(folder: Path, city: str, blocks: int = BLOCKS) -> list[Job]:
    """The days a calibration is fitted to: zero hold at every level, and some with holds."""
    cells = PURPOSES["calibration"].cells(blocks)
    return [
        Job(
            city=city,
            policy=name,
            cell=cell,
            visits=folder / "visits" / name / f"{cell.name}.parquet",
            as_usual=True,
        )
        for name in ("zero", HOLDING)
        for cell in cells
        if name == "zero" or cell.demand == 1.0
    ]


def calibrate(
    city_name: str,
    folder: Path,
    blocks: int = BLOCKS,
    executor: Executor | None = None,
    shard: Shard = WHOLE,
    force: bool = False,
) -> tuple[Calibration, dict[str, float]]:
    """Run the missing days, fit, and write the calibration file and its figure.

    A shard runs its part of the days; the fit is made when all of them exist. The days have the
    usual operations: a slow road must not be fitted, because every day of the city adds it again.
    An imported city has its streets slowed first: see `slow_streets`.
    """
    city = replace(_slowed(city_name, executor, shard), operations=USUAL_OPERATIONS)
    refuse_changed_files(folder, RESULTS, force)
    _check_plan(folder, city)
    jobs = calibration_jobs(folder, city_name, blocks)
    missing = [job for job in shard.of(jobs) if job.visits is not None and not job.visits.exists()]
    if missing:
        label = f"calibration days of {city.name}"
        run_days(missing, label, city.horizon_s, executor)
    for job in jobs:
        if job.visits is not None and not job.visits.exists():
            raise InputError(f"{job.visits} is missing; run the other shards too")
    logs = [job.visits for job in jobs if job.visits is not None]
    calibration = fit(city, logs)
    passing = overtaking(city, calibration, logs)
    picture = png(fit_figure(city, calibration, logs))
    made = (calibration_text(calibration).encode(), picture, to_json(passing).encode())
    write_listed(folder, dict(zip(RESULTS, made, strict=True)), force)
    return calibration, passing


def _slowed(city_name: str, executor: Executor | None, shard: Shard) -> City:
    """The city; its streets are slowed first if nobody has done so, lest its timetable is lost."""
    if not needs_slowing(city := open_city(city_name)):
        return city
    if shard != WHOLE:
        raise InputError(
            f"the streets of {city_name} are empty in SUMO; before its shards run, slow them with: "
            f"evenline city fit {city_name} --streets-only"
        )
    slow_streets(city_name, executor=executor)
    return open_city(city_name)


def _check_plan(folder: Path, city: City) -> None:
    """Refuse a folder that holds the days of another city or SUMO version."""
    wanted, path = {"city": digest(city), "sumo": installed_version()}, folder / PLAN
    if not path.exists():
        write_text(path, to_json(wanted))
    elif read_json(path) != wanted:
        raise InputError(
            f"{path} belongs to another city or SUMO version; choose another folder with --out"
        )


def place_in_city(city_name: str, calibration: Path) -> Path:
    """Copy a calibration into the city's folder; return its path.

    An embedded city has its own. An existing calibration stays unless it no longer fits or comes
    from the timetable.
    """
    place = Path(city_name) / CALIBRATION
    if not place.parent.is_dir() or _is_fitted(city_name):
        return calibration
    write_bytes(place, calibration.read_bytes())
    return place


def _is_fitted(city_name: str) -> bool:
    """Whether the city has a calibration that was fitted to days and still fits the city."""
    own = open_calibrated(city_name).calibration
    return own is not None and not is_declared(own)


def overtaking(city: City, calibration: Calibration, logs: list[Path]) -> dict[str, float]:
    """Share of arrivals at which a bus has just overtaken another of its service, in both worlds.

    Uses the zero-hold days at demand 1.00; the fit does not use overtaking.
    """
    world = FastWorld(city, calibration, keep_visits=True)
    passed, arrivals = {"sumo": 0, "fast": 0}, {"sumo": 0, "fast": 0}
    for path, cell in _plain_days(logs):
        world.run_day(cell, BEHAVIOURS["zero"])
        tables = {"sumo": read_visits(path), "fast": visit_table(city, world.visits)}
        for name, table in tables.items():
            order = ("service", "stop_sequence", "trip", "arrival_s")
            rows = list(zip(*(table[column].to_pylist() for column in order), strict=True))
            came = {(service, stop, trip): second for service, stop, trip, second in rows}
            by_stop: dict[tuple[str, int], list[tuple[int, int]]] = {}
            for service, stop, trip, second in rows:
                if (before := came.get((service, stop - 1, trip))) is not None:
                    by_stop.setdefault((service, stop), []).append((second, before))
            for pairs in by_stop.values():
                before = [b for _, b in sorted(pairs)]
                passed[name] += sum(b > after for b, after in pairwise(before))
                arrivals[name] += len(pairs)
    return {name: round(passed[name] / max(arrivals[name], 1), 4) for name in passed}


def _plain_days(logs: list[Path]) -> list[tuple[Path, Cell]]:
    """The zero-hold logs at demand 1.00, with their cells."""
    cells = {f"{cell.name}.parquet": cell for cell in PURPOSES["calibration"].cells()}
    return [
        (path, cells[path.name])
        for path in logs
        if path.parent.name == "zero" and cells[path.name].demand == 1.0
    ]


def fit_figure(city: City, calibration: Calibration, logs: list[Path]) -> Figure:
    """Fit against data: segment means, spread of whole trips, the signal cycle, the noise."""
    runs, _ = read_runs(city, logs)
    place = runs.place.astype(int)
    figure = Figure(figsize=(11, 7), layout="constrained")
    means, trips, cycle, noise = figure.subplots(2, 2).flat
    count = np.maximum(np.bincount(place, minlength=len(calibration.mean_s)), 1)
    data = np.bincount(place, runs.seconds, minlength=len(count)) / count
    used = np.bincount(place, minlength=len(count)) > 0
    means.plot(data[used], calibration.mean_s.mean(axis=1)[used], ".", ms=3, color="#0072B2")
    top = float(data.max()) * 1.05
    means.plot([0, top], [0, top], lw=0.8, color="0.5")
    means.set(xlabel="SUMO mean running time, s", ylabel="fit, s", title="Segments")
    _trip_durations(trips, city, calibration, logs)
    strongest = int(np.ptp(calibration.phase_s, axis=1).argmax())
    _signal_cycle(cycle, runs, calibration, strongest)
    levels = np.linspace(0, 1, calibration.noise_s.shape[1])
    noise.plot(levels, calibration.noise_s[used].mean(axis=0), color="#0072B2")
    for share in (10, 90):
        band = np.percentile(calibration.noise_s[used], share, axis=0)
        noise.plot(levels, band, lw=0.8, ls="--", color="#0072B2")
    noise.set(
        xlabel="probability",
        ylabel="s",
        title="Noise: quantiles, mean and 10 % and 90 % of segments",
    )
    return figure


def _trip_durations(axes: Axes, city: City, calibration: Calibration, logs: list[Path]) -> None:
    """Durations of whole trips on zero-hold days at demand 1.00, which the fit does not use."""
    offsets = service_stop_offsets(city)
    last = {int(offsets[i + 1]) - 2 for i in range(len(city.services))}
    sumo, fast = [], []
    for path, cell in _plain_days(logs):
        runs, _ = read_runs(city, [path])
        ends = np.isin(runs.place, list(last))
        starts = {int(t): s for t, s in zip(runs.trip[::-1], runs.leaves_s[::-1], strict=True)}
        arrive = runs.leaves_s[ends] + runs.seconds[ends]
        sumo += [a - starts[int(t)] for a, t in zip(arrive, runs.trip[ends], strict=True)]
        world = FastWorld(city, calibration, keep_visits=True)
        world.run_day(cell, BEHAVIOURS["zero"])
        visits = world.visits
        first = {v.trip: v.departure_s for v in visits if v.position == 0}
        end = {v.trip: v.arrival_s for v in visits}
        fast += [end[t] - first[t] for t in first]
    bins = np.linspace(min(sumo), max(sumo), 40).tolist()
    axes.hist(sumo, bins, density=True, histtype="step", color="#D55E00", label="SUMO")
    axes.hist(fast, bins, density=True, histtype="step", color="#0072B2", label="fast world")
    axes.set(xlabel="trip duration, s", yticks=[], title="Whole trips, demand 1.00, zero hold")
    axes.legend(frameon=False)


def _signal_cycle(axes: Axes, runs: Runs, calibration: Calibration, place: int) -> None:
    """The segment with the strongest signal effect: running time by second of departure."""
    here = runs.place == place
    axes.plot(runs.leaves_s[here] % CYCLE_S, runs.seconds[here], ".", ms=1.5, color="0.6")
    edges = np.arange(0, CYCLE_S + 1, PHASE_S)
    fitted = calibration.mean_s[place].mean() + calibration.phase_s[place]
    axes.stairs(fitted, edges, color="#0072B2", lw=2, baseline=None, label="fit")
    axes.set(
        xlabel="second of the signal cycle",
        ylabel="s",
        title="Segment with the strongest signal effect",
    )
    axes.legend(frameon=False)
