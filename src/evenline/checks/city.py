"""Test a city: its tables restore it, and buses and passengers can travel."""

import tempfile
from pathlib import Path

import numpy as np

from evenline.city.demand import DEMAND_LEVELS, Cell, arrival_rates, realise
from evenline.city.model import City
from evenline.city.tables import digest, load_city, network_digest, save_city
from evenline.worlds.open import OpenCity


def check_city(opened: OpenCity) -> City:
    """Assert all that worlds and policies rely on; with a calibration, also run a fast day."""
    city = opened.city
    with tempfile.TemporaryDirectory() as folder:
        save_city(city, Path(folder) / "city")
        again = load_city(Path(folder) / "city")
    assert digest(again) == digest(city), "the tables contain the whole city"
    assert network_digest(again) == network_digest(city)
    ahead_s, behind_s = city.headway_targets()
    assert (ahead_s >= 0).all() and (behind_s >= 0).all()
    assert city.decisions > 0, "some bus reaches a stop that is not its last"
    for service in city.services:
        assert (np.diff(service.distance_m) > 0).all(), f"{service.id}: stops are in order"
    most = float(city.journeys.min_demand.max(initial=1.0))
    counts = []
    for level in (level for level in DEMAND_LEVELS if level <= max(1.0, most)):
        people = realise(city, Cell(1, 1, level))
        assert (arrival_rates(city, level) >= 0).all()
        counts.append(len(people.journey))
    assert counts == sorted(counts), "a higher demand level contains everyone of a lower one"
    if opened.calibration is not None:
        world = opened.fast_world()
        batch = world.reset(Cell(1, 1, 1.0))
        while batch is not None:
            batch = world.step([0.0] * len(batch.trips))
        outcome = world.outcome()
        assert outcome.departed == counts[DEMAND_LEVELS.index(1.0)], "every passenger departs"
    return city
