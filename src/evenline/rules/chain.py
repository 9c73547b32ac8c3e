"""The physical chain: from a proposal in seconds to what the bus does, in small pure functions.

Each function is one equation of the paper's "Physical action calibration" and depends on the raw
event and the hold so far alone. The same compiled functions serve both worlds, whole arrays of
events and the fast kernel. `explain` says for each decision which of them changed it, and why.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.control.event import (
    BUS_AHEAD,
    BUS_BEHIND,
    CAPACITY,
    ON_BOARD,
    RATE,
    TIME,
    Array,
)
from evenline.rules.formulas import clip_hold, headway_signal
from evenline.support.compiled import compiled, inlined
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

KEPT_SHARE = 0.125  # of a proposal that the headways do not support
CALIBRATED_UNTIL = 0.75  # fraction of the horizon
LOW_LOAD = 0.25
FLOOR_S, FLOOR_FROM, FLOOR_UNTIL = 20.0, 0.50, 0.75
RESERVE_S, RESERVE_FROM, RESERVE_UNTIL = 60.0, 0.15, 0.75

# The guard has one window for each element that asks it; the other terms are common to both.
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


@inlined
def headway_reserve(raw: Array) -> float:
    """h_hb: the gain-one headway rule."""
    return clip_hold(headway_signal(raw))


@inlined
def calibrated(raw: Array, proposal_s: float, rho: float) -> float:
    """h_16: an eighth of the proposal, or as much more of it as the headways support."""
    if rho < CALIBRATED_UNTIL and proposal_s > 0.0:
        return min(proposal_s, max(KEPT_SHARE * proposal_s, headway_reserve(raw)))
    return KEPT_SHARE * proposal_s


@inlined
def completion_guard(raw: Array, rho: float, low: float, high: float) -> bool:
    """G: a low-load bus with a bus ahead, none behind, and people still arriving."""
    return bool(
        low <= rho < high
        and raw[BUS_AHEAD] == 1.0
        and raw[BUS_BEHIND] == 0.0
        and raw[RATE] > 0.0
        and raw[CAPACITY] > 0.0
        and raw[ON_BOARD] / raw[CAPACITY] <= LOW_LOAD
    )


@inlined
def tail_floor(raw: Array, hold_s: float, rho: float) -> float:
    """h_par: at least 20 s where the guard holds in the later part of the window."""
    return max(hold_s, FLOOR_S) if completion_guard(raw, rho, FLOOR_FROM, FLOOR_UNTIL) else hold_s


@inlined
def completion_reserve(raw: Array, hold_s: float, rho: float) -> float:
    """h_safe: 60 s where the guard holds in the whole window."""
    guarded = completion_guard(raw, rho, RESERVE_FROM, RESERVE_UNTIL)
    return max(hold_s, RESERVE_S) if guarded else hold_s


@inlined
def chained(chain: int, raw: Array, proposal_s: float, horizon_s: float) -> float:
    """The hold that a chain makes of a proposal."""
    hold_s, rho = proposal_s, raw[TIME] / horizon_s
    hold_s = calibrated(raw, hold_s, rho) if chain & CALIBRATE else hold_s
    hold_s = tail_floor(raw, hold_s, rho) if chain & TAIL_FLOOR else hold_s
    return completion_reserve(raw, hold_s, rho) if chain & COMPLETION_RESERVE else hold_s


@compiled
def chained_holds(chain: int, raw: Array, proposals_s: Array, horizon_s: float, out: Array) -> None:
    """The same for many events, into `out`, which may be the proposals themselves."""
    for row in range(raw.shape[0]):
        out[row] = chained(chain, raw[row], proposals_s[row], horizon_s)


def apply_chain(chain: int, raw: Array, proposals_s: Array, horizon_s: float) -> Array:
    """Holds of a chain for the rows of a raw array."""
    holds = np.array(proposals_s, np.float64)
    chained_holds(chain, raw, holds, float(horizon_s), holds)
    return holds


def seconds_column(element: str) -> str:
    """The column that tells what an element alone changed."""
    return f"{element.replace(' ', '_')}_s"


def explain(
    chain: int, raw: Array, proposals_s: Array, horizon_s: float
) -> dict[str, npt.NDArray[Any]]:
    """Columns that account for each decision: proposal, what each element changed, guard terms.

    Each element has a column of the seconds it alone added or took; `change_s` is their sum and
    `changed_by` the last of them that changed anything, empty where the proposal was carried out
    as it was. The guard's terms are there whether or not an element of the chain asks for them.
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
    """The conditions of the completion guard one by one, its two windows first."""
    rho, capacity = raw[:, TIME] / horizon_s, raw[:, CAPACITY]
    return (
        *((rho >= low) & (rho < high) for low, high in WINDOWS.values()),
        raw[:, BUS_AHEAD] == 1.0,
        raw[:, BUS_BEHIND] == 0.0,
        raw[:, RATE] > 0.0,
        capacity > 0.0,
        (capacity > 0.0) & (raw[:, ON_BOARD] <= LOW_LOAD * capacity),
    )
