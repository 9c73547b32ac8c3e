"""The measures of a day that results show, and differences of days with intervals over blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import stdtrit

from evenline.city.demand import Cell
from evenline.city.model import City, Floats, Ints
from evenline.control.outcome import Outcome
from evenline.figures.measure import regularity, unended_trips

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measure:
    """A column of a table: its name, its heading, its number format."""

    name: str
    heading: str
    form: str
    scale: float = 1.0


MEASURES = (
    Measure("generalized_s", "Generalized time, s", ",.1f"),
    Measure("waiting_s", "Waiting, s", ",.1f"),
    Measure("riding_s", "In vehicle, s", ",.1f"),
    Measure("completion", "Completion, %", ".2f", 100.0),
    Measure("unfinished", "Unfinished", ",.1f"),
    Measure("mean_hold_s", "Mean hold, s", ".2f"),
    Measure("headway_cv", "Headway CV", ".3f"),
    Measure("bunched_share", "Bunched, %", ".2f", 100.0),
    Measure("trip_duration_s", "Trip, s", ",.0f"),
    Measure("excess_wait_s", "Excess wait, s", ",.1f"),
)
DUTIES = (  # counted only in a city with duties
    Measure("late_departures", "Late departures", ",.1f"),
    Measure("lost_trips", "Lost trips", ",.1f"),
)
PARTS = (  # of the generalized time; of worlds that tell them
    Measure("service_s", "While service runs, s", ",.1f"),
    Measure("after_s", "After it, s", ",.1f"),
)
UNENDED = Measure("unended_trips", "Trips not ended", ",.2f")  # shown if there are any


def measure(city: City, cell: Cell, outcome: Outcome, arrivals_s: Ints) -> dict[str, float]:
    """All figures of the table for one day."""
    known = {
        "waiting_s": outcome.waiting_each_s,
        "riding_s": outcome.riding_each_s,
        UNENDED.name: unended_trips(city, cell, outcome),
        **asdict(regularity(city, arrivals_s)),
    }
    counted = [m for m in DUTIES if getattr(outcome, m.name) is not None]
    if outcome.service_cost is not None:
        counted += PARTS
    return {
        m.name: float(known[m.name] if m.name in known else getattr(outcome, m.name))
        for m in (*MEASURES, *counted, UNENDED)
    }


@dataclass(frozen=True)
class Difference:
    """A mean difference of days; the interval is over blocks, or None for one block."""

    mean: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, both the mean where there is none."""
        none = self.low is None or self.high is None
        return (self.mean, self.mean) if none else (float(self.low or 0), float(self.high or 0))

    @property
    def sign(self) -> int:
        """-1 or 1 if the interval is below or above 0; 0 if it has 0 in it, or there is none."""
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return 0
        return -1 if self.high < 0.0 else 1


def difference(cells: Sequence[Cell], here: Floats, there: Floats) -> Difference:
    """Average differences within each block first, because its days share passengers and
    drivers.
    """
    blocks: dict[tuple[int, int], list[float]] = {}
    for cell, delta in zip(cells, here - there, strict=True):
        blocks.setdefault((cell.sumo_seed, cell.demand_seed), []).append(float(delta))
    means = np.array([np.mean(deltas) for deltas in blocks.values()])
    if len(means) < 2:
        return Difference(float(means.mean()), None, None)
    error = means.std(ddof=1) / np.sqrt(len(means))
    half = stdtrit(len(means) - 1, 0.5 + CONFIDENCE / 2) * error  # the quantile of Student's t
    return Difference(float(means.mean()), float(means.mean() - half), float(means.mean() + half))


def difference_of(
    cells: Sequence[Cell],
    here: Sequence[Mapping[str, float]],
    there: Sequence[Mapping[str, float]],
    name: str,
) -> Difference:
    """The difference of a measure between two lists of days."""
    columns = (np.array([day[name] for day in days]) for days in (here, there))
    return difference(cells, *columns)


def number(value: float, form: str) -> str:
    """Format a number, with a true minus."""
    return format(value, form).replace("-", "\u2212")


def signed(change: Difference, form: str, scale: float = 1.0) -> str:
    """Format a difference with its interval."""
    shown = number(scale * change.mean, f"+{form}")
    if change.low is None or change.high is None:
        return shown
    return f"{shown} ({number(scale * change.low, form)} to {number(scale * change.high, form)})"
