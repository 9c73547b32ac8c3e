"""The compiled day: buses, queues and the ledger in flat arrays, second by second.

Nothing is allocated after the day has started. Arrivals wait in one bucket per second, so there is
no heap. Passengers wait in one queue for each stop and set of services that can carry them, sorted
once when the day is made. Counts change through per-second differences, so the ledger is exact.
`evenline.worlds.fast.layout` describes the memory. Functions work on one world at a time, and every
helper is inlined into its callers.
"""

import math

import numpy as np
import numpy.typing as npt

from evenline.city.demand import ABSENT_S, RATE_BIN_S
from evenline.control import event
from evenline.control.action import MAX_HOLD_S, NO_HOLD, action_of
from evenline.control.event import Headways, headway_behind, record_arrival, record_finish
from evenline.control.ledger import cost_of
from evenline.control.operations import executed_s
from evenline.control.state import MAX_SLOTS, PREFIX, SLOT, write_prefix, write_slot
from evenline.rules.policy import controlled
from evenline.support.compiled import (
    clear_rows,
    compiled,
    copy_rows,
    fetch_row,
    inlined,
    lowest_bit,
)
from evenline.worlds.calibration import CYCLE_S, JAM_S, PHASE_S, closeness, jam_share
from evenline.worlds.fast.layout import (
    BREAKS,
    COINS,
    F32,
    F64,
    GOAL_BITS,
    I32,
    NEVER_S,
    ONWARD,
    PASSED,
    SEVERAL,
    SHUT,
    SLOWED,
    SOON,
    Day,
    Static,
    row,
)


