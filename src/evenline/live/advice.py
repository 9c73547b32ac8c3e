"""Ask a policy about live events, and put its holds into words.

The policy is the one that trials test, with the same events and bundles. A hold becomes "hold at
STOP until HH:MM:SS" with the reason in one line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenline.city.model import City, visit_offsets
from evenline.control.event import (
    BASE_DWELL,
    BUS_AHEAD,
    BUS_BEHIND,
    HEADWAY_AHEAD,
    HEADWAY_BEHIND,
    ON_BOARD,
    STOP,
    TARGET_AHEAD,
    TARGET_BEHIND,
    TIME,
    Array,
    Batch,
)
from evenline.control.operations import allowed_s, limits_of
from evenline.control.state import MAX_SLOTS
from evenline.policies.lookahead import Lookahead
from evenline.rules.policy import ChainedPolicy

OPEN, ACCEPTED, REJECTED, WITHDRAWN, DONE = "open", "accepted", "rejected", "withdrawn", "done"


class Answer(NamedTuple):
    """A policy's hold, and what it saves by its own forecast, in generalized passenger-seconds."""

    hold_s: float
    saves_s: float | None = None


class LivePolicy:
    """A policy that follows a day through live events. A bus is asked about once at each stop."""

    def __init__(self, policy: ChainedPolicy, city: City) -> None:
        self.policy = policy
        self.asked: dict[int, int] = {}  # the last stop of each trip that was asked about
        self._limits, self._first_visit = limits_of(city), visit_offsets(city)
        self._now_s = -1

    def cancel(self, trips: frozenset[int]) -> None:
        """Count on all trips but these, if the policy has a forecast."""

    def ask(
        self, now_s: float, trips: Sequence[int], raw: Array, may_hold: Sequence[bool]
    ) -> list[Answer]:
        """The holds of some buses. A forecast counts on a hold only where one may be advised."""
        answers: list[Answer] = []
        for first in range(0, len(trips), MAX_SLOTS):
            part = slice(first, first + MAX_SLOTS)
            batch = self._batch(now_s, trips[part], raw[part])
            rows = zip(trips[part], raw[part], self.policy.decide(batch).holds_s, strict=True)
            answers += [Answer(self._allowed_s(*row)) for row in rows]
        return answers

    def _batch(self, now_s: float, trips: Sequence[int], raw: Array) -> Batch:
        self._now_s = second = max(int(now_s), self._now_s, 0)
        for trip, row in zip(trips, raw, strict=True):
            self.asked[trip] = int(row[STOP])
        return Batch(second, np.array(trips, np.int32), np.ascontiguousarray(raw))

    def _allowed_s(self, trip: int, raw: Array, hold_s: float) -> float:
        """What the operations of the city allow of a hold."""
        if len(self._limits.cap_s):
            visit = int(self._first_visit[trip]) + int(raw[STOP])
            hold_s = allowed_s(self._limits, visit, raw, hold_s)
        return float(hold_s)

    def again(self, now_s: float, trip: int, raw: Array) -> float:
        """The hold of a bus by what is known now; the policy keeps nothing of this question."""
        second = max(int(now_s), self._now_s, 0)
        alone = Batch(second, np.array([trip], np.int32), raw[None])
        return self._allowed_s(trip, raw, float(self.policy.decide(alone).holds_s[0]))

    def settle(self, trip: int, raw: Array, kept_s: float, advised_s: float) -> None:
        """Let a forecast count on the hold that is advised, not on the one of the answer."""


