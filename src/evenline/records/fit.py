"""Fit the fast world to records: dwell, running times, lateness, layovers, each with its interval.

The dwell is fitted first, robustly; the run is the rest of the time from stop to stop. What has no
formula for its interval is fitted again to recorded trips drawn anew, which are also the models
that the page for an agency simulates.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from scipy import stats

from evenline.city.clock import clock_text
from evenline.city.model import City, Floats, Ints, Variation
from evenline.city.operations import Operations
from evenline.records.build import Built, capacity_of
from evenline.records.doors import Doors, Steps, fit_doors, steps_of
from evenline.records.estimates import Estimate, estimate, unsure
from evenline.records.people import Spread
from evenline.records.runs import (
    all_places,
    headways_of,
    jams_of,
    means_of,
    react,
    runs_of,
    split_pace,
    without,
    without_jams,
)
from evenline.records.starts import (
    Starts,
    late_follow,
    lateness_of,
    of_lateness,
    starts_of,
)
from evenline.worlds.calibration import Calibration, fit_runs, share_copied

_AGAIN, _FEWEST_TRIPS = 20, 10  # fits to trips drawn again, for intervals; from so many trips on
_SEED = 2_323
_MOST_SD = 0.5  # of demand, in a draw
_SHOWN_LATE = {"10 %": 0.1, "50 %": 0.5, "90 %": 0.9}  # quantiles of lateness


@dataclass(frozen=True, eq=False)
class Observed:
    """What the records say of runs, doors and starts, before anything is fitted to runs."""

    steps: Steps
    starts: Starts
    doors: Doors
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A city with the calibration and all estimates; `doors` says what the recorded times are."""

    city: City
    calibration: Calibration
    doors: Doors
    estimates: tuple[Estimate, ...]
    recorded_share: Floats  # by trip: on how many of the days it was recorded


def observe(built: Built, stamp: str = "") -> Observed:
    """The steps, doors and starts of a city built from records."""
    steps = steps_of(built.driven, built.city, headways_of(built.driven, built.city))
    doors, estimates = fit_doors(steps, stamp)
    starts, more = starts_of(built, doors)
    steps = replace(steps, late_s=starts.late_of(steps.trip))
    return Observed(steps, starts, doors, (*estimates, *more))


def fit(built: Built, sources: dict[str, str]) -> Fitted:
    """Fit everything to a city built from records."""
    seen = observe(built)
    city = _city_with(built.city, seen.doors, seen.starts)
    calibration, of_runs = calibrate(city, seen, sources)
    rng = np.random.Generator(np.random.PCG64(_SEED))
    enough = len(built.blocks) >= _FEWEST_TRIPS
    again = [resampled(built, seen, calibration, rng) for _ in range(_AGAIN if enough else 0)]
    estimates = (
        *seen.estimates,
        *of_lateness(seen.starts, [service.id for service in city.services]),
        *of_runs,
        _of_followers(seen, calibration),
        *_drawn_again((city, calibration), again, seen),
        *_of_demand(built),
    )
    return Fitted(city, calibration, seen.doors, estimates, _recorded_share(built))


def _city_with(city: City, doors: Doors, starts: Starts) -> City:
    """A city whose buses have these doors and, where vehicles are recorded, these layovers."""
    vehicle = replace(
        city.vehicle,
        exchange_s_per_passenger=doors.boarding_s,
        opening_s=doors.opening_s,
        alighting_s_per_passenger=doors.alighting_s,
        crowding_s_per_passenger=doors.crowding_s,
    )
    rest = starts.recovery_s
    operations = Operations() if rest is None else Operations(duties=True, recovery_s=rest)
    return replace(city, vehicle=vehicle, operations=operations)


