"""A training run: a folder that holds everything, and goes on where it was stopped.

    config.json      what was asked for, with the hashes of the replay and of the city
    metrics.parquet  a row every hundred updates of every lane
    iql, branch, end the whole state after each phase, sealed, and while one is under way: all
                     that is needed to go on, to the same bits on the same device; learners of
                     one seed part at the branch
    actors/          actors at fixed events, and at the end: <learner>-<seed>.safetensors
    events/          the same for TensorBoard
    ratio.json       the domain-ratio diagnostic
    curve.json       generalized time of the actors on fresh days of the fast world

Phases: IQL for each seed, then simulated days. A kill costs what came after the last checkpoint.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save

from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.model import City
from evenline.city.tables import digest
from evenline.errors import InputError
from evenline.files import read_json, to_json, write_bytes, write_table, write_text
from evenline.learn import lanes as ln
from evenline.learn import ratio as rt
from evenline.learn.checkpoint import load_notes, load_tree, save_tree
from evenline.learn.counterfactual import teach
from evenline.learn.data import (
    REWARD_SCALE,
    Days,
    Event,
    Replay,
    Transitions,
    days_batch,
    replay_batch,
    resident,
)
from evenline.learn.evaluate import evaluate
from evenline.learn.network import Params, Size
from evenline.learn.schedule import FINAL, Budget, Learner, check_schedule, scaled
from evenline.learn.updates import Learned
from evenline.policies.rules import named_rule
from evenline.progress import progress_bar
from evenline.replay.store import Store
from evenline.worlds.calibration import Calibration
from evenline.worlds.fast.world import FastWorld, Fleet

IQL_CHUNK = 100
METRIC_EVERY = 100
SNAPSHOTS = 5  # actors kept during the continuation, evenly spaced, the end included
HELD_OUT_BLOCKS = 2  # of the replay, for the diagnostic
HELD_OUT_DAYS = 2  # simulated days of each lane, for the diagnostic
ASSESSED = 4_096  # transitions of each class
CURVE_BLOCKS = 3


@dataclass(frozen=True)
class Plan:
    """What to train."""

    learners: tuple[Learner, ...]
    seeds: tuple[int, ...]
    budget: Budget = field(default_factory=Budget)
    slot: int = 128
    fused: int = 256
    hidden: int = 256
    diagnostic: bool = True
    checkpoint_s: float = 120.0

    def size(self, city: City) -> Size:
        """The network's widths in a city."""
        return Size(len(city.services), self.slot, self.fused, self.hidden)


def replay_digest(manifest: dict[str, Any]) -> str:
    """What identifies the episodes of a replay, whatever else its manifest says of them."""
    return hashlib.sha256(to_json(manifest["files"]).encode()).hexdigest()


def chosen_device(name: str) -> jax.Device:
    """A device by platform name, or one line that says which there are."""
    try:
        return jax.devices("cuda" if name == "gpu" else name)[0]
    except RuntimeError:
        there = sorted({device.platform for device in jax.devices()})
        raise InputError(f"device {name!r} is not there: choose from {', '.join(there)}") from None


def check_plan(plan: Plan) -> None:
    """Refuse what cannot be trained, before any work."""
    if not plan.seeds or len(set(plan.seeds)) != len(plan.seeds):
        raise InputError(f"seeds {list(plan.seeds)}: each must be named once, and at least one")
    for learner in plan.learners:
        check_schedule(learner, plan.budget)


