"""The regime of one day, computed from its stop visits: the values that the regime tables show."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenline.city.demand import Cell, realise
from evenline.city.model import City, Floats
from evenline.control.outcome import Outcome
from evenline.control.regularity import bunched_share, headway_cv
from evenline.figures.measure import HOUR_S, column, headway_deviations, headway_ratios


@dataclass(frozen=True)
class Day:
    """The regime of one day. Passenger times are seconds per departed passenger."""

    generalized_s: float
    waiting_s: float
    riding_s: float
    completion: float
    unfinished: int
    after_last_bus: int
    denied_boardings: int
    denied_by_hour: tuple[int, ...]
    headway_cv: float
    bunched_share: float
    mean_load: float
    full_share: float
    trip_duration_s: float
    zero_token_share: float

    @property
    def left_waiting(self) -> int:
        """Unfinished although a bus still came: left behind by full buses, or missed a change."""
        return self.unfinished - self.after_last_bus


def measure_day(city: City, cell: Cell, outcome: Outcome, visits: pa.Table) -> Day:
    """All values of a day that the regime tables show."""
    ratios = headway_ratios(visits)
    leaving = column(visits, "load") - column(visits, "alighted") + column(visits, "boarded")
    denied = denied_by_hour(visits, city.horizon_s)
    return Day(
        generalized_s=outcome.generalized_s,
        waiting_s=outcome.waiting_each_s,
        riding_s=outcome.riding_each_s,
        completion=outcome.completion,
        unfinished=outcome.unfinished,
        after_last_bus=after_last_bus(city, cell, visits),
        denied_boardings=sum(denied),
        denied_by_hour=denied,
        headway_cv=headway_cv(headway_deviations(visits)),
        bunched_share=bunched_share(ratios),
        mean_load=float(leaving.mean()),
        full_share=float(np.mean(leaving >= _room(city, visits))),
        trip_duration_s=outcome.trip_duration_s,
        zero_token_share=outcome.zero_duration_share,
    )


def _room(city: City, visits: pa.Table) -> Floats:
    """How many people the bus of each visit can carry."""
    room = dict(zip((trip.id for trip in city.trips), city.capacities.tolist(), strict=True))
    return np.array([room[trip] for trip in column(visits, "trip").tolist()])


def denied_by_hour(visits: pa.Table, horizon_s: int) -> tuple[int, ...]:
    """How often a waiting passenger was left behind by a full bus, by the hour it left."""
    hours = -(-horizon_s // HOUR_S)
    when = column(visits, "departure_s") // HOUR_S
    count = np.bincount(when, column(visits, "left_behind"), minlength=hours)
    return tuple(int(denied) for denied in count)


def after_last_bus(city: City, cell: Cell, visits: pa.Table) -> int:
    """Passengers who set out after the last bus for their first leg had left."""
    last: dict[tuple[str, str], int] = {}
    rows = zip(*(column(visits, n) for n in ("service", "stop", "departure_s")), strict=True)
    for service, stop, departure_s in rows:
        last[service, stop] = max(last.get((service, stop), -1), departure_s)
    people, journeys = realise(city, cell), city.journeys
    late = 0
    for leg, departure_s in zip(
        journeys.leg_start[people.journey], people.departure_s, strict=True
    ):
        stop = city.stops[journeys.leg_board[leg]].id
        carriers = journeys.carriers[journeys.leg_carriers[leg]]
        late += departure_s > max(last.get((city.services[s].id, stop), -1) for s in carriers)
    return int(late)
