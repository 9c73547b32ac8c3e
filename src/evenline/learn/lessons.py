"""Lessons of the look-ahead (our own method, not the paper's): its costs replace the critic.

At every decision of a simulated day the look-ahead computes what each hold would cost. The actor
learns how long to hold where holding pays, and whether to hold by what is at stake. The first days
have the best holds; later ones are the learner's own, so that it learns in the states that it
visits. No replay is used.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.control.action import MAX_HOLD_S, hold_of
from evenline.control.state import CANONICAL_WIDTH
from evenline.learn.hurdle import hurdle
from evenline.learn.lanes import stream
from evenline.learn.network import Params, actor_outputs
from evenline.learn.plan import LESSON_ROUNDS
from evenline.learn.updates import ADAM, RATE, adam
from evenline.policies.actor import actor_of
from evenline.policies.lookahead import LOOKAHEAD, Lookahead, forecast_of, forecast_tables
from evenline.rules.chain import apply_chain, chain_code
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.progress import progress_bar
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import Fleet

with extra("train"):
    import jax
    import jax.numpy as jnp

_STEP_S = 5.0
GRID_S = tuple(np.arange(0.0, MAX_HOLD_S + _STEP_S / 2, _STEP_S).tolist())
_COST_UNIT = 1e4
_UPDATES = 6_000
BATCH = 1_024
LATENT_LIMIT, LEASH = 5.0, 0.01  # a duration from 0.4 to 59.6 s
_DECAY = 0.3  # of all updates, at the end: the rate falls to nothing
_STREAM = 77

F32 = npt.NDArray[np.float32]
Choose = Callable[[F32, npt.NDArray[np.float64]], float]


@dataclass(frozen=True)
class Lessons:
    """Decisions with the cost of asking for each hold of the grid, minus that of asking for none.

    Where a chain or the operations leave less, asking for more costs as much as what is left.
    """

    states: F32
    costs: F32


def best_hold(_: F32, costs: npt.NDArray[np.float64]) -> float:
    """The best hold of each decision."""
    return float(GRID_S[int(np.argmin(costs))])


def _learned_hold(actor: Params, services: int) -> Choose:
    """The hold of an actor for a state."""
    frozen = actor_of({name: np.asarray(value) for name, value in actor.items()}, services)

    def choose(state: F32, _: npt.NDArray[np.float64]) -> float:
        return float(frozen.proposals_s(state[None])[0])

    return choose


def lessons_of_a_day(
    city: City, calibration: Calibration, cell: Cell, choose: Choose, chain: str = "raw"
) -> Lessons:
    """Every decision of one simulated day, with the cost of each hold before one is applied.

    The buses get what the chain leaves of the chosen holds. The look-ahead notes the hold that
    happened.
    """
    forecast, code = forecast_of(city, forecast_tables(city, calibration)), chain_code(chain)
    look = Lookahead(LOOKAHEAD, city, forecast, code)
    assert tuple(look.holds_s) == GRID_S
    world = Fleet(city, calibration, 1)
    world.reset([cell])
    states, tried = [], []
    while not world.over[0]:
        state, raw, trip = world.states[0].copy(), world.raw[0], int(world.trips[0])
        costs = look.costs(trip, raw)
        asked_s = np.array([choose(state, costs)])
        world.step(apply_chain(code, world.raw, asked_s, look.horizon_s))
        look.note(trip, raw, float(world.executed_s[0]))
        states.append(state)
        tried.append(costs - costs[0])
    return Lessons(np.array(states), np.array(tried, np.float32) / np.float32(_COST_UNIT))


class _Student(NamedTuple):
    """An actor and the state of its optimiser."""

    actor: Params
    memory: Any


def new_student(actor: Params) -> _Student:
    """A student that starts from an actor."""
    actor = {name: jnp.asarray(value) for name, value in actor.items()}
    return _Student(actor, ADAM.init(actor))


def cost_of(costs: jax.Array, hold_s: jax.Array) -> jax.Array:
    """The measured cost of a hold, interpolated linearly between the tried holds."""
    at = jnp.clip(hold_s / _STEP_S, 0.0, len(GRID_S) - 1 - 1e-4)
    low = at.astype(jnp.int32)
    left, right = (jnp.take_along_axis(costs, (low + j)[:, None], 1)[:, 0] for j in (0, 1))
    return left + (at - low) * (right - left)


def lesson_loss(
    actor: Params, states: jax.Array, costs: jax.Array, packed: bool = True
) -> jax.Array:
    """The regret of the durations, and the price of a wrong gate. Neither can get stuck.

    The durations learn whether or not the gate is open, and only where some hold pays. Elsewhere
    the best duration would be ever closer to nothing: the latent value would fall without end, and
    with it every slope. A leash pulls it back for the same reason. The gate's loss is logistic,
    weighed by what is at stake at the duration of the moment: its slope does not vanish where the
    gate is closed and should be open, as that of the expected cost would.
    """
    d = hurdle(actor_outputs(actor, states, packed))
    held, best = cost_of(costs, hold_of(jnp.tanh(0.5 * d.mean))), costs[:, 1:].min(1)
    regret = jnp.where(best < 0.0, held - best, 0.0)
    leash = LEASH * jax.nn.relu(jnp.abs(d.mean) - LATENT_LIMIT) ** 2
    stake = jax.lax.stop_gradient(held)
    gate = jnp.abs(stake) * jax.nn.softplus(jnp.sign(stake) * d.gate)
    return (regret + leash + gate).mean()


@partial(jax.jit, static_argnames=("count", "batch", "packed"))
def study(
    student: _Student,
    states: jax.Array,
    costs: jax.Array,
    known: int,
    seed: jax.Array,
    first: int,
    total: int,
    count: int,
    batch: int = BATCH,
    packed: bool = True,
) -> tuple[_Student, jax.Array]:
    """Make updates on minibatches of the first `known` lessons, of `total` updates in all; return
    the loss of each.

    The rate falls to nothing over all updates: a gate near one half would go on flipping.
    """

    def update(now: _Student, number: jax.Array) -> tuple[_Student, jax.Array]:
        rows = jax.random.randint(stream(seed, _STREAM, number), (batch,), 0, known)
        lesson = states[rows], costs[rows], packed
        loss, slope = jax.value_and_grad(lesson_loss)(now.actor, *lesson)
        rate = RATE * jnp.minimum(1.0, (1.0 - number / total) / _DECAY)
        return _Student(*adam(now.actor, slope, now.memory, rate)), loss

    return jax.lax.scan(update, student, first + jnp.arange(count))


def teach(
    actor: Params,
    city: City,
    calibration: Calibration,
    cells: Sequence[Cell],
    seed: int,
    rounds: int = LESSON_ROUNDS,
    updates: int = _UPDATES,
    batch: int = BATCH,
    packed: bool = True,
    chain: str = "raw",
    alter: Callable[[Lessons], Lessons] = lambda lessons: lessons,
    note: Callable[[int, F32], None] = lambda first, losses: None,
) -> Params:
    """Rounds of days and updates: the first on days with the best holds, later ones on the
    student's own. All of them are behind a chain.

    `note` gets the losses of each round. `alter` is for tests: it may change lessons before the
    student learns them.
    """
    if len(cells) < rounds:
        raise InputError(f"{len(cells)} days of lessons are too few; give at least {rounds}")
    student, services = new_student(actor), len(city.services)
    share, known = len(cells) // rounds, 0
    # One size for all rounds, so that the updates are compiled once.
    room = rounds * share * city.decisions
    states = np.zeros((room, CANONICAL_WIDTH), np.float32)
    costs = np.zeros((room, len(GRID_S)), np.float32)
    # Threads are enough: a day is almost only compiled code, which releases Python's lock.
    with progress_bar() as bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        task = bar.add_task(f"days of lessons, seed {seed}", total=rounds * share)
        for turn in range(rounds):
            choose = _learned_hold(jax.device_get(student.actor), services) if turn else best_hold
            a_day = partial(lessons_of_a_day, city, calibration, choose=choose, chain=chain)
            for day in pool.map(a_day, cells[turn * share : (turn + 1) * share]):
                new = slice(known, known + len(day.states))
                lessons = alter(day)
                states[new], costs[new], known = lessons.states, lessons.costs, new.stop
                bar.advance(task)
            first = turn * updates
            student, losses = study(
                student, jnp.asarray(states), jnp.asarray(costs), known, jnp.uint32(seed), first,
                rounds * updates, updates, batch, packed,
            )  # fmt: skip
            bad = np.flatnonzero(~np.isfinite(losses))
            if len(bad):
                raise InputError(
                    f"lesson update {first + bad[0] + 1} of seed {seed}: loss is not finite"
                )
            note(first, np.asarray(losses))
    taught = dict(jax.device_get(student.actor))
    if not all(np.isfinite(tensor).all() for tensor in taught.values()):
        raise InputError(f"the actor of seed {seed} is not finite after its last update")
    return taught
