"""One learner update: IQL on the replay, and the H2O+ continuation with simulated days.

Each loss follows an equation of the paper and is a pure function of parameters and a minibatch. All
losses of an IQL update use the parameters before it. Every update returns diagnostics: the scale of
Q, how often the weight or the Huber loss saturates, the gate, the temperature.
"""

from typing import Any, NamedTuple

from evenline.learn.data import Transitions
from evenline.learn.hurdle import branches, entropy, expect, hurdle, log_density
from evenline.learn.network import (
    Params,
    actor_outputs,
    critic_values,
    encode,
    init_actor,
    init_critic,
    init_value,
    state_value,
)
from evenline.learn.plan import Size
from evenline.support.extras import extra

with extra("train"):
    import jax
    import jax.numpy as jnp
    import optax

EXPECTILE = 0.7
ADVANTAGE_SCALE = 3.0
LARGEST_WEIGHT = 100.0
TARGET_RATE = 0.005
RATE = 3e-4
VALUE_SHARE = 0.1  # weight of the fixed IQL value in the bootstrap
HUBER = 1.0
TARGET_ENTROPY = 0.0
CRITIC_BATCH = 256
LOGGED = CRITIC_BATCH // 2  # of them from the replay
ACTOR_BATCH = 128

ADAM = optax.scale_by_adam()
Metrics = dict[str, jax.Array]


class Learned(NamedTuple):
    """All parameters of a learner, with the states of its optimisers."""

    actor: Params
    critic: Params
    target: Params
    value: Params
    log_temperature: jax.Array
    anchor: Params  # the actor that a proximal learner stays near
    actor_adam: Any
    critic_adam: Any
    value_adam: Any
    temperature_adam: Any


def begin(key: jax.Array, size: Size) -> Learned:
    """A new learner; its temperature is 1."""
    a, c, v = jax.random.split(key, 3)
    actor, critic, value = init_actor(a, size), init_critic(c, size), init_value(v, size)
    heat = jnp.zeros((), jnp.float32)
    memory = [ADAM.init(p) for p in (actor, critic, value, heat)]
    return Learned(actor, critic, critic, value, heat, actor, *memory)


def adam(params: Any, grads: Any, memory: Any, rate: Any = RATE) -> tuple[Any, Any]:
    """A step of Adam; with rate 0 neither the parameters nor the optimiser's state change."""
    steps, after = ADAM.update(grads, memory)
    moved = jax.tree.map(lambda p, s: p - rate * s, params, steps)
    keep = jnp.asarray(rate) > 0
    memory = jax.tree.map(lambda new, old: jnp.where(keep, new, old), after, memory)
    return moved, memory


def towards(start: Any, end: Any, share: Any) -> Any:
    """Parameters a share of the way from one set to another."""
    return jax.tree.map(lambda a, b: a + share * (b - a), start, end)


def expectile_loss(difference: jax.Array) -> jax.Array:
    """|tau - 1(u < 0)| u^2."""
    return jnp.where(difference < 0, 1.0 - EXPECTILE, EXPECTILE) * difference**2


def advantage_weight(advantage: jax.Array) -> jax.Array:
    """min(exp(3 A), 100), without overflow."""
    largest = jnp.log(LARGEST_WEIGHT)
    return jnp.exp(jnp.minimum(ADVANTAGE_SCALE * advantage, largest))


def iql_update(learned: Learned, batch: Transitions, packed: bool) -> tuple[Learned, Metrics]:
    """Value by expectile, critics by the stored continuation, actor by weighted likelihood."""
    q = critic_values(
        learned.target, encode(learned.target, batch.state, packed), batch.action
    ).min(0)
    goal = batch.reward + batch.goes_on * state_value(learned.value, batch.next_state, packed)

    def value_loss(params: Params) -> tuple[jax.Array, jax.Array]:
        v = state_value(params, batch.state, packed)
        return expectile_loss(q - v).mean(), v

    def critic_loss(params: Params) -> tuple[jax.Array, jax.Array]:
        both = critic_values(params, encode(params, batch.state, packed), batch.action)
        return ((both - goal) ** 2).mean(1).sum(), both

    (v_loss, v), v_grad = jax.value_and_grad(value_loss, has_aux=True)(learned.value)
    (q_loss, both), q_grad = jax.value_and_grad(critic_loss, has_aux=True)(learned.critic)
    weight = advantage_weight(q - v)

    def actor_loss(params: Params) -> jax.Array:
        d = hurdle(actor_outputs(params, batch.state, packed))
        return -(weight * log_density(d, batch.action)).mean()

    a_loss, a_grad = jax.value_and_grad(actor_loss)(learned.actor)
    actor, actor_adam = adam(learned.actor, a_grad, learned.actor_adam)
    critic, critic_adam = adam(learned.critic, q_grad, learned.critic_adam)
    value, value_adam = adam(learned.value, v_grad, learned.value_adam)
    after = learned._replace(
        actor=actor, critic=critic, value=value,
        target=towards(learned.target, critic, TARGET_RATE),
        actor_adam=actor_adam, critic_adam=critic_adam, value_adam=value_adam,
    )  # fmt: skip
    return after, {
        "actor_loss": a_loss,
        "critic_loss": q_loss,
        "value_loss": v_loss,
        "q_mean": both.mean(),
        "v_mean": v.mean(),
        "advantage_std": (q - v).std(),
        "weight_capped": (weight >= LARGEST_WEIGHT * (1 - 1e-6)).mean(),
        "gradient": optax.tree.norm((a_grad, q_grad, v_grad)),
    }


