"""Look-ahead in the fast world: try holds from a moment of a day and compare their costs.

A `Mirror` is a fast day that runs by itself (`advance`) or follows another world, batch by batch
(`expects`, `bring`). At any moment, `try_holds` continues the day for each hold, with the same
passengers and random numbers, and leaves the mirror unchanged.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S, Cell
from evenline.city.model import City
from evenline.control.event import RATE, SERVICE, STOP, Array, Batch
from evenline.control.ledger import cost_of
from evenline.rules.policy import RulePolicy
from evenline.support.compiled import compiled, copy_rows, inlined
from evenline.support.errors import InputError
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast import kernel as k
from evenline.worlds.fast.layout import Day, Static, row
from evenline.worlds.fast.world import Days

MIRROR, SCRATCH = 0, 1  # the day itself, and one to try holds in


class Mirror:
    """A separate fast day, in which holds can be tried before one is applied."""

    def __init__(self, city: City, calibration: Calibration) -> None:
        self._days = Days(city, calibration, 2, keep_visits=False)
        self._begun = False

    @property
    def levels(self) -> tuple[float, ...]:
        """The demand levels that `misfits` compares."""
        return self._days.levels

    @property
    def moment(self) -> Batch:
        """The buses that need a decision now, as the mirror sees them."""
        return self._days.moment(MIRROR, 0, int(self._days.fleet.num[MIRROR].batch))

    def begin(self, cell: Cell) -> None:
        """Start the day of a cell."""
        for world in (MIRROR, SCRATCH):
            self._days.begin(world, cell)
        self._begun = True

    def advance(self) -> Batch | None:
        """Run the day to its next moment; return None at the horizon."""
        return self.moment if k.next_batch(self._days.static, self._days.fleet, MIRROR) else None

    def expects(self, batch: Batch) -> bool:
        """Whether every bus is one stop after its last stop in the mirror."""
        last = self._days.fleet.trip[MIRROR].position[batch.trips]
        return self._begun and bool((last + 1 == batch.raw[:, STOP]).all())

    def bring(self, batch: Batch) -> None:
        """Let time pass until the buses of another world's batch arrive."""
        _follow(self._days.static, self._days.fleet, batch.time_s, batch.trips)

    def serve(self, holds_s: Sequence[float] | Array, first: int = 0) -> None:
        """Apply holds to the buses of the moment, starting with bus `first`."""
        holds = np.asarray(holds_s, np.float64)
        k.serve_batch(self._days.static, self._days.fleet, MIRROR, first, holds)

    def base_hold_s(self, i: int, base: RulePolicy) -> float:
        """The hold that the base policy would choose for the i-th bus of the moment."""
        return float(
            _base_hold(
                self._days.static, self._days.fleet, i,
                base.rule.address, base.constants, base.chain, base.due_s,
            )
        )  # fmt: skip

    def try_holds(self, i: int, holds_s: Sequence[float], base: RulePolicy, until_s: int) -> Array:
        """The cost until a given second for each hold of the i-th bus of the moment.

        The buses before it have been served; the base policy decides for all buses after it.
        """
        if not base.rule.compiled:
            raise InputError(
                f"rule {base.rule.name} is not compiled; a look-ahead needs a compiled rule"
            )
        holds, costs = np.array(holds_s), np.empty(len(holds_s))
        _try_holds(
            self._days.static, self._days.fleet, i, until_s,
            base.rule.address, base.constants, base.chain, base.due_s, holds, costs,
        )  # fmt: skip
        return costs

    def misfits(self, batch: Batch) -> Array:
        """How far the arrival rates of each demand level are from those of the events."""
        static, service = self._days.static, batch.raw[:, SERVICE].astype(int)
        place = static.first_stop[service] + batch.raw[:, STOP].astype(int)
        half_hour = min(batch.time_s // RATE_BIN_S, static.times.shape[1] - 1)
        rates = static.times.rate_per_s[:, half_hour, place]
        return np.asarray(np.abs(rates - batch.raw[:, RATE]).sum(axis=1))


@compiled
def _follow(s: Static, fleet: Day, now: int, trips: npt.NDArray[np.int32]) -> None:
    """Advance the mirror to a second in which these buses reach their next stops.

    Buses that it expected earlier are still moving in the other world, and are delayed second by
    second. At last stops, which need no decision, buses arrive when the mirror expects them.
    """
    d = row(fleet, MIRROR)
    num, h = d.num[0], k.headways(d)
    while num.now_s < now:
        if num.now_s >= 0:
            num.waiting_s += num.waiting_now
            num.riding_s += num.riding_now
        num.now_s += 1
        at = num.now_s
        second = d.second[at]
        num.waiting_now += second.add_waiting
        num.riding_now += second.add_riding
        trip = second.due
        second.due = -1
        while trip >= 0:
            after = d.after[trip]
            ends = d.trip[trip].position + 1 == d.trip[trip].last
            k.schedule(s, d, trip, at if ends else at + 1)
            trip = after
        if at < now and second.due >= 0:
            k.arrivals(s, d, h, at)
    for i in range(trips.shape[0]):
        _call_in(s, d, trips[i], now)
    num.batch = k.arrivals(s, d, h, now)
    d.second[now].due = -1


@inlined
def _call_in(s: Static, d: Day, trip: int, now: int) -> None:
    """Remove a bus from the second in which it was expected, and let it arrive now."""
    at = now
    while at < s.horizon_s:
        before, other = -1, d.second[at].due
        while other >= 0 and other != trip:
            before, other = other, d.after[other]
        if other == trip:
            if before < 0:
                d.second[at].due = d.after[trip]
            else:
                d.after[before] = d.after[trip]
            break
        at += 1
    k.schedule(s, d, trip, now)


@compiled
def _base_hold(
    s: Static, fleet: Day, i: int, address: int, constants: Array, chain: int, due_s: Array
) -> float:
    return k.controlled_hold(s, row(fleet, MIRROR), i, address, constants, chain, due_s)


@compiled
def _try_holds(
    s: Static,
    fleet: Day,
    i: int,
    until: int,
    address: int,
    constants: Array,
    chain: int,
    due_s: Array,
    holds_s: Array,
    costs: Array,
) -> None:
    """The passenger cost until a given second, for each hold of the i-th bus."""
    d, e = row(fleet, MIRROR), row(fleet, SCRATCH)
    for n in range(holds_s.shape[0]):
        _copy(d, e, d.num[0].now_s, until)
        k.serve(s, e, i, holds_s[n])
        first, count = i + 1, e.num[0].batch
        while count:
            for j in range(first, count):
                k.serve(s, e, j, k.controlled_hold(s, e, j, address, constants, chain, due_s))
            first, count = 0, k.advance_until(s, e, until)
        costs[n] = cost_of(e.num[0].waiting_s, e.num[0].riding_s)


@inlined
def _copy(d: Day, e: Day, now: int, until: int) -> None:
    """Copy one world to another, as far as it matters until a given second.

    Both were started on the same cell, so they share the data that only `begin_day` writes.
    """
    copy_rows(e.num, d.num, 0, 1)
    copy_rows(e.hold_s, d.hold_s, 0, d.hold_s.shape[0])
    copy_rows(e.after, d.after, 0, d.after.shape[0])
    copy_rows(e.alighting, d.alighting, 0, d.alighting.shape[0])
    copy_rows(e.tail, d.tail, 0, d.tail.shape[0])
    copy_rows(e.second, d.second, now, until)
    copy_rows(e.trip, d.trip, 0, d.trip.shape[0])
    copy_rows(e.place, d.place, 0, d.place.shape[0])
    copy_rows(e.visit, d.visit, 0, d.visit.shape[0])
    copy_rows(e.rider, d.rider, 0, d.rider.shape[0])
    copy_rows(e.queue, d.queue, 0, d.queue.shape[0])
    copy_rows(e.batch, d.batch, 0, d.num[0].batch)
    copy_rows(e.raw, d.raw, 0, d.num[0].batch)
