"""A positive control of the learner: an effect that is paid at once must be learned.

We add a known term to the cost of every decision of a replay: the seconds of its hold times the
people on board. A hold of 30 s then costs about what a hold really costs a city within half an
hour, but at once and without delay. We run IQL on these costs and compare the critic's opinion of
30 s against no hold with the truth. A learner that fails here cannot learn what holds are worth.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from evenline.city.tables import digest, open_city
from evenline.cli.options import (
    CityOption,
    DocsOption,
    OutOption,
    ReplayOption,
    WidthsOption,
    widths_of,
)
from evenline.control.action import NO_HOLD, action_of
from evenline.experiments.train import replay_folder, seeds_of
from evenline.figures.document import insert
from evenline.learn import lanes as ln
from evenline.learn.centre import baseline_of, centred_cost
from evenline.learn.data import REWARD_SCALE, Replay, replay_states, resident
from evenline.learn.network import Params, critic_values, encode
from evenline.learn.plan import IQL_CHUNK, Size
from evenline.learn.run import chosen_device, seed_array
from evenline.replay.store import Store, open_store
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.files import read_json, to_json, write_text
from evenline.support.progress import progress_bar
from reproduce.door import run

with extra("train"):
    import jax
    import jax.numpy as jnp

HOLD_S = 30.0
ASSESSED = 4_096  # decisions on which the critic is compared with the truth
LEARNED = 0.5  # least correlation of a critic with an effect that is paid at once


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
    after = f"Correlation after {found['updates']:,} updates"
    rows = [["Rewards", "Spread of a decision's cost, passenger-seconds", after]]
    for name in ("raw", "centred"):
        each = found[name]["correlations"]
        seeds = f"({min(each):.2f} to {max(each):.2f} over {len(each)} seeds)"
        spread = f"{found[name]['spread_of_costs']:,.0f}"
        rows.append([name, spread, f"{np.mean(each):.2f} {seeds}"])
    spread = f"{found['spread_of_effect']:,.0f} passenger-seconds"
    said = f"The effect of a hold of {found['hold_s']:.0f} s itself has a spread of {spread}."
    return "\n".join([*markdown(rows), "", said])


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


def main(
    city: CityOption = "town",
    replay: ReplayOption = None,
    seeds: Annotated[str, typer.Option(help="Training seeds, such as 6201-6205.")] = "6201-6205",
    updates: Annotated[int, typer.Option(help="Number of IQL updates.")] = 10_000,
    widths: WidthsOption = "128,256,256",
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    out: OutOption = None,
    docs: DocsOption = None,
) -> None:
    """Test whether IQL learns an effect that is paid at once, from raw and from centred rewards.
    Exits with code 1 if it does not learn it from centred ones.
    """
    opened = open_city(city)
    path = (out or Path("results") / f"audit-{opened.name}") / "learner.json"
    asked = {"city": digest(opened), "updates": updates, "seeds": list(seeds_of(seeds))}
    asked["widths"] = list(widths_of(widths))
    found = read_json(path) if path.exists() else {}
    if {key: found.get(key) for key in asked} != asked:
        store = open_store(replay or replay_folder(opened.name), opened)
        size = Size(len(opened.services), *widths_of(widths))
        found = asked | positive_control(store, seeds_of(seeds), updates, size, device)
        write_text(path, to_json(found))
    text = control_table(found)
    print(text)
    if docs is not None:
        command = f"python -m reproduce.control --city {city} --updates {updates}"
        insert(docs, f"control of {opened.name}", f"Made by `{command}`.\n\n{text}")
    print(path)
    if min(found["centred"]["correlations"]) < LEARNED:
        raise typer.Exit(1)


if __name__ == "__main__":
    run("reproduce.control", main)
