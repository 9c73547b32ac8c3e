"""Running times from records: means by place and hour, pace, noise, and what buses do about others.

The run is what a step leaves once the dwell of the doors' model is taken off, so a door that opens
slowly makes a longer run. Running times by place and hour shrink towards the line's where a segment
has few records. A bus close behind another is slower, one that started late is faster, and one
behind a bus in a jam is in it too.
"""

from dataclasses import dataclass, replace

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints, segments
from evenline.city.schedule import hours_of
from evenline.records.doors import LONG_RUN_S, Doors, Steps
from evenline.records.estimates import HUBER, Estimate, Z, estimate, robust, unsure
from evenline.records.patterns import Driven
from evenline.worlds.calibration import (
    HOUR_S,
    JAM_FAR_S,
    JAM_NEAR_S,
    JAM_S,
    Calibration,
    Runs,
    quantile_levels,
)

FEW = 5.0  # runs at which a segment's own mean weighs as much as the line's speed
_LINE_FEW = 50.0  # runs at which a line's hour weighs as much as its day
_HOUR_FEW = 20.0
FAR = 5.0  # standard deviations
_PACE_FEW = 20.0  # trips at which a service's own spread weighs as much as that of all
_VERY_LATE_S = 900.0  # such a start is a breakdown, not lateness that a driver makes up
_REACTIONS = ("extra run right behind another bus, s", "share of a late start that is made up")
_JAMS = ("share of a long delay right behind it", "share of a long delay farther behind")
_CLOSE_TRIED_S = (30.0, 45.0, 60.0, 80.0, 100.0, 125.0, 150.0, 180.0, 220.0, 300.0)
_LIKELY = 1.92  # of the log-likelihood: half of chi-square's 95 % point
_LEAST_SEEN = 100  # runs of close followers or of late trips, to say anything of them


def runs_of(steps: Steps, city: City, doors: Doors) -> Runs:
    """The running times that the steps leave once the dwell of the model is taken off.

    A bus may wait at its first stop, so there a recorded departure counts.
    """
    leaves, arrives = steps.from_s, steps.to_s
    if doors.stamp == "arrival":
        known = steps.begins & np.isfinite(steps.stood_s)
        stood_s = doors.dwell_s(*steps.people(second=False))
        leaves = leaves + np.where(known, steps.stood_s, stood_s)
    else:
        arrives = arrives - doors.dwell_s(*steps.people(second=True))
    return Runs(
        steps.place.astype(float),
        steps.trip.astype(float),
        steps.day.astype(float),
        np.clip(leaves, 0, city.horizon_s - 1).astype(int).astype(float),
        np.maximum(arrives - leaves, 1.0),
    )


