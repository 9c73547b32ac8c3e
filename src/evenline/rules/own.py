"""Your own rule: one function in one file, used by name in every command.

    from evenline.rules.own import Constant, rule

    @rule(constants=[Constant("gain", 0.3, 0.0, 1.5)], compiled=True)
    def steady(raw, constants, late_s):
        return min(max(constants[0] * (raw[TARGET_AHEAD] - raw[HEADWAY_AHEAD]), 0.0), 60.0)

`evenline compare --policies zero,steady.py:steady:gain=0.4` runs it. A function without the
decorator is a rule without constants. A rule runs in plain Python unless it is `compiled`.
"""

import dis
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from evenline.control.event import RAW_FEATURES
from evenline.rules.table import WIDTH, Constant, Formula, Rule
from evenline.support.errors import InputError
from evenline.support.own import Own, load_own

__all__ = ["Constant", "load_rule", "rule"]


def rule(
    constants: Sequence[Constant] = (),
    timed: bool = False,
    compiled: bool = False,
    source: str = "",
) -> Callable[[Formula], Rule]:
    """Make a rule from a function of the raw event, the constants in order, and the lateness."""

    def made(formula: Formula) -> Rule:
        name = formula.__name__
        if len(constants) > WIDTH:
            raise InputError(f"rule {name} has {len(constants)} constants; use at most {WIDTH}")
        return Rule(name, formula, tuple(constants), source, timed, compiled, keep=False)

    return made


def _check_compiled(source: str, rule: Rule) -> None:
    """Compile a rule; refuse one that raises or reads a feature that does not exist."""
    if any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(rule.formula)):
        raise InputError(f"{source}: a compiled rule cannot raise; return a hold in every case")
    try:
        _ = rule.address
    except Exception as error:  # Numba has many; all mean that this function cannot be compiled
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = said[-1] if said else type(error).__name__
        raise InputError(
            f"{source}: cannot be compiled ({reason}); fix it, or leave out compiled=True"
        ) from error
    constants = [*rule.values({}), *[0.0] * (WIDTH - len(rule.constants))]
    for value in (0.0, 1.0):
        try:
            rule.formula(np.full(len(RAW_FEATURES), value), np.array(constants), value)
        except ArithmeticError:
            continue  # compiled, a division by zero gives inf or nan, which is refused as a hold
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[:1]
            raise InputError(f"{source}: fails in plain Python ({said[0]})") from error


def load_rule(source: str) -> tuple[Rule, Own]:
    """Load the rule that `FILE.py:NAME` or `MODULE:NAME` names; compile it if it is `compiled`."""
    own = load_own(source)
    found = own.thing
    if not isinstance(found, Rule):
        if not callable(found):
            raise InputError(f"{source}: {own.name} is not a function")
        found = Rule(own.name, found, compiled=False)
    if found.compiled:
        _check_compiled(source, found)
    return replace(found, keep=False), own
