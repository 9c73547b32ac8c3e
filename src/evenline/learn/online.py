"""The continuation of a run: simulated days, one update per event, branches of one seed.

`Online` is all that changes in the continuation: the parameters, the days so far, the fleet. Its
arrays are a checkpoint, from which it continues to the same bits.
"""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evenline.control.action import MAX_HOLD_S, action_of, hold_of
from evenline.control.event import TIME
from evenline.learn import lanes as ln
from evenline.learn.checkpoint import load_notes, load_tree
from evenline.learn.data import Days, Event
from evenline.learn.lineage import Lane, branches
from evenline.learn.network import Params
from evenline.learn.plan import METRIC_EVERY, write_actor
from evenline.learn.run import Run, seed_array, training_cell
from evenline.learn.updates import Learned
from evenline.support.extras import extra
from evenline.support.progress import progress_bar
from evenline.worlds.fast.world import Fleet

with extra("train"):
    import jax
    import jax.numpy as jnp

BRANCH, END = "branch.safetensors", "end.safetensors"
_SNAPSHOTS = 5  # actors kept during the continuation, evenly spaced, including the end


def continued(run: Run, offline: list[Learned]) -> "Online":
    """Run simulated days: together up to the branching event, then separately for every learner."""
    lanes, branch, trunk, parents = branches(run.plan)
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
    lanes, branch, trunk, parents = branches(run.plan)
    fresh = [ln.begin_lanes(list(group), run.size) for group in run.groups(run.plan.seeds)]
    state = Online.begin(run, trunk, fresh)
    parting = len(lanes) != len(trunk)
    if not parting or (branch and not (run.folder / BRANCH).exists()):
        state.rehearse(stop)
    if parting:
        state.split(lanes, parents).rehearse(stop)


class Online:
    """The continuation of some lanes: parameters, days, the fleet."""

    def __init__(self, run: Run, lanes: list[Lane]) -> None:
        self.run_, self.lanes = run, lanes
        self.fleet = Fleet(run.city, run.calibration, len(lanes))
        self.episodes = np.zeros(len(lanes), np.int64)
        self.event = 0
        self.learned: list[Learned] = []
        self.days: list[Days] = []
        self.actions = np.zeros(len(lanes), np.float32)
        self._seeds = [seed_array([lanes[i].seed for i in group]) for group in self.groups]

    @property
    def groups(self) -> list[list[int]]:
        """The indices of the lanes of each group."""
        return self.run_.groups(range(len(self.lanes)))

    @classmethod
    def begin(cls, run: Run, lanes: list[Lane], offline: list[Learned]) -> "Online":
        """Start every lane: from the end of IQL, or from scratch."""
        self = cls(run, lanes)
        seeds, budget = list(run.plan.seeds), run.plan.budget
        for group in self.groups:
            parts = ln.pick(offline, [seeds.index(lanes[i].seed) for i in group])
            from_replay = np.array([lanes[i].learner.replay for i in group])
            if not from_replay.all():
                fresh = ln.begin_lanes([lanes[i].seed for i in group], run.size)
                parts = ln.choose(jnp.asarray(from_replay), parts, fresh)
            self.learned.append(parts)
            self.days.append(ln.new_lane_days(len(group), budget))
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

    def split(self, lanes: list[Lane], parents: list[int]) -> "Online":
        """Branch into more lanes, each continuing from its parent."""
        after = Online(self.run_, lanes)
        for group in after.groups:
            chosen = [parents[i] for i in group]
            after.learned.append(ln.pick(self.learned, chosen))
            after.days.append(ln.pick(self.days, chosen))
        after.fleet.restore({n: a[parents] for n, a in self.fleet.snapshot().items()})
        after.episodes, after.actions = self.episodes[parents], self.actions[parents]
        after.event = self.event
        return after

    def tree(self) -> Any:
        """All arrays of the state."""
        return {
            "learned": self.learned, "days": self.days, "fleet": self.fleet.snapshot(),
            "episodes": self.episodes, "actions": self.actions,
        }  # fmt: skip

    def notes(self) -> dict[str, Any]:
        """The progress so far."""
        return {"event": self.event, "lanes": [lane.name for lane in self.lanes]}

    def _load(self, path: Path) -> None:
        tree = load_tree(path, self.tree())
        self.learned, self.days = tree["learned"], tree["days"]
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

    def rehearse(self, stop: threading.Event) -> None:
        """Run an event with its update, and discard the results."""
        self.event = self.run_.plan.budget.warmup_events

        def anchor() -> None:
            for g, group in enumerate(self.groups):
                self.learned[g] = ln.set_anchor(self.learned[g], jnp.zeros(len(group), bool))

        for part in (partial(self._one_event, [[] for _ in self.groups]), anchor):
            if stop.is_set():
                return
            part()
        jax.block_until_ready(self.tree())  # type: ignore[no-untyped-call]

    def _at_marks(self) -> None:
        """Do the work of certain events: anchors, snapshots."""
        for g, group in enumerate(self.groups):
            mark = np.array([self.lanes[i].learner.anchor == self.event for i in group])
            if mark.any():
                self.learned[g] = ln.set_anchor(self.learned[g], jnp.asarray(mark))
        if self.event % max(1, self.run_.plan.budget.events // _SNAPSHOTS) == 0:
            self.export(f"-at-{self.event}")

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
        actors: dict[str, Params] = {}
        for learned, group in zip(self.learned, self.groups, strict=True):
            host = jax.device_get(learned.actor)
            for j, i in enumerate(group):
                actors[self.lanes[i].name] = {name: value[j] for name, value in host.items()}
        return actors

    def export(self, suffix: str = "") -> None:
        """Write every lane's actor."""
        for name, actor in self.actors().items():
            write_actor(self.run_.folder / "actors" / f"{name}{suffix}.safetensors", actor)


def executed(fleet: Fleet, actions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Take an action in every world and return those that happened, as a replay keeps them: they
    differ where the operations limit a hold or a driver does not obey.
    """
    holds_s = np.clip(hold_of(actions.astype(np.float64)), 0.0, MAX_HOLD_S)
    fleet.step(holds_s)
    other = np.minimum(action_of(fleet.executed_s), 1.0)
    return np.where(fleet.executed_s == holds_s, actions, other).astype(np.float32)
