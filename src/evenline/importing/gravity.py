"""Synthetic demand where nothing is known: gravity between the places of a city.

    people(o, d)  in proportion to  calls(o) · calls(d) · r · exp(-r / 2 km) · c

`calls` counts the trips that call at a place, `r` is the length of the shortest ride, and `c` is 1
for a direct ride and 0.3 for one with a transfer; no other pair has people. They set out at any
time from shortly before the first bus to the last one, evenly or in proportion to weights by hour.
"""

import math
from collections.abc import Sequence

import numpy as np

from evenline.city.model import Floats
from evenline.importing.people import Person, half_hour
from evenline.importing.ways import Ways
from evenline.support.errors import InputError

RIDE_M = 2_000.0
_TRANSFER = 0.3
_TRIES = 20  # times of day for a pair, before another pair is drawn
LONE_GAP_S = 600.0  # how long before the only bus of a day people begin to come


def ride_weight(length_m: Floats) -> Floats:
    """How likely rides of these lengths are, at equal supply: few are short, few are long."""
    return np.asarray(length_m * np.exp(-length_m / RIDE_M))


def gravity(
    ways: Ways, count: int, hours: Sequence[float], start_s: int, rng: np.random.Generator
) -> list[Person]:
    """Draw so many people. `hours` are weights by hour of the city's day; none: all are equal."""
    _check_hours(hours)
    places = list(ways.stops_of)
    reached = np.cumsum(pair_weights(ways))
    clocks = [_clock(ways, place, hours) for place in places]
    people: list[Person] = []
    while (left := count - len(people)) > 0:
        pairs = np.searchsorted(reached / reached[-1], rng.random(left), side="right")
        drawn = []
        for origin, destination in zip(*np.divmod(pairs, len(places)), strict=True):
            ends = places[origin], places[destination]
            drawn += _drawn(ways, *ends, clocks[origin], start_s, rng)
        if not drawn:
            raise InputError(
                f"gravity: hardly any bus of {ways.city.name} runs in its day, or in these hours"
            )
        people += drawn
    return people


def pair_weights(ways: Ways) -> Floats:
    """The weight of each pair of places, as a matrix: origins by destinations."""
    number = {place: i for i, place in enumerate(ways.stops_of)}
    length_m = np.full((len(number), len(number)), np.inf)
    calls = np.zeros(len(number))
    for service, trips in zip(ways.city.services, ways.city.trips_of, strict=True):
        at = np.array([number[ways.places[stop]] for stop in service.stops])
        first, second = np.triu_indices(len(at), 1)
        along_m = np.array(service.distance_m)
        np.add.at(calls, at, len(trips))
        if trips:
            rides_m = along_m[second] - along_m[first]
            np.minimum.at(length_m, (at[first], at[second]), rides_m)
    by_transfer_m = np.full_like(length_m, np.inf)
    for place in np.flatnonzero(np.isfinite(length_m).any(0) & np.isfinite(length_m).any(1)):
        through_m = length_m[:, place, None] + length_m[None, place, :]
        np.minimum(by_transfer_m, through_m, out=by_transfer_m)
    direct = np.isfinite(length_m)
    rides = np.where(direct, length_m, np.where(np.isfinite(by_transfer_m), by_transfer_m, 0.0))
    weights = calls[:, None] * calls * ride_weight(rides) * np.where(direct, 1.0, _TRANSFER)
    np.fill_diagonal(weights, 0.0)
    if not weights.any():
        raise InputError(f"gravity: no bus of {ways.city.name} connects two stops")
    return np.asarray(weights)


def _check_hours(hours: Sequence[float]) -> None:
    for weight in hours:
        if not (math.isfinite(weight) and weight >= 0):
            raise InputError(f"demand by hour: {weight} must be a number of at least 0")


def _clock(ways: Ways, place: str, hours: Sequence[float]) -> tuple[Floats, Floats] | None:
    """Inverse-transform table of when people set out from a place; None if nobody does."""
    services = ways.city.services
    leave = [
        ways.due_s[index][:, position]
        for stop in ways.stops_of[place]
        for index, position in ways.calls[stop]
        if position < len(services[index].stops) - 1
    ]
    calls = np.concatenate([*leave, np.zeros(0, np.int32)])
    if not len(calls):
        return None
    first, last = float(calls.min()), float(calls.max())
    gap = (last - first) / (len(calls) - 1) if last > first else LONE_GAP_S
    begin, end = max(0.0, first - gap), min(last, ways.city.horizon_s - 1.0)
    weights = hours or (1.0,) * math.ceil(ways.city.horizon_s / 3600)
    edges = np.clip(3600.0 * np.arange(len(weights) + 1), begin, max(begin, end))
    mass = np.concatenate([[0.0], np.cumsum(np.diff(edges) * np.array(weights))])
    return (mass / mass[-1], edges) if mass[-1] > 0 else None


def _drawn(
    ways: Ways,
    origin: str,
    destination: str,
    clock: tuple[Floats, Floats] | None,
    start_s: int,
    rng: np.random.Generator,
) -> list[Person]:
    """One person between two places, or none if at the times tried no bus is left."""
    if clock is None:
        return []
    for _ in range(_TRIES):
        at_s = int(np.interp(rng.random(), *clock))
        if (legs := ways.find(origin, destination, at_s)) is not None:
            return [Person(at_s, legs, half_hour(at_s, start_s))]
    return []
