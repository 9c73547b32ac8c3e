"""The structured network: slots, five pooled views, fusion, and the heads of actor, critics, value.

`evenline.policies.actor.network_layers` defines the layers, and parameters are named as in an
exported policy. `encode` computes the same features in two ways: over all sixteen slots of every
state (fast on a GPU), or only over the active slots (fast on a CPU). Inactive slots have no effect.
"""

from typing import Any

from evenline.control.state import MAX_SLOTS, PREFIX, SLOT
from evenline.learn.plan import Size
from evenline.policies.actor import (
    FUSED_LAYERS,
    HEAD_LAYERS,
    LAST,
    OUTPUTS,
    PLAIN_COLUMNS,
    POSITION_COLUMNS,
    SLOT_LAYERS,
)
from evenline.support.extras import extra

with extra("train"):
    import jax
    import jax.numpy as jnp

Params = dict[str, jax.Array]
_SLOTS_A_STATE = 2.5  # active slots per state that we allocate, on average over a batch
_FIRST_GATE = 0.35  # share of positive holds before learning
_FIRST_HOLD_S = 10.0  # their median


def linear(key: jax.Array, name: str, width_in: int, width_out: int, gain: float = 2.0) -> Params:
    """A layer's weights, He-initialised (`gain` 2 suits the ReLU that follows), and zero bias."""
    scale = (gain / width_in) ** 0.5
    return {
        f"{name}.w": scale * jax.random.normal(key, (width_in, width_out), jnp.float32),
        f"{name}.b": jnp.zeros(width_out, jnp.float32),
    }


def _init_encoder(key: jax.Array, size: Size) -> Params:
    """Slot network and fusion."""
    layers, names = size.layers(), (*SLOT_LAYERS, *FUSED_LAYERS)
    params: Params = {}
    for part, name in zip(jax.random.split(key, len(names)), names, strict=True):
        params |= linear(part, name, *layers[name])
    return params


def _init_head(key: jax.Array, size: Size, extra_in: int, outputs: int) -> Params:
    """Two hidden layers and a small output layer."""
    layers, params = size.layers(extra_in, outputs), Params()
    *parts, last = jax.random.split(key, len(HEAD_LAYERS) + 1)
    for part, name in zip(parts, HEAD_LAYERS, strict=True):
        params |= linear(part, name, *layers[name])
    return params | linear(last, LAST, *layers[LAST], gain=1e-4)


def init_actor(key: jax.Array, size: Size) -> Params:
    """A new actor, which holds about one bus in three for a short time."""
    body, head = jax.random.split(key)
    params = {**_init_encoder(body, size), **_init_head(head, size, 0, OUTPUTS)}
    short = _FIRST_HOLD_S / 60.0
    gate, mean = jnp.log(_FIRST_GATE / (1 - _FIRST_GATE)), jnp.log(short / (1 - short))
    return params | {f"{LAST}.b": jnp.array([gate, mean, 0.0], jnp.float32)}


def init_value(key: jax.Array, size: Size) -> Params:
    """The state value."""
    body, head = jax.random.split(key)
    return {**_init_encoder(body, size), **_init_head(head, size, 0, 1)}


def init_critic(key: jax.Array, size: Size) -> Params:
    """One encoder, two heads along a leading axis; the action enters after the encoder."""
    body, first, second = jax.random.split(key, 3)
    heads = [_init_head(k, size, 1, 1) for k in (first, second)]
    return {
        **_init_encoder(body, size),
        **{name: jnp.stack([head[name] for head in heads]) for name in heads[0]},
    }


# -- the encoder ----------------------------------------------------------------------------------


def layers(params: Params, names: tuple[str, ...], x: jax.Array) -> jax.Array:
    """Some layers, each followed by ReLU."""
    for name in names:
        x = jax.nn.relu(x @ params[f"{name}.w"] + params[f"{name}.b"])
    return x


def batch_size(state: jax.Array) -> jax.Array:
    """Active slots of each state."""
    return jnp.round(state[..., 1] * MAX_SLOTS).astype(jnp.int32)


def decision_of(state: jax.Array) -> jax.Array:
    """The slot of the current decision."""
    return jnp.round(state[..., 2] * MAX_SLOTS).astype(jnp.int32)


def _slot_input(slot: jax.Array, k: jax.Array, decision: jax.Array, services: int) -> jax.Array:
    """The input of the slot network: a slot's values, service and position."""
    service = jax.nn.one_hot(slot[..., 1].astype(jnp.int32), services, dtype=jnp.float32)
    status = jnp.stack([k == decision, k < decision, (k - decision) / MAX_SLOTS], -1).astype(
        jnp.float32
    )
    return jnp.concatenate([slot[..., :1], slot[..., 2:], service, status], -1)


