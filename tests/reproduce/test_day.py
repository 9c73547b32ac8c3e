"""The regime of a day is what a person with a pencil would get from its stop visits."""

import numpy as np
import pyarrow as pa

from evenline.city.cells import demo_cell
from evenline.city.demand import realise
from evenline.city.embedded import embedded_city
from evenline.control.visits import Visit, visit_table
from reproduce.day import after_last_bus, denied_by_hour
from small_days import two_services


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
