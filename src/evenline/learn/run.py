"""A training run: a folder that contains everything and can be continued.

    config.json      the settings, with the hashes of the replay and of the city
    metrics.parquet  a row every hundred updates of every lane
    iql, branch, end the whole state after and during each phase, sealed: enough to continue to
                     the same bits on the same device; learners of one seed part at the branch
    actors/          actors at fixed events, and at the end: <learner>-<seed>.safetensors;
                     rounded to bfloat16
    rounding.json    what the rounding changes about holds
    events/          the same for TensorBoard
    curve.json       generalized time of the actors on fresh days of the fast world

Phases: IQL for each seed, then simulated days. A kill loses only the work since the last
checkpoint.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.model import City
from evenline.city.tables import digest
from evenline.learn import lanes as ln
from evenline.learn.centre import Baseline, baseline_of, centred_cost
from evenline.learn.checkpoint import load_notes, load_tree, save_tree
from evenline.learn.data import Replay, mean_return, resident
from evenline.learn.lessons import teach
from evenline.learn.network import init_actor
from evenline.learn.plan import IQL_CHUNK, Config, Plan, check_plan, write_actor
from evenline.learn.updates import Learned
from evenline.replay.sealed import Manifest
from evenline.replay.store import Store
from evenline.support.errors import InputError, choice
from evenline.support.extras import extra
from evenline.support.files import to_json, write_table, write_text
from evenline.support.progress import progress_bar
from evenline.support.records import read_record
from evenline.worlds.calibration import Calibration, calibration_digest

with extra("train"):
    import jax
    import jax.numpy as jnp

_OFFLINE = "iql.safetensors"
# Small products gain nothing from Triton's kernels, and the search for the best takes minutes.
# Without the second flag, the choice of kernels, and with it the last bits, depends on chance.
GPU_FLAGS = "--xla_gpu_enable_triton_gemm=false --xla_gpu_deterministic_ops=true"


def _replay_digest(manifest: Manifest) -> str:
    """A hash that identifies the episodes of a replay, independent of the rest of its manifest."""
    return hashlib.sha256(to_json(manifest.files).encode()).hexdigest()


def chosen_device(name: str) -> jax.Device:
    """A device by platform name, or an error that lists the available ones."""
    if name in ("gpu", "cuda"):  # JAX reads it at first use; the last value counts
        os.environ["XLA_FLAGS"] = f"{GPU_FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()
    try:
        return jax.devices("cuda" if name == "gpu" else name)[0]
    except RuntimeError:
        there = sorted({device.platform for device in jax.devices()})
        raise InputError(f"device {name!r} is not available; choose {choice(there)}") from None


class Run:
    """A running training. It is the only object here with state, and checkpoints contain all of
    it.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        city: City,
        calibration: Calibration,
        store: Store | None,
        device: jax.Device,
    ) -> None:
        check_plan(plan)
        self.folder, self.plan, self.city, self.calibration = folder, plan, city, calibration
        self._store = store
        self.packed = device.platform == "cpu"
        self.device = device
        config = self._config()
        if (folder / "config.json").exists():
            before = read_record(folder / "config.json", Config)
            for name in Config.__struct_fields__:
                if getattr(before, name) != getattr(config, name):
                    raise InputError(
                        f"{folder / 'config.json'}: {name} has changed; continue with the "
                        "same"
                        " settings, or choose another folder"
                    )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "config.json", config.as_json())
        self.size = plan.size(city)
        self.baseline: Baseline | None = None
        self.mean_return: float | None = None
        if store is not None:
            self.baseline = baseline_of(store) if plan.centred else None
            cost = None if self.baseline is None else centred_cost(store, self.baseline)
            self.replay: Replay = resident(store, cost)
            self.mean_return = mean_return(store, cost)
        self.rows: list[dict[str, Any]] = []
        self._saved = time.monotonic()

    @property
    def store(self) -> Store:
        """The replay of the learners that use one."""
        assert self._store is not None, "a learner of the paper has a replay"
        return self._store

    def _config(self) -> Config:
        return Config(
            city=digest(self.city),
            replay=None if self._store is None else _replay_digest(self._store.manifest),
            calibration=calibration_digest(self.calibration),
            device=self.device.platform,
            plan=replace(self.plan, checkpoint_s=Plan.checkpoint_s),
        )

    # -- phase one --------------------------------------------------------------------------------

    def offline_updates(self) -> int:
        """The number of IQL updates done."""
        path = self.folder / _OFFLINE
        return int(load_notes(path)["updates"]) if path.exists() else 0

    def offline(self) -> list[Learned]:
        """Run IQL for every seed; return one stacked tree per group of seeds."""
        groups_of_seeds, budget = self.groups(self.plan.seeds), self.plan.budget
        groups = [ln.begin_lanes(group, self.size) for group in groups_of_seeds]
        path, done = self.folder / _OFFLINE, self.offline_updates()
        if done:
            groups = load_tree(path, groups)
            self.load_metrics()
        with progress_bar() as bar:
            task = bar.add_task("IQL updates", total=budget.iql_updates, completed=done)
            while done < budget.iql_updates:
                count = min(IQL_CHUNK, budget.iql_updates - done)
                for i, group in enumerate(groups_of_seeds):
                    groups[i], metrics = ln.iql_steps(
                        groups[i],
                        self.replay,
                        seed_array(group),
                        np.int32(done),
                        count,
                        self.packed,
                    )
                    names = [f"iql-{seed}" for seed in group]
                    self.note("iql", names, done, jax.device_get(metrics), groups)
                done += count
                bar.update(task, completed=done)
                if done == budget.iql_updates or self.due():
                    self.save(path, groups, {"updates": done})
        return groups

    def groups(self, things: Sequence[Any]) -> list[list[Any]]:
        """Groups of lanes that run together: all lanes, or on a CPU one at a time."""
        return [[thing] for thing in things] if self.packed else [list(things)]

    # -- phase two --------------------------------------------------------------------------------

    def taught(self) -> None:
        """Train the learners that take lessons, one seed after another; keep existing actors."""
        for learner in self.plan.learners:
            for seed in self.plan.seeds if learner.lessons else ():
                name = f"{learner.name}-{seed}"
                path = self.folder / "actors" / f"{name}.safetensors"
                if path.exists():
                    continue
                self.load_metrics()
                actor = teach(
                    init_actor(jax.random.key(seed), self.size), self.city, self.calibration,
                    [training_cell(seed, day) for day in range(learner.lessons)], seed,
                    updates=self.plan.budget.lesson_updates, packed=self.packed,
                    chain=self.plan.chain,
                    note=partial(self._note_lessons, name),
                )  # fmt: skip
                self.write_metrics()
                write_actor(path, actor)

    def _note_lessons(self, name: str, first: int, losses: Any) -> None:
        self.note("lessons", [name], first, {"lesson_loss": np.asarray(losses)[:, None]}, {})

    # -- what is kept -----------------------------------------------------------------------------

    def due(self) -> bool:
        return time.monotonic() - self._saved > self.plan.checkpoint_s

    def save(self, path: Path, tree: Any, notes: dict[str, Any]) -> None:
        self.write_metrics()
        save_tree(path, tree, notes)
        self._saved = time.monotonic()

    def write_metrics(self) -> None:
        if self.rows:
            names = sorted({name for row in self.rows for name in row})
            columns = {name: [row.get(name) for row in self.rows] for name in names}
            write_table(self.folder / "metrics.parquet", pa.table(columns))

    def load_metrics(self) -> None:
        path = self.folder / "metrics.parquet"
        if path.exists() and not self.rows:
            self.rows = pq.read_table(path).to_pylist()

    def note(
        self, phase: str, names: Sequence[str], first: int, metrics: dict[str, Any], tree: Any
    ) -> None:
        """Store the means of a range of updates, (update, lane); stop at a value that is not
        finite.
        """
        self.rows = [
            row
            for row in self.rows
            if not (row["phase"] == phase and row["lane"] in names and row["update"] > first)
        ]
        bad = [
            (int(step), int(lane), term)
            for term, values in metrics.items()
            for step, lane in np.argwhere(~np.isfinite(values))[:1]
        ]
        if bad:
            step, lane, term = min(bad)
            path = self.folder / "stopped.safetensors"
            save_tree(path, tree, {"update": first + step + 1, "term": term})
            raise InputError(
                f"{phase} update {first + step + 1} of {names[lane]}: {term} is"
                f" {metrics[term][step, lane]}; the state is in {path}"
            )
        count = len(next(iter(metrics.values())))
        for i, name in enumerate(names):
            means = {term: float(np.mean(v[:, i])) for term, v in metrics.items()}
            self.rows.append({"phase": phase, "lane": name, "update": first + count, **means})


def seed_array(seeds: Sequence[int]) -> jax.Array:
    """Seeds in the form of the compiled programs."""
    return jnp.asarray(np.asarray(seeds, np.uint32))


@cache
def training_cell(seed: int, episode: int) -> Cell:
    """The cell of a seed's n-th simulated day."""
    rng = np.random.Generator(np.random.PCG64([seed, episode]))
    purpose = PURPOSES["training"]
    block = int(rng.integers(purpose.blocks))
    level = DEMAND_LEVELS[int(rng.integers(len(DEMAND_LEVELS)))]
    return Cell(purpose.sumo_seed + block, purpose.demand_seed + block, level)
