"""The hurdle policy against numerical integration, float64 and its own definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from evenline.learn.hurdle import (
    CLIP,
    Hurdle,
    branches,
    deterministic,
    entropy,
    expect,
    hurdle,
    latent_of,
    log_density,
    sample,
)

gates = st.floats(-30, 30, width=32, allow_subnormal=False)  # XLA takes those below for zero
means = st.floats(-8, 8)
log_stds = st.floats(-2, 2)


def one(gate: float, mean: float, log_std: float) -> Hurdle:
    return hurdle(jnp.array([[gate, mean, log_std]], jnp.float32))


def reference(gate: float, mean: float, log_std: float, action: float) -> float:
    """Log density in float64, straight from the paper's equations."""
    if action == -1.0:
        return float(-np.logaddexp(0.0, gate))
    action = float(np.clip(action, -CLIP, CLIP))
    latent = np.log1p(action) - np.log1p(-action)
    density = norm.logpdf(latent, mean, np.exp(log_std)) + np.log(2) - np.log1p(-(action**2))
    return float(-np.logaddexp(0.0, -gate) + density)


@settings(deadline=None, max_examples=50)
@given(gates, means, st.floats(-1, 1.5))
def test_the_density_and_the_point_mass_add_up_to_one(
    gate: float, mean: float, log_std: float
) -> None:
    d = one(gate, mean, log_std)
    spread = 7 * np.exp(log_std)
    low, high = max(mean - spread, -15.0), min(mean + spread, 15.0)
    # In the latent coordinate, where da = (1 - a^2) / 2 dz, no mass hides in a tail.
    latent = np.linspace(low, high, 4001)
    action = np.tanh(latent / 2)
    density = np.exp(np.asarray(log_density(d, jnp.asarray(action)), float)) * (1 - action**2) / 2
    inside = np.trapezoid(density, latent)
    expected = norm.cdf(high, mean, np.exp(log_std)) - norm.cdf(low, mean, np.exp(log_std))
    opens = 1 / (1 + np.exp(-gate))
    none = float(jnp.exp(log_density(d, jnp.array([-1.0])))[0])
    assert inside == pytest.approx(opens * expected, rel=2e-3, abs=1e-5)
    assert none + opens == pytest.approx(1.0, abs=1e-6)


@settings(deadline=None)
@given(gates, means, log_stds, st.one_of(st.just(-1.0), st.floats(-0.999, 0.999), st.just(1.0)))
def test_the_log_density_is_that_of_float64(
    gate: float, mean: float, log_std: float, action: float
) -> None:
    single = float(np.float32(action))
    found = float(log_density(one(gate, mean, log_std), jnp.array([single]))[0])
    expected = reference(*(float(np.float32(v)) for v in (gate, mean, log_std)), single)
    assert found == pytest.approx(expected, rel=2e-4, abs=2e-3)


@settings(deadline=None)
@given(gates, means, log_stds)
def test_the_deterministic_action_is_the_median_or_exactly_no_hold(
    gate: float, mean: float, log_std: float
) -> None:
    d = one(gate, mean, log_std)
    action = float(deterministic(d)[0])
    if float(d.gate[0]) >= 0:
        assert -1.0 < action < 1.0
        latent = jax.random.normal(jax.random.key(1), (4001,)) * jnp.exp(d.log_std) + d.mean
        below = float((jnp.tanh(latent / 2) < action).mean())
        assert below == pytest.approx(0.5, abs=0.04)
    else:
        assert action == -1.0


@pytest.mark.parametrize("gate", [-80.0, -20.0, 0.0, 20.0, 80.0])
@pytest.mark.parametrize("mean", [-40.0, 0.0, 40.0])
@pytest.mark.parametrize("log_std", [-9.0, 0.0, 9.0])
@pytest.mark.parametrize("action", [-1.0, -CLIP, np.nextafter(-1, 0), 0.0, CLIP, 1.0])
def test_nothing_is_nan_or_infinite_at_either_end(
    gate: float, mean: float, log_std: float, action: float
) -> None:
    def likelihood(outputs: jax.Array) -> jax.Array:
        return log_density(hurdle(outputs), jnp.array([action], jnp.float32)).sum()

    def value(outputs: jax.Array) -> jax.Array:
        b = branches(hurdle(outputs), jnp.array([1.3]))
        return (expect(b, b.log_none, b.log_held) + entropy(b) + b.held).sum()

    outputs = jnp.array([[gate, mean, log_std]], jnp.float32)
    for function in (likelihood, value):
        found, slope = jax.value_and_grad(function)(outputs)
        assert jnp.isfinite(found) and jnp.isfinite(slope).all()


def test_the_cap_lies_at_a_latent_value_of_about_seventeen() -> None:
    assert float(latent_of(jnp.float32(1.0))) == pytest.approx(17.3, abs=0.1)


@settings(deadline=None, max_examples=20)
@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-1, 1))
def test_samples_hold_as_often_as_the_gate_says_and_the_entropy_is_their_mean_surprise(
    gate: float, mean: float, log_std: float
) -> None:
    d = hurdle(jnp.tile(jnp.array([gate, mean, log_std], jnp.float32), (20_000, 1)))
    drawn = sample(d, jax.random.key(3))
    assert float((drawn > -1).mean()) == pytest.approx(1 / (1 + np.exp(-gate)), abs=0.02)
    assert float(drawn.max()) < 1.0
    noise = jax.random.normal(jax.random.key(4), drawn.shape)
    spread = float(entropy(branches(d, noise)).mean())
    assert spread == pytest.approx(float(-log_density(d, drawn).mean()), abs=0.06)
    assert spread < 1.1  # the most there is on this measure


def test_the_greatest_entropy_is_that_of_two_thirds_held_evenly() -> None:
    # log(1 + 2): one unit of mass at -1 and two of length
    gate = np.log(2.0)
    best = 0.0
    for log_std in np.linspace(0, 1, 21):
        d = hurdle(jnp.tile(jnp.array([gate, 0.0, log_std], jnp.float32), (40_000, 1)))
        noise = jax.random.normal(jax.random.key(5), (40_000,))
        best = max(best, float(entropy(branches(d, noise)).mean()))
    assert np.log(3) - 0.03 < best < np.log(3) + 0.01
