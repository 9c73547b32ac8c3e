"""The overview of a city shows its figures and names what looks wrong, and nothing else."""

import datetime
from dataclasses import replace

import numpy as np
import pytest

from evenline.city.importers.gtfs import read_gtfs
from evenline.city.importers.timetable import Wanted
from evenline.city.model import City
from evenline.city.overview import overview
from feeds import EXAMPLE


@pytest.fixture(scope="module")
def city() -> City:
    return read_gtfs(EXAMPLE, Wanted(("10", "11"), datetime.date(2026, 3, 3))).city


def warnings(city: City) -> list[str]:
    return [line for line in overview(city).warnings if "nobody travels" not in line]


def test_a_sound_city_has_no_warning(city: City, town: City) -> None:
    assert not warnings(city) and not overview(town).warnings


def test_the_tables_have_the_figures_of_the_timetable(city: City) -> None:
    services, headways, demand, blocks = overview(city).tables
    row = dict(zip(services.head, services.rows[0], strict=True))
    assert row["service"] == "10.0 10 to Lake" and row["trips"] == "24"
    assert (row["first"], row["last"], row["headway, min"]) == ("6:00", "9:50", "10")
    assert float(row["slowest"]) <= float(row["km/h"]) <= float(row["fastest"])
    assert headways.head[1:] == ("6 h", "7 h", "8 h", "9 h", "10 h")
    assert headways.rows[2] == ("11.0", "15", "15", "15", "15", "")
    alone = replace(city, trips=city.trips[:1], due_s=None)
    assert overview(alone).tables[1].rows[0] == ("10.0", "first")
    assert demand.rows == (("passengers", "0"),)
    assert blocks.rows == (("3", "21.3", "24", "0"),)


def test_too_fast_too_close_too_far_too_late(city: City) -> None:
    assert city.due_s is not None
    due = city.due_s.copy()
    due[1] = due[0] + 1
    assert (
        "km/h by the schedule from Station (station) to Market (market), 1 trip"
        in (warnings(replace(city, due_s=due))[0])
    )
    slow = city.due_s.copy()
    slow[1 : len(city.services[0].stops)] += 3_600
    assert warnings(replace(city, due_s=slow))[0].startswith("10.0: only 0.5 km/h by the schedule")
    first, second, *rest = city.trips
    close = replace(second, departure_s=first.departure_s + 1)
    found = warnings(replace(city, trips=(first, close, *rest), due_s=None))
    assert found == ["10.0: headway of (nearly) zero: 1 trip less than 60 s before the next, "
                     "the first at 6:00"]  # fmt: skip
    far = (replace(city.stops[0], x_m=city.stops[0].x_m - 1_000), *city.stops[1:])
    assert warnings(replace(city, stops=far))[0].startswith("stop Station (station): 9")
    assert "due after the day ends" in warnings(replace(city, horizon_s=int(np.max(due)) - 1))[0]


def test_a_bus_in_two_places_and_a_stop_of_nobody(city: City) -> None:
    both = tuple(replace(trip, block="one") for trip in city.trips)
    assert warnings(replace(city, trips=both))[0].startswith("duty one: trip ")
    idle = replace(city.stops[0], id="idle")
    assert warnings(replace(city, stops=(*city.stops, idle))) == [
        "1 stop of no service, the first is Station (idle)"
    ]
