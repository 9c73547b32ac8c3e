"""Fit the fast world to records: dwell, running times, lateness, each with its interval.

The time from arrival to arrival is a dwell that grows with the people at the door, plus a run. The
dwell is fitted first, robustly; the run is the rest, so a door that opens slowly makes a longer
run. Running times by place and hour shrink towards the line's where a segment has few records.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints
from evenline.records.build import Built, lateness
from evenline.records.clean import Mask
from evenline.records.patterns import Driven
from evenline.records.people import spread_of
from evenline.worlds.calibration import HOUR_S, LATE_QUANTILES, Calibration, Runs, fit_runs

FEW = 5.0  # runs at which a segment's own mean weighs as much as the line's speed
LINE_FEW = 50.0  # runs at which a line's hour weighs as much as its day
HOUR_FEW = 20.0
LATE_FEW = 20.0  # trips at which a service's own lateness weighs as much as that of all
PRIOR_EXCHANGE_S, PRIOR_SD_S = 4.0, 2.0  # the doors' model of `Vehicle`, and how sure it is
LONG_RUN_S, LONG_DWELL_S = 1_800.0, 300.0
LEAST_TRIED_S = tuple(float(second) for second in range(21))
EACH_TRIED_S = tuple(float(each) for each in np.geomspace(0.2, 8.0, 14))
MOST_TRIED = 20_000
LIKELY = 1.92  # of the log-likelihood: half of chi-square's 95 % point
HUBER = 1.345
FAR = 5.0  # standard deviations
PACE_FEW = 20.0  # trips at which a service's own spread weighs as much as that of all
Z = 1.96


@dataclass(frozen=True)
class Estimate:
    """A fitted number with its 95 % interval and the number of observations behind it."""

    name: str
    value: float
    low: float
    high: float
    observations: int
    note: str = ""


@dataclass(frozen=True, eq=False)
class Steps:
    """Times from one stop to the next, as columns."""

    day: Ints
    trip: Ints
    place: Ints  # of the first stop
    from_s: Floats
    to_s: Floats
    here: Floats  # people who passed the doors at the first stop
    there: Floats  # and at the second
    load: Floats  # when it left the first
    stood_s: Floats  # recorded dwell at the first stop, or NaN
    begins: Mask  # whether it is the first of the service


@dataclass(frozen=True)
class Doors:
    """How long a bus stands: `least_s`, or `each_s` for everybody who gets on or off.

    `stamp` says what the recorded time of a visit is: the bus's arrival or its departure.
    """

    least_s: float
    each_s: float
    stamp: str

    def dwell_s(self, people: Floats) -> Floats:
        return np.maximum(np.ceil(self.least_s), np.ceil(self.each_s * people))


def steps_of(driven: Driven, city: City) -> Steps:
    """The steps of all trips between neighbouring stops."""
    follows = (driven.trip[1:] == driven.trip[:-1]) & (np.diff(driven.position) == 1)
    row = np.flatnonzero(follows)
    people = np.nan_to_num(driven.boarded) + np.nan_to_num(driven.alighted)
    seconds = driven.time_s[row + 1] - driven.time_s[row]
    row = row[(seconds > 0) & (seconds < LONG_RUN_S)]
    return Steps(
        driven.day[row],
        driven.trip[row],
        service_stop_offsets(city)[driven.service[row]] + driven.position[row],
        driven.time_s[row],
        driven.time_s[row + 1],
        people[row],
        people[row + 1],
        np.nan_to_num(driven.load[row]),
        driven.departure_s[row] - driven.time_s[row],
        driven.position[row] == 0,
    )


# -- doors ----------------------------------------------------------------------------------------


def fit_doors(steps: Steps) -> tuple[Doors, list[Estimate]]:
    """How long buses stand for people, and whether times are arrivals or departures.

    With recorded departures, from the dwells; otherwise from the time to the next stop. If that
    depends on the people at the next stop rather than at this one, the recorded times are
    departures. Only differences within a segment and hour count, so that a stop where every bus is
    slow does not look like people. Buses wait at their first stop, so it does not count either.
    """
    group = steps.place.astype(np.int64) * 48 + (steps.from_s // HOUR_S).astype(int)
    known = bool(np.isfinite(steps.stood_s).mean() > 0.5)
    used = ~steps.begins & ((steps.stood_s < LONG_DWELL_S) | (not known))
    y = _within((steps.stood_s if known else steps.to_s - steps.from_s)[used], group[used])
    here, there = steps.here[used], steps.there[used]
    slopes, _ = robust(y, np.stack([_within(x, group[used]) for x in (here, there)], axis=1))
    late = not known and slopes[1] > slopes[0]
    people = there if late else here
    least, each, error, low, high = _doors(y, people, group[used])
    crowd = people * (steps.load[used] - steps.load[used].mean())
    both, wrong = robust(y, np.stack([_within(x, group[used]) for x in (people, crowd)], axis=1))
    source = "recorded dwells" if known else "from stop to stop, with the doors' model as prior"
    kept = "not used: the doors of the fast world do not depend on the load"
    count = int(used.sum())
    return Doors(least, each, "departure" if late else "arrival"), [
        Estimate("exchange_s_per_passenger", each, each - error, each + error, count, source),
        Estimate("min_dwell_s", least, low, high, count, source),
        _estimate("crowding_s_per_passenger_and_load", both[1], wrong[1], count, kept),
        _estimate("people_here_s", slopes[0], 0.0, count, "what the recorded time is"),
        _estimate("people_at_next_stop_s", slopes[1], 0.0, count, "what the recorded time is"),
    ]


def _estimate(name: str, value: float, error: float, count: int, note: str) -> Estimate:
    return Estimate(
        name, float(value), float(value - Z * error), float(value + Z * error), count, note
    )


def _doors(y: Floats, people: Floats, group: Ints) -> tuple[float, float, float, float, float]:
    """The least dwell and the seconds for each person that explain the times best.

    Returns both, half the interval of the second, and the interval of the first: values that are
    not much worse.
    """
    some = slice(None, None, max(1, len(y) // MOST_TRIED))
    y, people, group = y[some], people[some], group[some]
    scale = max(1.4826 * float(np.median(np.abs(y))), 1e-6)

    def loss(least: float, each: float) -> float:
        rest = np.abs(y - _within(np.maximum(least, each * people), group)) / scale
        huber = np.where(rest <= HUBER, rest**2 / 2, HUBER * (rest - HUBER / 2)).sum()
        return float(huber + ((each - PRIOR_EXCHANGE_S) / PRIOR_SD_S) ** 2 / 2)

    tried = {(m, e): loss(m, e) for m in LEAST_TRIED_S for e in EACH_TRIED_S}
    best = min(tried, key=tried.__getitem__)
    for width in (0.4, 0.1, 0.03):
        near = best[1] * (1 + np.linspace(-width, width, 9))
        tried |= {(best[0], float(e)): loss(best[0], float(e)) for e in near}
        best = min(tried, key=tried.__getitem__)
    profile = {m: min(v for (own, _), v in tried.items() if own == m) for m in LEAST_TRIED_S}
    near_best = [m for m, value in profile.items() if value - tried[best] < LIKELY]
    _, error = robust(y, _within(np.maximum(best[0], best[1] * people), group)[:, None])
    half = Z * float(error[0]) * best[1]
    return best[0], round(best[1], 3), half, min(near_best) - 1, max(near_best) + 1


def _within(values: Floats, group: Ints) -> Floats:
    """Values minus the mean of their group."""
    _, number = np.unique(group, return_inverse=True)
    mean = np.bincount(number, values) / np.bincount(number)
    return np.asarray(values - mean[number])


def robust(y: Floats, x: Floats, rounds: int = 20) -> tuple[Floats, Floats]:
    """Slopes without intercept by Huber's weights, and their standard errors."""
    weight: Floats = np.ones(len(y))
    slope: Floats = np.zeros(x.shape[1])
    inverse: Floats = np.eye(x.shape[1])
    scale = 1.0
    for _ in range(rounds):
        inverse = np.asarray(np.linalg.pinv(x.T @ (weight[:, None] * x)), np.float64)
        slope = inverse @ (x.T @ (weight * y))
        rest = y - x @ slope
        scale = max(1.4826 * float(np.median(np.abs(rest))) if len(rest) else 1.0, 1e-6)
        weight = np.minimum(1.0, HUBER / np.maximum(np.abs(rest) / scale, 1e-9))
    rest = (y - x @ slope) * weight
    meat = x.T @ (rest[:, None] ** 2 * x)
    return slope, np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))


