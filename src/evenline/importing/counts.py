"""Stop counts balanced into rides: boardings and alightings by service, stop and half hour.

Iterative proportional fitting finds the rides nearest to a prior (`ride_weight`) that have the
counted boardings and alightings. A bus is counted in the half hour in which it is due. Boardings
are kept; alightings are scaled to as many in all. Rides are rounded so that whole counts stay.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenline.city.demand import RATE_BIN_S
from evenline.city.model import Floats
from evenline.importing.fitting import Indices, fitted, rounded
from evenline.importing.gravity import LONE_GAP_S, ride_weight
from evenline.importing.people import LeftOut, Person, half_hour, whole
from evenline.importing.ways import Ways

Count = tuple[int, str, int]  # service, place, half hour by its number


@dataclass(frozen=True)
class Counts:
    """Counted people; half hour 0 begins at second `phase_s` of the day."""

    boardings: dict[Count, float]
    alightings: dict[Count, float]
    phase_s: int


class Cell(NamedTuple):
    """Rides that are counted alike: from a position to a position, in given half hours."""

    board: int
    alight: int
    boarded: int  # half hour
    alighted: int


class Residual(NamedTuple):
    """How far journeys are from counts: in all, and by stop and half hour (absolute values)."""

    counted: float
    made: int
    largest: float
    mean: float


# -- from counts to people ------------------------------------------------------------------------


def people_of(
    counts: Counts, ways: Ways, start_s: int, rng: np.random.Generator
) -> tuple[list[Person], tuple[LeftOut, ...]]:
    """People with one leg each who make the counts, and the boardings that no bus explains."""
    people: list[Person] = []
    left_out: list[LeftOut] = []
    for service in range(len(ways.city.services)):
        cells = _cells(counts, ways, service)
        rides = _balanced(counts, ways, service, cells, rng)
        for (cell, trips), riders in zip(cells.items(), rides.astype(int).tolist(), strict=True):
            for trip in rng.choice(trips, riders).tolist() if riders else ():
                people.append(_rider(ways, service, cell, trip, start_s, rng))
        left_out += _unexplained(counts, ways, service, cells)
    return people, tuple(left_out)


def _cells(counts: Counts, ways: Ways, service: int) -> dict[Cell, list[int]]:
    """The cells of a service in which people were counted, each with the trips that carry them."""
    due_s, horizon_s = ways.due_s[service], ways.city.horizon_s
    places = [ways.places[stop] for stop in ways.city.services[service].stops]
    cells: dict[Cell, list[int]] = defaultdict(list)
    for trip, moments in enumerate(due_s.tolist()):
        halves = [(moment - counts.phase_s) // RATE_BIN_S for moment in moments]
        keys = [(service, place, half) for place, half in zip(places, halves, strict=True)]
        off = [i for i, key in enumerate(keys) if counts.alightings.get(key)]
        for board, key in enumerate(keys):
            if not counts.boardings.get(key) or moments[board] >= horizon_s:
                continue
            for alight in off:
                if alight > board and places[alight] != places[board]:
                    cells[Cell(board, alight, halves[board], halves[alight])].append(trip)
    return dict(cells)


def _balanced(
    counts: Counts,
    ways: Ways,
    service: int,
    cells: dict[Cell, list[int]],
    rng: np.random.Generator,
) -> Floats:
    """How many people ride in each cell."""
    line = ways.city.services[service]
    places = [ways.places[stop] for stop in line.stops]
    on = [(service, places[cell.board], cell.boarded) for cell in cells]
    off = [(service, places[cell.alight], cell.alighted) for cell in cells]
    rows, row = _numbered(on, counts.boardings)
    columns, column = _numbered(off, counts.alightings)
    if not len(row):
        return np.zeros(0)
    length_m = [line.distance_m[cell.alight] - line.distance_m[cell.board] for cell in cells]
    trips = np.array([len(trips) for trips in cells.values()])
    rows = whole(rows, rng).astype(np.float64)
    columns = whole(columns * (rows.sum() / columns.sum()), rng).astype(np.float64)
    rides = fitted(trips * ride_weight(np.array(length_m)), row, column, rows, columns)
    return rounded(rides, row, column, rows, columns, rng)


def _numbered(keys: list[Count], counted: Mapping[Count, float]) -> tuple[Floats, Indices]:
    """The counts of the keys, each once, and where the count of each key is."""
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([counted[key] for key in number]), np.array([number[k] for k in keys], np.intp)


def _rider(
    ways: Ways, service: int, cell: Cell, trip: int, start_s: int, rng: np.random.Generator
) -> Person:
    """Someone who comes after the bus before, so that this trip is the first to carry the leg."""
    stops = ways.city.services[service].stops
    leg = (stops[cell.board], stops[cell.alight])
    leaves = ways.rides(leg).departure_s
    due_s = int(ways.due_s[service][trip, cell.board])
    index = bisect_left(leaves, due_s)
    after_s = leaves[index - 1] + 1 if index else due_s - round(LONE_GAP_S)
    due_s = min(max(due_s, 0), ways.city.horizon_s - 1)
    at_s = int(rng.integers(min(max(after_s, 0), due_s), due_s, endpoint=True))
    return Person(at_s, (leg,), half_hour(at_s, start_s))


def _unexplained(
    counts: Counts, ways: Ways, service: int, cells: dict[Cell, list[int]]
) -> list[LeftOut]:
    """The boardings of a service that no bus explains."""
    line = ways.city.services[service]
    carried = {(ways.places[line.stops[cell.board]], cell.boarded) for cell in cells}
    why = f"no bus of {line.id} takes them to a stop where people got off"
    return [
        LeftOut(place, "", counts.phase_s + half * RATE_BIN_S, people, why)
        for (counted, place, half), people in counts.boardings.items()
        if counted == service and people and (place, half) not in carried
    ]


# -- from people to counts ------------------------------------------------------------------------


def timetable_counts(
    people: list[Person], ways: Ways, phase_s: int
) -> tuple[Counter[Count], Counter[Count]]:
    """Boardings and alightings of people where every bus runs on time and takes all."""
    on: Counter[Count] = Counter()
    off: Counter[Count] = Counter()
    for person in people:
        at_s = person.departure_s
        for board, alight in person.legs:
            service, leaves_s, at_s = ways.rides((board, alight)).bus(at_s)
            on[service, ways.places[board], (leaves_s - phase_s) // RATE_BIN_S] += 1
            off[service, ways.places[alight], (at_s - phase_s) // RATE_BIN_S] += 1
    return on, off


def residual(made: Mapping[Count, int], counted: Mapping[Count, float]) -> Residual:
    """Compare what journeys make with what was counted."""
    keys = made.keys() | counted.keys()
    off = np.array([abs(made.get(key, 0) - counted.get(key, 0.0)) for key in keys])
    return Residual(
        sum(counted.values()),
        sum(made.values()),
        float(off.max(initial=0.0)),
        float(off.mean()) if len(off) else 0.0,
    )
