"""How a day lies in memory: the tables of the compiled kernel and the columns of their rows.

Values that are wanted together lie side by side. `Static` is what a city fixes, `Day` a day under
way; in a fleet every array of a `Day` has a row for each world, and `row` is one of them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.support.compiled import inlined

I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# Places in `Day.num`, the scalars of a world.
(
    NOW,
    WAITING_NOW,
    RIDING_NOW,
    WAITING_S,
    RIDING_S,
    CHARGED,
    COST,
    PRE_CONTROL,
    BEGAN,
    DEPARTED,
    COMPLETED,
    DECISIONS,
    ZERO_TOKENS,
    HOLDS_ZERO,
    DENIED,
    TRIPS_DONE,
    TRIP_SECONDS,
    BATCH,
    TOKEN,
    SHOWN,
    LEVEL,
    OVER,
) = range(22)
SCALARS = 22

PHASES = 9
PHASE_S = 10
CYCLE_S = 90
HOUR_S = 3600
COINS = 2048  # values of the bits that a fraction leaves

# Columns of tables whose values are wanted together. In a large city a decision costs what it
# brings in from memory, so a bus is one line of the cache, a place another, a visit a quarter.
GOAL, CLASS = range(2)  # of a leg: where one alights, and the queue one waits in
CARRIED, GOALS = range(2)  # of a class at a place: where its goals begin (of several carriers)
RATE, MEAN_S = range(2)  # of a place in a half hour: arrivals a second, running time
# Of a queue: the next, the first not yet counted; who changes; since when the next waits.
HEAD, SEEN, CHANGES, HEAD_S = range(4)
FIRST, VISITED, NOISE = range(3)  # of a visit: who changes, since when, noise in two halves
# Of someone in a queue: since when they wait, and in the last bits where they alight. That is a
# position, or with SEVERAL a number among the goals of the class at the place; with ONWARD the
# journey goes on from there, with the leg after this one.
WAITS, LEG = range(2)
GOAL_BITS = 12
ONWARD, SEVERAL = 1 << (GOAL_BITS - 1), 1 << (GOAL_BITS - 2)
NEVER_S = (2**31 - 1) >> GOAL_BITS  # since when the last of a queue waits, who is nobody
# Of the leg of someone who changes: the next in the list it is in, since when they wait for it,
# and where they alight from it; on board, how many boarded before them for the same stop.
NEXT, CHANGED, NUMBER = range(3)
BUCKET, ADD_WAITING, ADD_RIDING = range(3)  # of a second
# Of a trip; from LAST on nothing changes: last position, where visits and places begin, order of
# service and vehicle, the timetable's gaps, pace.
(
    LOAD, POSITION, REACHED, AHEAD, BEHIND,
    LAST, VISIT, PLACE, SERVICE, RANK, AHEAD_S, BEHIND_S, PACE,
) = range(13)  # fmt: skip
# Of a place; all but the latest arrival never change: its classes, of which two are at hand,
# seconds for one unit of pace, least running time, effect of each phase of the signal cycle.
LAST_S, CLASSES, MORE, ONE, OTHER, PACE_S, LEAST_S, PHASE = range(8)
LINE = 16  # numbers in a line of the cache
SOON = 8  # how many buses of a crowded moment ahead what they need is fetched


class Static(NamedTuple):
    """What a city and its calibration fix: shared by all worlds, never written."""

    number: I64  # horizon, capacity, shortest dwell, seconds an exchange, coins for a copied run
    trip: I32  # trip, (LOAD ... BEHIND_S) before its first arrival
    ranked: I32  # the trips in order of service and vehicle
    before: I32  # the trip before on the same service, or -1
    start_s: I32  # when each trip reaches its first stop
    first_stop: I32
    first_visit: I32
    place: I32  # place, (LAST_S ... PHASE and on) before the first arrival
    carried: I32  # class at a place, (CARRIED, GOALS)
    class_start: I32  # where a class's first legs begin
    entry_leg: I32
    entry_goal: I32
    entry_person: I32  # whose first leg it is
    entry_s: I32  # when they come, before the day's shift
    entry_demand: F64  # from which demand on
    leg: I32  # leg, (GOAL, CLASS)
    goal: I16  # alighting positions of a class with several carriers, for each of its places
    times: F64  # level, half hour, place, (RATE, MEAN_S)
    scale: F64  # of the canonical state
    noise: F32  # place, quantile
    pace: F32  # quantiles of a trip's pace


class Day(NamedTuple):
    """A day under way. In a fleet every array has one more axis, the world, in front."""

    num: I64
    hold_s: F64  # sum of holds, then the holds of the batch
    second: I32  # second, (BUCKET, ADD_WAITING, ADD_RIDING)
    after: I32  # the trip after this one in the second it is due
    trip: I32  # trip, (LOAD ... PACE)
    place: I32  # place, (LAST_S ... PHASE and on)
    visit: I32  # visit, (FIRST, VISITED, NOISE)
    alighting: I16  # how many on board leave at a visit
    rider: I32  # leg, (NEXT, CHANGED, NUMBER)
    entry: I32  # somebody who comes, (WAITS, LEG); a nobody at the end of each class
    queue: I32  # class, (HEAD, SEEN, CHANGES, HEAD_S)
    tail: I32
    ranks: U64  # a bit for each rank, and one for each word of them; all zero between moments
    words: U64
    batch: I32
    raw: F64
    visits: I32  # departure, load, alighted, boarded, left behind, base dwell; no rows if not kept
    visit_hold_s: F64
    ride: I32  # the visit at which a leg that has found a bus ends; no rows if visits are not kept


@inlined
def row(day: Day, w: int) -> Day:
    """One world of a fleet."""
    return Day(
        day.num[w], day.hold_s[w], day.second[w], day.after[w], day.trip[w], day.place[w],
        day.visit[w], day.alighting[w], day.rider[w], day.entry[w], day.queue[w], day.tail[w],
        day.ranks[w], day.words[w], day.batch[w], day.raw[w], day.visits[w], day.visit_hold_s[w],
        day.ride[w],
    )  # fmt: skip
