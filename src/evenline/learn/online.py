"""The continuation of a run: simulated days, one update per event, branches of one seed.

`Online` is all that changes in the continuation: the parameters, the days so far, the fleet, the
diagnostic. Its arrays are a checkpoint, from which it continues to the same bits.
"""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from evenline.city.cells import PURPOSES
from evenline.control.action import MAX_HOLD_S, action_of, hold_of
from evenline.control.event import TIME
from evenline.learn import lanes as ln
from evenline.learn import ratio as rt
from evenline.learn.checkpoint import load_notes, load_tree
from evenline.learn.data import (
    REWARD_SCALE,
    Days,
    Event,
    Transitions,
    days_batch,
    replay_batch,
)
from evenline.learn.network import Params
from evenline.learn.run import Run, seed_array, training_cell, write_actor
from evenline.learn.updates import Learned
from evenline.support.progress import progress_bar
from evenline.worlds.fast.world import Fleet

BRANCH, END = "branch.safetensors", "end.safetensors"
METRIC_EVERY = 100
SNAPSHOTS = 5  # actors kept during the continuation, evenly spaced, including the end
HELD_OUT_BLOCKS = 2  # of the replay, for the diagnostic
HELD_OUT_DAYS = 2  # simulated days of each lane, for the diagnostic
ASSESSED = 4_096  # transitions of each class


def continued(run: Run, offline: list[Learned]) -> "Online":
    """Run simulated days: together up to the branching event, then separately for every learner."""
    lanes, branch, trunk, parents = _branches(run)
    state = Online.begin(run, trunk, offline)
    state.run(branch, run.folder / BRANCH)
    state = state.split(lanes, parents)
    state.run(run.plan.budget.events, run.folder / END)
    return state


def rehearse(run: Run, stop: threading.Event) -> None:
    """Run every program of the continuation once, so that all are compiled.

    The compiler of an accelerator runs on the host, so it costs no time during IQL's updates.
    """
    if (run.folder / END).exists():
        return
    lanes, branch, trunk, parents = _branches(run)
    fresh = [ln.begin_lanes(list(group), run.size) for group in run.groups(run.plan.seeds)]
    state = Online.begin(run, trunk, fresh)
    parting, early = len(lanes) != len(trunk), branch >= max(run.plan.budget.warmup_events, 1)
    if not parting or (branch and not (run.folder / BRANCH).exists()):
        state.rehearse(stop, pretraining=early or not parting)
    if parting:
        state = state.split(lanes, parents)
        state.rehearse(stop, pretraining=not early)


def _branches(run: Run) -> tuple[list[ln.Lane], int, list[ln.Lane], list[int]]:
    """All lanes, the branching event, the lanes before it, and each lane's parent there."""
    lanes = run.lanes()
    branch = min(max((lane.learner.anchor for lane in lanes), default=0), run.plan.budget.events)
    trunk_of = ln.trunks(lanes, branch)
    trunk = sorted(set(trunk_of))
    return lanes, branch, [lanes[i] for i in trunk], [trunk.index(i) for i in trunk_of]


