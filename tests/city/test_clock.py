"""Every time that people read is the city's."""

from dataclasses import replace

from evenline.city.clock import clock_text, time_text
from evenline.city.model import City, Clock
from evenline.city.overview import overview


def test_a_time_is_that_of_the_city(town: City) -> None:
    early = replace(town, clock=Clock("2026-03-02", 30_600, "UTC"))
    assert clock_text(early, 1_635.0) == "8:57"
    assert clock_text(early, 1_635.0, seconds=True) == "8:57:15"
    assert clock_text(early, 59_400.0) == "25:00", "a service day goes on past midnight"
    assert clock_text(town, 59.6, seconds=True) == "0:01:00"
    assert clock_text(None, 3_661.0, seconds=True) == time_text(3_661.0, seconds=True) == "1:01:01"


def test_hours_of_a_city_begin_when_its_day_begins(town: City) -> None:
    early = replace(town, clock=Clock("2026-03-02", 30_600, "UTC"))
    for table in overview(early).tables[1:3]:
        assert table.head[1:3] == ("8:30", "9:30"), table.title
