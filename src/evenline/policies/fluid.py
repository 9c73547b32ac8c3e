"""A service's day in expectation: what its passengers will pay if a bus is held some seconds.

People come at the rates of the half hour, and alight in the usual shares. Buses need the mean
running times and stand as long as their passengers need; a full bus leaves people for the next. The
model has no random numbers, so two holds differ only in their effects. It knows what an operator
knows: rates, mean running times, the timetable, and the reports of the day's buses. A hold does not
affect the buses ahead and hardly those far behind, so only a few buses are computed. After the hold
that is tried, every bus follows a base rule, because buses are held later too.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.control import event
from evenline.control.event import Array
from evenline.control.ledger import cost_of
from evenline.control.operations import Bools, Limits, allowed_s
from evenline.rules.chain import chained
from evenline.rules.policy import controlled
from evenline.support.compiled import compiled, inlined

I32 = npt.NDArray[np.int32]
LOST_S = 1_200.0  # a bus that is so late at its next stop is no longer counted on


class Base(NamedTuple):
    """The formula that the buses of the forecast follow: a rule's or an actor's."""

    address: int
    constants: Array
    chain: int
    first_visit: I32
    due_s: Array  # of each visit; empty if the rule does not use the timetable


class Forecast(NamedTuple):
    """What is known before the day: the timetable, rates of people, running times."""

    horizon_s: float
    capacity: Array  # of each trip's bus
    min_dwell_s: Array
    exchange_s: Array  # for one person
    bin_s: float  # length of the half hours; a reference may know finer ones
    first_place: I32  # offset of each service in the table of service-stops
    first_trip: I32  # offset of each service in `trips`
    trips: I32  # by service, in the order of the timetable
    start_s: Array  # when each trip reaches its first stop
    next_s: Array  # when the trip behind it does
    target_ahead_s: Array  # by trip: headways of the timetable
    target_behind_s: Array
    rate: Array  # place, half hour: people per second, divided among the services they may take
    people: Array  # how many have come before each half hour
    moment: Array  # the sum of their times
    alights: Array  # share of the people on board who alight at a place
    run_s: Array  # place, half hour: mean running time to the next stop
    trip_run_s: Array  # trip, stop: for a reference that knows them; otherwise empty
    base: Base
    first_visit: I32  # offset of each trip in the table of visits
    limits: Limits  # what the operations allow of a hold
    doors_s: Array  # trip: to open, of one who alights, of crowding; no rows if doors are plain


class Seen(NamedTuple):
    """What the buses of the day have reported."""

    position: I32  # last stop of each trip, -1 before the first
    due_s: Array  # when each trip is expected at its next stop
    load: Array  # people on the way to it
    since_s: Array  # when the last bus of the service left a place
    queue: Array  # whom it left behind
    reached_s: Array  # when it arrived there, -1 before the first
    met: Array  # people met at stops today, and people expected there under the usual demand
    unseen: I32  # stops that each trip has passed without a report


class Search(NamedTuple):
    """How a look-ahead chooses: its constants, its chain, and the holds that it tries."""

    prior: float
    price_s: float
    behind: int
    chain: int
    holds_s: Array


class Stops(NamedTuple):
    """The same at the stops of one service, as the forecast goes on."""

    since_s: Array
    queue: Array
    reached_s: Array


class Room(NamedTuple):
    """Work space: stops before and with a hold, the buses behind, an event for the base rule."""

    before: Stops
    tried: Stops
    fixed_s: Array
    behind_s: Array
    behind_load: Array
    behind_stop: I32
    behind_trip: I32
    cost: Array  # waiting and riding so far, and the calls at stops that were ever computed
    raw: Array
    kept_s: Array  # what the chain and the operations leave of each hold


def new_room(stops: int, buses: int, holds: int) -> Room:
    """Work space for services of at most so many stops and buses, and so many holds."""
    by_stop, by_bus = np.zeros((7, stops + 1)), np.zeros((2, buses))
    numbers = np.zeros((2, buses), np.int32)
    return Room(
        Stops(*by_stop[:3]),
        Stops(*by_stop[3:6]),
        by_stop[6],
        by_bus[0],
        by_bus[1],
        numbers[0],
        numbers[1],
        np.zeros(3),
        np.zeros(len(event.RAW_FEATURES)),
        np.zeros(holds),
    )


@inlined
def _half(f: Forecast, second: float) -> int:
    return int(min(second // f.bin_s, f.rate.shape[1] - 1))


@inlined
def _until(f: Forecast, place: int, second: float) -> tuple[float, float]:
    """The people who have come to a place up to a second, and the sum of their times."""
    half = _half(f, second)
    start, rate = half * f.bin_s, f.rate[place, half]
    return (
        f.people[place, half] + rate * (second - start),
        f.moment[place, half] + rate * (second * second - start * start) / 2,
    )


@inlined
def _come(f: Forecast, place: int, start_s: float, end_s: float) -> tuple[float, float]:
    """How many people come between two seconds, and how long they wait until the second."""
    if end_s <= start_s:
        return 0.0, 0.0
    before, early = _until(f, place, start_s)
    after, late = _until(f, place, end_s)
    return after - before, end_s * (after - before) - (late - early)


@inlined
def _run_s(f: Forecast, trip: int, first: int, stop: int, leaves: float) -> float:
    """The running time of a bus to its next stop."""
    if f.trip_run_s.shape[0]:
        return float(f.trip_run_s[trip, stop])
    return float(f.run_s[first + stop, _half(f, leaves)])


@inlined
def _base_s(
    f: Forecast, room: Room, trip: int, stop: int, at: float, dwell_s: float, reached_s: float
) -> float:
    """How long the base rule holds a bus; the bus behind counts as on time."""
    raw, base = room.raw, f.base
    raw[event.STOP], raw[event.TIME], raw[event.BASE_DWELL] = stop, at, dwell_s
    raw[event.BUS_AHEAD] = 1.0 if reached_s >= 0.0 else 0.0
    raw[event.HEADWAY_AHEAD] = raw[event.BUS_AHEAD] * max(at - reached_s, 0.0)
    raw[event.BUS_BEHIND] = 1.0 if at >= f.next_s[trip] else 0.0
    raw[event.HEADWAY_BEHIND] = raw[event.BUS_BEHIND] * f.target_behind_s[trip]
    raw[event.TARGET_AHEAD] = f.target_ahead_s[trip]
    raw[event.TARGET_BEHIND] = f.target_behind_s[trip]
    late_s = at - base.due_s[base.first_visit[trip] + stop] if base.due_s.shape[0] else 0.0
    hold_s = controlled(base.address, base.constants, base.chain, raw, late_s, f.horizon_s)
    return _allowed_s(f, trip, raw, hold_s)


@inlined
def _allowed_s(f: Forecast, trip: int, raw: Array, hold_s: float) -> float:
    """What the operations allow of a hold."""
    if f.limits.cap_s.shape[0]:
        return allowed_s(f.limits, f.first_visit[trip] + int(raw[event.STOP]), raw, hold_s)
    return hold_s


@inlined
def _doors_s(f: Forecast, trip: int, on: float, off: float, load: float) -> float:
    """How long people need at the doors, which open if anybody of so many on average comes."""
    if f.doors_s.shape[0] == 0:
        return float(f.exchange_s[trip] * (on + off))
    doors_s, people = f.doors_s[trip], on + off
    stands_s = f.exchange_s[trip] * on + doors_s[1] * off + doors_s[2] * load * people
    return float(stands_s - doors_s[0] * np.expm1(-people))


@inlined
def _call(
    f: Forecast,
    room: Room,
    stops: Stops,
    trip: int,
    first: int,
    stop: int,
    at: float,
    load: float,
    scale: float,
) -> tuple[float, float]:
    """Let a bus call at a stop; returns its load and the second when it leaves."""
    place, since_s = first + stop, stops.since_s[stop]
    off = f.alights[place] * load
    came, waited = _come(f, place, since_s, at)
    here = stops.queue[stop] + scale * came
    room.cost[0] += stops.queue[stop] * max(at - since_s, 0.0) + scale * waited
    free = max(f.capacity[trip] - load + off, 0.0)
    on, rate = min(here, free), scale * f.rate[place, _half(f, at)]
    dwell = max(f.min_dwell_s[trip], _doors_s(f, trip, on, off, load))
    room.raw[event.WAITING], room.raw[event.ON_BOARD], room.raw[event.RATE] = here, load, rate
    room.raw[event.CAPACITY] = f.capacity[trip]
    leaves = at + dwell + _base_s(f, room, trip, stop, at, dwell, stops.reached_s[stop])
    late = min(rate * (leaves - at), free - on)
    stops.queue[stop] = here - on
    stops.since_s[stop] = max(leaves, since_s)
    stops.reached_s[stop] = at
    room.cost[2] += 1.0
    return load - off + on + late, leaves


@inlined
def _drive(
    f: Forecast,
    room: Room,
    stops: Stops,
    trip: int,
    first: int,
    stop: int,
    end: int,
    at: float,
    load: float,
    scale: float,
) -> tuple[float, float]:
    """Let a bus go from its arrival at one stop to its arrival at another."""
    while stop < end and at < f.horizon_s:
        load, leaves = _call(f, room, stops, trip, first, stop, at, load, scale)
        arrives = leaves + _run_s(f, trip, first, stop, leaves)
        room.cost[1] += load * (min(arrives, f.horizon_s) - at)
        at = arrives
        stop += 1
    return at, load


@inlined
def _expected_s(f: Forecast, seen: Seen, trip: int, now: float) -> float:
    """When a bus will reach its next stop; negative if it is no longer counted on."""
    due = seen.due_s[trip]
    return max(due, now) if due >= now - LOST_S else -1.0


@inlined
def _before(
    f: Forecast,
    seen: Seen,
    room: Room,
    service: int,
    trip: int,
    stop: int,
    now: float,
    scale: float,
    behind: int,
) -> int:
    """Compute what no hold of this bus changes: the buses ahead, and those behind up to its stop.

    Returns how many buses are behind, at most `behind`.
    """
    first = f.first_place[service]
    last = f.first_place[service + 1] - first - 1
    for j in range(last):
        room.before.since_s[j] = seen.since_s[first + j]
        room.before.queue[j] = seen.queue[first + j]
        room.before.reached_s[j] = seen.reached_s[first + j]
    for r in range(f.first_trip[service], f.first_trip[service + 1]):
        other = f.trips[r]
        position = seen.position[other]
        at = _expected_s(f, seen, other, now)
        if other != trip and stop < position < last and at >= 0.0:
            _drive(
                f, room, room.before, other, first, position + 1, last, at, seen.load[other],
                scale,
            )  # fmt: skip
    count = 0
    for r in range(f.first_trip[service], f.first_trip[service + 1]):
        other = f.trips[r]
        position = seen.position[other]
        at = _expected_s(f, seen, other, now)
        if other == trip or position > stop or at < 0.0 or count == behind:
            continue
        begin = position + 1
        at, load = _drive(
            f, room, room.before, other, first, begin, stop, at, seen.load[other], scale
        )
        room.behind_s[count], room.behind_load[count] = at, load
        room.behind_stop[count], room.behind_trip[count] = max(begin, stop), other
        count += 1
    return count


@inlined
def _fixed(
    f: Forecast, room: Room, first: int, last: int, c: int, scale: float, learn: bool
) -> None:
    """Let the last bus behind call at the times that it has without a hold of this bus.

    Then people who are left to it wait for the same bus under every hold.
    """
    load, at = room.behind_load[c], room.behind_s[c]
    for stop in range(room.behind_stop[c], last):
        if learn:
            room.fixed_s[stop] = at
        at = room.fixed_s[stop]
        gap = max(at - room.tried.since_s[stop], 0.0)
        load, leaves = _call(f, room, room.tried, room.behind_trip[c], first, stop, at, load, scale)
        room.cost[0] += room.tried.queue[stop] * gap  # for the bus after it
        if learn:
            room.fixed_s[stop + 1] = leaves + _run_s(f, room.behind_trip[c], first, stop, leaves)
        room.cost[1] += load * (room.fixed_s[stop + 1] - at)
        at = room.fixed_s[stop + 1]


@inlined
def _left(f: Forecast, room: Room, first: int, stop: int, last: int, scale: float) -> float:
    """Let people wait to the end of the day at the stops from one on; returns how many."""
    total = 0.0
    for j in range(stop, last):
        came, waited = _come(f, first + j, room.tried.since_s[j], f.horizon_s)
        room.cost[0] += scale * waited
        room.cost[0] += room.tried.queue[j] * max(f.horizon_s - room.tried.since_s[j], 0.0)
        total += scale * came + room.tried.queue[j]
    return total


@inlined
def _exchanged(f: Forecast, trip: int, raw: Array, place: int) -> tuple[float, float, float]:
    """Who alights and who boards at the stop of an event, and the places free for boarding."""
    off = f.alights[place] * raw[event.ON_BOARD]
    free = max(f.capacity[trip] - raw[event.ON_BOARD] + off, 0.0)
    return off, min(raw[event.WAITING], free), free


@inlined
def _costs(
    f: Forecast,
    seen: Seen,
    room: Room,
    trip: int,
    raw: Array,
    scale: float,
    search: Search,
    costs: Array,
) -> None:
    """What the passengers of a service pay from now on, for each of the kept holds of one bus."""
    service, stop, now = int(raw[event.SERVICE]), int(raw[event.STOP]), raw[event.TIME]
    first = f.first_place[service]
    last, place = f.first_place[service + 1] - first - 1, first + stop
    room.raw[event.SERVICE] = service
    room.raw[event.SYSTEM_WAITING] = raw[event.SYSTEM_WAITING]
    room.raw[event.SYSTEM_ON_BOARD] = raw[event.SYSTEM_ON_BOARD]
    count = _before(f, seen, room, service, trip, stop, now, scale, search.behind + 1)
    off, on, free = _exchanged(f, trip, raw, place)
    for n in range(room.kept_s.shape[0]):
        room.cost[0] = room.cost[1] = 0.0
        for j in range(stop, last):
            room.tried.since_s[j] = room.before.since_s[j]
            room.tried.queue[j] = room.before.queue[j]
            room.tried.reached_s[j] = room.before.reached_s[j]
        leaves = now + raw[event.BASE_DWELL] + room.kept_s[n]
        late = min(scale * f.rate[place, _half(f, now)] * (leaves - now), free - on)
        load = raw[event.ON_BOARD] - off + on + late
        room.tried.since_s[stop], room.tried.reached_s[stop] = leaves, now
        room.tried.queue[stop] = raw[event.WAITING] - on
        room.cost[0] += room.tried.queue[stop] * (leaves - now)
        at = leaves + _run_s(f, trip, first, stop, leaves)
        room.cost[1] += load * (at - now)
        _drive(f, room, room.tried, trip, first, stop + 1, last, at, load, scale)
        for c in range(min(count, search.behind)):
            _drive(
                f, room, room.tried, room.behind_trip[c], first, room.behind_stop[c], last,
                room.behind_s[c], room.behind_load[c], scale,
            )  # fmt: skip
        left = 0.0
        if count > search.behind:
            _fixed(f, room, first, last, search.behind, scale, n == 0)
        else:
            left = _left(f, room, first, stop, last, scale)
        costs[n] = cost_of(room.cost[0], room.cost[1]) + search.price_s * left


@inlined
def _note(f: Forecast, seen: Seen, trip: int, raw: Array, hold_s: float, scale: float) -> None:
    """Keep what a bus has reported, and when it is expected at its next stop."""
    service, stop, now = int(raw[event.SERVICE]), int(raw[event.STOP]), raw[event.TIME]
    first = f.first_place[service]
    place = first + stop
    off, on, free = _exchanged(f, trip, raw, place)
    leaves = now + raw[event.BASE_DWELL] + hold_s
    late = min(scale * f.rate[place, _half(f, now)] * (leaves - now), free - on)
    seen.unseen[trip] += max(stop - seen.position[trip] - 1, 0)
    seen.position[trip] = stop
    seen.load[trip] = raw[event.ON_BOARD] - off + on + late
    seen.due_s[trip] = leaves + _run_s(f, trip, first, stop, leaves)
    seen.since_s[place], seen.reached_s[place] = leaves, now
    seen.queue[place] = raw[event.WAITING] - on


@inlined
def _scale(f: Forecast, seen: Seen, trip: int, raw: Array, prior: float) -> float:
    """How many people come today, as a multiple of the usual demand.

    Compares the people whom buses met with those who should have come since the bus before. The
    people of a stop that the bus has reported already are counted once.
    """
    stop = int(raw[event.STOP])
    if stop > seen.position[trip]:
        place = f.first_place[int(raw[event.SERVICE])] + stop
        came, _ = _come(f, place, seen.since_s[place], raw[event.TIME])
        seen.met[0] += max(raw[event.WAITING] - seen.queue[place], 0.0)
        seen.met[1] += came
    return float((prior + seen.met[0]) / max(prior + seen.met[1], 1e-9))


@compiled
def try_holds(
    f: Forecast, seen: Seen, room: Room, trip: int, raw: Array, search: Search, costs: Array
) -> float:
    """The cost of asking for each hold of one bus, into `costs`; returns today's multiple of the
    demand.

    `room.kept_s` has what the chain and the operations leave of each.
    """
    scale = _scale(f, seen, trip, raw, search.prior)
    for n in range(search.holds_s.shape[0]):
        kept_s = chained(search.chain, raw, search.holds_s[n], f.horizon_s)
        room.kept_s[n] = _allowed_s(f, trip, raw, kept_s)
    _costs(f, seen, room, trip, raw, scale, search, costs)
    return scale


@compiled
def note(f: Forecast, seen: Seen, trip: int, raw: Array, hold_s: float, scale: float) -> None:
    """Keep what a bus has reported, and its hold."""
    _note(f, seen, trip, raw, hold_s, scale)


@compiled
def decide(
    f: Forecast,
    seen: Seen,
    room: Room,
    trips: I32,
    raw: Array,
    may_hold: Bools,
    search: Search,
    costs: Array,
    proposals_s: Array,
    out_s: Array,
) -> None:
    """For every bus of a moment the proposal whose hold costs least, and that hold.

    The hold is what the chain and the operations leave of the proposal. `costs` has one row for
    each bus. A bus that may not be held is expected to drive on.
    """
    for i in range(trips.shape[0]):
        scale = try_holds(f, seen, room, trips[i], raw[i], search, costs[i])
        best = 0
        for n in range(1, search.holds_s.shape[0]):
            if costs[i, n] < costs[i, best]:
                best = n
        proposals_s[i], out_s[i] = search.holds_s[best], room.kept_s[best]
        _note(f, seen, trips[i], raw[i], out_s[i] if may_hold[i] else 0.0, scale)
