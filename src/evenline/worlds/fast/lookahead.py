"""Looking ahead in the fast world: what holds would cost, tried from a moment of a day.

A `Mirror` is a fast day that goes on by itself (`advance`) or follows another world, batch by
batch (`expects`, `bring`). At any of its moments `try_holds` runs the day on for each hold, on the
same passengers and the same luck, and leaves the mirror as it is.
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
    """A fast day of its own, in which holds can be tried before one is carried out."""

    def __init__(self, city: City, calibration: Calibration) -> None:
        self._days = Days(city, calibration, 2, keep_visits=False)
        self._begun = False

    @property
    def levels(self) -> tuple[float, ...]:
        """The demand levels that `misfits` compares."""
        return self._days.levels

    @property
    def moment(self) -> Batch:
        """The buses that ask for a hold now, as the mirror sees them."""
        return self._days.moment(MIRROR, 0, int(self._days.fleet.num[MIRROR].batch))

    def begin(self, cell: Cell) -> None:
        """Begin the day of a cell."""
        for world in (MIRROR, SCRATCH):
            self._days.begin(world, cell)
        self._begun = True

    def advance(self) -> Batch | None:
        """Let the day go on by itself to its next moment; None at the horizon."""
        return self.moment if k.next_batch(self._days.static, self._days.fleet, MIRROR) else None

    def expects(self, batch: Batch) -> bool:
        """Whether every bus is at the stop after the one the mirror last saw it at."""
        last = self._days.fleet.trip[MIRROR].position[batch.trips]
        return self._begun and bool((last + 1 == batch.raw[:, STOP]).all())

    def bring(self, batch: Batch) -> None:
        """Let time pass until the buses of another world's batch arrive."""
        _follow(self._days.static, self._days.fleet, batch.time_s, batch.trips)

    def serve(self, holds_s: Sequence[float] | Array, first: int = 0) -> None:
        """Carry out holds of the moment's buses, from the first-th on."""
        holds = np.asarray(holds_s, np.float64)
        k.serve_batch(self._days.static, self._days.fleet, MIRROR, first, holds)

    def base_hold_s(self, i: int, base: RulePolicy) -> float:
        """What the base policy would do with the i-th bus of the moment."""
        return float(
            _base_hold(
                self._days.static, self._days.fleet, i,
                base.rule.address, base.constants, base.chain, base.due_s,
            )
        )  # fmt: skip

    def try_holds(self, i: int, holds_s: Sequence[float], base: RulePolicy, until_s: int) -> Array:
        """The cost until a second if the i-th bus of the moment is held so long.

        Buses before it have been served; the base policy decides for all after it.
        """
        if not base.rule.compiled:
            raise InputError(f"rule {base.rule.name}: only a compiled rule can drive a look-ahead")
        holds, costs = np.array(holds_s), np.empty(len(holds_s))
        _try_holds(
            self._days.static, self._days.fleet, i, until_s,
            base.rule.address, base.constants, base.chain, base.due_s, holds, costs,
        )  # fmt: skip
        return costs

    def misfits(self, batch: Batch) -> Array:
        """How far each demand level's arrival rates are from those that the events report."""
        static, service = self._days.static, batch.raw[:, SERVICE].astype(int)
        place = static.first_stop[service] + batch.raw[:, STOP].astype(int)
        half_hour = min(batch.time_s // RATE_BIN_S, static.times.shape[1] - 1)
        rates = static.times.rate_per_s[:, half_hour, place]
        return np.asarray(np.abs(rates - batch.raw[:, RATE]).sum(axis=1))


@compiled
def _follow(s: Static, fleet: Day, now: int, trips: npt.NDArray[np.int32]) -> None:
    """Bring the mirror to a second in which these buses reach their next stops.

    Buses it expected before then are still under way in the other world, and put off second by
    second. At last stops, where nobody is asked, buses arrive as the mirror expects them.
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
    """Take a bus from the second it was expected in, and let it arrive now."""
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
    """What the people's time costs until a second, for each hold of the i-th bus."""
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
    """Make one world like another, as far as it matters until a second.

    Both were begun on the same cell, so that what only `begin_day` writes is there already.
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
