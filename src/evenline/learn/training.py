"""A whole training: both phases of all learners, then lessons, then an evaluation of every
actor.
"""

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.cells import PURPOSES
from evenline.city.model import City
from evenline.learn.evaluate import evaluate
from evenline.learn.lineage import lanes_of
from evenline.learn.network import Params
from evenline.learn.online import continued, rehearse
from evenline.learn.plan import CURVE_BLOCKS, Plan, rounded_actor, write_actor
from evenline.learn.run import Run, chosen_device
from evenline.learn.schedule import FINAL, Budget, scaled
from evenline.policies.actor import actor_of
from evenline.replay.store import Store
from evenline.rules.policy import BEHAVIOURS
from evenline.support.extras import extra
from evenline.support.files import to_json, write_text
from evenline.support.tensors import read_tensors
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld

with extra("train"):
    import jax

_ROUNDING_STATES = 4_096


def train(
    folder: Path,
    plan: Plan,
    city: City,
    calibration: Calibration,
    store: Store | None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train all lanes of a plan, or continue; return a summary with the time of each phase.

    A plan whose learners only take lessons needs no replay.
    """
    chosen = chosen_device(device)
    with jax.default_device(chosen):
        run = Run(folder, plan, city, calibration, store, chosen)
        seconds: dict[str, float] = {}
        summary: dict[str, Any] = {"seconds": seconds, "mean_return": run.mean_return}
        summary["made_with"] = _made_with(chosen)
        if any(not learner.lessons for learner in plan.learners):
            _papers_phases(run, seconds)
        began = time.monotonic()
        run.taught()
        seconds["lessons"] = time.monotonic() - began
    _write_events(folder / "events", run.rows)
    seconds["all"] = sum(seconds.values())
    write_text(folder / "summary.json", to_json(summary))
    return summary


def _made_with(device: jax.Device) -> dict[str, Any]:
    """What the bits of a training depend on, beside its settings and our source."""
    versions = {name: version(name) for name in ("jax", "jaxlib", "optax", "numpy")}
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = {line.partition(": ")[2] for line in lines if line.startswith("model name")}
    cpu = ", ".join(sorted(models)) or platform.processor()
    return versions | {"device": device.device_kind, "cpu": cpu, "threads": os.cpu_count()}


def _papers_phases(run: Run, seconds: dict[str, float]) -> None:
    """IQL, then the continuation of the learners that have one; write their actors."""
    began = time.monotonic()
    with _compiling_beside(run) as compiled:
        offline = run.offline()
        jax.block_until_ready(offline)  # type: ignore[no-untyped-call]
        seconds["iql"] = time.monotonic() - began
        compiled()
        seconds["compiling"] = time.monotonic() - began - seconds["iql"]
    final: dict[str, Params] = {}
    for group, learned in zip(run.groups(run.plan.seeds), offline, strict=True):
        host = jax.device_get(learned.actor)
        for j, seed in enumerate(group):
            final[f"iql-{seed}"] = {name: value[j] for name, value in host.items()}
            write_actor(run.folder / "actors" / f"iql-{seed}.safetensors", final[f"iql-{seed}"])
    if lanes_of(run.plan):
        began = time.monotonic()
        online = continued(run, offline)
        seconds["continuation"] = time.monotonic() - began
        online.export()
        final |= online.actors()
    run.write_metrics()
    effects = _rounding_effects(final, run.store, len(run.city.services))
    write_text(run.folder / "rounding.json", to_json(effects))


def _rounding_effects(
    actors: Mapping[str, Params], store: Store, services: int
) -> dict[str, dict[str, float]]:
    """What rounding changes about each actor's proposals, in states spread over the replay."""
    rows = np.unique(np.linspace(0, len(store) - 1, _ROUNDING_STATES).astype(np.intp))
    states = store.canonical(rows)
    effects = {}
    for name, actor in actors.items():
        exact_s, rounded_s = (
            actor_of(tensors, services).proposals_s(states)
            for tensors in ({n: np.asarray(t) for n, t in actor.items()}, rounded_actor(actor))
        )
        change_s = np.abs(rounded_s - exact_s)
        effects[name] = {
            "gates_changed": float(np.mean((rounded_s > 0) != (exact_s > 0))),
            "mean_change_s": float(change_s.mean()),
            "p99_change_s": float(np.quantile(change_s, 0.99)),
        }
    return effects


@contextmanager
def _compiling_beside(run: Run) -> Iterator[Callable[[], None]]:
    """Rehearse the continuation in a thread while the block runs; yields a function that waits for
    it.

    This only saves time; an error here will occur again, and be reported, when the program is used.
    """
    if run.packed or not lanes_of(run.plan) or run.offline_updates() == run.plan.budget.iql_updates:
        yield lambda: None
        return
    stop = threading.Event()

    def rehearsed() -> None:
        with jax.default_device(run.device):  # a thread has its own default
            rehearse(run, stop)

    with ThreadPoolExecutor(1) as beside:
        ahead = beside.submit(rehearsed)

        def ready() -> None:
            wait([ahead])

        try:
            yield ready
        finally:
            stop.set()  # an interrupt waits for one program at most


def _write_events(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the metrics for TensorBoard, if its writer is installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return
    for lane in sorted({row["lane"] for row in rows}):
        with SummaryWriter(str(folder / lane)) as writer:
            for row in rows:
                for term, value in row.items():
                    if row["lane"] == lane and isinstance(value, float):
                        writer.add_scalar(f"{row['phase']}/{term}", value, row["update"])


def learning_curve(
    folder: Path,
    city: City,
    calibration: Calibration,
    packed: bool,
    blocks: int = CURVE_BLOCKS,
    chain: str = "raw",
) -> dict[str, Any]:
    """Generalized time and completion of actors behind a chain on fresh days, next to zero hold.

    Measures all final actors, and the snapshots of the final profile (or of the only learner).
    """
    cells = PURPOSES["development"].cells(blocks)
    paths = sorted((folder / "actors").glob("*.safetensors"))
    named = {path.stem.split("-")[0] for path in paths if "-at-" in path.stem}
    shown = FINAL if FINAL in named else min(named, default="")
    paths = [p for p in paths if "-at-" not in p.stem or p.stem.startswith(f"{shown}-")]
    actors: list[Any] = [read_tensors(path) for path in paths]
    outcomes: list[Any] = [None] * len(actors)
    for group in _of_one_size(actors):
        found_here = evaluate(city, calibration, [actors[i] for i in group], cells, packed, chain)
        for i, rows in zip(group, found_here, strict=True):
            outcomes[i] = rows
    world = FastWorld(city, calibration)
    zero = [world.run_day(cell, BEHAVIOURS["zero"]) for cell in cells]
    by_name = {path.stem: rows for path, rows in zip(paths, outcomes, strict=True)}
    curve = {
        name: {
            "generalized_s": float(np.mean([o.generalized_s for o in rows])),
            "completion": float(np.mean([o.completion for o in rows])),
            "mean_hold_s": float(np.mean([o.mean_hold_s for o in rows])),
        }
        for name, rows in {"zero": zero, **by_name}.items()
    }
    write_text(folder / "curve.json", to_json(curve))
    return curve


def _of_one_size(actors: list[Any]) -> list[list[int]]:
    """Group the indices of actors whose tensors have the same shapes; each group runs as one
    fleet.
    """
    groups: dict[Any, list[int]] = {}
    for i, actor in enumerate(actors):
        sizes = tuple(sorted((name, tensor.shape) for name, tensor in actor.items()))
        groups.setdefault(sizes, []).append(i)
    return list(groups.values())


def shortened(plan: Plan, budget: Budget) -> Plan:
    """The same plan with another budget; schedules keep their proportions."""
    learners = tuple(scaled(learner, budget) for learner in plan.learners)
    return replace(plan, budget=budget, learners=learners)