class Run:
    """One training run under way. The only thing here with state; all of it is in checkpoints."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        city: City,
        calibration: Calibration,
        store: Store,
        device: jax.Device,
    ) -> None:
        check_plan(plan)
        self.folder, self.plan, self.city, self.calibration = folder, plan, city, calibration
        self.store = store
        self.packed = device.platform == "cpu"
        self.device = device
        config = self._config()
        if (folder / "config.json").exists():
            before = read_json(folder / "config.json")
            for name, value in config.items():
                if before.get(name) != value:
                    raise InputError(
                        f"{folder / 'config.json'}: {name} is another; go on with the same"
                        " settings, or name another folder"
                    )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "config.json", to_json(config))
        self.size = plan.size(city)
        self.replay: Replay = resident(store)
        self.rows: list[dict[str, Any]] = []
        self._saved = time.monotonic()

    def _config(self) -> dict[str, Any]:
        plan = asdict(self.plan)
        plan.pop("checkpoint_s")
        return json.loads(  # type: ignore[no-any-return]
            json.dumps(
                {
                    "city": digest(self.city),
                    "replay": replay_digest(self.store.manifest),
                    "calibration": self.calibration.city,
                    "device": self.device.platform,
                    "plan": plan,
                }
            )
        )

    # -- phase one --------------------------------------------------------------------------------

    def offline(self) -> list[Learned]:
        """IQL for every seed; one stacked tree a group of seeds."""
        groups_of_seeds, budget = self._groups(self.plan.seeds), self.plan.budget
        groups = [ln.begin_lanes(group, self.size) for group in groups_of_seeds]
        path = self.folder / "iql.safetensors"
        done = 0
        if path.exists():
            groups, done = load_tree(path, groups), int(load_notes(path)["updates"])
            self._load_metrics()
        with progress_bar() as bar:
            task = bar.add_task("IQL updates", total=budget.iql_updates, completed=done)
            while done < budget.iql_updates:
                count = min(IQL_CHUNK, budget.iql_updates - done)
                for i, group in enumerate(groups_of_seeds):
                    groups[i], metrics = ln.iql_steps(
                        groups[i], self.replay, _array(group), jnp.int32(done), count, self.packed
                    )
                    names = [f"iql-{seed}" for seed in group]
                    self._note("iql", names, done, jax.device_get(metrics), groups)
                done += count
                bar.update(task, completed=done)
                if done == budget.iql_updates or self._due():
                    self._save(path, groups, {"updates": done})
        return groups

    def _groups(self, things: Sequence[Any]) -> list[list[Any]]:
        """Lanes that go through the program together: all, or on a CPU one at a time."""
        return [[thing] for thing in things] if self.packed else [list(things)]

    # -- phase two --------------------------------------------------------------------------------

    def lanes(self) -> list[ln.Lane]:
        """The lanes that go on in the simulator."""
        return [
            ln.Lane(learner, seed)
            for learner in self.plan.learners
            if learner.continues
            for seed in self.plan.seeds
        ]

    def online(self, offline: list[Learned]) -> "Online":
        """Simulated days: together up to the branching event, then every learner on its own."""
        lanes, budget = self.lanes(), self.plan.budget
        branch = min(max((lane.learner.anchor for lane in lanes), default=0), budget.events)
        trunk_of = ln.trunks(lanes, branch)
        trunk = sorted(set(trunk_of))
        sealed = self.folder / "branch.safetensors"
        state = Online.begin(self, [lanes[i] for i in trunk], offline)
        state.run(branch, sealed)
        state = state.split(lanes, [trunk.index(i) for i in trunk_of])
        state.run(budget.events, self.folder / "end.safetensors")
        return state

    def taught(self, starts: dict[str, Params]) -> None:
        """Learners that study counterfactuals, one seed after another; what is there is kept."""
        for learner in self.plan.learners:
            for seed in self.plan.seeds if learner.lessons else ():
                path = self.folder / "actors" / f"{learner.name}-{seed}.safetensors"
                if not path.exists():
                    cells = [training_cell(seed, day) for day in range(learner.lessons)]
                    actor = teach(starts[f"iql-{seed}"], self.city, self.calibration, cells, seed)
                    write_actor(path, actor)

    # -- what is kept -----------------------------------------------------------------------------

    def _due(self) -> bool:
        return time.monotonic() - self._saved > self.plan.checkpoint_s

    def _save(self, path: Path, tree: Any, notes: dict[str, Any]) -> None:
        self._write_metrics()
        save_tree(path, tree, notes)
        self._saved = time.monotonic()

    def _write_metrics(self) -> None:
        if self.rows:
            names = sorted({name for row in self.rows for name in row})
            columns = {name: [row.get(name) for row in self.rows] for name in names}
            write_table(self.folder / "metrics.parquet", pa.table(columns))

    def _load_metrics(self) -> None:
        path = self.folder / "metrics.parquet"
        if path.exists() and not self.rows:
            self.rows = pq.read_table(path).to_pylist()

    def _note(
        self, phase: str, names: Sequence[str], first: int, metrics: dict[str, Any], tree: Any
    ) -> None:
        """Keep the means of a stretch of updates, (update, lane); stop at what is not finite."""
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


def _array(seeds: Sequence[int]) -> jax.Array:
    return jnp.asarray(np.asarray(seeds, np.uint32))


class Online:
    """The continuation of some lanes: learned, their days, the fleet, the diagnostic."""

    def __init__(self, run: Run, lanes: list[ln.Lane]) -> None:
        self.run_, self.lanes = run, lanes
        self.fleet = Fleet(run.city, run.calibration, len(lanes))
        self.episodes = np.zeros(len(lanes), np.int64)
        self.event = 0
        self.learned: list[Learned] = []
        self.days: list[Days] = []
        self.ratio: list[rt.Ratio] = []
        self.actions = np.zeros(len(lanes), np.float32)
        blocks = sorted({e.cell.sumo_seed for e in run.store.episodes})[-HELD_OUT_BLOCKS:]
        inside = [e for e in run.store.episodes if e.cell.sumo_seed not in blocks]
        outside = [e for e in run.store.episodes if e.cell.sumo_seed in blocks]
        self.logged = [
            np.concatenate([np.arange(e.first, e.last) for e in part or run.store.episodes])
            for part in (inside, outside)
        ]

    @property
    def groups(self) -> list[list[int]]:
        """Numbers of the lanes of each group."""
        return self.run_._groups(range(len(self.lanes)))

    @classmethod
    def begin(cls, run: Run, lanes: list[ln.Lane], offline: list[Learned]) -> "Online":
        """Every lane where its learner starts: IQL's end, or nothing at all."""
        self = cls(run, lanes)
        seeds, budget = list(run.plan.seeds), run.plan.budget
        trained: Any = jax.tree.map(lambda *x: jnp.concatenate(x), *offline)
        for group in self.groups:
            fresh = ln.begin_lanes([lanes[i].seed for i in group], run.size)
            own = ln.pick(trained, [seeds.index(lanes[i].seed) for i in group])
            from_replay = np.array([lanes[i].learner.replay for i in group])
            self.learned.append(_choose(from_replay, own, fresh))
            self.days.append(ln.new_lane_days(len(group), budget))
            keys = [ln.stream(jnp.uint32(lanes[i].seed), ln.DIAGNOSE) for i in group]
            self.ratio.append(ln.stack([rt.new_ratio(key) for key in keys]))
        for w in range(len(lanes)):
            self._new_day(w)
        for g, group in enumerate(self.groups):
            self.days[g], actions = ln.first_actions(
                self.learned[g],
                self.days[g],
                self._seeds(group),
                jnp.asarray(self.fleet.states[group]),
                run.packed,
            )
            self.actions[group] = actions
        return self

    def split(self, lanes: list[ln.Lane], parents: list[int]) -> "Online":
        """More lanes, each going on from its parent."""
        after = Online(self.run_, lanes)
        learned, days, ratio = (
            jax.tree.map(lambda *x: jnp.concatenate(x), *trees)
            for trees in (self.learned, self.days, self.ratio)
        )
        for group in after.groups:
            own = [parents[i] for i in group]
            after.learned.append(ln.pick(learned, own))
            after.days.append(ln.pick(days, own))
            after.ratio.append(ln.pick(ratio, own))
        after.fleet.restore({n: a[parents] for n, a in self.fleet.snapshot().items()})
        after.episodes, after.actions = self.episodes[parents], self.actions[parents]
        after.event = self.event
        return after

    def tree(self) -> Any:
        """All arrays of the state."""
        return {
            "learned": self.learned, "days": self.days, "ratio": self.ratio,
            "fleet": self.fleet.snapshot(), "episodes": self.episodes, "actions": self.actions,
        }  # fmt: skip

    def notes(self) -> dict[str, Any]:
        """How far it is."""
        return {"event": self.event, "lanes": [lane.name for lane in self.lanes]}

    def _load(self, path: Path) -> None:
        tree = load_tree(path, self.tree())
        self.learned, self.days, self.ratio = tree["learned"], tree["days"], tree["ratio"]
        self.fleet.restore(tree["fleet"])
        self.episodes, self.actions = tree["episodes"], tree["actions"]
        self.event = int(load_notes(path)["event"])
        self.run_._load_metrics()

    def _seeds(self, group: Sequence[int]) -> jax.Array:
        return _array([self.lanes[i].seed for i in group])

    def _new_day(self, w: int) -> None:
        """A fresh training cell, the same for every lane of a seed."""
        seed = self.lanes[w].seed
        self.fleet.begin(w, training_cell(seed, int(self.episodes[w])))
        self.episodes[w] += 1

    # -- events -----------------------------------------------------------------------------------

    def run(self, until: int, end: Path) -> None:
        """Go on to an event and write the state there, from the latest checkpoint there is."""
        under_way = end.with_name(f"{end.stem}-under-way{end.suffix}")
        for path in (under_way, end):
            if path.exists():
                self._load(path)
        kept: list[list[Any]] = [[] for _ in self.groups]
        with progress_bar() as bar:
            task = bar.add_task("simulated events", total=until, completed=self.event)
            while self.event < until:
                self._one_event(kept)
                boundary = self.event % METRIC_EVERY == 0 or self.event == until
                if boundary:
                    self._note(kept)
                    kept = [[] for _ in self.groups]
                    bar.update(task, completed=self.event)
                self._at_marks()
                if boundary and self.event < until and self.run_._due():
                    self.run_._save(under_way, self.tree(), self.notes())
        if not end.exists():
            self.run_._save(end, self.tree(), self.notes())
            end.chmod(0o444)
        under_way.unlink(missing_ok=True)

    def _one_event(self, kept: list[list[Any]]) -> None:
        run, n = self.run_, self.event
        budget = run.plan.budget
        holds = np.clip((self.actions.astype(np.float64) + 1.0) * 30.0, 0.0, 60.0)
        self.fleet.step(holds)
        over, costs = self.fleet.over.copy(), self.fleet.costs.astype(np.float32)
        for w in np.flatnonzero(over):
            self._new_day(int(w))
        states = self.fleet.states
        for g, group in enumerate(self.groups):
            lanes, seeds = [self.lanes[i] for i in group], self._seeds(group)
            arrays: Any = (self.actions[group], costs[group], over[group], states[group])
            event = Event(*arrays)
            # Acting comes before the update, so that the simulator need not wait for it.
            self.days[g], actions = ln.observe(
                self.learned[g], self.days[g], seeds, jnp.int32(n), event, run.packed
            )
            if n + 1 > budget.warmup_events:
                rates = ln.rates_at(lanes, n + 1)
                self.learned[g], metrics = ln.learn(
                    self.learned[g], self.days[g], run.replay, seeds, jnp.int32(n), rates,
                    run.packed,
                )  # fmt: skip
                kept[g].append(metrics)
            self.actions[group] = actions
        self.event += 1

    def _at_marks(self) -> None:
        """What happens at certain events: anchors, the diagnostic, snapshots."""
        run, budget = self.run_, self.run_.plan.budget
        for g, group in enumerate(self.groups):
            mark = np.array([self.lanes[i].learner.anchor == self.event for i in group])
            if mark.any():
                self.learned[g] = ln.set_anchor(self.learned[g], jnp.asarray(mark))
        if run.plan.diagnostic:
            if self.event == max(budget.warmup_events, 1):
                self._diagnose(budget.ratio_pretraining)
            elif self.event > budget.warmup_events and self.event % budget.ratio_every == 0:
                self._diagnose(1)
        if self.event % max(1, budget.events // SNAPSHOTS) == 0:
            self.export(f"-at-{self.event}")

    def _diagnose(self, count: int) -> None:
        for g, group in enumerate(self.groups):
            self.ratio[g] = ln.diagnose(
                self.ratio[g], self.days[g], self.run_.replay, jnp.asarray(self.logged[0]),
                self._seeds(group), jnp.int32(self.event), jnp.int32(self.event), count,
                self.run_.packed,
            )  # fmt: skip

    def _note(self, kept: list[list[Any]]) -> None:
        for metrics, group in zip(kept, self.groups, strict=True):
            if metrics:
                host = jax.device_get(metrics)
                joined = {term: np.stack([row[term] for row in host]) for term in host[0]}
                names = [self.lanes[i].name for i in group]
                self.run_._note("online", names, self.event - len(metrics), joined, self.tree())

    # -- results ----------------------------------------------------------------------------------

    def actors(self) -> dict[str, Params]:
        """Every lane's actor."""
        found: dict[str, Params] = {}
        for learned, group in zip(self.learned, self.groups, strict=True):
            host = jax.device_get(learned.actor)
            for j, i in enumerate(group):
                found[self.lanes[i].name] = {name: value[j] for name, value in host.items()}
        return found

    def export(self, suffix: str = "") -> None:
        """Write every lane's actor."""
        for name, actor in self.actors().items():
            write_actor(self.run_.folder / "actors" / f"{name}{suffix}.safetensors", actor)

    def assess(self) -> dict[str, dict[str, float]]:
        """The diagnostic: on what the classifiers were trained with, and on what was held out."""
        run = self.run_
        rng = np.random.Generator(np.random.PCG64(7))
        logged = [
            replay_batch(run.replay, jnp.asarray(rng.choice(rows, min(ASSESSED, len(rows)))))
            for rows in self.logged
        ]
        held_out = self._held_out_days()
        found = {}
        for g, group in enumerate(self.groups):
            for j, i in enumerate(group):
                ratio, days = (ln.pick(tree, [j]) for tree in (self.ratio[g], self.days[g]))
                ratio, days = (jax.tree.map(lambda x: x[0], tree) for tree in (ratio, days))
                seen = days_batch(days, jnp.asarray(rng.integers(0, self.event, ASSESSED)))
                training = rt.assess(ratio, logged[0], seen)
                validation = rt.assess(ratio, logged[1], held_out[i])
                found[self.lanes[i].name] = {
                    "training_joint_auc": training["joint_auc"],
                    "held_out_joint_auc": validation["joint_auc"],
                    "held_out_effective_share": validation["effective_share"],
                }
        return found

    def _held_out_days(self) -> list[Any]:
        """Transitions of whole simulated days that nothing was trained on, by each lane's actor."""
        run, rng = self.run_, np.random.Generator(np.random.PCG64(8))
        lanes = len(self.lanes)
        fleet = Fleet(run.city, run.calibration, lanes * HELD_OUT_DAYS)
        cells = PURPOSES["development"].cells(HELD_OUT_DAYS, (1.0,))
        states = fleet.reset(cells * lanes).copy()
        parts: list[list[Any]] = []
        step = 0
        while not fleet.over.all():
            live = ~fleet.over
            actions = np.empty(len(fleet), np.float32)
            for g, group in enumerate(self.groups):
                rows = [i * HELD_OUT_DAYS + d for i in group for d in range(HELD_OUT_DAYS)]
                shaped = jnp.asarray(states[rows].reshape(len(group), HELD_OUT_DAYS, -1))
                drawn = ln.sample_actions(
                    self.learned[g].actor, self._seeds(group), jnp.int32(step), shaped, run.packed
                )
                actions[rows] = np.asarray(drawn).reshape(-1)
            fleet.step(np.clip((actions.astype(np.float64) + 1.0) * 30.0, 0.0, 60.0))
            after = fleet.states.copy()
            chosen = rng.random() < min(1.0, 2 * ASSESSED / HELD_OUT_DAYS / run.city.decisions)
            if chosen:
                parts.append([states, actions, fleet.costs.copy(), after, fleet.over.copy(), live])
            states, step = after, step + 1
        return [_transitions(parts, i) for i in range(lanes)]


def _transitions(parts: list[list[Any]], lane: int) -> Any:
    own = slice(lane * HELD_OUT_DAYS, (lane + 1) * HELD_OUT_DAYS)
    live = np.concatenate([part[5][own] for part in parts])
    state, action, cost, after, over = (
        np.concatenate([part[k][own] for part in parts])[live] for k in range(5)
    )
    return Transitions(
        jnp.asarray(state),
        jnp.asarray(action),
        jnp.asarray(-REWARD_SCALE * cost, jnp.float32),
        jnp.asarray(after),
        jnp.asarray(1.0 - over, jnp.float32),
    )


def _choose(first: Any, yes: Any, no: Any) -> Any:
    """Lane by lane, one tree or another."""

    def pick(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(jnp.asarray(first).reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, yes, no)


def training_cell(seed: int, episode: int) -> Cell:
    """The cell of a seed's n-th simulated day."""
    rng = np.random.Generator(np.random.PCG64([seed, episode]))
    purpose = PURPOSES["training"]
    block = int(rng.integers(purpose.blocks))
    level = DEMAND_LEVELS[int(rng.integers(len(DEMAND_LEVELS)))]
    return Cell(purpose.sumo_seed + block, purpose.demand_seed + block, level)


def write_actor(path: Path, actor: Params) -> None:
    """An actor's tensors, as a policy bundle takes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, save({name: np.asarray(value) for name, value in actor.items()}))


def train(
    folder: Path,
    plan: Plan,
    city: City,
    calibration: Calibration,
    store: Store,
    device: str = "cpu",
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train all lanes of a plan, or go on; a summary with the time each phase took."""
    chosen = chosen_device(device)
    with jax.default_device(chosen):
        run = Run(folder, plan, city, calibration, store, chosen)
        began = time.monotonic()
        offline = run.offline()
        jax.block_until_ready(offline)  # type: ignore[no-untyped-call]
        seconds = {"iql": time.monotonic() - began}
        actors: dict[str, Params] = {}
        for group, learned in zip(run._groups(plan.seeds), offline, strict=True):
            host = jax.device_get(learned.actor)
            for j, seed in enumerate(group):
                actors[f"iql-{seed}"] = {name: value[j] for name, value in host.items()}
        for name, actor in actors.items():
            write_actor(folder / "actors" / f"{name}.safetensors", actor)
        summary: dict[str, Any] = {"seconds": seconds}
        if run.lanes():
            began = time.monotonic()
            online = run.online(offline)
            seconds["continuation"] = time.monotonic() - began
            online.export()
            if plan.diagnostic:
                summary["ratio"] = online.assess()
                write_text(folder / "ratio.json", to_json(summary["ratio"]))
        run._write_metrics()
        began = time.monotonic()
        run.taught(actors)
        seconds["lessons"] = time.monotonic() - began
    _write_events(folder / "events", run.rows)
    seconds["all"] = sum(seconds.values())
    write_text(folder / "summary.json", to_json(summary))
    say(f"trained in {seconds['all']:.0f} s")
    return summary


def _write_events(folder: Path, rows: list[dict[str, Any]]) -> None:
    """The metrics once more, for TensorBoard; where its writer is not installed, they stay out."""
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
    folder: Path, city: City, calibration: Calibration, packed: bool, blocks: int = CURVE_BLOCKS
) -> dict[str, Any]:
    """Generalized time and completion of actors on fresh days, beside zero hold.

    All actors at their end, and the final profile's (or the only learner's) on the way there.
    """
    cells = PURPOSES["development"].cells(blocks)
    paths = sorted((folder / "actors").glob("*.safetensors"))
    named = {path.stem.split("-")[0] for path in paths if "-at-" in path.stem}
    shown = FINAL if FINAL in named else min(named, default="")
    paths = [p for p in paths if "-at-" not in p.stem or p.stem.startswith(f"{shown}-")]
    actors: list[Any] = [load_file(path) for path in paths]
    outcomes = evaluate(city, calibration, actors, cells, packed)
    world = FastWorld(city, calibration)
    zero = [world.run_rule(cell, named_rule("zero")) for cell in cells]
    by_name = {path.stem: rows for path, rows in zip(paths, outcomes, strict=True)}
    found = {
        name: {
            "generalized_s": float(np.mean([o.generalized_s for o in rows])),
            "completion": float(np.mean([o.completion for o in rows])),
            "mean_hold_s": float(np.mean([o.mean_hold_s for o in rows])),
        }
        for name, rows in {"zero": zero, **by_name}.items()
    }
    write_text(folder / "curve.json", to_json(found))
    return found


def shortened(plan: Plan, budget: Budget) -> Plan:
    """The same plan with another budget; schedules keep their proportions."""
    learners = tuple(scaled(learner, budget) for learner in plan.learners)
    return replace(plan, budget=budget, learners=learners)
