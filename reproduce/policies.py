"""Policies of the reproduction: the reserve with other guards, look-aheads with other knowledge.

A worker loads this file by itself, so it imports nothing else of the reproduction. Nothing of it is
compiled for the cache, which would know it by another name.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenline.city.demand import RATE_BIN_S, Cell
from evenline.city.embedded import CITY, CITY_TWO_PEAKS, embedded_city
from evenline.city.model import City
from evenline.control.event import BASE_DWELL, BUS_BEHIND, SERVICE, STOP, TIME, Array, Batch
from evenline.control.world import Policy
from evenline.experiments.clairvoyant import day_tables, operator_of
from evenline.policies.knowing import Knowing
from evenline.policies.lookahead import ALIGHTING, RATE, RUN, Lookahead, forecast_tables
from evenline.rules.chain import (
    FLOOR_FROM,
    FLOOR_S,
    FLOOR_UNTIL,
    LOW_LOAD,
    RESERVE_FROM,
    RESERVE_S,
    RESERVE_UNTIL,
    completion_guard,
)
from evenline.rules.table import Constant, Rule
from evenline.support.compiled import shared
from evenline.worlds.open import OpenCity

HERE = Path(__file__).resolve()
CERTAIN = 1e9  # people; no day changes what is believed so firmly
UNSEEN_SHARE, LATE_S = 0.1, 30
LEADER_TRUST = 0.3  # weight of a new running time in today's factor of a segment


# -- the guard of a reserve -----------------------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """The guard of a reserve; the defaults are the paper's. An empty window is the parent.

    `behind` is the feature that is 0 where no bus is behind. It counts for the tail floor too.
    """

    load: float = LOW_LOAD
    begin: float = RESERVE_FROM
    end: float = RESERVE_UNTIL
    behind: int = BUS_BEHIND

    @property
    def parent(self) -> "Guard":
        return Guard(begin=0.0, end=0.0, behind=self.behind)

    def source(self, city: City) -> str:
        """The guard alone as a policy: nobody else proposes a hold."""
        named = zip(RESERVE.constants, self.constants(city), strict=True)
        constants = "".join(f":{constant.name}={value!r}" for constant, value in named)
        return f"{HERE}:RESERVE{constants}"

    def constants(self, city: City) -> tuple[float, ...]:
        """The numbers that `guarded` reads."""
        return (float(city.horizon_s), self.load, self.begin, self.end, float(self.behind))


@shared
def guarded(raw: Array, hold_s: float, constants: Array) -> float:
    """The tail floor and the reserve of a guard, after the calibration."""
    rho, behind = raw[TIME] / constants[0], int(constants[4])
    if completion_guard(raw, rho, FLOOR_FROM, FLOOR_UNTIL, LOW_LOAD, behind):
        hold_s = max(hold_s, FLOOR_S)
    if completion_guard(raw, rho, constants[2], constants[3], constants[1], behind):
        hold_s = max(hold_s, RESERVE_S)
    return hold_s


def reserve(raw: Array, constants: Array, late_s: float) -> float:
    """The guard as a rule of its own: nobody else proposes a hold."""
    return guarded(raw, 0.0, constants)


def guarded_holds(raw: Array, holds_s: Array, constants: Array) -> None:
    """Apply a guard to many calibrated holds, in place."""
    for row in range(raw.shape[0]):
        holds_s[row] = guarded(raw[row], holds_s[row], constants)


RESERVE = Rule(
    "reserve",
    reserve,
    tuple(Constant(n, 0.0, 0.0, 1e6) for n in ("horizon_s", "load", "begin", "end", "behind")),
)


# -- what is known --------------------------------------------------------------------------------


@Knowing
def exact(opened: OpenCity, cell: Cell) -> Policy:
    """Knows how many people come to each place in each half hour of this day."""
    operator = operator_of(opened)
    return operator.look(day_tables(operator, cell, RATE_BIN_S))


def _believed(error: float) -> Knowing:
    """Assumes a fixed level of demand, a multiple of the day's, and never updates it."""

    def policy(opened: OpenCity, cell: Cell) -> Policy:
        operator = operator_of(opened)
        rate = error * cell.demand * operator.tables[RATE]
        return operator.look({RATE: rate}, prior=CERTAIN)

    return Knowing(policy)


level_known, level_too_low, level_too_high = _believed(1.0), _believed(0.8), _believed(1.2)


@Knowing
def flat(opened: OpenCity, cell: Cell) -> Policy:
    """Knows how many people come to each place in a day, but not when."""
    operator = operator_of(opened)
    rate = operator.tables[RATE]
    return operator.look({RATE: np.repeat(rate.mean(1, keepdims=True), rate.shape[1], axis=1)})


