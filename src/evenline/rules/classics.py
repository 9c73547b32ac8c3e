"""The holding rules the field trusts, each a pure function of the raw event and the lateness.

`hold_at` is the one implementation behind both worlds, whole arrays and the fast kernel; it also
answers for the rules of `evenline.rules.behaviours`. Sources, formulas and what is adapted are in
`docs/controllers.md`; constants, their defaults and their ranges are in `CLASSICS`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from evenline.control.event import (
    BUS_AHEAD,
    BUS_BEHIND,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    RATE,
    STOP,
    TARGET_AHEAD,
    TARGET_BEHIND,
    Array,
)
from evenline.rules.behaviours import HEADWAY, MYOPIC, RANDOM, ZERO, clip_hold, rule_hold
from evenline.rules.chain import chained
from evenline.support.compiled import compiled, inlined
from evenline.support.errors import InputError

SCHEDULE, FORWARD, TWO_WAY, VIRTUAL, EQUALISING, PREDICTION, EVEN = range(4, 11)


@dataclass(frozen=True)
class Constant:
    """A rule's constant: its name, its default, and the range it may be in."""

    name: str
    default: float
    low: float
    high: float

    def checked(self, value: object) -> float:
        """A value as a number within the range."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"constant {self.name}: {value!r} is not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf  # a whole number beyond any float
        if not math.isfinite(number) or not self.low <= number <= self.high:
            raise InputError(
                f"constant {self.name}: must be from {self.low:g} to {self.high:g}, "
                f"{number:g} is not"
            )
        return number


@dataclass(frozen=True)
class Classic:
    """A kind of rule with its constants. `timed` rules look at the timetable."""

    kind: int
    constants: tuple[Constant, ...] = ()
    timed: bool = False

    def values(self, given: Mapping[str, float]) -> tuple[float, ...]:
        """The constants in order: as given, or by default."""
        names = [constant.name for constant in self.constants]
        for name in given:
            if name not in names:
                raise InputError(f"constant {name!r}: there are {', '.join(names) or 'none'}")
        return tuple(c.checked(given.get(c.name, c.default)) for c in self.constants)


CLASSICS = {
    "zero": Classic(ZERO),
    "random": Classic(
        RANDOM, (Constant("share", 0.1, 0.0, 1.0), Constant("longest_s", 60.0, 0.0, 60.0))
    ),
    "headway": Classic(HEADWAY, (Constant("gain", 1.0, 0.0, 2.0),)),
    "myopic": Classic(MYOPIC),
    "schedule": Classic(SCHEDULE, (Constant("slack_s", 2.0, 0.0, 20.0),), timed=True),
    "forward": Classic(
        FORWARD, (Constant("slack_s", 0.0, 0.0, 30.0), Constant("gain", 0.3, 0.0, 1.5))
    ),
    "two-way": Classic(
        TWO_WAY, (Constant("slack_s", 0.0, 0.0, 30.0), Constant("gain", 0.3, 0.0, 1.5))
    ),
    "virtual-schedule": Classic(
        VIRTUAL,
        (
            Constant("slack_s", 2.0, 0.0, 20.0),
            Constant("kept", 0.6, 0.0, 1.0),
            Constant("board_s", 4.0, 0.0, 10.0),
        ),
        timed=True,
    ),
    "self-equalising": Classic(
        EQUALISING, (Constant("gain", 0.1, 0.0, 1.0), Constant("every", 8.0, 1.0, 24.0))
    ),
    "prediction": Classic(PREDICTION, (Constant("buses", 2.0, 1.0, 8.0),)),
    "even-headway": Classic(EVEN, (Constant("share", 0.7, 0.0, 1.5),)),
}


@inlined
def forward_hold(raw: Array, slack_s: float, gain: float) -> float:
    """Daganzo 2009: a slack, more for a bus that comes too soon after the one ahead.

    A bus without one ahead has the slack too, or it would run away from those that follow.
    """
    early_s = raw[BUS_AHEAD] * (raw[TARGET_AHEAD] - raw[HEADWAY_AHEAD])
    return clip_hold(slack_s + gain * early_s)


@inlined
def two_way_hold(raw: Array, slack_s: float, gain: float) -> float:
    """After Daganzo and Pilachowski 2011: balance the gaps behind and ahead.

    A neighbour that is not there counts as being where the timetable wants it.
    """
    ahead, behind = raw[HEADWAY_AHEAD], raw[HEADWAY_BEHIND]
    if raw[BUS_AHEAD] == 1.0 and raw[BUS_BEHIND] == 1.0:
        return clip_hold(slack_s + gain * (behind - ahead))
    if raw[BUS_AHEAD] == 1.0:
        return clip_hold(slack_s + gain * (raw[TARGET_AHEAD] - ahead))
    if raw[BUS_BEHIND] == 1.0:
        return clip_hold(slack_s + gain * (behind - raw[TARGET_BEHIND]))
    return clip_hold(slack_s)


@inlined
def virtual_schedule_hold(
    raw: Array, late_s: float, slack_s: float, kept: float, board_s: float
) -> float:
    """Xuan, Argote and Daganzo 2011, the one-parameter form.

    A share `kept` of the deviation from the virtual schedule is left at the next stop; what the
    gap ahead adds to boarding (`beta`) is taken out.
    """
    deviation = late_s - slack_s * raw[STOP]
    gap = raw[BUS_AHEAD] * (raw[HEADWAY_AHEAD] - raw[TARGET_AHEAD])
    beta = board_s * raw[RATE]
    return clip_hold(slack_s - (1.0 + beta - kept) * deviation + beta * (deviation - gap))


@inlined
def self_equalising_hold(raw: Array, gain: float, every: float) -> float:
    """Bartholdi and Eisenstein 2012: a share of the gap behind, at control points."""
    if raw[BUS_BEHIND] == 0.0 or int(raw[STOP]) % max(int(every + 0.5), 1) != 0:
        return 0.0
    return clip_hold(gain * raw[HEADWAY_BEHIND])


@inlined
def prediction_hold(raw: Array, buses: float) -> float:
    """Berrebi et al. 2015: leave at the steadiest pace that the coming buses can keep up.

    The bus behind is predicted from its gap, those after it from the timetable.
    """
    if raw[BUS_AHEAD] == 0.0 or raw[BUS_BEHIND] == 0.0:
        return 0.0
    ahead, until = raw[HEADWAY_AHEAD], raw[HEADWAY_AHEAD]
    best = ahead
    for k in range(1, int(buses + 0.5) + 1):
        until += raw[HEADWAY_BEHIND] if k == 1 else raw[TARGET_BEHIND]
        best = max(best, until / (k + 1))
    return clip_hold(best - ahead)


@inlined
def even_headway_hold(raw: Array, share: float) -> float:
    """Cats et al.: half way between the neighbours, but at most a share of the headway."""
    if raw[BUS_AHEAD] == 0.0 or raw[BUS_BEHIND] == 0.0:
        return 0.0
    middle = 0.5 * (raw[HEADWAY_AHEAD] + raw[HEADWAY_BEHIND])
    return clip_hold(min(middle, share * raw[TARGET_AHEAD]) - raw[HEADWAY_AHEAD])


@inlined
def hold_at(kind: int, c: Array, raw: Array, late_s: float) -> float:
    """The hold of any built-in rule at one event. `late_s` is the lateness on the timetable."""
    if kind == SCHEDULE:
        return clip_hold(c[0] * raw[STOP] - late_s)
    if kind == FORWARD:
        return forward_hold(raw, c[0], c[1])
    if kind == TWO_WAY:
        return two_way_hold(raw, c[0], c[1])
    if kind == VIRTUAL:
        return virtual_schedule_hold(raw, late_s, c[0], c[1], c[2])
    if kind == EQUALISING:
        return self_equalising_hold(raw, c[0], c[1])
    if kind == PREDICTION:
        return prediction_hold(raw, c[0])
    if kind == EVEN:
        return even_headway_hold(raw, c[0])
    return rule_hold(kind, c[0], c[1], raw)


@inlined
def controlled(
    kind: int, c: Array, chain: int, raw: Array, late_s: float, horizon_s: float
) -> float:
    """A rule's proposal, taken through a chain."""
    return chained(chain, raw, hold_at(kind, c, raw, late_s), horizon_s)


@compiled
def holds_at(kind: int, c: Array, raw: Array, late_s: Array, out: Array) -> None:
    """The holds of a rule for many events, into `out`."""
    for row in range(raw.shape[0]):
        out[row] = hold_at(kind, c, raw[row], late_s[row])
