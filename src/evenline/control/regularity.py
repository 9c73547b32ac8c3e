"""How regularly buses come: headways, what is expected of them, and the measures made of both.

Comparisons, audits, records and pages all measure with these functions. A timetable whose headways
differ, or whose times are averages of recorded days, plans some trips seconds apart. So nothing is
divided by the planned headway of one trip, but by the mean of the headways planned around it.
People take the next bus of their line, whichever way it goes later, so headways are those of a line
at a stop: all variants of a route in one direction.
"""

import re
from typing import NamedTuple

import numpy as np

from evenline.city.model import City, Floats, Ints, Service

BUNCHED = 0.25  # a bus is bunched when its headway is below this share of the expected one
_AROUND_S = 1800  # headways that end within this time of a bus are around it
_NEAREST = 2  # and at least so many before it and after it
BREAK, BREAK_S = 3.0, 3600  # a longer gap than both, in usual headways and in seconds, is a break

_VARIANT = re.compile(r"(.+ \d+)([a-z]+)")  # how records name the variants of a route and direction


def line_of(service: Service) -> str:
    """The line of a service: its source, without the letter that tells variants apart."""
    variant = _VARIANT.fullmatch(service.source)
    if variant and service.id.endswith(variant[2]):
        return variant[1]
    return service.source or service.id


def services_by_line(city: City) -> dict[str, list[int]]:
    """The services of each line."""
    lines: dict[str, list[int]] = {}
    for number, service in enumerate(city.services):
        lines.setdefault(line_of(service), []).append(number)
    return lines


def expected_s(times_s: Floats) -> Floats:
    """What is expected of the headway of each bus but the first, given when buses come, in order.

    It is the mean of the headways around. A gap that is a break in service is no headway: nothing
    is expected of it (NaN), and it is in no mean.
    """
    gap = np.diff(times_s)
    if len(gap) == 0:
        return np.zeros(0)
    here = gap <= max(BREAK * float(np.median(gap)), BREAK_S)
    total, count = (np.concatenate([[0.0], np.cumsum(weights)]) for weights in (gap * here, here))
    ends, number = times_s[1:], np.arange(len(gap))
    first = np.minimum(np.searchsorted(ends, ends - _AROUND_S), number - _NEAREST).clip(min=0)
    after = np.searchsorted(ends, ends + _AROUND_S, side="right")
    after = np.maximum(after, number + _NEAREST + 1).clip(max=len(gap))
    mean = (total[after] - total[first]) / np.maximum(count[after] - count[first], 1.0)
    return np.where(here, mean, np.nan)


def expected_by_timetable_s(city: City) -> Floats:
    """What the timetable makes expect of the headway of each trip; NaN for a service's first."""
    expected = np.full(len(city.trips), np.nan)
    for trips in city.trips_of:
        departures_s = np.array([city.trips[trip].departure_s for trip in trips], float)
        expected[list(trips[1:])] = expected_s(departures_s)
    return expected


class Headways(NamedTuple):
    """Headways without breaks, what is expected of each, and the row of the bus that ends it."""

    gap_s: Floats
    expected_s: Floats
    row: Ints

    @property
    def ratio(self) -> Floats:
        """Each headway as a multiple of the expected one."""
        return self.gap_s / np.maximum(self.expected_s, 1.0)

    @property
    def deviation(self) -> Floats:
        """How far each headway is from what is planned, which without a timetable is expected."""
        return self.ratio - 1.0


def rows_of_groups(group: Ints, *order: Floats | Ints) -> list[Ints]:
    """The rows of each group in order of its number, sorted by other columns within the group."""
    columns: tuple[Floats | Ints, ...] = (*order, group)
    rows = np.lexsort(columns).astype(np.int32)
    return np.split(rows, np.flatnonzero(np.diff(group[rows])) + 1) if len(rows) else []


def headways_of(times_s: Floats, group: Ints) -> Headways:
    """The headways within each group, such as a line at a stop, without a timetable: what is
    expected of them comes from the same buses.
    """
    blocks = rows_of_groups(group, times_s)
    gap = np.concatenate([[], *(np.diff(times_s[block]) for block in blocks)])
    expected = np.concatenate([[], *(expected_s(times_s[block]) for block in blocks)])
    row = np.concatenate([np.zeros(0, np.int32), *(block[1:] for block in blocks)])
    here = np.isfinite(expected)
    return Headways(gap[here], expected[here], row[here].astype(np.int32))


# -- measures -------------------------------------------------------------------------------------


def headway_cv(deviations: Floats) -> float:
    """The standard deviation of headways from the planned ones, as a share of expected headways, of
    `(headway - planned) / expected` for each; ignores NaN.
    """
    known = deviations[np.isfinite(deviations)]
    return float(known.std()) if len(known) else 0.0


def bunched_share(ratios: Floats) -> float:
    """The share of bunched buses, from headways divided by expected headways; ignores NaN."""
    known = ratios[np.isfinite(ratios)]
    return float(np.mean(known < BUNCHED)) if len(known) else 0.0


def random_wait_s(gap_s: Floats) -> Floats:
    """The mean wait of someone who comes at a random time, for each column of headways.

    The excess wait is this minus the same of the headways that the timetable plans or, without a
    timetable, of those that are expected.
    """
    return np.asarray((gap_s**2).sum(axis=0) / np.maximum(2.0 * gap_s.sum(axis=0), 1e-9))
