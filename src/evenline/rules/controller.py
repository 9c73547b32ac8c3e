"""Policies as the rest of the package meets them: named, callable on a batch, able to explain.

A `Chained` policy proposes a hold for each bus and takes it through a physical chain. `decide`
returns both numbers, so that `evenline.rules.chain.explain` can account for the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Ints
from evenline.control.event import STOP, Array, Batch
from evenline.rules.chain import apply_chain
from evenline.rules.classics import holds_at

WIDTH = 4  # constants are padded to this many, so that one compiled function takes them all


class Decision(NamedTuple):
    """What was proposed for each bus of a batch, and what the chain made of it."""

    proposals_s: Array
    holds_s: Array


class Chained(Protocol):
    """A policy with a name and a chain."""

    @property
    def name(self) -> str: ...

    @property
    def chain(self) -> int: ...

    @property
    def horizon_s(self) -> float: ...

    def decide(self, batch: Batch) -> Decision:
        """Proposals and holds for the buses of a batch."""

    def __call__(self, batch: Batch) -> Sequence[float]: ...


@dataclass(frozen=True, eq=False)
class RuleController:
    """A built-in rule with a chain, for one city. `due_s` is empty for rules without a timetable.

    `first_visit` tells where a trip's visits begin in `due_s`.
    """

    name: str
    kind: int
    values: tuple[float, ...]
    chain: int
    horizon_s: float
    first_visit: Ints
    due_s: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def constants(self) -> Array:
        """The constants as the compiled functions take them."""
        return np.array([*self.values, *[0.0] * (WIDTH - len(self.values))])

    def decide(self, batch: Batch) -> Decision:
        late_s = np.zeros(len(batch.raw))
        if len(self.due_s):
            visit = self.first_visit[batch.trips] + batch.raw[:, STOP].astype(np.int32)
            late_s = batch.time_s - self.due_s[visit]
        proposals = np.empty(len(batch.raw))
        holds_at(self.kind, self.constants, batch.raw, late_s, proposals)
        return Decision(proposals, apply_chain(self.chain, batch.raw, proposals, self.horizon_s))

    def __call__(self, batch: Batch) -> Sequence[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]


def due_times(city: City, timetable_s: Array) -> Array:
    """When each trip is due at each of its stops, visits end to end.

    `timetable_s` holds the seconds from a trip's departure, service-stops end to end.
    """
    first = service_stop_offsets(city)
    rows = [
        trip.departure_s + timetable_s[first[trip.service] : first[trip.service + 1]]
        for trip in city.trips
    ]
    return np.concatenate(rows)
