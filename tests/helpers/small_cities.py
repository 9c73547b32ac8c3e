"""Small cities for a single question: parallel streets of two blocks, a service of three stops on
each, no cars and no signals, so that nothing but the timetable and the people moves a bus."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenline.city.build import CityPlan, ServicePlan, build, legs_of
from evenline.city.demand import DemandPlan, Peaks
from evenline.city.embedded import TOWN
from evenline.city.model import City, Journeys


def streets(services: int, trips: int, headway_s: int, horizon_s: int) -> City:
    """A city of so many equal services; their buses leave in the same seconds."""
    last = (trips - 1) * headway_s
    lines = tuple(
        ServicePlan(f"S{i:02d}", f"{i:02d}", ((0, i), (2, i)), 3, trips, 0, last, even=True)
        for i in range(services)
    )
    return _quiet("streets", lines, horizon_s)


def square() -> City:
    """A service once around a square, with a stop on each of its four sides."""
    corners = ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
    return _quiet("square", (ServicePlan("S00", "00", corners, 4, 3, 0, 600, even=True),), 1800)


def _quiet(name: str, services: tuple[ServicePlan, ...], horizon_s: int) -> City:
    profile = Peaks(1.0, ((0.0, 600.0, 1.0),), tail_s=300.0, tail_intensity=1.0, speed_mps=6.0)
    return build(
        CityPlan(
            name=name,
            seed=1,
            horizon_s=horizon_s,
            block_m=400.0,
            services=services,
            unsignalled=frozenset(corner for s in services for corner in legs_of(s.corners)),
            bus_lanes=(),
            cars_per_hour=(),
            car_routes=0,
            busy=profile,
            demand=DemandPlan(
                passengers=10 * len(services),
                transfer_share=0.0,
                profile=profile,
                ride_share=0.5,
            ),
        )
    )


def with_groups(city: City, groups: Sequence[tuple[int, int, int]]) -> City:
    """The first service's people as groups of (departure_s, position, size), all to the last stop.

    Groups are given in order of departure.
    """
    service = city.services[0]
    rows = [(at, service.stops[board]) for at, board, size in groups for _ in range(size)]
    count = len(rows)
    return replace(
        city,
        journeys=Journeys(
            departure_s=np.array([at for at, _ in rows], np.int32),
            min_demand=np.full(count, 1.0),
            leg_start=np.arange(count + 1, dtype=np.int32),
            leg_board=np.array([board for _, board in rows], np.int32),
            leg_alight=np.full(count, service.stops[-1], np.int32),
            leg_carriers=np.zeros(count, np.int32),
            carriers=((0,),),
        ),
    )


def short_town() -> City:
    """The town, cut off while buses are full of people: some ride, some wait, at the horizon."""
    return build(replace(TOWN, horizon_s=5_000))


def late_town(city: City, first_departure_s: int) -> City:
    """A city whose early buses do not run, so that people wait long before the first decision."""
    return replace(city, trips=tuple(t for t in city.trips if t.departure_s >= first_departure_s))


def unloadable(city: City) -> City:
    """A city that is consistent but that SUMO refuses: its buses are shorter than nothing."""
    return replace(city, vehicle=replace(city.vehicle, length_m=-1.0))
