"""The calibration of the fast world: running times and their spread, fitted to stop visits in SUMO.

The running time of a segment is a mean for the hour, plus a share of the trip's own pace (a slow
driver is slow all day), plus an effect of the phase of the signal cycle at departure (so that buses
close together behave similarly), plus noise with the segment's own distribution, which a trip
sometimes copies from the previous trip. All are fitted to stop-visit logs; the file is readable
JSON and names its logs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats
from evenline.city.tables import digest, network_digest
from evenline.control.regularity import rows_of_groups
from evenline.control.visits import read_visits
from evenline.support.compiled import shared
from evenline.support.errors import InputError
from evenline.support.files import sha256, to_json, write_text
from evenline.support.records import Hashes, Line, Number, Record, Sha256, Word, read_record

FORMAT = "evenline-calibration-3"
_FORMAT_LATE = "evenline-calibration-4"  # with lateness at the first stop
HOUR_S = 3600
CYCLE_S = 90  # of the signals
PHASE_S = 10
PHASES = CYCLE_S // PHASE_S
NOISE_QUANTILES = 33
PACE_QUANTILES = 65
LATE_QUANTILES = 33
_MOST_S = 1e6
RANGES = {  # of the numbers in a file
    "mean_s": (0.0, _MOST_S),
    "pace_s": (0.0, _MOST_S),
    "phase_s": (-_MOST_S, _MOST_S),
    "noise_s": (-_MOST_S, _MOST_S),
    "least_s": (1.0, _MOST_S),
    "pace": (-1.0, 1000.0),
    "lateness_s": (-86_400.0, 86_400.0),
}
OPTIONAL = (  # written with effect
    "note", "close_s", "close_within_s", "recover", "late_follow", "jam_near", "jam_far",
)  # fmt: skip
JAM_S = 30.0  # a bus that is delayed by more is in a jam, in which others will be, too
JAM_NEAR_S, JAM_FAR_S = 450.0, 1_200.0  # headways from which on it is far, and over
_HOUR_PRIOR = 20.0  # number of visits at which an hour's own mean weighs as much as the day's


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fitted running times. There is one row per service-stop; the row of a last stop is unused."""

    network: str  # what it was fitted to: see `evenline.city.tables.network_digest`
    start_delay_s: int
    mean_s: Floats  # place, hour
    pace_s: Floats  # place: seconds for one unit of pace
    phase_s: Floats  # place, tenth of the signal cycle
    noise_s: Floats  # place, quantile
    least_s: Floats  # place
    pace: Floats  # quantiles of the trips' pace
    follow: float  # share of runs that copy the run of the previous trip
    sources: dict[str, str]
    residuals: dict[str, float]
    lateness_s: Floats | None = None  # service, quantile: how late trips reach their first stop
    note: str = ""  # repeated with every result of the fast world
    close_s: float = 0.0  # what a run takes longer right behind another bus; see `closeness`
    close_within_s: float = 0.0  # headways from which on another bus is not close
    recover: float = 0.0  # share of a late start that a trip makes up on its way
    late_follow: float = 0.0  # share of trips that start as late as the previous trip
    jam_near: float = 0.0  # what a bus has of the jam of the bus ahead: see `jam_share`
    jam_far: float = 0.0


@dataclass(frozen=True, eq=False)
class Runs:
    """Segment runs of many days as columns, the data of the fit."""

    place: Floats
    trip: Floats  # unique over days
    day: Floats
    leaves_s: Floats
    seconds: Floats


def read_runs(city: City, logs: Sequence[Path]) -> tuple[Runs, float]:
    """The segment runs of stop-visit logs, and the median delay of trips at their first stop."""
    offsets = service_stop_offsets(city)
    service = {s.id: i for i, s in enumerate(city.services)}
    trip_number = {t.id: i for i, t in enumerate(city.trips)}
    parts: list[list[Floats]] = []
    delays = []
    for day, path in enumerate(logs):
        table = read_visits(path)
        at: dict[str, Any] = {name: table[name].to_pylist() for name in ("service", "trip")}
        for name in ("stop_sequence", "arrival_s", "departure_s", "scheduled_start_s"):
            at[name] = table[name].to_numpy()
        try:
            place = offsets[[service[s] for s in at["service"]]] + at["stop_sequence"]
            trip = np.array([trip_number[t] for t in at["trip"]])
        except KeyError as error:
            raise InputError(f"{path}: {error} does not exist in {city.name}") from None
        follows = (trip[1:] == trip[:-1]) & (np.diff(at["stop_sequence"]) == 1)
        first = at["stop_sequence"] == 0
        delays.append(at["arrival_s"][first] - at["scheduled_start_s"][first])
        parts.append(
            [
                place[:-1][follows],
                trip[:-1][follows] + day * len(city.trips),
                np.full(follows.sum(), day),
                at["departure_s"][:-1][follows],
                (at["arrival_s"][1:] - at["departure_s"][:-1])[follows],
            ]
        )
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Runs(*columns), float(np.median(np.concatenate(delays)))