# -- runs -----------------------------------------------------------------------------------------


def runs_of(steps: Steps, city: City, doors: Doors) -> Runs:
    """The running times that the steps leave once the dwell of the model is taken off.

    A bus may wait at its first stop, so there a recorded departure counts.
    """
    leaves, arrives = steps.from_s, steps.to_s
    if doors.stamp == "arrival":
        known = steps.begins & np.isfinite(steps.stood_s)
        leaves = leaves + np.where(known, steps.stood_s, doors.dwell_s(steps.here))
    else:
        arrives = arrives - doors.dwell_s(steps.there)
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


# -- the whole ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fitted:
    """A city with the calibration and all estimates; `doors` says what the recorded times are."""

    city: City
    calibration: Calibration
    doors: Doors
    estimates: tuple[Estimate, ...]
    recorded_share: Floats  # by service: planned trips that a day records, on average


def fit(built: Built, sources: dict[str, str]) -> Fitted:
    """Fit everything to a city built from records."""
    steps = steps_of(built.driven, built.city)
    doors, estimates = fit_doors(steps)
    vehicle = replace(
        built.city.vehicle, min_dwell_s=doors.least_s, exchange_s_per_passenger=doors.each_s
    )
    city = replace(built.city, vehicle=vehicle)
    calibration, more = calibrate(built, city, steps, doors, sources)
    share = _recorded_share(built)
    return Fitted(city, calibration, doors, (*estimates, *more, *_of_demand(built)), share)