@inlined
def bits(key: int, number: int) -> np.uint64:
    """Random bits that depend only on the block's key and their own number (splitmix64)."""
    x = np.uint64(key) + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def fraction(x: np.uint64) -> float:
    """Random bits as a number from 0 to 1; the lowest eleven bits are not used."""
    return float(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def luck(s: Static, key: int, trip: int, stop: int) -> float:
    """The random draw of a run, from 0 to 1; sometimes a copy of the previous trip's draw.

    Copies correlate the trips. They do not change the distribution, or any other draw of the day.
    """
    x, before = bits(key, 2 * (s.first_visit[trip] + stop)), s.before[trip]
    if int(x & np.uint64(COINS - 1)) < s.follow_coins and before >= 0:
        x = bits(key, 2 * (s.first_visit[before] + stop))
    return fraction(x)


@inlined
def quantile(table: F32, u: float) -> float:
    """The value at a probability, interpolated between equally spaced quantiles."""
    at = u * (table.shape[0] - 1)
    low = int(at)
    return float(table[low] + (table[low + 1] - table[low]) * (at - low))


@compiled
def begin_day(
    s: Static,
    fleet: Day,
    w: int,
    demand: float,
    shift_s: I32,
    key: int,
    level: int,
    waits: npt.NDArray[np.bool_],
    starts_late_s: I32,
) -> None:
    """Start the day of a cell: who comes when, how each trip runs, the first arrivals."""
    d = row(fleet, w)
    clear_rows(d.num)
    clear_rows(d.hold_s)
    clear_rows(d.second)
    clear_rows(d.alighting)
    d.second.due[:] = -1
    d.visit.changing[:] = -1
    d.visit.visited_s[:] = -1
    d.left_s[:] = -1
    d.delayed_s[:] = 0.0
    d.reached_s[:] = -1
    d.queue.changing[:] = -1
    d.tail[:] = -1
    d.ride[:] = -1
    copy_rows(d.place, s.place, 0, s.place.shape[0])
    copy_rows(d.trip, s.trip, 0, s.trip.shape[0])
    _people(s, d, demand, shift_s)
    for t in range(s.start_s.shape[0]):
        bus = d.trip[t]
        bus.pace = quantile(s.pace, fraction(bits(key, 2 * t + 1)))
        late_s = starts_late_s[t] if starts_late_s.shape[0] else _late_s(s, key, t, bus.service)
        for stop in range(bus.last):
            place, u = bus.first_place + stop, luck(s, key, t, stop)
            noise_s = quantile(s.noise[place], u)
            if s.made_up.shape[0]:
                noise_s -= s.made_up[place] * late_s
            d.visit[bus.first_visit + stop].noise_s = noise_s
        if waits.shape[0] == 0 or not waits[t]:
            schedule(s, d, t, max(int(s.start_s[t]) + late_s, 0))
        else:
            d.after[t] = late_s  # until its vehicle comes and it is scheduled
    d.num[0].level, d.num[0].now_s = level, -1


@inlined
def _late_s(s: Static, key: int, trip: int, service: int) -> int:
    """How late a trip starts by a draw of its own, or of the previous trip; 0 if none is late."""
    late_s = 0
    if s.lateness.shape[0]:
        x, before = bits(key, 2 * (s.start_s.shape[0] + trip) + 1), s.before[trip]
        if int(x & np.uint64(COINS - 1)) < s.late_coins and before >= 0:
            x = bits(key, 2 * (s.start_s.shape[0] + before) + 1)
        late_s = math.floor(quantile(s.lateness[service], fraction(x)) + 0.5)
    return late_s


@inlined
def _people(s: Static, d: Day, demand: float, shift_s: I32) -> None:
    """Put every passenger into the queue of the first leg, in order of time."""
    for c in range(s.class_start.shape[0] - 1):
        first = end = s.class_start[c] + c
        for e in range(s.class_start[c], s.class_start[c + 1]):
            shift = shift_s[s.entry_person[e]]
            if s.entry_demand[e] > demand or shift == ABSENT_S:
                continue
            at = min(max(s.entry_s[e] + shift, 0), s.horizon_s - 1)
            d.second[at].add_waiting += 1
            i = end
            while i > first and since_s(d, i - 1) > at:
                d.entry[i].waits, d.entry[i].leg = d.entry[i - 1].waits, d.entry[i - 1].leg
                i -= 1
            d.entry[i].waits, d.entry[i].leg = at << GOAL_BITS | s.entry_goal[e], s.entry_leg[e]
            end += 1
        d.entry[end].waits = NEVER_S << GOAL_BITS
        q = d.queue[c]
        q.head, q.seen, q.head_s = first, first, since_s(d, first)
        d.num[0].departed += end - first


@inlined
def since_s(d: Day, entry: int) -> int:
    """The second since which a passenger of the queue waits."""
    return int(d.entry[entry].waits >> GOAL_BITS)


@inlined
def schedule(s: Static, d: Day, trip: int, at: int) -> None:
    if at < s.horizon_s:
        d.after[trip] = d.second[at].due
        d.second[at].due = trip


@inlined
def headways(d: Day) -> Headways:
    """The running order and arrival times, in the form that all worlds share."""
    t = d.trip
    return Headways(
        t.service, t.first_place, t.first_visit, d.visit.visited_s, d.place.last_s,
        t.position, t.reached_s, t.ahead, t.behind, d.tail,
    )  # fmt: skip


@inlined
def advance(s: Static, d: Day) -> int:
    """Let time pass until buses need a decision; return how many, or 0 at the horizon.

    The batch's trips are in `d.batch`, its raw events in `d.raw`, its cost so far in `cost`.
    """
    num, h, horizon = d.num[0], headways(d), s.horizon_s
    now, waiting, riding = num.now_s, num.waiting_now, num.riding_now
    waiting_s, riding_s = num.waiting_s, num.riding_s
    count = 0
    while True:
        if now >= 0:
            waiting_s += waiting
            riding_s += riding
        now += 1
        if now == s.service_end_s:
            num.service_cost = cost_of(waiting_s, riding_s)
        if now >= horizon:
            num.over = 1
            break
        waiting += d.second[now].add_waiting
        riding += d.second[now].add_riding
        if d.second[now].due >= 0:
            num.now_s, num.waiting_now, num.riding_now = now, waiting, riding
            count = arrivals(s, d, h, now)
            waiting, riding = num.waiting_now, num.riding_now
            if count:
                break
    num.now_s, num.waiting_now, num.riding_now = now, waiting, riding
    num.waiting_s, num.riding_s = waiting_s, riding_s
    total = cost_of(waiting_s, riding_s)
    num.cost = total - num.charged
    num.charged = total
    if num.began == 0:
        num.began, num.pre_control = 1, total
    num.batch, num.decision, num.shown = count, 0, 0
    num.decisions += count
    num.zero_durations += max(count - 1, 0)
    return count


@inlined
def arrivals(s: Static, d: Day, h: Headways, now: int) -> int:
    """Record all arrivals of a second in order, empty terminating buses, write events of the
    rest.
    """
    count = _in_order(s, d, d.second[now].due)
    asking = 0
    for i in range(count):
        if i + SOON < count:
            _fetch_stop(s, d, d.batch[i + SOON], now)
        trip = d.batch[i]
        bus = d.trip[trip]
        stop = bus.position + 1
        if d.disrupted.shape[0]:
            stop = _past_closed(s, d, h, trip, stop, now)
        gap = record_arrival(h, trip, stop, now)
        if d.disrupted.shape[0] and _breaks_down(d, trip, stop, now):
            _break_down(s, d, h, trip, stop, now)
        elif stop == bus.last:
            record_finish(h, trip)
            first = bus.first_visit
            d.num[0].trips_done += 1
            d.num[0].trip_seconds += now - d.visit[first].visited_s
            base = _base_dwell_s(s, d, trip, 0, d.alighting[first + stop])
            leaves = _exchange(s, d, trip, stop, base, 0.0)
            if d.onward.shape[0]:
                _turn_round(s, d, trip, leaves)
        else:
            d.batch[asking] = trip
            d.raw[asking, event.HEADWAY_AHEAD] = gap
            asking += 1
            if count > SOON:
                _fetch_queues(d, trip, stop)
    for i in range(asking):
        if i + SOON < asking:
            _fetch_people(d, d.batch[i + SOON], now)
        _describe(s, d, h, i, now)
    return asking


@inlined
def _turn_round(s: Static, d: Day, trip: int, leaves: int) -> None:
    """Let the vehicle of a finished trip begin its next one, on time if it has rested by then, or
    as much later as the next trip is by its own draw.
    """
    after = d.onward[trip]
    if after >= 0:
        at = max(s.start_s[after], leaves + s.recovery_s) + d.after[after]
        schedule(s, d, after, max(at, d.num[0].now_s + 1))  # this second is being served


@inlined
def _past_closed(s: Static, d: Day, h: Headways, trip: int, stop: int, now: int) -> int:
    """Let those out who wanted to get out at closed stops before this one; return this stop."""
    first = d.trip[trip].first_visit
    while d.visit[first + stop].visited_s == PASSED:
        record_arrival(h, trip, stop, now)
        _let_out(s, d, trip, first + stop, now)
        d.visit[first + stop].changing = PASSED
        stop += 1
    return int(stop)


@inlined
def _breaks_down(d: Day, trip: int, stop: int, now: int) -> bool:
    """Whether a bus breaks down as it reaches a stop; never at its last."""
    broken = False
    for i in range(d.disrupted.shape[0]):
        x = d.disrupted[i]
        if x.kind == BREAKS and x.which == trip and x.position <= stop < d.trip[trip].last:
            broken |= x.from_s <= now < x.until_s
    return broken


@inlined
def _break_down(s: Static, d: Day, h: Headways, trip: int, stop: int, now: int) -> None:
    """Take a bus out of service: all get out at once and, unless there, wait for the next."""
    bus, num = d.trip[trip], d.num[0]
    first, here, load = bus.first_visit, bus.first_visit + stop, bus.load
    record_finish(h, trip)
    _let_out(s, d, trip, here, now)
    for leg in range(d.ride.shape[0]):
        goal = d.ride[leg]
        if here < goal <= first + bus.last:
            d.ride[leg] = -1
            onward = s.leg[leg].goal & ONWARD
            _queue_up(d, s.again[bus.first_place + stop], leg, (goal - first) | onward, now)
    for visit in range(here + 1, first + bus.last + 1):
        d.alighting[visit] = 0
        d.visit[visit].changing = -1
    num.riding_now -= bus.load
    num.waiting_now += bus.load
    bus.load = 0
    if stop == 0:
        d.left_s[trip] = now
    if d.visits.shape[0]:
        v = d.visits[here]
        v.departure_s, v.load, v.alighted = now, load, load
        v.boarded, v.left_behind, v.base_dwell_s = 0, 0, 0
        d.visit_hold_s[here] = 0.0


@inlined
def _let_out(s: Static, d: Day, trip: int, visit: int, now: int) -> None:
    """Let those who alight at a visit out at once, without time at the door."""
    num, count, changed = d.num[0], int(d.alighting[visit]), 0
    leg = d.visit[visit].changing
    while leg >= 0:
        after = d.rider[leg].next
        _join(s, d, leg + 1, now)
        changed += 1
        leg = after
    d.alighting[visit] = 0
    d.trip[trip].load -= count
    num.riding_now -= count
    num.waiting_now += changed
    num.completed += count - changed


@inlined
def _in_order(s: Static, d: Day, trip: int) -> int:
    """List the buses of a second, ordered by service and trip; return how many there are.

    They are marked in a bit map of all ranks and read from the lowest rank on, without comparisons.
    """
    count = 0
    while trip >= 0:
        rank = d.trip[trip].rank
        word = rank >> 6
        d.ranks[word] |= np.uint64(1) << np.uint64(rank & 63)
        d.words[word >> 6] |= np.uint64(1) << np.uint64(word & 63)
        trip = d.after[trip]
    for i in range(d.words.shape[0]):
        while d.words[i]:
            word = i << 6 | lowest_bit(d.words[i])
            d.words[i] &= d.words[i] - np.uint64(1)
            while d.ranks[word]:
                d.batch[count] = s.ranked[word << 6 | lowest_bit(d.ranks[word])]
                count += 1
                d.ranks[word] &= d.ranks[word] - np.uint64(1)
    return count


@inlined
def _fetch_stop(s: Static, d: Day, trip: int, now: int) -> None:
    """Prefetch the data of the stop of a bus in a crowded moment."""
    bus = d.trip[trip]
    place, visit = bus.first_place + bus.position + 1, bus.first_visit + bus.position + 1
    fetch_row(d.trip, bus.ahead)  # a prefetch of row -1 has no effect
    fetch_row(d.trip, bus.behind)
    fetch_row(d.place, place)
    fetch_row(d.visit, visit)
    fetch_row(d.alighting, visit)
    fetch_row(s.times[d.num[0].level, half_hour(s, now)], place)


@inlined
def _fetch_queues(d: Day, trip: int, stop: int) -> None:
    """Prefetch the queues of a stop, and the time when the bus was where its follower is."""
    bus = d.trip[trip]
    at_hand = d.place[bus.first_place + stop].at_hand
    fetch_row(d.queue, at_hand[0])
    fetch_row(d.queue, at_hand[1])
    if bus.behind >= 0:
        fetch_row(d.visit, bus.first_visit + d.trip[bus.behind].position)


@inlined
def _fetch_people(d: Day, trip: int, now: int) -> None:
    """Prefetch the people in the queues of a stop."""
    place = d.place[d.trip[trip].first_place + d.trip[trip].position]
    for i in range(min(place.classes, 2)):
        q = d.queue[place.at_hand[i]]
        if q.head_s <= now:
            fetch_row(d.entry, q.seen)


@inlined
def _describe(s: Static, d: Day, h: Headways, i: int, now: int) -> None:
    """The sixteen features of the i-th bus of the moment; the headway ahead is already set."""
    trip, raw = d.batch[i], d.raw[i]
    bus = d.trip[trip]
    place = bus.first_place + bus.position
    gap, behind = raw[event.HEADWAY_AHEAD], headway_behind(h, trip, now)
    waiting = eligible(s, d, place, now)
    alighting = d.alighting[bus.first_visit + bus.position]
    boarding = min(waiting, bus.capacity - bus.load + alighting)
    raw[event.SERVICE] = bus.service
    raw[event.STOP] = bus.position
    raw[event.TIME] = now
    raw[event.HEADWAY_AHEAD] = max(gap, 0.0)
    raw[event.HEADWAY_BEHIND] = max(behind, 0)
    raw[event.TARGET_AHEAD] = bus.target_ahead_s
    raw[event.TARGET_BEHIND] = bus.target_behind_s
    raw[event.WAITING] = waiting
    raw[event.ON_BOARD] = bus.load
    raw[event.RATE] = s.times[d.num[0].level, half_hour(s, now), place].rate_per_s
    raw[event.BASE_DWELL] = _base_dwell_s(s, d, trip, boarding, alighting)
    raw[event.BUS_AHEAD] = 1.0 if gap >= 0 else 0.0
    raw[event.BUS_BEHIND] = 1.0 if behind >= 0 else 0.0
    raw[event.CAPACITY] = bus.capacity
    raw[event.SYSTEM_WAITING] = d.num[0].waiting_now
    raw[event.SYSTEM_ON_BOARD] = d.num[0].riding_now


@inlined
def _base_dwell_s(s: Static, d: Day, trip: int, boarding: int, alighting: int) -> int:
    """The kernel's form of `Vehicle.base_dwell_s`."""
    bus, people = d.trip[trip], boarding + alighting
    stands_ms = int(bus.exchange_ms) * people
    if s.doors.shape[0] and people > 0:
        opening_ms, board_ms, alight_ms = _doors_ms(s, d, trip)
        stands_ms = opening_ms + board_ms * boarding + alight_ms * alighting
    return int(max(bus.min_dwell_s, (stands_ms + 999) // 1000))


@inlined
def _doors_ms(s: Static, d: Day, trip: int) -> tuple[int, int, int]:
    """The milliseconds to open the doors, of one who boards, and of one who alights."""
    bus, doors = d.trip[trip], s.doors[trip]
    more_ms = int(doors[2]) * int(bus.load) // 1000
    return int(doors[0]), int(bus.exchange_ms) + more_ms, int(doors[1]) + more_ms


@inlined
def half_hour(s: Static, second: int) -> int:
    return int(min(second // RATE_BIN_S, s.times.shape[1] - 1))


@inlined
def class_at(s: Static, d: Day, place: int, i: int) -> int:
    """The i-th class of people that a place's service can carry."""
    p = d.place[place]
    return int(p.at_hand[i] if i < 2 else s.carried[p.first_class + i].queue)


@inlined
def eligible(s: Static, d: Day, place: int, now: int) -> int:
    """People waiting at a place whose leg its service can carry."""
    count = 0
    for i in range(d.place[place].classes):
        q = d.queue[class_at(s, d, place, i)]
        if q.head_s <= now:
            seen = max(q.seen, q.head)
            while since_s(d, seen) <= now:
                seen += 1
            q.seen = seen
            count += seen - q.head
        count += _changed(d, q.changing, now)
    return count


@inlined
def _changed(d: Day, leg: int, now: int) -> int:
    """Count the changing passengers, listed from this leg on, who are at their stop by now."""
    count = 0
    while leg >= 0:
        count += d.rider[leg].changed_s <= now
        leg = d.rider[leg].next
    return count


@inlined
def serve(s: Static, d: Day, i: int, hold_s: float) -> float:
    """Apply the hold of the i-th bus of the moment: exchange people, depart, schedule.

    Returns the hold that happened. Later buses of the moment see the one that was asked for.
    """
    trip, num = d.batch[i], d.num[0]
    bus = d.trip[trip]
    stop = int(np.int64(bus.position))  # another type would compile what takes it once more
    if s.limits.cap_s.shape[0]:
        visit = bus.first_visit + stop
        hold_s = executed_s(s.limits, visit, d.raw[i], hold_s, d.luck[visit])
    d.hold_s[0] += hold_s
    num.holds_zero += hold_s == 0.0
    leaves = _exchange(s, d, trip, stop, int(d.raw[i, event.BASE_DWELL]), hold_s)
    if stop == 0:
        d.left_s[trip] = leaves
    at = leaves + _run_s(s, d, trip, stop, leaves, _slowed_s(s, d, trip, stop))
    if d.disrupted.shape[0]:
        at = _pass_closed(s, d, trip, stop, leaves, at)
    schedule(s, d, trip, at)
    return hold_s


@inlined
def _slowed_s(s: Static, d: Day, trip: int, stop: int) -> float:
    """How much longer a bus runs to its next stop because of the bus ahead, on any service.

    What delayed that bus by long is a jam, in which this bus is, too.
    """
    if s.segment.shape[0] == 0:
        return 0.0
    bus, now, jam_s, close_s = d.trip[trip], d.num[0].now_s, 0.0, 0.0
    segment = s.segment[bus.first_place + stop]
    headway_s = float(now - d.reached_s[segment])
    if d.reached_s[segment] >= 0:
        close_s = s.close_s * closeness(headway_s, s.close_within_s)
        share = jam_share(headway_s, s.jam_near, s.jam_far)
        jam_s = share * max(d.delayed_s[segment] - JAM_S, 0.0)
    d.delayed_s[segment] = d.visit[bus.first_visit + stop].noise_s + jam_s
    d.reached_s[segment] = now
    return close_s + jam_s


@inlined
def _run_s(s: Static, d: Day, trip: int, stop: int, leaves: int, slowed_s: float) -> int:
    """How long a bus runs to its next stop; the bus ahead may slow it."""
    bus = d.trip[trip]
    place = bus.first_place + stop
    p = d.place[place]
    run = (
        np.float32(s.times[d.num[0].level, half_hour(s, leaves), place].mean_s)
        + p.pace_s * bus.pace
        + p.phase_s[leaves % CYCLE_S // PHASE_S]
        + d.visit[bus.first_visit + stop].noise_s
        + slowed_s
    )
    if d.disrupted.shape[0]:
        run *= _slowness(d, place, leaves)
    return int(max(int(run + 0.5), p.least_s))


@inlined
def _slowness(d: Day, place: int, leaves: int) -> float:
    """The factor of a running time."""
    factor = 1.0
    for i in range(d.disrupted.shape[0]):
        x = d.disrupted[i]
        if x.kind == SLOWED and x.which == place and x.from_s <= leaves < x.until_s:
            factor += x.extra
    return factor


@inlined
def _pass_closed(s: Static, d: Day, trip: int, stop: int, leaves: int, at: int) -> int:
    """Mark the closed stops that a bus will pass; return when it reaches the next open one."""
    bus, later = d.trip[trip], stop + 1
    while later < bus.last and _closed(d, bus.first_place + later, leaves):
        d.visit[bus.first_visit + later].visited_s = PASSED
        at += _run_s(s, d, trip, later, at, 0.0)
        later += 1
    return at


@inlined
def _closed(d: Day, place: int, leaves: int) -> bool:
    """Whether a stop is closed to a bus that leaves the stop before it."""
    closed = False
    for i in range(d.disrupted.shape[0]):
        x = d.disrupted[i]
        if x.kind == SHUT and x.which == place:
            closed |= x.from_s <= leaves < x.until_s
    return closed


@inlined
def _exchange(s: Static, d: Day, trip: int, stop: int, base_s: int, hold_s: float) -> int:
    """Exchange people at a stop as SUMO does; return the second in which the bus leaves.

    One person passes the door at a time. Waiting people board before anyone alights, while there is
    room. People who come before the bus has finished board too, and extend its stop. The hold is
    added after that; people who come during the hold board without delaying the bus. Those who
    boarded last alight first; only passengers who change have an identity. The first person waits
    until the doors are open.
    """
    bus, num = d.trip[trip], d.num[0]
    capacity, board_ms = bus.capacity, int(bus.exchange_ms)
    opening_ms, alight_ms = 0, board_ms
    if s.doors.shape[0]:
        opening_ms, board_ms, alight_ms = _doors_ms(s, d, trip)
    now, visit, place = num.now_s, bus.first_visit + stop, bus.first_place + stop
    load = aboard = bus.load
    alighting, changing = int(d.alighting[visit]), d.visit[visit].changing
    free_ms, done, boarded = 1000 * int(now) + opening_ms, now + int(bus.min_dwell_s), 0
    leaves = done
    holding = False
    while True:
        best, best_s = _first_in_line(s, d, place, leaves if holding else done)
        if aboard >= capacity:
            best = -1
        at = max(now, (free_ms - 1) // 1000)  # SUMO is ready less than a step early
        if best >= 0 and (best_s <= at or alighting == 0):
            at = max(at, best_s)
            if holding and at >= leaves:
                break
            _board(s, d, trip, place, best, at)
            aboard += 1
            boarded += 1
            each_ms = board_ms
        elif alighting > 0:
            alighting -= 1
            aboard -= 1
            each_ms = alight_ms
            if changing >= 0 and d.rider[changing].number == alighting:
                _count(d, s.horizon_s, at, 1, -1)
                _join(s, d, changing + 1, at)
                changing = d.rider[changing].next
            else:
                _count(d, s.horizon_s, at, 0, -1)
                num.completed += at < s.horizon_s
        elif holding:
            break
        else:
            holding, leaves = True, done + math.ceil(hold_s)
            continue
        if free_ms <= 1000 * (at - 1):
            free_ms = 1000 * at
        free_ms += each_ms
        if not holding:
            done = max(done, (free_ms + 999) // 1000)
    left = _left_behind(s, d, place, leaves) if aboard >= capacity else 0
    num.denied += left
    bus.load = aboard
    if d.visits.shape[0]:
        _keep_visit(d, visit, leaves, load, boarded, load + boarded - aboard, left)
        d.visits[visit].base_dwell_s = base_s
        d.visit_hold_s[visit] = hold_s
    return int(leaves)


@inlined
def _keep_visit(
    d: Day, visit: int, leaves: int, load: int, boarded: int, alighted: int, left: int
) -> None:
    """Keep what happened at a stop, for a day whose visits are asked for."""
    v = d.visits[visit]
    v.departure_s, v.load, v.alighted = leaves, load, alighted
    v.boarded, v.left_behind = boarded, left


@inlined
def _first_in_line(s: Static, d: Day, place: int, before_s: int) -> tuple[int, int]:
    """The passenger who has waited longest for this service before a second: (queue, since when).

    Even numbers are first legs, odd numbers are passengers who change; -1 if there is none.
    """
    best, best_s = -1, before_s
    for i in range(d.place[place].classes):
        q = d.queue[class_at(s, d, place, i)]
        if q.head_s < min(best_s, NEVER_S):
            best, best_s = 2 * i, q.head_s
        if q.changing >= 0 and d.rider[q.changing].changed_s < best_s:
            best, best_s = 2 * i + 1, d.rider[q.changing].changed_s
    return best, best_s


@inlined
def _board(s: Static, d: Day, trip: int, place: int, queue: int, at: int) -> None:
    """Take the first person of a queue on board."""
    i, leg = queue // 2, -1
    q = d.queue[class_at(s, d, place, i)]
    if queue % 2:
        leg = q.changing
        goal = d.rider[leg].number
        q.changing = d.rider[leg].next
    else:
        first = d.entry[q.head]
        goal = first.waits & ((1 << GOAL_BITS) - 1)
        if goal & ONWARD or d.ride.shape[0]:
            leg = first.leg
        q.head += 1
        q.head_s = since_s(d, q.head)
    _count(d, s.horizon_s, at, -1, 1)
    visit = d.trip[trip].first_visit + _position(s, d, place, i, goal & (ONWARD - 1))
    if goal & ONWARD:
        d.rider[leg].number, d.rider[leg].next = d.alighting[visit], d.visit[visit].changing
        d.visit[visit].changing = leg
    d.alighting[visit] += 1
    if d.ride.shape[0]:
        d.ride[leg] = visit


@inlined
def _position(s: Static, d: Day, place: int, i: int, goal: int) -> int:
    """Where a passenger of the i-th class of a place alights."""
    if goal < SEVERAL:
        return goal
    return int(s.goal[s.carried[d.place[place].first_class + i].first_goal + goal - SEVERAL])


@inlined
def _join(s: Static, d: Day, leg: int, at: int) -> None:
    """Put a passenger who changes into the queue of the next leg."""
    _queue_up(d, s.leg[leg].queue, leg, s.leg[leg].goal, at)


@inlined
def _queue_up(d: Day, queue: int, leg: int, goal: int, at: int) -> None:
    """Put a passenger into a queue beside those who wait for their first bus, in order of time."""
    mine, q = d.rider[leg], d.queue[queue]
    mine.changed_s, mine.number = at, goal
    before, other = -1, q.changing
    while other >= 0 and d.rider[other].changed_s <= at:
        before, other = other, d.rider[other].next
    mine.next = other
    if before < 0:
        q.changing = leg
    else:
        d.rider[before].next = leg


@inlined
def _count(d: Day, horizon: int, at: int, waiting: int, riding: int) -> None:
    """Change the counts at a second: directly if it is now, otherwise through the differences."""
    num = d.num[0]
    if at == num.now_s:
        num.waiting_now += waiting
        num.riding_now += riding
    elif at < horizon:
        d.second[at].add_waiting += waiting
        d.second[at].add_riding += riding


@inlined
def _left_behind(s: Static, d: Day, place: int, leaves: int) -> int:
    """Count the people at the stop whom this bus could carry when it leaves full."""
    count = 0
    for i in range(d.place[place].classes):
        q = d.queue[class_at(s, d, place, i)]
        e = q.head
        while since_s(d, e) <= min(leaves, NEVER_S - 1):
            e += 1
        count += e - q.head + _changed(d, q.changing, leaves)
    return count


@inlined
def write_state(s: Static, d: Day, decision: int, out: F32) -> None:
    """The canonical state of a decision: its batch, and the actions taken before it.

    `out` must contain this world's previous state, or zeros with no hold in the action slots. In a
    wide moment, a decision sees the sixteen of its own batch.
    """
    first = decision // MAX_SLOTS * MAX_SLOTS
    num, raw, j = d.num[0], d.raw[0], decision - first
    count = min(num.batch - first, MAX_SLOTS)
    waiting, riding = raw[event.SYSTEM_WAITING], raw[event.SYSTEM_ON_BOARD]
    write_prefix(out, raw[event.TIME], count, j, waiting, riding, s.scale)
    if j > 0 and num.shown > 0:
        base = PREFIX + (j - 1) * SLOT
        out[base + SLOT - 1] = action_of(d.hold_s[decision])
        return
    for k in range(count):
        f, base = d.raw[first + k], PREFIX + k * SLOT
        write_slot(
            out[base : base + SLOT - 1], f[event.SERVICE], f[event.STOP], f[event.HEADWAY_AHEAD],
            f[event.HEADWAY_BEHIND], f[event.TARGET_AHEAD], f[event.TARGET_BEHIND],
            f[event.WAITING], f[event.ON_BOARD], f[event.RATE], f[event.BASE_DWELL],
            f[event.BUS_AHEAD], f[event.BUS_BEHIND], f[event.CAPACITY], s.scale,
        )  # fmt: skip
        out[base + SLOT - 1] = NO_HOLD
    k = count
    while k < MAX_SLOTS and out[PREFIX + k * SLOT] != 0.0:
        out[PREFIX + k * SLOT : PREFIX + (k + 1) * SLOT - 1] = 0.0
        out[PREFIX + (k + 1) * SLOT - 1] = NO_HOLD
        k += 1
    num.shown = 1


@inlined
def controlled_hold(
    s: Static, d: Day, i: int, address: int, constants: F64, chain: int, due_s: F64
) -> float:
    """The hold of a compiled rule and its chain for the i-th bus of the moment."""
    trip, late_s = d.batch[i], 0.0
    if due_s.shape[0]:
        late_s = d.raw[i, event.TIME] - due_s[d.trip[trip].first_visit + d.trip[trip].position]
    return controlled(address, constants, chain, d.raw[i], late_s, float(s.horizon_s))


@compiled
def run(
    s: Static,
    fleet: Day,
    w: int,
    first: int,
    holds_s: F64,
    goes_on: bool,
    to_end: bool,
    address: int,
    constants: F64,
    chain: int,
    due_s: F64,
    state: F32,
    write: bool,
) -> int:
    """Apply the holds of part of a moment, in order, and go on to the next moment or to the end.

    `holds_s` becomes the holds that happened. To the end, a compiled rule and its chain decide:
    `due_s` is the due time of each visit, or empty; with `write`, the state of every decision is
    written to `state`. Returns the number of buses of the next moment; 0 if the day is over, or
    does not go on. A hold of the rule outside the range ends the day: -1 less the bus.

    This is one function because each that contains a day takes seconds to compile.
    """
    d, count = row(fleet, w), holds_s.shape[0]
    asked = count > 0
    while True:
        for i in range(first, first + count):
            if asked:
                hold = holds_s[i - first]
            else:
                if write:
                    if i % MAX_SLOTS == 0:
                        d.num[0].shown = 0
                    write_state(s, d, i, state)
                hold = controlled_hold(s, d, i, address, constants, chain, due_s)
                if not 0.0 <= hold <= MAX_HOLD_S:
                    d.hold_s[0] = hold
                    return -1 - int(d.batch[i])
                d.hold_s[1 + i] = hold
            hold = serve(s, d, i, hold)
            if asked:
                holds_s[i - first] = hold
        if not goes_on:
            return 0
        count = advance(s, d)
        if count == 0 or not to_end:
            return count
        first, asked = 0, False


@compiled
def step_decisions(
    s: Static, fleet: Day, holds_s: F64, states: F32, costs: F64, over: npt.NDArray[np.bool_]
) -> int:
    """One decision in every world: apply its hold, and write the state of the next decision.

    `costs` is the cost between the two decisions, and `holds_s` becomes the holds that happened;
    worlds that are over do not change. Holds are checked first; returns the first world with a bad
    hold, or -1.
    """
    for w in range(states.shape[0]):
        if not (0.0 <= holds_s[w] <= MAX_HOLD_S or over[w]):
            return w
    for w in range(states.shape[0]):
        if over[w]:
            costs[w] = 0.0
            continue
        d = row(fleet, w)
        num = d.num[0]
        decision = num.decision
        d.hold_s[1 + decision] = holds_s[w]
        costs[w] = 0.0
        holds_s[w] = serve(s, d, decision, holds_s[w])
        decision += 1
        if decision >= num.batch:
            over[w] = advance(s, d) == 0
            costs[w] = num.cost
            if over[w]:
                continue
            decision = 0
        elif decision % MAX_SLOTS == 0:
            num.shown = 0
        num.decision = decision
        write_state(s, d, decision, states[w])
    return -1


@compiled
def first_decision(s: Static, fleet: Day, w: int, states: F32, over: npt.NDArray[np.bool_]) -> None:
    """Advance a new world to its first decision."""
    d = row(fleet, w)
    states[w] = 0.0
    for k in range(MAX_SLOTS):
        states[w, PREFIX + (k + 1) * SLOT - 1] = NO_HOLD
    over[w] = advance(s, d) == 0
    if not over[w]:
        write_state(s, d, 0, states[w])
