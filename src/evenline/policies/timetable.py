"""The timetable that schedule-based rules use: how long trips take without holding.

An operator's timetable gives a time for every stop; ours gives only the start of each trip. The
rest is the mean over days without holding in the fast world, on the calibration's seeds.
"""

from functools import lru_cache

import numpy as np

from evenline.city.cells import PURPOSES
from evenline.city.demand import service_stop_offsets
from evenline.city.model import City
from evenline.control.event import Array
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld

BLOCKS = 5


@lru_cache(maxsize=4)
def usual_times(city: City, calibration: Calibration) -> Array:
    """Mean seconds from a trip's departure to its arrival, one entry per service-stop."""
    world = FastWorld(city, calibration)
    first = service_stop_offsets(city)
    total, count = np.zeros(int(first[-1])), np.zeros(int(first[-1]))
    place = np.concatenate([np.arange(first[t.service], first[t.service + 1]) for t in city.trips])
    start = np.repeat(
        [t.departure_s for t in city.trips],
        [len(city.services[t.service].stops) for t in city.trips],
    )
    for cell in PURPOSES["calibration"].cells(BLOCKS):
        world.run_day(cell, BEHAVIOURS["zero"])
        arrived = world.arrivals_s
        seen = arrived >= 0
        np.add.at(total, place[seen], (arrived - start)[seen])
        np.add.at(count, place[seen], 1.0)
    times = total / np.maximum(count, 1.0)
    # A stop that no bus reached is due no earlier than the previous stop.
    for service in range(len(city.services)):
        part = slice(first[service], first[service + 1])
        times[part] = np.maximum.accumulate(times[part])
    return times
