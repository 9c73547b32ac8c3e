"""What the schedule of a city says about the way from stop to stop."""

import numpy as np

from evenline.city.model import City, Floats, visit_offsets

HOUR_S = 3600


def hours_of(city: City) -> int:
    """The number of hours of the day; the last one may be short."""
    return -(-city.horizon_s // HOUR_S)


def scheduled_s(city: City, trip: int) -> Floats:
    """When a trip is due at its stops.

    Timetables in whole minutes give several stops the same time; those are spread along the
    distance.
    """
    assert city.due_s is not None
    first = visit_offsets(city)
    due_s = city.due_s[first[trip] : first[trip + 1]].astype(float)
    distance_m = np.array(city.services[city.trips[trip].service].distance_m)
    rises = np.concatenate([[True], np.diff(due_s) > 0])
    rises[-1] = True
    return np.asarray(np.interp(distance_m, distance_m[rises], due_s[rises]))
