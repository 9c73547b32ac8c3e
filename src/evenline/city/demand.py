"""Passengers: the journeys of an embedded city, and who departs when in a cell.

A cell is one simulated day: a block (one SUMO seed, one demand seed) at one demand level.
Departures move by at most 120 s; the shift depends on the passenger and the block, not on the
level, and a higher level contains all passengers of a lower one. A city from records has a pool of
people instead, from which each block draws its own.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from evenline.city.model import City, Floats, Ints, Journeys, Service, Trip, service_positions
from evenline.support.errors import InputError
from evenline.support.records import Seed

DEMAND_LEVELS = (0.75, 1.00, 1.25)
DEPARTURE_SHIFT_S = 120
RATE_BIN_S = 1800
ABSENT_S = 2**30  # in place of a shift: the passenger does not travel in this cell
AS_IMPORTED = 0  # the demand seed of a scenario's own people at their own times

CarriedLeg = tuple[int, int, tuple[int, ...]]  # from stop, to stop, the services that may carry it
Level = Annotated[float, Meta(ge=0.0, le=1_000.0)]  # of demand


@dataclass(frozen=True)
class Cell:
    """One day to simulate: a block (SUMO seed and demand seed) at a demand level."""

    sumo_seed: Seed
    demand_seed: Seed
    demand: Level = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.demand) and self.demand >= 0):
            raise InputError(f"demand {self.demand}: must be at least 0")
        for name, seed in (("SUMO", self.sumo_seed), ("demand", self.demand_seed)):
            if not 0 <= seed < 2**31:
                raise InputError(f"{name} seed {seed}: must be from 0 to 2147483647")

    @property
    def name(self) -> str:
        return f"{self.sumo_seed}-{self.demand_seed}-{self.demand:.2f}"


@dataclass(frozen=True, eq=False)
class Passengers:
    """Who departs in a cell, sorted by departure; `journey` points into the city's journeys."""

    journey: Ints
    departure_s: Ints


def realise(city: City, cell: Cell) -> Passengers:
    """The passengers of a cell with the second at which each starts to wait."""
    check_demand(city, cell.demand)
    journeys = city.journeys
    moved = np.clip(journeys.departure_s + departure_shifts(city, cell), 0, city.horizon_s - 1)
    if (drawn := drawn_from_pool(city, cell)) is None:
        drawn = journeys.min_demand <= cell.demand
    chosen = np.flatnonzero(drawn).astype(np.int32)
    order = np.argsort(moved[chosen], kind="stable")
    return Passengers(chosen[order], moved[chosen][order].astype(np.int32))


def check_demand(city: City, demand: float) -> None:
    """Refuse a demand level above the highest one that the city has journeys for."""
    most = max(1.0, float(city.journeys.min_demand.max(initial=0.0)))
    if demand > most + 1e-9:
        check_somebody(city)
        raise InputError(f"demand {demand}: {city.name} has journeys up to demand {most:.2f}")


def check_somebody(city: City) -> None:
    """Refuse a city without passengers."""
    if not len(city.journeys):
        raise InputError(
            f"nobody travels in {city.name}; add passengers with: evenline city people"
        )


def check_some_demand(demand: float) -> None:
    """Refuse a demand level at which no passenger travels."""
    if not demand > 0:  # also refuses NaN
        raise InputError(f"demand {demand}: no passenger travels at this level; choose one above 0")


def departure_shifts(city: City, cell: Cell) -> Ints:
    """The shift of each passenger's departure in a block, in whole seconds.

    A pool has random times already, so its people keep theirs.
    """
    if city.variation is not None or (city.own_buses and cell.demand_seed == AS_IMPORTED):
        return np.zeros(len(city.journeys), np.int32)
    rng = np.random.Generator(np.random.PCG64([cell.demand_seed, 0xDE9A]))
    uniform = rng.random(len(city.journeys))
    return np.rint((2 * uniform - 1) * DEPARTURE_SHIFT_S).astype(np.int32)


def drawn_from_pool(city: City, cell: Cell) -> npt.NDArray[np.bool_] | None:
    """Who of the pool travels in a cell; None in a city without a pool.

    A block draws a factor for the day and one for each route. Everyone travels with the same chance
    within a route, so that a day has `demand` times the typical number of people on average. A
    higher level contains the people of a lower one.
    """
    pool = city.variation
    if pool is None:
        return None
    rng = np.random.Generator(np.random.PCG64([cell.demand_seed, 0xDA15]))
    day = math.exp(pool.day_sd * rng.standard_normal() - pool.day_sd**2 / 2)
    routes = np.exp(pool.line_sd * rng.standard_normal(city.routes) - pool.line_sd**2 / 2)
    chance = (cell.demand / pool.days * day * routes).astype(np.float32)
    return np.asarray(rng.random(len(city.journeys), np.float32) < chance[city.first_routes])


