"""The fast world: the same contract as SUMO, thousands of times faster; alone or as a fleet.

`FastWorld` is a `World`. `run_day` runs a compiled rule inside the kernel. `Fleet` steps many days
together, one decision per world, for one batched policy call; its results do not depend on the
number of worlds.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.city.demand import (
    ABSENT_S,
    DEMAND_LEVELS,
    DEPARTURE_SHIFT_S,
    Cell,
    departure_shifts,
    drawn_from_pool,
)
from evenline.city.model import City
from evenline.control.action import NO_HOLD, check_holds
from evenline.control.event import Batch, place
from evenline.control.operations import departures, driver_luck, running_trips, start_late_s
from evenline.control.outcome import Outcome
from evenline.control.state import CANONICAL_WIDTH, MAX_SLOTS, PREFIX, SLOT
from evenline.control.visits import Visit
from evenline.control.world import Policy, run_episode
from evenline.rules.policy import RulePolicy
from evenline.support.errors import InputError
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast import kernel as k
from evenline.worlds.fast.layout import PASSED, plain
from evenline.worlds.fast.tables import disrupted_rows, new_fleet, static_tables

assert DEPARTURE_SHIFT_S < 600  # passengers stay nearly sorted, which the kernel's sort relies on
_NO_HOLDS = np.zeros(0)


class Days:
    """The days of one city: static tables and `worlds` worlds."""

    def __init__(
        self, city: City, calibration: Calibration, worlds: int, keep_visits: bool
    ) -> None:
        self.city, self.calibration = city, calibration
        self.levels: tuple[float, ...] = DEMAND_LEVELS
        self.static = static_tables(city, calibration, self.levels)
        self._shared = city.operations.duties
        disrupted = len(disrupted_rows(city, None))
        self.fleet = new_fleet(self.static, worlds, keep_visits, self._shared, disrupted)
        self._most = float(city.journeys.min_demand.max(initial=1.0))

    def begin(self, w: int, cell: Cell) -> None:
        """Start a cell in one of the worlds."""
        if cell.demand > max(1.0, self._most) + 1e-9:
            raise InputError(
                f"demand {cell.demand}: {self.city.name} has journeys up to demand {self._most:.2f}"
            )
        if cell.demand not in self.levels:
            self.levels = (*self.levels, cell.demand)
            self.static = static_tables(self.city, self.calibration, self.levels)
        running = running_trips(self.city, cell)
        self.fleet.luck[w] = driver_luck(self.city, cell)
        if self._shared:
            self.fleet.onward[w] = running.onward
        if self.fleet.disrupted.shape[1]:
            self.fleet.disrupted[w] = disrupted_rows(self.city, cell)
        key = int(np.random.SeedSequence([cell.sumo_seed, 0xFA57]).generate_state(1, np.uint64)[0])
        shifts, demand = departure_shifts(self.city, cell), cell.demand
        if (drawn := drawn_from_pool(self.city, cell)) is not None:
            shifts[~drawn], demand = ABSENT_S, np.inf
        k.begin_day(
            self.static,
            self.fleet,
            w,
            demand,
            shifts,
            key >> 1,
            self.levels.index(cell.demand),
            running.waits,
            start_late_s(self.city, cell),
        )

    def outcome(self, w: int) -> Outcome:
        """The outcome of a finished day."""
        row = self.fleet.num[w]
        num = SimpleNamespace(**{name: int(row[name]) for name in row.dtype.names})
        if not num.over:
            raise InputError(
                f"the day is not over ({num.now_s} of {self.city.horizon_s} s); "
                "call step until it returns None"
            )
        begun = departures(self.city, self.left_s(w)) if self._shared else None
        return Outcome(
            departed=num.departed,
            completed=num.completed,
            waiting_s=num.waiting_s,
            riding_s=num.riding_s,
            pre_control_cost=num.pre_control,
            token_cost=num.charged - num.pre_control,
            decisions=num.decisions,
            zero_duration_tokens=num.zero_durations,
            holds_zero=num.holds_zero,
            hold_total_s=float(self.fleet.hold_s[w, 0]),
            denied_boardings=num.denied,
            trips_completed=num.trips_done,
            trip_duration_total_s=num.trip_seconds,
            late_departures=None if begun is None else begun.late,
            lost_trips=None if begun is None else begun.lost,
            service_cost=num.service_cost,
        )

    def arrivals_s(self, w: int) -> npt.NDArray[np.int32]:
        """When each trip reached each of its stops, one entry per visit; -1 if it did not."""
        visit = self.fleet.visit[w]
        if not self.fleet.disrupted.shape[1]:
            return np.asarray(visit.visited_s)
        return np.where(visit.changing == PASSED, -1, np.maximum(visit.visited_s, -1))

    def left_s(self, w: int) -> npt.NDArray[np.int32]:
        """When each trip left its first stop, the horizon if not by then; -1 if it never came."""
        return np.asarray(np.minimum(self.fleet.left_s[w], self.city.horizon_s))

    def moment(self, w: int, first: int, end: int) -> Batch:
        """A part of a world's current moment."""
        fleet, part = self.fleet, slice(first, end)
        trips, raw = fleet.batch[w, part].copy(), fleet.raw[w, part].copy()
        return Batch(int(fleet.num[w].now_s), trips, raw)

    @property
    def shared_bytes(self) -> int:
        """Memory that all worlds share."""
        return sum(table.nbytes for table in self.static if isinstance(table, np.ndarray))

    @property
    def world_bytes(self) -> int:
        """Memory of each world."""
        return sum(table[0].nbytes for table in self.fleet)


