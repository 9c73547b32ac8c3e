"""The contract between a policy and a simulator.

    batch = world.reset(cell)
    while batch is not None:
        batch = world.step(holds_s)     # one hold for each bus of the batch
    outcome = world.outcome()

`check_world` tests the contract: every policy, environment and trial of this package works with a
simulator that passes.
"""

from collections.abc import Sequence
from typing import Protocol

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.event import Batch
from evenline.control.outcome import Outcome
from evenline.control.visits import Visit


class World(Protocol):
    """A simulated day that asks for holds batch by batch."""

    @property
    def city(self) -> City:
        """The city that is simulated."""

    @property
    def charged(self) -> int:
        """Cost since the previous batch (or the start of the day)."""

    def reset(self, cell: Cell) -> Batch | None:
        """Start the day of a cell; return the first batch, or None if no bus reaches a stop."""

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        """Apply one hold per bus of the batch and return the next batch, or None at the horizon."""

    def outcome(self) -> Outcome:
        """The outcome of the day; available only after the horizon."""

    @property
    def visits(self) -> list[Visit]:
        """The stop visits of the day so far; only a world that keeps them has any."""


def run_episode(world: World, cell: Cell, policy: "Policy") -> Outcome:
    """Run one whole day under a policy."""
    batch = world.reset(cell)
    while batch is not None:
        batch = world.step(policy(batch))
    return world.outcome()


class Policy(Protocol):
    """Holds in seconds for the buses of a batch."""

    def __call__(self, batch: Batch) -> Sequence[float]: ...
