"""The raw event: what is known when a bus reaches a non-terminal stop, in 16 named numbers.

`Headways` records the running order of each service and when every bus reached every stop, in flat
arrays that the compiled kernel can use directly. All worlds use it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City
from evenline.support.compiled import shared

RAW_FEATURES = (
    "service",
    "stop",
    "time_s",
    "headway_ahead_s",
    "headway_behind_s",
    "target_ahead_s",
    "target_behind_s",
    "waiting",
    "on_board",
    "arrival_rate_per_s",
    "base_dwell_s",
    "bus_ahead",
    "bus_behind",
    "capacity",
    "system_waiting",
    "system_on_board",
)
(
    SERVICE,
    STOP,
    TIME,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    TARGET_AHEAD,
    TARGET_BEHIND,
    WAITING,
    ON_BOARD,
    RATE,
    BASE_DWELL,
    BUS_AHEAD,
    BUS_BEHIND,
    CAPACITY,
    SYSTEM_WAITING,
    SYSTEM_ON_BOARD,
) = range(16)

Array = npt.NDArray[np.float64]


class Batch(NamedTuple):
    """Arrivals of one moment, ordered by service and trip; `raw` has one row per bus."""

    time_s: int
    trips: npt.NDArray[np.int32]
    raw: Array


def place(city: City, batch: Batch, i: int) -> tuple[str, str]:
    """The names of a bus of the batch and of its stop."""
    trip = city.trips[batch.trips[i]]
    stop = city.services[trip.service].stops[int(batch.raw[i, STOP])]
    return trip.id, city.stops[stop].id


class Headways(NamedTuple):
    """Positions and arrival times of the day so far; -1 means none."""

    service: npt.NDArray[np.int32]  # of each trip
    first_place: npt.NDArray[np.int32]  # offset of its service in the table of service-stops
    first_visit: npt.NDArray[np.int32]  # offset of a trip in the table of visits
    visited_s: npt.NDArray[np.int32]  # arrival of each visit
    last_s: npt.NDArray[np.int32]  # latest arrival of each service at each of its stops
    position: npt.NDArray[np.int32]  # latest stop of each trip
    reached_s: npt.NDArray[np.int32]  # arrival there
    ahead: npt.NDArray[np.int32]  # running order within a service, as a linked list
    behind: npt.NDArray[np.int32]
    tail: npt.NDArray[np.int32]  # last bus of each service


def new_headways(city: City) -> Headways:
    """The state before the first arrival."""
    trips, services = len(city.trips), len(city.services)
    service = np.array([trip.service for trip in city.trips], np.int32)
    stops = np.array([len(s.stops) for s in city.services], np.int32)
    visits = np.concatenate([[0], np.cumsum(stops[service])]).astype(np.int32)
    first_stop = service_stop_offsets(city)

    def none(size: int) -> npt.NDArray[np.int32]:
        return np.full(size, -1, np.int32)

    return Headways(
        service,
        first_stop[service],
        visits,
        none(int(visits[-1])),
        none(int(first_stop[-1])),
        none(trips),
        none(trips),
        none(trips),
        none(trips),
        none(services),
    )


@shared
def record_arrival(h: Headways, trip: int, stop: int, now: int) -> int:
    """Record an arrival and return the time since the service's previous arrival at the stop, or
    -1.

    A bus that reaches a stop before the one ahead of it has overtaken it.
    """
    service = h.service[trip]
    if stop == 0:
        h.ahead[trip] = h.tail[service]
        if h.tail[service] >= 0:
            h.behind[h.tail[service]] = trip
        h.tail[service] = trip
    h.position[trip], h.reached_s[trip] = stop, now
    h.visited_s[h.first_visit[trip] + stop] = now
    other = h.ahead[trip]
    while other >= 0 and h.position[other] < stop:
        _swap(h, service, other, trip)
        other = h.ahead[trip]
    place = h.first_place[trip] + stop
    before = h.last_s[place]
    h.last_s[place] = now
    return now - before if before >= 0 else -1


@shared
def _swap(h: Headways, service: int, front: int, rear: int) -> None:
    beyond, after = h.ahead[front], h.behind[rear]
    h.ahead[rear], h.behind[rear] = beyond, front
    h.ahead[front], h.behind[front] = rear, after
    if beyond >= 0:
        h.behind[beyond] = rear
    if after >= 0:
        h.ahead[after] = front
    else:
        h.tail[service] = front


@shared
def record_finish(h: Headways, trip: int) -> None:
    """Remove a bus that has reached its last stop from the running order."""
    front, rear = h.ahead[trip], h.behind[trip]
    if front >= 0:
        h.behind[front] = rear
    if rear >= 0:
        h.ahead[rear] = front
    else:
        h.tail[h.service[trip]] = front
    h.ahead[trip] = h.behind[trip] = -1


@shared
def headway_behind(h: Headways, trip: int, now: int) -> int:
    """The headway to the bus behind, as observed so far, or -1 if there is none.

    It is the longer of two: the headway at the last stop the follower reached, and the time since
    this bus was at the follower's next stop.
    """
    follower = h.behind[trip]
    if follower < 0:
        return -1
    mine, its = h.first_visit[trip], h.position[follower]
    gap = h.reached_s[follower] - h.visited_s[mine + its]
    if its < h.position[trip]:
        gap = max(gap, now - h.visited_s[mine + its + 1])
    return int(gap)
