"""Turn a city and its calibration into the flat arrays of the kernel."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, service_stop_offsets
from evenline.city.model import City, Service, doors_of, segments, service_positions
from evenline.city.operations import BREAKDOWN, CLOSED, SLOW
from evenline.control.event import RAW_FEATURES, Headways, new_headways
from evenline.control.operations import disruptions_of, limits_of
from evenline.control.state import contract_of
from evenline.support.errors import InputError
from evenline.worlds.calibration import HOUR_S, Calibration
from evenline.worlds.fast import layout
from evenline.worlds.fast.layout import F64, I16, I32, Day, Rows, Static


@dataclass(frozen=True, eq=False)
class _Queues:
    """Classes of waiting passengers: same stop, same set of services that can carry them."""

    leg_class: I32
    leg_goal: I32
    class_start: I32
    entry_leg: I32
    entry_person: I32
    place_class: I32
    carried: Rows
    goal: I16
    again: I32


def static_tables(city: City, calibration: Calibration, levels: tuple[float, ...]) -> Static:
    """Make the tables of a city that do not change during a day."""
    _check_fits(city)
    order, queues = new_headways(city), _queues(city)
    trip, ranked = _trips(city, order)
    return Static(
        horizon_s=city.horizon_s,
        service_end_s=city.service_end_s,
        follow_coins=round(calibration.follow * layout.COINS),
        trip=trip,
        ranked=ranked,
        before=_before(order, ranked),
        start_s=np.array(
            [trip.departure_s + calibration.start_delay_s for trip in city.trips], np.int32
        ),
        first_stop=service_stop_offsets(city),
        first_visit=order.first_visit,
        place=_places(queues, calibration),
        carried=queues.carried,
        class_start=queues.class_start,
        entry_leg=queues.entry_leg,
        entry_goal=queues.leg_goal[queues.entry_leg],
        entry_person=queues.entry_person,
        entry_s=city.journeys.departure_s[queues.entry_person],
        entry_demand=city.journeys.min_demand[queues.entry_person],
        leg=_rows(layout.LEG, goal=queues.leg_goal, queue=queues.leg_class),
        goal=queues.goal,
        times=_times(city, calibration, levels),
        scale=contract_of(city).scale,
        noise=calibration.noise_s.astype(np.float32),
        pace=calibration.pace.astype(np.float32),
        limits=limits_of(city),
        recovery_s=city.operations.recovery_s + calibration.start_delay_s,
        lateness=np.zeros((0, 2), np.float32)
        if calibration.lateness_s is None
        else calibration.lateness_s.astype(np.float32),
        late_coins=round(calibration.late_follow * layout.COINS),
        made_up=_made_up(city, calibration),
        close_s=float(calibration.close_s),
        close_within_s=float(calibration.close_within_s),
        jam_near=float(calibration.jam_near),
        jam_far=float(calibration.jam_far),
        segment=segments(city) if _reacts(calibration) else np.zeros(0, np.int32),
        doors=doors_of(city),
        again=queues.again,
    )


def _made_up(city: City, calibration: Calibration) -> F64:
    """What each run makes up of a second of a late start: its part of the time of the trip."""
    if not calibration.recover:
        return np.zeros(0)
    first, usual = service_stop_offsets(city), calibration.mean_s.mean(axis=1)
    usual[first[1:] - 1] = 0.0  # no run leaves a last stop
    whole = np.add.reduceat(usual, first[:-1])
    return np.asarray(calibration.recover * usual / np.repeat(whole, np.diff(first)))


def _check_fits(city: City) -> None:
    """Check that seconds, stops and loads fit the kernel's packed integers."""
    largest = max(vehicle.capacity for vehicle in city.vehicles)
    if largest > np.iinfo(np.int16).max:
        raise InputError(
            f"vehicle: capacity {largest} is too large for the fast world; the limit is 32767"
        )
    most = layout.SEVERAL  # stops
    if city.horizon_s >= layout.NEVER_S:
        raise InputError(
            f"horizon_s {city.horizon_s}: the limit of the fast world is {layout.NEVER_S - 1}"
        )
    for service in city.services:
        stops = len(service.stops)
        if stops > most:
            raise InputError(
                f"service {service.id} has {stops} stops; the limit of the fast world is {most}"
            )


def _rows(kind: np.dtype[np.void], **columns: npt.ArrayLike) -> Rows:
    """Make a table of rows of this kind from its columns."""
    rows = np.zeros(np.shape(next(iter(columns.values()))), kind).view(np.recarray)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _trips(city: City, order: Headways) -> tuple[Rows, I32]:
    """The initial row of each trip, and the trips ordered by service and trip."""
    ahead_s, behind_s = city.headway_targets()
    vehicle = [city.vehicle_of(trip) for trip in range(len(city.trips))]
    ranked = np.argsort(order.service, kind="stable").astype(np.int32)
    trip = _rows(
        layout.TRIP,
        position=order.position,
        reached_s=order.reached_s,
        ahead=order.ahead,
        behind=order.behind,
        last=np.array([len(s.stops) - 1 for s in city.services])[order.service],
        first_visit=order.first_visit[:-1],
        first_place=order.first_place,
        service=order.service,
        rank=np.argsort(ranked),
        target_ahead_s=ahead_s,
        target_behind_s=behind_s,
        capacity=[int(bus_type.capacity) for bus_type in vehicle],
        min_dwell_s=[bus_type.base_dwell_s(0) for bus_type in vehicle],
        exchange_ms=[bus_type.exchange_ms for bus_type in vehicle],
    )
    return trip, ranked


