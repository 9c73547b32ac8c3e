"""Running times from records: means by place and hour, pace, noise, and what buses do about others.

The run is what a step leaves once the dwell of the doors' model is taken off, so a door that opens
slowly makes a longer run. Running times by place and hour shrink towards the line's where a segment
has few records. A bus close behind another is slower, and one that started late is faster.
"""

from dataclasses import dataclass, replace

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints
from evenline.records.doors import LONG_RUN_S, Doors, Steps
from evenline.records.estimates import Estimate, Z, estimate, robust, unsure
from evenline.records.patterns import Driven
from evenline.worlds.calibration import HOUR_S, Calibration, Runs, closeness, quantile_levels

FEW = 5.0  # runs at which a segment's own mean weighs as much as the line's speed
LINE_FEW = 50.0  # runs at which a line's hour weighs as much as its day
HOUR_FEW = 20.0
FAR = 5.0  # standard deviations
PACE_FEW = 20.0  # trips at which a service's own spread weighs as much as that of all
VERY_LATE_S = 900.0  # such a start is a breakdown, not lateness that a driver makes up
LEAST_SEEN = 100  # runs of close followers or of late trips, to say anything of them


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
    offsets, hours = service_stop_offsets(city), -(-city.horizon_s // HOUR_S)
    places = int(offsets[-1])
    place, y = runs.place.astype(int), runs.seconds
    service = (np.searchsorted(offsets, np.arange(places), side="right") - 1).astype(np.int32)
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
    own = np.bincount(cell, rest, minlength=places * hours) / (seen + HOUR_FEW)
    table += own.reshape(places, hours)
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


def _line_hours(
    place: Ints, hour: Ints, y: Floats, day: Floats, service: Ints, services: int, hours: int
) -> Floats:
    """How much longer than over the day a line's runs take in each hour."""
    cell = service[place] * hours + hour
    seen = np.bincount(cell, minlength=services * hours)
    took = np.bincount(cell, y, minlength=services * hours)
    usual = np.bincount(cell, day[place], minlength=services * hours)
    ratio = np.where(usual > 0, took / np.maximum(usual, 1e-9), 1.0)
    return np.asarray(1 + (ratio - 1) * seen / (seen + LINE_FEW)).reshape(services, hours)


# -- pace and noise --------------------------------------------------------------------------------


def split_pace(found: Calibration, runs: Runs, mean: Floats, city: City) -> Calibration:
    """Split the spread of running times into what a trip keeps all along and what it does not.

    If whole trips of a service spread more than their segments would if they were independent, the
    excess is pace. If they spread less, drivers make up for lost time, which the fast world does
    not model; then the noise of the segments shrinks until whole trips spread as recorded.
    (`fit_runs` counts all of a trip's spread as pace, and its noise once more.)
    """
    offsets = service_stop_offsets(city)
    service = np.repeat(np.arange(len(city.services), dtype=np.int32), np.diff(offsets))
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
    own = np.bincount(place, usual, minlength=len(mean)) / count
    kept = np.clip(1 - (sd[service] * own) ** 2 / np.maximum(square, 1e-9), 0.0, 1.0)
    left = np.sqrt(kept * np.minimum(ratio[service], 1.0))
    noise = np.zeros_like(found.noise_s)
    levels = quantile_levels(noise.shape[1])
    for row in np.unique(place):
        noise[row] = left[row] * np.quantile(rest[place == row], levels)
    noise -= noise.mean(axis=1, keepdims=True)
    shape = found.pace / max(float(found.pace.std()), 1e-9)
    share = sd[service] / most
    pace, pace_s = (most * shape).round(5), (own * share).round(2)
    return replace(found, pace=pace, pace_s=pace_s, noise_s=noise.round(2))


def _spread_ratio(total: Floats, alone: Floats, service: Ints, services: int) -> Floats:
    """How much more whole trips spread than independent segments would, by service; few trips
    count as those of all services.
    """
    ran = alone > 0
    pooled = float(total[ran].sum() / max(alone[ran].sum(), 1e-9))
    sums = [np.bincount(service[ran], x[ran], services) for x in (total, alone)]
    few = PACE_FEW * sums[1] / np.maximum(np.bincount(service[ran], minlength=services), 1)
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
    recover: float


def closeness_of(driven: Driven, targets_s: Floats, city: City) -> Floats:
    """How close each visit was behind the service's one before, by the trip's target headway."""
    place = service_stop_offsets(city)[driven.service] + driven.position
    order = np.lexsort((driven.time_s, place, driven.day))
    same = (np.diff(place[order]) == 0) & (np.diff(driven.day[order]) == 0)
    found = np.full(len(driven), np.nan)
    row = order[1:][same]
    gap_s = np.diff(driven.time_s[order])[same]
    found[row] = [
        closeness(float(gap), float(target)) if target > 0 else np.nan
        for gap, target in zip(gap_s, targets_s[row], strict=True)
    ]
    return found


def react(steps: Steps, runs: Runs, mean: Floats, city: City) -> tuple[Reaction, list[Estimate]]:
    """Fit how much slower close followers run, and how much of a late start is made up.

    The headway is that of one stop earlier: an error in the time of this stop would make the
    headway longer and the run shorter. The first segment does not count, since a start is late also
    where only its first record is.
    """
    place, hour = runs.place.astype(int), _hour(runs, mean)
    rest = runs.seconds - mean[place, hour]
    parts = _parts(mean, city)[place]
    late_s = np.where(np.abs(steps.late_s) < VERY_LATE_S, steps.late_s, np.nan)
    both = np.stack([np.nan_to_num(steps.close), -np.nan_to_num(late_s) * parts], axis=1)
    used = ~steps.begins & np.isfinite(steps.close)
    x = np.column_stack([both, np.ones(len(rest))])[used]
    slope, error = robust(rest[used], x, runs.trip[used].astype(np.int32))
    found, estimates = [], []
    names = ("extra run right behind another bus, s", "share of a late start that is made up")
    for name, value, wrong, column in zip(names, slope, error, x.T, strict=False):
        seen = int((column != 0).sum())
        if seen < LEAST_SEEN:
            estimates.append(unsure(name, 0.0, seen, "too few such runs; assumed 0"))
            found.append(0.0)
            continue
        note = "" if value > 0 else "not positive; assumed 0"
        estimates.append(estimate(name, value, wrong, seen, note))
        found.append(round(max(float(value), 0.0), 4))
    return Reaction(found[0], min(found[1], 1.0)), estimates


def _parts(mean: Floats, city: City) -> Floats:
    """Each place's part of the running time of its service."""
    first, usual = service_stop_offsets(city), mean.mean(axis=1)
    usual[first[1:] - 1] = 0.0
    return np.asarray(usual / np.repeat(np.add.reduceat(usual, first[:-1]), np.diff(first)))


def without(runs: Runs, steps: Steps, reaction: Reaction, mean: Floats, city: City) -> Runs:
    """The runs as they would be without other buses and on time."""
    late_s = np.where(np.abs(steps.late_s) < VERY_LATE_S, steps.late_s, 0.0)
    extra = reaction.close_s * np.nan_to_num(steps.close)
    extra -= reaction.recover * np.nan_to_num(late_s) * _parts(mean, city)[runs.place.astype(int)]
    return replace(runs, seconds=np.maximum(runs.seconds - extra, 1.0))


def _hour(runs: Runs, mean: Floats) -> Ints:
    return np.asarray(np.minimum(runs.leaves_s // HOUR_S, mean.shape[1] - 1), np.int32)
