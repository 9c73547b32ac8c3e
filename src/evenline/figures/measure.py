"""What a day looked like, measured from its stop visits.

Everything here is a pure function of the stop-visit table (`evenline.control.visits`) and, where
passengers are asked about, of the city and the cell: it serves any world and recorded days alike.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenline.city.demand import Cell, realise
from evenline.city.model import City, Floats
from evenline.control.outcome import Outcome
from evenline.replay.episode import Tokens

BUNCHED = 0.25  # a bus is bunched when its headway is below this share of the timetable's
HOUR_S = 3600


@dataclass(frozen=True)
class Day:
    """The regime of one episode. Passenger times are seconds per departed passenger."""

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
        """Unfinished although a bus still came: queues that full buses left, missed changes."""
        return self.unfinished - self.after_last_bus


def measure_day(city: City, cell: Cell, outcome: Outcome, visits: pa.Table) -> Day:
    """Everything the regime tables show of an episode."""
    ratios = headway_ratios(visits)
    ratios = ratios[np.isfinite(ratios)]
    leaving = column(visits, "load") - column(visits, "alighted") + column(visits, "boarded")
    denied = denied_by_hour(visits, city.horizon_s)
    return Day(
        generalized_s=outcome.generalized_s,
        waiting_s=outcome.waiting_s / max(1, outcome.departed),
        riding_s=outcome.riding_s / max(1, outcome.departed),
        completion=outcome.completion,
        unfinished=outcome.unfinished,
        after_last_bus=after_last_bus(city, cell, visits),
        denied_boardings=sum(denied),
        denied_by_hour=denied,
        headway_cv=float(ratios.std() / ratios.mean()) if len(ratios) else 0.0,
        bunched_share=float(np.mean(ratios < BUNCHED)) if len(ratios) else 0.0,
        mean_load=float(leaving.mean()),
        full_share=float(np.mean(leaving >= city.vehicle.capacity)),
        trip_duration_s=outcome.trip_duration_s,
        zero_token_share=outcome.zero_duration_tokens / max(1, outcome.decisions),
    )


def column(visits: pa.Table, name: str) -> npt.NDArray[Any]:
    """One column as an array; names come as an array of strings."""
    found: npt.NDArray[Any] = visits.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return found


def headway_ratios(visits: pa.Table) -> Floats:
    """For each visit, the time since the service's last arrival over the timetable's headway.

    NaN at first stops, where the timetable rules, and where no bus or no trip came before.
    """
    _, service = np.unique(column(visits, "service").astype(str), return_inverse=True)
    start_s, arrival_s = column(visits, "scheduled_start_s"), column(visits, "arrival_s")
    place = column(visits, "stop_sequence")
    order = np.lexsort((start_s, arrival_s, place, service))
    gap = _steps(arrival_s[order], service[order] * (place.max() + 1) + place[order])
    ratio = np.full(len(order), np.nan)
    ratio[order] = gap
    trips, trip = np.unique(np.stack([service, start_s]), axis=1, return_inverse=True)
    ratio /= _steps(trips[1], trips[0])[trip.ravel()]
    ratio[place == 0] = np.nan
    return ratio


def _steps(values: npt.NDArray[Any], group: npt.NDArray[Any]) -> Floats:
    """The step from the value before, NaN where another group begins."""
    steps = np.diff(values.astype(float), prepend=np.nan)
    steps[1:][np.diff(group) != 0] = np.nan
    return steps


def denied_by_hour(visits: pa.Table, horizon_s: int) -> tuple[int, ...]:
    """How often a waiting passenger was left behind by a full bus, by the hour it left."""
    hours = -(-horizon_s // HOUR_S)
    when = column(visits, "departure_s") // HOUR_S
    count = np.bincount(when, column(visits, "left_behind"), minlength=hours)
    return tuple(int(denied) for denied in count)


def after_last_bus(city: City, cell: Cell, visits: pa.Table) -> int:
    """Passengers who set out when the last bus that could take their first leg had left."""
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


def most_bunched_service(visits: pa.Table) -> str:
    """The service with the largest share of bunched arrivals: the one worth looking at."""
    services, ratios = column(visits, "service").astype(str), headway_ratios(visits)

    def share(name: str) -> float:
        here = ratios[(services == name) & np.isfinite(ratios)]
        return float(np.mean(here < BUNCHED)) if len(here) else 0.0

    return max(map(str, np.unique(services)), key=lambda name: (share(name), name))


def people_waiting(tokens: Tokens, horizon_s: int, bin_s: int) -> Floats:
    """Mean number of people waiting at stops in each bin of the day.

    The count is known at every decision and taken as constant until the next one.
    """
    edges = np.arange(0, horizon_s + bin_s, bin_s).clip(max=horizon_s)
    times = np.append(tokens.time_s, horizon_s).astype(float)
    area = np.concatenate([[0.0], np.cumsum(np.diff(times) * tokens.system_waiting)])
    return np.asarray(np.diff(np.interp(edges, times, area)) / np.diff(edges))
