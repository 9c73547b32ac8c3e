"""Holding rules: small pure functions of the raw event, with their constants in one place.

The same compiled function serves the SUMO world, the fast kernel and whole arrays of events.
The eight behaviours of the replay are rows of `BEHAVIOURS`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    Batch,
)
from evenline.control.ledger import WEIGHT_RIDING, WEIGHT_WAITING
from evenline.support.compiled import compiled, inlined
from evenline.support.errors import InputError

ZERO, RANDOM, HEADWAY, MYOPIC = range(4)


@dataclass(frozen=True)
class Rule:
    """A named rule: its kind and its two constants (what they mean depends on the kind)."""

    name: str
    kind: int
    a: float = 0.0
    b: float = 0.0

    def __call__(self, batch: Batch) -> Sequence[float]:
        holds = np.empty(len(batch.raw))
        rule_holds(self.kind, self.a, self.b, batch.raw, holds)
        return holds.tolist()


BEHAVIOURS = {
    rule.name: rule
    for rule in (
        Rule("zero", ZERO),
        Rule("random-rare", RANDOM, 0.10, 60.0),  # share of buses held, longest hold
        Rule("random-often", RANDOM, 0.30, 30.0),
        Rule("headway-0.2", HEADWAY, 0.2),  # gain
        Rule("headway-0.4", HEADWAY, 0.4),
        Rule("headway-0.7", HEADWAY, 0.7),
        Rule("headway-1.0", HEADWAY, 1.0),
        Rule("myopic", MYOPIC),
    )
}


def named_rule(name: str) -> Rule:
    """A rule by name; `headway` is the gain-one headway rule."""
    rules = BEHAVIOURS | {"headway": BEHAVIOURS["headway-1.0"]}
    if name not in rules:
        raise InputError(f"policy {name!r}: there are {', '.join(rules)}")
    return rules[name]


@inlined
def headway_signal(raw: Array) -> float:
    """Half the difference of the headway errors behind and ahead (the headway reserve's core)."""
    behind = raw[BUS_BEHIND] * (raw[HEADWAY_BEHIND] - raw[TARGET_BEHIND])
    return float(0.5 * (behind - raw[BUS_AHEAD] * (raw[HEADWAY_AHEAD] - raw[TARGET_AHEAD])))


@inlined
def clip_hold(hold_s: float) -> float:
    """Into the operational range 0..60 s."""
    return min(max(hold_s, 0.0), MAX_HOLD_S)


@inlined
def myopic_hold(raw: Array) -> float:
    """The hold that minimises w_v n h + w_w rate (I_f (H_f + h)^2 + I_b (H_b - h)^2) / 2."""
    buses = raw[BUS_AHEAD] + raw[BUS_BEHIND]
    if raw[RATE] <= 0.0 or buses == 0.0:
        return 0.0
    price = WEIGHT_RIDING * raw[ON_BOARD] / (WEIGHT_WAITING * raw[RATE])
    gap = raw[BUS_BEHIND] * raw[HEADWAY_BEHIND] - raw[BUS_AHEAD] * raw[HEADWAY_AHEAD]
    return clip_hold((gap - price) / buses)


@compiled
def event_uniform(raw: Array, salt: int) -> float:
    """A uniform number in [0, 1) that depends on the event alone (splitmix64)."""
    x = np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
    for feature in (SERVICE, STOP, TIME):
        x = (x ^ np.uint64(raw[feature])) * np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(32)
    return float(x >> np.uint64(11)) / 9007199254740992.0


@inlined
def rule_hold(kind: int, a: float, b: float, raw: Array) -> float:
    """The hold of a rule at one event, in seconds."""
    if kind == HEADWAY:
        return clip_hold(a * headway_signal(raw))
    if kind == MYOPIC:
        return myopic_hold(raw)
    if kind == RANDOM:
        salt = int(1000.0 * a)
        if event_uniform(raw, salt) >= a:
            return 0.0
        return clip_hold(b * (1.0 - event_uniform(raw, salt + 1)))
    return 0.0


@compiled
def rule_holds(kind: int, a: float, b: float, raw: Array, out: Array) -> None:
    """The holds of a rule for many events, into `out`."""
    for row in range(raw.shape[0]):
        out[row] = rule_hold(kind, a, b, raw[row])
