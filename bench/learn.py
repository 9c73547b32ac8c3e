"""Speed of a learner: updates per second in both phases, and the bound that arithmetic sets.

A replay must load and build minibatches of states at least as fast; it is measured beside.
"""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bench.meter import (
    DocsOption,
    Figures,
    RepeatsOption,
    figure_table,
    least_s,
    print_figures,
    write_figures,
)
from evenline.city.model import City
from evenline.city.tables import open_city
from evenline.cli.options import CityOption, ReplayOption
from evenline.control.state import MAX_SLOTS, PREFIX
from evenline.experiments.train import replay_folder
from evenline.learn import lanes as ln
from evenline.learn.data import Event, resident
from evenline.learn.lineage import Lane
from evenline.learn.plan import Size
from evenline.learn.run import chosen_device
from evenline.learn.schedule import FINAL, LEARNERS, Budget
from evenline.learn.updates import CRITIC_BATCH, Learned
from evenline.replay.store import Store, open_store
from evenline.support.errors import InputError
from evenline.support.extras import extra
from reproduce.door import run

with extra("train"):
    import jax
    import jax.numpy as jnp

UPDATES = 40  # per call on a CPU; an accelerator makes 25 times as many
SEEDS = (6201, 6202, 6203, 6204, 6205)


def measure(city: City, folder: Path, device: str, repeats: int) -> Figures:
    """Updates per second in both phases, and how near the first is to its bound."""
    where, began = chosen_device(device), time.perf_counter()
    store = open_store(folder, city)
    load_s = time.perf_counter() - began
    packed = where.platform == "cpu"
    seeds, updates = (SEEDS[:1], UPDATES) if packed else (SEEDS, 25 * UPDATES)
    with jax.default_device(where):
        replay, numbers = resident(store), jnp.asarray(np.array(seeds, np.uint32))
        learned = ln.begin_lanes(seeds, Size(len(city.services)))

        def offline() -> None:
            nonlocal learned
            learned, _ = ln.iql_steps(learned, replay, numbers, np.int32(0), updates, packed)
            jax.block_until_ready(learned)  # type: ignore[no-untyped-call]

        offline()  # compiles
        iql = updates * len(seeds) / least_s(offline, repeats)
        online = max(_online_rate(learned, replay, seeds, packed, updates) for _ in range(2))
    return {
        "city": city.name,
        "device": where.device_kind,
        "learners": len(seeds),
        "updates_per_s": {"iql": round(iql, 1), "continuation": round(online, 1)},
        "floor": _floor(city, store, packed, iql),
        "replay": {"load_s": round(load_s, 2), "states_per_s": _states_per_s(store)},
    }


def _floor(city: City, store: Store, packed: bool, rate: float) -> dict[str, float]:
    """Count the operations and bytes that an IQL update needs, and how close we come to that bound.

    Forward passes: actor, critics, target critics, V at both states; a backward pass costs two
    more for the three that learn. Parameters, their gradients and Adam's two moments are read and
    written once. The ceiling is a large matrix product, measured in the same run.
    """
    size = Size(len(city.services))
    active = float(store.columns.batch_size.mean()) if packed else MAX_SLOTS
    slot = size.layers()["slot0"][0] * size.slot + size.slot**2
    body = (PREFIX + 5 * size.slot) * size.fused + size.fused**2
    tail = size.fused * size.hidden + size.hidden**2
    encoder, parameters = active * slot + body, slot + body
    one = 2.0 * CRITIC_BATCH * np.array([encoder + tail, encoder + 2 * tail, encoder + 2 * tail,
                                         encoder + tail, encoder + tail])  # fmt: skip
    operations = float(one @ [3, 3, 1, 3, 1])  # actor, critics, target, V here, V after
    weights = 3 * parameters + 4 * tail
    moved = 4.0 * (7 * weights + 3 * (parameters + 2 * tail))
    peak = _gemm_rate()
    floor_s = operations / (peak * 1e9)
    return {
        "gflop_per_update": round(operations / 1e9, 3),
        "mib_per_update": round(moved / 2**20, 1),
        "gemm_gflop_per_s": round(peak, 1),
        "updates_per_s_at_most": round(1 / floor_s, 1),
        "share_reached": round(rate * floor_s, 3),
    }


def _gemm_rate(width: int = 2_048) -> float:
    """The speed of a large matrix product, 10^9 operations a second."""
    x = jnp.ones((width, width), jnp.float32) * 1.1
    product = jax.jit(lambda a: a @ a)
    product(x).block_until_ready()
    return 2.0 * width**3 / least_s(lambda: product(x).block_until_ready(), 5) / 1e9


def _online_rate(
    learned: Learned, replay: Any, seeds: tuple[int, ...], packed: bool, updates: int
) -> float:
    """One call per update, as in the continuation, without the simulator."""
    lanes = [Lane(LEARNERS[FINAL], seed) for seed in seeds]
    rates, numbers = ln.rates_at(lanes, 12_500), jnp.asarray(np.array(seeds, np.uint32))
    days = ln.new_lane_days(len(seeds), Budget(events=updates + 2, warmup_events=1))
    learned = jax.tree.map(jnp.copy, learned)
    state = np.zeros((len(seeds), days.state.shape[-1]), np.float32)
    state[:, 1] = 1 / MAX_SLOTS
    ones = np.ones(len(seeds), np.float32)
    began = 0.0
    for n in range(updates + 1):
        if n == 1:  # the first compiles
            jax.block_until_ready(learned)  # type: ignore[no-untyped-call]
            began = time.perf_counter()
        event: Any = (-ones, ones, ones < 0, state)
        days, _ = ln.observe(learned, days, numbers, np.int32(n), Event(*event), packed)
        learned, _ = ln.learn(learned, days, replay, numbers, np.int32(n), rates, packed)
    jax.block_until_ready(learned)  # type: ignore[no-untyped-call]
    return updates * len(seeds) / (time.perf_counter() - began)


def _states_per_s(store: Store) -> int:
    """Canonical states per second, in random minibatches."""
    rng = np.random.Generator(np.random.PCG64(1))
    batches = rng.integers(0, len(store), (400, CRITIC_BATCH))
    out = store.canonical(batches[0])
    return round(batches.size / least_s(lambda: [store.canonical(b, out) for b in batches], 5))


def main(
    city: CityOption = "city",
    replay: ReplayOption = None,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    repeats: RepeatsOption = 3,
    docs: DocsOption = None,
) -> None:
    """Measure updates per second of the learner in both phases; prints JSON."""
    opened = open_city(city)
    folder = replay or replay_folder(opened.name)
    if not (folder / "manifest.json").exists():
        raise InputError(f"{folder}: no replay; collect one with: evenline replay collect")
    figures = measure(opened, folder, device, repeats)
    print_figures(figures)
    if docs is not None:
        command = f"python -m bench.learn --city {city} --device {device}"
        write_figures(docs, f"bench learn {opened.name} {device}", command, figure_table(figures))


if __name__ == "__main__":
    run("bench.learn", main)
