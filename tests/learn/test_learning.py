"""Learning really happens: on `town`, on days nobody has trained on, and not when it is broken."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calibrated import calibration_of
from evenline.city.cells import PURPOSES
from evenline.city.operations import Operations
from evenline.city.tables import open_city
from evenline.control.action import hold_of
from evenline.learn.evaluate import evaluate
from evenline.learn.hurdle import branches, expect, hurdle
from evenline.learn.lessons import (
    GRID_S,
    Lessons,
    best_hold,
    cost_of,
    lesson_loss,
    lessons_of_a_day,
    new_student,
    study,
    teach,
)
from evenline.learn.network import Params, Size, actor_outputs, init_actor
from evenline.learn.online import executed
from evenline.learn.run import training_cell
from evenline.rules.policy import BEHAVIOURS
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld, Fleet

SEEDS = (6201, 6202)
TOWN = open_city("town")
CALIBRATION = calibration_of(TOWN)
CELLS = PURPOSES["development"].cells(3)
BETTER_S = 2.0  # rounding alone moves an actor by a few seconds, learning by ten and more


def starts() -> list[Params]:
    """A new actor for each seed."""
    return [init_actor(jax.random.key(s), Size(len(TOWN.services), 32, 64, 64)) for s in SEEDS]


def generalized_s(actors: list[Params]) -> np.ndarray:
    outcomes = evaluate(TOWN, CALIBRATION, actors, CELLS, packed=True)
    return np.array([np.mean([o.generalized_s for o in rows]) for rows in outcomes])


@cache
def zero_hold_s() -> float:
    world = FastWorld(TOWN, CALIBRATION)
    return float(np.mean([world.run_day(cell, BEHAVIOURS["zero"]).generalized_s for cell in CELLS]))


def taught(start: Params, seed: int, shuffled: bool = False) -> Params:
    rng = np.random.default_rng(seed)

    def shuffle(lessons: Lessons) -> Lessons:
        """The same costs, for decisions they do not belong to."""
        return Lessons(lessons.states, rng.permutation(lessons.costs))

    cells = [training_cell(seed, day) for day in range(9)]
    alter = {"alter": shuffle} if shuffled else {}
    return teach(start, TOWN, CALIBRATION, cells, seed, 3, updates=800, batch=256, **alter)


def test_every_seed_beats_zero_hold_and_its_own_start_on_fresh_days() -> None:
    learned = [taught(start, seed) for start, seed in zip(starts(), SEEDS, strict=True)]
    before, after = generalized_s(starts()), generalized_s(learned)
    assert (after < before - BETTER_S).all(), (before, after)
    assert (after < zero_hold_s() - BETTER_S).all(), (zero_hold_s(), after)


def test_nothing_is_learned_from_costs_that_belong_to_other_decisions() -> None:
    broken = generalized_s([taught(starts()[0], SEEDS[0], shuffled=True)])
    assert broken[0] > zero_hold_s() - BETTER_S


def test_the_best_holds_of_a_day_make_a_better_day() -> None:
    """The lessons' own choices, driven as they go, against the same day without holds."""
    cell = CELLS[1]
    lessons = lessons_of_a_day(TOWN, CALIBRATION, cell, best_hold)
    assert len(lessons.states) == TOWN.decisions
    assert (lessons.costs[:, 0] == 0).all(), "costs are against no hold"
    assert 0.02 < (lessons.costs.argmin(1) > 0).mean() < 0.7


def test_behind_a_chain_asking_costs_what_the_chain_leaves() -> None:
    lessons = lessons_of_a_day(TOWN, CALIBRATION, CELLS[1], best_hold, "candidate")
    reserved = ~lessons.costs.any(axis=1)
    assert 0 < reserved.sum() < len(reserved), "the reserve holds 60 s whatever is asked"


def test_lessons_and_stored_actions_are_those_of_what_is_allowed() -> None:
    """Away from terminals asking costs nothing, because nothing comes of it."""
    city = replace(TOWN, operations=Operations(hold_at="terminals", max_hold_s=30.0))
    lessons = lessons_of_a_day(city, CALIBRATION, CELLS[1], best_hold)
    at_terminal = lessons.costs[:, 1:].any(axis=1)
    assert at_terminal.sum() == len(TOWN.trips)
    assert (lessons.costs.argmin(1) * 5 <= 30).all() and (lessons.costs.argmin(1) > 0).any()
    longest = lessons.costs[at_terminal, 6]
    assert (lessons.costs[at_terminal, 7:] == longest[:, None]).all(), "as much as 30 s"

    fleet = Fleet(city, CALIBRATION, 2)
    fleet.reset(CELLS[:2])
    asked = np.array([1.0, 0.1], np.float32)
    assert executed(fleet, asked).tolist() == [0.0, 0.0], "30 s at the first stop of a trip"
    free = Fleet(TOWN, CALIBRATION, 2)
    free.reset(CELLS[:2])
    assert executed(free, asked).tobytes() == asked.tobytes()