@Knowing
def counted_once(opened: OpenCity, cell: Cell) -> Policy:
    """Knows the usual rates only from a count of one other day, with all its chance."""
    operator, rng = operator_of(opened), _stream(cell, 0xC047)
    return operator.look({RATE: rng.poisson(operator.tables[RATE] * RATE_BIN_S) / RATE_BIN_S})


def _stream(cell: Cell, use: int) -> np.random.Generator:
    seeds = [cell.sumo_seed, cell.demand_seed, int(100 * cell.demand), use]
    return np.random.Generator(np.random.PCG64(seeds))


@Knowing
def outdated(opened: OpenCity, cell: Cell) -> Policy:
    """Knows the people of other days: those of the other demand of the same streets."""
    other = CITY if opened.source == CITY_TWO_PEAKS.name else CITY_TWO_PEAKS
    old = forecast_tables(embedded_city(other.name), opened.fitted())
    return operator_of(opened).look({RATE: old[RATE], ALIGHTING: old[ALIGHTING]})


# -- what is seen ---------------------------------------------------------------------------------


@Knowing
def unseen(opened: OpenCity, cell: Cell) -> Policy:
    """A share of the events is lost: such a bus is neither held nor noted."""
    policy, rng = operator_of(opened).look({}), _stream(cell, 0x105E)

    def decide(batch: Batch) -> Sequence[float]:
        holds_s, kept = np.zeros(len(batch.trips)), rng.random(len(batch.trips)) >= UNSEEN_SHARE
        if kept.any():
            holds_s[kept] = policy(Batch(batch.time_s, batch.trips[kept], batch.raw[kept]))
        return [float(hold) for hold in holds_s]

    return decide


@Knowing
def late(opened: OpenCity, cell: Cell) -> Policy:
    """What a bus reports is known to the others only after some seconds."""
    policy, on_the_way = operator_of(opened).look({}), deque[tuple[int, int, Array, float, Array]]()

    def decide(batch: Batch) -> Sequence[float]:
        policy.follow(batch)
        while on_the_way and on_the_way[0][0] <= batch.time_s - LATE_S:
            _, trip, raw, hold_s, met = on_the_way.popleft()
            policy.people_met[:] += met
            policy.note(trip, raw, hold_s)
        holds_s = []
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            before = policy.people_met.copy()
            holds_s.append(best_s(policy, trip, raw))
            met = policy.people_met - before
            policy.people_met[:] = before
            on_the_way.append((batch.time_s, trip, raw, holds_s[-1], met))
        return holds_s

    return decide


@Knowing
def from_leaders(opened: OpenCity, cell: Cell) -> Policy:
    """Corrects the mean running time of each segment by what the buses before needed today."""
    operator = operator_of(opened)
    policy, usual_s = operator.look({}), operator.tables[RUN]
    policy.forecast = policy.forecast._replace(run_s=usual_s.copy())
    first, today = policy.forecast.first_place, np.ones(len(usual_s))
    left_s: dict[tuple[int, int], float] = {}

    def decide(batch: Batch) -> Sequence[float]:
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            stop = int(raw[STOP])
            leaves_s = left_s.get((trip, stop - 1))
            if leaves_s is not None:
                place = first[int(raw[SERVICE])] + stop - 1
                half = min(int(leaves_s) // RATE_BIN_S, usual_s.shape[1] - 1)
                needed = (raw[TIME] - leaves_s) / max(usual_s[place, half], 1.0)
                today[place] += LEADER_TRUST * (needed - today[place])
                policy.forecast.run_s[place] = usual_s[place] * today[place]
        holds_s = policy(batch)
        for trip, raw, hold_s in zip(batch.trips.tolist(), batch.raw, holds_s, strict=True):
            left_s[trip, int(raw[STOP])] = raw[TIME] + raw[BASE_DWELL] + hold_s
        return holds_s

    return decide


def best_s(policy: Lookahead, trip: int, raw: Array) -> float:
    """The hold that the look-ahead would choose for a bus of the batch that it follows."""
    best = int(np.argmin(policy.costs(trip, raw)))
    return float(policy.kept_s[best])


@Knowing
def reserve_on_top(opened: OpenCity, cell: Cell) -> Policy:
    """The look-ahead behind the floor and the reserve of the candidate, without calibration."""
    policy, constants = operator_of(opened).look({}), np.array(Guard().constants(opened.city))

    def decide(batch: Batch) -> Sequence[float]:
        policy.follow(batch)
        holds_s = []
        for trip, raw in zip(batch.trips.tolist(), batch.raw, strict=True):
            hold_s = np.array([best_s(policy, trip, raw)])
            guarded_holds(raw[None], hold_s, constants)
            policy.note(trip, raw, float(hold_s[0]))
            holds_s.append(float(hold_s[0]))
        return holds_s

    return decide
