"""Losses against the paper's equations, written out once more in float64 and plain loops."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.learn import updates
from evenline.learn.data import Transitions
from evenline.learn.updates import Learned, Rates, adam, advantage_weight, begin, expectile_loss
from small_states import SERVICES, SIZE, states

COUNT = 48
Floats = np.ndarray[Any, Any]
# Compiled whole, as training does, and sooner than one operation at a time.
iql_update, continue_update, soft_value = map(
    partial(jax.jit, static_argnames="packed"),
    (updates.iql_update, updates.continue_update, updates.soft_value),
)


def transitions(seed: int) -> Transitions:
    rng = np.random.default_rng(seed)
    holds = np.where(rng.random(COUNT) < 0.6, -1.0, rng.uniform(-0.9, 0.99, COUNT))
    return Transitions(
        jnp.asarray(states(seed, COUNT, 4)),
        jnp.asarray(holds, jnp.float32),
        jnp.asarray(rng.normal(-0.3, 0.1, COUNT), jnp.float32),
        jnp.asarray(states(seed + 1, COUNT, 4)),
        jnp.asarray((rng.random(COUNT) < 0.9), jnp.float32),
    )


def doubles(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


# -- the network, one state at a time -------------------------------------------------------------


def features(p: dict[str, Floats], state: Floats) -> Floats:
    size, token = round(state[1] * 16), round(state[2] * 16)
    slots = state[5:].reshape(16, 14)
    hidden = []
    for k in range(size):
        service = np.zeros(SERVICES)
        service[int(slots[k, 1])] = 1.0
        x = np.concatenate(
            [slots[k, :1], slots[k, 2:], service, [k == token, k < token, (k - token) / 16]]
        )
        for layer in ("slot0", "slot1"):
            x = np.maximum(x @ p[f"{layer}.w"] + p[f"{layer}.b"], 0)
        hidden.append(x)

    def mean(chosen: list[Floats]) -> Floats:
        return np.mean(chosen, axis=0) if chosen else np.zeros(SIZE.slot)

    x = np.concatenate(
        [
            state[:5],
            hidden[token],
            mean(hidden),
            np.max(hidden, axis=0),
            mean(hidden[:token]),
            mean(hidden[token + 1 :]),
        ]
    )
    for layer in ("fuse0", "fuse1"):
        x = np.maximum(x @ p[f"{layer}.w"] + p[f"{layer}.b"], 0)
    return x


def head(p: dict[str, Floats], x: Floats) -> Floats:
    for layer in ("head0", "head1"):
        x = np.maximum(x @ p[f"{layer}.w"] + p[f"{layer}.b"], 0)
    return x @ p["out.w"] + p["out.b"]


def critics(p: dict[str, Floats], state: Floats, action: float) -> list[float]:
    x = np.append(features(p, state), action)
    names = [name for name in p if name[:4] in ("head", "out.")]
    return [float(head({name: p[name][i] for name in names}, x)[0]) for i in (0, 1)]


def log_density(out: Floats, action: float) -> float:
    if action == -1.0:
        return float(-np.logaddexp(0, out[0]))
    z, sd = np.log((1 + action) / (1 - action)), np.exp(np.clip(out[2], -5, 2))
    normal = -0.5 * ((z - out[1]) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    return float(-np.logaddexp(0, -out[0]) + normal + np.log(2 / (1 - action**2)))


def learner(seed: int) -> Learned:
    """A learner whose parts all differ, target critics too."""
    first, second = begin(jax.random.key(seed), SIZE), begin(jax.random.key(seed + 1), SIZE)
    louder = jax.tree.map(lambda leaf: leaf * 3.0, second.critic)
    value = first.value | {"out.w": first.value["out.w"] * 100}
    return first._replace(target=louder, value=value, log_temperature=jnp.float32(-0.7))


@pytest.mark.parametrize("packed", [False, True])
def test_iql_losses_are_the_papers(packed: bool) -> None:
    now, batch = learner(1), transitions(2)
    _, found = iql_update(now, batch, packed)
    p, t = doubles(now), doubles(batch)
    value = critic = actor = 0.0
    for s, a, r, after, goes_on in zip(*t, strict=True):
        v = head(p.value, features(p.value, s))[0]
        u = min(critics(p.target, s, a)) - v
        value += abs(0.7 - (u < 0)) * u**2 / COUNT
        goal = r + goes_on * head(p.value, features(p.value, after))[0]
        critic += sum((q - goal) ** 2 for q in critics(p.critic, s, a)) / COUNT
        weight = min(np.exp(3 * u), 100.0)
        actor -= weight * log_density(head(p.actor, features(p.actor, s)), a) / COUNT
    assert float(found["value_loss"]) == pytest.approx(value, rel=1e-4)
    assert float(found["critic_loss"]) == pytest.approx(critic, rel=1e-4)
    assert float(found["actor_loss"]) == pytest.approx(actor, rel=1e-4)


def expected_soft_value(p: Any, state: Floats, noise: float, heat: float, which: Any) -> float:
    out = head(p.actor, features(p.actor, state))
    z = out[1] + np.exp(np.clip(out[2], -5, 2)) * noise
    held = float(np.tanh(z / 2))
    opens = 1 / (1 + np.exp(-out[0]))
    none = min(critics(which, state, -1.0)) - heat * log_density(out, -1.0)
    some = min(critics(which, state, held)) - heat * log_density(out, held)
    return float((1 - opens) * none + opens * some)


def test_the_soft_value_sums_the_gate_exactly() -> None:
    now, batch = learner(3), transitions(4)
    noise = jax.random.normal(jax.random.key(1), (COUNT,))
    found = np.asarray(soft_value(now, batch.state, noise, False))
    p = doubles(now)
    expected = [
        expected_soft_value(p, s, z, np.exp(-0.7), p.target)
        for s, z in zip(np.asarray(batch.state, float), np.asarray(noise, float), strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_the_critic_target_mixes_a_tenth_of_the_fixed_value_and_the_loss_is_hubers() -> None:
    now, batch, key = learner(5), transitions(6), jax.random.key(2)
    rates = Rates(*(jnp.float32(x) for x in (1.0, 1.0, 0.0, 0.1)))
    after, found = continue_update(now, batch, batch.state[:16], rates, key, False)
    noise = np.asarray(jax.random.normal(key, (COUNT + 16,)), float)
    p, t = doubles(now), doubles(batch)
    loss, goals = 0.0, []
    for i, (s, a, r, then, goes_on) in enumerate(zip(*t, strict=True)):
        soft = expected_soft_value(p, then, noise[i], np.exp(-0.7), p.target)
        goal = r + goes_on * (0.1 * head(p.value, features(p.value, then))[0] + 0.9 * soft)
        goals.append(goal)
        for q in critics(p.critic, s, a):
            d = abs(q - goal)
            loss += (0.5 * d**2 if d <= 1 else d - 0.5) / COUNT
    assert float(found["goal_mean"]) == pytest.approx(np.mean(goals), rel=1e-4)
    assert float(found["critic_loss"]) == pytest.approx(loss, rel=1e-4)
    fresh = doubles(after)
    gain = np.mean([
        expected_soft_value(p, s, z, np.exp(-0.7), fresh.critic)
        for s, z in zip(t.state[:16], noise[COUNT:], strict=True)
    ])  # fmt: skip
    assert float(found["actor_loss"]) == pytest.approx(-gain, rel=1e-3)


def test_a_frozen_actor_and_temperature_do_not_move_nor_does_their_optimiser() -> None:
    now, batch = learner(7), transitions(8)
    frozen = Rates(*(jnp.float32(x) for x in (0.0, 0.0, 5e-5, 0.1)))
    after, _ = continue_update(now, batch, batch.state[:16], frozen, jax.random.key(3), False)
    for part in ("actor", "log_temperature", "actor_adam", "temperature_adam", "value", "anchor"):
        for a, b in zip(
            jax.tree.leaves(getattr(now, part)), jax.tree.leaves(getattr(after, part)), strict=True
        ):
            assert np.array_equal(a, b), part
    assert not np.array_equal(now.critic["out.w"], after.critic["out.w"])


def test_a_proximal_learner_ends_a_little_nearer_to_its_anchor() -> None:
    now, batch = learner(9), transitions(10)
    now = now._replace(anchor=jax.tree.map(lambda leaf: leaf + 1.0, now.actor))
    free, near = (
        continue_update(
            now, batch, batch.state[:16], Rates(*(jnp.float32(x) for x in (1, 1, c, 0.1))),
            jax.random.key(4), False,
        )[0]
        for c in (0.0, 0.01)
    )  # fmt: skip
    for name, value in free.actor.items():
        expected = value + 0.01 * (now.anchor[name] - value)
        np.testing.assert_allclose(near.actor[name], expected, rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(st.floats(-1e6, 1e6))
def test_the_weight_is_capped_and_never_overflows(advantage: float) -> None:
    found = float(advantage_weight(jnp.float32(advantage)))
    assert found == pytest.approx(min(np.exp(min(3.0 * advantage, 50)), 100.0), rel=1e-3)


def test_the_expectile_of_a_sample_minimises_its_loss() -> None:
    rng = np.random.default_rng(3)
    sample = rng.gamma(2.0, size=4_000)
    grid = np.linspace(0, 6, 601)
    best = grid[np.argmin([float(expectile_loss(jnp.asarray(sample - v)).mean()) for v in grid])]
    above, below = (sample - best).clip(0).mean(), (best - sample).clip(0).mean()
    assert 0.7 * above == pytest.approx(0.3 * below, rel=0.05)


def test_adam_is_the_published_recursion() -> None:
    from evenline.learn.updates import ADAM

    x, memory = jnp.array([1.0, -2.0]), ADAM.init(jnp.zeros(2))
    m = v = np.zeros(2)
    y = np.array([1.0, -2.0])
    for step in range(1, 6):
        slope = np.array([0.3 * step, -1.0])
        x, memory = adam(x, jnp.asarray(slope, jnp.float32), memory)
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
        y = y - 3e-4 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(x, y, rtol=1e-5)