class FastWorld:
    """A city's day in the fast simulator. See `evenline.control.world.World`."""

    def __init__(
        self,
        city: City,
        calibration: Calibration,
        keep_visits: bool = False,
        max_batch: int = MAX_SLOTS,
    ) -> None:
        self.city = city
        self.charged = 0
        self.max_batch = max_batch
        self._days = Days(city, calibration, 1, keep_visits)
        self.executed_s = np.zeros(0)
        self._first = self._shown = 0
        self._current: Batch | None = None
        self._state = np.zeros(CANONICAL_WIDTH, np.float32)
        self._state[PREFIX + SLOT - 1 :: SLOT] = NO_HOLD

    def reset(self, cell: Cell) -> Batch | None:
        self._days.begin(0, cell)
        return self._next_moment()

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        batch = self._current
        if batch is None:
            raise InputError("the day is over; call reset before the next step")
        values = check_holds(holds_s, len(batch.trips), partial(place, self.city, batch))
        holds = np.array(values)
        served = self._first + len(holds)
        self.executed_s = holds
        if served < self._shown:
            self._run(holds, goes_on=False)
            self._first, self.charged = served, 0
            return self._show()
        return self._next_moment(holds)

    def outcome(self) -> Outcome:
        return self._days.outcome(0)

    @property
    def all_bytes(self) -> int:
        """Memory of the world and of its city."""
        return self._days.shared_bytes + self._days.world_bytes

    @property
    def now_s(self) -> int:
        """The seconds of the day simulated so far."""
        return int(self._days.fleet.num[0].now_s)

    def run_day(self, cell: Cell, policy: Policy, write_states: bool = False) -> Outcome:
        """Run a whole day under a policy; a compiled rule runs inside the kernel."""
        if not (isinstance(policy, RulePolicy) and policy.rule.compiled):
            return run_episode(self, cell, policy)
        days = self._days
        self._current, self._first = None, 0
        days.begin(0, cell)
        bus = -1 - self._run(_NO_HOLDS, True, policy, write_states)
        if bus >= 0:
            stop = int(days.fleet.trip[0, bus].position)
            service = self.city.services[self.city.trips[bus].service]
            where = (self.city.trips[bus].id, self.city.stops[service.stops[stop]].id)
            check_holds([float(days.fleet.hold_s[0, 0])], 1, lambda _: where)
        return days.outcome(0)

    @property
    def arrivals_s(self) -> npt.NDArray[np.int32]:
        """When each trip reached each of its stops, one entry per visit; -1 if not yet."""
        return self._days.arrivals_s(0)

    @property
    def left_s(self) -> npt.NDArray[np.int32]:
        """When each trip left its first stop, the horizon if not by then; -1 if it never came."""
        return self._days.left_s(0)

    @property
    def visits(self) -> list[Visit]:
        """The stop visits of the day so far, if the world keeps them."""
        days, static = self._days, self._days.static
        arrived, table = self.arrivals_s, days.fleet.visits[0]
        holds = days.fleet.visit_hold_s[0]
        rows = []
        undecided = set(days.fleet.batch[0, self._first : self._shown].tolist())
        if self._current is None:
            undecided = set()
        for visit in np.flatnonzero(arrived[: len(table)] >= 0).tolist():
            trip = int(np.searchsorted(static.first_visit, visit, side="right")) - 1
            position = visit - int(static.first_visit[trip])
            if trip in undecided and position == days.fleet.trip[0, trip].position:
                continue
            row = (*table[visit].tolist(), float(holds[visit]))
            rows.append(Visit(trip, position, int(arrived[visit]), *row))
        return rows

    def _run(
        self,
        holds_s: npt.NDArray[np.float64],
        goes_on: bool,
        rule: RulePolicy | None = None,
        write: bool = False,
    ) -> int:
        """Apply holds, and go on to the next moment or, with a rule, to the end of the day."""
        decides = (0, _NO_HOLDS, 0, _NO_HOLDS)
        if rule is not None:
            decides = (rule.rule.address, rule.constants, rule.chain, rule.due_s)
        return int(
            k.run(
                self._days.static, self._days.fleet, 0, self._first, holds_s, goes_on,
                rule is not None, *decides, self._state, write,
            )
        )  # fmt: skip

    def _next_moment(self, holds_s: npt.NDArray[np.float64] = _NO_HOLDS) -> Batch | None:
        self._shown = self._run(holds_s, goes_on=True)
        self._first = 0
        self.charged = int(self._days.fleet.num[0].cost)
        if self._shown == 0:
            self._current = None
            return None
        return self._show()

    def _show(self) -> Batch:
        end = min(self._first + self.max_batch, self._shown)
        self._current = self._days.moment(0, self._first, end)
        return self._current


