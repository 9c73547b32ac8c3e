"""The paper's training values (Table B.1) beside those of a training run.

Ours are what the run's folder records, the shapes of the network that it trains, and the constants
of `evenline.learn`.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import jax

from evenline.control.action import MAX_HOLD_S
from evenline.control.state import CANONICAL_WIDTH, MAX_SLOTS
from evenline.learn import updates as u
from evenline.learn.data import REWARD_SCALE
from evenline.learn.plan import Plan, Size
from evenline.learn.schedule import FINAL, Ramp
from evenline.support.records import convert
from reproduce import ratio


def training_values(recorded: dict[str, Any]) -> dict[str, str]:
    """The values of the plan that a run recorded, by the paper's names."""
    plan = convert(Plan, recorded, "plan")
    budget = plan.budget
    size = Size(1, plan.slot, plan.fused, plan.hidden)
    network = jax.eval_shape(partial(u.begin, size=size), jax.random.key(0))
    actor = network.actor
    first = u.begin(jax.random.key(0), Size(1, 1, 1, 1))
    values = {
        "canonical state width": f"{CANONICAL_WIDTH}",
        "maximum event slots": f"{MAX_SLOTS}",
        "slot embedding and fused widths": f"{actor['slot1.b'].size} and {actor['fuse1.b'].size}",
        "actor/critic/value hidden widths": f"{actor['head0.b'].size}, {actor['head1.b'].size}",
        "critic heads": f"{len(network.critic['out.b'])}",
        "maximum hold": f"{MAX_HOLD_S:g} s",
        "critic and simulator-actor minibatches": f"{u.CRITIC_BATCH} and {u.ACTOR_BATCH}",
        "actor/critic/value/entropy learning rates": f"{u.RATE:g}",
        "ratio learning rate": f"{ratio.RATE:g}",
        "target update rate": f"{u.TARGET_RATE:g}",
        "simulator critic-minibatch fraction": f"{1 - u.LOGGED / u.CRITIC_BATCH:g}",
        "IQL expectile": f"{u.EXPECTILE:g}",
        "IQL exponential multiplier": f"{u.ADVANTAGE_SCALE:g}",
        "maximum IQL actor weight": f"{u.LARGEST_WEIGHT:g}",
        "mixed-backup coefficient": f"{u.VALUE_SHARE:g}",
        "initial entropy temperature": f"{float(jax.numpy.exp(first.log_temperature)):g}",
        "target entropy": f"{u.TARGET_ENTROPY:g}",
        "trainer reward scale": f"{REWARD_SCALE:g}",
        "critic Huber threshold": f"{u.HUBER:g}",
        "offline IQL updates": f"{budget.iql_updates:,}",
        "frozen-policy warmup": f"{budget.warmup_events:,} events",
        "ratio pretraining": f"{ratio.PRETRAINING:,} updates",
        "ratio update interval": f"{ratio.EVERY} learner updates",
        "total learner updates": f"{budget.updates:,}",
        "fixed actor endpoint": f"{budget.events:,} simulator events",
        "training seeds": _seeds(plan.seeds),
    }
    for final in (row for row in plan.learners if row.name == FINAL):
        frozen = sorted({final.actor_from, final.temperature_from})
        values |= {
            "actor interpolation coefficient": f"{final.proximal:g}",
            "actor/temperature freeze endpoint": f"{' and '.join(map('{:,}'.format, frozen))}"
            " events",
            "actor ramp": _along(final.ramp),
            "terminal actor taper": _along(final.taper),
        }
    return values


def _along(ramp: Ramp) -> str:
    return f"{ramp.first:,} to {ramp.last:,} events, multiplier {ramp.start:g} to {ramp.end:g}"


def _seeds(seeds: tuple[int, ...]) -> str:
    whole = len(seeds) > 1 and all(b == a + 1 for a, b in pairwise(seeds))
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
