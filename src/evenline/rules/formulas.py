"""The formulas of the holding rules: each a pure function of one event, in seconds of hold.

A formula takes the raw event, the rule's constants in the order of its row in the table, and the
lateness on the timetable. Both worlds, whole arrays, the fast kernel and plain Python use the same
function. `evenline.rules.table` gives names, ranges and sources.
"""

import numpy as np

from evenline.control.action import MAX_HOLD_S
from evenline.control.event import (
    BUS_AHEAD,
    BUS_BEHIND,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    ON_BOARD,
    RATE,
    SERVICE,
    STOP,
    TARGET_AHEAD,
    TARGET_BEHIND,
    TIME,
    Array,
)
from evenline.control.ledger import WEIGHT_RIDING, WEIGHT_WAITING
from evenline.support.compiled import inlined_or_called


@inlined_or_called
def clip_hold(hold_s: float) -> float:
    """Clip a hold to the range 0 to 60 s."""
    return min(max(hold_s, 0.0), MAX_HOLD_S)


@inlined_or_called
def headway_signal(raw: Array) -> float:
    """Half the difference of the headway errors behind and ahead (the headway reserve's core)."""
    behind = raw[BUS_BEHIND] * (raw[HEADWAY_BEHIND] - raw[TARGET_BEHIND])
    return float(0.5 * (behind - raw[BUS_AHEAD] * (raw[HEADWAY_AHEAD] - raw[TARGET_AHEAD])))


@inlined_or_called
def event_uniform(raw: Array, salt: int) -> float:
    """A uniform number in [0, 1) that depends only on the event (splitmix64)."""
    x = np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
    for feature in (SERVICE, STOP, TIME):
        x = (x ^ np.uint64(raw[feature])) * np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(32)
    return float(x >> np.uint64(11)) / 9007199254740992.0


def zero(raw: Array, constants: Array, late_s: float) -> float:
    """Never hold."""
    return 0.0


def random(raw: Array, constants: Array, late_s: float) -> float:
    """Hold a share of the buses, each for a uniform time up to `longest`."""
    share, longest_s = constants[0], constants[1]
    salt = int(1000.0 * share)
    if event_uniform(raw, salt) >= share:
        return 0.0
    return clip_hold(longest_s * (1.0 - event_uniform(raw, salt + 1)))


def headway(raw: Array, constants: Array, late_s: float) -> float:
    """Balance the headway errors behind and ahead."""
    return clip_hold(constants[0] * headway_signal(raw))


def myopic(raw: Array, constants: Array, late_s: float) -> float:
    """The hold that minimises w_v n h + w_w rate (I_f (H_f + h)^2 + I_b (H_b - h)^2) / 2."""
    buses = raw[BUS_AHEAD] + raw[BUS_BEHIND]
    if raw[RATE] <= 0.0 or buses == 0.0:
        return 0.0
    price = WEIGHT_RIDING * raw[ON_BOARD] / (WEIGHT_WAITING * raw[RATE])
    gap = raw[BUS_BEHIND] * raw[HEADWAY_BEHIND] - raw[BUS_AHEAD] * raw[HEADWAY_AHEAD]
    return clip_hold((gap - price) / buses)


def schedule(raw: Array, constants: Array, late_s: float) -> float:
    """Hold an early bus until it is due, with some slack for every stop so far."""
    return clip_hold(constants[0] * raw[STOP] - late_s)


def forward(raw: Array, constants: Array, late_s: float) -> float:
    """Daganzo 2009: a slack, and more for a bus that is too close to the one ahead.

    A bus without one ahead gets the slack too; otherwise it would run away from its followers.
    """
    slack_s, gain = constants[0], constants[1]
    early_s = raw[BUS_AHEAD] * (raw[TARGET_AHEAD] - raw[HEADWAY_AHEAD])
    return clip_hold(slack_s + gain * early_s)


def two_way(raw: Array, constants: Array, late_s: float) -> float:
    """After Daganzo and Pilachowski 2011: balance the gaps behind and ahead. A missing neighbour
    counts as on time.
    """
    slack_s, gain = constants[0], constants[1]
    ahead, behind = raw[HEADWAY_AHEAD], raw[HEADWAY_BEHIND]
    if raw[BUS_AHEAD] == 1.0 and raw[BUS_BEHIND] == 1.0:
        return clip_hold(slack_s + gain * (behind - ahead))
    if raw[BUS_AHEAD] == 1.0:
        return clip_hold(slack_s + gain * (raw[TARGET_AHEAD] - ahead))
    if raw[BUS_BEHIND] == 1.0:
        return clip_hold(slack_s + gain * (behind - raw[TARGET_BEHIND]))
    return clip_hold(slack_s)


def virtual_schedule(raw: Array, constants: Array, late_s: float) -> float:
    """Xuan, Argote and Daganzo 2011, the one-parameter form.

    A share `kept` of the deviation from the virtual schedule remains at the next stop; the rule
    removes the boarding time (`beta`) that the gap ahead adds.
    """
    slack_s, kept, board_s = constants[0], constants[1], constants[2]
    deviation = late_s - slack_s * raw[STOP]
    gap = raw[BUS_AHEAD] * (raw[HEADWAY_AHEAD] - raw[TARGET_AHEAD])
    beta = board_s * raw[RATE]
    return clip_hold(slack_s - (1.0 + beta - kept) * deviation + beta * (deviation - gap))


def self_equalising(raw: Array, constants: Array, late_s: float) -> float:
    """Bartholdi and Eisenstein 2012: a share of the gap behind, at control points."""
    gain, every = constants[0], constants[1]
    if raw[BUS_BEHIND] == 0.0 or int(raw[STOP]) % max(int(every + 0.5), 1) != 0:
        return 0.0
    return clip_hold(gain * raw[HEADWAY_BEHIND])


def prediction(raw: Array, constants: Array, late_s: float) -> float:
    """Berrebi et al. 2015: leave at the most regular pace that the following buses can keep.

    The bus behind is predicted from its gap, and the buses after it from the timetable.
    """
    if raw[BUS_AHEAD] == 0.0 or raw[BUS_BEHIND] == 0.0:
        return 0.0
    ahead, until = raw[HEADWAY_AHEAD], raw[HEADWAY_AHEAD]
    best = ahead
    for k in range(1, int(constants[0] + 0.5) + 1):
        until += raw[HEADWAY_BEHIND] if k == 1 else raw[TARGET_BEHIND]
        best = max(best, until / (k + 1))
    return clip_hold(best - ahead)


def even_headway(raw: Array, constants: Array, late_s: float) -> float:
    """Cats et al.: halfway between the neighbours, but at most a share of the headway."""
    if raw[BUS_AHEAD] == 0.0 or raw[BUS_BEHIND] == 0.0:
        return 0.0
    middle = 0.5 * (raw[HEADWAY_AHEAD] + raw[HEADWAY_BEHIND])
    return clip_hold(min(middle, constants[0] * raw[TARGET_AHEAD]) - raw[HEADWAY_AHEAD])
