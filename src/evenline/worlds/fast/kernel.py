"""The compiled day: buses, queues and the ledger in flat arrays, second by second.

Nothing is allocated after the day has begun. Arrivals wait in one bucket a second, so there is no
heap; passengers wait in one queue for each stop and set of services that can carry them, sorted
once when the day is made; counts change through per-second differences, so the ledger is exact.
`evenline.worlds.fast.layout` says how all of it lies in memory; functions work on one world at a
time, and every helper becomes part of its callers.
"""

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import Headways, headway_behind, record_arrival, record_finish
from evenline.control.state import (
    MAX_SLOTS,
    PREFIX,
    SLOT,
    write_prefix,
    write_slot,
)
from evenline.rules.policy import controlled
from evenline.support.compiled import compiled, fetch_row, inlined, lowest_bit
from evenline.worlds.fast.layout import (
    ADD_RIDING,
    ADD_WAITING,
    AHEAD,
    AHEAD_S,
    BATCH,
    BEGAN,
    BEHIND,
    BEHIND_S,
    BUCKET,
    CARRIED,
    CHANGED,
    CHANGES,
    CHARGED,
    CLASS,
    CLASSES,
    COINS,
    COMPLETED,
    COST,
    CYCLE_S,
    DECISIONS,
    DENIED,
    DEPARTED,
    F32,
    F64,
    FIRST,
    GOAL,
    GOAL_BITS,
    GOALS,
    HEAD,
    HEAD_S,
    HOLDS_ZERO,
    I32,
    LAST,
    LAST_S,
    LEAST_S,
    LEG,
    LEVEL,
    LOAD,
    MEAN_S,
    MORE,
    NEVER_S,
    NEXT,
    NOISE,
    NOW,
    NUMBER,
    ONE,
    ONWARD,
    OTHER,
    OVER,
    PACE,
    PACE_S,
    PHASE,
    PHASE_S,
    PLACE,
    POSITION,
    PRE_CONTROL,
    RANK,
    RATE,
    REACHED,
    RIDING_NOW,
    RIDING_S,
    SEEN,
    SERVICE,
    SEVERAL,
    SHOWN,
    SOON,
    TOKEN,
    TRIP_SECONDS,
    TRIPS_DONE,
    VISIT,
    VISITED,
    WAITING_NOW,
    WAITING_S,
    WAITS,
    ZERO_TOKENS,
    Day,
    Static,
    row,
)


