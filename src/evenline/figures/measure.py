"""Measures of a day, computed from its stop visits.

Each measure is a pure function of the stop-visit table (`evenline.control.visits`) or of the
arrivals of all visits and, if it concerns passengers, of the city and the cell. It works for any
world and for recorded days.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenline.city.demand import Cell
from evenline.city.model import City, Floats, Ints
from evenline.city.operations import BREAKDOWN
from evenline.control.event import new_headways
from evenline.control.operations import cancelled_trips, disruptions_of
from evenline.control.outcome import Outcome
from evenline.control.regularity import (
    bunched_share,
    expected_by_timetable_s,
    expected_s,
    headway_cv,
    random_wait_s,
    services_by_line,
)

HOUR_S = 3600


def column(visits: pa.Table, name: str) -> npt.NDArray[Any]:
    """One column as an array; names become an array of strings."""
    values: npt.NDArray[Any] = visits.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return values


def headway_ratios(visits: pa.Table) -> Floats:
    """The headway of each visit divided by the one that the timetable makes expect.

    NaN at first stops, where the timetable decides, and if no bus or no trip came before.
    """
    gap, _, expected = _headways(visits)
    return gap / expected


def headway_deviations(visits: pa.Table) -> Floats:
    """How far the headway of each visit is from the planned one, as a share of the expected one."""
    gap, planned, expected = _headways(visits)
    return (gap - planned) / expected


def _headways(visits: pa.Table) -> tuple[Floats, Floats, Floats]:
    """The headway of each visit, and what the timetable plans and makes expect of it."""
    _, service = np.unique(column(visits, "service").astype(str), return_inverse=True)
    start_s, arrival_s = column(visits, "scheduled_start_s"), column(visits, "arrival_s")
    place = column(visits, "stop_sequence")
    order = np.lexsort((start_s, arrival_s, place, service))
    gap = np.full(len(order), np.nan)
    gap[order] = _steps(arrival_s[order], service[order] * (place.max() + 1) + place[order])
    gap[place == 0] = np.nan
    trips, trip = np.unique(np.stack([service, start_s]), axis=1, return_inverse=True)
    expected = np.full(trips.shape[1], np.nan)
    for index in np.unique(trips[0]):
        of_service = np.flatnonzero(trips[0] == index)
        expected[of_service[1:]] = expected_s(trips[1, of_service].astype(float))
    return gap, _steps(trips[1], trips[0])[trip.ravel()], expected[trip.ravel()]


def _steps(values: npt.NDArray[Any], group: npt.NDArray[Any]) -> Floats:
    """Difference to the previous value; NaN at the start of a group."""
    steps = np.diff(values.astype(float), prepend=np.nan)
    steps[1:][np.diff(group) != 0] = np.nan
    return steps


@dataclass(frozen=True)
class Regularity:
    """How regularly the buses of a day came."""

    headway_cv: float
    bunched_share: float
    excess_wait_s: float


def regularity(city: City, arrivals_s: Ints) -> Regularity:
    """Measure regularity and excess wait from the arrivals of all visits.

    Excess wait is the mean wait of people who come at random times minus the wait that the
    timetable implies, averaged over the stops of lines (except the first of a service, where the
    timetable decides).
    """
    ratios, deviations, excess = list[Floats](), list[Floats](), list[Floats]()
    for gap, plan, expected in _by_line(city, arrivals_s):
        known = np.isfinite(gap) & (expected > 0)
        ratios.append(gap[known] / expected[known])
        deviations.append((gap[known] - plan[known]) / expected[known])
        gap, plan = np.where(known, gap, 0.0), np.where(known, plan, 0.0)
        served = (gap.sum(axis=0) > 0) & (plan.sum(axis=0) > 0)
        excess.append(random_wait_s(gap[:, served]) - random_wait_s(plan[:, served]))
    ratio, deviation, wait = (
        np.concatenate([[], *parts]) for parts in (ratios, deviations, excess)
    )
    excess_wait_s = float(wait.mean()) if len(wait) else 0.0
    return Regularity(headway_cv(deviation), bunched_share(ratio), excess_wait_s)


def _by_line(city: City, arrivals_s: Ints) -> Iterator[tuple[Floats, Floats, Floats]]:
    """The headways of a line, and those planned and expected: one column for each of its stops."""
    first, (plan_s, _) = new_headways(city).first_visit, city.headway_targets()
    expected_of = expected_by_timetable_s(city)
    for services in services_by_line(city).values():
        if len(services) > 1:
            yield from _of_variants(city, services, arrivals_s, first)
            continue
        trips = list(city.trips_of[services[0]])
        if len(trips) > 1:
            rows = np.array([arrivals_s[first[trip] : first[trip + 1]] for trip in trips])
            arrived = np.where(rows >= 0, rows, np.nan)[:, 1:]
            order = np.argsort(arrived, axis=0, kind="stable")
            gap = np.diff(np.take_along_axis(arrived, order, axis=0), axis=0)
            yield gap, plan_s[trips][order][1:], expected_of[trips][order][1:]


def _of_variants(
    city: City, services: Sequence[int], arrivals_s: Ints, first: Ints
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """The same of a line whose services do not all go the same way, stop by stop.

    Without a timetable by stop, planned is what is expected from the headways themselves.
    """
    visits: dict[int, list[int]] = {}
    for service in services:
        for position, stop in list(enumerate(city.services[service].stops))[1:]:
            visits.setdefault(stop, []).extend(
                int(first[trip]) + position for trip in city.trips_of[service]
            )
    for here in map(np.array, visits.values()):
        if city.due_s is not None:
            here = here[np.argsort(city.due_s[here], kind="stable")]
            due_s = city.due_s[here].astype(float)
            plan = np.append(np.nan, np.diff(due_s))
            expected = np.append(np.nan, expected_s(due_s))
        arrived = np.where(arrivals_s[here] >= 0, arrivals_s[here], np.nan)
        order = np.argsort(arrived, kind="stable")
        gap = np.diff(arrived[order])
        if city.due_s is None:
            expected = plan = np.full(len(here), np.nan)
            came = order[np.isfinite(arrived[order])]
            expected[came[1:]] = expected_s(arrived[came])
        yield gap[:, None], plan[order][1:, None], expected[order][1:, None]


def unended_trips(city: City, cell: Cell, outcome: Outcome) -> int:
    """How many trips should have reached their last stop and did not, as happens in SUMO.

    Trips that were cancelled or broke down, or whose vehicle was lost before, are not counted.
    """
    gone = max(int(cancelled_trips(city, cell).sum()), outcome.lost_trips or 0)
    gone += sum(event.kind == BREAKDOWN for event in disruptions_of(city, cell))
    return max(len(city.trips) - gone - outcome.trips_completed, 0)


def unended_said(trips: int, unended: Sequence[int]) -> tuple[str, ...]:
    """What a result must say of trips that did not reach their last stop, given their number on
    each of its days.
    """
    days = sum(count > 0 for count in unended)
    if not days:
        return ()
    many = f"{max(unended)} of {trips:,} trips did not reach the last stop before the day ended"
    when = "" if len(unended) == 1 else f"on {days:,} of {len(unended):,} days up to "
    return (f"{when}{many}; whoever was on board counts as not arrived",)


def most_bunched_service(visits: pa.Table) -> str:
    """The service with the largest share of bunched arrivals."""
    services, ratios = column(visits, "service").astype(str), headway_ratios(visits)

    def share(name: str) -> float:
        return bunched_share(ratios[services == name])

    return max(map(str, np.unique(services)), key=lambda name: (share(name), name))


def people_setting_out(city: City, bin_s: int = HOUR_S) -> Ints:
    """How many people set out in each bin of the day at demand 1.00, before the day's shifts."""
    departure_s = city.journeys.departure_s[city.journeys.min_demand <= 1.0]
    counts = np.bincount(departure_s // bin_s, minlength=-(-city.horizon_s // bin_s))
    return counts.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Rides:
    """The rides at demand 1.00: where they begin and end, from 0 at a first stop to 1 at a last.

    A ride that several services can carry is listed for each of them with an equal weight.
    """

    begin: Floats
    end: Floats
    weight: Floats

    @property
    def mean_share(self) -> float:
        """The share of a line that a ride takes, on average, counted in stops."""
        return float(np.average(self.end - self.begin, weights=self.weight))


def rides_of(city: City) -> Rides:
    """All rides of the people who travel at demand 1.00; equal rides are added up."""
    journeys = city.journeys
    present = np.repeat(journeys.min_demand <= 1.0, np.diff(journeys.leg_start))
    legs = np.stack([journeys.leg_board, journeys.leg_alight, journeys.leg_carriers])[:, present]
    kinds, counts = np.unique(legs, axis=1, return_counts=True)
    rows = []
    for (board, alight, carriers), count in zip(kinds.T.tolist(), counts.tolist(), strict=True):
        services = [city.services[index].stops for index in journeys.carriers[carriers]]
        for stops in services:
            begin, end = (stops.index(stop) / (len(stops) - 1) for stop in (board, alight))
            rows.append((begin, end, count / len(services)))
    return Rides(*np.array(rows).reshape(-1, 3).T)
