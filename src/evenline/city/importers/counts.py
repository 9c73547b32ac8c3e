"""Stop counts balanced into rides: boardings and alightings by service, stop and half hour.

Iterative proportional fitting finds the rides nearest to a prior (`ride_weight`) that have the
counted boardings and alightings. A bus is counted in the half hour in which it is due. Boardings
are kept; alightings are scaled to as many in all. Rides are rounded so that whole counts stay.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, eye_array, hstack

from evenline.city.demand import RATE_BIN_S
from evenline.city.importers.gravity import LONE_GAP_S, ride_weight
from evenline.city.importers.people import LeftOut, Person, half_hour, whole
from evenline.city.importers.ways import Ways
from evenline.city.model import Floats, Ints, Journeys

ROUNDS = 1_000
CLOSE = 1e-6  # people; where fitting ends
MISSED = 1e4  # the price of an alighting that is not met, far above that of any rounding

Count = tuple[int, str, int]  # service, place, half hour by its number


@dataclass(frozen=True)
class Counts:
    """Counted people; half hours begin `phase_s` after a multiple of 1,800 s of the day."""

    boardings: Mapping[Count, float]
    alightings: Mapping[Count, float]
    phase_s: int

    def half_hour(self, due_s: Ints) -> Ints:
        """The number of the half hour in which each moment lies."""
        return (due_s - self.phase_s) // RATE_BIN_S


class Cells(NamedTuple):
    """Rides of a service that are counted alike: from a position to a position, in half hours.

    `row` and `column` are the places of their counts in the lists of boardings and alightings.
    """

    board: Ints
    alight: Ints
    row: Ints
    column: Ints
    trips: list[Ints]  # the trips that carry them


class Residual(NamedTuple):
    """How far journeys are from counts, by stop and half hour; absolute, but for the totals."""

    counted: float
    made: int
    largest: float
    mean: float
