"""The look-ahead: for each bus, the hold that costs the passengers of its service least.

It follows the day through the events that every policy sees, and computes what each hold would do
to the rest of the service's day (`fluid`). It needs half-hour rates of people and mean running
times, and no journey, random number or demand level of the day: how many people come today is
estimated from those whom the buses met.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from evenline.city.demand import RATE_BIN_S, service_stop_offsets
from evenline.city.model import City, service_positions
from evenline.control.event import STOP, Array, Batch
from evenline.policies.fluid import Forecast, Room, Seen, decide
from evenline.rules.policy import Decision
from evenline.worlds.calibration import HOUR_S, Calibration

USUAL_DEMAND = 1.0


@lru_cache(maxsize=4)
def forecast_of(city: City, calibration: Calibration) -> Forecast:
    """What is known about a city before the day."""
    rate, alights = _rates(city)
    start = RATE_BIN_S * np.arange(rate.shape[1] + 1, dtype=np.float64)
    zeros = np.zeros((len(rate), 1))
    half_hours = np.arange(rate.shape[1]) * RATE_BIN_S // HOUR_S
    vehicle = city.vehicle
    return Forecast(
        horizon_s=float(city.horizon_s),
        capacity=float(vehicle.capacity),
        min_dwell_s=float(vehicle.base_dwell_s(0)),
        exchange_s=vehicle.exchange_ms / 1000,
        first_place=service_stop_offsets(city),
        first_trip=np.cumsum([0, *map(len, city.trips_of)]).astype(np.int32),
        trips=np.array([trip for trips in city.trips_of for trip in trips], np.int32),
        start_s=np.array([t.departure_s + calibration.start_delay_s for t in city.trips], float),
        rate=rate,
        people=np.hstack([zeros, np.cumsum(rate * RATE_BIN_S, axis=1)]),
        moment=np.hstack([zeros, np.cumsum(rate * np.diff(start**2) / 2, axis=1)]),
        alights=alights,
        run_s=np.ascontiguousarray(
            calibration.mean_s[:, np.minimum(half_hours, calibration.mean_s.shape[1] - 1)], float
        ),
    )


def _rates(city: City) -> tuple[Array, Array]:
    """People per second by place and half hour, and the share on board who alight at a place.

    A leg that several services can carry is divided among them. A second leg is counted where it
    begins, with its share of those on board, but nobody knows when.
    """
    journeys, positions = city.journeys, service_positions(city.services)
    first = service_stop_offsets(city)
    bins = -(-city.horizon_s // RATE_BIN_S)
    rate, off, aboard = np.zeros((int(first[-1]), bins)), np.zeros(first[-1]), np.zeros(first[-1])
    for p in np.flatnonzero(journeys.min_demand <= USUAL_DEMAND).tolist():
        half_hour = min(int(journeys.departure_s[p]) // RATE_BIN_S, bins - 1)
        for leg in range(journeys.leg_start[p], journeys.leg_start[p + 1]):
            carriers = journeys.carriers[journeys.leg_carriers[leg]]
            for service in carriers:
                board = first[service] + positions[service, int(journeys.leg_board[leg])]
                alight = first[service] + positions[service, int(journeys.leg_alight[leg])]
                if leg == journeys.leg_start[p]:
                    rate[board, half_hour] += 1 / len(carriers) / RATE_BIN_S
                off[alight] += 1 / len(carriers)
                aboard[board + 1 : alight + 1] += 1 / len(carriers)
    return rate, off / np.maximum(aboard, 1e-9)


@dataclass(eq=False)
class Lookahead:
    """A policy that looks ahead. It follows one day at a time."""

    name: str
    city: City
    calibration: Calibration
    chain: int = 0
    step_s: float = 5.0
    behind: int = 6  # buses behind the held one that a hold may change
    price_s: float = 0.0  # of a passenger who is left at the end of the day
    prior: float = 200.0  # people: how firmly the usual demand is believed
    _forecast: Forecast = field(init=False)
    _seen: Seen = field(init=False)
    _room: Room = field(init=False)
    _now_s: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self._forecast = forecast_of(self.city, self.calibration)
        self._holds = np.arange(0.0, 60.0 + 1e-9, self.step_s)
        self._tried = np.empty(len(self._holds))
        stops = max(len(service.stops) for service in self.city.services) + 1
        most = max(map(len, self.city.trips_of)) + 1
        empty = [np.zeros(stops) for _ in range(5)]
        self._room = Room(
            *empty, np.zeros(most), np.zeros(most), np.zeros(most, np.int32), np.zeros(2)
        )
        self._begin()

    @property
    def horizon_s(self) -> float:
        return float(self.city.horizon_s)

    def decide(self, batch: Batch) -> Decision:
        """The holds of a moment."""
        passed = self._seen.position[batch.trips] >= batch.raw[:, STOP]
        if batch.time_s < self._now_s or passed.any():
            self._begin()
        self._now_s = batch.time_s
        proposals, holds = np.empty(len(batch.trips)), np.empty(len(batch.trips))
        decide(
            self._forecast, self._seen, self._room, batch.trips, batch.raw, self.prior,
            self.price_s, self.behind, self.chain, self._holds, self._tried, proposals, holds,
        )  # fmt: skip
        return Decision(proposals, holds)

    def __call__(self, batch: Batch) -> list[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]

    def _begin(self) -> None:
        """Forget the day before."""
        trips, places = len(self.city.trips), int(self._forecast.first_place[-1])
        self._seen = Seen(
            np.full(trips, -1, np.int32), self._forecast.start_s.copy(), np.zeros(trips),
            np.zeros(places), np.zeros(places), np.zeros(2),
        )  # fmt: skip
        self._now_s = -1