def _before(order: Headways, ranked: I32) -> I32:
    """The previous trip of the same service for each trip, or -1."""
    before = np.full(len(ranked), -1, np.int32)
    service = order.service[ranked]
    before[ranked[1:]] = np.where(service[1:] == service[:-1], ranked[:-1], -1)
    return before


def _places(queues: _Queues, calibration: Calibration) -> Rows:
    """The initial row of each place."""
    first, classes = queues.place_class[:-1], np.diff(queues.place_class)
    at_hand = np.full((len(first), 2), -1)
    for i in range(2):
        has = classes > i
        at_hand[has, i] = queues.carried.queue[first[has] + i]
    return _rows(
        layout.PLACE,
        last_s=np.full(len(first), -1),
        classes=classes,
        first_class=first,
        at_hand=at_hand,
        pace_s=calibration.pace_s,
        least_s=calibration.least_s,
        phase_s=calibration.phase_s,
    )


def _times(city: City, calibration: Calibration, levels: tuple[float, ...]) -> Rows:
    """Arrival rates and mean running times, with the places of a half hour next to each other."""
    rates = np.stack([arrival_rates(city, level) for level in levels])
    hour = np.arange(rates.shape[2]) * RATE_BIN_S // HOUR_S
    mean_s = calibration.mean_s[:, np.minimum(hour, calibration.mean_s.shape[1] - 1)]
    mean_s = np.broadcast_to(mean_s, rates.shape)
    return _rows(
        layout.TIMES, rate_per_s=rates.transpose(0, 2, 1), mean_s=mean_s.transpose(0, 2, 1)
    )


def _kinds(first: I32, second: I32) -> tuple[I32, I32]:
    """The distinct pairs of two columns, and the index of each row's pair."""
    pairs = np.stack([first, second], axis=1)
    if not len(pairs):
        return pairs, np.zeros(0, np.int32)
    kinds, number = np.unique(pairs, axis=0, return_inverse=True)
    return kinds, np.asarray(number).reshape(-1).astype(np.int32)


def _queues(city: City) -> _Queues:
    journeys, positions = city.journeys, service_positions(city.services)
    kinds, leg_class = _kinds(journeys.leg_board, journeys.leg_carriers)
    rides, leg_ride = _kinds(leg_class, journeys.leg_alight)
    first_ride = np.searchsorted(rides[:, 0], np.arange(len(kinds) + 1)).tolist()
    codes: list[int] = []  # where each kind of ride ends, in the kernel's form
    goal: list[int] = []
    by_place: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, (stop, carriers) in enumerate(kinds.tolist()):
        services = journeys.carriers[carriers]
        alights = rides[first_ride[number] : first_ride[number + 1], 1].tolist()
        if len(services) == 1:
            codes += [positions[services[0], alight] for alight in alights]
        else:
            codes += range(layout.SEVERAL, layout.SEVERAL + len(alights))
        for service in services:
            by_place.setdefault((service, stop), []).append((number, len(goal)))
            if len(services) > 1:
                goal += [positions[service, alight] for alight in alights]
    rows = [
        by_place.get((index, stop), [])
        for index, service in enumerate(city.services)
        for stop in service.stops
    ]
    count, again = len(kinds), np.zeros(0, np.int32)
    if city.operations.has(BREAKDOWN):  # a class for each place, after all others
        again = np.arange(count, count + len(rows), dtype=np.int32)
        rows = [[*row, (count + place, 0)] for place, row in enumerate(rows)]
        count += len(rows)
    leg_goal = np.array(codes, np.int32)[leg_ride] | layout.ONWARD
    leg_goal[journeys.leg_start[1:] - 1] &= ~layout.ONWARD
    first_legs = journeys.leg_start[:-1]
    classes = leg_class[first_legs]
    people = np.argsort(classes, kind="stable")  # journeys are already sorted by departure
    return _Queues(
        leg_class=leg_class,
        leg_goal=leg_goal,
        class_start=np.searchsorted(classes[people], np.arange(count + 1)).astype(np.int32),
        entry_leg=first_legs[people].astype(np.int32),
        entry_person=people.astype(np.int32),
        place_class=np.cumsum([0, *(len(row) for row in rows)]).astype(np.int32),
        carried=np.array([pair for row in rows for pair in row], layout.CARRIED).view(np.recarray),
        goal=np.array(goal, np.int16),
        again=again,
    )