def calibrate(
    city: City, seen: Observed, sources: dict[str, str], best: Calibration | None = None
) -> tuple[Calibration, list[Estimate]]:
    """The running times and the lateness of a city whose doors are known.

    How buses depend on those ahead is taken from the best fit, if that is not to be fitted.
    """
    steps, doors = seen.steps, seen.doors
    runs = runs_of(steps, city, doors)
    within_s = best.close_within_s if best else 0.0
    reaction, reactions = react(steps, runs, means_of(runs, city)[0], city, within_s)
    runs = without(runs, steps, reaction, means_of(runs, city)[0], city)
    shares = (best.jam_near, best.jam_far) if best else None
    jams, of_jams = jams_of(runs, means_of(runs, city)[0], city, shares)
    runs = without_jams(runs, jams)
    mean, estimates = means_of(runs, city)
    first = steps.only(steps.begins).people(second=False)
    stands = doors.dwell_s(*first).mean() if steps.begins.any() else 0.0
    leaving = doors.stamp == "departure" or bool(np.isfinite(steps.stood_s).any())
    calibration = fit_runs(
        city, runs, -round(float(stands)) if leaving else 0, sources, mean, False
    )
    calibration = split_pace(calibration, runs, mean, city)
    return replace(
        calibration,
        noise_s=all_places(calibration.noise_s),
        lateness_s=lateness_of(seen.starts, len(city.services)).round(1),
        close_s=reaction.close_s,
        close_within_s=reaction.within_s if reaction.close_s else 0.0,
        recover=reaction.recover,
        late_follow=late_follow(seen.starts),
        jam_near=jams.near,
        jam_far=jams.far,
    ), [*reactions, *of_jams, *estimates]


# -- again ----------------------------------------------------------------------------------------


def resampled(
    built: Built, seen: Observed, best: Calibration, rng: np.random.Generator
) -> tuple[City, Calibration]:
    """Another city and calibration that the records might have given.

    Trips are drawn again with replacement, and doors, running times and lateness are fitted to
    them. The spread of demand is drawn from what the days leave open. A trip that is drawn twice is
    no follower of itself, so what followers share is drawn from its interval around the best fit.
    """
    steps = seen.steps
    trips, number = np.unique(steps.trip, return_inverse=True)
    order = np.argsort(number, kind="stable")
    ends = np.append(np.searchsorted(number[order], np.arange(len(trips))), len(order))
    drawn = rng.integers(0, len(trips), len(trips))
    rows = np.concatenate([order[ends[trip] : ends[trip + 1]] for trip in drawn])
    again = np.repeat(np.arange(len(drawn)), ends[drawn + 1] - ends[drawn]).astype(np.int32)
    steps = replace(steps.only(rows.astype(np.int32)), trip=again)
    doors, _ = fit_doors(steps, seen.doors.stamp)
    other = Observed(steps, _starts_again(seen.starts, rng), doors, ())
    city = _city_with(built.city, doors, seen.starts)
    vehicle = replace(city.vehicle, capacity=_capacity_again(built, trips[drawn]))
    city = replace(city, vehicle=vehicle, variation=_variation_again(built, rng))
    share, error = best.residuals["correlation_of_followers"], _error_of_followers(seen, best)
    follow = round(share_copied(share + error * float(rng.standard_normal())), 4)
    return city, replace(calibrate(city, other, {}, best)[0], follow=follow)


def _error_of_followers(seen: Observed, calibration: Calibration) -> float:
    """The standard error of what followers share; runs of one trip count as one observation."""
    trips = max(len(np.unique(seen.steps.trip)), 4)
    return float((1 - calibration.residuals["correlation_of_followers"] ** 2) / trips**0.5)


def _of_followers(seen: Observed, calibration: Calibration) -> Estimate:
    share, trips = (
        calibration.residuals["correlation_of_followers"],
        len(np.unique(seen.steps.trip)),
    )
    error = _error_of_followers(seen, calibration)
    return estimate("correlation of runs with the trip before", share, error, trips)


