"""Check every claim about a replay from its files, without the code that wrote them.

Cells are the independent units: the interval of a share comes from resampling cells, never rows.
Each figure has the paper's figure next to it.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from evenline.city.model import City
from evenline.replay.sealed import Manifest, check_sealed
from evenline.support.errors import InputError

_GUARD = (0.15, 0.75, 0.25)  # fractions of the horizon and the load of the completion guard
_HALF_HOUR_S = 1800
RESAMPLES = 10_000
_SEED = 20_102
HEADWAY_CAP_S, WAITING_CAP, RATE_CAP, DWELL_CAP_S = 3600.0, 20.0, 10.0, 600.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Figure:
    """One audited figure: ours (with an interval over cells if a share), the paper's, a verdict."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    passed: bool | None = None  # None: reported, not judged

    def text(self) -> str:
        """The value for display, with its interval over cells if it has one."""
        if self.low is None or self.high is None:
            return f"{self.value:,.0f}"
        return f"{self.value:.3%} ({self.low:.3%} to {self.high:.3%})"

    def paper_text(self) -> str:
        """The paper's figure in the same form."""
        if self.paper is None:
            return "-"
        return f"{self.paper:,.0f}" if self.low is None else f"{self.paper:.3%}"


@dataclass(frozen=True, eq=False)
class _Rows:
    """The data of one file."""

    cell: str
    columns: dict[str, Array]
    outcome: dict[str, float]
    rate: Array
    stop: Array


def audit_replay(folder: Path, city: City) -> tuple[list[Figure], dict[str, Any]]:
    """All figures, with their histograms and tables."""
    manifest = check_sealed(folder)
    files = [_read(folder / name, city) for name in manifest.files]
    figures = _counts(files, city, manifest) + _shares(files, city) + _exposures(files, city)
    return figures, _pictures(files, city) | {"sumo": manifest.sumo}


def _read(path: Path, city: City) -> _Rows:
    file = pq.ParquetFile(path)
    metadata = json.loads(file.metadata.metadata[b"evenline"])
    table = file.read(use_threads=False)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    if len(columns["time_s"]) == 0 or (np.diff(columns["time_s"]) < 0).any():
        raise InputError(f"{path}: rows are missing or out of order")
    seen: Counter[int] = Counter()
    stop = np.empty(len(columns["trip"]), int)
    for row, trip in enumerate(columns["trip"].tolist()):
        stop[row] = seen[trip]
        seen[trip] += 1
    stop = columns.pop("stop", stop)  # written only if some bus did not decide at every stop
    rate = _rates(city, metadata["cell"]["demand"], columns, stop)
    cell = "{sumo_seed}-{demand_seed}-{demand:.2f}".format(**metadata["cell"])
    return _Rows(cell, columns, metadata["outcome"], rate, stop)


@lru_cache(maxsize=8)
def _people(city: City, demand: float) -> Counter[tuple[int, int, int]]:
    """Who starts with a service at a stop in a half hour, counted again from the journeys."""
    counted: Counter[tuple[int, int, int]] = Counter()
    journeys = city.journeys
    for person in np.flatnonzero(journeys.min_demand <= demand).tolist():
        leg = journeys.leg_start[person]
        when = int(journeys.departure_s[person]) // _HALF_HOUR_S
        for service in journeys.carriers[journeys.leg_carriers[leg]]:
            counted[service, int(journeys.leg_board[leg]), when] += 1
    return counted


