"""What the fast world knows of the target: running times and their spread, fitted from stop visits.

The running time of a segment is a mean for the hour, plus a share of the trip's own pace (a slow
driver is slow all day), plus an effect of where in the signal cycle the bus sets off (so that
buses close together fare alike), plus noise with the segment's own distribution, in which a trip
at times shares the luck of the one before. All are read off stop-visit logs; the file is readable
JSON and names the logs it came from.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats
from evenline.city.tables import digest
from evenline.control.visits import read_visits
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, to_json, write_text
from evenline.worlds.fast.layout import CYCLE_S, HOUR_S, PHASE_S, PHASES

FORMAT = "evenline-calibration-2"
NOISE_QUANTILES = 33
PACE_QUANTILES = 65
HOUR_PRIOR = 20.0  # visits at which an hour's own mean counts as much as the day's


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fitted running times. Rows are service-stops laid end to end; a last stop's row is unused."""

    city: str
    start_delay_s: int
    mean_s: Floats  # place, hour
    pace_s: Floats  # place: seconds for one unit of pace
    phase_s: Floats  # place, tenth of the signal cycle
    noise_s: Floats  # place, quantile
    least_s: Floats  # place
    pace: Floats  # quantiles of the trips' pace
    follow: float  # share of runs that turn out just as for the trip before
    sources: dict[str, str]
    residuals: dict[str, float]


@dataclass(frozen=True, eq=False)
class Runs:
    """Segment runs of many days as columns: the data of the fit."""

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
            raise InputError(f"{path}: {error} is not of {city.name}") from None
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


