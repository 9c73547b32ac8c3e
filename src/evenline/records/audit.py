"""Judge a fitted city on days that the fit has not seen.

For every measure: the gap between simulated days and the held-out day beside the gap between real
days. A model is close enough if the first is at most `most_ratio` times the second. A simulated day
shows each trip as often as the days of the fit did, so that both are seen in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenline.city.cells import PURPOSES
from evenline.city.model import City
from evenline.records.build import chosen, patterns_of
from evenline.records.clean import Records
from evenline.records.files import FittedTo, Limits
from evenline.records.measures import MEASURES, MeasureTable, gap, level, measured, simulated
from evenline.records.patterns import Driven, match
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld

_PURPOSE = "replay"  # as in the fidelity audits
UNSEEN = 0x5EED


@dataclass(frozen=True)
class Judged:
    """One measure: what was recorded and simulated, both gaps, and their ratio."""

    measure: str
    unit: str
    recorded: float
    simulated: float
    model_gap: float
    low: float  # 90 % of simulated days lie between
    high: float
    real_gap: float
    limit: float

    @property
    def ratio(self) -> float:
        if not self.judged:
            return float("nan")
        known = self.real_gap > 0 and np.isfinite(self.model_gap)
        return self.model_gap / self.real_gap if known else float("inf")

    @property
    def judged(self) -> bool:
        """Whether the records hold the measure on all days; otherwise nothing can be said."""
        return bool(np.isfinite(self.real_gap))

    @property
    def passed(self) -> bool:
        return bool(self.ratio <= self.limit)

    def as_dict(self) -> dict[str, Any]:
        numbers = asdict(self) | {"ratio": self.ratio}
        known = {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in numbers.items()
        }
        return known | {"judged": self.judged, "passed": self.passed if self.judged else None}


@dataclass(frozen=True, eq=False)
class Compared:
    """The days of an audit: recorded ones by date, held-out ones by date, simulated ones."""

    fitted: Mapping[str, Driven]
    held: Mapping[str, Driven]
    simulated: Sequence[Driven]


def recorded_days(
    city: City, records: Records, fitted_to: FittedTo, days: Sequence[str]
) -> dict[str, Driven]:
    """Recorded days by date, matched to the city's services, on the city's clock."""
    hours = (fitted_to.first_hour, fitted_to.last_hour)
    start_s = city.clock.start_s if city.clock else 0
    services = patterns_of(city, records)
    matched = {
        day: match(chosen(records, fitted_to.routes, (day,), hours), services).moved(start_s)
        for day in days
    }
    for day, driven in matched.items():
        if not len(driven):
            raise InputError(f"day {day}: no recorded trip follows a service of {city.name}")
    return matched


def simulated_days(
    city: City, calibration: Calibration, fitted_to: FittedTo, count: int, policy: str = "zero"
) -> list[Driven]:
    """Simulated days as records would show them."""
    world = FastWorld(city, calibration, keep_visits=True)
    share = np.array(fitted_to.recorded_share)
    days = []
    for cell in PURPOSES[_PURPOSE].cells(count, (1.0,)):
        world.run_day(cell, BEHAVIOURS[policy])
        rng = np.random.Generator(np.random.PCG64([cell.demand_seed, UNSEEN]))
        kept = rng.random(len(share)) < share
        driven = simulated(city, world.visits, fitted_to.stamp)
        days.append(driven.only(kept[driven.trip]))
    return days


def judge(city: City, days: Compared, limits: Limits) -> list[Judged]:
    """Every registered measure in order, also those that the records do not hold."""
    real = [measured(city, driven) for driven in days.fitted.values()]
    held = [measured(city, driven) for driven in days.held.values()]
    model = [measured(city, driven) for driven in days.simulated]
    known = {measure.name: measure for measure in MEASURES}
    lines = []
    for name in limits.measures:
        gaps = np.array([[gap(m[name], h[name]) for h in held] for m in model]).mean(axis=1)
        apart = np.array([gap(r[name], h[name]) for r in real for h in held])
        lines.append(
            Judged(
                name,
                known[name].unit,
                _mean(held, name),
                _mean(model, name),
                float(gaps.mean()),
                float(np.quantile(gaps, 0.05)),
                float(np.quantile(gaps, 0.95)),
                float(apart.mean()),
                limits.most_ratio,
            )
        )
    return lines


def _mean(days: Sequence[Mapping[str, MeasureTable]], name: str) -> float:
    return float(np.mean([level(day[name]) for day in days]))


def verdict(lines: Sequence[Judged], held: Sequence[str]) -> str:
    """The audit in one sentence, for every result of the city."""
    judged = [line for line in lines if line.judged]
    passed = sum(line.passed for line in judged)
    text = (
        f"on {', '.join(held)}, which the fit has not seen, {passed} of {len(judged)} measures are "
        f"within {lines[0].limit:g} times the gap between real days"
    )
    failed = [f"{line.measure} {line.ratio:.2f}" for line in judged if not line.passed]
    missing = [line.measure for line in lines if not line.judged]
    parts = [f"not: {', '.join(failed)}"] if failed else []
    parts += [f"not recorded: {', '.join(missing)}"] if missing else []
    return text + (f" ({'; '.join(parts)})" if parts else "")
