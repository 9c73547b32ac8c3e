"""The target world: a SUMO microsimulation, asked for holds when a bus reaches a stop.

libsumo runs in this process, one world at a time. Every step costs a handful of calls: Python
looks only at the buses that SUMO reports at stops. Passenger counts are SUMO's own, read after
every step, so the ledger is a sum over whole seconds. SUMO's own work between two looks empties
the processor's caches, so what counts here is how few things a look touches.

A moment carries the number of its step: SUMO's `started="48"` is our 48.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, realise, service_stop_offsets
from evenline.city.model import City
from evenline.control.action import check_holds
from evenline.control.event import (
    Batch,
    Headways,
    headway_behind,
    new_headways,
    place,
    record_arrival,
    record_finish,
)
from evenline.control.ledger import Ledger
from evenline.control.outcome import Outcome
from evenline.control.state import MAX_SLOTS
from evenline.control.visits import Visit
from evenline.errors import InputError
from evenline.files import ScratchFolder
from evenline.worlds.sumo.runtime import libsumo, libsumo_functions
from evenline.worlds.sumo.scenario import write_scenario

ERROR_LOG = "errors.txt"
CHANGES = -1  # the leg of someone who has several, until SUMO is asked
_owner: "SumoWorld | None" = None  # libsumo is one per process, and so is whoever drives it


@dataclass(slots=True)
class _AtStop:
    """A bus standing at a stop: what is settled on arrival."""

    trip: int
    position: int
    arrival_s: int
    load: int
    alighting: int
    base_dwell_s: int
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
        self._bus = [trip.id for trip in city.trips]
        self._trip_of = {bus: trip for trip, bus in enumerate(self._bus)}
        self._service = [trip.service for trip in city.trips]
        self._order = [(trip.service, i) for i, trip in enumerate(city.trips)]
        self._stops = [service.stops for service in city.services]
        self._first_stop: list[int] = service_stop_offsets(city).tolist()
        self._targets_s: list[list[float]] = np.transpose(city.headway_targets()).tolist()
        self._last_position = [len(city.services[t.service].stops) - 1 for t in city.trips]
        self._legs_end: list[int] = city.journeys.leg_start[1:].tolist()
        self._leg_of = _only_legs(city)
        self._alight: list[int] = city.journeys.leg_alight.tolist()
        self._accepted = _accepted_legs(city)
        self._folder: ScratchFolder | None = None

    # -- the contract ---------------------------------------------------------------------------

    def reset(self, cell: Cell) -> Batch | None:
        self.close()
        self._begin(cell)
        return self._advance()

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        batch = self._current
        if batch is None:
            raise InputError("the day is over: reset the world before the next step")
        holds = check_holds(holds_s, len(batch.trips), partial(place, self.city, batch))
        for trip, hold in zip(batch.trips.tolist(), holds, strict=True):
            self._hold(trip, hold)
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
        self._rates: list[list[float]] = arrival_rates(self.city, cell.demand).tolist()
        self._headways = Headways(*(column.tolist() for column in new_headways(self.city)))
        self._ledger = Ledger()
        self.visits = []
        self.charged = self._pre_control = 0
        self._now = self._departed = self._completed = self._riding = self._teleports = 0
        self._decisions = self._zero_tokens = self._holds_zero = 0
        self._hold_total = 0.0
        self._durations: list[int] = []
        self._loads = [0] * len(self.city.trips)
        self._due: list[dict[int, int]] = [{} for _ in self.city.trips]  # by stop to alight at
        self._at: dict[int, _AtStop] = {}
        self._standing: dict[str, int] = {}  # buses at a stop, with their trips
        self._moving = 0  # people on board of all others
        self._pending: list[Batch] = []
        self._current: Batch | None = None
        self._began = False
        self._folder = ScratchFolder()
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
        step, sumo = libsumo().simulationStep, libsumo_functions()
        starting = sumo.simulation_getStopStartingVehiclesIDList
        ending = sumo.simulation_getStopEndingVehiclesIDList
        departed = sumo.simulation_getDepartedPersonNumber
        arrived = sumo.simulation_getArrivedPersonNumber
        teleports = sumo.simulation_getStartingTeleportNumber
        on_board = sumo.vehicle_getPersonNumber
        ledger, standing, horizon = self._ledger, self._standing, self.city.horizon_s
        if self._began:  # the moment just decided lasts until the next step
            ledger.advance(self._departed - self._completed - self._riding, self._riding)
            self._now += 1
        while self._now < horizon:
            step()
            self._departed += departed()
            self._completed += arrived()
            self._teleports += teleports()
            trips = [self._stopped(bus) for bus in started] if (started := starting()) else None
            self._riding = self._moving + sum(map(on_board, standing))
            for bus in ending():
                self._leave(bus)
            if trips and (batch := self._arrive(trips)) is not None:
                return batch
            ledger.advance(self._departed - self._completed - self._riding, self._riding)
            self._now += 1
        return None

    # -- arrivals and departures ----------------------------------------------------------------

    def _stopped(self, bus: str) -> int:
        """A bus stands at a stop from this step on; its trip."""
        trip = self._standing[bus] = self._trip_of[bus]
        self._moving -= self._loads[trip]
        return trip

    def _arrive(self, trips: list[int]) -> Batch | None:
        """Note the arrivals of this step and make batches of those that ask for a hold."""
        if len(trips) > 1:
            trips.sort(key=self._order.__getitem__)
        asking: list[int] = []
        rows = []
        for trip, ahead, behind in self._gaps(trips):
            position = self._headways.position[trip]
            here = self._at[trip] = self._observe(trip, position)
            if position < self._last_position[trip]:
                asking.append(trip)
                rows.append(self._raw(here, ahead, behind))
            else:
                first = self._headways.visited_s[self._headways.first_visit[trip]]
                self._durations.append(self._now - first)
        if not asking:
            return None
        self._decisions += len(asking)
        self._zero_tokens += len(asking) - 1
        batch = Batch(self._now, np.array(asking, np.int32), np.array(rows, float))
        if len(asking) <= self.max_batch:
            return batch
        batch, *self._pending = _parts(batch, self.max_batch)
        return batch

    def _gaps(self, trips: list[int]) -> list[tuple[int, int, int]]:
        """Each bus with the gaps ahead and behind, now that all have reached their next stops.

        Buses at their last stop leave the running order before anyone looks behind.
        """
        h, now = self._headways, self._now
        ahead = [record_arrival(h, trip, h.position[trip] + 1, now) for trip in trips]
        for trip in trips:
            if h.position[trip] == self._last_position[trip]:
                record_finish(h, trip)
        return [
            (trip, gap, headway_behind(h, trip, now))
            for trip, gap in zip(trips, ahead, strict=True)
        ]

    def _observe(self, trip: int, position: int) -> _AtStop:
        """Who will alight and who is waiting, as of the moment the bus stopped.

        SUMO exchanges the first passenger within the step of the arrival, so whoever is already
        on board from this stop is counted as waiting still.
        """
        service, load = self._service[trip], self._loads[trip]
        stop = self._stops[service][position]
        boarded = max(libsumo_functions().vehicle_getPersonNumber(self._bus[trip]) - load, 0)
        alighting = self._due[trip].pop(stop, 0)
        waiting = boarded + self._eligible(service, stop)
        vehicle = self.city.vehicle
        boarding = min(waiting, vehicle.capacity - load + alighting)
        dwell = max(vehicle.min_dwell_s, vehicle.exchange_s_per_passenger * (alighting + boarding))
        return _AtStop(trip, position, self._now, load, alighting, dwell, waiting)

    def _eligible(self, service: int, stop: int) -> int:
        """People at the stop now whose leg this service can carry.

        SUMO lists first legs under the road alone, and those on board a bus there as well.
        """
        accepted = self._accepted.get((service, stop))
        if accepted is None:
            return 0
        sumo, count = libsumo_functions(), 0
        people = sumo.edge_getLastStepPersonIDs(self.city.stops[stop].road)
        for person in filter(accepted.__contains__, people):
            if not sumo.person_getVehicle(person):
                legs = accepted[person]
                count += not legs or self._leg(person) in legs
        return count

    def _leg(self, person: str) -> int:
        """The leg that someone is on: known, but for those who change."""
        leg = self._leg_of[person]
        if leg != CHANGES:
            return leg
        return self._legs_end[int(person[1:])] - int(libsumo().person.getRemainingStages(person))

    def _raw(self, here: _AtStop, ahead: int, behind: int) -> tuple[float, ...]:
        """The sixteen features, in the order of RAW_FEATURES."""
        trip, service = here.trip, self._service[here.trip]
        rates = self._rates[self._first_stop[service] + here.position]
        return (
            service,
            here.position,
            self._now,
            max(ahead, 0),
            max(behind, 0),
            self._targets_s[trip][0],
            self._targets_s[trip][1],
            here.waiting,
            here.load,
            rates[min(self._now // RATE_BIN_S, len(rates) - 1)],
            here.base_dwell_s,
            ahead >= 0,
            behind >= 0,
            self.city.vehicle.capacity,
            self._departed - self._completed - self._riding,
            self._riding,
        )

    def _hold(self, trip: int, hold_s: float) -> None:
        """Add a hold to the base dwell. SUMO counts a stop's duration from its start."""
        here = self._at[trip]
        here.hold_s = hold_s
        self._hold_total += hold_s
        self._holds_zero += hold_s == 0.0
        if hold_s > 0.0:
            libsumo().vehicle.setStopParameter(
                self._bus[trip], 0, "duration", str(here.base_dwell_s + hold_s)
            )

    def _leave(self, bus: str) -> None:
        trip = self._standing.pop(bus)
        here, load = self._at.pop(trip), libsumo_functions().vehicle_getPersonNumber(bus)
        boarded = load - here.load + here.alighting
        self._loads[trip] = load
        self._moving += load
        if boarded:
            self._note_boarded(trip, boarded)
        left_behind = 0
        if load >= self.city.vehicle.capacity:
            service = self._service[trip]
            left_behind = self._eligible(service, self._stops[service][here.position])
        self.visits.append(
            Visit(
                trip,
                here.position,
                here.arrival_s,
                self._now,
                here.load,
                here.alighting,
                boarded,
                left_behind,
                here.base_dwell_s,
                here.hold_s,
            )
        )

    def _note_boarded(self, trip: int, boarded: int) -> None:
        """Count where the people who have just boarded will alight. SUMO lists them last."""
        due = self._due[trip]
        for person in libsumo_functions().vehicle_getPersonIDList(self._bus[trip])[-boarded:]:
            stop = self._alight[self._leg(person)]
            due[stop] = due.get(stop, 0) + 1

    def __enter__(self) -> "SumoWorld":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _only_legs(city: City) -> dict[str, int]:
    """The leg of each person who has one. Most have: it spares asking SUMO, all day long."""
    bounds = city.journeys.leg_start.tolist()
    return {
        f"p{person}": first if last - first == 1 else CHANGES
        for person, (first, last) in enumerate(pairwise(bounds))
    }


def _accepted_legs(city: City) -> dict[tuple[int, int], dict[str, tuple[int, ...]]]:
    """Who may board a service at a stop; for those who change, on which of their legs."""
    journeys = city.journeys
    accepted: dict[tuple[int, int], dict[str, tuple[int, ...]]] = defaultdict(dict)
    boards, carriers = journeys.leg_board.tolist(), journeys.leg_carriers.tolist()
    for person, (first, last) in enumerate(pairwise(journeys.leg_start.tolist())):
        for leg in range(first, last):
            for service in journeys.carriers[carriers[leg]]:
                at, name = accepted[service, boards[leg]], f"p{person}"
                at[name] = (*at.get(name, ()), leg) if last - first > 1 else ()
    return dict(accepted)


def _parts(batch: Batch, width: int) -> list[Batch]:
    """A moment as consecutive batches of at most so many buses."""
    return [
        Batch(batch.time_s, batch.trips[i : i + width], batch.raw[i : i + width])
        for i in range(0, len(batch.trips), width)
    ]
