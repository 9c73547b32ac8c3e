"""Your own rule: one function of a bus, used in Python and by name in every command.

    @el.rule(gain=(0.3, 0.0, 1.5), compiled=True)
    def steady(bus, gain):
        return min(max(gain * (bus.target_ahead_s - bus.headway_ahead_s), 0.0), 60.0)

`evenline compare --policies zero,steady.py:steady:gain=0.4` runs it, and so does
`el.compare_policies("town", "zero", steady)`. A function without the decorator is a rule without
constants. A rule runs in plain Python unless it is `compiled`.
"""

import dis
import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, overload

import numpy as np

from evenline.control.event import RAW_FEATURES
from evenline.rules.table import WIDTH, Constant, Formula, Rule
from evenline.support.compiled import shared
from evenline.support.errors import InputError
from evenline.support.own import Own, load_own

Function = Callable[..., float]  # of a bus, and of the constants in order


class Bus(NamedTuple):
    """What a rule knows of a bus at a stop: the raw event, and how late it is on the timetable."""

    service: float
    stop: float
    time_s: float
    headway_ahead_s: float
    headway_behind_s: float
    target_ahead_s: float
    target_behind_s: float
    waiting: float
    on_board: float
    arrival_rate_per_s: float
    base_dwell_s: float
    bus_ahead: float
    bus_behind: float
    capacity: float
    system_waiting: float
    system_on_board: float
    late_s: float


_PLAUSIBLE = Bus(0, 3, 3600, 240, 360, 300, 300, 4, 20, 0.01, 12, 1, 1, 60, 150, 300, 30)


Default = tuple[float, float, float]  # of a constant: its value, and the range to tune it in


@overload
def rule(function: Function, /) -> Rule: ...


@overload
def rule(*, compiled: bool = False, **constants: Default) -> Callable[[Function], Rule]: ...


def rule(
    function: Function | None = None, /, *, compiled: bool = False, **constants: Default
) -> Rule | Callable[[Function], Rule]:
    """Make a rule from a function of a bus and of its constants, in this order.

    Each constant is given as (value, lowest, highest): `@rule(gain=(0.3, 0.0, 1.5))`.
    """
    listed = tuple(_constant(name, value) for name, value in constants.items())

    def made(function: Function) -> Rule:
        return _rule(function, listed, compiled)

    return made if function is None else made(function)


def _constant(name: str, value: Default) -> Constant:
    """A constant as the decorator gives it; refuses one that is not three numbers in order."""
    try:
        default, low, high = map(float, value)
    except (TypeError, ValueError):
        raise InputError(f"constant {name}: give (value, lowest, highest), not {value!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low <= default <= high):
        raise InputError(f"constant {name}: {value!r} must be in order: lowest <= value <= highest")
    return Constant(name, default, low, high)


def _rule(function: Function, constants: tuple[Constant, ...], compiled: bool) -> Rule:
    name = getattr(function, "__name__", "own")
    if len(constants) > WIDTH:
        raise InputError(f"rule {name} has {len(constants)} constants; use at most {WIDTH}")
    try:
        inspect.signature(function).bind(_PLAUSIBLE, *constants)
    except (TypeError, ValueError):
        takes = ", ".join(["bus", *(constant.name for constant in constants)])
        raise InputError(f"rule {name}: must be a function of a bus: {name}({takes})") from None
    if compiled and any(step.opname == "RAISE_VARARGS" for step in dis.Bytecode(function)):
        raise InputError(f"rule {name}: a compiled rule cannot raise; return a hold in every case")
    timed = "late_s" in getattr(getattr(function, "__code__", None), "co_names", ())
    formula = _formula(shared(function) if compiled else function, len(constants), timed)
    return Rule(name, formula, constants, "", timed, compiled, keep=False)


def _formula(function: Function, constants: int, timed: bool) -> Formula:
    """The function as the worlds and the kernel call a rule: with columns instead of names.

    It is written out, because compiled code takes no list of arguments. Only counts go into it.
    """
    columns = ", ".join(f"raw[{i}]" for i in range(len(RAW_FEATURES)))
    values = ", ".join(f"constants[{i}]" for i in range(constants))
    bus = f"Bus({columns}, {'late_s' if timed else 'nan'})"
    text = f"def formula(raw, constants, late_s):\n    return function({bus}, {values})\n"
    names: dict[str, Any] = {"function": function, "Bus": Bus, "nan": math.nan}
    names["__name__"] = getattr(function, "__module__", __name__)
    exec(text, names)
    formula: Formula = names["formula"]
    return formula


def rule_of(thing: object) -> Rule:
    """A rule from what `rule` made, or from a function of a bus."""
    if isinstance(thing, Rule):
        return thing
    if not callable(thing):
        raise InputError(f"policy {thing!r}: give a name, a bundle's folder or a function of a bus")
    return rule(thing)


def _check_compiled(source: str, rule: Rule) -> None:
    """Compile a rule; refuse one that fails at a plausible event in plain Python."""
    try:
        _ = rule.address
    except Exception as error:  # Numba has many; all mean that this function cannot be compiled
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(error).__name__
        raise InputError(
            f"{source}: cannot be compiled ({reason}); fix it, or leave out compiled=True"
        ) from error
    constants = np.array([*rule.values({}), *[0.0] * (WIDTH - len(rule.constants))])
    try:
        with np.errstate(all="ignore"):
            rule.formula(np.array(_PLAUSIBLE[:-1]), constants, _PLAUSIBLE.late_s)
    except ArithmeticError:
        return  # compiled, a division by zero gives inf or nan, which is refused as a hold
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{source}: fails in plain Python ({reason})") from error


def load_rule(source: str) -> tuple[Rule, Own]:
    """Load the rule that `FILE.py:NAME` or `MODULE:NAME` names; compile it if it is `compiled`."""
    code = load_own(source)
    if not isinstance(code.thing, Rule) and not callable(code.thing):
        raise InputError(f"{source}: {code.name} is not a function")
    loaded = rule_of(code.thing)
    if loaded.compiled:
        _check_compiled(source, loaded)
    return replace(loaded, keep=False), code
