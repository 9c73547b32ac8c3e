"""Cities of any size for meters: one city many times over."""

from dataclasses import replace
from typing import Any

import numpy as np

from evenline.city.model import City, Journeys, Trip
from evenline.worlds.calibration import Calibration


def copied_city(city: City, count: int) -> City:
    """A city made of `count` copies of this one, which share nothing but the clock."""
    if count == 1:
        return city
    numbers, services = range(count), len(city.services)
    return replace(
        city,
        name=f"{city.name} x {count}",
        stops=tuple(replace(s, id=f"{s.id}.{i}") for i in numbers for s in city.stops),
        services=tuple(
            replace(s, id=f"{s.id}.{i}", stops=tuple(at + i * len(city.stops) for at in s.stops))
            for i in numbers
            for s in city.services
        ),
        trips=tuple(
            Trip(f"{t.id}.{i}", t.service + i * services, t.departure_s, t.vehicle)
            for i in numbers
            for t in city.trips
        ),
        journeys=_copied_journeys(city, count),
    )


def _copied_journeys(city: City, count: int) -> Journeys:
    """The people of every copy, sorted by departure as all journeys are."""
    journeys = city.journeys
    order = np.argsort(np.tile(journeys.departure_s, count), kind="stable")
    copy, person = np.divmod(order, len(journeys))
    starts = np.concatenate([[0], np.cumsum(np.diff(journeys.leg_start)[person])]).astype(np.int32)
    legs = np.diff(starts)
    leg = np.repeat(journeys.leg_start[person] - starts[:-1], legs) + np.arange(starts[-1])
    stops, sets = (np.repeat(copy, legs) * n for n in (len(city.stops), len(journeys.carriers)))
    return Journeys(
        departure_s=journeys.departure_s[person],
        min_demand=journeys.min_demand[person],
        leg_start=starts,
        leg_board=(journeys.leg_board[leg] + stops).astype(np.int32),
        leg_alight=(journeys.leg_alight[leg] + stops).astype(np.int32),
        leg_carriers=(journeys.leg_carriers[leg] + sets).astype(np.int32),
        carriers=tuple(
            tuple(service + i * len(city.services) for service in carriers)
            for i in range(count)
            for carriers in journeys.carriers
        ),
    )


def copied_calibration(calibration: Calibration, count: int) -> Calibration:
    """The calibration of that many copies of a city."""
    tables: dict[str, Any] = {
        name: np.concatenate([getattr(calibration, name)] * count)
        for name in ("mean_s", "pace_s", "phase_s", "noise_s", "least_s")
    }
    return replace(calibration, **tables)