def calibrate(
    built: Built, city: City, steps: Steps, doors: Doors, sources: dict[str, str]
) -> tuple[Calibration, list[Estimate]]:
    """The running times and the lateness of a city whose doors are known."""
    runs = runs_of(steps, city, doors)
    mean, estimates = means_of(runs, city)
    late, more = _lateness(built)
    first = steps.begins
    stands = doors.dwell_s(steps.here[first]).mean() if first.any() else 0.0
    leaving = doors.stamp == "departure" or bool(np.isfinite(steps.stood_s).any())
    found = fit_runs(city, runs, -round(float(stands)) if leaving else 0, sources, mean, False)
    offsets = service_stop_offsets(city)
    service = np.searchsorted(offsets, np.arange(int(offsets[-1])), side="right") - 1
    found, pace_sd = _pace(found, runs, mean, service.astype(np.int32))
    found = replace(found, noise_s=_all_places(found.noise_s), lateness_s=late.round(1))
    n, follow = len(runs.place), found.residuals["correlation_of_followers"]
    spread = [
        _spread("largest sd of a service's pace", pace_sd, len(np.unique(runs.trip))),
        _estimate("correlation of followers", follow, (1 - follow**2) / max(n, 4) ** 0.5, n, ""),
    ]
    return found, [*spread, *more, *estimates]


