"""What the records themselves say of waiting, without any model.

A headway is the time between two recorded buses of a line at a stop. People who come at random wait
half a headway, and longer where headways differ. What they wait beyond even headways of the same
buses in the same hour is the excess. Nobody waits through a break, such as that of a stop which a
line serves only in the morning and in the evening.
"""

from dataclasses import dataclass

import numpy as np

from evenline.city.model import City, Floats, Ints
from evenline.records.measures import BUNCHED, line_of, seen
from evenline.records.patterns import Driven

HOUR_S = 3600
BREAK = 3.0  # usual headways of a line: a longer gap, of more than an hour, is a break in service


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
    names = [line_of(service) for service in city.services]
    known = list(dict.fromkeys(names))
    return known, np.array([known.index(name) for name in names], np.int32)


def waiting_today(city: City, day: str, driven: Driven) -> list[Waiting]:
    """Every line of a recorded day; the first stop counts too, as people wait there."""
    view, (names, of_service) = seen(city, driven), lines_of(city)
    order = np.lexsort((driven.time_s, view.line_stop))
    gap = np.diff(driven.time_s[order])
    same = np.diff(view.line_stop[order]) == 0
    stop, time = view.line_stop[order][1:][same], driven.time_s[order][1:][same]
    line = of_service[driven.service[order][1:][same]]
    gap = gap[same]
    found = []
    for index, name in enumerate(names):
        here = line == index
        here &= gap <= max(BREAK * float(np.median(gap[here])), HOUR_S) if here.any() else False
        if here.sum() > 2:
            found.append(_waiting(name, day, gap[here], stop[here], time[here]))
    return found


def _waiting(name: str, day: str, gap: Floats, stop: Ints, time: Floats) -> Waiting:
    _, group = np.unique(
        stop.astype(np.int64) * 100 + (time // HOUR_S).astype(int), return_inverse=True
    )
    count, total = np.bincount(group), np.bincount(group, gap)
    even_s = total / (2 * count)  # if the same buses came evenly
    wait_s = float((gap**2).sum() / (2 * gap.sum()))
    ratio = gap / (total / count)[group]
    return Waiting(
        name,
        day,
        len(gap),
        float(gap.mean()),
        float(ratio.std()),
        float(np.mean(ratio < BUNCHED)),
        wait_s,
        wait_s - float((even_s * total).sum() / total.sum()),
    )
