"""The plan of a trial: a TOML file, checked strictly.

A plan names methods, training seeds, blocks, demand levels and the claim; it contains no hash and
no outcome. `read_plan` refuses unknown keys, so that a misspelt one is never ignored.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict, replace

from evenline.city.demand import Cell, Level, check_demand, check_some_demand, check_somebody
from evenline.city.model import City
from evenline.runs.job import Limits
from evenline.support.errors import InputError, choice
from evenline.support.records import Line, Record, Seed, Text, Word, convert, read_toml

_ENDPOINT = "generalized_s"  # Y; lower is better
# Every gate with what it checks. A registration has these words, and the verifier its own copy.
GATES = {
    "mean direction": "passengers lose less time on average",
    "demand direction": "passengers lose less time at every level of demand",
    "completeness": "every planned day was run and counted",
    "artifacts": "every registered file of the city and of the policies is there, unchanged",
    "stability": "each metric of the training of the compared policies is finite, from the first "
    "update to the last, and so is each weight",
}
_LESS = "less time than "  # with a control's name, a gate: in as many blocks as the claim asks
_LESS_TIME = re.compile(rf"{_LESS}(\S+)(?: in (\d{{1,3}}) of (\d{{1,3}}) blocks)?", re.ASCII)
_FORMS = (*GATES, f"{_LESS}METHOD", f"{_LESS}METHOD in N of M blocks")
_MOST_BLOCKS = 200  # the exact sign test of more takes very long

Seeds = Annotated[tuple[Seed, ...], Meta(min_length=1, max_length=1_000)]
Levels = Annotated[tuple[Level, ...], Meta(min_length=1, max_length=100)]
_Sources = Annotated[tuple[Line, ...], Meta(max_length=1_000)]
_Decimal = Annotated[str, Meta(max_length=30)]
_DECIMAL = re.compile(r"\d+(\.\d+)?([eE]-?\d{1,2})?", re.ASCII)


class Claim(Record):
    """The claim: candidate and parent, the conditions, and their tests."""

    candidate: Word
    parent: Word
    completion_margin: _Decimal = "0.003"  # the rule is exact, a binary float is not
    level: _Decimal = "0.025"
    required_wins: Annotated[int, Meta(ge=0, le=_MOST_BLOCKS)] | None = None
    endpoint: Line = _ENDPOINT
    direction: Line = "lower"
    unit: Line = "block mean of seeds x levels"
    ties: Line = "nonwins"
    gates: tuple[Line, ...] = tuple(GATES)
    robustness: tuple[Line, ...] = ()  # gates that are reported beside the claim and decide nothing

    def __post_init__(self) -> None:
        if self.candidate == self.parent:
            raise ValueError("candidate and parent must differ")
        if not 0 < _fraction("level", self.level) < 1:
            raise ValueError(f"level = {self.level!r}: must be between 0 and 1")
        if not 0 <= _fraction("completion_margin", self.completion_margin) < 1:
            raise ValueError(f"completion_margin = {self.completion_margin!r}: must be in [0, 1)")
        fixed = dict(zip(self.__struct_fields__[2:], self.__struct_defaults__, strict=True))
        for key in ("endpoint", "direction", "unit", "ties"):
            if getattr(self, key) != fixed[key]:
                raise ValueError(f"{key} can only be {fixed[key]!r}")
        every = (*self.gates, *self.robustness)
        for gate in every:
            if gate not in GATES and not _LESS_TIME.fullmatch(gate):
                raise ValueError(f"unknown gate {gate!r}; choose {choice(_FORMS)}")
            if every.count(gate) > 1:
                raise ValueError(f"gate {gate!r} is named twice")
        for gate in self.robustness:
            if gate in GATES:
                raise ValueError(f"robustness: {gate!r} decides the claim; move it to gates")


@dataclass(frozen=True)
class LessTime:
    """A gate: less generalized time than a control in at least so many blocks of so many."""

    control: str
    wins: int
    blocks: int


def less_time(gate: str, required_wins: int, blocks: int) -> LessTime | None:
    """What a gate asks about a control, if it does; without numbers, as much as the claim asks."""
    asked = _LESS_TIME.fullmatch(gate)
    if asked is None:
        return None
    wins, of = asked[2] or required_wins, asked[3] or blocks
    return LessTime(asked[1], int(wins), int(of))


class Blocks(Record):
    """The blocks of a trial: the seeds of the first block, and how many follow."""

    sumo_seed: Seed
    demand_seed: Seed
    count: Annotated[int, Meta(ge=1, le=_MOST_BLOCKS)]

    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((self.sumo_seed + i, self.demand_seed + i) for i in range(self.count))


class _AnyPlan(Record, kw_only=True):
    """What a plan says in the same way in its file and in a registration."""

    name: Word
    city: Line
    seeds: Seeds
    levels: Levels
    claim: Claim
    limits: Limits = Limits()
    sumo: Word | None = None
    world: Line = "sumo"
    calibration: Line | None = None  # a file (default: the city's own)


class WrittenPlan(_AnyPlan, kw_only=True):
    """A plan in the form of its TOML file."""

    blocks: Blocks
    methods: dict[Word, Text | _Sources]


class Plan(_AnyPlan, kw_only=True):
    """A whole trial: each method with one policy source, or one for each training seed."""

    blocks: tuple[tuple[Seed, Seed], ...]  # (SUMO seed, demand seed)
    methods: dict[Word, _Sources]

    @property
    def jobs(self) -> int:
        policies = sum(len(sources) for sources in self.methods.values())
        return policies * len(self.blocks) * len(self.levels)

    def cells(self) -> list[Cell]:
        """Every cell of the trial, block by block."""
        return [Cell(*block, level) for block in self.blocks for level in self.levels]


def sign_probability(wins: int, blocks: int) -> Fraction:
    """p(w): the probability of at least `wins` wins if each block is a fair coin."""
    return Fraction(sum(comb(blocks, count) for count in range(wins, blocks + 1)), 2**blocks)


def wins_required(blocks: int, level: str) -> int:
    """The fewest wins whose one-sided sign test reaches the level."""
    for wins in range(blocks + 1):
        if sign_probability(wins, blocks) <= Fraction(level):
            return wins
    raise InputError(
        f"{blocks} blocks are too few: even {blocks} wins do not reach level {level}; plan more"
    )


def read_plan(path: Path) -> Plan:
    """Read a plan from its TOML file, or raise an error that says what is wrong."""
    return plan_of(read_toml(path), str(path))


def plan_of(raw: dict[str, Any], where: str) -> Plan:
    """Make a plan from the values of its TOML; each error starts with `where`."""
    written = convert(WrittenPlan, exact_claim(raw), where)
    with about(where):
        plan = _settled(written)
        plan.cells()  # refuses seeds that no cell can have
    return plan


@contextmanager
def about(what: str) -> Iterator[None]:
    """Prefix an error with its subject."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def exact_claim(raw: dict[str, Any]) -> dict[str, Any]:
    """A plan's values, with the decimal numbers of the claim as text."""
    claim = raw.get("claim")
    if not isinstance(claim, dict):
        return raw
    exact = ("completion_margin", "level")
    texts = {key: str(claim[key]) for key in exact if type(claim.get(key)) in (int, float)}
    return raw | {"claim": claim | texts}


