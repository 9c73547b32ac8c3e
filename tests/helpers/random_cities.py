"""Small cities at random, for worlds that need no streets: a few services over shared stops, a few
buses, crowds, changes; and running times that let buses bunch and overtake."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from evenline.city.demand import DEMAND_LEVELS, Cell, carrying
from evenline.city.model import City, Floats, Journeys, Node, Road, Service, Stop, Trip, Vehicle
from evenline.city.operations import HOLD_AT, ControlPoint, Disruption, Operations
from evenline.city.schedule import hours_of
from evenline.city.starts import RANKS
from evenline.worlds.calibration import Calibration

Legs = list[tuple[int, int, tuple[int, ...]]]  # board, alight, services that may carry
Draw = Any

HUB = Node("hub", 0.0, 0.0, signal=False)
LOOP_M = 300.0


@dataclass(frozen=True)
class Person:
    """Someone who may travel, from `min_demand` on."""

    departure_s: int
    legs: Legs
    min_demand: float = 1.0


def small_city(
    services: Sequence[Sequence[int]],
    trips: Sequence[tuple[int, int]],
    people: Sequence[Person] = (),
    horizon_s: int = 3600,
    vehicle: Vehicle | None = None,
    more_vehicles: Sequence[Vehicle] = (),
    bus_types: Sequence[int] = (0,),
) -> City:
    """A city of services given by their stops, and trips given by service and departure.

    The trips take the bus types in turn.

    Every stop is half way round a street that ends where it begins, so that a bus can serve stops
    in any order.
    """
    stops = 1 + max(stop for service in services for stop in service)
    count = [0] * len(services)
    timetable = []
    for (service, departure_s), kind in zip(trips, itertools.cycle(bus_types), strict=False):
        timetable.append(Trip(f"S{service}.{count[service]}", service, departure_s, kind))
        count[service] += 1
    return City(
        name="small",
        horizon_s=horizon_s,
        vehicle=vehicle or Vehicle(),
        nodes=(HUB,),
        roads=tuple(Road(f"r{i}", HUB.id, HUB.id, LOOP_M, bus_lane=False) for i in range(stops)),
        stops=tuple(Stop(f"s{i}", f"r{i}", LOOP_M / 2, 0.0, 0.0) for i in range(stops)),
        services=tuple(
            Service(
                f"S{i}",
                str(i),
                tuple(row),
                tuple(LOOP_M * (k + 0.5) for k in range(len(row))),
                tuple(f"r{stop}" for stop in row),
                LOOP_M * len(row),
            )
            for i, row in enumerate(services)
        ),
        trips=tuple(timetable),
        journeys=journeys_of(people),
        more_vehicles=tuple(more_vehicles),
    )


def journeys_of(people: Sequence[Person]) -> Journeys:
    """People as columns, in order of departure."""
    people = sorted(people, key=lambda person: person.departure_s)
    legs = [leg for person in people for leg in person.legs]
    sets = sorted({carriers for _, _, carriers in legs})
    return Journeys(
        departure_s=np.array([person.departure_s for person in people], np.int32),
        min_demand=np.array([person.min_demand for person in people], float),
        leg_start=np.cumsum([0, *(len(person.legs) for person in people)]).astype(np.int32),
        leg_board=np.array([board for board, _, _ in legs], np.int32),
        leg_alight=np.array([alight for _, alight, _ in legs], np.int32),
        leg_carriers=np.array([sets.index(carriers) for _, _, carriers in legs], np.int32),
        carriers=tuple(sets),
    )


def steady(city: City, run_s: int = 100, start_delay_s: int = 0) -> Calibration:
    """Every segment takes the same whole number of seconds, always."""
    places, hours = sum(len(s.stops) for s in city.services), -(-city.horizon_s // 3600)
    return Calibration(
        network="small",
        start_delay_s=start_delay_s,
        mean_s=np.full((places, hours), float(run_s)),
        pace_s=np.zeros(places),
        phase_s=np.zeros((places, 9)),
        noise_s=np.zeros((places, 2)),
        least_s=np.ones(places),
        pace=np.zeros(2),
        follow=0.0,
        sources={},
        residuals={},
    )


def restless(city: City, seed: int) -> Calibration:
    """Running times with all that the model has: hours, pace, signal cycle, noise, a least."""
    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    places, hours = sum(len(s.stops) for s in city.services), -(-city.horizon_s // 3600)
    return Calibration(
        network="small",
        start_delay_s=int(rng.integers(0, 40)),
        mean_s=rng.uniform(1, 90, (places, 1)) * rng.uniform(0.5, 1.5, (1, hours)),
        pace_s=rng.uniform(0, 120, places),
        phase_s=rng.uniform(-15, 15, (places, 9)),
        noise_s=np.sort(rng.uniform(-30, 40, (places, 5)), axis=1),
        least_s=rng.integers(1, 12, places).astype(float),
        pace=np.sort(rng.uniform(-0.6, 0.6, 4)),
        follow=float(rng.uniform(0, 0.5)),
        sources={},
        residuals={},
    )


@st.composite
def cities(draw: Draw, most_services: int = 4) -> City:
    """Services that share stops in either direction, crowds of one mind, and small buses."""
    horizon = draw(st.integers(300, 1500) | st.integers(3000, 8000))  # under and over an hour
    busy = draw(st.sampled_from([horizon // 3, horizon - 1]))  # what begins, begins until then
    pool = draw(st.integers(2, 4) | st.integers(2, 8))
    rows = st.lists(st.integers(0, pool - 1), min_size=2, max_size=6, unique=True)
    there_or_back = st.tuples(rows, st.booleans()).map(lambda r: sorted(r[0], reverse=r[1]))
    services = draw(st.lists(there_or_back, min_size=1, max_size=most_services))
    departures = st.lists(st.integers(0, busy), min_size=1, max_size=5, unique=True)
    trips = [(i, at) for i in range(len(services)) for at in sorted(draw(departures))]
    if draw(st.booleans()):
        trips.sort(key=lambda trip: trip[1])  # services mixed in the timetable
    buses = st.builds(
        Vehicle,
        capacity=st.integers(1, 6),
        min_dwell_s=st.integers(0, 15) | st.just(7.5),
        exchange_s_per_passenger=st.integers(1, 5) | st.sampled_from([0.25, 0.5, 1.75, 2.5]),
    )
    vehicle, *more = draw(st.lists(buses, min_size=1, max_size=3))
    types = draw(st.lists(st.integers(0, len(more)), min_size=1, max_size=5))
    groups = st.lists(crowds(services, busy), max_size=10)
    people = [person for group in draw(groups) for person in group][:60]
    return small_city(services, trips, people, horizon, vehicle, more, types)


@st.composite
def with_own_doors(draw: Draw, city: City) -> City:
    """The same city with doors that open slowly, let people off in other times, and are crowded."""
    quarter = st.integers(0, 40).map(lambda each: each / 4)
    kinds = tuple(
        replace(
            each,
            opening_s=draw(quarter),
            alighting_s_per_passenger=draw(st.none() | quarter),
            crowding_s_per_passenger=draw(st.sampled_from([0.0, 0.0137, 0.4, 2.5])),
        )
        for each in city.vehicles
    )
    return replace(city, vehicle=kinds[0], more_vehicles=kinds[1:])


@st.composite
def operated(draw: Draw, city: City) -> City:
    """The same city with a schedule, limits of holds, drivers, disruptions and duties."""
    lengths = [len(city.services[trip.service].stops) for trip in city.trips]
    steps = draw(st.integers(1, 120))
    due = [
        t.departure_s + steps * i
        for t, n in zip(city.trips, lengths, strict=True)
        for i in range(n)
    ]
    allowance = st.none() | st.integers(0, 200)
    ignored = draw(st.sampled_from([0.0, 0.3]))
    stops = st.integers(0, len(city.stops) - 1)
    points = draw(st.dictionaries(stops, st.sampled_from([0.0, 20.0, 60.0]), max_size=3))
    names = st.sampled_from(["", "a", "b"])
    operations = Operations(
        hold_at=draw(st.sampled_from(HOLD_AT)),
        max_hold_s=draw(st.sampled_from([0.0, 25.5, 60.0])),
        earliest_s=draw(allowance),
        latest_s=draw(allowance),
        most_load=draw(st.sampled_from([0.0, 0.5, 1.0])),
        ignored_share=ignored,
        cut_share=draw(st.sampled_from([0.0, 0.4])),
        round_s=draw(st.sampled_from([0.0, 30.0])),
        cancelled_share=draw(st.sampled_from([0.0, 0.2])),
        duties=draw(st.booleans()),
        recovery_s=draw(st.integers(0, 90)),
        starts_shared=draw(st.sampled_from([0.0, 0.5, 1.0])),
        control_points=tuple(ControlPoint(stop, cap) for stop, cap in points.items()),
        disruptions=tuple(draw(st.lists(disruptions(city), max_size=5))),
    )
    trips = tuple(replace(trip, duty=draw(names)) for trip in city.trips)
    return replace(
        city,
        trips=trips,
        due_s=np.array(due, np.int32),
        operations=operations,
        late_starts_s=draw(st.none() | uneven(city)),
    )


@st.composite
def uneven(draw: Draw, city: City) -> Floats:
    """Trips that start early or late, in any hour of any service."""
    shape = (len(city.services), hours_of(city), len(RANKS))
    seed = draw(st.integers(0, 2**32 - 1))
    return np.sort(np.random.default_rng(seed).integers(-60, 300, shape).astype(float), axis=2)


@st.composite
def disruptions(draw: Draw, city: City) -> Disruption:
    """Something that goes wrong, on every day or on one that nobody asks for."""
    kinds, middle = ["cancelled", "breakdown", "slow"], sorted({
        stop for service in city.services for stop in service.stops[1:-1]
    })  # fmt: skip
    kind = draw(st.sampled_from([*kinds, "closed", "closed"] if middle else kinds))
    begin = draw(st.integers(0, city.horizon_s))
    end = draw(st.none() | st.integers(begin + 1, 2 * city.horizon_s))
    day = draw(st.sampled_from([None, None, None, 2**31 - 2]))
    trip = draw(st.integers(0, len(city.trips) - 1))
    stops = city.services[city.trips[trip].service].stops
    if kind == "cancelled":
        return Disruption(kind, trip=trip, day=day)
    if kind == "breakdown":
        stop = draw(st.sampled_from([-1, *stops[:-1]]))
        return Disruption(kind, trip, stop, from_s=draw(st.sampled_from([0, begin])), day=day)
    if kind == "closed":
        return Disruption(kind, -1, draw(st.sampled_from(middle)), "", begin, end, day=day)
    road, factor = draw(st.sampled_from(city.roads)).id, draw(st.floats(1.0, 5.0))
    return Disruption(kind, -1, -1, road, begin, end, factor, day)


@st.composite
def crowds(draw: Draw, services: Sequence[Sequence[int]], last_s: int) -> list[Person]:
    """People on the same way, one every few seconds; many depart in the day's very first."""
    first, apart = draw(st.just(0) | st.integers(0, last_s)), draw(st.integers(0, 9))
    legs: Legs = []
    start = None
    for _ in range(draw(st.integers(1, 3))):
        options = [
            (row[i], row[j])
            for row in services
            for i in range(len(row))
            for j in range(i + 1, len(row))
            if start in (None, row[i])
        ]
        if not options:
            break
        board, start = draw(st.sampled_from(sorted(set(options))))
        lines = [Service("", "", tuple(row), (), (), 0.0) for row in services]
        every = carrying(lines, board, start)
        some = draw(st.sets(st.sampled_from(every), min_size=1))
        legs.append((board, start, draw(st.sampled_from([every, tuple(sorted(some))]))))
    least = draw(st.sampled_from([0.0, 0.75, 0.9, 1.0, 1.25]))
    size = draw(st.integers(1, 12) | st.integers(20, 30))
    return [Person(min(first + i * apart, last_s), legs, least) for i in range(size)]


@dataclass(frozen=True)
class Day:
    """A city, how its buses run, and a cell of it."""

    city: City
    calibration: Calibration
    cell: Cell


@st.composite
def cells(draw: Draw, city: City) -> Cell:
    """A cell the city's journeys can fill."""
    most = city.journeys.min_demand.max(initial=1.0)
    levels = [level for level in (*DEMAND_LEVELS, 0.0, 0.9) if level <= most]
    seeds = st.integers(0, 2**31 - 1)
    return Cell(draw(seeds), draw(seeds), draw(st.sampled_from(levels)))


@st.composite
def days(draw: Draw, most_services: int = 4) -> Day:
    city = draw(cities(most_services))
    calibration = restless(city, draw(st.integers(0, 999)))
    return Day(city, calibration, draw(cells(city)))


def holds() -> st.SearchStrategy[list[float]]:
    """A few holds, to be given out again and again: none, whole seconds, the cap and in between."""
    one = st.sampled_from([0.0, 1.0, 60.0]) | st.floats(0.0, 60.0)
    return st.lists(one, min_size=1, max_size=12)