def test_a_cost_between_two_tried_holds_lies_straight_between_them() -> None:
    rng = np.random.default_rng(2)
    costs = rng.normal(size=(50, len(GRID_S))).astype(np.float32)
    holds = rng.uniform(0, 60, 50)
    found = cost_of(jnp.asarray(costs), jnp.asarray(holds, jnp.float32))
    expected = [np.interp(hold, GRID_S, row) for hold, row in zip(holds, costs, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    ends = cost_of(jnp.asarray(costs), jnp.full(50, 60.0))
    np.testing.assert_allclose(ends, costs[:, -1], atol=1e-3)


def test_the_lesson_loss_prefers_the_gate_that_costs_less() -> None:
    states = jnp.asarray(lessons_of_a_day(TOWN, CALIBRATION, CELLS[0], best_hold).states[:64])
    actor = init_actor(jax.random.key(1), Size(len(TOWN.services), 16, 16, 16))
    for sign in (1.0, -1.0):
        costs = jnp.asarray(sign * np.linspace(0, 1, len(GRID_S)), jnp.float32)[None]
        slope = jax.grad(lesson_loss)(actor, states, jnp.repeat(costs, 64, 0))
        assert float(slope["out.b"][0]) * sign > 0, "a dear hold closes the gate, a cheap one opens"


def test_a_gate_that_is_closed_everywhere_opens_again_where_holding_pays() -> None:
    """The expected cost under the policy has no slope left there; this loss has."""
    shut = init_actor(jax.random.key(1), Size(len(TOWN.services), 16, 16, 16))
    shut["out.b"] = shut["out.b"].at[0].set(-40.0)
    states = jnp.asarray(lessons_of_a_day(TOWN, CALIBRATION, CELLS[0], best_hold).states[:256])
    cheap = jnp.repeat(jnp.asarray(-np.linspace(0, 0.1, len(GRID_S)), jnp.float32)[None], 256, 0)

    def expected_cost(actor: Params) -> jax.Array:
        b = branches(hurdle(actor_outputs(actor, states, packed=True)), jnp.zeros(256))
        return expect(b, cheap[:, 0], cost_of(cheap, hold_of(b.held))).mean()

    assert float(optax.tree.norm(jax.grad(expected_cost)(shut))) < 1e-12
    student, _ = study(new_student(shut), states, cheap, 256, jnp.uint32(1), 0, 100_000, 1_000, 256)
    gate = hurdle(actor_outputs(student.actor, states, packed=True)).gate

    assert float(gate.min()) > 0.0


def test_durations_that_have_fallen_to_nothing_come_back_where_holding_pays() -> None:
    """At a latent value of -60, no slope of a cost is left; the leash has one."""
    lost = init_actor(jax.random.key(1), Size(len(TOWN.services), 16, 16, 16))
    lost["out.b"] = jnp.array([-40.0, -60.0, 0.0], jnp.float32)
    states = jnp.asarray(lessons_of_a_day(TOWN, CALIBRATION, CELLS[0], best_hold).states[:256])
    cheap = jnp.repeat(jnp.asarray(-np.linspace(0, 0.1, len(GRID_S)), jnp.float32)[None], 256, 0)

    def regret(actor: Params) -> jax.Array:
        d = hurdle(actor_outputs(actor, states, packed=True))
        return cost_of(cheap, hold_of(jnp.tanh(0.5 * d.mean))).mean()

    assert float(optax.tree.norm(jax.grad(regret)(lost))) < 1e-12
    student, _ = study(new_student(lost), states, cheap, 256, jnp.uint32(1), 0, 100_000, 2_000, 256)
    d = hurdle(actor_outputs(student.actor, states, packed=True))
    assert float(d.gate.min()) > 0.0 and float(hold_of(jnp.tanh(0.5 * d.mean)).min()) > 30.0


def test_durations_are_not_drawn_to_nothing_where_no_hold_pays() -> None:
    states = jnp.asarray(lessons_of_a_day(TOWN, CALIBRATION, CELLS[0], best_hold).states[:64])
    actor = init_actor(jax.random.key(1), Size(len(TOWN.services), 16, 16, 16))
    dear = jnp.repeat(jnp.asarray(np.linspace(0, 1, len(GRID_S)), jnp.float32)[None], 64, 0)
    slope = jax.grad(lesson_loss)(actor, states, dear)
    assert float(slope["out.b"][1]) == 0.0 and float(slope["out.b"][0]) > 0.0


def test_lessons_whose_loss_is_not_finite_stop_with_the_update() -> None:
    actor = init_actor(jax.random.key(1), Size(len(TOWN.services), 16, 16, 16))

    def spoiled(lessons: Lessons) -> Lessons:
        return Lessons(lessons.states, np.full_like(lessons.costs, np.inf))

    with pytest.raises(InputError, match="lesson update 1 of seed 7: loss is not finite"):
        teach(actor, TOWN, CALIBRATION, CELLS[:1], 7, rounds=1, updates=3, alter=spoiled)
