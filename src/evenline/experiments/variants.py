"""Variants of a city: one thing of its operation changed at a time.

The longest hold, where buses are held, how many drivers comply, cancelled trips, demand, headways,
or the number of buses.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from evenline.city.demand import DEMAND_LEVELS
from evenline.city.model import City, Floats, Ints, visit_offsets
from evenline.city.operations import TERMINALS
from evenline.experiments.experiment import Variant
from evenline.worlds.open import OpenCity

CAP, WHERE, DRIVERS, CANCELLED = "longest hold", "held at", "holds obeyed", "trips cancelled"
DEMAND, HEADWAY, BUSES = "demand", "headway", "buses on each route"
AT_TERMINALS, HALF = "terminals only", "50 %"
MORE = (-2, -1, 1, 2)


def respaced(city: City, factor: Floats) -> City:
    """The timetable with the headways of each service multiplied, from its first trip to its last.

    Times of the day that had more buses keep more. Every trip has a vehicle of its own, because
    duties and disruptions of single trips do not fit another timetable.
    """
    trips, due, first = [], [], visit_offsets(city)
    for service, own in enumerate(city.trips_of):
        old_s = [city.trips[trip].departure_s for trip in own]
        count = max(round((len(own) - 1) / factor[service]) + 1, 2) if len(own) > 1 else len(own)
        at = np.linspace(0, len(own) - 1, count)
        new_s = np.maximum.accumulate(np.round(np.interp(at, np.arange(len(own)), old_s)))
        for k, (place, departure_s) in enumerate(zip(at, new_s.astype(int).tolist(), strict=True)):
            like = own[round(float(place))]
            trips.append(
                replace(
                    city.trips[like],
                    id=f"{city.services[service].id}~{k}",
                    departure_s=departure_s,
                    duty="",
                )
            )
            if city.due_s is not None:
                times = city.due_s[first[like] : first[like + 1]]
                due.append(times + departure_s - city.trips[like].departure_s)
    due_s = None if city.due_s is None else np.concatenate(due).astype(np.int32)
    kept = tuple(each for each in city.operations.disruptions if each.trip < 0)
    operations = replace(city.operations, disruptions=kept, duties=False)
    return replace(city, trips=tuple(trips), due_s=due_s, operations=operations)


def buses_of(city: City, arrivals_s: Ints) -> Floats:
    """How many buses the route of each service needs, by the trip times of a day."""
    first, needed = visit_offsets(city), dict[str, float]()
    for service, own in enumerate(city.trips_of):
        ends = [(arrivals_s[first[t]], arrivals_s[first[t + 1] - 1]) for t in own]
        trip_s = [last - begin for begin, last in ends if min(begin, last) >= 0]
        starts = [city.trips[t].departure_s for t in own]
        if trip_s and len(own) > 1:
            headway_s = (starts[-1] - starts[0]) / (len(own) - 1)
            route = city.services[service].route
            needed[route] = needed.get(route, 0.0) + float(np.mean(trip_s)) / headway_s
    return np.array([np.ceil(needed.get(s.route, 1.0)) for s in city.services])


def operated(city: City, **changes: Any) -> City:
    """The city with some of its operations changed."""
    return replace(city, operations=replace(city.operations, **changes))


def hard_variants(opened: OpenCity) -> list[Variant]:
    """The city as it is, and variants in which a controller must still be ahead."""
    usual, city = Variant(opened), opened.city
    return [
        usual,
        usual.changed(WHERE, AT_TERMINALS, operated(city, hold_at=TERMINALS)),
        usual.changed(DRIVERS, "80 %", operated(city, ignored_share=0.2)),
        usual.changed(DRIVERS, HALF, operated(city, ignored_share=0.5)),
        usual.changed(CANCELLED, "5 %", operated(city, cancelled_share=0.05)),
    ]


def all_variants(opened: OpenCity, buses: Floats) -> list[Variant]:
    """All variants of a city; `buses` is how many the route of each service has."""
    usual, city = Variant(opened), opened.city
    hard = hard_variants(opened)
    caps = [
        usual.changed(CAP, f"{cap_s:g} s", operated(city, max_hold_s=cap_s)) for cap_s in (15, 30)
    ]
    most = float(city.journeys.min_demand.max(initial=1.0))
    levels = [level for level in DEMAND_LEVELS if level != 1.0 and level <= most]
    demands = [usual.changed(DEMAND, f"{level:.2f}", city, level) for level in levels]
    headways = [
        usual.changed(HEADWAY, name, respaced(city, np.full(len(buses), factor)))
        for name, factor in (("10 % shorter", 0.9), ("10 % longer", 1.1))
    ]
    fleets = [
        usual.changed(BUSES, f"{more:+d}", respaced(city, buses / np.maximum(buses + more, 1.0)))
        for more in MORE
    ]
    return [hard[0], *caps, *hard[1:], *demands, *headways, *fleets]