def disrupted_rows(city: City, cell: Cell | None) -> Rows:
    """What goes wrong on the day of a cell; a row of another day has a time that never comes."""
    first, rows = service_stop_offsets(city), list[tuple[float, ...]]()
    today = disruptions_of(city, cell) if cell is not None else []
    for disruption in city.operations.disruptions:
        until_s = layout.NEVER_S if disruption.until_s is None else disruption.until_s
        window = (
            (disruption.from_s, until_s)
            if disruption in today
            else (layout.NEVER_S, layout.NEVER_S)
        )
        if disruption.kind == BREAKDOWN:
            stops = city.services[city.trips[disruption.trip].service].stops
            position = stops.index(disruption.stop) if disruption.stop >= 0 else 0
            rows.append((layout.BREAKS, disruption.trip, position, *window, 0.0))
        for index, service in enumerate(city.services):
            if disruption.kind == CLOSED and disruption.stop in service.stops[1:-1]:
                position = service.stops.index(disruption.stop)
                rows.append((layout.SHUT, first[index] + position, position, *window, 0.0))
            if disruption.kind == SLOW:
                for position, share in enumerate(_shares(city, service, disruption.road)):
                    extra = share * (disruption.factor - 1.0)
                    if extra > 0.0:
                        place = first[index] + position
                        rows.append((layout.SLOWED, place, position, *window, extra))
    return np.array(rows, layout.DISRUPTED).view(np.recarray)


def _shares(city: City, service: Service, road: str) -> list[float]:
    """Which part of the way from each stop to the next lies on a road."""
    length_m = {edge.id: edge.length_m for edge in city.roads}
    ends = np.cumsum([0.0, *(length_m[edge] for edge in service.roads)]).tolist()
    parts = [(ends[i], ends[i + 1]) for i, edge in enumerate(service.roads) if edge == road]
    return [
        sum(max(min(end, stop_m) - max(begin, start_m), 0.0) for begin, end in parts)
        / (stop_m - start_m)
        for start_m, stop_m in pairwise(service.distance_m)
    ]


def _reacts(calibration: Calibration) -> bool:
    """Whether a run depends on the bus ahead."""
    return bool(calibration.close_s or calibration.jam_near or calibration.jam_far)


def new_fleet(
    static: Static, worlds: int, keep_visits: bool, shared_vehicles: bool, disrupted: int
) -> Day:
    """The arrays of `worlds` worlds, before any day has started."""
    trips, services = len(static.trip), len(static.first_stop) - 1
    horizon_s, legs = static.horizon_s, len(static.leg)
    visits, places = int(static.first_visit[-1]), len(static.place)
    classes, entries = len(static.class_start) - 1, len(static.entry_leg)
    kept, ways = visits if keep_visits else 0, int(static.segment.max(initial=-1)) + 1
    shapes: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {
        "num": (layout.NUM, ()),
        "hold_s": (np.float64, (trips + 1,)),
        "second": (layout.SECOND, (horizon_s,)),
        "after": (np.int32, (trips,)),
        "trip": (layout.TRIP, (trips,)),
        "place": (layout.PLACE, (places,)),
        "visit": (layout.VISIT, (visits,)),
        "alighting": (np.int16, (visits,)),
        "rider": (layout.RIDER, (legs,)),
        "entry": (layout.ENTRY, (entries + classes,)),
        "queue": (layout.QUEUE, (classes,)),
        "ranks": (np.uint64, (-(-trips // 64),)),
        "words": (np.uint64, (-(-trips // 4096),)),
        "tail": (np.int32, (services,)),
        "batch": (np.int32, (trips,)),
        "raw": (np.float64, (trips, len(RAW_FEATURES))),
        "visits": (layout.KEPT, (kept,)),
        "visit_hold_s": (np.float64, (kept,)),
        "ride": (np.int32, (legs if keep_visits or len(static.again) else 0,)),
        "luck": (np.float64, (len(static.limits.cap_s),)),
        "onward": (np.int32, (trips if shared_vehicles else 0,)),
        "disrupted": (layout.DISRUPTED, (disrupted,)),
        "left_s": (np.int32, (trips,)),
        "delayed_s": (np.float32, (ways,)),
        "reached_s": (np.int32, (ways,)),
    }
    return Day(**_tables({name: (kind, (worlds, *row)) for name, (kind, row) in shapes.items()}))


def _tables(shapes: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]) -> dict[str, Any]:
    """Allocate zeros for many tables in one block of memory, so that even small tables use large
    pages.

    Each table starts at a cache line, so no row that fits in a line crosses two.
    """
    line = layout.LINE_BYTES
    sizes = [np.dtype(kind).itemsize * math.prod(shape) for kind, shape in shapes.values()]
    starts = np.cumsum([0, *(-(-size // line) * line for size in sizes)]).tolist()
    room = np.zeros(starts[-1] + line, np.uint8)
    room = room[-room.ctypes.data % line :]
    tables = {}
    for (name, (kind, shape)), start, size in zip(shapes.items(), starts, sizes, strict=False):
        table = room[start : start + size].view(kind).reshape(shape)
        tables[name] = table if table.dtype.names is None else table.view(np.recarray)
    return tables
