"""Passengers from counts: who got on where, got off where, and since when they waited.

Counts of a trip are balanced, and iterative proportional fitting finds how many rode from each stop
to each other one, starting from what all trips of the service suggest. Each recorded person came at
a random time since the bus before. What the days say about demand is kept as a pool of people and a
spread of day totals; see `evenline.city.model.Variation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from evenline.city.demand import CarriedLeg, journeys_from
from evenline.city.model import Floats, Ints, Journeys, Variation
from evenline.control.regularity import rows_of_groups
from evenline.importing.fitting import fitted
from evenline.importing.people import whole
from evenline.records.patterns import Driven, Pattern, Planned
from evenline.support.errors import InputError

_POOL = 1.5  # typical days in the pool
_MOST_RIDES = 20_000_000  # of a service, in the pool
ROUNDS, _NEVER = 40, 0.0  # of fitting, which does not end before
_LONG_GAP = 1.5  # of the usual gap: beyond it a bus was probably not recorded
_NEAR = 7  # visits whose median gap is usual
CONFIDENCE = 0.95

Matrix = npt.NDArray[np.float64]


def balanced(boarded: Matrix, alighted: Matrix) -> tuple[Matrix, Matrix]:
    """Boardings and alightings of trips (rows) by position, with the same total.

    Nobody boards at the last stop or alights at the first, and nobody alights before boarding:
    surplus alightings are left out, and the rest is scaled to the mean of both totals.
    """
    on, off = np.nan_to_num(boarded), np.nan_to_num(alighted)
    on[:, -1] = off[:, 0] = 0.0
    total = (on.sum(axis=1) + off.sum(axis=1)) / 2
    on *= (total / np.maximum(on.sum(axis=1), 1e-9))[:, None]
    off *= (total / np.maximum(off.sum(axis=1), 1e-9))[:, None]
    aboard = np.zeros(len(on))
    for position in range(on.shape[1]):
        off[:, position] = np.minimum(off[:, position], aboard)
        aboard += on[:, position] - off[:, position]
    off[:, -1] += aboard  # whoever is still on board rides to the end
    return on, off


def ride_tables(boarded: Matrix, alighted: Matrix) -> Matrix:
    """How many people rode from stop to stop on each trip: trip, from, to."""
    on, off = balanced(boarded, alighted)
    trips, stops = on.shape
    board, alight = np.triu_indices(stops, 1)
    usual = fitted(
        np.ones(len(board)), board, alight, on.sum(axis=0), off.sum(axis=0), ROUNDS, _NEVER
    )
    start = np.tile(usual / max(usual.sum(), 1e-9) + 1e-6, trips)
    first = np.repeat(stops * np.arange(trips), len(board))
    first_cell, last_cell = first + np.tile(board, trips), first + np.tile(alight, trips)
    rides = np.zeros((trips, stops, stops))
    cells = fitted(start, first_cell, last_cell, on.ravel(), off.ravel(), ROUNDS, _NEVER)
    rides[:, board, alight] = cells.reshape(trips, -1)
    return rides


@dataclass(frozen=True, eq=False)
class Rides:
    """The pool of recorded people as columns."""

    service: Ints
    board: Ints  # position
    alight: Ints
    since_s: Floats  # when they began to wait


def recorded_rides(
    driven: Driven, services: Sequence[Pattern], planned: Planned, rng: np.random.Generator
) -> Rides:
    """The people of every planned trip: so many of its recorded days' that the pool holds `_POOL`
    typical days.
    """
    weight = {trip: _POOL / len(seen) for seen in planned.seen for trip in seen}
    waits = _waits_s(driven, services)
    parts: list[tuple[Ints, Ints, Ints, Floats]] = []
    for index, pattern in enumerate(services):
        here = np.flatnonzero(driven.service == index)
        trips, row = np.unique(driven.trip[here], return_inverse=True)
        shape = (len(trips), len(pattern.places))
        tables = {name: np.full(shape, np.nan) for name in ("on", "off", "at", "gap")}
        at = (row, driven.position[here])
        for name, column in zip(
            tables, (driven.boarded, driven.alighted, driven.time_s, waits), strict=True
        ):
            tables[name][at] = column[here]
        share = np.array([weight.get(int(trip), 0.0) for trip in trips])
        expected = ride_tables(tables["on"], tables["off"]) * share[:, None, None]
        if expected.sum() > _MOST_RIDES:
            raise InputError(
                f"{expected.sum():,.0f} people of route {pattern.line.route}: a pool holds at most "
                f"{_MOST_RIDES:,}; check the boardings, or take fewer days"
            )
        many = whole(expected.ravel(), rng)
        trip, board, alight = np.unravel_index(
            np.repeat(np.arange(many.size), many), expected.shape
        )
        since = tables["at"][trip, board] - rng.random(len(trip)) * tables["gap"][trip, board]
        known = np.isfinite(since)
        parts.append(
            (
                np.full(known.sum(), index, np.int32),
                board[known].astype(np.int32),
                alight[known].astype(np.int32),
                since[known],
            )
        )
    return Rides(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _waits_s(driven: Driven, services: Sequence[Pattern]) -> Floats:
    """How long people may have waited at each visit: the gap to the bus before of the same line.

    A gap much longer than those around it is cut, because a bus was probably not recorded.
    """
    key = _line_places(driven, services) * (int(driven.day.max(initial=0)) + 1) + driven.day
    waits = np.full(len(driven), np.nan)
    for block in rows_of_groups(key, driven.time_s):
        if len(block) < 2:
            waits[block] = 600.0
            continue
        gap = np.diff(driven.time_s[block])
        padded = np.pad(gap, _NEAR // 2, mode="edge")
        usual = np.median(np.lib.stride_tricks.sliding_window_view(padded, _NEAR), axis=1)
        waits[block[1:]] = np.minimum(gap, _LONG_GAP * usual)
        waits[block[0]] = usual[0]
    return waits


def _line_places(driven: Driven, services: Sequence[Pattern]) -> Ints:
    """A number for the line and stop of each visit."""
    number: dict[object, int] = {}
    table = np.zeros((len(services), max(len(p.places) for p in services)), np.int32)
    for index, pattern in enumerate(services):
        for position, place in enumerate(pattern.places):
            table[index, position] = number.setdefault((pattern.line, place), len(number))
    return np.asarray(table[driven.service, driven.position])


def journeys_of(
    rides: Rides, services: Sequence[Pattern], stops: Sequence[Sequence[int]], horizon_s: int,
    rng: np.random.Generator,
) -> Journeys:  # fmt: skip
    """The pool as a city's journeys; any service of the same line may carry them.

    `min_demand` spreads the pool evenly, so that a level of 1 is one typical day.
    """
    since = np.clip(rides.since_s, 0, horizon_s - 1).astype(np.int32)
    order = np.argsort(since, kind="stable")
    count = len(order)
    level = np.argsort(np.argsort(rng.random(count))) + 1
    columns = (column[order].tolist() for column in (rides.service, rides.board, rides.alight))
    keys = list(zip(*columns, strict=True))
    legs = {(i, a, b): _leg(i, a, b, services, stops) for i, a, b in set(keys)}
    return journeys_from(
        since[order],
        np.round(level * _POOL / max(count, 1), 6),
        [[legs[i, a, b]] for i, a, b in keys],
    )


def _leg(
    service: int,
    board: int,
    alight: int,
    services: Sequence[Pattern],
    stops: Sequence[Sequence[int]],
) -> CarriedLeg:
    first, last = stops[service][board], stops[service][alight]
    carriers = tuple(
        index
        for index, pattern in enumerate(services)
        if pattern.line == services[service].line
        and first in stops[index]
        and last in stops[index]
        and stops[index].index(first) < stops[index].index(last)
    )
    return first, last, carriers


# -- from day to day ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A standard deviation with its interval and the degrees of freedom behind it."""

    sd: float
    low: float
    high: float
    freedom: int


