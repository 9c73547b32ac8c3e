"""What a day of buses looked like, recorded or simulated, and how far two days are apart.

A measure is a table: a row for each service, line or stop, and in each row one number or the
quantiles of a distribution. The gap of two days is the mean difference of their tables over rows
that both have, weighted by how often buses came there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints
from evenline.control.regularity import (
    Headways,
    bunched_share,
    headway_cv,
    headways_of,
    line_of,
    random_wait_s,
    rows_of_groups,
)
from evenline.control.visits import Visit
from evenline.records.patterns import Driven

_QUANTILES = np.linspace(0.025, 0.975, 20)
_BAND_S = 3 * 3600
_FEWEST = 5  # visits of a row that is compared


@dataclass(frozen=True, eq=False)
class MeasureTable:
    """A measure of a day: one row a group, NaN where too little was seen."""

    values: Floats
    weight: Floats


@dataclass(frozen=True)
class Measure:
    """A measure by name, with its unit."""

    name: str
    unit: str
    of: Callable[["MeasuredDay"], MeasureTable]


@dataclass(frozen=True, eq=False)
class MeasuredDay:
    """The visits of one day, with the number of the line and stop of each."""

    city: City
    driven: Driven
    line_stop: Ints
    line_stops: int

    @cached_property
    def headways(self) -> Headways:
        """Every headway of a line at a stop."""
        return headways_of(self.driven.time_s, self.line_stop)

    def by_headway(self, values: Floats, of: Callable[[Floats], Floats | float]) -> MeasureTable:
        """A number for each line and stop from a value of each of its headways."""
        return _table(values, self.line_stop[self.headways.row], self.line_stops, of, 1)


def line_stops(city: City) -> tuple[Ints, int]:
    """The number of each place's line and stop, and how many there are."""
    number: dict[tuple[str, int], int] = {}
    table = [
        number.setdefault((line_of(service), stop), len(number))
        for service in city.services
        for stop in service.stops
    ]
    return np.array(table, np.int32), len(number)


def seen(city: City, driven: Driven) -> MeasuredDay:
    """One day to measure."""
    table, count = line_stops(city)
    place = service_stop_offsets(city)[driven.service] + driven.position
    return MeasuredDay(city, driven, table[place], count)


def simulated(city: City, visits: list[Visit], stamp: str) -> Driven:
    """The visits of a simulated day as records of it would have them."""
    rows = np.array(visits, float).reshape(-1, len(Visit._fields))
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    at = {name: rows[:, i] for i, name in enumerate(Visit._fields)}
    trip = at["trip"].astype(np.int32)
    service = np.array([t.service for t in city.trips], np.int32)[trip]
    none = np.full(len(rows), np.nan)
    return Driven(
        np.zeros(len(rows), np.int32),
        trip,
        service,
        at["position"].astype(np.int32),
        at["departure_s"] if stamp == "departure" else at["arrival_s"],
        none if stamp == "departure" else at["departure_s"],
        none,
        at["boarded"],
        at["alighted"],
        at["load"] - at["alighted"] + at["boarded"],
    )


# -- measures -------------------------------------------------------------------------------------


def _table(
    values: Floats, group: Ints, count: int, of: Callable[[Floats], Floats | float], width: int
) -> MeasureTable:
    """A measure of the values of each group that has enough of them."""
    table, weight = np.full((count, width), np.nan), np.zeros(count)
    known = np.flatnonzero(np.isfinite(values))
    for rows in rows_of_groups(group[known]):
        if len(rows) >= _FEWEST:
            here = known[rows]
            table[group[here[0]]], weight[group[here[0]]] = of(values[here]), len(here)
    return MeasureTable(table, weight)


def _quantiles(values: Floats) -> Floats:
    return np.asarray(np.quantile(values, _QUANTILES))


def _distribution(values: Floats, group: Ints, count: int) -> MeasureTable:
    return _table(values, group, count, _quantiles, len(_QUANTILES))