def fit(city: City, logs: Sequence[Path]) -> Calibration:
    """Fit the running-time model to stop-visit logs."""
    if not logs:
        raise InputError(f"calibration of {city.name}: no stop-visit logs")
    runs, delay = read_runs(city, logs)
    if delay < 0:
        raise InputError(
            f"calibration of {city.name}: buses reach their first stop {-delay:g} s before they "
            "start; the logs belong to another timetable"
        )
    _check_cover(city, runs)
    return fit_runs(city, runs, round(delay), _sources(logs))


def fit_runs(
    city: City,
    runs: Runs,
    start_delay_s: int,
    sources: dict[str, str],
    mean: Floats | None = None,
    signals: bool = True,
) -> Calibration:
    """Fit the running-time model to segment runs.

    `mean` gives the means by place and hour if they are known better than from these runs alone.
    Without `signals` the phase of the signal cycle has no effect.
    """
    places = int(service_stop_offsets(city)[-1])
    hours = -(-city.horizon_s // HOUR_S)
    place, y = runs.place.astype(int), runs.seconds.astype(float)
    if mean is None:
        mean = _hourly_means(place, runs.leaves_s, y, places, hours)
    hour = np.minimum(runs.leaves_s // HOUR_S, hours - 1).astype(int)
    rest = y - mean[place, hour]
    pace = _trip_pace(runs.trip.astype(int), rest, mean[place, hour])
    slope = _slopes(place, pace, rest, places)
    after_pace = rest - slope[place] * pace
    phase = (runs.leaves_s % CYCLE_S // PHASE_S).astype(int)
    effect = _cell_means(place * PHASES + phase, after_pace, places * PHASES, prior=5.0)
    if not signals:
        effect = np.zeros_like(effect)
    noise = after_pace - effect[place * PHASES + phase]
    _, first_run = np.unique(runs.trip.astype(int), return_index=True)
    followers = _lag(place + 1e6 * runs.day, runs.leaves_s, noise)
    return Calibration(
        network=network_digest(city),
        start_delay_s=start_delay_s,
        mean_s=mean.round(2),
        pace_s=slope.round(2),
        phase_s=effect.reshape(places, PHASES).round(2),
        noise_s=_noise_quantiles(place, noise, places).round(2),
        least_s=_least(place, y, places),
        pace=_quantiles(pace[first_run], PACE_QUANTILES).round(5),
        follow=round(share_copied(followers), 4),
        sources=sources,
        residuals={
            "runs": float(len(y)),
            "mean_run_s": round(float(y.mean()), 3),
            "sd_within_segment_s": round(float(rest.std()), 3),
            "sd_after_pace_s": round(float(after_pace.std()), 3),
            "sd_after_phase_s": round(float(noise.std()), 3),
            "correlation_along_trip": round(_lag(runs.trip, runs.leaves_s, noise), 4),
            "correlation_of_followers": round(followers, 4),
            **_dependence_of_pace(city, runs, first_run, pace[first_run]),
        },
    )


def _check_cover(city: City, runs: Runs) -> None:
    """Check that the logs contain every segment of every service."""
    offsets = service_stop_offsets(city)
    seen = np.bincount(runs.place.astype(int), minlength=int(offsets[-1])) > 0
    for index, service in enumerate(city.services):
        missing = np.flatnonzero(~seen[offsets[index] : offsets[index + 1] - 1])
        if len(missing):
            raise InputError(
                f"calibration of {city.name}: no bus of {service.id} was recorded after stop "
                f"{missing[0]}; simulate more days"
            )


def _sources(logs: Sequence[Path]) -> dict[str, str]:
    """The hash of each log by name, with the folder if two logs have the same name."""
    names = [path.name for path in logs]
    alone = {path: names.count(path.name) == 1 for path in logs}
    return {
        path.name if alone[path] else f"{path.parent.name}/{path.name}": sha256(path)
        for path in logs
    }


def _cell_means(cell: Any, y: Floats, size: int, prior: float) -> Floats:
    """The mean of each cell, shrunk towards zero if there is little data."""
    count = np.bincount(cell, minlength=size)
    return np.bincount(cell, y, minlength=size) / (count + prior)


def _hourly_means(place: Any, leaves: Floats, y: Floats, places: int, hours: int) -> Floats:
    count = np.bincount(place, minlength=places)
    day = np.bincount(place, y, minlength=places) / np.maximum(count, 1)
    hour = np.minimum(leaves // HOUR_S, hours - 1).astype(int)
    place_means = _cell_means(place * hours + hour, y - day[place], places * hours, _HOUR_PRIOR)
    return day[:, None] + place_means.reshape(places, hours)


def _trip_pace(trip: Any, rest: Floats, expected: Floats) -> Floats:
    """The pace of each run's trip: how much longer than expected the trip took, as a share."""
    share = np.bincount(trip, rest) / np.maximum(np.bincount(trip, expected), 1e-9)
    return np.asarray(share[trip])


def _slopes(place: Any, pace: Floats, rest: Floats, places: int) -> Floats:
    top = np.bincount(place, pace * rest, minlength=places)
    return np.maximum(top / np.maximum(np.bincount(place, pace**2, minlength=places), 1e-9), 0.0)


def _quantiles(y: Floats, count: int) -> Floats:
    """Quantiles at equal steps of probability; the outermost are means of their cells."""
    return np.asarray(np.quantile(y, quantile_levels(count)))


def quantile_levels(count: int) -> Floats:
    """The probabilities of the quantiles in a calibration."""
    levels = np.linspace(0, 1, count)
    levels[0], levels[-1] = 0.25 / (count - 1), 1 - 0.25 / (count - 1)
    return levels


def _noise_quantiles(place: Any, noise: Floats, places: int) -> Floats:
    table = np.zeros((places, NOISE_QUANTILES))
    for block in rows_of_groups(place):
        block_quantiles = _quantiles(noise[block], NOISE_QUANTILES)
        middle = 0.5 * (block_quantiles[1:] + block_quantiles[:-1])
        table[place[block[0]]] = block_quantiles - middle.mean() + noise[block].mean()
    return table


def _least(place: Any, y: Floats, places: int) -> Floats:
    least = np.full(places, 1.0)
    for block in rows_of_groups(place):
        least[place[block[0]]] = max(1.0, float(np.quantile(y[block], 0.002)))
    return least.round()


@shared
def closeness(headway_s: float, within_s: float) -> float:
    """How close a bus is behind another: 1 right behind it, 0 from `within_s` on."""
    return max(1.0 - headway_s / within_s, 0.0) if within_s > 0.0 else 0.0


@shared
def jam_share(headway_s: float, near: float, far: float) -> float:
    """What a bus has of the jam of the bus ahead: most right behind it, `far` from 450 s on."""
    if headway_s >= JAM_FAR_S:
        return 0.0
    return far + (near - far) * closeness(headway_s, JAM_NEAR_S)


def share_copied(correlation: float) -> float:
    """The share c of copies that gives followers this correlation: c (1 - c), at most a quarter."""
    return float((1 - np.sqrt(1 - 4 * min(max(correlation, 0.0), 0.25))) / 2)


def _dependence_of_pace(city: City, runs: Runs, first: Any, pace: Floats) -> dict[str, float]:
    """Measure what the model leaves out: the pace of whole days, and of trips like their leaders.

    `first` is the first run of each trip. The second figure is the spread that day means of
    independent trips would have.
    """
    _, day = np.unique(runs.day[first], return_inverse=True)
    count = np.bincount(day)
    mean = np.bincount(day, pace) / np.maximum(count, 1)
    anomaly = pace - mean[day]
    service = np.searchsorted(service_stop_offsets(city), runs.place[first], side="right")
    followers = _lag(service + 1e6 * day, runs.leaves_s[first], anomaly)
    return {
        "sd_of_day_pace": round(float(mean.std()), 5),
        "sd_of_day_pace_if_independent": round(float(anomaly.std() / np.sqrt(count.mean())), 5),
        "correlation_of_followers_pace": round(followers, 4),
    }


def _lag(group: Floats, order: Floats, noise: Floats) -> float:
    """The correlation of residuals between neighbours within a group."""
    rows = np.lexsort((order, group))
    same = group[rows][1:] == group[rows][:-1]
    left, right = noise[rows][:-1][same], noise[rows][1:][same]
    if len(left) < 3 or not left.std() * right.std() > 0:
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


# -- the file -------------------------------------------------------------------------------------

Numbers = list[float]
Table = list[list[float]]


class _File(Record, kw_only=True):
    """The content of a calibration file. Format 2 named the city instead of its network."""

    format: Literal["evenline-calibration-2", "evenline-calibration-3", "evenline-calibration-4"]
    network: Sha256 | None = None
    city: Sha256 | None = None
    start_delay_s: Annotated[int, Meta(ge=-86_400, le=86_400)]
    mean_s: Table
    pace_s: Numbers
    phase_s: Table
    noise_s: Table
    least_s: Numbers
    pace: Numbers
    follow: Annotated[float, Meta(ge=0.0, le=0.5)]
    sources: Hashes
    residuals: dict[Word, Number]
    lateness_s: Table | None = None
    note: Line = ""
    close_s: Annotated[float, Meta(ge=0.0, le=600.0)] = 0.0
    close_within_s: Annotated[float, Meta(ge=0.0, le=3_600.0)] = 0.0
    recover: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    late_follow: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.0
    jam_near: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    jam_far: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


def calibration_text(calibration: Calibration) -> str:
    """The calibration as its file holds it."""
    values = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(calibration).items()
        if value is not None and (name not in OPTIONAL or value)  # older files keep their digest
    }
    form = FORMAT if calibration.lateness_s is None else _FORMAT_LATE
    return to_json({"format": form, **values})


def calibration_digest(calibration: Calibration) -> str:
    """The SHA-256 of the calibration's file."""
    return hashlib.sha256(calibration_text(calibration).encode()).hexdigest()


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Write the calibration file."""
    write_text(path, calibration_text(calibration))


def calibration_note(path: Path) -> str:
    """The note of a calibration file, which every result of the fast world repeats."""
    return read_record(path, _File).note


def load_calibration(path: Path, city: City) -> Calibration:
    """Read a calibration file and check that it was fitted to the city's network."""
    if not path.is_file():
        raise InputError(f"{path}: no such calibration file")
    content, network = read_record(path, _File), network_digest(city)
    if (content.city != digest(city)) if content.network is None else (content.network != network):
        raise InputError(
            f"{path} was fitted to other streets, stops, timetable or vehicle than those of "
            f"{city.name}; fit one with: evenline city fit"
        )
    if content.close_s and not content.close_within_s:
        raise InputError(f"{path}: close_s needs close_within_s; import the records again")
    first_s = min(trip.departure_s for trip in city.trips) + content.start_delay_s
    if not 0 <= first_s < city.horizon_s:
        when = "a bus before the day begins" if first_s < 0 else "every bus after the day ends"
        raise InputError(f"{path}: start_delay_s {content.start_delay_s} starts {when}")
    places, hours = int(service_stop_offsets(city)[-1]), -(-city.horizon_s // HOUR_S)
    shapes: dict[str, tuple[int, ...]] = {
        "mean_s": (places, hours),
        "pace_s": (places,),
        "phase_s": (places, PHASES),
        "noise_s": (places, NOISE_QUANTILES),
        "least_s": (places,),
        "pace": (PACE_QUANTILES,),
    }
    if content.lateness_s is not None:
        if not content.note:
            raise InputError(f"{path}: note: missing; a fit to records must name the records")
        shapes["lateness_s"] = (len(city.services), LATE_QUANTILES)
    values = {field.name: getattr(content, field.name) for field in fields(Calibration)}
    tables = {name: _numbers(path, name, values[name], shape) for name, shape in shapes.items()}
    return Calibration(**values | tables | {"network": network})


def _numbers(path: Path, name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    rows = f"{shape[0]} rows of {shape[1]}" if len(shape) == 2 else f"{shape[0]}"
    try:
        table = np.array(value, float)
    except ValueError:  # rows of different lengths
        raise InputError(f"{path}: {name} needs {rows} numbers") from None
    if table.shape != shape:
        raise InputError(f"{path}: {name} needs {rows} numbers")
    low, high = RANGES[name]
    if (wrong := table[(table < low) | (table > high)]).size:
        raise InputError(
            f"{path}: {name} contains {wrong[0]:g}; its numbers must be from {low:g} to {high:g}"
        )
    return table