class Online:
    """The continuation of some lanes: parameters, days, the fleet, the diagnostic."""

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
        # Kept on the device: sending them with every call costs more than the update itself.
        self._trained_on = jnp.asarray(self.logged[0])
        self._seeds = [seed_array([lanes[i].seed for i in group]) for group in self.groups]

    @property
    def groups(self) -> list[list[int]]:
        """The indices of the lanes of each group."""
        return self.run_.groups(range(len(self.lanes)))

    @classmethod
    def begin(cls, run: Run, lanes: list[ln.Lane], offline: list[Learned]) -> "Online":
        """Start every lane: from the end of IQL, or from scratch."""
        self = cls(run, lanes)
        seeds, budget = list(run.plan.seeds), run.plan.budget
        for group in self.groups:
            own = ln.pick(offline, [seeds.index(lanes[i].seed) for i in group])
            from_replay = np.array([lanes[i].learner.replay for i in group])
            if not from_replay.all():
                fresh = ln.begin_lanes([lanes[i].seed for i in group], run.size)
                own = ln.choose(jnp.asarray(from_replay), own, fresh)
            self.learned.append(own)
            self.days.append(ln.new_lane_days(len(group), budget))
            self.ratio.append(ln.new_ratios([lanes[i].seed for i in group]))
        for w in range(len(lanes)):
            self._new_day(w)
        for g, group in enumerate(self.groups):
            self.days[g], actions = ln.first_actions(
                self.learned[g],
                self.days[g],
                self._seeds[g],
                jnp.asarray(self.fleet.states[group]),
                run.packed,
            )
            self.actions[group] = actions
        return self

    def split(self, lanes: list[ln.Lane], parents: list[int]) -> "Online":
        """Branch into more lanes, each continuing from its parent."""
        after = Online(self.run_, lanes)
        for group in after.groups:
            own = [parents[i] for i in group]
            after.learned.append(ln.pick(self.learned, own))
            after.days.append(ln.pick(self.days, own))
            after.ratio.append(ln.pick(self.ratio, own))
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
        """The progress so far."""
        return {"event": self.event, "lanes": [lane.name for lane in self.lanes]}

    def _load(self, path: Path) -> None:
        tree = load_tree(path, self.tree())
        self.learned, self.days, self.ratio = tree["learned"], tree["days"], tree["ratio"]
        self.fleet.restore(tree["fleet"])
        self.episodes, self.actions = tree["episodes"], tree["actions"]
        self.event = int(load_notes(path)["event"])
        self.run_.load_metrics()

    def _new_day(self, w: int) -> None:
        """A new training cell, the same for every lane of a seed."""
        seed = self.lanes[w].seed
        self.fleet.begin(w, training_cell(seed, int(self.episodes[w])))
        self.episodes[w] += 1

    # -- events -----------------------------------------------------------------------------------

    def run(self, until: int, end: Path) -> None:
        """Continue from the latest checkpoint to an event, and write the state there."""
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
                if boundary and self.event < until and self.run_.due():
                    self.run_.save(under_way, self.tree(), self.notes())
        if not end.exists():
            self.run_.save(end, self.tree(), self.notes())
            end.chmod(0o444)
        under_way.unlink(missing_ok=True)

    def _one_event(self, kept: list[list[Any]]) -> None:
        run, n = self.run_, self.event
        budget = run.plan.budget
        began_s = self._now_s()
        done = executed(self.fleet, self.actions)
        over, costs = self.fleet.over.copy(), self._costs(began_s)
        for w in np.flatnonzero(over):
            self._new_day(int(w))
        states = self.fleet.states
        for g, group in enumerate(self.groups):
            lanes, seeds = [self.lanes[i] for i in group], self._seeds[g]
            arrays: Any = (done[group], costs[group], over[group], states[group])
            event = Event(*arrays)
            # Act before the update, so that the simulator need not wait for it.
            self.days[g], actions = ln.observe(
                self.learned[g], self.days[g], seeds, np.int32(n), event, run.packed
            )
            if n + 1 > budget.warmup_events:
                rates = ln.rates_at(lanes, n + 1)
                self.learned[g], metrics = ln.learn(
                    self.learned[g], self.days[g], run.replay, seeds, np.int32(n), rates,
                    run.packed,
                )  # fmt: skip
                kept[g].append(metrics)
            self.actions[group] = actions
        self.event += 1

    def _now_s(self) -> npt.NDArray[np.float64]:
        """The time of each lane's next decision, or the horizon if its day is over."""
        return np.where(self.fleet.over, self.run_.city.horizon_s, self.fleet.raw[:, TIME])

    def _costs(self, began_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """The costs since the last decisions, centred if the plan says so."""
        costs, baseline = self.fleet.costs, self.run_.baseline
        if baseline is not None:
            cells = [
                training_cell(lane.seed, int(day) - 1)
                for lane, day in zip(self.lanes, self.episodes, strict=True)
            ]
            level = np.array([baseline.level_of(cell.demand) for cell in cells])
            costs = costs - baseline.between(level, began_s, self._now_s())
        return costs.astype(np.float32)

    def rehearse(self, stop: threading.Event, pretraining: bool) -> None:
        """Run an event with its update and the diagnostic, and discard the results."""
        budget = self.run_.plan.budget
        self.event = budget.warmup_events

        def anchor() -> None:
            for g, group in enumerate(self.groups):
                self.learned[g] = ln.set_anchor(self.learned[g], jnp.zeros(len(group), bool))

        counts = [1, budget.ratio_pretraining] if pretraining else [1]
        parts: list[Callable[[], None]] = [
            partial(self._one_event, [[] for _ in self.groups]),
            anchor,
            *(partial(self._diagnose, n) for n in counts if self.run_.plan.diagnostic),
        ]
        for part in parts:
            if stop.is_set():
                return
            part()
        jax.block_until_ready(self.tree())  # type: ignore[no-untyped-call]

    def _at_marks(self) -> None:
        """Do the work of certain events: anchors, the diagnostic, snapshots."""
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
        for g, seeds in enumerate(self._seeds):
            self.ratio[g] = ln.diagnose(
                self.ratio[g], self.days[g], self.run_.replay, self._trained_on, seeds,
                np.int32(self.event), np.int32(self.event), count, self.run_.packed,
            )  # fmt: skip

    def _note(self, kept: list[list[Any]]) -> None:
        for metrics, group in zip(kept, self.groups, strict=True):
            if metrics:
                host = jax.device_get(metrics)
                joined = {term: np.stack([row[term] for row in host]) for term in host[0]}
                names = [self.lanes[i].name for i in group]
                self.run_.note("online", names, self.event - len(metrics), joined, self.tree())

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
        """The diagnostic, on the training data of the classifiers and on held-out data."""
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
                ratio, days = (
                    jax.tree.map(lambda x: x[j], tree)  # noqa: B023 - used at once
                    for tree in (self.ratio[g], self.days[g])
                )
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
        """Transitions of whole simulated days by each lane's actor, not used for training."""
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
                    self.learned[g].actor, self._seeds[g], np.int32(step), shaped, run.packed
                )
                actions[rows] = np.asarray(drawn).reshape(-1)
            actions = executed(fleet, actions)
            after = fleet.states.copy()
            chosen = rng.random() < min(1.0, 2 * ASSESSED / HELD_OUT_DAYS / run.city.decisions)
            if chosen:
                parts.append([states, actions, fleet.costs.copy(), after, fleet.over.copy(), live])
            states, step = after, step + 1
        return [_transitions(parts, i) for i in range(lanes)]


def executed(fleet: Fleet, actions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Take an action in every world and return those that happened, as a replay keeps them: they
    differ where the operations limit a hold or a driver does not obey.
    """
    holds_s = np.clip(hold_of(actions.astype(np.float64)), 0.0, MAX_HOLD_S)
    fleet.step(holds_s)
    other = np.minimum(action_of(fleet.executed_s), 1.0)
    return np.where(fleet.executed_s == holds_s, actions, other).astype(np.float32)


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
