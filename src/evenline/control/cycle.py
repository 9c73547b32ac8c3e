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
from evenline.control.event import STOP, Batch
from evenline.control.state import (
    CANONICAL_WIDTH,
    DWELL_CAP,
    HEADWAY_CAP,
    MAX_SLOTS,
    PACKED_WIDTH,
    PREFIX,
    RATE_CAP,
    RAW_SLOT,
    WAITING_CAP,
    canonical,
    contract_of,
    pack,
)
from evenline.control.world import World
from evenline.support.errors import InputError

State = npt.NDArray[np.float32]
WorldFactory = Callable[[], World]
CellOfSeed = Callable[[int], Cell]

SEEDS = 2**31  # a reset without a seed draws one below this


class Asked(NamedTuple):
    """The bus that decides now, its stop and the time; no bus once the day is over."""

    trip: str | None
    stop: str | None
    time_s: int


class Cycle:
    """A world's day, decision by decision."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.contract = contract_of(world.city)
        self._batch: Batch | None = None
        self._taken: list[float] = []

    def begin(self, cell: Cell) -> None:
        """Start the day of a cell at its first decision."""
        self._batch, self._taken = self.world.reset(cell), []
        if self._batch is None:
            raise InputError(f"cell {cell.name}: no bus reaches a stop, so there are no decisions")

    @property
    def over(self) -> bool:
        """Whether the horizon has been reached."""
        return self._batch is None

    @property
    def batch(self) -> list[Asked]:
        """All decisions of the current batch; none once the day is over."""
        return [] if self._batch is None else [*map(self._asked, range(len(self._batch.trips)))]

    @property
    def asked(self) -> Asked:
        """The decision to make now."""
        if self._batch is None:
            return Asked(None, None, self.world.city.horizon_s)
        return self._asked(len(self._taken))

    def _asked(self, token: int) -> Asked:
        city, batch = self.world.city, self._open_batch()
        trip = city.trips[batch.trips[token]]
        stop = city.services[trip.service].stops[int(batch.raw[token, STOP])]
        return Asked(trip.id, city.stops[stop].id, batch.time_s)

    def state(self) -> State:
        """The canonical state of the current decision; after the last, an empty batch at the
        horizon.
        """
        if self._batch is None:
            return self.idle_state()
        return canonical(pack(self._batch, len(self._taken), self._taken), self.contract)

    def blind_state(self, token: int) -> State:
        """The canonical state of a decision of the batch that sees no action of the batch."""
        return canonical(pack(self._open_batch(), token, [NO_HOLD] * token), self.contract)

    def idle_state(self) -> State:
        """The canonical state of an empty batch now."""
        packed = np.zeros(PACKED_WIDTH)
        packed[0] = self.asked.time_s
        packed[PREFIX + RAW_SLOT - 1 :: RAW_SLOT] = NO_HOLD
        return canonical(packed, self.contract)

    def act(self, action: npt.ArrayLike) -> int:
        """Make the decision and return its cost, which is zero for all but the last of a batch."""
        batch, asked = self._open_batch(), self.asked
        value = np.asarray(action, np.float64)
        if value.size != 1:
            raise InputError(
                f"bus {asked.trip} at stop {asked.stop}: expected one action, got {value.size}"
            )
        self._taken.append(check_action(value.item(), str(asked.trip), str(asked.stop)))
        if len(self._taken) < len(batch.trips):
            return 0
        holds = [hold_of(taken) for taken in self._taken]
        self._batch, self._taken = None, []  # a world that fails cannot continue its day
        self._batch = self.world.step(holds)
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


def state_space(city: City) -> Space[State]:
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
    return Box(low, high, dtype=np.float32)
