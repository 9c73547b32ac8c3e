"""Looking ahead in the fast world: try holds from a moment of a day, on the same luck."""

from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S
from evenline.control.event import RATE, SERVICE, STOP, Array, Batch
from evenline.support.compiled import compiled, inlined
from evenline.worlds.fast import kernel as k
from evenline.worlds.fast import layout
from evenline.worlds.fast.world import Days

MIRROR, SCRATCH = 0, 1


def misfits(days: Days, batch: Batch) -> Array:
    """How far each demand level's arrival rates are from those that the events report."""
    times, service = days.static.times, batch.raw[:, SERVICE].astype(int)
    place = days.static.first_stop[service] + batch.raw[:, STOP].astype(int)
    rates = times[:, min(batch.time_s // RATE_BIN_S, times.shape[1] - 1), place, layout.RATE]
    return np.asarray(np.abs(rates - batch.raw[:, RATE]).sum(axis=1))


@compiled
def follow(s: layout.Static, fleet: layout.Day, now: int, trips: npt.NDArray[np.int32]) -> None:
    """Bring the mirror to a second in which these buses reach their next stops.

    Buses it expected before then are still under way in the other world, and put off second by
    second. At last stops, where nobody is asked, buses arrive as the mirror expects them.
    """
    d = layout.row(fleet, MIRROR)
    num, h = d.num, k.headways(d)
    while num[layout.NOW] < now:
        if num[layout.NOW] >= 0:
            num[layout.WAITING_S] += num[layout.WAITING_NOW]
            num[layout.RIDING_S] += num[layout.RIDING_NOW]
        num[layout.NOW] += 1
        at = num[layout.NOW]
        num[layout.WAITING_NOW] += d.second[at, layout.ADD_WAITING]
        num[layout.RIDING_NOW] += d.second[at, layout.ADD_RIDING]
        trip = d.second[at, layout.BUCKET]
        d.second[at, layout.BUCKET] = -1
        while trip >= 0:
            after = d.after[trip]
            ends = d.trip[trip, layout.POSITION] + 1 == d.trip[trip, layout.LAST]
            k.schedule(s, d, trip, at if ends else at + 1)
            trip = after
        if at < now and d.second[at, layout.BUCKET] >= 0:
            k.arrivals(s, d, h, at)
    for i in range(trips.shape[0]):
        _call_in(s, d, trips[i], now)
    num[layout.BATCH] = k.arrivals(s, d, h, now)
    d.second[now, layout.BUCKET] = -1


@inlined
def _call_in(s: layout.Static, d: layout.Day, trip: int, now: int) -> None:
    """Take a bus from the second it was expected in, and let it arrive now."""
    at = now
    while at < s.number[0]:
        before, other = -1, d.second[at, layout.BUCKET]
        while other >= 0 and other != trip:
            before, other = other, d.after[other]
        if other == trip:
            if before < 0:
                d.second[at, layout.BUCKET] = d.after[trip]
            else:
                d.after[before] = d.after[trip]
            break
        at += 1
    k.schedule(s, d, trip, now)


@compiled
def try_holds(
    s: layout.Static,
    fleet: layout.Day,
    i: int,
    until: int,
    address: int,
    constants: Array,
    chain: int,
    due_s: Array,
    tried_s: Array,
    costs: Array,
) -> None:
    """What the people's time costs until a second, for each hold of the i-th bus.

    The first hold is replaced by what the base rule would do.
    """
    d, e = layout.row(fleet, MIRROR), layout.row(fleet, SCRATCH)
    tried_s[0] = k.controlled_hold(s, d, i, address, constants, chain, due_s)
    for n in range(tried_s.shape[0]):
        _copy(d, e, d.num[layout.NOW], until)
        k.serve(s, e, i, tried_s[n])
        first, count = i + 1, e.num[layout.BATCH]
        while count:
            for j in range(first, count):
                k.serve(s, e, j, k.controlled_hold(s, e, j, address, constants, chain, due_s))
            first, count = 0, k.advance_until(s, e, until)
        costs[n] = 2.0 * e.num[layout.WAITING_S] + e.num[layout.RIDING_S]


@inlined
def _copy(d: layout.Day, e: layout.Day, now: int, until: int) -> None:
    """Make one world like another, as far as it matters until a second.

    Both were begun on the same cell, so that what only `begin_day` writes is there already.
    """
    _fill(e.num, d.num, 0, d.num.shape[0])
    _fill(e.hold_s, d.hold_s, 0, d.hold_s.shape[0])
    _fill(e.after, d.after, 0, d.after.shape[0])
    _fill(e.alighting, d.alighting, 0, d.alighting.shape[0])
    _fill(e.tail, d.tail, 0, d.tail.shape[0])
    k.copy_rows(e.second, d.second, now, until)
    k.copy_rows(e.trip, d.trip, 0, d.trip.shape[0])
    k.copy_rows(e.place, d.place, 0, d.place.shape[0])
    k.copy_rows(e.visit, d.visit, 0, d.visit.shape[0])
    k.copy_rows(e.rider, d.rider, 0, d.rider.shape[0])
    k.copy_rows(e.queue, d.queue, 0, d.queue.shape[0])
    for i in range(d.num[layout.BATCH]):
        e.batch[i] = d.batch[i]
        _fill(e.raw[i], d.raw[i], 0, 16)


@inlined
def _fill(to: npt.NDArray[Any], source: npt.NDArray[Any], low: int, high: int) -> None:
    """Copy part of an array, as `k.copy_rows` does of a table."""
    for i in range(low, high):
        to[i] = source[i]