def _starts_again(starts: Starts, rng: np.random.Generator) -> Starts:
    some = rng.integers(0, max(len(starts.trip), 1), len(starts.trip))
    pairs = rng.integers(0, max(len(starts.before_s), 1), len(starts.before_s))
    rows = {"trip": some, "service": some, "late_s": some, "before_s": pairs, "after_s": pairs}
    columns = {
        column.name: getattr(starts, column.name)[rows[column.name]]
        for column in fields(starts)
        if column.name in rows
    }
    return replace(starts, **columns)


def _capacity_again(built: Built, trips: Ints) -> int:
    count = np.bincount(trips, minlength=int(built.driven.trip.max()) + 1)
    return capacity_of(np.repeat(built.driven.load, count[built.driven.trip]))


def _variation_again(built: Built, rng: np.random.Generator) -> Variation | None:
    """Spreads of demand from one day to another that the recorded days leave open."""
    usual = built.city.variation
    if usual is None:
        return None

    def drawn(spread: Spread) -> float:
        if not spread.freedom:
            return 0.0
        likely = float(stats.chi2.rvs(spread.freedom, random_state=rng)) / spread.freedom
        return float(round(min(spread.sd / likely**0.5, _MOST_SD), 5))

    return Variation(usual.days, drawn(built.spreads["day"]), drawn(built.spreads["line"]))


def _numbers(city: City, calibration: Calibration) -> dict[str, float]:
    """The numbers of a model that have no formula for their interval, by name."""
    numbers = {
        "capacity": float(city.vehicle.capacity),
        "share of trips as late as the trip before": calibration.late_follow,
    }
    late = calibration.lateness_s
    at = 0
    for index, service in enumerate(city.services):
        places = slice(at, at + len(service.stops) - 1)
        at += len(service.stops)
        mean = calibration.mean_s[places]
        for hour, seconds in enumerate(mean.sum(axis=0)):
            begins = clock_text(city, 3600 * hour)
            numbers[f"whole run {service.id} from {begins}, s"] = float(seconds)
        numbers[f"sd of noise {service.id}, s"] = float(
            calibration.noise_s[places].std(axis=1).mean()
        )
        pace = calibration.pace.std() * calibration.pace_s[places].sum()
        numbers[f"sd of pace {service.id}"] = float(pace / max(mean.mean(axis=1).sum(), 1e-9))
        if late is not None:
            for name, level in _SHOWN_LATE.items():
                numbers[f"lateness {service.id} {name}, s"] = float(np.quantile(late[index], level))
    return numbers


def _drawn_again(
    best: tuple[City, Calibration], again: list[tuple[City, Calibration]], seen: Observed
) -> list[Estimate]:
    """Numbers with intervals from fits to trips drawn again."""
    others = [_numbers(*model) for model in again]
    trips, estimates = len(np.unique(seen.steps.trip)), []
    for name, value in _numbers(*best).items():
        error = float(np.std([other[name] for other in others], ddof=1)) if others else 0.0
        if not others:
            estimates.append(unsure(name, value, trips, "too few trips to draw them again"))
        elif error > 0:
            estimates.append(estimate(name, value, error, trips, "trips drawn again"))
        else:
            estimates.append(unsure(name, value, trips, "trips drawn again give the same number"))
    return estimates


# -- counts ---------------------------------------------------------------------------------------


def _recorded_share(built: Built) -> Floats:
    days = len(np.unique(built.driven.day))
    return np.array([len(built.planned.seen[row]) / days for row in built.order])


def _of_demand(built: Built) -> list[Estimate]:
    words = {"day": "all lines of a day", "line": "a route beside the day's"}
    return [
        Estimate(
            f"sd of demand, {words[name]}",
            interval.sd,
            interval.low,
            interval.high,
            interval.freedom + 1,
        )
        if interval.freedom
        else unsure(f"sd of demand, {words[name]}", 0.0, 1, "one day; assumed 0")
        for name, interval in built.spreads.items()
    ]
