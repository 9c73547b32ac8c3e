"""The agent-environment cycle: a world asked for one token at a time.

The buses of a batch decide in order. Each sees the whole batch and the actions already taken;
time moves only after the last. The PettingZoo and the Gymnasium environment are views of it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Space

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.action import NO_HOLD, check_action, hold_of
from evenline.control.event import STOP, Array, Batch
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
    Contract,
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
    """Which bus is asked, where and when; nobody once the day is over."""

    trip: str | None
    stop: str | None
    time_s: int


class Cycle:
    """A world's day, token by token."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.contract = contract_of(world.city)
        self._batch: Batch | None = None
        self._taken: list[float] = []

    def begin(self, cell: Cell) -> None:
        """Start the day of a cell at its first token."""
        self._batch, self._taken = self.world.reset(cell), []
        if self._batch is None:
            raise InputError(f"cell {cell.name}: no bus reaches a stop, there is nothing to decide")

    @property
    def over(self) -> bool:
        """Whether the horizon has been reached."""
        return self._batch is None

    @property
    def asked(self) -> Asked:
        """The token that is to decide now."""
        city, batch = self.world.city, self._batch
        if batch is None:
            return Asked(None, None, city.horizon_s)
        token = len(self._taken)
        trip = city.trips[batch.trips[token]]
        stop = city.services[trip.service].stops[int(batch.raw[token, STOP])]
        return Asked(trip.id, city.stops[stop].id, batch.time_s)

    def state(self) -> State:
        """The canonical state of that token; after the last, an empty batch at the horizon."""
        if self._batch is None:
            return canonical(_end_of_day(self.contract), self.contract)
        return canonical(pack(self._batch, len(self._taken), self._taken), self.contract)

    def act(self, action: npt.ArrayLike) -> int:
        """Decide the token; its own cost, which is zero for all but the last of a batch."""
        batch, asked = self._batch, self.asked
        if batch is None:
            raise InputError("the day is over: reset before the next action")
        value = np.asarray(action, np.float64)
        if value.size != 1:
            raise InputError(f"bus {asked.trip} at stop {asked.stop}: {value.size} actions for one")
        self._taken.append(check_action(value.item(), str(asked.trip), str(asked.stop)))
        if len(self._taken) < len(batch.trips):
            return 0
        holds = [hold_of(taken) for taken in self._taken]
        self._batch, self._taken = None, []  # a world that fails leaves no day to go on with
        self._batch = self.world.step(holds)
        return self.world.charged

    def close(self) -> None:
        """Close the world, if it is of the kind that holds something open."""
        getattr(self.world, "close", lambda: None)()


def action_space() -> Space[State]:
    """One number: -1 is exactly no hold, 1 the longest."""
    return Box(-1.0, 1.0, (1,), np.float32)


def state_space(city: City) -> Space[State]:
    """What a canonical state can hold; the counts of the whole system end at everyone."""
    everyone = max(1.0, len(city.journeys) / contract_of(city).scale[1])
    prefix = [1.0, 1.0, 1.0, everyone, everyone]
    features = (
        [max(1.0, len(city.services) - 1.0), 1.0]  # service, place along it
        + [HEADWAY_CAP] * 4
        + [WAITING_CAP, 1.0, RATE_CAP, DWELL_CAP]
        + [1.0, 1.0]  # buses ahead and behind
    )
    high = np.array(prefix + [1.0, *features, 1.0] * MAX_SLOTS, np.float32)
    low = np.zeros(CANONICAL_WIDTH, np.float32)
    low[PREFIX + len(features) + 1 :: len(features) + 2] = NO_HOLD
    return Box(low, high, dtype=np.float32)


def _end_of_day(contract: Contract) -> Array:
    packed = np.zeros(PACKED_WIDTH)
    packed[0] = contract.horizon_s
    packed[PREFIX + RAW_SLOT - 1 :: RAW_SLOT] = NO_HOLD
    return packed
