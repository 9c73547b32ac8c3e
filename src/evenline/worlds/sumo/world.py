"""The SUMO world: a microsimulation that pauses for holds when buses reach stops.

libsumo runs in this process, one world at a time. `day.Day` steps SUMO and records the changes;
`SumoWorld` turns it into a `World` with batches, costs and the outcome, and reports failures in one
line.

A moment has the number of its step: SUMO's `started="48"` is our 48.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from evenline.city.demand import Cell
from evenline.city.model import City, Ints, visit_offsets
from evenline.control.action import check_holds
from evenline.control.event import STOP, Batch, place
from evenline.control.operations import departures, driver_luck, executed_s, limits_of
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS
from evenline.control.visits import Visit
from evenline.support.errors import InputError, SimulatorError
from evenline.support.files import ScratchFolder
from evenline.worlds.sumo.day import Day, Tables
from evenline.worlds.sumo.errors import UNEXPLAINED, first_error, loading_error
from evenline.worlds.sumo.own_day import OwnDay, OwnTables
from evenline.worlds.sumo.runtime import libsumo
from evenline.worlds.sumo.scenario import write_scenario

_ERROR_LOG = "errors.txt"
_owner: "SumoWorld | None" = None  # libsumo can run one simulation per process


class SumoWorld:
    """A city's day in SUMO. See `evenline.control.world.World` for the contract.

    `outputs` are further SUMO options, such as `--tripinfo-output`; `max_batch` is the size of the
    largest batch; `on_second` is called after every second, also without a decision.
    """

    def __init__(
        self,
        city: City,
        outputs: Sequence[str] = (),
        max_batch: int = MAX_SLOTS,
        on_second: Callable[[int], None] | None = None,
    ) -> None:
        self.city = city
        self.outputs = tuple(outputs)
        self.on_second = on_second
        self.max_batch = max_batch
        self.charged = 0
        if city.own_buses and (city.operations.duties or city.operations.disrupted):
            raise InputError(
                f"{city.name}: its buses come with its SUMO scenario, which has no duties and no "
                "disruptions of ours; use the fast world"
            )
        if not all(vehicle.plain_doors for vehicle in city.vehicles):
            raise InputError(
                f"{city.name}: its buses have opening_s, alighting_s_per_passenger or "
                "crowding_s_per_passenger, which SUMO does not know; use the fast world"
            )
        self.executed_s = np.zeros(0)
        self.network_sha256 = ""  # of the file that SUMO read
        self._tables = OwnTables(city) if city.own_buses else Tables(city)
        self._limits, self._first_visit = limits_of(city), visit_offsets(city)
        self._luck = np.zeros(0)
        self._day: Day
        self._folder: ScratchFolder | None = None

    # -- the contract ---------------------------------------------------------------------------

    def reset(self, cell: Cell) -> Batch | None:
        self.close()
        self._begin(cell)
        return self._advance()

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        batch = self._current
        if batch is None:
            raise InputError("the day is over; call reset before the next step")
        holds = check_holds(holds_s, len(batch.trips), partial(place, self.city, batch))
        if len(self._limits.cap_s):
            visits = self._first_visit[batch.trips] + batch.raw[:, STOP].astype(int)
            asked = zip(visits.tolist(), batch.raw, holds, strict=True)
            holds = [executed_s(self._limits, v, raw, h, self._luck[v]) for v, raw, h in asked]
        self.executed_s = np.array(holds)
        for trip, hold in zip(batch.trips.tolist(), holds, strict=True):
            self._hold_total += hold
            if hold > 0.0:
                self._day.hold(trip, hold)
            else:
                self._holds_zero += 1
        return self._advance()

    def outcome(self) -> Outcome:
        tally = self._day.tally
        if tally.now_s < self.city.horizon_s:
            raise InputError(
                f"the day is not over ({tally.now_s} of {self.city.horizon_s} s); "
                "call step until it returns None"
            )
        duties = self.city.operations.duties
        begun = departures(self.city, self._day.left_s) if duties else None
        return Outcome(
            departed=tally.departed,
            completed=tally.completed,
            waiting_s=tally.waiting_s,
            riding_s=tally.riding_s,
            pre_control_cost=self._pre_control,
            token_cost=tally.charged - self._pre_control,
            decisions=self._decisions,
            zero_duration_tokens=self._zero_durations,
            holds_zero=self._holds_zero,
            hold_total_s=self._hold_total,
            denied_boardings=tally.denied,
            trips_completed=tally.trips_completed,
            trip_duration_total_s=tally.trip_duration_s,
            teleports=tally.teleports,
            late_departures=None if begun is None else begun.late,
            lost_trips=None if begun is None else begun.lost,
            service_cost=tally.service_cost,
        )

    @property
    def visits(self) -> list[Visit]:
        """The stop visits of the day so far."""
        return self._day.visits

    @property
    def left_s(self) -> Ints:
        """When each trip left its first stop, the horizon if not by then; -1 if it never came."""
        return self._day.left_s

    @property
    def now_s(self) -> int:
        """The seconds of the day simulated so far."""
        return self._day.tally.now_s

    def close(self) -> None:
        """End SUMO and remove its input files; outputs are complete afterwards."""
        global _owner
        if _owner is self:
            libsumo().close()
            _owner = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # -- one day --------------------------------------------------------------------------------

    def _begin(self, cell: Cell) -> None:
        global _owner
        check_alone()
        tables = self._tables
        self._day = OwnDay(tables, cell) if isinstance(tables, OwnTables) else Day(tables, cell)
        self._day.on_second = self.on_second
        self._luck = driver_luck(self.city, cell)
        self.charged = self._pre_control = 0
        self._decisions = self._zero_durations = self._holds_zero = 0
        self._hold_total = 0.0
        self._pending: list[Batch] = []
        self._current: Batch | None = None
        self._began = False
        self._folder = ScratchFolder()
        scenario = write_scenario(self.city, cell, Path(self._folder.name))
        self.network_sha256 = scenario.network
        try:
            log = str(scenario.folder / _ERROR_LOG)
            with silent():
                libsumo().start(["sumo", *scenario.options, "--error-log", log, *self.outputs])
        except Exception as error:
            self._fail(error, scenario.options)
        _owner = self

    def _advance(self) -> Batch | None:
        """Return the next batch: the rest of this moment, or the next moment with decisions."""
        if self._pending:
            self.charged = 0
            self._current = self._pending.pop(0)
            return self._current
        try:
            batch = self._day.advance()
        except Exception as error:
            self._fail(error)
        self.charged = self._day.tally.charge()
        if not self._began:
            self._began, self._pre_control = True, self.charged
        if batch is not None:
            self._decisions += len(batch.trips)
            self._zero_durations += len(batch.trips) - 1
            if len(batch.trips) > self.max_batch:
                batch, *self._pending = _parts(batch, self.max_batch)
        self._current = batch
        return batch

    def _fail(self, error: Exception, loading: Sequence[str] = ()) -> NoReturn:
        """Report a SUMO failure in one line, with the second and the reason, and close
        everything. `loading` is the options of a SUMO that did not start.
        """
        global _owner
        _owner = None
        with suppress(Exception):  # closing may fail too; report the first error
            libsumo().close()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = first_error(self.city, self._error_log() or lines[-1])
        if loading and reason in UNEXPLAINED:
            reason = first_error(self.city, loading_error(loading)) or reason
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        raise SimulatorError(f"SUMO stopped at {self.now_s} s of the day: {reason}") from error

    def _error_log(self) -> str:
        """The errors that SUMO printed; its exceptions often have no details."""
        path = Path(self._folder.name) / _ERROR_LOG if self._folder is not None else None
        return path.read_text().strip() if path is not None and path.exists() else ""

    def __enter__(self) -> "SumoWorld":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def check_alone() -> None:
    """Refuse to run two simulations in this process: the second would replace the first."""
    if _owner is not None:
        raise InputError(
            "another SUMO world is open in this process; close it, or use one process per world"
        )


@contextmanager
def silent() -> Iterator[None]:
    """Discard what SUMO prints: it prints an error that it also writes to its log."""
    with open(os.devnull, "wb") as nowhere:
        kept = os.dup(2)
        try:
            os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _parts(batch: Batch, width: int) -> list[Batch]:
    """Split a moment into consecutive batches of at most `width` buses."""
    return [
        Batch(batch.time_s, batch.trips[i : i + width], batch.raw[i : i + width])
        for i in range(0, len(batch.trips), width)
    ]
