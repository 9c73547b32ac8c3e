"""How many people are on board and wait, from occupancy where a feed says it, else from rates.

The rates are those of the city's usual demand. A bus takes those who came since the one before it
left, as far as there is room; the usual shares alight.
"""

import numpy as np

from evenline.city.demand import RATE_BIN_S, Passengers, arrival_rates, service_stop_offsets
from evenline.city.model import City
from evenline.policies.lookahead import USUAL_DEMAND, rates_of


class People:
    """The people of the day so far, as expected."""

    def __init__(self, city: City) -> None:
        journeys = city.journeys
        usual = np.flatnonzero(journeys.min_demand <= USUAL_DEMAND).astype(np.int32)
        rate, alights = rates_of(city, Passengers(usual, journeys.departure_s[usual]))
        self.city = city
        self.first: list[int] = service_stop_offsets(city).tolist()
        self.rate = arrival_rates(city, USUAL_DEMAND)  # of everybody who may board, as worlds say
        self._own = rate  # divided among the services that one may take
        self._come = np.hstack([np.zeros((len(rate), 1)), np.cumsum(rate * RATE_BIN_S, axis=1)])
        self._alights: list[float] = alights.tolist()
        self._since_s = np.full(len(rate), -1.0)  # when the last bus of the service left
        self._left = np.zeros(len(rate))
        self._load = [0.0] * len(city.trips)

    def half_hour(self, second: float) -> int:
        return min(max(int(second) // RATE_BIN_S, 0), int(self._own.shape[1]) - 1)

    def _until(self, place: int, second: float) -> float:
        half = self.half_hour(second)
        return float(
            self._come[place, half] + self._own[place, half] * (second - half * RATE_BIN_S)
        )

    def waiting(self, place: int, second: float, headway_s: float) -> float:
        """Who waits for a service at a place; before its first bus, those of one headway."""
        since_s = self._since_s[place]
        if since_s < 0:  # the first trip of the day takes all who have come
            since_s = max(second - headway_s, 0.0) if headway_s > 0 else 0.0
        came = self._until(place, second) - self._until(place, since_s) if second > since_s else 0.0
        return float(self._left[place] + max(came, 0.0))

    def on_board(self, trip: int, occupied: float) -> float:
        """Who is on board a bus, as its feed says or as we expect."""
        capacity = self.city.vehicle_of(trip).capacity
        return min(occupied, 1.0) * capacity if occupied >= 0 else self._load[trip]

    def exchange(self, trip: int, place: int, waiting: float, load: float) -> tuple[float, float]:
        """Who alights and who boards at a place."""
        off = self._alights[place] * load
        return off, min(waiting, max(self.city.vehicle_of(trip).capacity - load + off, 0.0))

    def arrives(
        self, trip: int, place: int, second: float, headway_s: float, load: float
    ) -> tuple[float, float]:
        """Let a bus take the people of a stop; returns how many alight and board."""
        waiting = self.waiting(place, second, headway_s)
        off, on = self.exchange(trip, place, waiting, load)
        self._load[trip], self._left[place] = load - off + on, waiting - on
        self._since_s[place] = max(second, self._since_s[place])
        return off, on

    def leaves(self, place: int, second: float) -> None:
        """Those who come from now on wait for the next bus."""
        self._since_s[place] = max(second, self._since_s[place])

    def caught(self, service: int, stop: int, second: float, hold_s: float) -> float:
        """How many people at later stops catch a bus because it comes later."""
        begin, end = self.first[service] + stop + 1, self.first[service + 1] - 1
        return float(self._own[begin:end, self.half_hour(second)].sum() * hold_s)
