"""An actor as a compiled formula of one event, so that the buses of a forecast can follow it.

The formula sees one bus at a time, as the state of a batch of one does. All that it needs is in one
array of numbers: the sizes, the scale of the state, the weights, and work space at the end. Each
forecast has an array of its own.
"""

import numpy as np

from evenline.control import event
from evenline.control.action import MAX_HOLD_S, NO_HOLD
from evenline.control.event import Array
from evenline.control.state import PREFIX, prefix_features, slot_features
from evenline.policies.actor import (
    FUSED_LAYERS,
    HEAD_LAYERS,
    LAST,
    PLAIN_COLUMNS,
    POSITION_COLUMNS,
    VIEWS,
    ActorPolicy,
)
from evenline.support.compiled import formula_entry, inlined

SIZES = 4  # services, widths of the slot network, the fused features and the head
_DENSE = (*FUSED_LAYERS[1:], *HEAD_LAYERS)
_SAME_VIEWS = 3  # of a batch of one, the first views are its bus, and the others are empty
_PLAIN = len(PLAIN_COLUMNS)


def numbers_of(policy: ActorPolicy) -> Array:
    """All numbers of the formula of an actor."""
    tensors, services = policy.actor.tensors, policy.actor.services
    slot, fused, hidden = (len(tensors[f"{name}.b"]) for name in ("slot0", "fuse0", "head0"))
    first = tensors["fuse0.w"]
    views = first[PREFIX:].reshape(VIEWS, slot, fused)[:_SAME_VIEWS].sum(axis=0)
    parts = [
        np.array([services, slot, fused, hidden], float),
        policy.contract.scale,
        *(tensors[name] for name in ("slot0.b", "slot0.w", "slot1.b", "slot1.w", "fuse0.b")),
        first[:PREFIX],
        views,
        *(tensors[f"{name}.{part}"] for name in _DENSE for part in "bw"),
        tensors[f"{LAST}.b"],
        np.ascontiguousarray(tensors[f"{LAST}.w"].T),
        np.zeros(2 * max(slot, fused, hidden)),
    ]
    return np.concatenate([part.ravel() for part in parts])


def address_of_formula() -> int:
    """Where compiled code calls the formula."""
    return int(formula_entry(hold_s, True).address)


@inlined
def _add(numbers: Array, to: int, weights: int, width: int, value: float) -> None:
    """Add a multiple of one row of weights."""
    for j in range(width):
        numbers[to + j] += value * numbers[weights + j]


@inlined
def _layer(numbers: Array, at: int, here: int, there: int, before: int, after: int) -> int:
    """A dense layer whose bias has been set already; returns where the next numbers are.

    What is not positive after the layer before does not count.
    """
    for i in range(before):
        if numbers[here + i] > 0.0:
            _add(numbers, there, at + i * after, after, numbers[here + i])
    return at + before * after


@inlined
def _bias(numbers: Array, at: int, to: int, width: int) -> int:
    for j in range(width):
        numbers[to + j] = numbers[at + j]
    return at + width


@inlined
def _slot(raw: Array, numbers: Array, at: int, to: int, services: int, slot: int) -> int:
    """The first layer of the bus that decides; returns where the next numbers are."""
    service = int(raw[event.SERVICE])
    at = _bias(numbers, at, to, slot)
    _, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11 = slot_features(
        raw[event.SERVICE], raw[event.STOP], raw[event.HEADWAY_AHEAD], raw[event.HEADWAY_BEHIND],
        raw[event.TARGET_AHEAD], raw[event.TARGET_BEHIND], raw[event.WAITING],
        raw[event.ON_BOARD], raw[event.RATE], raw[event.BASE_DWELL], raw[event.BUS_AHEAD],
        raw[event.BUS_BEHIND], raw[event.CAPACITY], numbers[SIZES + 2 + service],
    )  # fmt: skip
    inputs = (1.0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, NO_HOLD)
    for i in range(_PLAIN):
        _add(numbers, to, at + i * slot, slot, inputs[i])
    _add(numbers, to, at + (_PLAIN + service) * slot, slot, 1.0)
    _add(numbers, to, at + (_PLAIN + services) * slot, slot, 1.0)  # it is the bus that decides
    return at + (_PLAIN + services + POSITION_COLUMNS) * slot


@inlined
def _prefix(raw: Array, numbers: Array, at: int, to: int, fused: int) -> int:
    """The part of the state that a batch shares; returns where the next numbers are."""
    shared = prefix_features(
        raw[event.TIME], 1.0, 0.0, raw[event.SYSTEM_WAITING], raw[event.SYSTEM_ON_BOARD],
        (numbers[SIZES], numbers[SIZES + 1]),
    )  # fmt: skip
    for i in range(PREFIX):
        _add(numbers, to, at + i * fused, fused, shared[i])
    return at + PREFIX * fused


def hold_s(raw: Array, numbers: Array, late_s: float) -> float:
    """The actor's proposal for a bus that decides alone."""
    services, slot = int(numbers[0]), int(numbers[1])
    fused, hidden = int(numbers[2]), int(numbers[3])
    at = SIZES + 2 + services
    one = at + (
        (_PLAIN + services + POSITION_COLUMNS + 1) * slot + (slot + 1) * slot
        + (PREFIX + slot + 1) * fused + (fused + 1) * fused + (fused + 1) * hidden
        + (hidden + 1) * hidden + 3 * (hidden + 1)
    )  # fmt: skip
    two = one + max(slot, fused, hidden)
    at = _slot(raw, numbers, at, one, services, slot)
    at = _bias(numbers, at, two, slot)
    at = _layer(numbers, at, one, two, slot, slot)
    at = _bias(numbers, at, one, fused)
    at = _prefix(raw, numbers, at, one, fused)
    at = _layer(numbers, at, two, one, slot, fused)
    at = _bias(numbers, at, two, fused)
    at = _layer(numbers, at, one, two, fused, fused)
    at = _bias(numbers, at, one, hidden)
    at = _layer(numbers, at, two, one, fused, hidden)
    at = _bias(numbers, at, two, hidden)
    at = _layer(numbers, at, one, two, hidden, hidden)

    gate, mu = numbers[at], numbers[at + 1]
    for i in range(hidden):
        positive = max(numbers[two + i], 0.0)
        gate += positive * numbers[at + 3 + i]
        mu += positive * numbers[at + 3 + hidden + i]
    return float(MAX_HOLD_S / (1.0 + np.exp(-mu))) if gate >= 0.0 else 0.0
