"""Turns a city and its calibration into the flat arrays of the kernel."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from evenline.city.demand import arrival_rates
from evenline.city.model import City, service_positions
from evenline.control.event import new_headways
from evenline.control.state import contract_of
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.kernel import COINS, SCALARS, Day, Static

I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class _Queues:
    """Classes of waiting passengers: same stop, same set of services that can carry them."""

    leg_class: I32
    class_start: I32
    entry_leg: I32
    entry_person: I32
    place_class: I32
    carried: I32


def static_tables(city: City, calibration: Calibration, levels: tuple[float, ...]) -> Static:
    """Everything of a city that does not change during a day."""
    order = new_headways(city)
    ahead, behind = city.headway_targets()
    vehicle, journeys = city.vehicle, city.journeys
    queues = _queues(city)
    positions = service_positions(city.services)
    leg_pos = [
        [positions[service, int(alight)] for service in journeys.carriers[carriers]]
        for alight, carriers in zip(journeys.leg_alight, journeys.leg_carriers, strict=True)
    ]
    starts = np.cumsum([0, *(len(p) for p in leg_pos)])
    leg_next = np.arange(1, len(leg_pos) + 1, dtype=np.int32)
    leg_next[journeys.leg_start[1:] - 1] = -1
    keys = sorted(range(len(city.trips)), key=lambda t: (city.trips[t].service, t))
    rank = np.empty(len(keys), np.int32)
    rank[keys] = np.arange(len(keys))
    before = np.full(len(keys), -1, np.int32)
    for earlier, later in pairwise(keys):
        if city.trips[earlier].service == city.trips[later].service:
            before[later] = earlier
    start = [trip.departure_s + calibration.start_delay_s for trip in city.trips]
    return Static(
        number=np.array(
            [
                city.horizon_s,
                vehicle.capacity,
                vehicle.min_dwell_s,
                vehicle.exchange_s_per_passenger,
                round(calibration.follow * COINS),
            ],
            np.int64,
        ),
        rank=rank,
        before=before,
        start_s=np.array(start, np.int32),
        stops=np.array([len(s.stops) for s in city.services], np.int32),
        target=np.column_stack([ahead, behind]),
        service=order.service,
        first_stop=order.first_stop,
        first_visit=order.first_visit,
        place_class=queues.place_class,
        carried=queues.carried,
        class_start=queues.class_start,
        entry_leg=queues.entry_leg,
        entry_goal=np.array(
            [
                leg_pos[leg][0] if len(leg_pos[leg]) == 1 and leg_next[leg] < 0 else -1
                for leg in queues.entry_leg.tolist()
            ],
            np.int32,
        ),
        entry_person=queues.entry_person,
        leg=np.column_stack([starts[:-1], leg_next, queues.leg_class]).astype(np.int32),
        leg_pos=np.array([p for row in leg_pos for p in row], np.int32),
        rates=np.stack([arrival_rates(city, level) for level in levels]),
        scale=contract_of(city).scale,
        run=np.column_stack(
            [calibration.pace_s, calibration.least_s, calibration.phase_s, calibration.mean_s]
        ).astype(np.float32),
        run_noise=calibration.noise_s.astype(np.float32),
        pace=calibration.pace.astype(np.float32),
    )


def _queues(city: City) -> _Queues:
    journeys = city.journeys
    pairs = np.stack([journeys.leg_board, journeys.leg_carriers], axis=1)
    kinds, leg_class = (
        np.unique(pairs, axis=0, return_inverse=True)
        if len(pairs)
        else (np.zeros((0, 2), int), np.zeros(0, int))
    )
    first_legs = journeys.leg_start[:-1]
    leg_class = np.asarray(leg_class).reshape(-1)
    classes = leg_class[first_legs]
    people = np.argsort(classes, kind="stable")  # journeys are sorted by departure already
    class_start = np.searchsorted(classes[people], np.arange(len(kinds) + 1))
    by_place: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, (stop, carriers) in enumerate(kinds.tolist()):
        for k, service in enumerate(journeys.carriers[carriers]):
            by_place.setdefault((service, stop), []).append((number, k))
    rows = [
        by_place.get((index, stop), [])
        for index, service in enumerate(city.services)
        for stop in service.stops
    ]
    flat = [pair for row in rows for pair in row]
    return _Queues(
        leg_class=leg_class.astype(np.int32),
        class_start=class_start.astype(np.int32),
        entry_leg=first_legs[people].astype(np.int32),
        entry_person=people.astype(np.int32),
        place_class=np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32),
        carried=np.array(flat, np.int32).reshape(-1, 2),
    )


def new_fleet(static: Static, worlds: int, keep_visits: bool) -> Day:
    """The arrays of so many worlds, before any day has begun."""
    trips, services = len(static.rank), len(static.stops)
    horizon, legs = int(static.number[0]), len(static.leg)
    visits, places = int(static.first_visit[-1]), int(static.first_stop[-1])
    classes, entries = len(static.class_start) - 1, len(static.entry_leg)
    kept = visits if keep_visits else 0

    def whole(*shape: int) -> I32:
        return np.zeros((worlds, *shape), np.int32)

    return Day(
        num=np.zeros((worlds, SCALARS), np.int64),
        hold_s=np.zeros((worlds, trips + 1)),
        second=whole(horizon, 3),
        after=whole(trips),
        trip=whole(trips, 8),
        visit=whole(visits, 3),
        rider=whole(legs, 3),
        entry=whole(entries, 3),
        queue=whole(classes, 4),
        pace=np.zeros((worlds, trips), np.float32),
        last_s=whole(places),
        tail=whole(services),
        batch=whole(trips),
        raw=np.zeros((worlds, trips, 16)),
        visits=whole(kept, 6),
        visit_hold_s=np.zeros((worlds, kept)),
        ride=whole(legs if keep_visits else 0),
    )