@inlined
def bits(key: int, number: int) -> np.uint64:
    """Random bits that depend on the block's key and their own number alone (splitmix64)."""
    x = np.uint64(key) + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def fraction(x: np.uint64) -> float:
    """Random bits as a fraction of one; the lowest eleven have no part in it."""
    return float(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def luck(s: Static, key: int, trip: int, stop: int) -> float:
    """How a run turns out, from 0 to 1: at times just as for the trip before, so that they agree.

    The copy does not change how likely any value is, and depends on no other draw of the day.
    """
    x, before = bits(key, 2 * (s.first_visit[trip] + stop)), s.before[trip]
    if int(x & np.uint64(COINS - 1)) < s.number[4] and before >= 0:
        x = bits(key, 2 * (s.first_visit[before] + stop))
    return fraction(x)


@inlined
def quantile(table: F32, u: float) -> float:
    """The value at a probability, between the two nearest of equally spaced quantiles."""
    at = u * (table.shape[0] - 1)
    low = int(at)
    return float(table[low] + (table[low + 1] - table[low]) * (at - low))


@inlined
def copy_rows(to: I32, source: I32, low: int, high: int) -> None:
    """Copy rows of a table: a slice would want memory, which compiled code here has none of."""
    for i in range(low, high):
        for j in range(source.shape[1]):
            to[i, j] = source[i, j]


@inlined
def put_noise(d: Day, visit: int, seconds: float) -> None:
    """Keep a running time's noise, to the bit, in the two places of a visit."""
    whole = np.float64(seconds).view(np.int64)
    d.visit[visit, NOISE] = np.int32(whole & 0xFFFFFFFF)
    d.visit[visit, NOISE + 1] = np.int32(whole >> 32)


@inlined
def noise_s(d: Day, visit: int) -> float:
    low = np.int64(np.uint32(d.visit[visit, NOISE]))
    whole = np.int64(d.visit[visit, NOISE + 1]) << 32 | low
    return np.int64(whole).view(np.float64)


@inlined
def as_float(number: int) -> np.float32:
    """A number kept as the bits of a float of single precision."""
    return np.int32(number).view(np.float32)


@compiled
def begin_day(
    s: Static,
    fleet: Day,
    w: int,
    demand: float,
    shift_s: I32,
    key: int,
    level: int,
) -> None:
    """Lay out a cell: who comes when, how each trip runs, the first arrivals."""
    d = row(fleet, w)
    d.num[:] = 0
    d.num[LEVEL] = level
    d.hold_s[:] = 0.0
    d.second[:] = 0
    d.second[:, BUCKET] = -1
    d.visit[:] = -1
    d.alighting[:] = 0
    d.queue[:, CHANGES] = -1
    d.tail[:] = -1
    d.ride[:] = -1
    copy_rows(d.place, s.place, 0, s.place.shape[0])
    copy_rows(d.trip, s.trip, 0, s.trip.shape[0])
    _people(s, d, demand, shift_s)
    for t in range(s.start_s.shape[0]):
        pace = quantile(s.pace, fraction(bits(key, 2 * t + 1)))
        d.trip[t, PACE] = np.float32(pace).view(np.int32)
        first, place = s.trip[t, VISIT], s.trip[t, PLACE]
        for stop in range(s.trip[t, LAST]):
            u = luck(s, key, t, stop)
            put_noise(d, first + stop, quantile(s.noise[place + stop], u))
        schedule(s, d, t, s.start_s[t])
    d.num[NOW] = -1


@inlined
def _people(s: Static, d: Day, demand: float, shift_s: I32) -> None:
    """Put everyone who comes into their queue, in order of time."""
    for c in range(s.class_start.shape[0] - 1):
        first = end = s.class_start[c] + c
        for e in range(s.class_start[c], s.class_start[c + 1]):
            if s.entry_demand[e] > demand:
                continue
            at = min(max(s.entry_s[e] + shift_s[s.entry_person[e]], 0), s.number[0] - 1)
            d.second[at, ADD_WAITING] += 1
            i = end
            while i > first and d.entry[i - 1, WAITS] >> GOAL_BITS > at:
                d.entry[i, WAITS], d.entry[i, LEG] = d.entry[i - 1, WAITS], d.entry[i - 1, LEG]
                i -= 1
            d.entry[i, WAITS], d.entry[i, LEG] = at << GOAL_BITS | s.entry_goal[e], s.entry_leg[e]
            end += 1
        d.entry[end, WAITS] = NEVER_S << GOAL_BITS
        d.queue[c, HEAD] = d.queue[c, SEEN] = first
        d.queue[c, HEAD_S] = d.entry[first, WAITS] >> GOAL_BITS
        d.num[DEPARTED] += end - first


@inlined
def schedule(s: Static, d: Day, trip: int, at: int) -> None:
    if at < s.number[0]:
        d.after[trip] = d.second[at, BUCKET]
        d.second[at, BUCKET] = trip


@inlined
def headways(d: Day) -> Headways:
    """The running order and arrival times, in the form all worlds share."""
    t = d.trip
    return Headways(
        t[:, SERVICE], t[:, PLACE], t[:, VISIT], d.visit[:, VISITED], d.place[:, LAST_S],
        t[:, POSITION], t[:, REACHED], t[:, AHEAD], t[:, BEHIND], d.tail,
    )  # fmt: skip


@inlined
def advance(s: Static, d: Day) -> int:
    """Let time pass until a bus asks for a hold; the size of the moment, 0 at the horizon."""
    return advance_until(s, d, s.number[0])


@inlined
def advance_until(s: Static, d: Day, horizon: int) -> int:
    """The same for a horizon that may lie within the day.

    The batch's trips are in `d.batch`, its raw events in `d.raw`, its cost so far in COST.
    """
    num, h = d.num, headways(d)
    now, waiting, riding = num[NOW], num[WAITING_NOW], num[RIDING_NOW]
    waiting_s, riding_s = num[WAITING_S], num[RIDING_S]
    count = 0
    while True:
        if now >= 0:
            waiting_s += waiting
            riding_s += riding
        now += 1
        if now >= horizon:
            num[OVER] = 1
            break
        waiting += d.second[now, ADD_WAITING]
        riding += d.second[now, ADD_RIDING]
        if d.second[now, BUCKET] >= 0:
            num[NOW], num[WAITING_NOW], num[RIDING_NOW] = now, waiting, riding
            count = arrivals(s, d, h, now)
            waiting, riding = num[WAITING_NOW], num[RIDING_NOW]
            if count:
                break
    num[NOW], num[WAITING_NOW], num[RIDING_NOW] = now, waiting, riding
    num[WAITING_S], num[RIDING_S] = waiting_s, riding_s
    total = 2 * waiting_s + riding_s
    num[COST] = total - num[CHARGED]
    num[CHARGED] = total
    if num[BEGAN] == 0:
        num[BEGAN], num[PRE_CONTROL] = 1, total
    num[BATCH], num[TOKEN], num[SHOWN] = count, 0, 0
    num[DECISIONS] += count
    num[ZERO_TOKENS] += max(count - 1, 0)
    return count


@inlined
def arrivals(s: Static, d: Day, h: Headways, now: int) -> int:
    """Note all arrivals of a second in order, let terminating buses empty, describe the rest."""
    count = _in_order(s, d, d.second[now, BUCKET])
    asking = 0
    for i in range(count):
        if i + SOON < count:
            _fetch_stop(s, d, d.batch[i + SOON], now)
        trip = d.batch[i]
        stop = d.trip[trip, POSITION] + 1
        gap = record_arrival(h, trip, stop, now)
        if stop == d.trip[trip, LAST]:
            record_finish(h, trip)
            first = d.trip[trip, VISIT]
            d.num[TRIPS_DONE] += 1
            d.num[TRIP_SECONDS] += now - d.visit[first, VISITED]
            base = max(s.number[2], s.number[3] * d.alighting[first + stop])
            _exchange(s, d, trip, stop, base, 0.0)
        else:
            d.batch[asking] = trip
            d.raw[asking, 3] = gap
            asking += 1
            if count > SOON:
                _fetch_queues(d, trip, stop)
    for i in range(asking):
        if i + SOON < asking:
            _fetch_people(d, d.batch[i + SOON], now)
        _describe(s, d, h, i, now)
    return asking


@inlined
def _in_order(s: Static, d: Day, trip: int) -> int:
    """List a second's buses in order of service and vehicle; how many there are.

    They are marked in a map of all ranks, and read off it from the lowest: nothing is compared.
    """
    count = 0
    while trip >= 0:
        word = d.trip[trip, RANK] >> 6
        d.ranks[word] |= np.uint64(1) << np.uint64(d.trip[trip, RANK] & 63)
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
    """Ask for what a bus of a crowded moment will soon want to know of its stop."""
    stop = d.trip[trip, POSITION] + 1
    place, visit = d.trip[trip, PLACE] + stop, d.trip[trip, VISIT] + stop
    fetch_row(d.trip, d.trip[trip, AHEAD])  # a row -1 is asked for in vain
    fetch_row(d.trip, d.trip[trip, BEHIND])
    fetch_row(d.place, place)
    fetch_row(d.visit, visit)
    fetch_row(d.alighting, visit)
    fetch_row(s.times[d.num[LEVEL], half_hour(s, now)], place)


@inlined
def _fetch_queues(d: Day, trip: int, stop: int) -> None:
    """Ask for the queues of a stop, and for when the bus was where its follower is."""
    place = d.trip[trip, PLACE] + stop
    fetch_row(d.queue, d.place[place, ONE])
    fetch_row(d.queue, d.place[place, OTHER])
    follower = d.trip[trip, BEHIND]
    if follower >= 0:
        fetch_row(d.visit, d.trip[trip, VISIT] + d.trip[follower, POSITION])


@inlined
def _fetch_people(d: Day, trip: int, now: int) -> None:
    """Ask for the people in the queues of a stop."""
    place = d.trip[trip, PLACE] + d.trip[trip, POSITION]
    for i in range(min(d.place[place, CLASSES], 2)):
        c = d.place[place, ONE + i]
        if d.queue[c, HEAD_S] <= now:
            fetch_row(d.entry, d.queue[c, SEEN])


@inlined
def _describe(s: Static, d: Day, h: Headways, i: int, now: int) -> None:
    """The sixteen features of the i-th bus of the moment; the gap ahead is already there."""
    trip, raw = d.batch[i], d.raw[i]
    service, stop = d.trip[trip, SERVICE], d.trip[trip, POSITION]
    place = d.trip[trip, PLACE] + stop
    gap, behind = raw[3], headway_behind(h, trip, now)
    capacity, load = s.number[1], d.trip[trip, LOAD]
    waiting = eligible(s, d, place, now)
    alighting = d.alighting[d.trip[trip, VISIT] + stop]
    boarding = min(waiting, capacity - load + alighting)
    raw[0] = service
    raw[1] = stop
    raw[2] = now
    raw[3] = max(gap, 0.0)
    raw[4] = max(behind, 0)
    raw[5] = d.trip[trip, AHEAD_S]
    raw[6] = d.trip[trip, BEHIND_S]
    raw[7] = waiting
    raw[8] = load
    raw[9] = s.times[d.num[LEVEL], half_hour(s, now), place, RATE]
    raw[10] = max(s.number[2], s.number[3] * (alighting + boarding))
    raw[11] = 1.0 if gap >= 0 else 0.0
    raw[12] = 1.0 if behind >= 0 else 0.0
    raw[13] = capacity
    raw[14] = d.num[WAITING_NOW]
    raw[15] = d.num[RIDING_NOW]


@inlined
def half_hour(s: Static, second: int) -> int:
    return int(min(second // RATE_BIN_S, s.times.shape[1] - 1))


@inlined
def class_at(s: Static, d: Day, place: int, i: int) -> int:
    """The i-th class of people that a place's service can carry."""
    return int(d.place[place, ONE + i] if i < 2 else s.carried[d.place[place, MORE] + i, CARRIED])


@inlined
def eligible(s: Static, d: Day, place: int, now: int) -> int:
    """People waiting at a place whose leg its service can carry."""
    count = 0
    for i in range(d.place[place, CLASSES]):
        c = class_at(s, d, place, i)
        if d.queue[c, HEAD_S] <= now:
            seen = max(d.queue[c, SEEN], d.queue[c, HEAD])
            while d.entry[seen, WAITS] >> GOAL_BITS <= now:
                seen += 1
            d.queue[c, SEEN] = seen
            count += seen - d.queue[c, HEAD]
        count += _changed(d, c, now)
    return count


@inlined
def _changed(d: Day, c: int, now: int) -> int:
    """How many of a class have changed and are at their stop by now."""
    count, leg = 0, d.queue[c, CHANGES]
    while leg >= 0:
        count += d.rider[leg, CHANGED] <= now
        leg = d.rider[leg, NEXT]
    return count


@inlined
def serve(s: Static, d: Day, i: int, hold_s: float) -> None:
    """Carry out the hold of the i-th bus of the moment: exchange people, set off, schedule."""
    trip = d.batch[i]
    stop = d.trip[trip, POSITION]
    d.hold_s[0] += hold_s
    d.num[HOLDS_ZERO] += hold_s == 0.0
    leaves = _exchange(s, d, trip, stop, int(d.raw[i, 10]), hold_s)
    place = d.trip[trip, PLACE] + stop
    p = d.place[place]
    run = (
        np.float32(s.times[d.num[LEVEL], half_hour(s, leaves), place, MEAN_S])
        + as_float(p[PACE_S]) * as_float(d.trip[trip, PACE])
        + as_float(p[PHASE + leaves % CYCLE_S // PHASE_S])
        + noise_s(d, d.trip[trip, VISIT] + stop)
    )
    schedule(s, d, trip, leaves + max(int(run + 0.5), p[LEAST_S]))


@inlined
def _exchange(s: Static, d: Day, trip: int, stop: int, base_s: int, hold_s: float) -> int:
    """Exchange people at a stop as SUMO does; the second the bus leaves.

    One person passes the door at a time. Whoever waits boards before anyone alights, while there
    is room; whoever comes before the bus is done boards too, and keeps it that much longer. The
    hold comes on top, and whoever comes during it boards without delaying the bus. Who boarded
    last alights first; only of those who change is it known who they are.
    """
    now, visit = d.num[NOW], d.trip[trip, VISIT] + stop
    each, capacity = s.number[3], s.number[1]
    place = d.trip[trip, PLACE] + stop
    load = aboard = d.trip[trip, LOAD]
    alighting, changing = int(d.alighting[visit]), d.visit[visit, FIRST]
    free, done, boarded = now, now + s.number[2], 0
    leaves = done
    holding = False
    while True:
        best, best_s = _first_in_line(s, d, place, leaves if holding else done)
        if aboard >= capacity:
            best = -1
        at = free - 1 if free > now else free
        if best >= 0 and (best_s <= at or alighting == 0):
            at = max(at, best_s)
            if holding and at >= leaves:
                break
            _board(s, d, trip, place, best, at)
            aboard += 1
            boarded += 1
        elif alighting > 0:
            alighting -= 1
            aboard -= 1
            if changing >= 0 and d.rider[changing, NUMBER] == alighting:
                _count(d, s.number[0], at, 1, -1)
                _join(s, d, changing + 1, at)
                changing = d.rider[changing, NEXT]
            else:
                _count(d, s.number[0], at, 0, -1)
                d.num[COMPLETED] += at < s.number[0]
        elif holding:
            break
        else:
            holding, leaves = True, done + int(np.ceil(hold_s))
            continue
        free = max(free, at) + each
        if not holding:
            done = max(done, free)
    left = _left_behind(s, d, place, leaves) if aboard >= capacity else 0
    d.num[DENIED] += left
    d.trip[trip, LOAD] = aboard
    if d.visits.shape[0]:
        v = d.visits[visit]
        v[0], v[1], v[2], v[3] = leaves, load, load + boarded - aboard, boarded
        v[4], v[5] = left, base_s
        d.visit_hold_s[visit] = hold_s
    return int(leaves)


@inlined
def _first_in_line(s: Static, d: Day, place: int, before_s: int) -> tuple[int, int]:
    """Who has waited longest for this service and came before a second: (queue, since when).

    Even numbers are first legs, odd ones people who change; -1 if there is nobody.
    """
    best, best_s = -1, before_s
    for i in range(d.place[place, CLASSES]):
        c = class_at(s, d, place, i)
        if d.queue[c, HEAD_S] < min(best_s, NEVER_S):
            best, best_s = 2 * i, d.queue[c, HEAD_S]
        leg = d.queue[c, CHANGES]
        if leg >= 0 and d.rider[leg, CHANGED] < best_s:
            best, best_s = 2 * i + 1, d.rider[leg, CHANGED]
    return best, best_s


@inlined
def _board(s: Static, d: Day, trip: int, place: int, queue: int, at: int) -> None:
    """Take the first person of a queue on board."""
    i, leg = queue // 2, -1
    c = class_at(s, d, place, i)
    if queue % 2:
        leg = d.queue[c, CHANGES]
        goal = d.rider[leg, NUMBER]
        d.queue[c, CHANGES] = d.rider[leg, NEXT]
    else:
        head = d.queue[c, HEAD]
        goal = d.entry[head, WAITS] & ((1 << GOAL_BITS) - 1)
        if goal & ONWARD or d.ride.shape[0]:
            leg = d.entry[head, LEG]
        d.queue[c, HEAD], d.queue[c, HEAD_S] = head + 1, d.entry[head + 1, WAITS] >> GOAL_BITS
    _count(d, s.number[0], at, -1, 1)
    visit = d.trip[trip, VISIT] + _position(s, d, place, i, goal & (ONWARD - 1))
    if goal & ONWARD:
        d.rider[leg, NUMBER], d.rider[leg, NEXT] = d.alighting[visit], d.visit[visit, FIRST]
        d.visit[visit, FIRST] = leg
    d.alighting[visit] += 1
    if d.ride.shape[0]:
        d.ride[leg] = visit


@inlined
def _position(s: Static, d: Day, place: int, i: int, goal: int) -> int:
    """Where someone of the i-th class of a place alights."""
    if goal < SEVERAL:
        return goal
    return int(s.goal[s.carried[d.place[place, MORE] + i, GOALS] + goal - SEVERAL])


@inlined
def _join(s: Static, d: Day, leg: int, at: int) -> None:
    """Put someone who changes into the queue of the next leg, kept in order of time."""
    c = s.leg[leg, CLASS]
    d.rider[leg, CHANGED], d.rider[leg, NUMBER] = at, s.leg[leg, GOAL]
    before, other = -1, d.queue[c, CHANGES]
    while other >= 0 and d.rider[other, CHANGED] <= at:
        before, other = other, d.rider[other, NEXT]
    d.rider[leg, NEXT] = other
    if before < 0:
        d.queue[c, CHANGES] = leg
    else:
        d.rider[before, NEXT] = leg


@inlined
def _count(d: Day, horizon: int, at: int, waiting: int, riding: int) -> None:
    """Change the counts at a second: now at once, later through the differences."""
    if at == d.num[NOW]:
        d.num[WAITING_NOW] += waiting
        d.num[RIDING_NOW] += riding
    elif at < horizon:
        d.second[at, ADD_WAITING] += waiting
        d.second[at, ADD_RIDING] += riding


@inlined
def _left_behind(s: Static, d: Day, place: int, leaves: int) -> int:
    """People this bus could have carried who stand at the stop when it leaves full."""
    count = 0
    for i in range(d.place[place, CLASSES]):
        c = class_at(s, d, place, i)
        e = d.queue[c, HEAD]
        while d.entry[e, WAITS] >> GOAL_BITS <= min(leaves, NEVER_S - 1):
            e += 1
        count += e - d.queue[c, HEAD] + _changed(d, c, leaves)
    return count


@inlined
def write_state(s: Static, d: Day, token: int, out: F32) -> None:
    """The canonical state of a token: the batch it belongs to, and the actions taken before it.

    `out` must hold this world's previous state, or zeros with -1 in the action places. The part
    of a wide moment that a token sees is its own sixteen.
    """
    first = token // MAX_SLOTS * MAX_SLOTS
    count, j = min(d.num[BATCH] - first, MAX_SLOTS), token - first
    raw, shown = d.raw, d.num[SHOWN]
    write_prefix(out, raw[0, 2], count, j, raw[0, 14], raw[0, 15], s.scale)
    if j > 0 and shown > 0:
        base = PREFIX + (j - 1) * SLOT
        out[base + SLOT - 1] = d.hold_s[token] / 30.0 - 1.0
        return
    for k in range(count):
        f, base = raw[first + k], PREFIX + k * SLOT
        write_slot(
            out[base : base + SLOT - 1], f[0], f[1], f[3], f[4], f[5], f[6], f[7], f[8], f[9],
            f[10], f[11], f[12], f[13], s.scale,
        )  # fmt: skip
        out[base + SLOT - 1] = -1.0
    k = count
    while k < MAX_SLOTS and out[PREFIX + k * SLOT] != 0.0:
        out[PREFIX + k * SLOT : PREFIX + (k + 1) * SLOT - 1] = 0.0
        out[PREFIX + (k + 1) * SLOT - 1] = -1.0
        k += 1
    d.num[SHOWN] = 1


@inlined
def controlled_hold(
    s: Static, d: Day, i: int, address: int, constants: F64, chain: int, due_s: F64
) -> float:
    """The hold of a compiled rule and its chain for the i-th bus of the moment."""
    trip, late_s = d.batch[i], 0.0
    if due_s.shape[0]:
        late_s = d.raw[i, 2] - due_s[d.trip[trip, VISIT] + d.trip[trip, POSITION]]
    return controlled(address, constants, chain, d.raw[i], late_s, float(s.number[0]))


@compiled
def run_day(
    s: Static,
    fleet: Day,
    w: int,
    address: int,
    constants: F64,
    chain: int,
    due_s: F64,
    state: F32,
    write: bool,
) -> int:
    """A whole day under a rule and its chain, never leaving compiled code.

    `due_s` is each visit's due time, or empty; with `write` the state of every decision is
    written to `state`. A hold outside the range ends the day: the number of its bus, else -1.
    """
    d = row(fleet, w)
    while True:
        count = advance(s, d)
        if count == 0:
            return -1
        for i in range(count):
            if write:
                if i % MAX_SLOTS == 0:
                    d.num[SHOWN] = 0
                write_state(s, d, i, state)
            hold = controlled_hold(s, d, i, address, constants, chain, due_s)
            if not 0.0 <= hold <= MAX_HOLD_S:
                d.hold_s[0] = hold
                return int(d.batch[i])
            d.hold_s[1 + i] = hold
            serve(s, d, i, hold)


@compiled
def next_batch(s: Static, fleet: Day, w: int) -> int:
    """Advance one world to its next moment."""
    return advance(s, row(fleet, w))


@compiled
def serve_batch(s: Static, fleet: Day, w: int, first: int, holds_s: F64) -> None:
    """Carry out the holds of part of a moment, in order."""
    d = row(fleet, w)
    for i in range(holds_s.shape[0]):
        serve(s, d, first + i, holds_s[i])


@compiled
def step_tokens(
    s: Static, fleet: Day, holds_s: F64, states: F32, costs: F64, over: npt.NDArray[np.bool_]
) -> int:
    """One token in every world: carry out its hold, show the next token's state.

    `costs` is the cost charged between the two tokens; worlds that are over stay as they are.
    Holds are checked before anything happens: the first world with a bad one, or -1.
    """
    for w in range(states.shape[0]):
        if not (0.0 <= holds_s[w] <= MAX_HOLD_S or over[w]):
            return w
    for w in range(states.shape[0]):
        if over[w]:
            costs[w] = 0.0
            continue
        d = row(fleet, w)
        token = d.num[TOKEN]
        d.hold_s[1 + token] = holds_s[w]
        costs[w] = 0.0
        serve(s, d, token, holds_s[w])
        token += 1
        if token >= d.num[BATCH]:
            if advance(s, d) == 0:
                costs[w] = d.num[COST]
                over[w] = True
                continue
            costs[w] = d.num[COST]
            token = 0
        elif token % MAX_SLOTS == 0:
            d.num[SHOWN] = 0
        d.num[TOKEN] = token
        write_state(s, d, token, states[w])
    return -1


@compiled
def first_tokens(s: Static, fleet: Day, w: int, states: F32, over: npt.NDArray[np.bool_]) -> None:
    """Bring a freshly begun world to its first token."""
    d = row(fleet, w)
    states[w] = 0.0
    for k in range(MAX_SLOTS):
        states[w, PREFIX + (k + 1) * SLOT - 1] = -1.0
    over[w] = advance(s, d) == 0
    if not over[w]:
        write_state(s, d, 0, states[w])
