"""The table of rules: each row has a rule's formula, its constants with their ranges, its source.

Both worlds, tuning, bundles, trials and the documents read this table; your own rule
(`evenline.rules.own`) is a row of the same kind.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenline.rules import formulas
from evenline.support.compiled import formula_entry
from evenline.support.errors import InputError, choice

WIDTH = 8  # constants are padded to this many, so that every compiled formula takes the same array
Formula = Callable[[Any, Any, float], float]


@dataclass(frozen=True)
class Constant:
    """A constant of a rule: its name, default and range."""

    name: str
    default: float
    low: float
    high: float

    def checked(self, value: object) -> float:
        """Check that a value is a number within the range, and return it."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"constant {self.name}: {value!r} is not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf  # a whole number too large for a float
        if not math.isfinite(number) or not self.low <= number <= self.high:
            raise InputError(
                f"constant {self.name} is {number:g}; must be from {self.low:g} to {self.high:g}"
            )
        return number


def values_of(
    whose: str, constants: Iterable[Constant], given: Mapping[str, object]
) -> tuple[float, ...]:
    """Checked values of constants, in order; those that are not given have their defaults."""
    known = {constant.name: constant for constant in constants}
    for name in given:
        if name not in known:
            raise InputError(f"{whose}: unknown constant {name!r}; choose {choice(known)}")
    return tuple(c.checked(given.get(c.name, c.default)) for c in known.values())


@dataclass(frozen=True)
class Rule:
    """A row of the table. `timed` rules use the timetable; `compiled` rules run in the kernel.

    `keep` caches the compiled formula on disk; it is meant for the files of this package.
    """

    name: str
    formula: Formula = field(repr=False)
    constants: tuple[Constant, ...] = ()
    source: str = ""
    timed: bool = False
    compiled: bool = True
    keep: bool = field(default=True, repr=False)

    def values(self, given: Mapping[str, object]) -> tuple[float, ...]:
        """The constants in order; those that are not given have their defaults."""
        return values_of(f"rule {self.name}", self.constants, given)

    def named(self, values: Iterable[float]) -> dict[str, float]:
        """Values of the constants by name."""
        return {c.name: value for c, value in zip(self.constants, values, strict=True)}

    @property
    def address(self) -> int:
        """The address at which the kernel calls the compiled formula; 0 for plain Python."""
        return int(formula_entry(self.formula, self.keep).address) if self.compiled else 0


RULES = {
    rule.name: rule
    for rule in (
        Rule("zero", formulas.zero, source="no control"),
        Rule(
            "random",
            formulas.random,
            (Constant("share", 0.1, 0.0, 1.0), Constant("longest_s", 60.0, 0.0, 60.0)),
            "the paper's random hurdle behaviours",
        ),
        Rule(
            "headway",
            formulas.headway,
            (Constant("gain", 1.0, 0.0, 2.0),),
            "the paper's schedule-adjusted headway balance",
        ),
        Rule("myopic", formulas.myopic, source="the paper's closed-form myopic welfare"),
        Rule(
            "schedule",
            formulas.schedule,
            (Constant("slack_s", 2.0, 0.0, 20.0),),
            "holding to the timetable, the common practice",
            timed=True,
        ),
        Rule(
            "forward",
            formulas.forward,
            (Constant("slack_s", 0.0, 0.0, 30.0), Constant("gain", 0.3, 0.0, 1.5)),
            "Daganzo 2009",
        ),
        Rule(
            "two-way",
            formulas.two_way,
            (Constant("slack_s", 0.0, 0.0, 30.0), Constant("gain", 0.3, 0.0, 1.5)),
            "after Daganzo and Pilachowski 2011",
        ),
        Rule(
            "virtual-schedule",
            formulas.virtual_schedule,
            (
                Constant("slack_s", 2.0, 0.0, 20.0),
                Constant("kept", 0.6, 0.0, 1.0),
                Constant("board_s", 4.0, 0.0, 10.0),
            ),
            "Xuan, Argote and Daganzo 2011",
            timed=True,
        ),
        Rule(
            "self-equalising",
            formulas.self_equalising,
            (Constant("gain", 0.1, 0.0, 1.0), Constant("every", 8.0, 1.0, 24.0)),
            "Bartholdi and Eisenstein 2012",
        ),
        Rule(
            "prediction",
            formulas.prediction,
            (Constant("buses", 2.0, 1.0, 8.0),),
            "Berrebi et al. 2015",
        ),
        Rule(
            "even-headway",
            formulas.even_headway,
            (Constant("share", 0.7, 0.0, 1.5),),
            "Cats et al.",
        ),
    )
}
