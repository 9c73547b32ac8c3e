"""Learning from the look-ahead (our own method, not the paper's): its costs replace the critic.

At every decision of a simulated day the look-ahead computes what each hold would cost. The actor
minimises that cost under its own hurdle distribution: the gate is summed exactly and the duration
drawn once, as in the paper's actor objective with Q replaced. Later rounds use the learner's own
days, so that it learns in the states that it visits.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.action import MAX_HOLD_S, hold_of
from evenline.learn.hurdle import hurdle
from evenline.learn.lanes import stream
from evenline.learn.network import Params, actor_outputs
from evenline.learn.updates import ADAM, RATE, adam
from evenline.policies.actor import actor_of
from evenline.policies.lookahead import LOOKAHEAD, Lookahead, forecast_of, forecast_tables
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import Fleet

STEP_S = 5.0
GRID_S = tuple(np.arange(0.0, MAX_HOLD_S + STEP_S / 2, STEP_S).tolist())
COST_UNIT = 1e4
BATCH = 256
DECAY = 0.3  # of all updates, at the end: the rate falls to nothing
STREAM = 77

F32 = npt.NDArray[np.float32]
Choose = Callable[[F32, npt.NDArray[np.float64]], float]


@dataclass(frozen=True)
class Lessons:
    """Decisions with the cost of each hold of the grid minus the cost of no hold."""

    states: F32
    costs: F32

    def __add__(self, other: "Lessons") -> "Lessons":
        return Lessons(
            np.concatenate([self.states, other.states]), np.concatenate([self.costs, other.costs])
        )


def best_hold(_: F32, costs: npt.NDArray[np.float64]) -> float:
    """The best hold of each decision."""
    return float(GRID_S[int(np.argmin(costs))])


def learned_hold(actor: Params, services: int) -> Choose:
    """The hold of an actor for a state."""
    frozen = actor_of({name: np.asarray(value) for name, value in actor.items()}, services)

    def choose(state: F32, _: npt.NDArray[np.float64]) -> float:
        return float(frozen.proposals_s(state[None])[0])

    return choose


def lessons_of_a_day(city: City, calibration: Calibration, cell: Cell, choose: Choose) -> Lessons:
    """Every decision of one simulated day, with the cost of each hold before one is applied."""
    look = Lookahead(LOOKAHEAD, city, forecast_of(city, forecast_tables(city, calibration)))
    assert tuple(look.holds_s) == GRID_S
    world = Fleet(city, calibration, 1)
    world.reset([cell])
    states, found = [], []
    while not world.over[0]:
        state, raw, trip = world.states[0].copy(), world.raw[0], int(world.trips[0])
        costs = look.costs(trip, raw)
        hold_s = choose(state, costs)
        look.note(trip, raw, hold_s)
        states.append(state)
        found.append(costs - costs[0])
        world.step(np.array([hold_s]))
    return Lessons(np.array(states), np.array(found, np.float32) / np.float32(COST_UNIT))


class Student(NamedTuple):
    """An actor and the state of its optimiser."""

    actor: Params
    memory: Any


def new_student(actor: Params) -> Student:
    """A student that starts from an actor, such as IQL's."""
    actor = {name: jnp.asarray(value) for name, value in actor.items()}
    return Student(actor, ADAM.init(actor))


def cost_of(costs: jax.Array, hold_s: jax.Array) -> jax.Array:
    """The measured cost of a hold, interpolated linearly between the tried holds."""
    at = jnp.clip(hold_s / STEP_S, 0.0, len(GRID_S) - 1 - 1e-4)
    low = at.astype(jnp.int32)
    left, right = (jnp.take_along_axis(costs, (low + j)[:, None], 1)[:, 0] for j in (0, 1))
    return left + (at - low) * (right - left)


def lesson_loss(actor: Params, states: jax.Array, costs: jax.Array) -> jax.Array:
    """The regret of the durations, and the price of a wrong gate.

    The durations learn whether or not the gate is open. The gate's loss is logistic, weighed by
    what is at stake at the duration of the moment: its slope does not vanish where the gate is
    closed and should be open. With the expected cost under the policy, both slopes vanish there,
    and an actor whose gate closes before it knows durations never holds again.
    """
    d = hurdle(actor_outputs(actor, states, packed=True))
    held = cost_of(costs, hold_of(jnp.tanh(0.5 * d.mean)))
    stake = jax.lax.stop_gradient(held)
    gate = jnp.abs(stake) * jax.nn.softplus(jnp.sign(stake) * d.gate)
    return (held - costs[:, 1:].min(1) + gate).mean()


@partial(jax.jit, static_argnames="count")
def study(
    student: Student,
    states: jax.Array,
    costs: jax.Array,
    seed: jax.Array,
    first: int,
    total: int,
    count: int,
) -> tuple[Student, jax.Array]:
    """Make updates on minibatches of lessons, of `total` in all; return the loss of each.

    The rate falls to nothing over all updates: a gate near one half would go on flipping.
    """

    def update(now: Student, number: jax.Array) -> tuple[Student, jax.Array]:
        rows = jax.random.randint(stream(seed, STREAM, number), (BATCH,), 0, len(states))
        loss, slope = jax.value_and_grad(lesson_loss)(now.actor, states[rows], costs[rows])
        rate = RATE * jnp.minimum(1.0, (1.0 - number / total) / DECAY)
        return Student(*adam(now.actor, slope, now.memory, rate)), loss

    return jax.lax.scan(update, student, first + jnp.arange(count))


def teach(
    actor: Params,
    city: City,
    calibration: Calibration,
    cells: Sequence[Cell],
    seed: int,
    rounds: int = 3,
    updates: int = 1_500,
    alter: Callable[[Lessons], Lessons] = lambda lessons: lessons,
) -> Params:
    """Rounds of days and updates: the first on days with the best holds, later ones on the
    student's own.

    `alter` is for tests: it may change lessons before the student learns them.
    """
    if len(cells) < rounds:
        raise InputError(f"{len(cells)} days of lessons are too few; give at least {rounds}")
    student, services = new_student(actor), len(city.services)
    share = len(cells) // rounds
    lessons: Lessons | None = None
    # Threads are enough: a day is almost only compiled code, which releases Python's lock.
    with progress_bar() as bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        task = bar.add_task(f"days of lessons, seed {seed}", total=rounds * share)
        for turn in range(rounds):
            choose = learned_hold(jax.device_get(student.actor), services) if turn else best_hold
            a_day = partial(lessons_of_a_day, city, calibration, choose=choose)
            for day in pool.map(a_day, cells[turn * share : (turn + 1) * share]):
                lessons = alter(day) if lessons is None else lessons + alter(day)
                bar.advance(task)
            assert lessons is not None
            states, costs = jnp.asarray(lessons.states), jnp.asarray(lessons.costs)
            first = turn * updates
            student, losses = study(
                student, states, costs, jnp.uint32(seed), first, rounds * updates, updates
            )
            bad = np.flatnonzero(~np.isfinite(losses))
            if len(bad):
                raise InputError(
                    f"lesson update {first + bad[0] + 1} of seed {seed}: loss is not finite"
                )
    taught = dict(jax.device_get(student.actor))
    if not all(np.isfinite(tensor).all() for tensor in taught.values()):
        raise InputError(f"the actor of seed {seed} is not finite after its last update")
    return taught
