"""The target world: a SUMO microsimulation, asked for holds when a bus reaches a stop.

libsumo runs in this process, one world at a time. Every step costs a handful of calls: Python
looks only at the buses that SUMO reports at stops. Passenger counts are SUMO's own, read after
every step, so the ledger is a sum over whole seconds.

A moment carries the number of its step: SUMO's `started="48"` is our 48.
"""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, realise
from evenline.city.model import City
from evenline.control.action import check_holds
from evenline.control.event import (
    RAW_FEATURES,
    Batch,
    headway_behind,
    new_headways,
    record_arrival,
    record_finish,
)
from evenline.control.ledger import Ledger
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS
from evenline.control.visits import Visit
from evenline.errors import InputError
from evenline.worlds.sumo.runtime import libsumo
from evenline.worlds.sumo.scenario import write_scenario

ERROR_LOG = "errors.txt"
_owner: "SumoWorld | None" = None  # libsumo is one per process, and so is whoever drives it


@dataclass
class _AtStop:
    """A bus standing at a stop: what is settled on arrival, and what SUMO last counted on board."""

    trip: int
    position: int
    arrival_s: int
    load: int
    alighting: int
    base_dwell_s: int
    on_board: int
    waiting: int
    hold_s: float = 0.0


class SumoWorld:
    """A city's day in SUMO. See `evenline.control.world.World` for the contract.

    `outputs` are further SUMO options, such as `--tripinfo-output`; `max_batch` is the widest
    batch handed out at once.
    """

    def __init__(self, city: City, outputs: Sequence[str] = (), max_batch: int = MAX_SLOTS) -> None:
        self.city = city
        self.outputs = tuple(outputs)
        self.max_batch = max_batch
        self.charged = 0
        self.visits: list[Visit] = []
        self._service_of = {service.id: i for i, service in enumerate(city.services)}
        self._trip_of = {trip.id: i for i, trip in enumerate(city.trips)}
        self._targets = city.headway_targets()
        legs = city.journeys.leg_start
        self._legs: list[tuple[int, int]] = [
            (first, last) for first, last in zip(legs[:-1].tolist(), legs[1:].tolist(), strict=True)
        ]
        # Most people have one leg; a look-up spares asking SUMO, several hundred thousand times.
        self._only_leg = {
            f"p{person}": first
            for person, (first, last) in enumerate(self._legs)
            if last - first == 1
        }
        self._board, self._alight = (
            city.journeys.leg_board.tolist(),
            city.journeys.leg_alight.tolist(),
        )
        self._carriers = city.journeys.leg_carriers.tolist()
        self._carries = [set(row) for row in city.journeys.carriers]
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    # -- the contract ---------------------------------------------------------------------------

    def reset(self, cell: Cell) -> Batch | None:
        self.close()
        self._begin(cell)
        return self._advance()

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        batch = self._current
        if batch is None:
            raise InputError("the day is over: reset the world before the next step")
        places = [
            (self.city.trips[t].id, self._stop_id(t, self._at[t].position)) for t in batch.trips
        ]
        for trip, hold in zip(batch.trips, check_holds(holds_s, places), strict=True):
            self._hold(int(trip), hold)
        return self._advance()

    def outcome(self) -> Outcome:
        if self._now < self.city.horizon_s:
            raise InputError(f"the day is not over: {self._now} of {self.city.horizon_s} s")
        return Outcome(
            departed=self._departed,
            completed=self._completed,
            waiting_s=self._ledger.waiting_s,
            riding_s=self._ledger.riding_s,
            pre_control_cost=self._pre_control,
            token_cost=self._ledger.charged - self._pre_control,
            decisions=self._decisions,
            zero_duration_tokens=self._zero_tokens,
            holds_zero=self._holds_zero,
            hold_total_s=self._hold_total,
            denied_boardings=sum(visit.left_behind for visit in self.visits),
            trips_completed=len(self._durations),
            trip_duration_total_s=sum(self._durations),
            teleports=self._teleports,
        )

    @property
    def now_s(self) -> int:
        """Seconds of the day already simulated."""
        return self._now

    def close(self) -> None:
        """End SUMO and drop its input files; outputs are complete afterwards."""
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
        if _owner is not None:
            raise InputError(
                "another SUMO world is open in this process: close it first, or use a process each"
            )
        self._people = realise(self.city, cell)
        self._rates = arrival_rates(self.city, cell.demand)
        self._headways = new_headways(self.city)
        self._ledger = Ledger()
        self.visits = []
        self.charged = self._pre_control = 0
        self._now = self._departed = self._completed = self._riding = self._teleports = 0
        self._decisions = self._zero_tokens = self._holds_zero = 0
        self._hold_total = 0.0
        self._durations: list[int] = []
        self._position: dict[str, int] = {}
        self._loads: dict[int, int] = {}
        self._at: dict[int, _AtStop] = {}
        self._counts: dict[str, int] = {}
        self._pending: list[Batch] = []
        self._current: Batch | None = None
        self._began = False
        self._folder = tempfile.TemporaryDirectory(prefix="evenline-")
        scenario = write_scenario(self.city, cell, Path(self._folder.name))
        try:
            log = str(scenario.folder / ERROR_LOG)
            libsumo().start(["sumo", *scenario.options, "--error-log", log, *self.outputs])
        except Exception as error:
            self._fail(error)
        _owner = self

    def _advance(self) -> Batch | None:
        """Hand out the next batch: the rest of this moment, or the next moment that has one."""
        if self._pending:
            self.charged = 0
            self._current = self._pending.pop(0)
            return self._current
        try:
            self._current = self._run_to_next_moment()
        except InputError:
            raise
        except Exception as error:
            self._fail(error)
        if not self._began:
            self._began, self._pre_control = True, self._ledger.charge()
            self.charged = self._pre_control
        else:
            self.charged = self._ledger.charge()
        return self._current

    def _fail(self, error: Exception) -> NoReturn:
        """SUMO has given up: say when and why in one line, and leave nothing open."""
        global _owner
        _owner = None
        with suppress(Exception):  # it may be past closing; the first error is the one to tell
            libsumo().close()
        said = str(error).strip().splitlines() or [type(error).__name__]
        reason = (self._error_log() or said[-1:])[0]
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        raise InputError(f"SUMO stopped at {self._now} s of the day: {reason}") from error

    def _error_log(self) -> list[str]:
        """What SUMO wrote of its errors; its exceptions often say only that there was one."""
        path = Path(self._folder.name) / ERROR_LOG if self._folder is not None else None
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        return [line.removeprefix("Error: ").strip() for line in lines if line.strip()]

    def _run_to_next_moment(self) -> Batch | None:
        api = libsumo()
        step, simulation = api.simulationStep, api.simulation
        starting = simulation.getStopStartingVehiclesIDList
        ending = simulation.getStopEndingVehiclesIDList
        departed, arrived = simulation.getDepartedPersonNumber, simulation.getArrivedPersonNumber
        on_board, teleports = api.vehicle.getPersonNumber, simulation.getStartingTeleportNumber
        ledger, counts, horizon = self._ledger, self._counts, self.city.horizon_s
        if self._began:  # the moment just decided lasts until the next step
            ledger.advance(self._departed - self._completed - self._riding, self._riding)
            self._now += 1
        while self._now < horizon:
            step()
            self._departed += departed()
            self._completed += arrived()
            self._teleports += teleports()
            started = starting()
            for bus in started:
                if bus in self._trip_of:
                    counts[bus] = self._loads.get(self._trip_of[bus], 0)
            for bus, before in counts.items():
                if (count := on_board(bus)) != before:
                    self._riding += count - before
                    counts[bus] = count
            for bus in ending():
                if bus in counts:
                    self._leave(bus)
            if started:
                batch = self._arrive([bus for bus in started if bus in counts])
                if batch is not None:
                    return batch
            ledger.advance(self._departed - self._completed - self._riding, self._riding)
            self._now += 1
        return None

    # -- arrivals and departures ----------------------------------------------------------------

    def _arrive(self, buses: Sequence[str]) -> Batch | None:
        """Note the arrivals of this step and make batches of those that ask for a hold."""
        trips = sorted(
            (self._trip_of[bus] for bus in buses),
            key=lambda trip: (self.city.trips[trip].service, trip),
        )
        gaps: dict[int, int] = {}
        for trip in trips:
            position = int(self._headways.position[trip]) + 1
            gaps[trip] = record_arrival(self._headways, trip, position, self._now)
            self._at[trip] = self._observe(trip, position)
        asking = []
        for trip in trips:
            service = self.city.services[self.city.trips[trip].service]
            if self._at[trip].position == len(service.stops) - 1:
                record_finish(self._headways, trip)
                first = int(self._headways.visited_s[self._headways.first_visit[trip]])
                self._durations.append(self._now - first)
            else:
                asking.append(trip)
        if not asking:
            return None
        raw = np.array([self._raw(trip, gaps[trip]) for trip in asking])
        width = self.max_batch
        batches = [
            Batch(self._now, np.array(asking[i : i + width], np.int32), raw[i : i + width])
            for i in range(0, len(asking), width)
        ]
        self._decisions += len(asking)
        self._zero_tokens += len(asking) - 1
        self._pending = batches[1:]
        return batches[0]

    def _observe(self, trip: int, position: int) -> _AtStop:
        """Who will alight and who is waiting, as of the moment the bus stopped.

        SUMO exchanges the first passenger within the step of the arrival, so whoever is already
        on board from this stop is counted as waiting still.
        """
        bus, stop = self.city.trips[trip].id, self._stop(trip, position)
        load = self._loads.get(trip, 0)
        staying = boarded = 0
        board, alight, only = self._board, self._alight, self._only_leg.get
        for person in libsumo().vehicle.getPersonIDList(bus):
            leg = only(person)
            if leg is None:
                leg = self._leg(person)
            if board[leg] == stop:
                boarded += 1
            elif alight[leg] != stop:
                staying += 1
        alighting = load - staying
        waiting = boarded + self._eligible(trip, position)
        vehicle = self.city.vehicle
        boarding = min(waiting, vehicle.capacity - staying)
        dwell = max(vehicle.min_dwell_s, vehicle.exchange_s_per_passenger * (alighting + boarding))
        return _AtStop(
            trip, position, self._now, load, alighting, dwell, self._counts[bus], waiting
        )

    def _eligible(self, trip: int, position: int) -> int:
        """People at the stop now whose leg this bus's service can carry.

        SUMO lists first legs under the road alone, and those on board a bus there as well.
        """
        service, stop = self.city.trips[trip].service, self._stop(trip, position)
        carries, carriers, board = self._carries, self._carriers, self._board
        vehicle_of, only = libsumo().person.getVehicle, self._only_leg.get
        count = 0
        for person in libsumo().edge.getLastStepPersonIDs(self.city.stops[stop].road):
            leg = only(person)
            if leg is None:
                leg = self._leg(person)
            if board[leg] == stop and service in carries[carriers[leg]]:
                count += not vehicle_of(person)
        return count

    def _leg(self, person: str) -> int:
        """The leg that someone who changes is on."""
        _, last = self._legs[int(person[1:])]
        return last - int(libsumo().person.getRemainingStages(person))

    def _raw(self, trip: int, gap: int) -> list[float]:
        """The sixteen features, in the order of RAW_FEATURES."""
        here, service = self._at[trip], self.city.trips[trip].service
        behind = int(headway_behind(self._headways, trip, self._now))
        place = int(self._headways.first_stop[service]) + here.position
        row = [
            service,
            here.position,
            self._now,
            max(gap, 0),
            max(behind, 0),
            self._targets[0][trip],
            self._targets[1][trip],
            here.waiting,
            here.load,
            self._rates[place, min(self._now // RATE_BIN_S, self._rates.shape[1] - 1)],
            here.base_dwell_s,
            gap >= 0,
            behind >= 0,
            self.city.vehicle.capacity,
            self._departed - self._completed - self._riding,
            self._riding,
        ]
        assert len(row) == len(RAW_FEATURES)
        return [float(value) for value in row]

    def _hold(self, trip: int, hold_s: float) -> None:
        """Add a hold to the base dwell. SUMO counts a stop's duration from its start."""
        here = self._at[trip]
        here.hold_s = hold_s
        self._hold_total += hold_s
        self._holds_zero += hold_s == 0.0
        if hold_s > 0.0:
            libsumo().vehicle.setStopParameter(
                self.city.trips[trip].id, 0, "duration", str(here.base_dwell_s + hold_s)
            )

    def _leave(self, bus: str) -> None:
        trip = self._trip_of[bus]
        here, load = self._at.pop(trip), self._counts.pop(bus)
        self._loads[trip] = load
        full = load >= self.city.vehicle.capacity
        self.visits.append(
            Visit(
                trip=trip,
                position=here.position,
                arrival_s=here.arrival_s,
                departure_s=self._now,
                load=here.load,
                alighted=here.alighting,
                boarded=load - here.load + here.alighting,
                left_behind=self._eligible(trip, here.position) if full else 0,
                base_dwell_s=here.base_dwell_s,
                hold_s=here.hold_s,
            )
        )

    def _stop(self, trip: int, position: int) -> int:
        return self.city.services[self.city.trips[trip].service].stops[position]

    def _stop_id(self, trip: int, position: int) -> str:
        return self.city.stops[self._stop(trip, position)].id

    def __enter__(self) -> "SumoWorld":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
