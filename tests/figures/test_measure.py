"""What is measured from stop visits is what a person with a pencil would get."""

import numpy as np
import pyarrow as pa

from evenline.city.cells import demo_cell
from evenline.city.demand import realise
from evenline.city.embedded import embedded_city
from evenline.control.visits import Visit, visit_table
from evenline.figures.measure import (
    after_last_bus,
    denied_by_hour,
    headway_ratios,
    most_bunched_service,
)
from small_days import two_services, visit


def test_a_headway_is_the_time_since_the_last_bus_over_the_timetables() -> None:
    ratios = headway_ratios(two_services())
    expected = {  # row: ratio, for all visits that have one
        4: (700 - 100) / 600,
        5: (900 - 200) / 600,
        7: (1150 - 700) / 600,
        8: (1000 - 900) / 600,
        12: (3650 - 100) / 300,
    }
    assert {int(row): ratios[row] for row in np.flatnonzero(np.isfinite(ratios))} == expected


def test_after_an_overtaking_the_headway_is_to_the_bus_that_came_last() -> None:
    first, second = visit("A", 0, 1, 0, 500), visit("A", 1, 1, 400, 450)
    ratios = headway_ratios(pa.Table.from_pylist([first, second]))
    assert np.isnan(ratios).all(), "the bus in front has no bus before it, the first trip no plan"
    third = visit("A", 2, 1, 800, 600)
    ratios = headway_ratios(pa.Table.from_pylist([first, second, third]))
    assert ratios[2] == (600 - 500) / 400


def test_the_most_bunched_service_is_found() -> None:
    assert most_bunched_service(two_services()) == "A"


def test_denied_boardings_belong_to_the_hour_in_which_the_bus_leaves() -> None:
    assert denied_by_hour(two_services(), horizon_s=7200) == (2, 3)
    assert denied_by_hour(two_services(), horizon_s=7201) == (2, 3, 0)


def test_people_who_set_out_after_the_last_bus_are_counted() -> None:
    town, cell = embedded_city("town"), demo_cell(1)

    def visits(last_s: int) -> pa.Table:
        rows = [
            Visit(trips[0], position, last_s - 12, last_s, 0, 0, 0, 0, 12, 0.0)
            for service, trips in enumerate(town.trips_of)
            for position in range(len(town.services[service].stops))
        ]
        return visit_table(town, rows)

    departures = realise(town, cell).departure_s
    for last_s in (0, 3000, town.horizon_s):
        assert after_last_bus(town, cell, visits(last_s)) == np.sum(departures > last_s)
