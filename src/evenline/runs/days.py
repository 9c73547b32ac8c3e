"""Days of any policy in either world: the quickest way there is for each kind of policy.

Built-in rules run inside the fast kernel, actors decide for all days of a fleet at once, and
whatever else is asked batch by batch. SUMO days run in worker processes, one world in each.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from evenline.city.demand import Cell
from evenline.city.model import City, Ints
from evenline.city.tables import open_city
from evenline.control.event import new_headways
from evenline.control.outcome import Outcome
from evenline.control.world import Policy, run_episode
from evenline.policies.actor import ActorController
from evenline.policies.bundle import open_policy
from evenline.rules.chain import apply_chain
from evenline.rules.controller import Chained, RuleController
from evenline.rules.explain import Witness
from evenline.support.errors import InputError
from evenline.support.files import write_table
from evenline.worlds.calibration import embedded_calibration
from evenline.worlds.fast.world import FastWorld, Fleet

WORLDS = ("fast", "sumo")
FRESH = multiprocessing.get_context("spawn")


@dataclass(frozen=True, eq=False)
class PolicyDay:
    """What a day came to, and when each trip reached each stop (visits end to end, -1: never)."""

    outcome: Outcome
    arrivals_s: Ints


@dataclass(frozen=True)
class Day:
    """A day to be run: a policy by its source, a cell."""

    source: str
    cell: Cell


def run_days(
    city_name: str, world: str, days: Sequence[Day], workers: int | None = None
) -> Iterator[tuple[Day, PolicyDay]]:
    """Run days and hand each over as it is done, in no particular order."""
    city = open_city(city_name)
    at_once: list[tuple[RuleController, list[Day]]] = []
    tasks: list[list[Day]] = []
    for source in dict.fromkeys(day.source for day in days):
        policy = open_policy(source, city)  # what cannot be opened is refused before anything runs
        mine = [day for day in days if day.source == source]
        if world == "fast" and isinstance(policy, RuleController):
            at_once.append((policy, mine))
        elif world == "fast" and isinstance(policy, ActorController):
            tasks.append(mine)
        else:
            tasks += [[day] for day in mine]
    for rule, mine in at_once:
        fast = _fast_world(city)
        for day in mine:
            yield day, PolicyDay(fast.run_controller(day.cell, rule), fast.arrivals_s.copy())
    yield from _in_processes(city_name, world, tasks, workers)


def run_fleet(fleet: Fleet, cells: Sequence[Cell], policy: ActorController) -> None:
    """All worlds of a fleet to the end of their days, with one call of the actor a token."""
    states, holds = fleet.reset(cells), np.zeros(len(cells))
    while not fleet.over.all():
        live = np.flatnonzero(~fleet.over)
        proposals = policy.actor.proposals_s(states[live])
        holds[live] = apply_chain(policy.chain, fleet.raw[live], proposals, policy.horizon_s)
        states = fleet.step(holds)


@lru_cache(maxsize=2)
def _fast_world(city: City) -> FastWorld:
    return FastWorld(city, embedded_calibration(city))


# -- worker processes -----------------------------------------------------------------------------


def _in_processes(
    city_name: str, world: str, tasks: Sequence[Sequence[Day]], workers: int | None
) -> Iterator[tuple[Day, PolicyDay]]:
    """Days that share a task are of one policy and run together."""
    if not tasks:
        return
    count = min(len(tasks), workers or os.cpu_count() or 1)
    with ProcessPoolExecutor(count, mp_context=FRESH) as pool:
        try:
            with _one_thread_each():
                futures = {pool.submit(_run_task, city_name, world, task): task for task in tasks}
            for future in as_completed(futures):
                yield from zip(futures[future], future.result(), strict=True)
        except BrokenProcessPool:
            raise InputError(f"{city_name} in {world}: a worker process died; try again") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes begun in here leave the other cores to each other."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def explained_day(city_name: str, day: Day, visits: Path) -> Outcome:
    """One SUMO day in a process of its own, its explained stop visits written to a file."""
    with ProcessPoolExecutor(1, mp_context=FRESH) as pool:
        try:
            return pool.submit(_explained_day, city_name, day, visits).result()
        except BrokenProcessPool:
            raise InputError(f"{city_name} in SUMO: the worker process died") from None


@lru_cache(maxsize=1)
def _city(city_name: str) -> City:
    return open_city(city_name)


@lru_cache(maxsize=1)
def _policy(city_name: str, source: str) -> Chained:
    return open_policy(source, _city(city_name))


def _run_task(city_name: str, world: str, days: Sequence[Day]) -> list[PolicyDay]:
    city, policy = _city(city_name), _policy(city_name, days[0].source)
    if world == "sumo":
        return [_sumo_day(city, day.cell, policy) for day in days]
    if isinstance(policy, ActorController):
        fleet = Fleet(city, embedded_calibration(city), len(days))
        run_fleet(fleet, [day.cell for day in days], policy)
        return [PolicyDay(fleet.outcome(w), fleet.arrivals_s(w)) for w in range(len(days))]
    fast = _fast_world(city)
    return [PolicyDay(run_episode(fast, day.cell, policy), fast.arrivals_s.copy()) for day in days]


def _explained_day(city_name: str, day: Day, visits: Path) -> Outcome:
    from evenline.worlds.sumo.world import SumoWorld

    city = _city(city_name)
    witness = Witness(_policy(city_name, day.source))
    with SumoWorld(city) as world:
        outcome = run_episode(world, day.cell, witness)
        write_table(visits, witness.table(city, world.visits))
    return outcome


def _sumo_day(city: City, cell: Cell, policy: Policy) -> PolicyDay:
    from evenline.worlds.sumo.world import SumoWorld

    first = new_headways(city).first_visit
    arrivals = np.full(int(first[-1]), -1, np.int32)
    with SumoWorld(city) as world:
        outcome = run_episode(world, cell, policy)
        for visit in world.visits:
            arrivals[first[visit.trip] + visit.position] = visit.arrival_s
    return PolicyDay(outcome, arrivals)