def means_of(runs: Runs, city: City) -> tuple[Floats, list[Estimate]]:
    """Running times by place and hour, and by place with intervals.

    A segment's mean shrinks towards the line's speed; an hour's towards the line's hour.
    """
    offsets, hours, service = service_stop_offsets(city), hours_of(city), _service_of_places(city)
    places = int(offsets[-1])
    place, y = runs.place.astype(int), runs.seconds
    length = np.concatenate([np.append(np.diff(s.distance_m), 1.0) for s in city.services])
    count = np.bincount(place, minlength=places)
    total = np.bincount(place, y, minlength=places)
    way = np.bincount(service[place], length[place], len(city.services))
    speed = np.bincount(service[place], y, len(city.services)) / np.maximum(way, 1e-9)
    speed = np.where(way > 0, speed, float(y.sum() / max(way.sum(), 1e-9)))
    day = (total + FEW * speed[service] * length) / (count + FEW)
    hour = np.minimum(runs.leaves_s // HOUR_S, hours - 1).astype(int)
    factor = _line_hours(place, hour, y, day, service, len(city.services), hours)
    table = day[:, None] * factor[service]
    cell = place * hours + hour
    rest = y - table[place, hour]
    seen = np.bincount(cell, minlength=places * hours)
    more = np.bincount(cell, rest, minlength=places * hours) / (seen + _HOUR_FEW)
    table += more.reshape(places, hours)
    square = np.bincount(place, (y - day[place]) ** 2, minlength=places)
    error = np.sqrt(square / np.maximum(count - 1, 1)) / np.sqrt(np.maximum(count, 1))
    names = [
        f"run {s.id} {city.stops[s.stops[i]].id} to {city.stops[s.stops[i + 1]].id}"
        for s in city.services
        for i in range(len(s.stops) - 1)
    ]
    used = [p for p in range(places) if p + 1 not in set(offsets.tolist())]
    return np.maximum(table, 1.0), [
        Estimate(
            name,
            float(day[p]),
            float(day[p] - Z * error[p]) if count[p] > 1 else 0.0,
            float(day[p] + Z * error[p]) if count[p] > 1 else LONG_RUN_S,
            int(count[p]),
            "" if count[p] > 1 else "from the line's speed",
        )
        for name, p in zip(names, used, strict=True)
    ]


def _service_of_places(city: City) -> Ints:
    """The service of each place."""
    stops = np.diff(service_stop_offsets(city))
    return np.repeat(np.arange(len(city.services), dtype=np.int32), stops)


def _line_hours(
    place: Ints, hour: Ints, y: Floats, day: Floats, service: Ints, services: int, hours: int
) -> Floats:
    """How much longer than over the day a line's runs take in each hour."""
    cell = service[place] * hours + hour
    seen = np.bincount(cell, minlength=services * hours)
    took = np.bincount(cell, y, minlength=services * hours)
    usual = np.bincount(cell, day[place], minlength=services * hours)
    ratio = np.where(usual > 0, took / np.maximum(usual, 1e-9), 1.0)
    return np.asarray(1 + (ratio - 1) * seen / (seen + _LINE_FEW)).reshape(services, hours)


# -- pace and noise --------------------------------------------------------------------------------


def split_pace(calibration: Calibration, runs: Runs, mean: Floats, city: City) -> Calibration:
    """Split the spread of running times into what a trip keeps all along and what it does not.

    If whole trips of a service spread more than their segments would if they were independent, the
    excess is pace. If they spread less, drivers make up for lost time, which the fast world does
    not model; then the noise of the segments shrinks until whole trips spread as recorded.
    (`fit_runs` counts all of a trip's spread as pace, and its noise once more.)
    """
    service = _service_of_places(city)
    place, trip = runs.place.astype(int), runs.trip.astype(int)
    usual = mean[place, _hour(runs, mean)]
    rest = runs.seconds - usual
    near = np.clip(rest, -FAR * rest.std(), FAR * rest.std())  # one breakdown is not a pace
    count = np.maximum(np.bincount(place, minlength=len(mean)), 1)
    square = np.bincount(place, near**2, minlength=len(mean)) / count
    of_trip = np.zeros(trip.max() + 1, np.int32)
    of_trip[trip] = service[place]
    total, alone, time, times = (
        np.bincount(trip, x).astype(np.float64) for x in (near, square[place], usual, usual**2)
    )
    ratio = _spread_ratio(np.square(total), alone, of_trip, int(service.max()) + 1)
    ways = np.bincount(of_trip, time**2 - times) / np.maximum(np.bincount(of_trip, alone), 1e-9)
    sd = np.sqrt(np.maximum(ratio - 1, 0.0) / np.maximum(ways, 1e-9))
    most = max(float(sd.max()), 1e-9)
    usual_s = np.bincount(place, usual, minlength=len(mean)) / count
    kept = np.clip(1 - (sd[service] * usual_s) ** 2 / np.maximum(square, 1e-9), 0.0, 1.0)
    left = np.sqrt(kept * np.minimum(ratio[service], 1.0))
    noise = np.zeros_like(calibration.noise_s)
    levels = quantile_levels(noise.shape[1])
    for row in np.unique(place):
        noise[row] = left[row] * np.quantile(rest[place == row], levels)
    noise -= noise.mean(axis=1, keepdims=True)
    shape = calibration.pace / max(float(calibration.pace.std()), 1e-9)
    share = sd[service] / most
    pace, pace_s = (most * shape).round(5), (usual_s * share).round(2)
    return replace(calibration, pace=pace, pace_s=pace_s, noise_s=noise.round(2))


def _spread_ratio(total: Floats, alone: Floats, service: Ints, services: int) -> Floats:
    """How much more whole trips spread than independent segments would, by service; few trips
    count as those of all services.
    """
    ran = alone > 0
    pooled = float(total[ran].sum() / max(alone[ran].sum(), 1e-9))
    sums = [np.bincount(service[ran], x[ran], services) for x in (total, alone)]
    few = _PACE_FEW * sums[1] / np.maximum(np.bincount(service[ran], minlength=services), 1)
    return np.asarray((sums[0] + pooled * few) / np.maximum(sums[1] + few, 1e-9))


def all_places(noise_s: Floats) -> Floats:
    """Give segments without runs the noise of the others."""
    empty = ~noise_s.any(axis=1)
    if empty.any() and not empty.all():
        noise_s[empty] = np.median(noise_s[~empty], axis=0)
    return noise_s


# -- what buses do about others -------------------------------------------------------------------


@dataclass(frozen=True)
class Reaction:
    """How runs depend on other buses and on the timetable: see `Calibration`."""

    close_s: float
    within_s: float
    recover: float


def headways_of(driven: Driven, city: City) -> Floats:
    """How long each visit was behind the one before on its way to the next stop, of any service.

    NaN if it was the first, or at a last stop.
    """
    place = segments(city)[service_stop_offsets(city)[driven.service] + driven.position]
    order = np.lexsort((driven.time_s, place, driven.day))
    same = (np.diff(place[order]) == 0) & (np.diff(driven.day[order]) == 0)
    behind_s = np.full(len(driven), np.nan)
    behind_s[order[1:][same]] = np.diff(driven.time_s[order])[same]
    return np.where(place < 0, np.nan, behind_s)


def react(
    steps: Steps, runs: Runs, mean: Floats, city: City, within_s: float = 0.0
) -> tuple[Reaction, list[Estimate]]:
    """Fit how runs depend on the headway, and how much of a late start is made up.

    The headway is that of one stop earlier: an error in the time of this stop would make the
    headway longer and the run shorter. The first segment does not count, since a start is late also
    where only its first record is. Without `within_s`, what explains the runs best is close.
    """
    place = runs.place.astype(int)
    rest = runs.seconds - mean[place, _hour(runs, mean)]
    used = ~steps.begins & np.isfinite(steps.headway_s)
    hurry = -_late_s(steps) * _parts(mean, city)[place]
    y, some, fits = rest[used], steps.only(used), {}
    beside = np.column_stack([hurry[used], np.ones(len(y))])
    spread = max(1.4826 * float(np.median(np.abs(y))), 1e-6) if len(y) else 1.0
    for tried in (within_s,) if within_s else _CLOSE_TRIED_S:
        x = np.column_stack([some.close(tried), beside])
        slope, error = robust(y, x, some.trip)
        fits[tried] = (_loss((y - x @ slope) / spread), slope, error, (x != 0).sum(axis=0))
    enough = [tried for tried, fit in fits.items() if fit[3][0] >= _LEAST_SEEN] or list(fits)[-1:]
    best_s = min(enough, key=lambda tried: fits[tried][0])
    least, slope, error, seen = fits[best_s]
    estimates = [_positive(_REACTIONS[i], slope[i], error[i], int(seen[i])) for i in (0, 1)]
    close_s, recover = (
        round(max(effect.value, 0.0), 4) if effect.sure else 0.0 for effect in estimates
    )
    if close_s and not within_s:
        likely = [tried for tried in enough if fits[tried][0] - least < _LIKELY]
        estimates.append(_likely("headway at which a bus is close, s", best_s, likely, len(y)))
    return Reaction(close_s, best_s, min(recover, 1.0)), estimates


@dataclass(frozen=True, eq=False)
class Jams:
    """How much of a bus's long delay on a segment the next one has, too: see `Calibration`."""

    near: float
    far: float
    delay_s: Floats  # of each run, by the jam of the run before


def jams_of(
    runs: Runs, mean: Floats, city: City, known: tuple[float, float] | None = None
) -> tuple[Jams, list[Estimate]]:
    """Fit what buses share of long delays, by least squares: in a robust fit they would not count.

    `known` gives both shares, if they are not to be fitted.
    """
    place = runs.place.astype(int)
    rest = runs.seconds - mean[place, _hour(runs, mean)]
    way = segments(city)[place]
    order = np.lexsort((runs.leaves_s, way, runs.day))
    gap_s = np.diff(runs.leaves_s[order])
    next_to = (np.diff(way[order]) == 0) & (np.diff(runs.day[order]) == 0)
    next_to &= (gap_s > 0) & (gap_s < JAM_FAR_S)
    first, second = order[:-1][next_to], order[1:][next_to]
    long_s = np.maximum(rest[first] - JAM_S, 0.0)
    near = np.maximum(1 - gap_s[next_to] / JAM_NEAR_S, 0.0)
    parts = np.column_stack([near * long_s, (1 - near) * long_s])
    x = np.column_stack([parts, np.ones(len(parts))])
    slope, error = robust(rest[second], x, runs.trip[second].astype(np.int32), huber=np.inf)
    seen = (parts > 0).sum(axis=0)
    estimates = [_positive(_JAMS[i], slope[i], error[i], int(seen[i]), 1.0) for i in (0, 1)]
    shares = known or tuple(min(max(e.value, 0.0), 1.0) if e.sure else 0.0 for e in estimates)
    delay_s = np.zeros(len(rest))
    delay_s[second] = parts @ np.array(shares)
    return Jams(round(shares[0], 4), round(shares[1], 4), delay_s), estimates


def _loss(rest: Floats) -> float:
    """Huber's loss in units of the spread, which is a log-likelihood if nothing is far out."""
    far = np.abs(rest)
    return float(np.where(far <= HUBER, far**2 / 2, HUBER * (far - HUBER / 2)).sum())


def _positive(name: str, value: float, error: float, seen: int, most: float = np.inf) -> Estimate:
    if seen < _LEAST_SEEN:
        return unsure(name, 0.0, seen, "too few such runs; assumed 0")
    note = "" if value > 0 else "not positive; assumed 0"
    return estimate(name, value, error, seen, note if value <= most else f"taken as {most:g}")


def _likely(name: str, value: float, likely: list[float], count: int) -> Estimate:
    """The best of some values that were tried, with an interval that ends at the next ones."""
    low = max((tried for tried in _CLOSE_TRIED_S if tried < min(likely)), default=0.0)
    high = min((tried for tried in _CLOSE_TRIED_S if tried > max(likely)), default=2 * value)
    return Estimate(name, value, low, high, count, "the best of some that were tried")


def _late_s(steps: Steps) -> Floats:
    """How late trips started; 0 where that is not known."""
    return np.nan_to_num(np.where(np.abs(steps.late_s) < _VERY_LATE_S, steps.late_s, 0.0))


def _parts(mean: Floats, city: City) -> Floats:
    """Each place's part of the running time of its service."""
    first, usual = service_stop_offsets(city), mean.mean(axis=1)
    usual[first[1:] - 1] = 0.0
    return np.asarray(usual / np.repeat(np.add.reduceat(usual, first[:-1]), np.diff(first)))


def without_jams(runs: Runs, jams: Jams) -> Runs:
    """The runs as they would be without the jams of the buses before."""
    return replace(runs, seconds=np.maximum(runs.seconds - jams.delay_s, 1.0))


def without(runs: Runs, steps: Steps, reaction: Reaction, mean: Floats, city: City) -> Runs:
    """The runs as they would be without other buses and on time."""
    extra = reaction.close_s * steps.close(reaction.within_s)
    extra -= reaction.recover * _late_s(steps) * _parts(mean, city)[runs.place.astype(int)]
    return replace(runs, seconds=np.maximum(runs.seconds - extra, 1.0))


def _hour(runs: Runs, mean: Floats) -> Ints:
    return np.asarray(np.minimum(runs.leaves_s // HOUR_S, mean.shape[1] - 1), np.int32)
