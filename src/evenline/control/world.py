"""The contract between whoever decides and whoever simulates.

    batch = world.reset(cell)
    while batch is not None:
        batch = world.step(holds_s)     # one hold for each bus of the batch
    outcome = world.outcome()

`check_world` is the contract as a test: any simulator that passes it can stand behind every
policy, environment and trial of this package.
"""

from collections.abc import Sequence
from typing import Protocol

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.event import Batch
from evenline.control.outcome import Outcome
from evenline.control.visits import Visit


class World(Protocol):
    """A simulated day, asked for holds batch by batch."""

    @property
    def city(self) -> City:
        """The network that is operated."""

    @property
    def charged(self) -> int:
        """Cost of the token just finished: from its batch to the present one or the horizon."""

    def reset(self, cell: Cell) -> Batch | None:
        """Begin the day of a cell; the first batch, or None if no bus ever reaches a stop."""

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        """Apply one hold for each bus of the batch and go on to the next; None at the horizon."""

    def outcome(self) -> Outcome:
        """The day's result; only after the horizon."""

    @property
    def visits(self) -> list[Visit]:
        """The stop visits of the day so far; only a world that keeps them has any."""


def run_episode(world: World, cell: Cell, policy: "Policy") -> Outcome:
    """One whole day under a policy."""
    batch = world.reset(cell)
    while batch is not None:
        batch = world.step(policy(batch))
    return world.outcome()


class Policy(Protocol):
    """Holds in seconds for the buses of a batch."""

    def __call__(self, batch: Batch) -> Sequence[float]: ...