def check_levels(city: City, levels: Iterable[float]) -> None:
    """Refuse demand levels at which the city has no passengers, or not enough journeys."""
    check_somebody(city)
    for level in levels:
        check_some_demand(level)
        check_demand(city, level)


def _fraction(key: str, text: str) -> Fraction:
    if not _DECIMAL.fullmatch(text):  # an exponent of many digits would take forever
        raise ValueError(f"{key} = {text!r}: expected a decimal number such as '0.025'")
    return Fraction(text)


def _settled(written: WrittenPlan) -> Plan:
    """The complete plan: all blocks, a source for each seed, the required wins."""
    for name, values in (("seeds", written.seeds), ("levels", written.levels)):
        if len(set(values)) < len(values):
            raise InputError(f"{name}: {list(values)} names a value twice")
    methods = {
        label: _sources(label, given, written.seeds) for label, given in written.methods.items()
    }
    claim = _settled_claim(written.claim, methods, written.blocks.count)
    settled = {"blocks": written.blocks.pairs(), "methods": methods, "claim": claim}
    return Plan(**asdict(written) | settled)


def _sources(label: str, given: str | tuple[str, ...], seeds: tuple[int, ...]) -> tuple[str, ...]:
    """The sources of a method: a list, or one text in which {seed} is the training seed.

    A method without training seeds has one source and runs once in each cell.
    """
    if isinstance(given, str):
        convert(Line, given, f"methods.{label}")
    if isinstance(given, str) and "{seed}" not in given:
        return (given,)
    if isinstance(given, str):
        return tuple(given.replace("{seed}", str(seed)) for seed in seeds)
    if len(given) != len(seeds):
        raise InputError(f"methods.{label}: give one source, or one for each of {len(seeds)} seeds")
    return given


def _settled_claim(claim: Claim, methods: dict[str, tuple[str, ...]], blocks: int) -> Claim:
    for label in (claim.candidate, claim.parent):
        if label not in methods:
            raise InputError(f"claim: unknown method {label!r}; choose {choice(methods)}")
    controls = [label for label in methods if label not in (claim.candidate, claim.parent)]
    wins = wins_required(blocks, claim.level)
    for gate in (*claim.gates, *claim.robustness):
        asked = less_time(gate, wins, blocks)
        if asked is None:
            continue
        if asked.control not in controls:
            raise InputError(f"claim: unknown control {asked.control!r}; choose {choice(controls)}")
        if asked.blocks != blocks or not 1 <= asked.wins <= blocks:
            raise InputError(
                f"claim: gate {gate!r}: the plan has {blocks} blocks; write 1 to {blocks} of them"
            )
    if claim.required_wins not in (None, wins):
        raise InputError(
            f"claim: required_wins = {claim.required_wins}, but {blocks} blocks at level "
            f"{claim.level} require {wins}"
        )
    return replace(claim, required_wins=wins)
