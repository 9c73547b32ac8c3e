"""When trips start: how late, like the trip before or not, and after which layover.

Where vehicles are recorded, a trip cannot start before its vehicle has come and rested. What it is
late beyond that, or beyond the timetable, is its own lateness. Where no vehicle is recorded, a late
end cannot be told from any other reason, so all lateness is the trip's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from evenline.city.model import Floats, Ints
from evenline.records.build import Built
from evenline.records.doors import Doors
from evenline.records.estimates import Estimate, Z, estimate, spread, unsure
from evenline.records.patterns import start_times
from evenline.worlds.calibration import LATE_QUANTILES, quantile_levels, share_copied

_LATE_FEW = 20.0  # trips at which a service's own lateness weighs as much as that of all
_RESTED = 0.1  # of the layovers are shorter than what a vehicle needs
_FEWEST_LAYOVERS = 20
_MOST_NEGATIVE = 0.1  # of the layovers: otherwise a block is not a vehicle
_NO_VEHICLES = "not identifiable: no vehicle is recorded for two trips in a row; none is modelled"


@dataclass(frozen=True, eq=False)
class Starts:
    """Recorded starts of planned trips as columns; `recovery_s` is None without layovers."""

    trip: Ints
    service: Ints
    late_s: Floats
    before_s: Floats  # lateness of pairs of neighbours: of the first, and of the second
    after_s: Floats
    recovery_s: int | None

    def late_of(self, trips: Ints) -> Floats:
        """How late some trips started; NaN where it is not known."""
        table = np.full(max(int(trips.max(initial=0)), int(self.trip.max(initial=0))) + 1, np.nan)
        table[self.trip] = self.late_s
        return np.asarray(table[trips])


def starts_of(built: Built, doors: Doors) -> tuple[Starts, list[Estimate]]:
    """The starts of planned trips with two recorded days or a schedule.

    Where vehicles are recorded, a trip counts only if it is known when its vehicle came. A
    timetable that is a mean of days is itself uneven by what this leaves out, so that both together
    spread as recorded.
    """
    driven = built.driven
    first = driven.first_rows()
    start_s, due_s = start_times(driven, len(built.patterns))
    trips = driven.trip[first].tolist()
    left = dict(zip(trips, start_s.tolist(), strict=True))
    day = dict(zip(trips, driven.day[first].tolist(), strict=True))
    scheduled = bool(np.isfinite(due_s).all())
    planned = {
        trip: (int(built.planned.service[i]), float(built.planned.departure_s[i]))
        for i, seen in enumerate(built.planned.seen)
        for trip in seen
        if scheduled or len(seen) > 1
    }
    came = _came_s(built, doors, day)
    layovers = np.array([left[trip] - at for trip, at in came.items() if np.isfinite(at)])
    recovery_s, estimates = _rest(layovers)
    if recovery_s is None:
        came = {}
    free = {trip: came.get(trip, -np.inf) + (recovery_s or 0) for trip in planned}
    planned = {trip: plan for trip, plan in planned.items() if not np.isnan(free[trip])}
    late = {trip: left[trip] - max(due, free[trip]) for trip, (_, due) in planned.items()}
    order = sorted(planned, key=lambda trip: (planned[trip][0], day[trip], planned[trip][1]))
    near = [
        (late[a], late[b])
        for a, b in pairwise(order)
        if (planned[a][0], day[a]) == (planned[b][0], day[b])
    ]
    pairs = np.array(near, float).reshape(-1, 2)
    return Starts(
        np.array(order, np.int32),
        np.array([planned[trip][0] for trip in order], np.int32),
        np.array([late[trip] for trip in order], float),
        pairs[:, 0],
        pairs[:, 1],
        recovery_s,
    ), estimates


def _came_s(built: Built, doors: Doors, day: Mapping[int, int]) -> dict[int, float]:
    """When the vehicle of a trip was free from the trip before of its block.

    NaN where the trip before was not recorded to its end; the first trip of a block is left out.
    """
    driven = built.driven
    first = driven.first_rows()
    last = np.append(first[1:], len(driven)) - 1
    stops = np.array([len(pattern.places) for pattern in built.patterns])
    off = np.nan_to_num(driven.alighted[last])
    stands = doors.dwell_s(np.zeros(len(last)), off, off)
    end_s = driven.time_s[last] + (0.0 if doors.stamp == "departure" else stands)
    whole = driven.position[last] == stops[driven.service[last]] - 1
    ended = dict(zip(driven.trip[last[whole]].tolist(), end_s[whole].tolist(), strict=True))
    before: dict[str, tuple[int, ...]] = {}
    came = {}
    for row, trip in zip(built.order, built.city.trips, strict=True):
        seen = built.planned.seen[row]
        if trip.duty in before:
            ends = {day[run]: ended.get(run, np.nan) for run in before[trip.duty]}
            came.update({run: ends.get(day[run], np.nan) for run in seen})
        if trip.duty:
            before[trip.duty] = seen
    return came


def _rest(layovers: Floats) -> tuple[int | None, list[Estimate]]:
    """The rest that a vehicle needs between two trips: a short layover; None if not known."""
    name, count = "layover that a vehicle needs, s", len(layovers)
    if count < _FEWEST_LAYOVERS or np.mean(layovers < 0) > _MOST_NEGATIVE:
        return None, [unsure(name, 0.0, count, _NO_VEHICLES)]
    value = float(np.quantile(layovers, _RESTED))
    half = Z * (_RESTED * (1 - _RESTED) / count) ** 0.5
    low, high = np.quantile(layovers, np.clip([_RESTED - half, _RESTED + half], 0, 1))
    note = f"{_RESTED:.0%} of the layovers are shorter; clocks show whole seconds"
    layover = Estimate(name, value, float(low) - 0.5, float(high) + 0.5, count, note)
    return max(round(value), 0), [layover]


def lateness_of(starts: Starts, services: int) -> Floats:
    """Quantiles of lateness by service; a service with few trips shares those of all."""
    levels = quantile_levels(LATE_QUANTILES)
    if not len(starts.late_s):
        return np.zeros((services, LATE_QUANTILES))
    pooled, table = np.quantile(starts.late_s, levels), []
    for index in range(services):
        here_s = starts.late_s[starts.service == index]
        weight = len(here_s) / (len(here_s) + _LATE_FEW)
        here = np.quantile(here_s, levels) if len(here_s) else pooled
        table.append(weight * here + (1 - weight) * pooled)
    return np.array(table)


def _late_together(starts: Starts) -> float:
    """The correlation of the lateness of a trip and the next one."""
    if len(starts.before_s) < 3 or not (starts.before_s.std() * starts.after_s.std() > 0):
        return 0.0
    return float(np.corrcoef(starts.before_s, starts.after_s)[0, 1])


def late_follow(starts: Starts) -> float:
    """The share of trips that copy the lateness of the trip before."""
    return round(share_copied(_late_together(starts)), 4)


def of_lateness(starts: Starts, names: list[str]) -> list[Estimate]:
    """What the starts say, with intervals."""
    if not len(starts.late_s):
        return [unsure("sd of lateness", 0.0, 0, "one day and no schedule; assumed 0")]
    table, pairs, together = (
        lateness_of(starts, len(names)),
        len(starts.before_s),
        _late_together(starts),
    )
    estimates = [
        spread(f"sd of lateness {name}", float(table[i].std()), int((starts.service == i).sum()))
        for i, name in enumerate(names)
    ]
    if pairs < 3:
        return [*estimates, unsure("correlation of lateness with the next trip", 0.0, pairs, "few")]
    error = (1 - together**2) / pairs**0.5
    return [
        *estimates,
        estimate("correlation of lateness with the next trip", together, error, pairs),
    ]
