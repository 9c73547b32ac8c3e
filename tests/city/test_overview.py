"""The overview of a city shows its figures and names what looks wrong, and nothing else."""

import datetime
from dataclasses import replace

import numpy as np
import pytest

from evenline.city.model import City
from evenline.city.overview import overview
from evenline.importing.gtfs import read_gtfs
from evenline.importing.timetable import Wanted
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
    assert headways.head[1:] == ("6:00", "7:00", "8:00", "9:00", "10:00")
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
    both = tuple(replace(trip, duty="one") for trip in city.trips)
    assert warnings(replace(city, trips=both))[0].startswith("duty one: trip ")
    idle = replace(city.stops[0], id="idle")
    assert warnings(replace(city, stops=(*city.stops, idle))) == [
        "1 stop of no service, the first is Station (idle)"
    ]


def test_more_people_at_a_stop_in_one_second_than_a_bus_carries(town: City) -> None:
    journeys = town.journeys
    at_once = replace(journeys, departure_s=np.full_like(journeys.departure_s, 3_600))
    (found,) = overview(replace(town, journeys=at_once)).warnings
    assert "passengers come in the same second at 1:00, and a bus has room for 50" in found


def with_starts(city: City, *minutes: int) -> City:
    """The city with trips of its first service that start at these minutes, and no others."""
    trips = tuple(
        replace(city.trips[0], id=f"t{n}", departure_s=60 * at, duty="")
        for n, at in enumerate(minutes)
    )
    return replace(city, trips=trips, due_s=None, horizon_s=86_400)


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        ((60, 70, 80, 200, 210), "between 6:20 and 8:20; around that, one starts every 10 min"),
        ((60, 120, 180, 300, 360, 420), "between 8:00 and 10:00; around that, one starts every 60"),
        ((60, 70, 80, 200, 320, 330, 340), "10.0: no trip starts between 8:20 and 10:20"),
        ((60, 75, 90, 105, 165, 225, 285), ""),  # fewer trips in the evening
        ((60, 120, 180, 240), ""),
        ((60, 100, 180, 210), "no trip starts between 6:40 and 8:00"),
    ],
)
def test_a_hole_in_a_service_is_named(city: City, minutes: tuple[int, ...], words: str) -> None:
    holes = [line for line in warnings(with_starts(city, *minutes)) if "no trip starts" in line]
    assert bool(holes) == bool(words)
    assert not words or any(words in line for line in holes)


def test_a_service_with_a_single_trip_has_no_headway(city: City) -> None:
    lines = [line for line in warnings(with_starts(city, 60)) if "headway" in line]
    assert lines == [
        "1 of 3 services with a single trip, so without a headway that holding could keep: 10.0"
    ]
    assert not [line for line in warnings(with_starts(city, 60, 70)) if "headway" in line]