def arrival_rates(city: City, demand: float) -> Floats:
    """Expected arrivals per second by service-stop and half hour.

    Row `first + i` is position `i` of a service, and `first` is the service's offset. Counts only
    first legs, at the given demand level, before the day's random shifts. A passenger counts for
    every service that may carry the leg.
    """
    bins = -(-city.horizon_s // RATE_BIN_S)
    first = service_stop_offsets(city)
    rates = np.zeros((int(first[-1]), bins))
    journeys = city.journeys
    present = np.flatnonzero(journeys.min_demand <= demand)
    legs = journeys.leg_start[present]
    slot = journeys.departure_s[present] // RATE_BIN_S
    position = service_positions(city.services)
    columns = (journeys.leg_board[legs], journeys.leg_carriers[legs], slot)
    counts = Counter(zip(*(column.tolist() for column in columns), strict=True))
    for (stop, carriers, at), count in counts.items():
        for service in journeys.carriers[carriers]:
            rates[first[service] + position[service, stop], at] += count / RATE_BIN_S
    return rates


def service_stop_offsets(city: City) -> Ints:
    """The offset of each service in the table of all service-stops."""
    return np.concatenate([[0], np.cumsum([len(s.stops) for s in city.services])]).astype(np.int32)


@dataclass(frozen=True)
class Hourly:
    """People set out by the clock: `factors` by hour, the last one going on until `until_s`.

    `boarding` weighs equal parts of the line, from the first stop to the last but one.
    """

    factors: tuple[float, ...]
    until_s: int
    boarding: tuple[float, ...]
    speed_mps: float = math.inf  # nobody sets out later because the stop is farther along

    def __post_init__(self) -> None:
        for factor in self.factors:
            if not (math.isfinite(factor) and factor >= 0):
                raise InputError(f"demand by hour: {factor} must be a number of at least 0")
        if self.until_s < 1:
            raise InputError(f"end of demand {self.until_s} s: must be at least 1")
        if not sum(self.factors[: -(-self.until_s // 3600)]) > 0:
            raise InputError(f"demand by hour: nobody sets out before {self.until_s:,} s")

    @property
    def last_s(self) -> float:
        """The latest time that the profile names; it must lie within the day."""
        return self.until_s

    def clock(self, departures: Sequence[int]) -> tuple[Floats, Floats]:
        """Inverse-transform table of the times at which people set out, for any service."""
        hours = 3600.0 * np.arange(len(self.factors))
        edges = np.append(hours[hours < self.until_s], self.until_s)
        mass = np.diff(edges) * np.array(self.factors[: len(edges) - 1])
        return edges, np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])

    def board(self, count: int, rng: np.random.Generator) -> int:
        """Draw a boarding position on a service with `count` stops."""
        reached = np.concatenate([[0.0], np.cumsum(self.boarding)])
        share = np.interp(rng.random(), reached / reached[-1], np.linspace(0, 1, len(reached)))
        return min(int(share * (count - 1)), count - 2)


@dataclass(frozen=True)
class Peaks:
    """Demand with peaks (centre_s, width_s, height) over a floor, timed at the first stop.

    It begins shortly before the first bus of a service and ends `tail_s` after the last one.
    Farther along the line people set out later, at the speed of a bus.
    """

    floor: float
    peaks: tuple[tuple[float, float, float], ...]
    tail_s: float = 0.0
    tail_intensity: float = 0.0
    speed_mps: float = math.inf

    @property
    def last_s(self) -> float:
        """The latest time that the profile names; it must lie within the day."""
        return max(centre_s for centre_s, _, _ in self.peaks)

    def intensity(self, clock_s: Floats) -> Floats:
        """Relative demand at a time of day."""
        peaks = [h * np.exp(-(((clock_s - c) / w) ** 2)) for c, w, h in self.peaks]
        return np.asarray(sum(peaks, np.full_like(clock_s, self.floor)))

    def clock(self, departures: Sequence[int]) -> tuple[Floats, Floats]:
        """Inverse-transform table of the times at which people set out for a service."""
        gap = (departures[-1] - departures[0]) / max(1, len(departures) - 1)
        clock = np.arange(departures[0] - 0.8 * gap, departures[-1] + self.tail_s, 10.0)
        density = self.intensity(clock)
        density[clock > departures[-1]] *= self.tail_intensity
        cumulative = np.cumsum(density)
        return clock, (cumulative - cumulative[0]) / (cumulative[-1] - cumulative[0])

    def board(self, count: int, rng: np.random.Generator) -> int:
        """Draw a boarding position, mostly in the middle of the line and never its last stop."""
        centre = 0.5 * (rng.random() + rng.random())
        return min(int(centre * 0.9 * count * 0.95), count - 2)


@dataclass(frozen=True)
class DemandPlan:
    """How passengers use an embedded city."""

    passengers: int
    transfer_share: float
    profile: Hourly | Peaks
    ride_share: float
    weights: tuple[tuple[str, float], ...] = ()
    max_level: float = 1.25


def make_journeys(
    plan: DemandPlan,
    services: Sequence[Service],
    trips: Sequence[Trip],
    horizon_s: int,
    rng: np.random.Generator,
) -> Journeys:
    """Draw all journeys service by service, then list every service that can carry each leg."""
    count = round(plan.passengers * plan.max_level)
    weight = dict(plan.weights)
    runs = np.array([sum(t.service == i for t in trips) for i in range(len(services))])
    share = np.cumsum(runs * np.array([weight.get(s.id, 1.0) for s in services]))
    clocks = [
        plan.profile.clock([trip.departure_s for trip in trips if trip.service == i])
        for i in range(len(services))
    ]
    changes = _changes(services)
    rows: list[tuple[int, float, list[tuple[int, int]]]] = []
    ranks = np.argsort(np.argsort(rng.random(count), kind="stable"), kind="stable")
    for person in range(count):
        index = int(np.searchsorted(share / share[-1], rng.random(), side="right"))
        service = services[index]
        board, alight = _ride(plan, service, rng)
        legs = [(service.stops[board], service.stops[alight])]
        if rng.random() < plan.transfer_share and changes[index]:
            legs = _with_change(plan, services, index, changes[index], rng)
            board = service.stops.index(legs[0][0])
        clock, cumulative = clocks[index]
        begin = float(np.interp(rng.random(), cumulative, clock))
        depart = (
            begin + (service.distance_m[board] - service.distance_m[0]) / plan.profile.speed_mps
        )
        last = horizon_s - 2 * DEPARTURE_SHIFT_S
        departure = int(min(max(depart, DEPARTURE_SHIFT_S), last))
        rows.append((departure, round((ranks[person] + 1) / count * plan.max_level, 6), legs))
    return gathered(rows, services)


def gathered(
    people: Iterable[tuple[int, float, Sequence[tuple[int, int]]]], services: Sequence[Service]
) -> Journeys:
    """People, as (departure_s, min_demand, legs), in order and with the services of each leg."""
    rows = sorted(people, key=lambda person: person[:2])
    pairs = {pair for _, _, legs in rows for pair in legs}
    leg_of: dict[tuple[int, int], CarriedLeg] = {p: (*p, carrying(services, *p)) for p in pairs}
    return journeys_from(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [[leg_of[pair] for pair in row[2]] for row in rows],
    )


def journeys_from(
    departure_s: npt.ArrayLike, min_demand: npt.ArrayLike, legs: Sequence[Sequence[CarriedLeg]]
) -> Journeys:
    """The columns of journeys from the legs of each person, in order."""
    flat = [leg for person in legs for leg in person]
    sets = sorted({carriers for _, _, carriers in flat})
    number = {carriers: i for i, carriers in enumerate(sets)}
    return Journeys(
        departure_s=np.array(departure_s, np.int32),
        min_demand=np.array(min_demand, np.float64),
        leg_start=np.cumsum([0, *map(len, legs)], dtype=np.int32),
        leg_board=np.array([leg[0] for leg in flat], np.int32),
        leg_alight=np.array([leg[1] for leg in flat], np.int32),
        leg_carriers=np.array([number[leg[2]] for leg in flat], np.int32),
        carriers=tuple(sets),
    )


def carrying(services: Sequence[Service], board: int, alight: int) -> tuple[int, ...]:
    """The services that go from one stop to the other."""
    return tuple(
        index
        for index, service in enumerate(services)
        if board in service.stops
        and alight in service.stops
        and service.stops.index(board) < service.stops.index(alight)
    )


def _ride(plan: DemandPlan, service: Service, rng: np.random.Generator) -> tuple[int, int]:
    """Draw a boarding stop and the length of a ride, which ends at the last stop at the latest."""
    count = len(service.stops)
    board = plan.profile.board(count, rng)
    span = plan.ride_share * (0.3 + 1.4 * rng.random()) * count
    alight = board + max(1, round(span))
    return board, min(alight, count - 1)


def _changes(services: Sequence[Service]) -> list[list[tuple[int, int, int]]]:
    """List the useful changes of each service, as (position, other service, its position): those
    that lead to a stop that the first service does not serve.
    """
    options: list[list[tuple[int, int, int]]] = [[] for _ in services]
    for a, first in enumerate(services):
        for b, second in enumerate(services):
            if a == b or first.route == second.route:
                continue
            for i, stop in enumerate(first.stops):
                if i > 0 and stop in second.stops:
                    j = second.stops.index(stop)
                    beyond = [s for s in second.stops[j + 1 :] if s not in first.stops]
                    if beyond:
                        options[a].append((i, b, j))
    return options


def _with_change(
    plan: DemandPlan,
    services: Sequence[Service],
    index: int,
    changes: list[tuple[int, int, int]],
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    at, other, start = changes[int(rng.random() * len(changes))]
    first, second = services[index], services[other]
    reach = max(1, round(plan.ride_share * len(first.stops)))
    board = max(0, at - 1 - int(rng.random() * reach))
    beyond = [j for j in range(start + 1, len(second.stops)) if second.stops[j] not in first.stops]
    near = beyond[: max(1, round(2 * plan.ride_share * len(second.stops)))]
    alight = near[int(rng.random() * len(near))]
    return [(first.stops[board], first.stops[at]), (second.stops[start], second.stops[alight])]
