"""The state a policy sees: 245 raw numbers, or 229 without units.

`pack` puts a batch and the actions already taken into one vector; `canonical` removes the units.
Both have the paper's widths: 5 + 16 (1 + 13 + 1) and 5 + 16 (1 + 12 + 1). Version 2 of the state
adds 16 numbers after these 229. The code does not depend on a simulator or on the number of
services.
"""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from evenline.city.model import City
from evenline.city.ranges import DAYS_S, MOST_CAPACITY
from evenline.control import event
from evenline.control.action import NO_HOLD
from evenline.control.event import Array, Batch
from evenline.support.compiled import compiled, inlined, shared
from evenline.support.records import Line, Record, Whole, Word

MAX_SLOTS = 16
PREFIX = 5
LOCAL = tuple(  # the raw features of a slot: all but those that a batch shares
    feature
    for feature in range(len(event.RAW_FEATURES))
    if feature not in (event.TIME, event.SYSTEM_WAITING, event.SYSTEM_ON_BOARD)
)
RAW_SLOT = 1 + len(LOCAL) + 1
SLOT = 1 + 12 + 1
PACKED_WIDTH = PREFIX + MAX_SLOTS * RAW_SLOT
CANONICAL_WIDTH = PREFIX + MAX_SLOTS * SLOT
# Version 1 is the paper's. Version 2 adds, for each slot, the time to the vehicle's next departure.
STATE_WIDTHS = {1: CANONICAL_WIDTH, 2: CANONICAL_WIDTH + MAX_SLOTS}

# Units of the canonical state, and the largest value each feature keeps.
_HEADWAY_UNIT_S = 600.0
_DWELL_UNIT_S = 60.0
_RATE_WINDOW_S = 600.0  # arrivals are counted in bus loads in ten minutes
HEADWAY_CAP = 6.0
WAITING_CAP = 20.0
RATE_CAP = 10.0
DWELL_CAP = 10.0


class Contract(Record):
    """The facts that a policy and a city must share; a bundle keeps them."""

    services: tuple[Line, ...]
    stops: tuple[Whole, ...]
    horizon_s: Annotated[int, Meta(ge=0, le=DAYS_S)]
    capacity: Annotated[int, Meta(ge=0, le=MOST_CAPACITY)]
    features: tuple[Word, ...]

    def __post_init__(self) -> None:
        if len(self.services) != len(self.stops):
            raise ValueError("each service needs its number of stops")

    @property
    def scale(self) -> Array:
        """(horizon, unit of the system-wide counts, last stop of each service)."""
        people = float(max(1, self.capacity) * len(self.services))
        last_stops = (max(1, count - 1) for count in self.stops)
        return np.array([float(self.horizon_s), people, *last_stops])


def contract_of(city: City) -> Contract:
    """The contract of a city."""
    return Contract(
        services=tuple(service.id for service in city.services),
        stops=tuple(len(service.stops) for service in city.services),
        horizon_s=city.horizon_s,
        capacity=city.vehicle.capacity,
        features=event.RAW_FEATURES,
    )


def pack(batch: Batch, decision: int, taken: npt.ArrayLike) -> Array:
    """The 245-wide state of one decision: the whole batch, and the actions taken before it."""
    out, actions = np.zeros(PACKED_WIDTH), np.asarray(taken, np.float64)
    if not 0 <= decision < len(batch.raw) <= MAX_SLOTS or len(actions) < decision:
        raise ValueError(
            f"decision {decision} of {len(batch.raw)} with {len(actions)} actions taken"
        )
    _write_packed(out, batch.raw, decision, actions)
    return out


@compiled
def _write_packed(out: Array, raw: Array, decision: int, taken: Array) -> None:
    """Write a packed state into `out`. Slots not yet decided keep the no-hold sentinel."""
    count = raw.shape[0]
    out[:] = 0.0
    out[0], out[1], out[2] = raw[0, event.TIME], count, decision
    out[3], out[4] = raw[0, event.SYSTEM_WAITING], raw[0, event.SYSTEM_ON_BOARD]
    for slot in range(MAX_SLOTS):
        base = PREFIX + slot * RAW_SLOT
        out[base + RAW_SLOT - 1] = taken[slot] if slot < decision else NO_HOLD
        if slot < count:
            out[base] = 1.0
            for k, feature in enumerate(LOCAL):
                out[base + 1 + k] = raw[slot, feature]


def canonical(packed: Array, contract: Contract) -> npt.NDArray[np.float32]:
    """The 229-wide state without units, for one packed state or many (along leading axes)."""
    flat = np.ascontiguousarray(packed, np.float64).reshape(-1, PACKED_WIDTH)
    out = np.zeros((len(flat), CANONICAL_WIDTH), np.float32)
    _normalise(out, flat, contract.scale)
    return out.reshape(*np.shape(packed)[:-1], CANONICAL_WIDTH)


