"""Demand for a city from elsewhere: a table of journeys, an OD matrix, stop counts, or gravity.

`demand_from` makes the journeys of a city whose streets and timetable are known; the city's own
journeys do not matter. What cannot be carried is listed, never dropped in silence, and the notes
say where the demand comes from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenline.city.model import City, Journeys


@dataclass(frozen=True)
class LeftOut:
    """People of the source that no bus can carry, and why."""

    origin: str
    destination: str
    departure_s: int
    why: str
    passengers: float = 1


@dataclass(frozen=True)
class Residuals:
    """Boardings and alightings by stop and half hour: those of the journeys, less those counted."""

    boardings: int  # counted in all
    alightings: int
    boardings_off: int  # the difference in all
    alightings_off: int
    boardings_largest: float  # absolute
    alightings_largest: float
    boardings_mean: float  # absolute
    alightings_mean: float


@dataclass(frozen=True)
class Report:
    """What was made, at demand 1.00, and what was not."""

    passengers: int
    with_transfer: int
    left_out: tuple[LeftOut, ...]
    residuals: Residuals | None = None  # of stop counts


@dataclass(frozen=True, eq=False)
class Found:
    """Journeys, the sentences that every result must repeat, and a report for people."""

    journeys: Journeys
    notes: tuple[str, ...]
    report: Report


def demand_from(
    source: str,
    city: City,
    rng: np.random.Generator,
    passengers: int | None = None,
    hours: Sequence[float] = (),
) -> Found:
    """Journeys for a city from `gravity`, or from a CSV file, whose header tells its kind.

    `passengers` and `hours` (demand by hour of the city's day) are for gravity only.
    """
    raise NotImplementedError
