"""What is measured from stop visits is what a person with a pencil would get."""

import numpy as np
import pyarrow as pa

from evenline.figures.measure import (
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
