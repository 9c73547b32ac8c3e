"""The registered analysis: block differences, exact sign tests, gates, and a verdict.

Endpoints are fractions of whole numbers, so differences, means and comparisons are exact and a
tie is a tie. `analyse` is a pure function of the endpoints and the claim; the same code reads a
trial's records and the paper's published tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from evenline.control.outcome import Outcome
from evenline.support.records import Line, Number, Record, Sha256, Share, Whole, Word
from evenline.trial.intervals import Interval, bca, hodges_lehmann
from evenline.trial.plan import Claim, less_time, sign_probability
from evenline.trial.records import Day, JobRecord

FORMAT = "evenline-trial-analysis-1"
ENDPOINTS = ("generalized_s", "completion", "unfinished")
DESCRIPTIVE = "descriptive; not part of the registered claim"


@dataclass(frozen=True)
class Key:
    """The key of a day: a method with a training seed, in a block at a demand level."""

    method: str
    seed: int
    block: tuple[int, int]
    level: float


Endpoints = Mapping[Key, Mapping[str, Fraction]]


class Figures(Record):
    """The endpoints as means or differences."""

    generalized_s: Number
    completion: Number
    unfinished: Number


class SignTest(Record):
    """An exact one-sided sign test over blocks."""

    wins: Whole
    blocks: Whole
    required_wins: Whole
    p: Share
    passed: bool
    block_differences: tuple[Number, ...]


class ClaimResult(Record):
    """Both parts of the claim; both must pass."""

    primary: SignTest
    completion: SignTest
    unfinished_block_differences: tuple[Number, ...]
    intersection_union_passed: bool


class Control(Record):
    """The candidate against a supportive control."""

    note: Line
    difference: Figures
    favourable_blocks: Whole
    blocks: Whole


class Effect(Record):
    """The size of the difference in an endpoint, over blocks."""

    note: Line
    hodges_lehmann: Interval
    bca_mean: Interval | None


class Findings(Record, kw_only=True):
    """The verdict and every table."""

    claim: ClaimResult
    gates: dict[Line, bool]
    robustness: dict[Line, bool] = msgspec.field(default_factory=dict)  # beside the claim
    confirmed: bool
    means: dict[Line, Figures]
    difference: Figures
    by_level: dict[Line, Figures]
    by_seed: dict[Line, Figures]
    controls: dict[Line, Control]
    beyond_the_claim: dict[Line, Effect]


class Analysis(Findings, kw_only=True):
    """The content of `analysis.json`."""

    format: Word
    trial: Sha256
    results_sha256: Sha256
    notices: tuple[Line, ...]


def endpoints_of(
    records: Iterable[JobRecord], seeds: Sequence[int]
) -> dict[Key, dict[str, Fraction]]:
    """Y, completion and unfinished passengers of each record, exact, from its whole numbers.

    A method without training seeds counts as the same under every seed.
    """
    endpoints = {}
    for record in records:
        cell, day = record.cell, endpoints_of_day(record.outcome)
        block = (cell.sumo_seed, cell.demand_seed)
        for seed in seeds if record.seed is None else (record.seed,):
            endpoints[Key(record.method, seed, block, cell.demand)] = day
    return endpoints


def endpoints_of_day(day: Day | Outcome) -> dict[str, Fraction]:
    """Y, completion and unfinished passengers of a day."""
    departed, completed = day.departed, day.completed
    return {
        "generalized_s": Fraction(day.cost, departed) if departed else Fraction(0),
        "completion": Fraction(completed, departed) if departed else Fraction(1),
        "unfinished": Fraction(departed - completed),
    }


def analyse(endpoints: Endpoints, claim: Claim, checks: Mapping[str, bool]) -> Findings:
    """The verdict and every table. `checks` are the gates that do not concern endpoints."""
    candidate, parent = claim.candidate, claim.parent
    pairs = differences(endpoints, candidate, parent)
    levels = sorted({key.level for key in pairs})
    seeds = sorted({key.seed for key in pairs})
    blocks = {name: by_block(pairs, name) for name in ENDPOINTS}
    lower = [d < 0 for d in blocks["generalized_s"]]
    served = [d > -Fraction(claim.completion_margin) for d in blocks["completion"]]
    primary = sign_test(lower, claim, blocks["generalized_s"])
    service = sign_test(served, claim, blocks["completion"])
    both = primary.passed and service.passed
    by_level = {str(level): means(pairs, level=level) for level in levels}
    labels = list(dict.fromkeys(key.method for key in endpoints))
    controls = {
        label: _against_control(endpoints, candidate, label)
        for label in labels
        if label not in (candidate, parent)
    }
    checks = dict(checks) | {
        "mean direction": mean(d["generalized_s"] for d in pairs.values()) < 0,
        "demand direction": all(row["generalized_s"] < 0 for row in by_level.values()),
    }
    gates = {gate: _passes(gate, checks, primary, controls) for gate in claim.gates}
    return Findings(
        claim=ClaimResult(
            primary=primary,
            completion=service,
            unfinished_block_differences=_floats(blocks["unfinished"]),
            intersection_union_passed=both,
        ),
        gates=gates,
        robustness={gate: _passes(gate, checks, primary, controls) for gate in claim.robustness},
        confirmed=both and all(gates.values()),
        means={label: figures(means(endpoints, method=label)) for label in labels},
        difference=figures(means(pairs)),
        by_level={level: figures(row) for level, row in by_level.items()},
        by_seed={str(seed): figures(means(pairs, seed=seed)) for seed in seeds},
        controls=controls,
        beyond_the_claim={name: _effect(_floats(blocks[name])) for name in ENDPOINTS},
    )


def _passes(
    gate: str, checks: Mapping[str, bool], primary: SignTest, controls: Mapping[str, Control]
) -> bool:
    """Whether a gate passes."""
    asked = less_time(gate, primary.required_wins, primary.blocks)
    if asked is None:
        return checks[gate]
    control = controls.get(asked.control)  # a withdrawn control may have no day
    return control is not None and control.favourable_blocks >= asked.wins


def differences(endpoints: Endpoints, one: str, other: str) -> dict[Key, dict[str, Fraction]]:
    """One method minus another in every cell and seed that they share."""
    pairs = {}
    for key, values in endpoints.items():
        against = endpoints.get(Key(other, key.seed, key.block, key.level))
        if key.method == one and against is not None:
            pairs[key] = {name: values[name] - against[name] for name in ENDPOINTS}
    return pairs


def by_block(pairs: Endpoints, name: str) -> list[Fraction]:
    """The mean of seeds x levels of each block: the unit of the analysis."""
    blocks = sorted({key.block for key in pairs})
    return [mean(d[name] for key, d in pairs.items() if key.block == block) for block in blocks]


def mean(values: Iterable[Fraction]) -> Fraction:
    """The exact mean."""
    terms = list(values)
    return sum(terms, Fraction(0)) / len(terms)


def sign_test(wins: Sequence[bool], claim: Claim, blocks: Sequence[Fraction] = ()) -> SignTest:
    """The exact one-sided sign test; a tie counts as a nonwin."""
    assert claim.required_wins is not None, "a claim that was read from a plan has required wins"
    count, p = sum(wins), sign_probability(sum(wins), len(wins))
    return SignTest(
        wins=count,
        blocks=len(wins),
        required_wins=claim.required_wins,
        p=float(p),
        passed=count >= claim.required_wins and p <= Fraction(claim.level),
        block_differences=_floats(blocks),
    )


def _against_control(endpoints: Endpoints, candidate: str, control: str) -> Control:
    """Candidate minus a supportive control."""
    pairs = differences(endpoints, candidate, control)
    blocks = by_block(pairs, "generalized_s")
    return Control(
        note=DESCRIPTIVE,
        difference=figures(means(pairs)),
        favourable_blocks=sum(d < 0 for d in blocks),
        blocks=len(blocks),
    )


def _effect(blocks: Sequence[float]) -> Effect:
    return Effect(note=DESCRIPTIVE, hodges_lehmann=hodges_lehmann(blocks), bca_mean=bca(blocks))


def means(values: Endpoints, **where: object) -> dict[str, Fraction]:
    """Exact means over the days with the given method, seed or level."""
    rows = [
        row
        for key, row in values.items()
        if all(getattr(key, name) == wanted for name, wanted in where.items())
    ]
    return {name: mean(row[name] for row in rows) for name in ENDPOINTS}


def figures(row: Mapping[str, Fraction]) -> Figures:
    """Exact endpoints in the form of the file."""
    return Figures(**{name: float(value) for name, value in row.items()})


def _floats(values: Sequence[Fraction]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
