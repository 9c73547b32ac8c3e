"""The physical chain: small pure functions that turn a proposal in seconds into a hold.

Each function is one equation of the paper's "Physical action calibration" and depends only on the
raw event and the hold so far. Both worlds, whole arrays of events and the fast kernel use the same
compiled functions. `explain` shows for every decision which of them changed the hold, and why.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.control import event
from evenline.control.event import Array
from evenline.rules.formulas import clip_hold, headway_signal
from evenline.support.compiled import compiled, inlined_or_called
from evenline.support.errors import InputError, choice

# The elements of a chain, in the order in which they act.
CALIBRATE, TAIL_FLOOR, COMPLETION_RESERVE = 1, 2, 4
ELEMENTS = {
    CALIBRATE: "calibration",
    TAIL_FLOOR: "tail floor",
    COMPLETION_RESERVE: "completion reserve",
}
CHAINS = {
    "raw": 0,
    "h16": CALIBRATE,
    "parent": CALIBRATE + TAIL_FLOOR,
    "candidate": CALIBRATE + TAIL_FLOOR + COMPLETION_RESERVE,
}

KEPT_SHARE = 0.125  # kept of a proposal that the headways do not support
CALIBRATED_UNTIL = 0.75  # fraction of the horizon
LOW_LOAD = 0.25
FLOOR_S, FLOOR_FROM, FLOOR_UNTIL = 20.0, 0.50, 0.75
RESERVE_S, RESERVE_FROM, RESERVE_UNTIL = 60.0, 0.15, 0.75

# The guard has one window for each element that uses it; both share the other terms.
WINDOWS = {
    "floor_window": (FLOOR_FROM, FLOOR_UNTIL),
    "reserve_window": (RESERVE_FROM, RESERVE_UNTIL),
}
COMMON_TERMS = ("bus_ahead", "no_bus_behind", "arrivals", "capacity", "low_load")
GUARD_TERMS = (*WINDOWS, *COMMON_TERMS)


def chain_code(name: str) -> int:
    """The elements of a chain by its name."""
    if name not in CHAINS:
        raise InputError(f"unknown chain {name!r}; choose {choice(CHAINS)}")
    return CHAINS[name]


@inlined_or_called
def headway_reserve(raw: Array) -> float:
    """h_hb: the gain-one headway rule."""
    return clip_hold(headway_signal(raw))


@inlined_or_called
def calibrated(raw: Array, proposal_s: float, rho: float) -> float:
    """h_16: an eighth of the proposal, or as much more of it as the headways support."""
    if rho < CALIBRATED_UNTIL and proposal_s > 0.0:
        return min(proposal_s, max(KEPT_SHARE * proposal_s, headway_reserve(raw)))
    return KEPT_SHARE * proposal_s


@inlined_or_called
def completion_guard(
    raw: Array,
    rho: float,
    low: float,
    high: float,
    load: float = LOW_LOAD,
    behind: int = event.BUS_BEHIND,
) -> bool:
    """G: a low-load bus with a bus ahead, none behind, and people still arriving.

    `behind` is the feature that is 0 where no bus is behind.
    """
    return bool(
        low <= rho < high
        and raw[event.BUS_AHEAD] == 1.0
        and raw[behind] == 0.0
        and raw[event.RATE] > 0.0
        and raw[event.CAPACITY] > 0.0
        and raw[event.ON_BOARD] / raw[event.CAPACITY] <= load
    )


@inlined_or_called
def tail_floor(raw: Array, hold_s: float, rho: float) -> float:
    """h_par: at least 20 s where the guard holds in the later part of the window."""
    return max(hold_s, FLOOR_S) if completion_guard(raw, rho, FLOOR_FROM, FLOOR_UNTIL) else hold_s


@inlined_or_called
def completion_reserve(raw: Array, hold_s: float, rho: float) -> float:
    """h_safe: 60 s where the guard holds in the whole window."""
    guarded = completion_guard(raw, rho, RESERVE_FROM, RESERVE_UNTIL)
    return max(hold_s, RESERVE_S) if guarded else hold_s


@inlined_or_called
def chained(chain: int, raw: Array, proposal_s: float, horizon_s: float) -> float:
    """Apply a chain to a proposal."""
    hold_s, rho = proposal_s, raw[event.TIME] / horizon_s
    hold_s = calibrated(raw, hold_s, rho) if chain & CALIBRATE else hold_s
    hold_s = tail_floor(raw, hold_s, rho) if chain & TAIL_FLOOR else hold_s
    return completion_reserve(raw, hold_s, rho) if chain & COMPLETION_RESERVE else hold_s


@compiled
def chained_holds(chain: int, raw: Array, proposals_s: Array, horizon_s: float, out: Array) -> None:
    """Apply a chain to many proposals; `out` may be the array of proposals."""
    for row in range(raw.shape[0]):
        out[row] = chained(chain, raw[row], proposals_s[row], horizon_s)


def apply_chain(chain: int, raw: Array, proposals_s: Array, horizon_s: float) -> Array:
    """Holds of a chain for the rows of a raw array."""
    holds = np.array(proposals_s, np.float64)
    if chain:  # compiling it takes as long as many days
        chained_holds(chain, raw, holds, float(horizon_s), holds)
    return holds


def seconds_column(element: str) -> str:
    """The name of the column with the change that one element made."""
    return f"{element.replace(' ', '_')}_s"


def explain(
    chain: int, raw: Array, proposals_s: Array, horizon_s: float
) -> dict[str, npt.NDArray[Any]]:
    """Columns that explain each decision: proposal, change by each element, guard terms.

    Each element has a column with the seconds it added or removed. `change_s` is their sum, and
    `changed_by` is the last element that changed the hold, or empty if none did. The terms of the
    guard are always included.
    """
    hold_s = np.array(proposals_s, np.float64)
    changed_by = np.full(len(raw), "", dtype=object)
    columns: dict[str, npt.NDArray[Any]] = {"proposal_s": hold_s.copy()}
    for element, name in ELEMENTS.items():
        after = apply_chain(chain & element, raw, hold_s, horizon_s)
        changed_by[after != hold_s] = name
        columns[seconds_column(name)] = after - hold_s
        hold_s = after
    columns["changed_by"] = changed_by
    columns["change_s"] = hold_s - columns["proposal_s"]
    for name, term in zip(GUARD_TERMS, guard_terms(raw, horizon_s), strict=True):
        columns[f"guard_{name}"] = term
    return columns


def guard_terms(raw: Array, horizon_s: float) -> tuple[npt.NDArray[np.bool_], ...]:
    """The conditions of the completion guard, its two windows first."""
    rho, capacity = raw[:, event.TIME] / horizon_s, raw[:, event.CAPACITY]
    return (
        *((rho >= low) & (rho < high) for low, high in WINDOWS.values()),
        raw[:, event.BUS_AHEAD] == 1.0,
        raw[:, event.BUS_BEHIND] == 0.0,
        raw[:, event.RATE] > 0.0,
        capacity > 0.0,
        (capacity > 0.0) & (raw[:, event.ON_BOARD] <= LOW_LOAD * capacity),
    )
