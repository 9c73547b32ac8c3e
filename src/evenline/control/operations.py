"""What becomes of a hold: what the city's operations allow of it, and what the driver makes of it.

Every hold of every policy passes `executed_s`, in both worlds and in compiled code; the executed
hold is the one that is recorded. A forecast uses `allowed_s`, which knows no luck of the day. The
earliest departure is a rule of the timetable, not a hold: neither a cap nor a driver changes it.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.city.demand import Cell
from evenline.city.model import City, Ints, visit_offsets
from evenline.city.operations import CANCELLED, EVERY_STOP, LONGEST_HOLD_S, TERMINALS, Disruption
from evenline.city.schedule import HOUR_S
from evenline.city.starts import RANKS
from evenline.control.event import BASE_DWELL, CAPACITY, ON_BOARD, TIME, Array
from evenline.support.compiled import shared

DRIVERS, CANCELLATIONS, STARTS = 0xD21E, 0xCA9C, 0x57A7  # the streams of a day's luck
Bools = npt.NDArray[np.bool_]


class Limits(NamedTuple):
    """What the operations allow at each stop visit; no rows if they allow everything."""

    cap_s: Array  # longest hold; 0 away from control points
    earliest_s: Array  # no departure before this second; -inf away from control points
    latest_s: Array  # no hold beyond this second
    most_load: float
    ignored_share: float
    cut_share: float
    round_s: float


def limits_of(city: City) -> Limits:
    """The limits of a city's operations."""
    o = city.operations
    if not o.limits_holds:
        nothing = np.zeros(0)
        return Limits(nothing, nothing, nothing, 1.0, 0.0, 0.0, 0.0)
    caps = {point.stop: point.max_hold_s for point in o.control_points}
    cap_s, first = np.zeros(int(visit_offsets(city)[-1])), visit_offsets(city)
    control_point = np.zeros(len(cap_s), bool)
    for t, trip in enumerate(city.trips):
        for position, stop in enumerate(city.services[trip.service].stops):
            usual = o.hold_at == EVERY_STOP or (o.hold_at == TERMINALS and position == 0)
            if usual or stop in caps:
                control_point[first[t] + position] = True
                cap_s[first[t] + position] = caps.get(stop, o.max_hold_s)
    due_s = np.zeros(len(cap_s)) if city.due_s is None else city.due_s.astype(float)
    early = -np.inf if o.earliest_s is None else due_s - o.earliest_s
    late = np.inf if o.latest_s is None else due_s + o.latest_s
    return Limits(
        cap_s,
        np.where(control_point, early, -np.inf),
        np.broadcast_to(late, cap_s.shape).astype(float),
        o.most_load,
        o.ignored_share,
        o.cut_share,
        o.round_s,
    )


@shared
def _wait_s(limits: Limits, visit: int, leaves: float) -> float:
    """The wait for the earliest departure."""
    return float(max(limits.earliest_s[visit] - leaves, 0.0))


@shared
def _within_s(limits: Limits, visit: int, leaves: float, hold_s: float) -> float:
    """A hold within the cap and the latest departure."""
    return float(min(hold_s, limits.cap_s[visit], max(limits.latest_s[visit] - leaves, 0.0)))


@shared
def _limited_s(limits: Limits, visit: int, raw: Array, hold_s: float) -> float:
    """What cap, latest departure and load leave of a hold."""
    if raw[ON_BOARD] > limits.most_load * raw[CAPACITY]:
        return 0.0
    return _within_s(limits, visit, raw[TIME] + raw[BASE_DWELL], hold_s)


@shared
def allowed_s(limits: Limits, visit: int, raw: Array, hold_s: float) -> float:
    """What the operations allow of a hold, for one event; with the wait for the earliest departure,
    as far as a hold can be that long.
    """
    wait_s = min(_wait_s(limits, visit, raw[TIME] + raw[BASE_DWELL]), LONGEST_HOLD_S)
    return max(_limited_s(limits, visit, raw, hold_s), wait_s)


@shared
def executed_s(limits: Limits, visit: int, raw: Array, hold_s: float, luck: float) -> float:
    """The hold that happens: what is allowed, as the driver does it with this luck (0 to 1).

    It is longer than any cap where the bus waits for its earliest departure.
    """
    leaves = raw[TIME] + raw[BASE_DWELL]
    hold_s = _limited_s(limits, visit, raw, hold_s)
    if luck < limits.ignored_share:
        hold_s = 0.0
    elif luck < limits.ignored_share + limits.cut_share:
        hold_s *= (luck - limits.ignored_share) / limits.cut_share
    if limits.round_s > 0.0 and hold_s > 0.0:
        until_s = math.floor((leaves + hold_s) / limits.round_s + 0.5) * limits.round_s
        hold_s = _within_s(limits, visit, leaves, max(until_s - leaves, 0.0))
    return max(hold_s, _wait_s(limits, visit, leaves))


