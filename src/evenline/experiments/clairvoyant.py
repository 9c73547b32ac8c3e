"""The clairvoyant: a reference that knows the day, to measure how near a policy comes to it.

It runs in the fast world. `Operator` is what is known before the day; the clairvoyant replaces
people and running times by those of the very day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from evenline.city.demand import RATE_BIN_S, Cell, realise
from evenline.control.event import Array
from evenline.control.visits import Visit
from evenline.control.world import Policy
from evenline.policies.actor import ActorPolicy
from evenline.policies.bundle import chosen_base
from evenline.policies.kinds import base_policy
from evenline.policies.knowing import Knowing
from evenline.policies.lookahead import (
    ALIGHTING,
    LOOKAHEAD,
    RATE,
    RUN,
    USUAL_BASE,
    Lookahead,
    Tables,
    forecast_of,
    forecast_tables,
    rates_of,
)
from evenline.rules.policy import RulePolicy
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity

CLAIRVOYANT = f"{__name__}:clairvoyant"  # as a policy's source
HINDSIGHT_BASES = ("zero", "two-way:gain=0.05", "two-way:gain=0.1", "two-way:gain=0.2")
FINE_S = 60  # the clairvoyant knows people and running times by the minute


@dataclass(frozen=True, eq=False)
class Operator:
    """A city as its operator knows it before the day."""

    opened: OpenCity

    @cached_property
    def tables(self) -> Tables:
        return forecast_tables(self.opened.city, self.opened.fitted())

    def look(
        self,
        changed: Tables,
        bin_s: int = RATE_BIN_S,
        base: RulePolicy | ActorPolicy = USUAL_BASE,
        **constants: float,
    ) -> Lookahead:
        """The look-ahead with some tables replaced."""
        forecast = forecast_of(self.opened.city, {**self.tables, **changed}, base, bin_s)
        return Lookahead(LOOKAHEAD, self.opened.city, forecast, 0, **constants)

    def base(self, name: str) -> RulePolicy | ActorPolicy:
        """A base by its name."""
        return base_policy(chosen_base(name), self.opened.city, self.opened.fitted())

    def world(self, keep_visits: bool = False) -> FastWorld:
        return self.opened.fast_world(keep_visits)


def day_tables(operator: Operator, cell: Cell, bin_s: int) -> Tables:
    """The people of a day, counted by place and period."""
    city = operator.opened.city
    rate, alighting = rates_of(city, realise(city, cell), bin_s)
    return {RATE: rate, ALIGHTING: alighting}


@lru_cache(maxsize=1)
def operator_of(opened: OpenCity) -> Operator:
    """The operator of a city, for all its days."""
    return Operator(opened)


@Knowing
def clairvoyant(opened: OpenCity, cell: Cell) -> Policy:
    """The policy that knows the day."""
    return hindsight(operator_of(opened), cell)[1]


def hindsight(operator: Operator, cell: Cell) -> tuple[float, Policy]:
    """The generalized time of the policy that knows the day, and the policy.

    It knows the day's people by the minute, the running times of each trip, and how the day ends:
    it tries the same search with several bases on the very day, with and without this knowledge,
    and keeps what turned out best. The luck of a trip does not depend on its holds, so the running
    times are those of the same day under the look-ahead.
    """
    world, people = operator.world(keep_visits=True), day_tables(operator, cell, FINE_S)
    usual_s = np.repeat(operator.tables[RUN], RATE_BIN_S // FINE_S, axis=1)
    known = {**people, RUN: np.ascontiguousarray(usual_s[:, : people[RATE].shape[1]])}
    tried = [(world.run_day(cell, usual := operator.look({})).generalized_s, usual)]
    trip_run_s = day_running_times(operator, world.visits)
    for base in HINDSIGHT_BASES:
        policy = operator.look(known, FINE_S, base=operator.base(base))
        policy.forecast = policy.forecast._replace(trip_run_s=trip_run_s)
        tried.append((world.run_day(cell, policy).generalized_s, policy))
    return min(tried, key=lambda each: each[0])


def day_running_times(operator: Operator, visits: Sequence[Visit]) -> Array:
    """The running times of a day by trip and stop; the usual ones where a bus did not arrive."""
    city, first = operator.opened.city, operator.look({}).forecast.first_place
    most = max(len(service.stops) for service in city.services)
    run_s = np.zeros((len(city.trips), most))
    for row, trip in zip(run_s, city.trips, strict=True):
        usual_s = operator.tables[RUN][first[trip.service] : first[trip.service + 1]]
        row[: len(usual_s)] = usual_s.mean(1)
    arrived = {(visit.trip, visit.position): visit.arrival_s for visit in visits}
    for visit in visits:
        then = arrived.get((visit.trip, visit.position + 1))
        if then is not None:
            run_s[visit.trip, visit.position] = then - visit.departure_s
    return run_s
