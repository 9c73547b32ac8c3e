"""Two audits with fixed limits: whether the fast world may stand in for SUMO.

We compare days, never rows. Each interval is a 95 % bootstrap over the days of one demand level,
with SUMO's and the fast world's days drawn separately. The audit passes if every interval is within
its limit. The limits are the paper's; we also audit the share of simultaneous decisions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenline.city.demand import Cell
from evenline.city.model import Floats
from evenline.control.outcome import Outcome

RESAMPLES = 10_000
CONFIDENCE = 0.95
_SEED = 20_101

Quantity = Callable[[Outcome], float]
QUANTITIES: dict[str, Quantity] = {
    "passengers": lambda o: o.departed,
    "decisions": lambda o: o.decisions,
    "generalized time": lambda o: o.generalized_s,
    "waiting time": lambda o: o.waiting_each_s,
    "in-vehicle time": lambda o: o.riding_each_s,
    "trip duration": lambda o: o.trip_duration_s,
    "completion": lambda o: o.completion,
    "simultaneous share": lambda o: o.zero_duration_share,
}
ABSOLUTE = {"completion", "simultaneous share"}  # the others are relative to SUMO's mean
ZERO_LIMITS = {
    "passengers": 0.03,
    "decisions": 0.05,
    "generalized time": 0.15,
    "waiting time": 0.15,
    "in-vehicle time": 0.10,
    "trip duration": 0.05,
    "completion": 0.03,
    "simultaneous share": 0.03,
}
RESPONSE_LIMITS = {
    "completion": 0.03,
    "generalized time": 0.10,
    "waiting time": 0.10,
    "in-vehicle time": 0.10,
    "decisions": 0.05,
    "trip duration": 0.05,
}
HOLD_LIMITS = {"mean hold": 0.35, "zero-hold share": 0.10}
GOALS = {
    "generalized time": 0.0461,
    "waiting time": 0.0875,
    "in-vehicle time": 0.0166,
    "completion": 0.0043,
    "trip duration": 0.0104,
}


@dataclass(frozen=True)
class Line:
    """One audited quantity: the difference fast minus SUMO, its interval and its limit."""

    audit: str
    policy: str
    level: str
    quantity: str
    sumo: float
    fast: float
    gap: float
    low: float
    high: float
    limit: float

    @property
    def passed(self) -> bool:
        return -self.limit <= self.low and self.high <= self.limit

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


Outcomes = Mapping[str, Mapping[Cell, Outcome]]  # policy, cell


def audit(sumo: Outcomes, fast: Outcomes) -> list[Line]:
    """Run both audits over the same cells in both worlds. `zero` must be one of the policies."""
    rng = np.random.Generator(np.random.PCG64(_SEED))
    cells = sorted(sumo["zero"], key=lambda cell: (cell.demand, cell.sumo_seed))
    levels = sorted({cell.demand for cell in cells})
    by_level = {level: [c for c in cells if c.demand == level] for level in levels}
    lines = _zero_audit(sumo["zero"], fast["zero"], by_level, rng)
    for policy in sumo:
        if policy != "zero":
            lines += _response_audit(policy, sumo, fast, by_level, rng)
            lines += _hold_audit(policy, sumo, fast, by_level, rng)
    return lines


def accepted(lines: Sequence[Line]) -> bool:
    """Whether every interval is within its limit."""
    return all(line.passed for line in lines)


def _means(values: Floats, rng: np.random.Generator) -> Floats:
    """Bootstrap means of one sample of days."""
    draw = rng.integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values[draw].mean(axis=1))


def _relative(sumo: Floats | float, fast: Floats | float) -> Floats:
    """The difference relative to SUMO; where SUMO has nothing, such as no hold, the fast world's
    value itself.
    """
    sumo, fast = np.asarray(sumo, float), np.asarray(fast, float)
    return np.where(sumo == 0, fast, fast / np.where(sumo == 0, 1.0, sumo) - 1)


def _line(
    where: tuple[str, str, str, str],  # audit, policy, level, quantity
    sumo: float,
    fast: float,
    gap: float,
    draws: Floats,
    limit: float,
) -> Line:
    """A quantity with the bootstrap interval of its difference."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Line(*where, float(sumo), float(fast), float(gap), float(low), float(high), limit)


def _zero_audit(
    sumo: Mapping[Cell, Outcome],
    fast: Mapping[Cell, Outcome],
    by_level: Mapping[float, Sequence[Cell]],
    rng: np.random.Generator,
) -> list[Line]:
    lines = []
    for level, cells in by_level.items():
        for name, limit in ZERO_LIMITS.items():
            of = QUANTITIES[name]
            target, model = (np.array([of(o[c]) for c in cells], float) for o in (sumo, fast))
            a, b = _means(target, rng), _means(model, rng)
            if name in ABSOLUTE:
                gap, draws = model.mean() - target.mean(), b - a
            else:
                gap, draws = float(_relative(target.mean(), model.mean())), _relative(a, b)
            where = ("zero", "zero", f"{level:.2f}", name)
            lines.append(_line(where, target.mean(), model.mean(), gap, draws, limit))
    return lines


def _response_audit(
    policy: str,
    sumo: Outcomes,
    fast: Outcomes,
    by_level: Mapping[float, Sequence[Cell]],
    rng: np.random.Generator,
) -> list[Line]:
    """What a policy changes relative to zero hold in the same cell, in SUMO and in the fast
    world.
    """
    lines = []
    for level, cells in by_level.items():
        for name, limit in RESPONSE_LIMITS.items():
            of = QUANTITIES[name]
            base = np.mean([of(sumo["zero"][c]) for c in cells])
            unit = 1.0 if name in ABSOLUTE else float(base) or 1.0
            target, model = (
                np.array([(of(o[policy][c]) - of(o["zero"][c])) / unit for c in cells])
                for o in (sumo, fast)
            )
            draws = _means(model, rng) - _means(target, rng)
            where, gap = ("response", policy, f"{level:.2f}", name), model.mean() - target.mean()
            lines.append(_line(where, target.mean(), model.mean(), gap, draws, limit))
    return lines


def _hold_audit(
    policy: str,
    sumo: Outcomes,
    fast: Outcomes,
    by_level: Mapping[float, Sequence[Cell]],
    rng: np.random.Generator,
) -> list[Line]:
    """How much and how often a policy holds, over all levels (drawn within each)."""
    lines = []
    for name, limit in HOLD_LIMITS.items():

        def of(outcome: Outcome, name: str = name) -> float:
            return outcome.mean_hold_s if name == "mean hold" else outcome.zero_hold_share

        means: list[float] = []
        draws: list[Floats] = []
        for world in (sumo, fast):
            samples = [np.array([of(world[policy][c]) for c in cs]) for cs in by_level.values()]
            means.append(float(np.mean([sample.mean() for sample in samples])))
            draws.append(np.mean([_means(sample, rng) for sample in samples], axis=0))
        if name == "mean hold":
            gap, spread = float(_relative(*means)), _relative(*draws)
        else:
            gap, spread = means[1] - means[0], draws[1] - draws[0]
        where = ("hold", policy, "all", name)
        lines.append(_line(where, means[0], means[1], gap, spread, limit))
    return lines


def largest_gaps(lines: Sequence[Line]) -> dict[str, float]:
    """The largest difference of the zero-policy audit, by quantity."""
    zero = [line for line in lines if line.audit == "zero"]
    return {
        name: max(abs(line.gap) for line in zero if line.quantity == name) for name in ZERO_LIMITS
    }
