"""A day of a SUMO scenario with its own buses and people.

Buses that are not trips of the city are ignored. A stop lasts as long as the scenario states, and
we change it only to add a hold. People may walk to their stop, from it and between two buses; they
are passengers while they wait and ride.
"""

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.event import record_arrival
from evenline.worlds.sumo.carried import Ride, day_plans, plan_of
from evenline.worlds.sumo.day import Day, Tables, _AtStop


class OwnTables(Tables):
    """The facts of a scenario: buses and stops have SUMO's own names."""

    def __init__(self, city: City) -> None:
        super().__init__(city)
        assert city.carried is not None
        self.bus = [trip.source or trip.id for trip in city.trips]
        self.trip_of = {bus: trip for trip, bus in enumerate(self.bus)}
        self.halts = [stop.source or stop.id for stop in city.stops]
        self.begin_s = city.carried.begin_s

    def next_at(self, service: int, stop: int, halt: str) -> int | None:
        """The next stop of a service after a stop that lies at a halt: a loop visits one twice."""
        stops = self.stops[service]
        after = stops[stops.index(stop) + 1 :]
        return next((row for row in after if self.halts[row] == halt), None)


class OwnDay(Day):
    """A running day of a scenario."""

    def __init__(self, tables: OwnTables, cell: Cell) -> None:
        super().__init__(tables, cell)
        self._own = tables
        self._plans = day_plans(tables.city, cell)
        self._inside = 0  # people who wait or ride
        self._next: dict[str, int] = {}  # the ride that each person makes or walks to
        self._walking: dict[str, int] = {}  # with the stages that are left once they wait
        self._leaving: dict[str, int] = {}  # at their stop, with those left once they are out
        self._at_halt: dict[str, dict[str, Ride]] = {}  # waiting, or on a bus that stands
        self._aboard: dict[str, int] = {}  # the trip of each person on a bus that has left
        self._getting_off: list[dict[int, list[str]]] = [{} for _ in tables.city.trips]

    def _look(self) -> None:
        sumo, tally = self._sumo, self.tally
        tally.teleports += sumo.simulation_getStartingTeleportNumber()
        trips = []
        for bus in sumo.simulation_getStopStartingVehiclesIDList():
            trip = self._t.trip_of.get(bus)
            if trip is not None and self._reaches(trip, bus):
                trips.append(self._stopped(bus))
        self._follow_people()
        tally.riding = self._moving + sum(map(sumo.vehicle_getPersonNumber, self._standing))
        for bus in sumo.simulation_getStopEndingVehiclesIDList():
            if bus in self._standing:
                self._leave(bus)
        if trips:
            self._arrive(trips)

    def _waiting(self) -> int:
        return max(self._inside - self.tally.riding, 0)

    def _reaches(self, trip: int, bus: str) -> bool:
        """Whether a bus stands at one of the stops that lie before it; those that it left out on
        the way count as passed now.
        """
        halt = self._sumo.vehicle_getStopParameter(bus, 0, "busStop")
        stops, h = self._t.stops[self._t.service[trip]], self._headways
        ahead = [self._own.halts[stop] for stop in stops[h.position[trip] + 1 :]]
        if halt not in ahead:
            return False
        for _ in range(ahead.index(halt)):
            record_arrival(h, trip, h.position[trip] + 1, self.tally.now_s)
        stop = stops[h.position[trip] + 1]
        for person in self._getting_off[trip].pop(stop, ()):
            self._leaving[person] = self._ride(person).left - 1
        return True

    # -- people ---------------------------------------------------------------------------------

    def _ride(self, person: str) -> Ride:
        return plan_of(self._plans, person)[self._next[person]]

    def _follow_people(self) -> None:
        """Record who has begun to wait and who has got off."""
        sumo = self._sumo
        gone = set(sumo.simulation_getArrivedPersonIDList())
        for person in sumo.simulation_getDepartedPersonIDList():
            if plan := plan_of(self._plans, person):
                self._next[person] = 0
                self._walking[person] = plan[0].left
        for person in gone & self._aboard.keys():
            self._leaving[person] = 0
        for person in list(self._leaving):
            if self._left(person, gone) <= self._leaving[person]:
                self._get_off(person)
        for person in list(self._walking):
            if person in gone:
                del self._walking[person]
            elif self._left(person, gone) <= self._walking[person]:
                self._wait(person)

    def _left(self, person: str, gone: set[str]) -> int:
        """The stages of a person that are left, with the current one."""
        return 0 if person in gone else int(self._sumo.person_getRemainingStages(person))

    def _wait(self, person: str) -> None:
        del self._walking[person]
        self._inside += 1
        self.tally.departed += self._next[person] == 0
        ride = self._ride(person)
        self._at_halt.setdefault(self._own.halts[ride.board], {})[person] = ride

    def _get_off(self, person: str) -> None:
        del self._leaving[person]
        self._aboard.pop(person, None)
        self._inside -= 1
        plan = plan_of(self._plans, person)
        self._next[person] += 1
        if self._next[person] == len(plan):
            self.tally.completed += 1
            del self._next[person]
        else:
            self._walking[person] = self._ride(person).left

    def _eligible(self, service: int, stop: int) -> int:
        """People who wait at the stop now and whose ride this service can make from here."""
        in_vehicle, halts = self._sumo.person_getVehicle, self._own.halts
        return sum(
            service in ride.services
            and self._own.next_at(service, stop, halts[ride.alight]) is not None
            and not in_vehicle(person)
            for person, ride in self._at_halt.get(halts[stop], {}).items()
        )

    def _note_boarded(self, trip: int, boarded: int) -> None:
        """Note where the people who have just boarded will get off."""
        due, service, halts = self._due[trip], self._t.service[trip], self._own.halts
        here = self._t.stops[service][self._headways.position[trip]]
        for person in self._sumo.vehicle_getPersonIDList(self._t.bus[trip]):
            if person in self._aboard or person not in self._next:
                continue
            ride = self._ride(person)
            if self._at_halt.get(halts[ride.board], {}).pop(person, None) is not None:
                self._aboard[person] = trip
                stop = self._own.next_at(service, here, halts[ride.alight])
                if stop is not None:
                    due[stop] = due.get(stop, 0) + 1
                    self._getting_off[trip].setdefault(stop, []).append(person)

    # -- stops ----------------------------------------------------------------------------------

    def _observe(self, trip: int, position: int) -> _AtStop:
        """As on any day, but a bus stands at least as long as the scenario states."""
        here = super()._observe(trip, position)
        vehicle, asked = self._t.city.vehicle_of(trip), self._sumo.vehicle_getStopParameter
        bus, now_s = self._t.bus[trip], self._own.begin_s + self.tally.now_s
        boarding = min(here.waiting, vehicle.capacity - here.load + here.alighting)
        exchange_s = -(-vehicle.exchange_ms * (here.alighting + boarding) // 1000)
        duration_s, until_s = (float(asked(bus, 0, key)) for key in ("duration", "until"))
        here.base_dwell_s = max(1, exchange_s, round(duration_s), round(until_s) - now_s)
        return here
