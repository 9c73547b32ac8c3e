"""The replay as learners read it: compact columns in memory, with states built on demand.

Opening a store checks every file against the manifest. Compiled code builds the packed or canonical
states for the rows of a minibatch; they are never stored. The next row of the same episode is a
decision's next state; an episode's last row is terminal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, service_stop_offsets
from evenline.city.model import City
from evenline.city.tables import digest
from evenline.control.action import NO_HOLD, action_of
from evenline.control.event import Array
from evenline.control.outcome import Outcome
from evenline.control.state import (
    CANONICAL_WIDTH,
    MAX_SLOTS,
    PREFIX,
    SLOT,
    contract_of,
    write_prefix,
    write_slot,
)
from evenline.replay.episode import Decisions, read_decisions, read_metadata
from evenline.replay.sealed import MANIFEST, Manifest, check_sealed
from evenline.support.compiled import compiled, shared
from evenline.support.errors import InputError

I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]


class Columns(NamedTuple):
    """All decisions of all episodes in order: 26 bytes per row, or 30 if holds were limited."""

    time_s: I32
    trip: I16
    stop: I16
    headway_ahead_s: I16  # -1: no bus ahead
    headway_behind_s: I16
    waiting: I16
    on_board: I16
    base_dwell_s: I16
    system_waiting: I16
    system_on_board: I16
    hold_s: F32
    batch: I16  # index within the batch, and the size of the batch
    batch_size: I16
    level: npt.NDArray[np.int8]
    shown_s: F32  # the holds that were asked for; the same array if all were executed


class Known(NamedTuple):
    """The tables of the city that complete a row."""

    service: I32
    first_stop: I32
    target_ahead: Array
    target_behind: Array
    rates: Array  # level, place, half hour
    scale: Array
    capacity: Array  # of each trip's bus


@dataclass(frozen=True)
class Episode:
    """One episode of a store: its rows and its provenance."""

    behaviour: str
    cell: Cell
    first: int
    last: int  # one past its final row
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Store:
    """An opened replay."""

    folder: Path
    manifest: Manifest
    city: City
    episodes: tuple[Episode, ...]
    columns: Columns
    known: Known
    cost: I32
    terminal: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.cost)

    def canonical(self, rows: npt.NDArray[np.int64], out: F32 | None = None) -> F32:
        """Canonical states of the rows of a minibatch."""
        if out is None:
            out = np.empty((len(rows), CANONICAL_WIDTH), np.float32)
        _write_states(self.columns, self.known, rows, out)
        return out

    @property
    def action(self) -> F32:
        """Executed actions in [-1, 1]; a longer wait for the earliest departure counts as 1."""
        return np.minimum(np.asarray(action_of(self.columns.hold_s), np.float32), np.float32(1.0))

    @property
    def reward(self) -> F32:
        """Minus the cost of each decision, in passenger-seconds."""
        return -self.cost.astype(np.float32)

    def duration_s(self) -> I32:
        """Seconds from each decision to the next, or to the horizon."""
        after = np.append(self.columns.time_s[1:], 0)
        after[self.terminal] = self.city.horizon_s
        return np.asarray(after - self.columns.time_s, np.int32)


def open_store(folder: Path, city: City) -> Store:
    """Check a store against its manifest and load it."""
    manifest = check_sealed(folder)
    if manifest.plan.city != digest(city):
        raise InputError(f"{folder / MANIFEST}: the replay was not collected in {city.name}")
    parts, levels, episodes, costs = [], [], [], []
    known_levels: list[float] = []
    first = 0
    for name in manifest.files:
        metadata, decisions = read_metadata(folder / name), read_decisions(folder / name)
        _check_order(folder / name, decisions, city)
        cell = metadata.cell
        if cell.demand not in known_levels:
            known_levels.append(cell.demand)
        episodes.append(
            Episode(metadata.behaviour, cell, first, first + len(decisions), metadata.outcome)
        )
        first += len(decisions)
        parts.append(decisions)
        costs.append(decisions.cost)
        levels.append(np.full(len(decisions), known_levels.index(cell.demand), np.int8))
    terminal = np.zeros(first, bool)
    terminal[[episode.last - 1 for episode in episodes]] = True
    return Store(
        folder,
        manifest,
        city,
        tuple(episodes),
        _columns(parts, levels),
        _known_of(city, tuple(known_levels)),
        np.concatenate(costs),
        terminal,
    )


def _check_order(path: Path, decisions: Decisions, city: City) -> None:
    """Check that rows are in order, holds are numbers, and trips belong to the city."""
    if len(decisions) == 0:
        raise InputError(f"{path} has no rows")
    back = np.flatnonzero(np.diff(decisions.time_s) < 0)
    if len(back):
        raise InputError(f"{path} row {back[0] + 2}: out of order in time")
    bad = np.flatnonzero(~(np.isfinite(decisions.hold_s) & np.isfinite(decisions.shown_s)))
    if len(bad):
        raise InputError(f"{path} row {bad[0] + 1}: hold is not a number")
    if decisions.trip.min() < 0 or decisions.trip.max() >= len(city.trips):
        raise InputError(f"{path} contains a trip that does not exist in {city.name}")
    stops = np.array([len(city.services[trip.service].stops) for trip in city.trips])
    if decisions.stops.min() < 0 or (decisions.stops >= stops[decisions.trip]).any():
        raise InputError(f"{path} contains a stop that its trip does not have in {city.name}")


def _columns(parts: list[Decisions], levels: list[npt.NDArray[np.int8]]) -> Columns:
    def column(name: str) -> Any:
        return np.concatenate([getattr(decisions, name) for decisions in parts])

    places, sizes = zip(*(batch_places(decisions.time_s) for decisions in parts), strict=True)
    small = {
        name: _narrow(column(name), name)
        for name in (
            "trip", "headway_ahead_s", "headway_behind_s", "waiting", "on_board",
            "base_dwell_s", "system_waiting", "system_on_board",
        )
    }  # fmt: skip
    hold_s = column("hold_s")
    same = all(decisions.asked_s is None for decisions in parts)
    return Columns(
        time_s=column("time_s"),
        stop=column("stops").astype(np.int16),
        hold_s=hold_s,
        shown_s=hold_s if same else column("shown_s"),
        batch=np.concatenate(places),
        batch_size=np.concatenate(sizes),
        level=np.concatenate(levels),
        **small,
    )


def _narrow(column: I32, name: str) -> I16:
    if column.max() > np.iinfo(np.int16).max:
        raise InputError(f"{name} {column.max()} is too large for a replay row")
    return column.astype(np.int16)


def batch_places(time_s: I32) -> tuple[I16, I16]:
    """The index of each row within its batch, and the size of the batch.

    A moment with more than sixteen decisions has consecutive batches of sixteen.
    """
    starts = np.flatnonzero(np.concatenate([[True], np.diff(time_s) != 0]))
    sizes = np.diff(np.append(starts, len(time_s)))
    place = np.arange(len(time_s)) - np.repeat(starts, sizes)
    whole = np.repeat(sizes, sizes)
    part = np.minimum(whole - place // MAX_SLOTS * MAX_SLOTS, MAX_SLOTS)
    return (place % MAX_SLOTS).astype(np.int16), part.astype(np.int16)


def _known_of(city: City, levels: tuple[float, ...]) -> Known:
    """The tables that a row needs in addition to its own columns."""
    ahead, behind = city.headway_targets()
    return Known(
        np.array([trip.service for trip in city.trips], np.int32),
        service_stop_offsets(city),
        ahead,
        behind,
        np.stack([arrival_rates(city, level) for level in levels]),
        contract_of(city).scale,
        city.capacities,
    )


def event_formulas(least: Callable[..., Any], most: Callable[..., Any]) -> Callable[..., Any]:
    """The thirteen raw features of a row or rows, in the order of `control.state.LOCAL`."""

    def features(c: Columns, k: Known, r: Any) -> tuple[Any, ...]:
        trip, stop = c.trip[r], c.stop[r]
        service = k.service[trip]
        slot = least(c.time_s[r] // RATE_BIN_S, k.rates.shape[2] - 1)
        ahead, behind = c.headway_ahead_s[r], c.headway_behind_s[r]
        return (
            service, stop, most(ahead, 0), most(behind, 0), k.target_ahead[trip],
            k.target_behind[trip], c.waiting[r], c.on_board[r],
            k.rates[c.level[r], k.first_stop[service] + stop, slot], c.base_dwell_s[r],
            ahead >= 0, behind >= 0, k.capacity[trip],
        )  # fmt: skip

    return features


_event_features = shared(event_formulas(min, max))


@compiled
def _write_states(c: Columns, k: Known, rows: npt.NDArray[np.int64], out: F32) -> None:
    """Canonical states of many rows, into `out`."""
    for i in range(rows.shape[0]):
        row, state = rows[i], out[i]
        place, size = c.batch[row], c.batch_size[row]
        first = row - place
        state[:] = 0.0
        write_prefix(
            state, c.time_s[row], size, place, c.system_waiting[row], c.system_on_board[row],
            k.scale,
        )  # fmt: skip
        for slot in range(MAX_SLOTS):
            base, r = PREFIX + slot * SLOT, first + slot
            state[base + SLOT - 1] = action_of(c.shown_s[r]) if slot < place else NO_HOLD
            if slot < size:
                f = _event_features(c, k, r)
                write_slot(
                    state[base : base + SLOT - 1], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7],
                    f[8], f[9], f[10], f[11], f[12], k.scale,
                )  # fmt: skip
