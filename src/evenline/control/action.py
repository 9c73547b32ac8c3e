"""The action: one number in [-1, 1]; -1 is exactly no hold, 1 is the 60 s cap."""

import math
from collections.abc import Callable, Iterable

from evenline.support.compiled import shared
from evenline.support.errors import InputError

MAX_HOLD_S = 60.0
NO_HOLD = -1.0


@shared
def hold_of(action: float) -> float:
    """Seconds of hold of an action (the paper's action equation)."""
    return (action + 1.0) / 2.0 * MAX_HOLD_S


@shared
def action_of(hold_s: float) -> float:
    """The action of a hold: the inverse, exact at both ends."""
    return 2.0 * hold_s / MAX_HOLD_S - 1.0


def check_action(action: float, bus: str, stop: str) -> float:
    """Refuse what is not an action, naming bus, stop and value."""
    value = float(action)
    if not (math.isfinite(value) and -1.0 <= value <= 1.0):
        raise InputError(f"bus {bus} at stop {stop}: action {value} is not within -1..1")
    return value


def check_holds(
    holds_s: Iterable[float], buses: int, place: Callable[[int], tuple[str, str]]
) -> list[float]:
    """Refuse holds outside 0..60 s; one is due for each bus. `place` names the bus and stop."""
    values = [float(hold) for hold in holds_s]
    if len(values) != buses:
        raise InputError(f"{len(values)} holds for a batch of {buses} buses")
    for i, value in enumerate(values):
        if not 0.0 <= value <= MAX_HOLD_S:  # nor is a value that is not a number
            bus, stop = place(i)
            raise InputError(f"bus {bus} at stop {stop}: hold {value} s is not within 0..60 s")
    return values