class Rates(NamedTuple):
    """The values of a learner's schedule at one event."""

    actor: jax.Array  # multiplier of the actor's rate, 0 while it is frozen
    temperature: jax.Array  # 1 or 0
    proximal: jax.Array
    value_share: jax.Array  # weight of V in the bootstrap: 0 for a learner without a replay


def soft_value(learned: Learned, state: jax.Array, noise: jax.Array, packed: bool) -> jax.Array:
    """B_SAC: the target critics' value under the policy, with entropy, and with the gate summed
    exactly.
    """
    b = branches(hurdle(actor_outputs(learned.actor, state, packed)), noise)
    features = encode(learned.target, state, packed)
    none = critic_values(learned.target, features, jnp.full_like(b.held, -1.0)).min(0)
    held = critic_values(learned.target, features, b.held).min(0)
    heat = jnp.exp(learned.log_temperature)
    return expect(b, none - heat * b.log_none, held - heat * b.log_held)


def continue_update(
    learned: Learned,
    batch: Transitions,
    simulated: jax.Array,
    rates: Rates,
    key: jax.Array,
    packed: bool,
) -> tuple[Learned, Metrics]:
    """Critics against the mixed bootstrap; actor and temperature on simulated states."""
    noise = jax.random.normal(key, (len(batch.action) + len(simulated),))
    soft = soft_value(learned, batch.next_state, noise[: len(batch.action)], packed)
    fixed = state_value(learned.value, batch.next_state, packed)
    mixed = rates.value_share * fixed + (1.0 - rates.value_share) * soft
    goal = batch.reward + batch.goes_on * mixed

    def critic_loss(params: Params) -> tuple[jax.Array, jax.Array]:
        both = critic_values(params, encode(params, batch.state, packed), batch.action)
        return optax.huber_loss(both, goal[None], delta=HUBER).mean(1).sum(), both

    (q_loss, both), q_grad = jax.value_and_grad(critic_loss, has_aux=True)(learned.critic)
    critic, critic_adam = adam(learned.critic, q_grad, learned.critic_adam)
    heat = jnp.exp(learned.log_temperature)
    features = encode(critic, simulated, packed)

    def actor_loss(params: Params) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        b = branches(hurdle(actor_outputs(params, simulated, packed)), noise[len(batch.action) :])
        none = critic_values(critic, features, jnp.full_like(b.held, -1.0)).min(0)
        held = critic_values(critic, features, b.held).min(0)
        gain = expect(b, none - heat * b.log_none, held - heat * b.log_held)
        return -gain.mean(), (entropy(b).mean(), b.share_held.mean())

    (a_loss, (spread, gate)), a_grad = jax.value_and_grad(actor_loss, has_aux=True)(learned.actor)
    actor, actor_adam = adam(learned.actor, a_grad, learned.actor_adam, RATE * rates.actor)
    actor = towards(actor, learned.anchor, jnp.where(rates.actor > 0, rates.proximal, 0.0))
    log_temperature, temperature_adam = adam(
        learned.log_temperature,
        heat * (spread - TARGET_ENTROPY),
        learned.temperature_adam,
        RATE * rates.temperature,
    )
    after = learned._replace(
        actor=actor, critic=critic, target=towards(learned.target, critic, TARGET_RATE),
        log_temperature=log_temperature, actor_adam=actor_adam, critic_adam=critic_adam,
        temperature_adam=temperature_adam,
    )  # fmt: skip
    return after, {
        "actor_loss": a_loss,
        "critic_loss": q_loss,
        "q_mean": both.mean(),
        "goal_mean": goal.mean(),
        "huber_saturated": (jnp.abs(both - goal) > HUBER).mean(),
        "entropy": spread,
        "gate": gate,
        "temperature": heat,
        "gradient": optax.tree.norm((a_grad, q_grad)),
    }
