"""The hurdle policy: hold or not, and if so how long.

Density with respect to a point mass at -1 plus length on (-1, 1), as in the paper's appendix.
Actions at the cap are clipped to CLIP before the logit: 60 s is the largest float32 below 1, a
latent value of about 17. Nothing here is NaN or infinite, nor is any gradient, for any input.
"""

from typing import NamedTuple

import numpy as np

from evenline.control.action import NO_HOLD
from evenline.policies.actor import LOG_STD_RANGE
from evenline.support.extras import extra

with extra("train"):
    import jax
    import jax.numpy as jnp

CLIP = float(np.nextafter(np.float32(1.0), np.float32(0.0)))
_LOG_TWO_PI = float(np.log(2.0 * np.pi))


class Hurdle(NamedTuple):
    """A batch of hurdle distributions."""

    gate: jax.Array  # logit of a positive hold
    mean: jax.Array  # of the latent value
    log_std: jax.Array


def hurdle(outputs: jax.Array) -> Hurdle:
    """The distribution that an actor's outputs describe."""
    log_std = jnp.clip(outputs[..., 2], *LOG_STD_RANGE)
    return Hurdle(outputs[..., 0], outputs[..., 1], log_std)


def latent_of(action: jax.Array) -> jax.Array:
    """The latent value of a positive action, log((1 + a) / (1 - a))."""
    inside = jnp.clip(action, -CLIP, CLIP)
    return jnp.log1p(inside) - jnp.log1p(-inside)


def _log_positive(d: Hurdle, latent: jax.Array) -> jax.Array:
    """Log density of the positive branch, from the latent value: log(2 n(z) / (1 - a^2))."""
    z = (latent - d.mean) * jnp.exp(-d.log_std)
    log_normal = -0.5 * z**2 - d.log_std - 0.5 * _LOG_TWO_PI
    # (1 - a^2) / 2 = 2 sigmoid(z) sigmoid(-z), in a form that keeps both tails
    log_slope = np.log(2.0) + jax.nn.log_sigmoid(latent) + jax.nn.log_sigmoid(-latent)
    return jnp.asarray(log_normal - log_slope)


def log_density(d: Hurdle, action: jax.Array) -> jax.Array:
    """Log density of any action in [-1, 1]. Only an exact -1 counts as zero hold."""
    none = action == NO_HOLD
    latent = latent_of(jnp.where(none, 0.0, action))
    held = jax.nn.log_sigmoid(d.gate) + _log_positive(d, latent)
    return jnp.where(none, jax.nn.log_sigmoid(-d.gate), held)


class Branches(NamedTuple):
    """Both sides of the gate: their probabilities, and one draw of the positive branch."""

    share_held: jax.Array
    log_none: jax.Array
    log_held: jax.Array  # with the density of the draw
    held: jax.Array  # the draw, an action


def branches(d: Hurdle, noise: jax.Array) -> Branches:
    """The parts of an expectation: the gate is summed, the duration drawn once
    (reparameterised).
    """
    latent = d.mean + jnp.exp(d.log_std) * noise
    log_held = jax.nn.log_sigmoid(d.gate) + _log_positive(d, latent)
    action = jnp.clip(jnp.tanh(0.5 * latent), -CLIP, CLIP)
    return Branches(jax.nn.sigmoid(d.gate), jax.nn.log_sigmoid(-d.gate), log_held, action)


def expect(b: Branches, if_none: jax.Array, if_held: jax.Array) -> jax.Array:
    """The mean over the gate of a quantity known on both sides."""
    return (1.0 - b.share_held) * if_none + b.share_held * if_held


def entropy(b: Branches) -> jax.Array:
    """Entropy under the common measure, from the same draw."""
    return -expect(b, b.log_none, b.log_held)


def sample(d: Hurdle, key: jax.Array) -> jax.Array:
    """Draw one action from each distribution."""
    gate_key, noise_key = jax.random.split(key)
    opens = jax.random.uniform(gate_key, d.gate.shape) < jax.nn.sigmoid(d.gate)
    held = branches(d, jax.random.normal(noise_key, d.mean.shape)).held
    return jnp.where(opens, held, NO_HOLD)


def deterministic(d: Hurdle) -> jax.Array:
    """The median of the positive branch if the gate is at least one half, otherwise -1."""
    median = jnp.clip(jnp.tanh(0.5 * d.mean), -CLIP, CLIP)
    return jnp.where(d.gate >= 0.0, median, NO_HOLD)
