"""Speed of a learner: our updates per second compared with plain PyTorch.

Both use the same machine, architecture, batch and replay, in turn. The best of the repeats counts
on both sides, because other work can only slow a run down. PyTorch runs eagerly over all sixteen
slots, with states ready in memory; ours builds its states from the compact replay.
"""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenline.city.model import City
from evenline.control.state import MAX_SLOTS, PREFIX
from evenline.learn import lanes as ln
from evenline.learn.data import Event, resident
from evenline.learn.network import Size, init_actor
from evenline.learn.run import chosen_device
from evenline.learn.schedule import FINAL, LEARNERS, Budget
from evenline.learn.updates import CRITIC_BATCH, Learned
from evenline.policies.actor import actor_of
from evenline.replay.store import Store
from evenline.support.errors import InputError

UPDATES = 40  # per call on a CPU; an accelerator makes 25 times as many
SEEDS = (6201, 6202, 6203, 6204, 6205)


def bench_learn(city: City, store: Store, device: str, repeats: int) -> dict[str, Any]:
    """Updates per second of one learner in both phases, compared with PyTorch; latency of an
    actor.
    """
    where = chosen_device(device)
    packed = where.platform == "cpu"
    seeds = SEEDS[:1] if packed else SEEDS
    updates = UPDATES if packed else 25 * UPDATES
    with jax.default_device(where):
        replay = resident(store)
        learned = ln.begin_lanes(seeds, Size(len(city.services)))
        iql = torch = 0.0
        eager = _torch_learner(city, store, device)
        for repeat in range(repeats + 1):  # the first compiles
            rate, learned = _iql_rate(learned, replay, seeds, packed, updates)
            iql = max(iql, rate if repeat else 0.0)
            if eager is not None:
                torch = max(torch, _rate(eager, updates // 4))
        online = max(_online_rate(learned, replay, seeds, packed, updates) for _ in range(2))
    return {
        "city": city.name,
        "device": where.device_kind,
        "learners": len(seeds),
        "updates_per_s": {"iql": round(iql, 1), "continuation": round(online, 1)},
        "torch_updates_per_s": round(torch, 1) if eager is not None else None,
        "ratio": round(iql / torch, 2) if eager is not None else None,
        "floor": _floor(city, store, packed, iql),
        **_latency(city, store),
    }


def _floor(city: City, store: Store, packed: bool, rate: float) -> dict[str, float]:
    """Count the operations and bytes that an IQL update needs, and how close we come to that bound.

    Forward passes: actor, critics, target critics, V at both states; a backward pass costs two
    more for the three that learn. Parameters, their gradients and Adam's two moments are read and
    written once. The ceiling is a large matrix product, measured in the same run.
    """
    size = Size(len(city.services))
    active = float(store.columns.batch_size.mean()) if packed else MAX_SLOTS
    slot = size.slot_input * size.slot + size.slot**2
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
    x = jnp.ones((width, width), jnp.float32) * 1.1
    product = jax.jit(lambda a: a @ a)
    product(x).block_until_ready()
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        product(x).block_until_ready()
        best = max(best, 2.0 * width**3 / (time.perf_counter() - began) / 1e9)
    return best


def _rate(step: Any, count: int) -> float:
    began = time.perf_counter()
    step(count)
    return count / (time.perf_counter() - began)


def _iql_rate(
    learned: Learned, replay: Any, seeds: tuple[int, ...], packed: bool, updates: int
) -> tuple[float, Learned]:
    numbers = jnp.asarray(np.array(seeds, np.uint32))
    began = time.perf_counter()
    learned, _ = ln.iql_steps(learned, replay, numbers, np.int32(0), updates, packed)
    jax.block_until_ready(learned)  # type: ignore[no-untyped-call]
    return updates * len(seeds) / (time.perf_counter() - began), learned


def _online_rate(
    learned: Learned, replay: Any, seeds: tuple[int, ...], packed: bool, updates: int
) -> float:
    """One call per update, as in the continuation, without the simulator."""
    lanes = [ln.Lane(LEARNERS[FINAL], seed) for seed in seeds]
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


def _latency(city: City, store: Store) -> dict[str, float]:
    """Time of one decision of a deployed policy, over real states."""
    params = jax.device_get(init_actor(jax.random.key(0), Size(len(city.services))))
    tensors = {name: np.asarray(value) for name, value in params.items()}
    actor = actor_of(tensors, len(city.services))
    rows = np.random.Generator(np.random.PCG64(1)).integers(0, len(store), 2_000)
    seconds = []
    for state in store.canonical(rows):
        began = time.perf_counter()
        actor.proposals_s(state[None])
        seconds.append(time.perf_counter() - began)
    low, high = np.percentile(seconds[100:], [50, 99])
    return {
        "actor_p50_ms": round(1e3 * float(low), 3),
        "actor_p99_ms": round(1e3 * float(high), 3),
    }


def _torch_learner(city: City, store: Store, device: str) -> Any:
    """A function that makes eager IQL updates, or None if PyTorch is not installed."""
    try:
        from evenline.bench.torch_reference import eager_updates
    except ImportError:
        return None
    return eager_updates(len(city.services), store, "cuda" if device == "gpu" else "cpu")


def open_for_bench(city: City, folder: Path) -> Store:
    """Open the replay, or raise an error that says how to get one."""
    from evenline.replay.store import open_store

    if not (folder / "manifest.json").exists():
        raise InputError(f"{folder}: no replay; collect one with: evenline collect")
    return open_store(folder, city)


def write_figures(document: Path, found: dict[str, Any]) -> None:
    """Write the figures between their marks in a document."""
    from evenline.figures.document import insert

    flat: dict[str, Any] = {}
    for name, value in found.items():
        flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {
            name: value
        }  # fmt: skip
    where = "gpu" if found["device"] != "cpu" else "cpu"
    command = f"evenline bench learn --city {found['city']} --device {where} --docs {document.name}"
    rows = [f"| {name} | {value} |" for name, value in flat.items()]
    text = [f"Made by `{command}`.", "", "| Figure | Value |", "| --- | ---: |", *rows]
    insert(document, f"bench learn {found['city']} {where}", "\n".join(text))