def _rates(city: City, demand: float, columns: dict[str, Array], stop: Array) -> Array:
    """Eligible arrivals per second."""
    counted, out = _people(city, demand), np.empty(len(stop))
    rows = zip(columns["trip"].tolist(), stop.tolist(), columns["time_s"].tolist(), strict=True)
    for row, (trip, position, second) in enumerate(rows):
        service = city.trips[trip].service
        where = city.services[service].stops[position]
        out[row] = counted[service, where, second // _HALF_HOUR_S] / _HALF_HOUR_S
    return out


def _counts(files: list[_Rows], city: City, manifest: Manifest) -> list[Figure]:
    rows = sum(len(f.rate) for f in files)
    zero = sum(int((np.diff(f.columns["time_s"]) == 0).sum()) for f in files)
    bad = sum(int((~np.isfinite(c)).sum()) for f in files for c in f.columns.values())
    error = max(abs(_ledger_error(f)) for f in files)
    decisions = sum(int(f.outcome["decisions"]) for f in files)
    terminal = sum(int(f.columns["time_s"][-1] < city.horizon_s) for f in files)
    return [
        Figure("rows", rows, paper=3_284_718, passed=rows == decisions),
        Figure("trajectories", len(files), paper=240, passed=len(files) == len(manifest.files)),
        Figure("terminal rows", terminal, paper=240, passed=terminal == len(files)),
        Figure("zero-duration rows", zero, paper=1_025_206),
        Figure("nonfinite values", bad, paper=0, passed=bad == 0),
        Figure("largest ledger error, passenger-seconds", error, paper=0, passed=error == 0),
    ]


def _ledger_error(file: _Rows) -> float:
    """Compare the costs of decisions and of the time before them with the day's totals."""
    outcome = file.outcome
    total = 2 * outcome["waiting_s"] + outcome["riding_s"]
    inside = file.columns["cost"][:-1][np.diff(file.columns["time_s"]) == 0]
    if (inside != 0).any():
        return float("inf")
    return float(
        outcome["pre_control_cost"] + int(file.columns["cost"].sum(dtype=np.int64)) - total
    )


def _guard_rows(file: Any, city: City) -> Array:
    """Low-load tail buses with demand left: the state of the completion reserve."""
    low, high, load = _GUARD
    share = file.columns["time_s"] / city.horizon_s
    return np.asarray(
        (low <= share)
        & (share < high)
        & (file.columns["headway_ahead_s"] >= 0)
        & (file.columns["headway_behind_s"] < 0)
        & (file.rate > 0)
        & (file.columns["on_board"] / city.capacities[file.columns["trip"]] <= load)
    )


def _shares(files: list[_Rows], city: City) -> list[Figure]:
    everything = [np.ones(len(f.rate), bool) for f in files]
    guard = [_guard_rows(f, city) for f in files]
    hold = [f.columns["hold_s"] for f in files]

    def share(
        name: str, test: Callable[[Array], Array], among: list[Array], paper: float
    ) -> Figure:
        hits: Counter[str] = Counter()
        rows: Counter[str] = Counter()
        for file, held, chosen in zip(files, hold, among, strict=True):
            hits[file.cell] += int(test(held)[chosen].sum())
            rows[file.cell] += int(chosen.sum())
        return Figure(name, *_by_cell(hits, rows), paper=paper)

    in_guard: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for file, chosen in zip(files, guard, strict=True):
        in_guard[file.cell] += int(chosen.sum())
        rows[file.cell] += len(chosen)
    return [
        share("share of exact zero holds", lambda h: h == 0, everything, 0.802246),
        share("share of holds of exactly 60 s", lambda h: h == 60, everything, 2_145 / 3_284_718),
        Figure("share of guard rows", *_by_cell(in_guard, rows), paper=0.0391),
        share("guard rows held at least 20 s", lambda h: h >= 20, guard, 0.0581),
        share("guard rows held at least 30 s", lambda h: h >= 30, guard, 0.0369),
        share("guard rows held at least 40 s", lambda h: h >= 40, guard, 0.0217),
    ]


def _by_cell(hits: Counter[str], rows: Counter[str]) -> tuple[float, float, float]:
    """A share of all rows with a 95 % interval from resampling whole cells."""
    cells = sorted(rows)
    top, bottom = np.array([hits[c] for c in cells]), np.array([rows[c] for c in cells])
    draw = np.random.Generator(np.random.PCG64(_SEED)).integers(
        0, len(cells), (RESAMPLES, len(cells))
    )
    shares = top[draw].sum(axis=1) / np.maximum(bottom[draw].sum(axis=1), 1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(top.sum() / max(bottom.sum(), 1)), float(low), float(high)


def _exposures(files: list[_Rows], city: City) -> list[Figure]:
    """How many rows exceed the cap that the canonical state has for a feature."""
    room = city.capacities  # of each trip
    targets = np.zeros(len(city.trips))
    for trips in city.trips_of:
        for first, second in pairwise(trips):
            targets[second] = city.trips[second].departure_s - city.trips[first].departure_s
    tests: dict[str, tuple[Callable[[_Rows], Array], float]] = {
        "headway ahead": (lambda f: f.columns["headway_ahead_s"] > HEADWAY_CAP_S, 0),
        "headway behind": (lambda f: f.columns["headway_behind_s"] > HEADWAY_CAP_S, 1_565),
        "target headway": (lambda f: targets[f.columns["trip"]] > HEADWAY_CAP_S, 0),
        "waiting": (lambda f: f.columns["waiting"] / room[f.columns["trip"]] > WAITING_CAP, 0),
        "arrival rate": (lambda f: f.rate * 600 / room[f.columns["trip"]] > RATE_CAP, 0),
        "base dwell": (lambda f: f.columns["base_dwell_s"] > DWELL_CAP_S, 0),
    }
    return [
        Figure(f"rows beyond the cap of {name}", sum(int(t(f).sum()) for f in files), paper=paper)
        for name, (t, paper) in tests.items()
    ]


def _pictures(files: list[_Rows], city: City) -> dict[str, Any]:
    """Histograms of holds and headways, and the support of each cell."""
    hold = np.concatenate([f.columns["hold_s"] for f in files])
    ahead = np.concatenate([f.columns["headway_ahead_s"] for f in files])
    support: dict[str, dict[str, float]] = {}
    for f in files:
        row = support.setdefault(f.cell, {"rows": 0, "held": 0, "guard": 0})
        row["rows"] += len(f.rate)
        row["held"] += int((f.columns["hold_s"] > 0).sum())
        row["guard"] += int(_guard_rows(f, city).sum())
    return {
        "hold_histogram": np.histogram(hold[hold > 0], np.arange(0, 61, 2))[0].tolist(),
        "headway_histogram": np.histogram(ahead[ahead >= 0], np.arange(0, 2401, 60))[0].tolist(),
        "support_by_cell": support,
    }


def as_rows(figures: list[Figure]) -> list[dict[str, Any]]:
    """Figures ready for JSON."""
    return [asdict(figure) for figure in figures]