def encode(params: Params, state: jax.Array, packed: bool) -> jax.Array:
    """Features of a batch of canonical states."""
    slots = state[:, PREFIX:].reshape(len(state), MAX_SLOTS, SLOT)
    services = params["slot0.w"].shape[0] - len(PLAIN_COLUMNS) - POSITION_COLUMNS
    room = int(_SLOTS_A_STATE * len(state))

    def dense(_: None) -> jax.Array:
        return _views_of_all(params, state, slots, services)

    if not packed or room < 2 * MAX_SLOTS:
        views = dense(None)
    else:
        views = jax.lax.cond(
            batch_size(state).sum() <= room,
            lambda _: _views_of_active(params, state, slots, services, room),
            dense,
            None,
        )
    return layers(params, FUSED_LAYERS, jnp.concatenate([state[:, :PREFIX], views], -1))


def _views_of_all(params: Params, state: jax.Array, slots: jax.Array, services: int) -> jax.Array:
    """The five views from a full grid of slots."""
    k, decision, size = jnp.arange(MAX_SLOTS)[None], decision_of(state)[:, None], batch_size(state)
    active = k < size[:, None]
    slots = jnp.where(active[..., None], slots, 0.0)  # padding may contain any value
    x = _slot_input(slots, jnp.broadcast_to(k, active.shape), decision, services)
    h = layers(params, SLOT_LAYERS, x)

    def mean(mask: jax.Array) -> jax.Array:
        weight = mask / jnp.maximum(mask.sum(1, keepdims=True), 1)
        return jnp.einsum("bk,bkd->bd", weight.astype(jnp.float32), h)

    top = jnp.where(active[..., None], h, 0.0).max(1)  # features are not negative
    views = [
        mean(k == decision),
        mean(active),
        top,
        mean(k < decision),
        mean((k > decision) & active),
    ]
    return jnp.concatenate(views, -1)


def _views_of_active(
    params: Params, state: jax.Array, slots: jax.Array, services: int, room: int
) -> jax.Array:
    """The five views from the active slots only, in one row per slot."""
    size, rows = batch_size(state), len(state)
    ends = jnp.cumsum(size)
    place = jnp.arange(room)
    row = jnp.searchsorted(ends, place, side="right")  # `rows` beyond the last active slot
    inside = row < rows
    at = jnp.minimum(row, rows - 1)
    k = jnp.where(inside, place - (ends - size)[at], 0)
    decision = decision_of(state)[at]
    h = layers(params, SLOT_LAYERS, _slot_input(slots[at, k], k, decision, services))

    def mean(mask: jax.Array) -> jax.Array:
        weight = (mask & inside).astype(jnp.float32)
        count = jax.ops.segment_sum(weight, row, rows + 1)[:rows, None]
        total = jax.ops.segment_sum(h * weight[:, None], row, rows + 1)[:rows]
        return total / jnp.maximum(count, 1.0)

    current = h[jnp.minimum(ends - size + decision_of(state), room - 1)]
    top = _segment_max(h, row, rows + 1)[:rows]
    everyone = jnp.ones_like(inside)
    views = [current, mean(everyone), top, mean(k < decision), mean(k > decision)]
    return jnp.concatenate(views, -1)


@jax.custom_vjp
def _identity_max(h: jax.Array, row: jax.Array, top: jax.Array) -> jax.Array:
    return top


def _segment_max(h: jax.Array, row: jax.Array, rows: int) -> jax.Array:
    """Largest value of each row's slots; equal slots share the gradient, as in `max`."""
    top = jnp.maximum(jax.ops.segment_max(jax.lax.stop_gradient(h), row, rows), 0.0)
    return _identity_max(h, row, top)


def _max_forward(h: jax.Array, row: jax.Array, top: jax.Array) -> tuple[jax.Array, Any]:
    return top, (h, row, top)


def _max_backward(kept: Any, grad: jax.Array) -> tuple[jax.Array, None, jax.Array]:
    h, row, top = kept
    best = (h == top[row]).astype(jnp.float32)
    ties = jax.ops.segment_sum(best, row, len(top))
    return best * (grad / jnp.maximum(ties, 1.0))[row], None, jnp.zeros_like(top)


_identity_max.defvjp(_max_forward, _max_backward)

# -- the heads ------------------------------------------------------------------------------------


def _head(params: Params, x: jax.Array) -> jax.Array:
    return layers(params, HEAD_LAYERS, x) @ params[f"{LAST}.w"] + params[f"{LAST}.b"]


def actor_outputs(params: Params, state: jax.Array, packed: bool) -> jax.Array:
    """Gate logit, latent mean and unclipped log standard deviation of each state."""
    return _head(params, encode(params, state, packed))


def state_value(params: Params, state: jax.Array, packed: bool) -> jax.Array:
    """V of each state."""
    return _head(params, encode(params, state, packed))[:, 0]


def critic_values(params: Params, features: jax.Array, action: jax.Array) -> jax.Array:
    """Both heads' Q of encoded states and actions: shape (2, batch)."""
    x = jnp.concatenate([features, action[:, None]], -1)
    heads = {name: value for name, value in params.items() if name[:4] in ("head", "out.")}
    return jax.vmap(lambda head: _head(head, x)[:, 0])(heads)
