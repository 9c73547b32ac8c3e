"""The domain-ratio diagnostic: how well can simulated transitions be told from recorded ones?

There are two classifiers, a joint one on (s, a, s', dt/T) and a marginal one on (s, a). Their
difference estimates the log ratio of the dynamics. Whole blocks of the replay and whole simulated
days are held out. It has its own random stream and its own parameters, and nothing in the training
reads its output.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from evenline.control.state import CANONICAL_WIDTH
from evenline.learn.data import Transitions
from evenline.learn.network import Params, layer, linear

RATE = 1e-4
BATCH = 128  # of each class
HIDDEN = 256
_adam = optax.adam(RATE)


class Ratio(NamedTuple):
    """Both classifiers and the states of their optimisers."""

    joint: Params
    marginal: Params
    memory: Any


def new_ratio(key: jax.Array) -> Ratio:
    """New classifiers."""
    first, second = jax.random.split(key)
    joint = _classifier(first, 2 * CANONICAL_WIDTH + 2)
    marginal = _classifier(second, CANONICAL_WIDTH + 1)
    return Ratio(joint, marginal, _adam.init((joint, marginal)))


def _classifier(key: jax.Array, width: int) -> Params:
    k = jax.random.split(key, 3)
    return {
        **linear(k[0], "in", width, HIDDEN),
        **linear(k[1], "mid", HIDDEN, HIDDEN),
        **linear(k[2], "out", HIDDEN, 1, gain=1e-4),
    }


def _logit(params: Params, x: jax.Array) -> jax.Array:
    h = layer(params, "mid", layer(params, "in", x))
    return (h @ params["out.w"] + params["out.b"])[:, 0]


def logits(ratio: Ratio, t: Transitions) -> tuple[jax.Array, jax.Array]:
    """How much a transition looks recorded: joint and marginal. dt is the change of the clock."""
    pair = jnp.concatenate([t.state, t.action[:, None]], -1)
    until = jnp.where(t.goes_on > 0, t.next_state[:, 0], 1.0)
    after = jnp.where(t.goes_on[:, None] > 0, t.next_state, 0.0)
    both = jnp.concatenate([pair, after, (until - t.state[:, 0])[:, None]], -1)
    return _logit(ratio.joint, both), _logit(ratio.marginal, pair)


def ratio_update(ratio: Ratio, logged: Transitions, simulated: Transitions) -> Ratio:
    """One balanced step of both classifiers."""

    def loss(params: tuple[Params, Params]) -> jax.Array:
        now = ratio._replace(joint=params[0], marginal=params[1])
        losses = [
            optax.sigmoid_binary_cross_entropy(logit, jnp.full_like(logit, label)).mean()
            for transitions, label in ((logged, 1.0), (simulated, 0.0))
            for logit in logits(now, transitions)
        ]
        return jnp.asarray(sum(losses))

    params = (ratio.joint, ratio.marginal)
    steps, memory = _adam.update(jax.grad(loss)(params), ratio.memory)
    joint, marginal = optax.apply_updates(params, steps)
    return Ratio(joint, marginal, memory)


def auc(positive: npt.NDArray[np.float64], negative: npt.NDArray[np.float64]) -> float:
    """Area under the receiver operating characteristic: P(positive > negative), ties half."""
    order = np.sort(negative)
    below = np.searchsorted(order, positive, "left") + np.searchsorted(order, positive, "right")
    return float(below.mean() / (2 * len(negative)))


def effective_share(log_weight: npt.NDArray[np.float64]) -> float:
    """Effective sample size of unnormalised weights, as a share of the sample."""
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.sum() ** 2 / (len(weight) * (weight**2).sum()))


@jax.jit
def _scores(ratio: Ratio, t: Transitions) -> tuple[jax.Array, jax.Array]:
    return logits(ratio, t)


def assess(ratio: Ratio, logged: Transitions, simulated: Transitions) -> dict[str, float]:
    """Joint AUC, and the effective share of simulated transitions under the estimated ratio."""
    yes, _ = (np.asarray(x, float) for x in _scores(ratio, logged))
    no, marginal = (np.asarray(x, float) for x in _scores(ratio, simulated))
    return {"joint_auc": auc(yes, no), "effective_share": effective_share(no - marginal)}