def spread_of(square: float, freedom: int, noise: float = 0.0) -> Spread:
    """The spread behind a mean square, less the part that counting explains; with its interval."""
    if freedom < 1:
        return Spread(0.0, 0.0, np.nan, 0)
    tail = (1 - CONFIDENCE) / 2
    low, high = (freedom * square / stats.chi2.ppf(q, freedom) for q in (1 - tail, tail))
    sd, least, most = (float(max(value - noise, 0.0) ** 0.5) for value in (square, low, high))
    return Spread(sd, least, most, freedom)


def variation_of(
    driven: Driven, services: Sequence[Pattern], planned: Planned
) -> tuple[Variation, dict[str, Spread]]:
    """How demand differs from day to day: all lines together, and each line beside them.

    Only planned trips that every day recorded count, so that a missing record is no missing demand.
    """
    days = np.unique(driven.day)
    full = {trip for seen in planned.seen if len(seen) == len(days) for trip in seen}
    rows = np.isin(driven.trip, sorted(full))
    routes = sorted({pattern.line.route for pattern in services})
    of_service = np.array([routes.index(pattern.line.route) for pattern in services])
    total = np.zeros((len(routes), len(days)))
    place = (of_service[driven.service[rows]], np.searchsorted(days, driven.day[rows]))
    np.add.at(total, place, np.nan_to_num(driven.boarded[rows]))
    total = total[(total > 0).all(axis=1)]
    lines, number = total.shape
    if number < 2 or not lines:
        none = Spread(0.0, 0.0, np.nan, 0)
        return Variation(_POOL, 0.0, 0.0), {"day": none, "line": none}
    logs = np.log(total)
    by_day = logs.mean(axis=0) - logs.mean()
    rest = logs - logs.mean(axis=1, keepdims=True) - by_day
    counting = float(np.mean(1 / total))
    freedom = (lines - 1) * (number - 1)
    line = spread_of(float((rest**2).sum() / max(freedom, 1)), freedom, counting)
    noise = (line.sd**2 + counting) / lines
    day = spread_of(float((by_day**2).sum() / (number - 1)), number - 1, noise)
    spreads = {"day": day, "line": line}
    return Variation(_POOL, round(day.sd, 5), round(line.sd, 5)), spreads
