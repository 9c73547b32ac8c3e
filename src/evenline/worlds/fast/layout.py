"""The memory layout of a day: the tables of the compiled kernel and the fields of their rows.

Values that are used together are next to each other: in a large city, memory access dominates the
cost of a decision, so a bus takes one cache line, a place another, a visit a quarter. `Static` has
the data of a city, `Day` that of a running day. In a fleet every table of a `Day` has one row per
world, and `row` selects one world. No code outside this folder uses these tables.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.control.operations import Limits
from evenline.support.compiled import inlined
from evenline.worlds.calibration import PHASES

I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
U64 = npt.NDArray[np.uint64]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Rows = np.recarray[Any, Any]  # a table whose rows have named fields

LINE_BYTES = 64  # a cache line
COINS = 2048  # number of values of the bits that a fraction does not use
SOON = 8  # how many buses ahead we prefetch in a crowded moment

# The field `waits` contains the second since which a passenger waits and, in its last bits, where
# they alight. That is a position or, with SEVERAL, an index into the goals of the class at the
# place. With ONWARD, the journey continues from there with the next leg.
GOAL_BITS = 12
ONWARD, SEVERAL = 1 << (GOAL_BITS - 1), 1 << (GOAL_BITS - 2)
NEVER_S = (2**31 - 1) >> GOAL_BITS  # the sentinel at the end of a queue waits since this second
# In place of the arrival at a visit: the bus will pass the closed stop. In place of the passengers
# who change there: it has passed, and the arrival is that at the next stop.
PASSED = -2
BREAKS, SHUT, SLOWED = range(3)  # the kinds of DISRUPTED


def _record(*fields: tuple[str, str] | tuple[str, str, int]) -> np.dtype[np.void]:
    return np.dtype((np.record, np.dtype(list(fields), align=True)))


def _same(kind: str, names: str) -> list[tuple[str, str]]:
    """Several fields of one kind."""
    return [(name, kind) for name in names.split()]


# The scalars of a world. `shown` is 1 once the state of this part of the moment has been written.
NUM = _record(
    *_same("i8", "now_s waiting_now riding_now waiting_s riding_s charged cost pre_control began"),
    ("service_cost", "i8"),
    *_same("i8", "departed completed decisions zero_durations holds_zero denied"),
    *_same("i8", "trips_done trip_seconds batch decision shown level over"),
)
# A second: the first trip due in it (`Day.after` has the next), and the changes of the counts.
SECOND = _record(*_same("i4", "due add_waiting add_riding"))
# A trip. The fields from `last` on never change: last position, offsets of visits and places, rank
# by service and trip, target headways, pace, bus type.
TRIP = _record(
    *_same("i4", "load position reached_s ahead behind"),
    *_same("i4", "last first_visit first_place service rank target_ahead_s target_behind_s"),
    ("pace", "f4"),
    *_same("i4", "capacity min_dwell_s exchange_ms"),  # the last is for one person
)
# A place. Only the latest arrival changes. The other fields: how many classes its service can carry
# and their offset in `Static.carried`, the first two of them, seconds per unit of pace, least
# running time, effect of each phase of the signal cycle.
PLACE = _record(
    *_same("i4", "last_s classes first_class"),
    ("at_hand", "i4", 2),
    ("pace_s", "f4"),
    ("least_s", "i4"),
    ("phase_s", "f4", PHASES),
)
# A visit: the first passenger who changes there, the arrival, the noise of the next run.
VISIT = _record(*_same("i4", "changing visited_s"), ("noise_s", "f8"))
# The data of a visit for the stop-visit table.
KEPT = _record(*_same("i4", "departure_s load alighted boarded left_behind base_dwell_s"))
# The leg of a passenger who changes: the next leg in its list, since when they wait, and where they
# alight; on board, how many boarded before them for the same stop.
RIDER = _record(*_same("i4", "next changed_s number"))
ENTRY = _record(*_same("i4", "waits leg"))  # a passenger's first leg
# A queue: the head, the first not yet counted, those who change, since when the head waits.
QUEUE = _record(*_same("i4", "head seen changing head_s"))
LEG = _record(*_same("i4", "goal queue"))  # where the passenger alights, and the queue
CARRIED = _record(*_same("i4", "queue first_goal"))  # a class at a place; goals if several services
TIMES = _record(*_same("f8", "rate_per_s mean_s"))  # a place in a half hour: arrivals, running time
# A disruption: of a trip from a position on, or of a place with the share of its running time that
# is added. It lasts from one second until before another.
DISRUPTED = _record(*_same("i4", "kind which position from_s until_s"), ("extra", "f8"))


class Static(NamedTuple):
    """The data of a city and its calibration: shared by all worlds, never written."""

    horizon_s: int
    service_end_s: int
    follow_coins: int  # of COINS: how often a run copies the run of the previous trip
    trip: Rows  # TRIP before its first arrival
    ranked: I32  # the trips ordered by service and trip
    before: I32  # the previous trip of the same service, or -1
    start_s: I32  # when each trip reaches its first stop
    first_stop: I32
    first_visit: I32
    place: Rows  # PLACE before the first arrival
    carried: Rows  # CARRIED, the classes of each place
    class_start: I32  # offset of the first legs of a class
    entry_leg: I32
    entry_goal: I32
    entry_person: I32  # the passenger of a first leg
    entry_s: I32  # departure, before the day's shift
    entry_demand: F64  # lowest demand level at which they travel
    leg: Rows  # LEG
    goal: I16  # alighting positions of a class with several carriers, for each of its places
    times: Rows  # TIMES of level, half hour, place
    scale: F64  # of the canonical state
    noise: F32  # place, quantile
    pace: F32  # quantiles of a trip's pace
    limits: Limits  # what the operations allow of a hold
    recovery_s: int  # rest of a vehicle between two trips of its duty, and its way to the stop
    lateness: F32  # service, quantile: seconds after the timetable; no rows if always on time
    late_coins: int  # of COINS: how often a trip is as late as the previous trip
    made_up: F64  # place: what a run makes up of each second of a late start; or no rows
    close_s: float  # what a run takes longer right behind another bus
    close_within_s: float  # headways from which on another bus is not close
    jam_near: float  # what a bus has of the jam of the bus ahead
    jam_far: float
    segment: I32  # of each place: buses of several services may share it; no rows if none matters
    doors: I32  # trip: milliseconds to open, of one who alights, microseconds of crowding; or none
    again: I32  # the class of those whom a bus left at a place; no rows if none breaks down


class Day(NamedTuple):
    """A running day. In a fleet, every table has the world as an additional first axis."""

    num: Rows  # NUM, one row
    hold_s: F64  # sum of the holds that happened, then those that were asked for in the batch
    second: Rows  # SECOND
    after: I32  # the next trip due in the same second
    trip: Rows  # TRIP
    place: Rows  # PLACE
    visit: Rows  # VISIT
    alighting: I16  # how many people on board alight at a visit
    rider: Rows  # RIDER, one for each leg
    entry: Rows  # ENTRY; a sentinel at the end of each class
    queue: Rows  # QUEUE, one for each class
    tail: I32  # last bus of each service
    ranks: U64  # a bit for each rank, and one for each word of them; all zero between moments
    words: U64
    batch: I32
    raw: F64
    visits: Rows  # KEPT; no rows if visits are not kept
    visit_hold_s: F64
    ride: I32  # the visit at which a leg on board ends; no rows if nobody asks
    luck: F64  # what the driver makes of a hold, by visit; no rows if holds are not limited
    onward: I32  # the next trip of the vehicle; no rows if every trip has its own
    disrupted: Rows  # DISRUPTED; no rows if nothing is
    left_s: I32  # when each trip left its first stop; -1 before
    delayed_s: F32  # segment: by how much the last bus was, on any service; or no rows
    reached_s: I32  # when that bus reached the stop at its start; -1 before the first


@inlined
def row(day: Day, w: int) -> Day:
    """One world of a fleet."""
    return Day(
        day.num[w : w + 1],  # type: ignore[arg-type]  # compiled code returns no record
        day.hold_s[w], day.second[w], day.after[w], day.trip[w], day.place[w],
        day.visit[w], day.alighting[w], day.rider[w], day.entry[w], day.queue[w], day.tail[w],
        day.ranks[w], day.words[w], day.batch[w], day.raw[w], day.visits[w], day.visit_hold_s[w],
        day.ride[w], day.luck[w], day.onward[w], day.disrupted[w], day.left_s[w],
        day.delayed_s[w], day.reached_s[w],
    )  # fmt: skip


def plain(day: Day) -> dict[str, npt.NDArray[Any]]:
    """The tables as arrays of plain numbers, which any file can store; a view of the same
    memory.
    """

    def table(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if array.dtype.names is None:
            return array
        word = np.dtype(np.int64 if array.dtype == NUM else np.int32)
        words = array.dtype.itemsize // word.itemsize
        return np.asarray(array).view(word).reshape(*array.shape, words)

    return {name: table(array) for name, array in day._asdict().items()}
