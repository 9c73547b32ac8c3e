"""The state of a day in SUMO: who waits and rides, which buses stand where, what each decision
sees.

This module steps SUMO. After each step, a few calls look only at the buses that SUMO reports at
stops. Passenger counts are SUMO's own, read after every step, so the ledger is a sum over whole
seconds.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, service_stop_offsets
from evenline.city.model import City, Ints
from evenline.city.schedule import HOUR_S
from evenline.control.event import (
    Batch,
    Headways,
    headway_behind,
    new_headways,
    record_arrival,
    record_finish,
)
from evenline.control.ledger import Ledger
from evenline.control.operations import running_trips, start_late_s
from evenline.control.visits import Visit
from evenline.worlds.sumo.disrupted import Disrupted, come_back, get_out, ride_on
from evenline.worlds.sumo.runtime import libsumo, libsumo_functions
from evenline.worlds.sumo.scenario import route_id, type_id

_CHANGES = -1  # the leg of a passenger who has several, until we ask SUMO


@dataclass
class Tally(Ledger):
    """The sums of a day so far, without the current second."""

    now_s: int = 0  # the current or last step
    departed: int = 0
    completed: int = 0
    riding: int = 0  # now
    service_cost: int = 0  # the cost until the service ends
    teleports: int = 0
    denied: int = 0
    trips_completed: int = 0
    trip_duration_s: int = 0


@dataclass(slots=True)
class _AtStop:
    """A bus at a stop: the values that are fixed on arrival."""

    trip: int
    position: int
    arrival_s: int
    load: int
    alighting: int
    base_dwell_s: int
    waiting: int
    hold_s: float = 0.0


class Tables:
    """The facts of a city that all its days share, as lists and dictionaries."""

    def __init__(self, city: City) -> None:
        self.city = city
        self.service_end_s = city.service_end_s
        self.bus = [trip.id for trip in city.trips]
        self.trip_of = {bus: trip for trip, bus in enumerate(self.bus)}
        self.service = [trip.service for trip in city.trips]
        self.order = [(trip.service, i) for i, trip in enumerate(city.trips)]
        self.stops = [service.stops for service in city.services]
        self.first_stop: list[int] = service_stop_offsets(city).tolist()
        self.targets_s: list[list[float]] = np.transpose(city.headway_targets()).tolist()
        self.vehicle = [city.vehicle_of(trip) for trip in range(len(city.trips))]
        self.last_position = [len(city.services[t.service].stops) - 1 for t in city.trips]
        self.legs_end: list[int] = city.journeys.leg_start[1:].tolist()
        self.leg_of = _only_legs(city)
        self.alight: list[int] = city.journeys.leg_alight.tolist()
        self.accepted = _accepted_legs(city)
        self.slowness: list[list[float]] = [] if city.slowness is None else city.slowness.tolist()


class Day:
    """A running day."""

    def __init__(self, tables: Tables, cell: Cell) -> None:
        self.tally = Tally()
        self.visits: list[Visit] = []
        self.on_second: Callable[[int], None] | None = None  # called after every step
        self._t, city = tables, tables.city
        self._sumo = libsumo_functions()
        self._rates: list[list[float]] = arrival_rates(city, cell.demand).tolist()
        self._headways = Headways(*(column.tolist() for column in new_headways(city)))
        self._loads = [0] * len(city.trips)
        self._due: list[dict[int, int]] = [{} for _ in city.trips]  # by alighting stop
        self._at: dict[int, _AtStop] = {}
        self._standing: dict[str, int] = {}  # buses at a stop, with their trips
        self._moving = 0  # people on board all other buses
        self._asking: list[int] = []
        self._rows: list[tuple[float, ...]] = []
        self._onward: list[int] = running_trips(city, cell).onward.tolist()
        self._start_late_s: list[int] = start_late_s(city, cell).tolist()
        self._disrupted = Disrupted(city, cell) if city.operations.disruptions else None
        self._passing = [0] * len(city.trips)  # closed stops on the way to the next one
        self._stranded: dict[str, tuple[int, int]] = {}  # by person: the service and the stop
        self._pace: dict[int, float] = {}  # of the driver of each trip, in SUMO's speed factor
        self._out = 0  # people whose journey SUMO ends with the next step, because they got out
        self._walkers: list[tuple[str, range]] = []  # of them, back to the stop of their next leg
        self._back = 0  # people who return with the next step

    def advance(self) -> Batch | None:
        """Step SUMO until buses need a decision; return None at the horizon."""
        if self._asking:
            self._pass()
        self._asking, self._rows = [], []
        while self.tally.now_s < self._t.city.horizon_s:
            if self._disrupted is not None:
                self._disrupted.set_speeds(self.tally.now_s)
            self._sumo.simulation_step()
            self._look()
            if self.on_second is not None:
                self.on_second(self.tally.now_s)
            if self._asking:
                trips = np.array(self._asking, np.int32)
                return Batch(self.tally.now_s, trips, np.array(self._rows, float))
            self._pass()
        return None

    @property
    def left_s(self) -> Ints:
        """When each trip left its first stop, the horizon if not by then; -1 if it never came."""
        left = np.full(len(self._loads), -1, np.int32)
        left[[trip for trip, here in self._at.items() if here.position == 0]] = (
            self._t.city.horizon_s
        )
        for visit in self.visits:
            if visit.position == 0:
                left[visit.trip] = visit.departure_s
        return left

    def hold(self, trip: int, hold_s: float) -> None:
        """Add a hold to the dwell of a bus."""
        here = self._at[trip]
        here.hold_s = hold_s
        # SUMO counts a stop's duration from its start.
        duration_s = str(here.base_dwell_s + hold_s)
        self._sumo.vehicle_setStopParameter(self._t.bus[trip], 0, "duration", duration_s)

    def _pass(self) -> None:
        self.tally.advance(self._waiting(), self.tally.riding)
        self.tally.now_s += 1
        if self.tally.now_s == self._t.service_end_s:
            self.tally.service_cost = self.tally.cost

    def _look(self) -> None:
        """Record the changes of a step."""
        sumo, tally = self._sumo, self.tally
        tally.departed += sumo.simulation_getDepartedPersonNumber() - self._back
        tally.completed += sumo.simulation_getArrivedPersonNumber() - self._out
        self._return()
        tally.teleports += sumo.simulation_getStartingTeleportNumber()
        trips = [self._stopped(bus) for bus in sumo.simulation_getStopStartingVehiclesIDList()]
        tally.riding = self._moving + sum(map(sumo.vehicle_getPersonNumber, self._standing))
        for bus in sumo.simulation_getStopEndingVehiclesIDList():
            self._leave(bus)
        if trips:
            self._arrive(trips)

    def _waiting(self) -> int:
        return self.tally.departed - self.tally.completed - self.tally.riding

    def _stopped(self, bus: str) -> int:
        """Record that a bus stands at a stop from this step on; return its trip."""
        trip = self._standing[bus] = self._t.trip_of[bus]
        self._moving -= self._loads[trip]
        return trip

    def _arrive(self, trips: list[int]) -> None:
        """Record the arrivals of this step, and the events of the buses that need a decision.

        Buses at their last stop leave the running order before headways behind are measured.
        """
        h, last, now = self._headways, self._t.last_position, self.tally.now_s
        trips.sort(key=self._t.order.__getitem__)
        ahead = {trip: self._reach(trip) for trip in trips}
        for trip in trips:
            if h.position[trip] == last[trip]:
                record_finish(h, trip)
            elif self._disrupted and self._disrupted.breaks_down(trip, h.position[trip], now):
                del ahead[trip]
                record_finish(h, trip)
                self._break_down(trip, h.position[trip])
        for trip, gap in ahead.items():
            position = h.position[trip]
            here = self._at[trip] = self._observe(trip, position)
            if position < last[trip]:
                self._asking.append(trip)
                self._rows.append(self._raw(here, gap, headway_behind(h, trip, now)))
            else:
                self.tally.trips_completed += 1
                self.tally.trip_duration_s += now - h.visited_s[h.first_visit[trip]]

    def _reach(self, trip: int) -> int:
        """Record the arrival of a bus, and the closed stops that it has passed, as reached now;
        return the time since the previous arrival.
        """
        h, now, stops = self._headways, self.tally.now_s, self._t.stops[self._t.service[trip]]
        for _ in range(self._passing[trip]):
            record_arrival(h, trip, h.position[trip] + 1, now)
            self._let_out(trip, stops[h.position[trip]])
        self._passing[trip] = 0
        return record_arrival(h, trip, h.position[trip] + 1, now)

    def _observe(self, trip: int, position: int) -> _AtStop:
        """Count who will alight and who is waiting at the moment the bus stops.

        SUMO exchanges the first passenger within the step of the arrival, so a passenger who is
        already on board from this stop counts as still waiting.
        """
        service, load, vehicle = self._t.service[trip], self._loads[trip], self._t.vehicle[trip]
        stop = self._t.stops[service][position]
        boarded = max(self._sumo.vehicle_getPersonNumber(self._t.bus[trip]) - load, 0)
        alighting = self._due[trip].pop(stop, 0)
        waiting = boarded + self._eligible(service, stop)
        boarding = min(waiting, vehicle.capacity - load + alighting)
        dwell = vehicle.base_dwell_s(alighting + boarding)
        return _AtStop(trip, position, self.tally.now_s, load, alighting, dwell, waiting)

    def _eligible(self, service: int, stop: int) -> int:
        """People at the stop now whose leg this service can carry.

        SUMO lists first legs by road only, including people on board a bus there.
        """
        accepted = self._t.accepted.get((service, stop), {})
        sumo, count = self._sumo, 0
        if self._stranded:
            waiting = [p for p, where in self._stranded.items() if where == (service, stop)]
            count = sum(not sumo.person_getVehicle(person) for person in waiting)
            accepted = {p: legs for p, legs in accepted.items() if p not in self._stranded}
        if not accepted:
            return count
        people = sumo.edge_getLastStepPersonIDs(self._t.city.stops[stop].road)
        for person in filter(accepted.__contains__, people):
            if not sumo.person_getVehicle(person):
                legs = accepted[person]
                count += not legs or self._leg(person) in legs
        return count

    def _leg(self, person: str) -> int:
        """The current leg of a passenger; we ask SUMO only for passengers who change."""
        leg = self._t.leg_of[person]
        if leg != _CHANGES:
            return leg
        left = int(self._sumo.person_getRemainingStages(person))
        return self._t.legs_end[int(person[1:])] - left

    def _raw(self, here: _AtStop, ahead: int, behind: int) -> tuple[float, ...]:
        """The sixteen features, in the order of RAW_FEATURES."""
        trip, service, now = here.trip, self._t.service[here.trip], here.arrival_s
        rates = self._rates[self._t.first_stop[service] + here.position]
        return (
            service,
            here.position,
            now,
            max(ahead, 0),
            max(behind, 0),
            self._t.targets_s[trip][0],
            self._t.targets_s[trip][1],
            here.waiting,
            here.load,
            rates[min(now // RATE_BIN_S, len(rates) - 1)],
            here.base_dwell_s,
            ahead >= 0,
            behind >= 0,
            self._t.vehicle[trip].capacity,
            self._waiting(),
            self.tally.riding,
        )

    def _leave(self, bus: str) -> None:
        trip = self._standing.pop(bus)
        here, load = self._at.pop(trip), self._sumo.vehicle_getPersonNumber(bus)
        boarded = load - here.load + here.alighting
        self._loads[trip] = load
        self._moving += load
        if here.position == self._t.last_position[trip]:
            self._turn_round(self._onward[trip])
        else:
            if self._t.slowness:
                self._set_speed(trip, here.position)
            if self._disrupted:
                self._pass_closed(trip, here.position)
        if boarded > 0:
            self._note_boarded(trip, boarded)
        left_behind = 0
        if load >= self._t.vehicle[trip].capacity:
            service = self._t.service[trip]
            left_behind = self._eligible(service, self._t.stops[service][here.position])
        self.tally.denied += left_behind
        arrived = (trip, here.position, here.arrival_s, self.tally.now_s, here.load, here.alighting)
        exchange = (boarded, left_behind, here.base_dwell_s, here.hold_s)
        self.visits.append(Visit(*arrived, *exchange))

    def _set_speed(self, trip: int, position: int) -> None:
        """Let a bus drive to its next stop as the street's traffic does, which is not simulated;
        never faster than the street allows.
        """
        bus = self._t.bus[trip]
        if trip not in self._pace:
            self._pace[trip] = self._sumo.vehicle_getSpeedFactor(bus)
        hours = self._t.slowness[self._t.first_stop[self._t.service[trip]] + position]
        factor = hours[min(self.tally.now_s // HOUR_S, len(hours) - 1)]
        self._sumo.vehicle_setSpeedFactor(bus, min(self._pace[trip] / factor, 1.0))

    def _turn_round(self, after: int) -> None:
        """Let a vehicle begin its next trip, on time if it has rested by then."""
        if after < 0:
            return
        city, trip = self._t.city, self._t.city.trips[after]
        service = city.services[trip.service]
        ready = self.tally.now_s + city.operations.recovery_s
        at = max(trip.departure_s, ready)
        if self._start_late_s:
            at = max(at + self._start_late_s[after], self.tally.now_s + 1)
        libsumo().vehicle.add(
            trip.id, route_id(city, trip), type_id(trip.vehicle), str(at),
            departLane=str(city.stops[service.stops[0]].lane), departPos="stop", departSpeed="0",
            line=service.id,
        )  # fmt: skip

    # -- disruptions ----------------------------------------------------------------------------

    def _pass_closed(self, trip: int, position: int) -> None:
        """Take the closed stops from the way of a bus that leaves the stop before them."""
        assert self._disrupted is not None
        stops, now = self._t.stops[self._t.service[trip]], self.tally.now_s
        for stop in stops[position + 1 : -1]:
            if not self._disrupted.closed(stop, now):
                break
            libsumo().vehicle.replaceStop(self._t.bus[trip], 0, "")
            self._passing[trip] += 1

    def _let_out(self, trip: int, stop: int) -> None:
        """Let those out who wanted to get out at a closed stop that the bus has passed.

        A passenger who changes there returns to that stop with the next step.
        """
        if not self._due[trip].pop(stop, 0):
            return
        for person in self._sumo.vehicle_getPersonIDList(self._t.bus[trip]):
            leg = self._leg(person)
            if self._t.alight[leg] == stop:
                legs = self._legs_after(person, leg)
                self._out += 1
                self._loads[trip] -= 1
                self.tally.riding -= 1
                self.tally.completed += not legs
                get_out(person)
                if legs:
                    self._walkers.append((person, legs))

    def _break_down(self, trip: int, position: int) -> None:
        """Take a bus out of service: all get out and, unless they are there, wait for the next."""
        city, bus, service = self._t.city, self._t.bus[trip], self._t.service[trip]
        stop, load, now = self._t.stops[service][position], self._loads[trip], self.tally.now_s
        for person in self._sumo.vehicle_getPersonIDList(bus):
            leg = self._leg(person)
            legs, there = self._legs_after(person, leg), self._t.alight[leg] == stop
            get_out(person)
            self.tally.riding -= 1
            if not there:
                self._stranded[person] = (service, stop)
                ride_on(city, person, range(leg, legs.stop), (service,))
            elif legs:
                ride_on(city, person, legs)
            else:
                self.tally.completed += 1
                self._out += 1
        self._due[trip].clear()
        self._loads[trip] = 0
        del self._standing[bus]
        libsumo().vehicle.remove(bus)
        self.visits.append(Visit(trip, position, now, now, load, load, 0, 0, 0, 0.0))

    def _legs_after(self, person: str, leg: int) -> range:
        return range(leg + 1, self._t.legs_end[int(person[1:])])

    def _return(self) -> None:
        """Let those who walked back wait from the next step on; SUMO has just let them go."""
        self._out, self._back = 0, len(self._walkers)
        for person, legs in self._walkers:
            come_back(self._t.city, person, legs)
        self._walkers = []

    def _note_boarded(self, trip: int, boarded: int) -> None:
        """Count where the people who have just boarded will alight. SUMO lists them last."""
        due = self._due[trip]
        for person in self._sumo.vehicle_getPersonIDList(self._t.bus[trip])[-boarded:]:
            stop = self._t.alight[self._leg(person)]
            due[stop] = due.get(stop, 0) + 1
            self._stranded.pop(person, None)


def _only_legs(city: City) -> dict[str, int]:
    """The leg of each person who has only one. Most do, which saves asking SUMO."""
    bounds = city.journeys.leg_start.tolist()
    return {
        f"p{person}": first if last - first == 1 else _CHANGES
        for person, (first, last) in enumerate(pairwise(bounds))
    }


def _accepted_legs(city: City) -> dict[tuple[int, int], dict[str, tuple[int, ...]]]:
    """The passengers who may board a service at a stop; for those who change, on which leg."""
    journeys = city.journeys
    accepted: dict[tuple[int, int], dict[str, tuple[int, ...]]] = defaultdict(dict)
    boards, carriers = journeys.leg_board.tolist(), journeys.leg_carriers.tolist()
    for person, (first, last) in enumerate(pairwise(journeys.leg_start.tolist())):
        for leg in range(first, last):
            for service in journeys.carriers[carriers[leg]]:
                at, name = accepted[service, boards[leg]], f"p{person}"
                at[name] = (*at.get(name, ()), leg) if last - first > 1 else ()
    return dict(accepted)
