"""The agent-environment cycle: a world that asks for one decision at a time.

The buses of a batch decide in order. Each sees the whole batch and the actions already taken; time
moves only after the last. The PettingZoo and Gymnasium environments are built on it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Space

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.action import NO_HOLD, check_action, hold_of
from evenline.control.event import STOP, Array, Batch
from evenline.control.operations import next_departures_s
from evenline.control.state import (
    CANONICAL_WIDTH,
    DWELL_CAP,
    HEADWAY_CAP,
    MAX_SLOTS,
    PACKED_WIDTH,
    PREFIX,
    RATE_CAP,
    RAW_SLOT,
    STATE_WIDTHS,
    WAITING_CAP,
    canonical,
    contract_of,
    pack,
    with_departures,
)
from evenline.control.world import World
from evenline.support.errors import InputError, choice

State = npt.NDArray[np.float32]
WorldFactory = Callable[[], World]
CellOfSeed = Callable[[int], Cell]

SEEDS = 2**31  # a reset without a seed draws one below this


class Turn(NamedTuple):
    """The bus that decides now, its stop and the time; no bus once the day is over."""

    trip: str | None
    stop: str | None
    time_s: int


class Cycle:
    """A world's day, decision by decision.

    `executed_s` are the holds that happened at the stops of the last batch, by trip; they differ
    from those asked for where the operations limit them or drivers do not obey.
    """

    def __init__(self, world: World, state_version: int = 1) -> None:
        _check_state_version(state_version)
        self.world = world
        self.contract = contract_of(world.city)
        self.executed_s: dict[str, float] = {}
        self._departs_s = next_departures_s(world.city) if state_version == 2 else None
        self._batch: Batch | None = None
        self._taken: list[float] = []

    def begin(self, cell: Cell) -> None:
        """Start the day of a cell at its first decision."""
        self._batch, self._taken = self.world.reset(cell), []
        self.executed_s = {}
        if self._batch is None:
            raise InputError(f"cell {cell.name}: no bus reaches a stop, so there are no decisions")

    @property
    def over(self) -> bool:
        """Whether the horizon has been reached."""
        return self._batch is None

    @property
    def batch(self) -> list[Turn]:
        """All decisions of the current batch; none once the day is over."""
        return [] if self._batch is None else [*map(self._turn_of, range(len(self._batch.trips)))]

    @property
    def turn(self) -> Turn:
        """The decision to make now."""
        if self._batch is None:
            return Turn(None, None, self.world.city.horizon_s)
        return self._turn_of(len(self._taken))

    def _turn_of(self, decision: int) -> Turn:
        city, batch = self.world.city, self._open_batch()
        trip = city.trips[batch.trips[decision]]
        stop = city.services[trip.service].stops[int(batch.raw[decision, STOP])]
        return Turn(trip.id, city.stops[stop].id, batch.time_s)

    def state(self) -> State:
        """The canonical state of the current decision; after the last, an empty batch at the
        horizon.
        """
        if self._batch is None:
            return self.idle_state()
        return self._seen(self._packed(), self._batch)

    def _packed(self) -> Array:
        return pack(self._open_batch(), len(self._taken), self._taken)

    def blind_state(self, decision: int) -> State:
        """The canonical state of a decision of the batch that sees no action of the batch."""
        batch = self._open_batch()
        return self._seen(pack(batch, decision, [NO_HOLD] * decision), batch)

    def idle_state(self) -> State:
        """The canonical state of an empty batch now."""
        packed = np.zeros(PACKED_WIDTH)
        packed[0] = self.turn.time_s
        packed[PREFIX + RAW_SLOT - 1 :: RAW_SLOT] = NO_HOLD
        return self._seen(packed, None)

    def _seen(self, packed: Array, batch: Batch | None) -> State:
        """A packed state without units, in the version that was asked for."""
        state = canonical(packed, self.contract)
        if self._departs_s is None:
            return state
        return with_departures(state, batch, self._departs_s)

    def act(self, action: npt.ArrayLike) -> int:
        """Make the decision and return its cost, which is zero for all but the last of a batch."""
        batch, turn = self._open_batch(), self.turn
        value = np.asarray(action, np.float64)
        if value.size != 1:
            raise InputError(
                f"bus {turn.trip} at stop {turn.stop}: expected one action, got {value.size}"
            )
        self._taken.append(check_action(value.item(), str(turn.trip), str(turn.stop)))
        self.executed_s = {}
        if len(self._taken) < len(batch.trips):
            return 0
        holds = [hold_of(taken) for taken in self._taken]
        self._batch, self._taken = None, []  # a world that fails cannot continue its day
        self._batch = self.world.step(holds)
        executed = np.asarray(getattr(self.world, "executed_s", holds)).tolist()
        names = [self.world.city.trips[trip].id for trip in batch.trips]
        self.executed_s = dict(zip(names, executed, strict=True))
        return self.world.charged

    def act_together(self, actions: Sequence[npt.ArrayLike]) -> int:
        """Make all decisions of the batch and return their cost; a refused one changes nothing."""
        self._open_batch()
        try:
            return [self.act(action) for action in actions][-1]
        except InputError:
            self._taken = []
            raise

    def _open_batch(self) -> Batch:
        if self._batch is None:
            raise InputError("the day is over; call reset before the next action")
        return self._batch

    def close(self) -> None:
        """Close the world, if it has a method `close`."""
        getattr(self.world, "close", lambda: None)()


def action_space() -> Space[State]:
    """One number: -1 is exactly no hold, 1 is the longest hold."""
    return Box(-1.0, 1.0, (1,), np.float32)


def _check_state_version(version: int) -> None:
    """Refuse a version of the state that does not exist."""
    if version not in STATE_WIDTHS:
        raise InputError(f"state version {version}: choose {choice(map(str, STATE_WIDTHS))}")


def state_space(city: City, state_version: int = 1) -> Space[State]:
    """The range of a canonical state; system-wide counts are at most the number of passengers."""
    everyone = max(1.0, len(city.journeys) / contract_of(city).scale[1])
    prefix = [1.0, 1.0, 1.0, everyone, everyone]
    features = (
        [max(1.0, len(city.services) - 1.0), 1.0]  # service, position along it
        + [HEADWAY_CAP] * 4
        + [WAITING_CAP, 1.0, RATE_CAP, DWELL_CAP]
        + [1.0, 1.0]  # buses ahead and behind
    )
    high = np.array(prefix + [1.0, *features, 1.0] * MAX_SLOTS, np.float32)
    low = np.zeros(CANONICAL_WIDTH, np.float32)
    low[PREFIX + len(features) + 1 :: len(features) + 2] = NO_HOLD
    more = np.full(STATE_WIDTHS[state_version] - CANONICAL_WIDTH, HEADWAY_CAP, np.float32)
    return Box(np.concatenate([low, -more]), np.concatenate([high, more]), dtype=np.float32)