def _pace(found: Calibration, runs: Runs, mean: Floats, service: Ints) -> tuple[Calibration, float]:
    """Split the spread of running times into what a trip keeps all along and what it does not.

    If whole trips of a service spread more than their segments would if they were independent, the
    excess is pace. If they spread less, drivers make up for lost time, which the fast world does
    not model; then the noise of the segments shrinks until whole trips spread as recorded.
    (`fit_runs` counts all of a trip's spread as pace, and its noise once more.)
    """
    place, trip = runs.place.astype(int), runs.trip.astype(int)
    usual = mean[place, np.minimum(runs.leaves_s // HOUR_S, mean.shape[1] - 1).astype(int)]
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
    levels = equal_steps(noise.shape[1])
    for row in np.unique(place):
        noise[row] = left[row] * np.quantile(rest[place == row], levels)
    noise -= noise.mean(axis=1, keepdims=True)
    shape = found.pace / max(float(found.pace.std()), 1e-9)
    share = sd[service] / most
    pace, pace_s = (most * shape).round(5), (own * share).round(2)
    return replace(found, pace=pace, pace_s=pace_s, noise_s=noise.round(2)), most


def _spread_ratio(total: Floats, alone: Floats, service: Ints, services: int) -> Floats:
    """How much more whole trips spread than independent segments would, by service; few trips
    count as those of all services.
    """
    ran = alone > 0
    pooled = float(total[ran].sum() / max(alone[ran].sum(), 1e-9))
    sums = [np.bincount(service[ran], x[ran], services) for x in (total, alone)]
    few = PACE_FEW * sums[1] / np.maximum(np.bincount(service[ran], minlength=services), 1)
    return np.asarray((sums[0] + pooled * few) / np.maximum(sums[1] + few, 1e-9))


def equal_steps(count: int) -> Floats:
    """Levels of quantiles at equal steps of probability; the outermost are means of their cells."""
    levels = np.linspace(0, 1, count)
    levels[0], levels[-1] = 0.25 / (count - 1), 1 - 0.25 / (count - 1)
    return levels


def _all_places(noise_s: Floats) -> Floats:
    """Give segments without runs the noise of the others."""
    empty = ~noise_s.any(axis=1)
    if empty.any() and not empty.all():
        noise_s[empty] = np.median(noise_s[~empty], axis=0)
    return noise_s


def _lateness(built: Built) -> tuple[Floats, list[Estimate]]:
    """Quantiles of lateness by service; a service with few trips shares those of all."""
    service, late = lateness(built)
    count = len(built.patterns)
    levels = equal_steps(LATE_QUANTILES)
    if not len(late):
        none = Estimate("sd of lateness", 0.0, 0.0, 0.0, 0, "one day and no schedule: assumed 0")
        return np.zeros((count, LATE_QUANTILES)), [none]
    pooled, table, estimates = np.quantile(late, levels), [], []
    for index, name in enumerate(s.id for s in built.city.services):
        own = late[service == index]
        weight = len(own) / (len(own) + LATE_FEW)
        here = np.quantile(own, levels) if len(own) else pooled
        table.append(weight * here + (1 - weight) * pooled)
        estimates.append(_spread(f"sd of lateness {name}", float(np.std(table[-1])), len(own)))
    return np.array(table), estimates


def _spread(name: str, sd: float, count: int) -> Estimate:
    found = spread_of(sd**2, max(count - 1, 1))
    return Estimate(name, sd, found.low, found.high, count)


def _recorded_share(built: Built) -> Floats:
    days = len(np.unique(built.driven.day))
    seen = np.array([len(each) for each in built.planned.seen], float)
    services = len(built.patterns)
    count = np.bincount(built.planned.service, minlength=services)
    return np.asarray(
        np.bincount(built.planned.service, seen, services) / np.maximum(count * days, 1)
    )


def _of_demand(built: Built) -> list[Estimate]:
    words = {"day": "all lines of a day", "line": "a route beside the day's"}
    return [
        Estimate(
            f"sd of demand, {words[name]}",
            found.sd,
            found.low,
            found.high if np.isfinite(found.high) else 10.0,
            found.freedom + 1 if found.freedom else 0,
            "" if found.freedom else "one day: assumed 0",
        )
        for name, found in built.spreads.items()
    ]


def resampled(
    built: Built, fitted_city: City, doors: Doors, rng: np.random.Generator
) -> Calibration:
    """Another calibration that the records might have given: trips drawn again with replacement."""
    steps = steps_of(built.driven, built.city)
    trips, number = np.unique(steps.trip, return_inverse=True)
    order = np.argsort(number, kind="stable")
    ends = np.append(np.searchsorted(number[order], np.arange(len(trips))), len(order))
    drawn = rng.integers(0, len(trips), len(trips))
    rows = np.concatenate([order[ends[trip] : ends[trip + 1]] for trip in drawn])
    again = np.repeat(np.arange(len(drawn)), ends[drawn + 1] - ends[drawn]).astype(np.int32)
    columns = {each.name: getattr(steps, each.name)[rows] for each in fields(Steps)}
    drawn_steps = Steps(**(columns | {"trip": again}))
    return calibrate(built, fitted_city, drawn_steps, doors, {})[0]
