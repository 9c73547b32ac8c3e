"""What a trial asks, as a person writes it: a TOML plan, checked word by word.

A plan names methods, training seeds, blocks, demand levels and the claim; it holds no hash and no
outcome. `read_plan` refuses what it does not know, so that a misspelt rule is never a silent one.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

from evenline.city.demand import Cell
from evenline.support.errors import InputError

ENDPOINT = "generalized_s"  # Y; lower is better
GATES = (
    "mean direction",
    "demand direction",
    "completeness",
    "artifacts",
    "stability",
)


@dataclass(frozen=True)
class Claim:
    """Candidate against direct parent: what has to hold, and how it is tested."""

    candidate: str
    parent: str
    completion_margin: str = "0.003"  # decimal text: the rule is exact, a binary float is not
    level: str = "0.025"
    required_wins: int | None = None
    endpoint: str = ENDPOINT
    direction: str = "lower"
    unit: str = "block mean of seeds x levels"
    ties: str = "nonwins"
    gates: tuple[str, ...] = GATES


@dataclass(frozen=True)
class Limits:
    """What one job may cost before it is ended and tried again with the same seed."""

    time_s: int = 3600
    memory_gib: float = 8.0
    tries: int = 3


@dataclass(frozen=True)
class Plan:
    """A whole trial: each method with one policy source a training seed."""

    name: str
    city: str
    seeds: tuple[int, ...]
    levels: tuple[float, ...]
    blocks: tuple[tuple[int, int], ...]  # (SUMO seed, demand seed)
    claim: Claim
    limits: Limits
    methods: dict[str, tuple[str, ...]]
    sumo: str | None = None

    @property
    def jobs(self) -> int:
        return len(self.methods) * len(self.seeds) * len(self.blocks) * len(self.levels)

    def cells(self) -> list[Cell]:
        """Every environment of the trial, block by block."""
        return [Cell(*block, level) for block in self.blocks for level in self.levels]


def sign_probability(wins: int, blocks: int) -> Fraction:
    """p(w): the chance of at least so many wins if each block is a fair coin."""
    return Fraction(sum(comb(blocks, count) for count in range(wins, blocks + 1)), 2**blocks)


def wins_required(blocks: int, level: str) -> int:
    """The fewest wins whose one-sided sign test stays within the level."""
    for wins in range(blocks + 1):
        if sign_probability(wins, blocks) <= Fraction(level):
            return wins
    raise InputError(f"{blocks} blocks: not even {blocks} wins reach level {level}; plan more")


def read_plan(path: Path) -> Plan:
    """A plan from its TOML file, or one line that says what is wrong in it."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error})") from None
    try:
        return plan_of(raw)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: {_said(error)}") from None


def _said(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def plan_of(raw: dict[str, Any]) -> Plan:
    """A plan from the values of its TOML."""
    needed = {"name", "city", "seeds", "levels", "blocks", "claim", "methods"}
    _only(raw, needed | {"limits", "sumo"}, "plan")
    if missing := sorted(needed - set(raw)):
        raise InputError(f"{missing[0]!r} is missing")
    seeds = tuple(int(seed) for seed in raw["seeds"])
    levels = tuple(float(level) for level in raw["levels"])
    blocks = _blocks(raw["blocks"])
    for name, values in (("seeds", seeds), ("levels", levels), ("blocks", blocks)):
        if not values or len(set(values)) < len(values):
            raise InputError(f"{name}: there must be at least one, and none twice")
    methods = {label: _sources(label, given, seeds) for label, given in raw["methods"].items()}
    plan = Plan(
        name=str(raw["name"]),
        city=str(raw["city"]),
        seeds=seeds,
        levels=levels,
        blocks=blocks,
        claim=_claim(raw["claim"], set(methods), len(blocks)),
        limits=_limits(raw.get("limits", {})),
        methods=methods,
        sumo=raw.get("sumo"),
    )
    if not plan.name or not all(c.isalnum() or c in "-_." for c in plan.name):
        raise InputError(f"name {plan.name!r}: use letters, digits, - _ . only")
    plan.cells()  # a seed or level that no cell can have is refused here
    return plan


def _only(table: dict[str, Any], known: Iterable[str], where: str) -> None:
    if unknown := sorted(set(table) - set(known)):
        raise InputError(f"{where}: {unknown[0]!r} is not known; there are {sorted(known)}")


def _blocks(table: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    _only(table, {"sumo_seed", "demand_seed", "count"}, "blocks")
    first = (int(table["sumo_seed"]), int(table["demand_seed"]))
    return tuple((first[0] + i, first[1] + i) for i in range(int(table["count"])))


def _sources(label: str, given: object, seeds: tuple[int, ...]) -> tuple[str, ...]:
    """One source a seed: a list, or one text in which {seed} stands for the training seed."""
    if isinstance(given, str):
        return tuple(given.replace("{seed}", str(seed)) for seed in seeds)
    if isinstance(given, list) and len(given) == len(seeds):
        return tuple(str(source) for source in given)
    raise InputError(f"methods: {label} needs one source, or one for each of {len(seeds)} seeds")


def _claim(table: dict[str, Any], labels: set[str], blocks: int) -> Claim:
    _only(table, Claim.__dataclass_fields__, "claim")
    for role in ("candidate", "parent"):
        if role not in table:
            raise InputError(f"claim: {role!r} is missing")
    texts = {key: str(table[key]) for key in ("completion_margin", "level") if key in table}
    claim = Claim(**(table | texts | {"gates": tuple(table.get("gates", GATES))}))
    for label in (claim.candidate, claim.parent):
        if label not in labels:
            raise InputError(f"claim: {label!r} is not among the methods")
    if claim.candidate == claim.parent:
        raise InputError("claim: candidate and parent must differ")
    if not (0 < Fraction(claim.level) < 1 and 0 <= Fraction(claim.completion_margin) < 1):
        raise InputError("claim: level and completion_margin must lie between 0 and 1")
    fixed = Claim(claim.candidate, claim.parent)
    for key in ("endpoint", "direction", "unit", "ties"):
        if getattr(claim, key) != getattr(fixed, key):
            raise InputError(f"claim: {key} can only be {getattr(fixed, key)!r}")
    if unknown := [gate for gate in claim.gates if gate not in GATES]:
        raise InputError(f"claim: gate {unknown[0]!r} is not known; there are {list(GATES)}")
    wins = wins_required(blocks, claim.level)
    if claim.required_wins not in (None, wins):
        raise InputError(
            f"claim: required_wins = {claim.required_wins}, but {blocks} blocks at level "
            f"{claim.level} require {wins}"
        )
    return Claim(**(vars(claim) | {"required_wins": wins}))


def _limits(table: dict[str, Any]) -> Limits:
    _only(table, Limits.__dataclass_fields__, "limits")
    limits = Limits(**table)
    if not (limits.time_s > 0 and limits.memory_gib > 0 and limits.tries >= 1):
        raise InputError("limits: time_s, memory_gib and tries must be positive")
    return limits