class _LiveForecast(LivePolicy):
    """A look-ahead that follows a day: its forecast counts on trips and on advice."""

    policy: Lookahead

    def __init__(self, policy: Lookahead, city: City) -> None:
        super().__init__(policy, city)
        self._cancelled: frozenset[int] = frozenset()

    def cancel(self, trips: frozenset[int]) -> None:
        for trip in trips ^ self._cancelled:
            self.policy.expect(trip, trip not in trips)
        self._cancelled = trips

    def ask(
        self, now_s: float, trips: Sequence[int], raw: Array, may_hold: Sequence[bool]
    ) -> list[Answer]:
        """The decision of the look-ahead, with what it saves by the costs that it compared."""
        joins, batch = self._now_s < 0, self._batch(now_s, trips, raw)
        if joins:
            self.policy.join(batch.time_s)
        decision, costs = self.policy.weigh(batch, np.array(may_hold, np.bool_))
        answers = []
        for proposal_s, hold_s, row in zip(*decision, costs, strict=True):
            saves_s = float(row[0] - row[np.searchsorted(self.policy.holds_s, proposal_s)])
            answers.append(Answer(float(hold_s), saves_s))
        return answers

    def again(self, now_s: float, trip: int, raw: Array) -> float:
        best = int(np.argmin(self.policy.costs(trip, raw)))
        return float(self.policy.kept_s[best])

    def settle(self, trip: int, raw: Array, kept_s: float, advised_s: float) -> None:
        if kept_s != advised_s:
            self.policy.change(trip, raw, advised_s)


def live_policy(policy: ChainedPolicy, city: City) -> LivePolicy:
    """A policy that is asked through live events."""
    if isinstance(policy, Lookahead):
        return _LiveForecast(policy, city)
    return LivePolicy(policy, city)


@dataclass
class Advice:
    """Hold a bus at a stop until a time."""

    number: int
    trip: int
    vehicle: str
    stop: int
    until_s: float
    hold_s: float
    made_s: float
    reason: str
    state: str = OPEN
    why: str = ""

    @property
    def applies(self) -> bool:
        """Whether it can still be answered or carried out."""
        return self.state in (OPEN, ACCEPTED)


def rounded_until(leaves_s: float, hold_s: float, step_s: float) -> float:
    """When a held bus leaves, rounded for people to a whole step."""
    return step_s * round((leaves_s + hold_s) / step_s)


def _gap_ahead_is_wide(raw: Array) -> bool:
    """Whether the bus ahead is already as far away as it should be."""
    return bool(raw[BUS_AHEAD] and 0 < raw[TARGET_AHEAD] <= raw[HEADWAY_AHEAD])


def has_reason(raw: Array) -> bool:
    """Whether a dispatcher can see why a bus is held: it is close to the bus ahead, or the gap
    behind is the wider one, as it is or, before the next bus has set out, as it is planned.
    """
    behind_s = raw[HEADWAY_BEHIND] if raw[BUS_BEHIND] else raw[TARGET_BEHIND]
    return bool(not _gap_ahead_is_wide(raw) or behind_s > raw[HEADWAY_AHEAD])


def reason_of(raw: Array, hold_s: float, caught: float) -> str:
    """Why a bus is held, in one line: headways without and with the hold, and people."""
    parts = ["the wider gap is behind it"] if _gap_ahead_is_wide(raw) else []
    if raw[BUS_AHEAD]:
        ahead_s = raw[HEADWAY_AHEAD]
        parts.append(f"bus ahead {_minutes(ahead_s)} → {_minutes(ahead_s + hold_s)}")
    if raw[BUS_BEHIND]:
        behind_s = raw[HEADWAY_BEHIND]
        parts.append(f"bus behind {_minutes(behind_s)} → {_minutes(max(behind_s - hold_s, 0.0))}")
    elif _gap_ahead_is_wide(raw):
        parts.append(f"next bus planned {_minutes(raw[TARGET_BEHIND])} behind")
    parts.append(f"{raw[ON_BOARD]:.0f} on board wait {hold_s:.0f} s")
    parts.append(f"{caught:.0f} more catch it")
    return "; ".join(parts)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def leaves_at(raw: Array) -> float:
    """When a bus leaves without a hold."""
    return float(raw[TIME] + raw[BASE_DWELL])