# -- the luck of a day ----------------------------------------------------------------------------


def _stream(cell: Cell, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([cell.sumo_seed, purpose]))


def driver_luck(city: City, cell: Cell) -> Array:
    """One number from 0 to 1 for each stop visit, evenly distributed; none if drivers obey.

    Half of it is the driver's habit of the day: whoever ignores a hold ignores the next one sooner.
    A duty has one driver.
    """
    if not city.operations.limits_holds:
        return np.zeros(0)
    rng, first = _stream(cell, DRIVERS), visit_offsets(city)
    names = [trip.duty or trip.id for trip in city.trips]
    driver = {name: i for i, name in enumerate(dict.fromkeys(names))}
    habit = rng.random(len(driver))[[driver[name] for name in names]]
    both = np.repeat(habit, np.diff(first)) + rng.random(int(first[-1]))
    return np.where(both < 1.0, both**2 / 2, 1.0 - (2.0 - both) ** 2 / 2)


def disruptions_of(city: City, cell: Cell) -> list[Disruption]:
    """What goes wrong on the day of a cell, as far as it is listed."""
    return [d for d in city.operations.disruptions if d.day in (None, cell.sumo_seed)]


def cancelled_trips(city: City, cell: Cell) -> Bools:
    """Which trips do not run on the day of a cell."""
    cancelled = np.zeros(len(city.trips), bool)
    if city.operations.cancelled_share > 0.0:
        luck = _stream(cell, CANCELLATIONS).random(len(city.trips))
        cancelled = luck < city.operations.cancelled_share
    cancelled[[d.trip for d in disruptions_of(city, cell) if d.kind == CANCELLED]] = True
    return cancelled


def start_late_s(city: City, cell: Cell) -> Ints:
    """How late each trip is ready to start on the day of a cell; no rows if all are on time.

    Trips of one vehicle share a part of their luck. A trip that waits for its vehicle starts so
    much later than its vehicle lets it.
    """
    if city.late_starts_s is None:
        return np.zeros(0, np.int32)
    from scipy.special import ndtr  # takes long to import, and most cities need none of it

    rng, names = _stream(cell, STARTS), [trip.duty or trip.id for trip in city.trips]
    vehicle = {name: number for number, name in enumerate(dict.fromkeys(names))}
    of_trip, of_vehicle = rng.standard_normal(len(names)), rng.standard_normal(len(vehicle))
    of_vehicle = of_vehicle[[vehicle[name] for name in names]]
    share = city.operations.starts_shared
    rank = ndtr(np.sqrt(share) * of_vehicle + np.sqrt(1.0 - share) * of_trip)
    late_s = [
        np.interp(u, RANKS, city.late_starts_s[trip.service, trip.departure_s // HOUR_S])
        for trip, u in zip(city.trips, rank, strict=True)
    ]
    return np.rint(late_s).astype(np.int32)


class Running(NamedTuple):
    """Which trips wait for another, or do not run (no rows if none does), and which trip follows a
    trip on the same vehicle (-1: none).
    """

    waits: Bools
    onward: Ints


def running_trips(city: City, cell: Cell) -> Running:
    """How the trips of a day share vehicles; a cancelled trip is left out of its duty."""
    waits = cancelled_trips(city, cell)
    onward = _onward(city, waits)
    waits[onward[onward >= 0]] = True
    if not waits.any():
        waits = np.zeros(0, bool)
    return Running(waits, onward)


def _onward(city: City, cancelled: Bools) -> Ints:
    """The trip that follows each trip on the same vehicle, or -1."""
    onward, last = np.full(len(cancelled), -1, np.int32), dict[str, int]()
    if city.operations.duties:
        for trip in sorted(range(len(cancelled)), key=lambda t: city.trips[t].departure_s):
            block = city.trips[trip].duty
            if not block or cancelled[trip]:
                continue
            if block in last:
                onward[last[block]] = trip
            last[block] = trip
    return onward


def next_departures_s(city: City) -> Array:
    """When the vehicle of each trip should begin its next one, by the timetable; inf if never."""
    onward = _onward(city, np.zeros(len(city.trips), bool))
    due = np.array([trip.departure_s for trip in city.trips], float)
    return np.where(onward >= 0, due[onward], np.inf)


class Departures(NamedTuple):
    """How many trips left their first stop late, and how many never came to it."""

    late: int
    lost: int


LATE_S = 60


def departures(city: City, left_s: Ints) -> Departures:
    """Count late departures and lost trips of a day, from when each trip left its first stop.

    A trip is late if it leaves its first stop more than a minute after its scheduled departure, or
    still stands there then when the day ends. A trip that never came to its first stop has -1.
    """
    due = np.array([trip.departure_s for trip in city.trips])
    return Departures(int(((left_s >= 0) & (left_s - due > LATE_S)).sum()), int((left_s < 0).sum()))