def fit(city: City, city_digest: str, logs: Sequence[Path]) -> Calibration:
    """Fit the running-time model to stop-visit logs."""
    if not logs:
        raise InputError(f"calibration of {city.name}: no stop-visit logs")
    runs, delay = read_runs(city, logs)
    _check_cover(city, runs)
    places = int(service_stop_offsets(city)[-1])
    hours = -(-city.horizon_s // HOUR_S)
    place, y = runs.place.astype(int), runs.seconds.astype(float)
    mean = _hourly_means(place, runs.leaves_s, y, places, hours)
    hour = np.minimum(runs.leaves_s // HOUR_S, hours - 1).astype(int)
    rest = y - mean[place, hour]
    pace = _trip_pace(runs.trip.astype(int), rest, mean[place, hour])
    slope = _slopes(place, pace, rest, places)
    after_pace = rest - slope[place] * pace
    phase = (runs.leaves_s % CYCLE_S // PHASE_S).astype(int)
    effect = _cell_means(place * PHASES + phase, after_pace, places * PHASES, prior=5.0)
    noise = after_pace - effect[place * PHASES + phase]
    trips, first_run = np.unique(runs.trip.astype(int), return_index=True)
    followers = _lag(place + 1e6 * runs.day, runs.leaves_s, noise)
    return Calibration(
        city=city_digest,
        start_delay_s=round(delay),
        mean_s=mean.round(2),
        pace_s=slope.round(2),
        phase_s=effect.reshape(places, PHASES).round(2),
        noise_s=_noise_quantiles(place, noise, places).round(2),
        least_s=_least(place, y, places),
        pace=_quantiles(pace[first_run], PACE_QUANTILES).round(5),
        follow=round(_share_copied(followers), 4),
        sources=_sources(logs),
        residuals={
            "runs": float(len(y)),
            "mean_run_s": round(float(y.mean()), 3),
            "sd_within_segment_s": round(float(rest.std()), 3),
            "sd_after_pace_s": round(float(after_pace.std()), 3),
            "sd_after_phase_s": round(float(noise.std()), 3),
            "correlation_along_trip": round(_lag(runs.trip, runs.leaves_s, noise), 4),
            "correlation_of_followers": round(followers, 4),
            **_dependence_of_pace(city, trips, pace[first_run]),
        },
    )


def _check_cover(city: City, runs: Runs) -> None:
    """Every segment of every service must have been seen."""
    offsets = service_stop_offsets(city)
    seen = np.bincount(runs.place.astype(int), minlength=int(offsets[-1])) > 0
    for index, service in enumerate(city.services):
        missing = np.flatnonzero(~seen[offsets[index] : offsets[index + 1] - 1])
        if len(missing):
            raise InputError(
                f"calibration of {city.name}: no log shows {service.id} after stop {missing[0]}"
            )


def _sources(logs: Sequence[Path]) -> dict[str, str]:
    """Each log's hash under its name, with its folder where two have the same name."""
    names = [path.name for path in logs]
    alone = {path: names.count(path.name) == 1 for path in logs}
    return {
        path.name if alone[path] else f"{path.parent.name}/{path.name}": sha256(path)
        for path in logs
    }


def _cell_means(cell: Any, y: Floats, size: int, prior: float) -> Floats:
    """Mean of each cell, drawn towards zero where there is little data."""
    count = np.bincount(cell, minlength=size)
    return np.bincount(cell, y, minlength=size) / (count + prior)


def _hourly_means(place: Any, leaves: Floats, y: Floats, places: int, hours: int) -> Floats:
    count = np.bincount(place, minlength=places)
    day = np.bincount(place, y, minlength=places) / np.maximum(count, 1)
    hour = np.minimum(leaves // HOUR_S, hours - 1).astype(int)
    own = _cell_means(place * hours + hour, y - day[place], places * hours, HOUR_PRIOR)
    return day[:, None] + own.reshape(places, hours)


def _trip_pace(trip: Any, rest: Floats, expected: Floats) -> Floats:
    """For each run, its trip's pace: how much longer than expected the trip took, as a share."""
    share = np.bincount(trip, rest) / np.maximum(np.bincount(trip, expected), 1e-9)
    return np.asarray(share[trip])


def _slopes(place: Any, pace: Floats, rest: Floats, places: int) -> Floats:
    top = np.bincount(place, pace * rest, minlength=places)
    return np.maximum(top / np.maximum(np.bincount(place, pace**2, minlength=places), 1e-9), 0.0)


def _quantiles(y: Floats, count: int) -> Floats:
    """Quantiles at equal steps of probability; the ends are the means of the outermost cells."""
    levels = np.linspace(0, 1, count)
    levels[0], levels[-1] = 0.25 / (count - 1), 1 - 0.25 / (count - 1)
    return np.asarray(np.quantile(y, levels))


def _noise_quantiles(place: Any, noise: Floats, places: int) -> Floats:
    table = np.zeros((places, NOISE_QUANTILES))
    order = np.argsort(place, kind="stable")
    for block in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        own = _quantiles(noise[block], NOISE_QUANTILES)
        middle = 0.5 * (own[1:] + own[:-1])
        table[place[block[0]]] = own - middle.mean() + noise[block].mean()
    return table


def _least(place: Any, y: Floats, places: int) -> Floats:
    least = np.full(places, 1.0)
    order = np.argsort(place, kind="stable")
    for block in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        least[place[block[0]]] = max(1.0, float(np.quantile(y[block], 0.002)))
    return least.round()


def _share_copied(correlation: float) -> float:
    """The share c of copies that makes followers so correlated: c (1 - c), at most a quarter."""
    return float((1 - np.sqrt(1 - 4 * min(max(correlation, 0.0), 0.25))) / 2)


def _dependence_of_pace(city: City, trips: Any, pace: Floats) -> dict[str, float]:
    """What the model leaves out: do days have a pace of their own, and trips their leader's?

    Day means of trips that know nothing of each other spread as far as the second figure says.
    """
    day, trip = np.divmod(trips, len(city.trips))
    count = np.bincount(day)
    mean = np.bincount(day, pace) / np.maximum(count, 1)
    own = pace - mean[day]
    service = np.array([city.trips[t].service for t in trip])
    return {
        "sd_of_day_pace": round(float(mean.std()), 5),
        "sd_of_day_pace_if_independent": round(float(own.std() / np.sqrt(count.mean())), 5),
        "correlation_of_followers_pace": round(_lag(service + 1e6 * day, trip, own), 4),
    }


def _lag(group: Floats, order: Floats, noise: Floats) -> float:
    """Correlation of what is left between neighbours within a group."""
    rows = np.lexsort((order, group))
    same = group[rows][1:] == group[rows][:-1]
    left, right = noise[rows][:-1][same], noise[rows][1:][same]
    return float(np.corrcoef(left, right)[0, 1]) if len(left) > 2 else 0.0


# -- the file -------------------------------------------------------------------------------------


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Write the calibration file."""
    values = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(calibration).items()
    }
    write_text(path, to_json({"format": FORMAT, **values}))


def embedded_calibration(city: City) -> Calibration:
    """The calibration that comes with an embedded city."""
    path = Path(__file__).parent / "calibrations" / f"{city.name}.json"
    if not path.exists():
        raise InputError(
            f"{city.name}: has no calibration yet; make one with: evenline calibrate --city ..."
        )
    return load_calibration(path, city, digest(city))


def load_calibration(path: Path, city: City, city_digest: str) -> Calibration:
    """Read a calibration file and check that it belongs to the city."""
    found = read_json(path)
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise InputError(f"{path}: format is not {FORMAT!r}")
    names = {field.name for field in fields(Calibration)}
    if set(found) != names:
        raise InputError(f"{path}: needs exactly the entries {sorted(names)}")
    if found["city"] != city_digest:
        raise InputError(f"{path}: was fitted for another city than {city.name}")
    places, hours = int(service_stop_offsets(city)[-1]), -(-city.horizon_s // HOUR_S)
    shapes: dict[str, tuple[int, ...]] = {
        "mean_s": (places, hours),
        "pace_s": (places,),
        "phase_s": (places, PHASES),
        "noise_s": (places, NOISE_QUANTILES),
        "least_s": (places,),
        "pace": (PACE_QUANTILES,),
    }
    for name, shape in shapes.items():
        found[name] = _numbers(path, name, found[name], shape)
    if not (isinstance(found["follow"], float) and 0.0 <= found["follow"] <= 0.5):
        raise InputError(f"{path}: follow is {found['follow']!r}, not a share from 0 to 0.5")
    return Calibration(**found)


def _numbers(path: Path, name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    try:
        table = np.array(value, float)
    except (TypeError, ValueError):
        raise InputError(f"{path}: {name} is not a table of numbers") from None
    if table.shape != shape or not np.isfinite(table).all():
        rows = f"{shape[0]} rows of {shape[1]}" if len(shape) == 2 else f"{shape[0]}"
        raise InputError(f"{path}: {name} needs {rows} numbers")
    return table
