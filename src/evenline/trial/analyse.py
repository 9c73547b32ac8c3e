"""The registered analysis: block differences, exact sign tests, gates, and a verdict.

Endpoints are fractions of whole numbers, so differences, means and comparisons are exact and a
tie is a tie. `analyse` is a pure function of the endpoints and the claim; the same code reads a
trial's records and the paper's published tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from evenline.trial.intervals import bca, hodges_lehmann
from evenline.trial.plan import sign_probability

FORMAT = "evenline-trial-analysis-1"
ENDPOINTS = ("generalized_s", "completion", "unfinished")
DESCRIPTIVE = "descriptive; not part of the registered claim"


@dataclass(frozen=True)
class Key:
    """Which episode: a method under a training seed in a block at a demand level."""

    method: str
    seed: int
    block: tuple[int, int]
    level: float


Endpoints = Mapping[Key, Mapping[str, Fraction]]


def endpoints_of(records: Iterable[Mapping[str, Any]]) -> dict[Key, dict[str, Fraction]]:
    """Y, completion and unfinished passengers of each record, exactly, from its whole numbers."""
    found = {}
    for record in records:
        cell, day = record["cell"], record["outcome"]
        departed, completed = day["departed"], day["completed"]
        block = (cell["sumo_seed"], cell["demand_seed"])
        found[Key(record["method"], record["seed"], block, cell["demand"])] = {
            "generalized_s": Fraction(day["cost"], departed) if departed else Fraction(0),
            "completion": Fraction(completed, departed) if departed else Fraction(1),
            "unfinished": Fraction(departed - completed),
        }
    return found


def analyse(
    endpoints: Endpoints, claim: Mapping[str, Any], checks: Mapping[str, bool]
) -> dict[str, Any]:
    """The verdict and every table. `checks` are the gates that are not about endpoints."""
    candidate, parent = claim["candidate"], claim["parent"]
    pairs = differences(endpoints, candidate, parent)
    levels = sorted({key.level for key in pairs})
    seeds = sorted({key.seed for key in pairs})
    blocks = {name: by_block(pairs, name) for name in ENDPOINTS}
    margin = Fraction(claim["completion_margin"])
    primary = sign_test([d < 0 for d in blocks["generalized_s"]], claim)
    service = sign_test([d > -margin for d in blocks["completion"]], claim)
    gates = {
        "mean direction": mean(d["generalized_s"] for d in pairs.values()) < 0,
        "demand direction": all(
            _means(pairs, level=level)["generalized_s"] < 0 for level in levels
        ),
    } | dict(checks)
    gates = {name: gates[name] for name in claim["gates"]}
    both = primary["passed"] and service["passed"]
    labels = list(dict.fromkeys(key.method for key in endpoints))
    return {
        "claim": {
            "primary": primary | {"block_differences": _floats(blocks["generalized_s"])},
            "completion": service | {"block_differences": _floats(blocks["completion"])},
            "unfinished_block_differences": _floats(blocks["unfinished"]),
            "intersection_union_passed": both,
        },
        "gates": gates,
        "confirmed": both and all(gates.values()),
        "means": {label: _table(_means(endpoints, method=label)) for label in labels},
        "difference": _table(_means(pairs)),
        "by_level": {str(level): _table(_means(pairs, level=level)) for level in levels},
        "by_seed": {str(seed): _table(_means(pairs, seed=seed)) for seed in seeds},
        "controls": {
            label: _against(endpoints, candidate, label)
            for label in labels
            if label not in (candidate, parent)
        },
        "beyond_the_claim": {
            name: {
                "note": DESCRIPTIVE,
                "hodges_lehmann": hodges_lehmann(_floats(blocks[name])),
                "bca_mean": bca(_floats(blocks[name])),
            }
            for name in ENDPOINTS
        },
    }


def differences(endpoints: Endpoints, one: str, other: str) -> dict[Key, dict[str, Fraction]]:
    """One method minus another in every environment and seed they share."""
    found = {}
    for key, values in endpoints.items():
        if key.method == one:
            against = endpoints[Key(other, key.seed, key.block, key.level)]
            found[key] = {name: values[name] - against[name] for name in ENDPOINTS}
    return found


def by_block(pairs: Endpoints, name: str) -> list[Fraction]:
    """The mean of seeds x levels of each block: the unit of the analysis."""
    blocks = sorted({key.block for key in pairs})
    return [mean(d[name] for key, d in pairs.items() if key.block == block) for block in blocks]


def mean(values: Iterable[Fraction]) -> Fraction:
    """The exact mean."""
    every = list(values)
    return sum(every, Fraction(0)) / len(every)


def sign_test(wins: Sequence[bool], claim: Mapping[str, Any]) -> dict[str, Any]:
    """The exact one-sided sign test; whatever is not a win, a tie included, is a nonwin."""
    count, p = sum(wins), sign_probability(sum(wins), len(wins))
    return {
        "wins": count,
        "blocks": len(wins),
        "required_wins": claim["required_wins"],
        "p": float(p),
        "passed": count >= claim["required_wins"] and p <= Fraction(claim["level"]),
    }


def _against(endpoints: Endpoints, candidate: str, control: str) -> dict[str, Any]:
    """Candidate minus a supportive control."""
    pairs = differences(endpoints, candidate, control)
    blocks = by_block(pairs, "generalized_s")
    return {
        "note": DESCRIPTIVE,
        "difference": _table(_means(pairs)),
        "favourable_blocks": sum(d < 0 for d in blocks),
        "blocks": len(blocks),
    }


def _means(values: Endpoints, **where: object) -> dict[str, Fraction]:
    """Exact means over the episodes whose method, seed or level is as said."""
    rows = [
        row
        for key, row in values.items()
        if all(getattr(key, name) == wanted for name, wanted in where.items())
    ]
    return {name: mean(row[name] for row in rows) for name in ENDPOINTS}


def _table(row: Mapping[str, Fraction]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items()}


def _floats(values: Sequence[Fraction]) -> list[float]:
    return [float(value) for value in values]