class Fleet:
    """Many days stepped together: `states` has the state of the next decision of each world.

        states = fleet.reset(cells)
        while not fleet.over.all():
            states = fleet.step(holds_s)  # one hold for each world; worlds that are over ignore it
            fleet.costs  # between the two decisions

    `executed_s` are the holds that happened in the last step; they differ from those asked for
    where the operations limit them or drivers do not obey.
    """

    def __init__(self, city: City, calibration: Calibration, worlds: int) -> None:
        self._days = Days(city, calibration, worlds, keep_visits=False)
        self.states = np.zeros((worlds, CANONICAL_WIDTH), np.float32)
        self.costs = np.zeros(worlds)
        self.executed_s = np.zeros(worlds)
        self.over = np.ones(worlds, bool)

    def __len__(self) -> int:
        return len(self.states)

    def reset(self, cells: Sequence[Cell]) -> npt.NDArray[np.float32]:
        """Start a day in every world."""
        if len(cells) != len(self):
            raise InputError(f"got {len(cells)} cells; the fleet has {len(self)} worlds")
        for w, cell in enumerate(cells):
            self.begin(w, cell)
        return self.states

    def begin(self, w: int, cell: Cell) -> None:
        """Start a new day in one world; the others continue."""
        self._days.begin(w, cell)
        k.first_decision(self._days.static, self._days.fleet, w, self.states, self.over)
        self.costs[w] = 0.0

    def step(self, holds_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Apply one hold in every world that is not over."""
        holds_s = np.array(holds_s, np.float64)
        if holds_s.shape != (len(self),):
            raise InputError(
                f"got holds of shape {holds_s.shape}; the fleet has {len(self)} worlds"
            )
        bad = k.step_decisions(
            self._days.static, self._days.fleet, holds_s, self.states, self.costs, self.over
        )
        if bad >= 0:
            raise InputError(f"world {bad}: hold {holds_s[bad]} s is not from 0 to 60 s")
        self.executed_s = holds_s
        return self.states

    @property
    def world_bytes(self) -> int:
        """Memory of each world, without shared memory."""
        return self._days.world_bytes

    @property
    def raw(self) -> npt.NDArray[np.float64]:
        """The raw event of each world's next decision, one row per world (stale if it is over)."""
        days = self._days.fleet
        return np.asarray(days.raw[np.arange(len(self)), days.num.decision])

    @property
    def trips(self) -> npt.NDArray[np.int32]:
        """The bus of each world's next decision (stale if it is over)."""
        days = self._days.fleet
        return np.asarray(days.batch[np.arange(len(self)), days.num.decision])

    def arrivals_s(self, w: int) -> npt.NDArray[np.int32]:
        """When each trip of a world reached each of its stops, one entry per visit; -1 if not
        yet.
        """
        return self._days.arrivals_s(w)

    def left_s(self, w: int) -> npt.NDArray[np.int32]:
        """When each trip of a world left its first stop, the horizon if not by then; -1 if it never
        came.
        """
        return self._days.left_s(w)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """All data that changes, as arrays with one row per world: enough to continue from."""
        days = plain(self._days.fleet)
        return {**days, "states": self.states, "costs": self.costs, "over": self.over}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from a snapshot of a fleet of the same size."""
        for name, values in self.snapshot().items():
            values[:] = arrays[name]

    def outcome(self, w: int) -> Outcome:
        """The outcome of a world whose day is over."""
        return self._days.outcome(w)
