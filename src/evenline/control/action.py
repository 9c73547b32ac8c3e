"""The action: one number in [-1, 1]; -1 is exactly no hold, 1 is the 60 s cap.

`hold_of` and `action_of` convert numbers and arrays of NumPy and JAX, also in compiled code.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from evenline.support.compiled import shared
from evenline.support.errors import InputError

MAX_HOLD_S = 60.0
NO_HOLD = -1.0

Value = TypeVar("Value", bound=Any)  # a number or an array of them


@shared
def hold_of(action: Value) -> Value:
    """The hold of an action in seconds (the paper's action equation)."""
    hold_s: Value = (action + 1.0) / 2.0 * MAX_HOLD_S
    return hold_s


@shared
def action_of(hold_s: Value) -> Value:
    """The action of a hold: the inverse of `hold_of`, exact at both ends."""
    action: Value = hold_s * 2.0 / MAX_HOLD_S - 1.0
    return action


def check_action(action: float, bus: str, stop: str) -> float:
    """Refuse a value that is not an action; the error names bus, stop and value."""
    value = float(action)
    if not (math.isfinite(value) and -1.0 <= value <= 1.0):
        raise InputError(f"bus {bus} at stop {stop}: action {value} is not from -1 to 1")
    return value


def _seconds(hold: Any) -> float:
    if isinstance(hold, str | bytes):  # float would read '5'
        raise TypeError
    return float(hold)


def check_holds(
    holds_s: Iterable[float], buses: int, place: Callable[[int], tuple[str, str]]
) -> list[float]:
    """Refuse holds outside 0 to 60 s, or not one per bus. `place` names the bus and stop."""
    try:
        values = [_seconds(hold) for hold in holds_s]
    except (TypeError, ValueError, OverflowError) as error:
        shown = " ".join(repr(holds_s).split())
        shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
        raise InputError(f"got {shown}; a policy returns one hold in seconds per bus") from error
    if len(values) != buses:
        raise InputError(
            f"got {len(values)} holds for a batch of {buses} buses; return one per bus"
        )
    for i, value in enumerate(values):
        if not 0.0 <= value <= MAX_HOLD_S:  # also refuses NaN
            bus, stop = place(i)
            raise InputError(f"bus {bus} at stop {stop}: hold {value} s is not from 0 to 60 s")
    return values
