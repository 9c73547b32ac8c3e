"""The lanes of a training run, and everything that an actor learned from.

Learners of one seed share IQL, and up to a branch also a lane of the continuation. It can be read
without JAX.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenline.learn.plan import IQL_CHUNK, LESSON_ROUNDS, METRIC_EVERY, Plan
from evenline.learn.schedule import Learner


@dataclass(frozen=True)
class Lane:
    """One learner with one seed."""

    learner: Learner
    seed: int

    @property
    def name(self) -> str:
        """The name of the lane in files."""
        return f"{self.learner.name}-{self.seed}"


def lanes_of(plan: Plan) -> list[Lane]:
    """The lanes that continue in the simulator."""
    return [
        Lane(learner, seed) for learner in plan.learners if learner.continues for seed in plan.seeds
    ]


def trunks(lanes: Sequence[Lane], events: int) -> list[int]:
    """For each lane, the first lane that is identical up to an event: they share one trunk."""

    def story(lane: Lane) -> tuple[Any, ...]:
        learner = lane.learner
        rates = tuple(learner.rate(event) for event in range(0, events + 1, max(1, events // 200)))
        frozen = learner.actor_from >= events  # then neither ramp nor anchor has started
        early = (
            () if frozen else (learner.actor_from, learner.ramp, learner.taper, learner.proximal)
        )
        return (lane.seed, learner.replay, min(learner.temperature_from, events), rates, early)

    stories = [story(lane) for lane in lanes]
    return [stories.index(one) for one in stories]


def branches(plan: Plan) -> tuple[list[Lane], int, list[Lane], list[int]]:
    """All lanes, the branching event, the lanes before it, and each lane's parent there."""
    lanes = lanes_of(plan)
    branch = min(max((lane.learner.anchor for lane in lanes), default=0), plan.budget.events)
    trunk_of = trunks(lanes, branch)
    trunk = sorted(set(trunk_of))
    return lanes, branch, [lanes[i] for i in trunk], [trunk.index(i) for i in trunk_of]


@dataclass(frozen=True)
class Stretch:
    """Some updates of a training: those of a phase after one number, up to another, in a lane."""

    phase: str
    lane: str
    after: int
    to: int
    row_every: int  # a row of the metrics covers at most so many updates


def lineage(plan: Plan, name: str) -> list[Stretch]:
    """Everything that an actor learned from, from its first update to its last.

    Learners of one seed share IQL, and up to the branch a lane of the continuation; the metrics of
    what they share stand under one of their names.
    """
    budget = plan.budget
    lanes, branch, trunk, parents = branches(plan)
    names = [lane.name for lane in lanes]
    stretches: list[Stretch] = []
    learner, _, seed = name.rpartition("-")
    row = next(row for row in plan.learners if row.name == learner)
    if row.lessons:
        every = budget.lesson_updates
        return [Stretch("lessons", name, 0, LESSON_ROUNDS * every, every)]
    if row.replay:
        stretches.append(Stretch("iql", f"iql-{seed}", 0, budget.iql_updates, IQL_CHUNK))
    if name in names:
        shared, began = trunk[parents[names.index(name)]].name, budget.warmup_events
        parted = max(branch, began)
        stretches.append(Stretch("online", shared, began, parted, METRIC_EVERY))
        stretches.append(Stretch("online", name, parted, budget.events, METRIC_EVERY))
    return [stretch for stretch in stretches if stretch.to > stretch.after]
