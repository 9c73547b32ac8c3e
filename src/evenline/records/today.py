"""What the records themselves say of waiting, without any model.

A headway is the time between two recorded buses of a line at a stop. People who come at random wait
half a headway, and longer where headways differ. What they wait beyond the headways that the same
buses make expect is the excess. Nobody waits through a break, such as that of a stop which a line
serves only in the morning and in the evening. All is measured as `control/regularity.py` says.
"""

from dataclasses import dataclass

import numpy as np

from evenline.city.model import City, Ints
from evenline.control.regularity import (
    Headways,
    bunched_share,
    headway_cv,
    random_wait_s,
    services_by_line,
)
from evenline.records.measures import seen
from evenline.records.patterns import Driven


@dataclass(frozen=True)
class Waiting:
    """A line on a day: how its buses came, and what that means for people who wait."""

    line: str
    day: str
    headways: int
    mean_s: float
    cv: float
    bunched: float
    wait_s: float
    excess_s: float


def lines_of(city: City) -> tuple[list[str], Ints]:
    """The names of the lines, and the line of each service."""
    lines, line = services_by_line(city), np.zeros(len(city.services), np.int32)
    for number, services in enumerate(lines.values()):
        line[services] = number
    return list(lines), line


def waiting_today(city: City, day: str, driven: Driven) -> list[Waiting]:
    """Every line of a recorded day; the first stop counts too, as people wait there."""
    view, (names, of_service) = seen(city, driven), lines_of(city)
    headways = view.headways
    line = of_service[driven.service[headways.row]]
    waiting = []
    for index, name in enumerate(names):
        here = line == index
        if here.sum() > 2:
            waiting.append(_waiting(name, day, Headways(*(values[here] for values in headways))))
    return waiting


def _waiting(name: str, day: str, headways: Headways) -> Waiting:
    wait_s = float(random_wait_s(headways.gap_s))
    return Waiting(
        name,
        day,
        len(headways.gap_s),
        float(headways.gap_s.mean()),
        headway_cv(headways.deviation),
        bunched_share(headways.ratio),
        wait_s,
        wait_s - float(random_wait_s(headways.expected_s)),
    )
