"""A positive control of the learner: an effect that is paid at once must be learned.

We add a known term to the cost of every decision of a replay: the seconds of its hold times the
people on board. A hold of 30 s then costs about what a hold really costs a city within half an
hour, but at once and without delay. We run IQL on these costs and compare the critic's opinion of
30 s against no hold with the truth. A learner that fails here cannot learn what holds are worth.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenline.control.action import NO_HOLD, action_of
from evenline.learn import lanes as ln
from evenline.learn.centre import baseline_of, centred_cost
from evenline.learn.data import REWARD_SCALE, Replay, replay_states, resident
from evenline.learn.network import Params, Size, critic_values, encode
from evenline.learn.run import IQL_CHUNK, chosen_device, seed_array
from evenline.replay.store import Store
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar

HOLD_S = 30.0
ASSESSED = 4_096  # decisions on which the critic is compared with the truth


def positive_control(
    store: Store, seeds: Sequence[int], updates: int, size: Size, device: str = "cpu"
) -> dict[str, Any]:
    """Correlation of the critic's opinion with the truth, under raw and under centred rewards."""
    if updates < 1:
        raise InputError(f"{updates} updates: give at least 1")
    where = chosen_device(device)
    paid = store.columns.hold_s * store.columns.on_board
    costs = {"raw": store.cost, "centred": centred_cost(store, baseline_of(store))}
    found: dict[str, Any] = {"hold_s": HOLD_S}
    with jax.default_device(where), progress_bar() as bar:
        task = bar.add_task("IQL updates", total=len(costs) * len(seeds) * updates)
        for name, cost in costs.items():
            replay = resident(store, np.asarray(cost + paid, np.float32))
            critics = _critics(replay, seeds, updates, size, where.platform == "cpu", bar, task)
            correlations = [_correlation(critic, store, replay) for critic in critics]
            found[name] = {
                "spread_of_costs": float(np.std(np.asarray(cost, np.float64))),
                "correlations": correlations,
            }
    found["spread_of_effect"] = float(HOLD_S * np.std(store.columns.on_board.astype(np.float64)))
    return found


def control_table(found: dict[str, Any]) -> str:
    """The result in Markdown."""
    lines = [
        f"| Rewards | Spread of a decision's cost, passenger-seconds | Correlation after "
        f"{found['updates']:,} updates |",
        "| --- | ---: | ---: |",
    ]
    for name in ("raw", "centred"):
        each = found[name]["correlations"]
        lines.append(
            f"| {name} | {found[name]['spread_of_costs']:,.0f} | {np.mean(each):.2f} "
            f"({min(each):.2f} to {max(each):.2f} over {len(each)} seeds) |"
        )
    spread = f"{found['spread_of_effect']:,.0f} passenger-seconds"
    said = f"The effect of a hold of {found['hold_s']:.0f} s itself has a spread of {spread}."
    return "\n".join([*lines, "", said])


def _critics(
    replay: Replay,
    seeds: Sequence[int],
    updates: int,
    size: Size,
    packed: bool,
    bar: Any,
    task: Any,
) -> list[Params]:
    """The critics after IQL, one per seed; on a CPU one seed after another."""
    critics = []
    for group in [[seed] for seed in seeds] if packed else [list(seeds)]:
        learned, done = ln.begin_lanes(group, size), 0
        while done < updates:
            count = min(IQL_CHUNK, updates - done)
            learned, _ = ln.iql_steps(
                learned, replay, seed_array(group), np.int32(done), count, packed
            )
            done += count
            bar.advance(task, count * len(group))
        for lane in range(len(group)):
            critics.append({name: value[lane] for name, value in learned.critic.items()})
    return critics


def _correlation(critic: Params, store: Store, replay: Replay) -> float:
    """Correlation of Q(30 s) - Q(0 s) with what the hold was made to cost."""
    rows = np.random.default_rng(0).integers(0, len(store), ASSESSED)
    states = replay_states(replay, jnp.asarray(rows))
    features = encode(critic, states, packed=False)
    held, none = (
        critic_values(critic, features, jnp.full(ASSESSED, action, jnp.float32)).min(0)
        for action in (float(action_of(HOLD_S)), NO_HOLD)
    )
    truth = -REWARD_SCALE * HOLD_S * store.columns.on_board[rows]
    return float(np.corrcoef(np.asarray(held - none, np.float64), truth)[0, 1])