def _trip_times(day: MeasuredDay) -> MeasureTable:
    d, city = day.driven, day.city
    last = np.array([len(s.stops) - 1 for s in city.services])
    left_s = np.full(int(d.trip.max(initial=0)) + 1, np.nan)
    left_s[d.trip[d.position == 0]] = _left(d)[d.position == 0]
    ends = d.position == last[d.service]
    took_s = d.time_s[ends] - left_s[d.trip[ends]]
    return _distribution(took_s, d.service[ends], len(city.services))


def _left(d: Driven) -> Floats:
    """When a bus left, as far as it is recorded."""
    return np.where(np.isfinite(d.departure_s), d.departure_s, d.time_s)


def _segment_times(day: MeasuredDay) -> MeasureTable:
    d = day.driven
    row = np.flatnonzero((d.trip[1:] == d.trip[:-1]) & (np.diff(d.position) == 1))
    took = d.time_s[row + 1] - np.where(d.position[row] == 0, _left(d)[row], d.time_s[row])
    offsets = service_stop_offsets(day.city)
    return _distribution(took, offsets[d.service[row]] + d.position[row], int(offsets[-1]))


def _headways(day: MeasuredDay) -> MeasureTable:
    gap_s, group = day.headways.gap_s, day.line_stop[day.headways.row]
    return _distribution(gap_s, group, day.line_stops)


def _headway_cv(day: MeasuredDay) -> MeasureTable:
    return day.by_headway(day.headways.deviation, headway_cv)


def _bunched(day: MeasuredDay) -> MeasureTable:
    return day.by_headway(day.headways.ratio, bunched_share)


def _wait(day: MeasuredDay) -> MeasureTable:
    return day.by_headway(day.headways.gap_s, lambda gap_s: float(random_wait_s(gap_s)))


def _dwell(day: MeasuredDay) -> MeasureTable:
    d = day.driven
    offsets = service_stop_offsets(day.city)
    stood = np.where(d.position > 0, d.departure_s - d.time_s, np.nan)
    return _distribution(stood, offsets[d.service] + d.position, int(offsets[-1]))


def _load(day: MeasuredDay) -> MeasureTable:
    d = day.driven
    bands = -(-day.city.horizon_s // _BAND_S)
    band = np.clip(d.time_s // _BAND_S, 0, bands - 1).astype(np.int32)
    group = day.line_stop * bands + band
    return _table(d.load, group, day.line_stops * bands, lambda load: float(load.mean()), 1)


def _load_spread(day: MeasuredDay) -> MeasureTable:
    return _distribution(day.driven.load, day.line_stop, day.line_stops)


def _boarded(day: MeasuredDay) -> MeasureTable:
    boarded = day.driven.boarded
    return _table(boarded, day.line_stop, day.line_stops, lambda values: float(values.mean()), 1)


MEASURES = (
    Measure("trip time", "s", _trip_times),
    Measure("segment time", "s", _segment_times),
    Measure("headway", "s", _headways),
    Measure("headway CV by stop", "", _headway_cv),
    Measure("share bunched", "", _bunched),
    Measure("wait that headways imply", "s", _wait),
    Measure("dwell", "s", _dwell),
    Measure("load by stop and time of day", "people", _load),
    Measure("load", "people", _load_spread),
    Measure("boardings by stop", "people a bus", _boarded),
)


def measured(city: City, driven: Driven) -> dict[str, MeasureTable]:
    """Every measure of a day."""
    day = seen(city, driven)
    return {measure.name: measure.of(day) for measure in MEASURES}


def gap(one: MeasureTable, other: MeasureTable) -> float:
    """How far two days are apart in a measure; NaN if no row has both."""
    weight = np.minimum(one.weight, other.weight)
    apart = np.abs(one.values - other.values).mean(axis=1)
    both = np.isfinite(apart) & (weight > 0)
    return float(np.average(apart[both], weights=weight[both])) if both.any() else float("nan")


def level(table: MeasureTable) -> float:
    """The mean of a measure over its rows, to read a gap against."""
    mean = table.values.mean(axis=1)
    known = np.isfinite(mean) & (table.weight > 0)
    return (
        float(np.average(mean[known], weights=table.weight[known])) if known.any() else float("nan")
    )
