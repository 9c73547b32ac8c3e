"""The fast world once more, slow and plain: what the compiled kernel has to come to, to the second.

One object a person and a bus, lists for queues, a heap of arrivals, and two counts for every second
of the day. The people are those of `realise`; the random numbers and everything else are written
out here and share no code with the kernel.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from evenline.city.demand import Cell, realise
from evenline.city.model import City
from evenline.city.operations import Disruption
from evenline.control.event import Batch
from evenline.control.operations import cancelled_trips, driver_luck, start_late_s
from evenline.control.outcome import Outcome
from evenline.control.visits import Visit
from evenline.worlds.calibration import Calibration

BATCH = 16
RATE_S = 1800
HOUR_S, CYCLE_S, PHASE_S = 3600, 90, 10
MASK = 2**64 - 1
LAST_IN_LINE = 10**9  # of several who came in the same second


def bits(key: int, number: int) -> int:
    """Splitmix64 of a key and a number."""
    x = (key + number * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _lasts(disruption: Disruption, second: int) -> bool:
    ends = disruption.until_s
    return disruption.from_s <= second and (ends is None or second < ends)


def uniform(key: int, number: int) -> float:
    return (bits(key, number) >> 11) / 2**53


def quantile(table: Sequence[float], probability: float) -> float:
    """Between the two nearest of equally spaced quantiles, which are kept in single precision."""
    at = probability * (len(table) - 1)
    low = int(at)
    left, right = np.float32(table[low]), np.float32(table[low + 1])
    return float(left) + float(right - left) * (at - low)


@dataclass(frozen=True)
class Leg:
    number: int
    board: int
    alight: int
    carriers: tuple[int, ...]
    carriers_index: int


@dataclass(eq=False)
class Person:
    """Someone with the legs still to go; `since_s` is when the present wait began."""

    journey: int
    legs: list[Leg]
    since_s: int
    number: int  # in the order of joining a queue
    changing: bool = False

    def turn(self) -> tuple[int, int, bool, int]:
        """Who boards first: who came first; then, in one second, the same order for everybody."""
        return self.since_s, self.legs[0].carriers_index, self.changing, self.number


@dataclass(eq=False)
class Ride:
    """A leg for which a bus came; `alighted_s` is None as long as the bus has not got there."""

    person: Person
    leg: Leg
    trip: int
    since_s: int
    boarded_s: int
    alighted_s: int | None = None


@dataclass(eq=False)
class Bus:
    trip: int
    service: int
    pace: np.float32
    reached_s: list[int] = field(default_factory=list)
    riders: list[Ride] = field(default_factory=list)
    passes: int = 0  # closed stops on the way to the next one

    @property
    def position(self) -> int:
        return len(self.reached_s) - 1


class ReferenceWorld:
    """A city's day. See `evenline.control.world.World`."""

    def __init__(self, city: City, calibration: Calibration) -> None:
        self.city, self.calibration = city, calibration
        self.legs_of = [_legs(city, person) for person in range(len(city.journeys))]

    # -- the contract -----------------------------------------------------------------------------

    def reset(self, cell: Cell) -> Batch | None:
        city, horizon = self.city, self.city.horizon_s
        self.cell = cell
        self.waiting, self.riding = np.zeros(horizon, int), np.zeros(horizon, int)  # each second
        self.queue: dict[int, list[Person]] = {stop: [] for stop in range(len(city.stops))}
        self.joined = 0
        self.rides: list[Ride] = []
        self.visits: list[Visit] = []
        self.completed = self.decisions = self.simultaneous = self.holds_zero = 0
        self.hold_total_s = 0.0
        self.durations: list[int] = []
        self.charged_until_s, self.pre_control = 0, None
        self.token_cost = 0
        self.now = 0
        self.pending: list[Batch] = []
        people = realise(city, cell)
        self.departed = len(people.journey)
        for journey, at in zip(people.journey.tolist(), people.departure_s.tolist(), strict=True):
            self._wait(Person(journey, list(self.legs_of[journey]), at, 0))
        seed = np.random.SeedSequence([cell.sumo_seed, 0xFA57])
        self.key = int(seed.generate_state(1, np.uint64)[0]) >> 1
        self.running: list[list[Bus]] = [[] for _ in city.services]  # front to back
        self.last_s: dict[tuple[int, int], int] = {}
        self.arrivals: list[tuple[int, int, int]] = []
        self.not_run = set(np.flatnonzero(cancelled_trips(city, cell)).tolist())
        self.luck = driver_luck(city, cell)
        self.late_s = start_late_s(city, cell).tolist() or [0] * len(city.trips)
        self.buses = []
        for number, trip in enumerate(city.trips):
            pace = quantile(self.calibration.pace.tolist(), uniform(self.key, 2 * number + 1))
            self.buses.append(Bus(number, trip.service, np.float32(pace)))
            if number in self.not_run or self._earlier(number) is not None:
                continue
            start = max(trip.departure_s + self.calibration.start_delay_s + self.late_s[number], 0)
            heapq.heappush(self.arrivals, (start, trip.service, number))
        return self._advance()

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        batch = self.current
        assert batch is not None and len(holds_s) == len(batch.trips)
        for trip, row, hold in zip(batch.trips.tolist(), batch.raw, holds_s, strict=True):
            self._serve(self.buses[trip], int(row[10]), hold)
        return self._advance()

    def outcome(self) -> Outcome:
        assert self.now == self.city.horizon_s
        return Outcome(
            departed=self.departed,
            completed=self.completed,
            waiting_s=int(self.waiting.sum()),
            riding_s=int(self.riding.sum()),
            pre_control_cost=self.pre_control or 0,
            token_cost=self.token_cost,
            decisions=self.decisions,
            zero_duration_tokens=self.simultaneous,
            holds_zero=self.holds_zero,
            hold_total_s=self.hold_total_s,
            denied_boardings=sum(visit.left_behind for visit in self.visits),
            trips_completed=len(self.durations),
            trip_duration_total_s=sum(self.durations),
            service_cost=self._cost_until(max(trip.departure_s for trip in self.city.trips)),
            **self._begun(),
        )

    def _cost_until(self, end_s: int) -> int:
        return int(2 * self.waiting[:end_s].sum() + self.riding[:end_s].sum())

    def _begun(self) -> dict[str, int]:
        """In a city with duties: trips that began over a minute late, and those that did not."""
        if not self.city.operations.duties:
            return {}
        left = {v.trip: v.departure_s for v in self.visits if v.position == 0}
        late = sum(
            min(left[trip], self.city.horizon_s) > self.city.trips[trip].departure_s + 60
            for trip in left
        )
        lost = sum(not bus.reached_s for bus in self.buses)
        return {"late_departures": late, "lost_trips": lost}

    # -- time -------------------------------------------------------------------------------------

    def _advance(self) -> Batch | None:
        self.current = None
        if self.pending:
            self.charged = 0
        else:
            asking = self._next_moment()
            self._charge()
            raw = np.array([self._describe(bus, gap) for bus, gap in asking])
            trips = np.array([bus.trip for bus, _ in asking], np.int32)
            self.decisions += len(asking)
            self.simultaneous += max(0, len(asking) - 1)
            self.pending = [
                Batch(self.now, trips[i : i + BATCH], raw[i : i + BATCH])
                for i in range(0, len(asking), BATCH)
            ]
        if self.pending:
            self.current = self.pending.pop(0)
        return self.current

    def _next_moment(self) -> list[tuple[Bus, int | None]]:
        """The buses that ask, each with its gap to the last bus there; none at the horizon."""
        asking: list[tuple[Bus, int | None]] = []
        while not asking:
            if not self.arrivals or self.arrivals[0][0] >= self.city.horizon_s:
                self.now = self.city.horizon_s
                return []
            self.now = self.arrivals[0][0]
            while self.arrivals and self.arrivals[0][0] == self.now:
                bus = self.buses[heapq.heappop(self.arrivals)[2]]
                gap = self._arrive(bus)
                if self._broken(bus):
                    self._break_down(bus)
                elif bus.position == len(self.city.services[bus.service].stops) - 1:
                    self._finish(bus)
                else:
                    asking.append((bus, gap))
        return asking

    def _charge(self) -> None:
        """Two for a second of waiting, one for a second of riding, up to the present second."""
        passed = slice(self.charged_until_s, self.now)
        self.charged = int(2 * self.waiting[passed].sum() + self.riding[passed].sum())
        self.charged_until_s = self.now
        if self.pre_control is None:
            self.pre_control = self.charged
        else:
            self.token_cost += self.charged

    # -- buses ------------------------------------------------------------------------------------

    def _arrive(self, bus: Bus) -> int | None:
        """A bus that has passed closed stops counts as having been there at this second."""
        for _ in range(bus.passes):
            self._come_to_a_stop(bus)
            for ride in reversed(self._leaving(bus)):
                self._alight(bus, ride, self.now)
        bus.passes = 0
        return self._come_to_a_stop(bus)

    def _come_to_a_stop(self, bus: Bus) -> int | None:
        bus.reached_s.append(self.now)
        order = self.running[bus.service]
        if bus.position == 0:
            order.append(bus)
        place = order.index(bus)
        while place > 0 and order[place - 1].position < bus.position:
            order[place - 1], order[place] = order[place], order[place - 1]
            place -= 1
        before = self.last_s.get((bus.service, bus.position))
        self.last_s[bus.service, bus.position] = self.now
        return None if before is None else self.now - before

    def _today(self, kind: str) -> list[Disruption]:
        listed = self.city.operations.disruptions
        return [d for d in listed if d.kind == kind and d.day in (None, self.cell.sumo_seed)]

    def _broken(self, bus: Bus) -> bool:
        stops = self.city.services[bus.service].stops
        return bus.position < len(stops) - 1 and any(
            d.trip == bus.trip
            and d.from_s <= self.now
            and d.stop in (-1, *stops[: bus.position + 1])
            for d in self._today("breakdown")
        )

    def _break_down(self, bus: Bus) -> None:
        """Everyone gets out, and whoever is not there waits for another bus of the service."""
        self.running[bus.service].remove(bus)
        load = len(bus.riders)
        for ride in reversed(self._leaving(bus)):
            self._alight(bus, ride, self.now)
        for ride in sorted(bus.riders, key=lambda ride: ride.leg.number):
            person, left = ride.person, ride.leg
            self.riding[self.now :] -= 1
            self.rides.remove(ride)
            rest = Leg(left.number, self._stop(bus), left.alight, (bus.service,), LAST_IN_LINE)
            person.legs.insert(0, rest)
            person.since_s, person.changing = self.now, True
            self._wait(person)
        bus.riders.clear()
        self.visits.append(
            Visit(bus.trip, bus.position, self.now, self.now, load, load, 0, 0, 0, 0.0)
        )

    def _finish(self, bus: Bus) -> None:
        self.running[bus.service].remove(bus)
        self.durations.append(self.now - bus.reached_s[0])
        vehicle = self.city.vehicle_of(bus.trip)
        leaving = len(self._leaving(bus))
        base_s = math.ceil(max(vehicle.min_dwell_s, self._doors_s(bus, 0, leaving)))
        leaves = self._exchange(bus, base_s, 0)
        for number, trip in enumerate(self.city.trips):
            if number not in self.not_run and self._earlier(number) == bus.trip:
                delay = self.calibration.start_delay_s
                rested = max(leaves + self.city.operations.recovery_s + delay, self.now + 1)
                start = max(trip.departure_s + delay, rested) + self.late_s[number]
                start = max(start, self.now + 1)
                heapq.heappush(self.arrivals, (start, trip.service, number))

    def _earlier(self, number: int) -> int | None:
        """The trip that the vehicle of a trip runs before it, of those that run."""
        city, trip = self.city, self.city.trips[number]
        if not (city.operations.duties and trip.duty):
            return None
        before = [
            (other.departure_s, i)
            for i, other in enumerate(city.trips)
            if other.duty == trip.duty
            and i not in self.not_run
            and (other.departure_s, i) < (trip.departure_s, number)
        ]
        return max(before)[1] if before else None

    def _executed(self, bus: Bus, base_s: int, hold_s: float) -> float:
        """What becomes of a hold: read from the words of `Operations`, one at a time."""
        o, leaves = self.city.operations, self.now + base_s
        stops = self.city.services[bus.service].stops
        visit = bus.position + sum(
            len(self.city.services[trip.service].stops) for trip in self.city.trips[: bus.trip]
        )
        listed = {point.stop: point.max_hold_s for point in o.control_points}
        at = stops[bus.position]
        if at in listed:
            cap = listed[at]
        elif o.hold_at == "all" or (o.hold_at == "terminals" and bus.position == 0):
            cap = o.max_hold_s
        else:
            cap = None  # no control point
        vehicle = self.city.vehicle_of(bus.trip)
        if len(bus.riders) > o.most_load * vehicle.capacity:
            hold_s = 0.0
        due = None if self.city.due_s is None else int(self.city.due_s[visit])
        longest = cap or 0.0
        if due is not None and o.latest_s is not None:
            longest = max(0.0, min(longest, due + o.latest_s - leaves))
        hold_s = min(hold_s, longest)
        luck = self.luck[visit] if len(self.luck) else 1.0
        if luck < o.ignored_share:
            hold_s = 0.0
        elif luck < o.ignored_share + o.cut_share:
            hold_s *= (luck - o.ignored_share) / o.cut_share
        if o.round_s and hold_s > 0:
            nearest = math.floor((leaves + hold_s) / o.round_s + 0.5) * o.round_s
            hold_s = min(max(nearest - leaves, 0.0), longest)
        if cap is not None and due is not None and o.earliest_s is not None:
            hold_s = max(hold_s, due - o.earliest_s - leaves)
        return hold_s

    def _serve(self, bus: Bus, base_s: int, hold_s: float) -> None:
        hold_s = self._executed(bus, base_s, hold_s)
        self.hold_total_s += hold_s
        self.holds_zero += hold_s == 0
        leaves = self._exchange(bus, base_s, hold_s)
        stops, reaches = self.city.services[bus.service].stops, leaves
        for position in range(bus.position, len(stops) - 1):
            reaches += self._run(bus, position, reaches)
            shut = [d for d in self._today("closed") if d.stop == stops[position + 1]]
            if position + 1 == len(stops) - 1 or not any(_lasts(d, leaves) for d in shut):
                break
            bus.passes += 1
        heapq.heappush(self.arrivals, (reaches, bus.service, bus.trip))

    def _run(self, bus: Bus, position: int, leaves: int) -> int:
        """Whole seconds to the next stop. Single precision is what the tables are kept in."""
        fit, single = self.calibration, np.float32
        place = self._place(bus.service, position)
        hour = min(leaves // HOUR_S, fit.mean_s.shape[1] - 1)
        expected = single(fit.mean_s[place, hour]) + single(fit.pace_s[place]) * bus.pace
        expected += single(fit.phase_s[place, leaves % CYCLE_S // PHASE_S])
        noise = quantile(fit.noise_s[place].tolist(), self._luck(bus, position))
        run = (float(expected) + noise) * self._slowness(bus, position, leaves)
        return max(int(run + 0.5), int(fit.least_s[place]))

    def _slowness(self, bus: Bus, position: int, leaves: int) -> float:
        """The metres on a slow road take longer; the time is spread evenly over the metres."""
        service = self.city.services[bus.service]
        start, end = service.distance_m[position : position + 2]
        factor = 1.0
        for slow in self._today("slow"):
            road_starts, slow_m = 0.0, 0.0
            for name in service.roads:
                length = next(road.length_m for road in self.city.roads if road.id == name)
                if name == slow.road:
                    slow_m += max(min(end, road_starts + length) - max(start, road_starts), 0.0)
                road_starts += length
            if _lasts(slow, leaves):
                factor += slow_m / (end - start) * (slow.factor - 1.0)
        return factor

    def _luck(self, bus: Bus, position: int) -> float:
        """A run's own draw, or with the share `follow` the draw of the trip before."""
        lengths = [len(self.city.services[trip.service].stops) for trip in self.city.trips]
        numbers = [2 * (sum(lengths[:trip]) + position) for trip in range(len(lengths))]
        earlier = [t for t in range(bus.trip) if self.city.trips[t].service == bus.service]
        copied = bits(self.key, numbers[bus.trip]) % 2048 < round(2048 * self.calibration.follow)
        return uniform(self.key, numbers[earlier[-1] if copied and earlier else bus.trip])

    # -- people -----------------------------------------------------------------------------------

    def _exchange(self, bus: Bus, base_s: int, hold_s: float) -> int:
        """Let people on and off, one at a time through one door; the second the bus leaves.

        Whoever waits goes before whoever alights, as long as there is room. The first waits until
        the door is open. Everyone takes it for some time and, except for the very first, is through
        up to a second before it is free again, at a whole second. People who come before all this
        is done are let on as well, which takes longer; people who come during the hold are let on
        too, which does not.
        """
        arrived, vehicle = self.now, self.city.vehicle_of(bus.trip)
        load, boarded = len(bus.riders), 0
        opening, boards, alights = self._at_the_door(bus)
        leaving = self._leaving(bus)  # in order of boarding; the last on is the first off
        alighting = len(leaving)
        free, done = arrived + opening, arrived + math.ceil(vehicle.min_dwell_s)
        while True:
            at, first = max(arrived, math.ceil(free - 1)), self._first_in_line(bus, done)
            if first is not None and (first.since_s <= at or not leaving):
                at = max(at, first.since_s)
                self._board(bus, first, at)
                boarded += 1
                each = boards
            elif leaving:
                self._alight(bus, leaving.pop(), at)
                each = alights
            else:
                break
            free = (free if free > at - 1 else at) + each
            done = max(done, math.ceil(free))
        leaves = done + math.ceil(hold_s)
        while (first := self._first_in_line(bus, leaves)) is not None:
            at = max(arrived, math.ceil(free - 1), first.since_s)
            if at >= leaves:
                break
            self._board(bus, first, at)
            boarded += 1
            free = (free if free > at - 1 else at) + boards
        full = len(bus.riders) == vehicle.capacity
        behind = sum(full and person.since_s <= leaves for person in self._eligible(bus))
        self.visits.append(
            Visit(
                trip=bus.trip,
                position=bus.position,
                arrival_s=arrived,
                departure_s=leaves,
                load=load,
                alighted=alighting,
                boarded=boarded,
                left_behind=behind,
                base_dwell_s=base_s,
                hold_s=float(hold_s),
            )
        )
        return leaves

    def _at_the_door(self, bus: Bus) -> tuple[Fraction, Fraction, Fraction]:
        """Seconds to open, to board and to alight; crowding adds whole milliseconds, rounded down.

        Who is on board when the bus comes is in everybody's way.
        """
        vehicle = self.city.vehicle_of(bus.trip)
        boards, alights = vehicle.exchange_s_per_passenger, vehicle.alighting_s_per_passenger
        crowd = Fraction(str(vehicle.crowding_s_per_passenger)) * len(bus.riders)
        slower = Fraction(math.floor(1000 * crowd), 1000)
        alone = Fraction(boards), Fraction(boards if alights is None else alights)
        return Fraction(vehicle.opening_s), alone[0] + slower, alone[1] + slower

    def _doors_s(self, bus: Bus, boarding: int, alighting: int) -> Fraction:
        """How long the doors are in use."""
        opening, boards, alights = self._at_the_door(bus)
        return bool(boarding + alighting) * opening + boarding * boards + alighting * alights

    def _first_in_line(self, bus: Bus, before_s: int) -> Person | None:
        """Who may get on next, of those who come before a second; nobody if the bus is full."""
        capacity = self.city.vehicle_of(bus.trip).capacity
        assert len(bus.riders) <= capacity
        if len(bus.riders) == capacity:
            return None
        there = [person for person in self._eligible(bus) if person.since_s < before_s]
        return min(there, key=Person.turn, default=None)

    def _leaving(self, bus: Bus) -> list[Ride]:
        return [ride for ride in bus.riders if ride.leg.alight == self._stop(bus)]

    def _eligible(self, bus: Bus) -> list[Person]:
        """At the bus's stop, now or later, and able to use its service."""
        return [p for p in self.queue[self._stop(bus)] if bus.service in p.legs[0].carriers]

    def _wait(self, person: Person) -> None:
        self.joined += 1
        person.number = self.joined
        self.queue[person.legs[0].board].append(person)
        self.waiting[person.since_s :] += 1

    def _board(self, bus: Bus, person: Person, at: int) -> None:
        leg = person.legs.pop(0)
        self.queue[leg.board].remove(person)
        ride = Ride(person, leg, bus.trip, person.since_s, at)
        bus.riders.append(ride)
        self.rides.append(ride)
        self.waiting[at:] -= 1
        self.riding[at:] += 1

    def _alight(self, bus: Bus, ride: Ride, at: int) -> None:
        bus.riders.remove(ride)
        person, ride.alighted_s = ride.person, at
        self.riding[at:] -= 1
        if person.legs:
            person.since_s, person.changing = at, True
            self._wait(person)
        else:
            self.completed += at < self.city.horizon_s

    # -- what is known of a bus -------------------------------------------------------------------

    def _describe(self, bus: Bus, gap: int | None) -> list[float]:
        vehicle = self.city.vehicle_of(bus.trip)
        waiting = sum(p.since_s <= self.now for p in self._eligible(bus))
        alighting = len(self._leaving(bus))
        boarding = min(waiting, vehicle.capacity - len(bus.riders) + alighting)
        exchange = self._doors_s(bus, boarding, alighting)
        behind = self._behind(bus)
        return [
            bus.service,
            bus.position,
            self.now,
            gap or 0,
            behind or 0,
            *self._targets(bus.trip),
            waiting,
            len(bus.riders),
            self._rate(bus),
            math.ceil(max(vehicle.min_dwell_s, exchange)),
            gap is not None,
            behind is not None,
            vehicle.capacity,
            self.waiting[self.now],
            self.riding[self.now],
        ]

    def _behind(self, bus: Bus) -> int | None:
        """The gap at the follower's last stop, or the time since this bus was at its next one."""
        order = self.running[bus.service]
        place = order.index(bus)
        if place == len(order) - 1:
            return None
        follower = order[place + 1]
        at = follower.position
        gap = follower.reached_s[at] - bus.reached_s[at]
        if at < bus.position:
            gap = max(gap, self.now - bus.reached_s[at + 1])
        return gap

    def _targets(self, trip: int) -> tuple[int, int]:
        """The timetable's gap to the service's trip before, and to the one after."""
        service, at = self.city.trips[trip].service, self.city.trips[trip].departure_s
        others = [t.departure_s for t in self.city.trips if t.service == service]
        before, after = [s for s in others if s < at], [s for s in others if s > at]
        return at - max(before) if before else 0, min(after) - at if after else 0

    def _rate(self, bus: Bus) -> float:
        """People whose first leg begins here in this half hour, as planned, a second."""
        journeys = self.city.journeys
        return (
            sum(
                legs[0].board == self._stop(bus)
                and bus.service in legs[0].carriers
                and journeys.min_demand[person] <= self.cell.demand
                and journeys.departure_s[person] // RATE_S == self.now // RATE_S
                for person, legs in enumerate(self.legs_of)
            )
            / RATE_S
        )

    def _stop(self, bus: Bus) -> int:
        return self.city.services[bus.service].stops[bus.position]

    def _place(self, service: int, position: int) -> int:
        return sum(len(s.stops) for s in self.city.services[:service]) + position


def _legs(city: City, person: int) -> list[Leg]:
    journeys = city.journeys
    return [
        Leg(
            leg,
            int(journeys.leg_board[leg]),
            int(journeys.leg_alight[leg]),
            journeys.carriers[journeys.leg_carriers[leg]],
            int(journeys.leg_carriers[leg]),
        )
        for leg in range(journeys.leg_start[person], journeys.leg_start[person + 1])
    ]