def with_departures(
    state: npt.NDArray[np.float32], batch: Batch | None, departs_s: Array
) -> npt.NDArray[np.float32]:
    """Version 2 of a canonical state, with the time to the next departure of each vehicle.

    `departs_s` is when the vehicle of each trip should begin its next one. The unit is that of
    headways, negative once the departure is late; the cap also stands for no next trip. Empty slots
    have 0.
    """
    more = np.zeros(MAX_SLOTS, np.float32)
    if batch is not None:
        left = (departs_s[batch.trips] - batch.time_s) / _HEADWAY_UNIT_S
        more[: len(left)] = np.clip(left, -HEADWAY_CAP, HEADWAY_CAP)
    return np.concatenate([state, more])


@compiled
def _normalise(out: npt.NDArray[np.float32], packed: Array, scale: Array) -> None:
    for row in range(packed.shape[0]):
        write_prefix(
            out[row], packed[row, 0], packed[row, 1], packed[row, 2], packed[row, 3],
            packed[row, 4], scale,
        )  # fmt: skip
        for slot in range(MAX_SLOTS):
            start, base = PREFIX + slot * RAW_SLOT, PREFIX + slot * SLOT
            out[row, base + SLOT - 1] = packed[row, start + RAW_SLOT - 1]
            if packed[row, start] == 1.0:
                f = packed[row, start + 1 : start + 14]
                write_slot(
                    out[row, base : base + SLOT - 1], f[0], f[1], f[2], f[3], f[4], f[5], f[6],
                    f[7], f[8], f[9], f[10], f[11], f[12], scale,
                )  # fmt: skip


@shared
def prefix_features(
    time_s: Any, count: Any, decision: Any, waiting: Any, on_board: Any, scale: Any
) -> tuple[Any, ...]:
    """The five values that a batch shares, without units; for scalars or arrays."""
    return (
        time_s / scale[0],
        count / MAX_SLOTS,
        decision / MAX_SLOTS,
        waiting / scale[1],
        on_board / scale[1],
    )


def slot_formulas(least: Callable[..., Any], most: Callable[..., Any]) -> Callable[..., Any]:
    """The twelve local features without units, for a given minimum and maximum of two values.

    Compiled code uses Python's own; arrays, the device and exported graphs pass theirs.
    """

    def features(
        service: Any, stop: Any, ahead_s: Any, behind_s: Any, target_ahead_s: Any,
        target_behind_s: Any, waiting: Any, on_board: Any, rate: Any, dwell_s: Any, bus_ahead: Any,
        bus_behind: Any, capacity: Any, last_stop: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        room = most(capacity, 1.0)  # capacity is the unit of people
        return (
            service,
            stop / last_stop,
            least(ahead_s / _HEADWAY_UNIT_S, HEADWAY_CAP),
            least(behind_s / _HEADWAY_UNIT_S, HEADWAY_CAP),
            least(target_ahead_s / _HEADWAY_UNIT_S, HEADWAY_CAP),
            least(target_behind_s / _HEADWAY_UNIT_S, HEADWAY_CAP),
            least(waiting / room, WAITING_CAP),
            on_board / room,
            least(rate * _RATE_WINDOW_S / room, RATE_CAP),
            least(dwell_s / _DWELL_UNIT_S, DWELL_CAP),
            bus_ahead,
            bus_behind,
        )

    return features


slot_features = shared(slot_formulas(min, max))


@inlined
def write_prefix(
    out: npt.NDArray[np.float32],
    time_s: float,
    count: float,
    decision: float,
    waiting: float,
    on_board: float,
    scale: Array,
) -> None:
    """Write the five values that a batch shares."""
    out[0], out[1], out[2], out[3], out[4] = prefix_features(
        time_s, count, decision, waiting, on_board, scale
    )


@inlined
def write_slot(
    out: npt.NDArray[np.float32],
    service: float,
    stop: float,
    ahead_s: float,
    behind_s: float,
    target_ahead_s: float,
    target_behind_s: float,
    waiting: float,
    on_board: float,
    rate: float,
    dwell_s: float,
    bus_ahead: float,
    bus_behind: float,
    capacity: float,
    scale: Array,
) -> None:
    """Write the active flag and the twelve local features."""
    out[0] = 1.0
    (
        out[1], out[2], out[3], out[4], out[5], out[6], out[7], out[8], out[9], out[10], out[11],
        out[12],
    ) = slot_features(
        service, stop, ahead_s, behind_s, target_ahead_s, target_behind_s, waiting, on_board, rate,
        dwell_s, bus_ahead, bus_behind, capacity, scale[2 + int(service)],
    )  # fmt: skip
