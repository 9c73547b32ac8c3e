"""Rules as policies: a row of the table with its constants, a chain and a city's timetable.

A chained policy proposes a hold for each bus and applies a physical chain to it. `decide` returns
both numbers, so that `evenline.rules.chain.explain` can explain the difference. `BEHAVIOURS` are
the eight settings that collect a replay.
"""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Ints
from evenline.control.event import STOP, Array, Batch
from evenline.rules.chain import apply_chain, chained
from evenline.rules.table import RULES, WIDTH, Rule
from evenline.support.compiled import call_formula, compiled, inlined
from evenline.support.errors import InputError


class Decision(NamedTuple):
    """The proposals for the buses of a batch, and the holds after the chain."""

    proposals_s: Array
    holds_s: Array


class ChainedPolicy(Protocol):
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
class RulePolicy:
    """A rule with its constants. A chain and a timed rule need a city's horizon and due times.

    `due_s` is the due time of each visit; `first_visit` is the offset of each trip in it.
    """

    name: str
    rule: Rule
    values: tuple[float, ...] = ()
    chain: int = 0
    horizon_s: float = 1.0
    first_visit: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    due_s: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def constants(self) -> Array:
        """The constants as the compiled formulas expect them."""
        return np.array([*self.values, *[0.0] * (WIDTH - len(self.values))])

    def decide(self, batch: Batch) -> Decision:
        late_s = np.zeros(len(batch.raw))
        if len(self.due_s):
            visit = self.first_visit[batch.trips] + batch.raw[:, STOP].astype(np.int32)
            late_s = batch.time_s - self.due_s[visit]
        proposals = np.empty(len(batch.raw))
        if self.rule.compiled:
            holds_at(self.rule.address, self.constants, batch.raw, late_s, proposals)
        else:
            proposals[:] = self._in_python(batch.raw, late_s)
        return Decision(proposals, apply_chain(self.chain, batch.raw, proposals, self.horizon_s))

    def __call__(self, batch: Batch) -> Sequence[float]:
        return [float(hold) for hold in self.decide(batch).holds_s]

    def _in_python(self, raw: Array, late_s: Array) -> list[float]:
        """Call the formula bus by bus; an error in it becomes an InputError."""
        rows = zip(raw, late_s, strict=True)
        try:
            with np.errstate(all="ignore"):  # inf and nan as in compiled code: refused as a hold
                holds = [self.rule.formula(row, self.constants, late) for row, late in rows]
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            where = f"{last.filename} line {last.lineno}"
            raise InputError(f"rule {self.rule.name}: {reason} ({where})") from error
        for hold in holds:
            if isinstance(hold, bool) or not isinstance(hold, int | float | np.number):
                raise InputError(f"rule {self.rule.name}: returned {hold!r}, not seconds of hold")
        return [float(hold) for hold in holds]


@inlined
def controlled(
    address: int, constants: Array, chain: int, raw: Array, late_s: float, horizon_s: float
) -> float:
    """A compiled rule's proposal for one event, with a chain applied."""
    return chained(chain, raw, call_formula(address, raw, constants, late_s), horizon_s)


@compiled
def holds_at(address: int, constants: Array, raw: Array, late_s: Array, out: Array) -> None:
    """The proposals of a compiled rule for many events, into `out`."""
    for row in range(raw.shape[0]):
        out[row] = call_formula(address, raw[row], constants, late_s[row])


def due_times(city: City, timetable_s: Array) -> Array:
    """The due time of each trip at each of its stops, in one array.

    `timetable_s` has the seconds from a trip's departure, one entry per service-stop.
    """
    first = service_stop_offsets(city)
    rows = [
        trip.departure_s + timetable_s[first[trip.service] : first[trip.service + 1]]
        for trip in city.trips
    ]
    return np.concatenate(rows)


def set_rule(name: str, rule: str, **constants: float) -> RulePolicy:
    """A setting of a rule that needs no city: no chain, no timetable."""
    return RulePolicy(name, RULES[rule], RULES[rule].values(constants))


BEHAVIOURS = {
    policy.name: policy
    for policy in (
        set_rule("zero", "zero"),
        set_rule("random-rare", "random", share=0.10, longest_s=60.0),
        set_rule("random-often", "random", share=0.30, longest_s=30.0),
        set_rule("headway-0.2", "headway", gain=0.2),
        set_rule("headway-0.4", "headway", gain=0.4),
        set_rule("headway-0.7", "headway", gain=0.7),
        set_rule("headway-1.0", "headway", gain=1.0),
        set_rule("myopic", "myopic"),
    )
}


def recorded(policy: RulePolicy) -> dict[str, object]:
    """A setting of a rule as a replay records it."""
    constants = policy.rule.named(policy.values)
    return {"name": policy.name, "rule": policy.rule.name, "constants": constants}


def as_recorded(behaviour: Mapping[str, Any]) -> dict[str, object]:
    """A behaviour as a replay records it; older replays had a number for the rule, and a and b."""
    if "kind" not in behaviour:
        return dict(behaviour)
    numbers = [behaviour.get(key) for key in ("kind", "a", "b")]
    if not all(isinstance(n, int | float) for n in numbers) or numbers[0] not in range(4):
        raise InputError(
            f"behaviour {behaviour.get('name')!r}: needs a kind from 0 to 3, and a and b"
        )
    rule = RULES[("zero", "random", "headway", "myopic")[int(behaviour["kind"])]]
    constants = zip(rule.constants, numbers[1:], strict=False)
    return {
        "name": behaviour.get("name"),
        "rule": rule.name,
        "constants": {constant.name: value for constant, value in constants},
    }
