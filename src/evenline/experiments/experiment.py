"""One experiment: policies in variants of a city, on the same days, with a frame as the result.

A variant is a city with something changed, so every change of a city can be a job. The days run
with any executor, in shards if wished; with a folder, what took time is kept and not run again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from evenline.city.demand import Cell, check_somebody
from evenline.city.model import City, Ints
from evenline.city.tables import digest, network_digest, save_city
from evenline.control.operations import Departures, departures
from evenline.control.outcome import Outcome
from evenline.experiments.frame import Days, Frame, Key
from evenline.experiments.measures import UNENDED, measure
from evenline.figures.measure import unended_said
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.rules.own import Function, rule_of
from evenline.rules.table import Rule
from evenline.runs.days import run_days
from evenline.runs.executors import WHOLE, Executor, Shard, is_quick
from evenline.runs.job import USUAL, Answer, Job
from evenline.runs.store import Store, day_key, setting_of
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder, to_json
from evenline.worlds.calibration import calibration_digest, save_calibration
from evenline.worlds.open import CALIBRATION, OpenCity, check_world_name

AS_IT_IS = "as it is"
DAYS = "days"  # of a result's folder: the store
Keyed = list[tuple[str, Job]]


class Simulated(NamedTuple):
    """A day that ran in this process: its outcome, and when trips reached and left stops."""

    outcome: Outcome
    arrivals_s: Ints
    left_s: Ints


@dataclass(frozen=True, eq=False)
class InMemory:
    """A policy without a name for a worker: it runs its days in the fast world in this process."""

    name: str
    days: Callable[[OpenCity, Sequence[Cell]], Iterable[Simulated]]


Policy = str | Rule | Function | InMemory  # a source, or what has none


@dataclass(frozen=True, eq=False)
class Variant:
    """A city as it is, or with something changed: the `factor`, and how. `demand` multiplies the
    level of its days.

    `source` and `calibration` say where a job finds exactly this city, if it is somewhere.
    """

    opened: OpenCity
    name: str = AS_IT_IS
    factor: str = ""
    demand: float = 1.0
    source: str | None = None
    calibration: Path | None = None

    @property
    def city(self) -> City:
        return self.opened.city

    @property
    def title(self) -> str:
        """Its name in a frame."""
        return f"{self.factor}: {self.name}" if self.factor else self.name

    @property
    def said(self) -> str:
        """Its name in an error."""
        source = self.opened.source
        return source if self.title == AS_IT_IS else f"{source}, {self.title}"

    @cached_property
    def digest(self) -> str:
        return digest(self.city)

    @cached_property
    def calibration_digest(self) -> str:
        """The digest of its calibration; empty if it has none."""
        fitted = self.opened.calibration
        return "" if fitted is None else calibration_digest(fitted)

    def changed(self, factor: str, name: str, city: City, demand: float = 1.0) -> "Variant":
        """Another city with the same running times."""
        return Variant(replace(self.opened, city=city), name, factor, demand)

    def cells(self, cells: Iterable[Cell]) -> list[Cell]:
        """The days of an experiment at its own level of demand."""
        return [replace(cell, demand=cell.demand * self.demand) for cell in cells]

    def saved(self, folder: Path) -> "Variant":
        """The same where a job finds it; written below a folder if it is nowhere yet."""
        if self.source is not None:
            return self
        place = folder / self.digest[:16]
        if not place.exists():
            save_city(self.city, place)
            if self.opened.calibration is not None:
                fitted = replace(self.opened.calibration, network=network_digest(self.city))
                save_calibration(place / CALIBRATION, fitted)
        return replace(self, source=str(place))


@dataclass(frozen=True, eq=False)
class Arm:
    """A policy in a variant and a world."""

    variant: Variant
    policy: Policy
    world: str = "fast"

    @property
    def key(self) -> Key:
        """Its name in a frame."""
        source = self.policy
        named = source.name if isinstance(source, InMemory) else source
        return Key(self.variant.title, named if isinstance(named, str) else rule_of(named).name)


@dataclass(frozen=True, eq=False)
class Experiment:
    """Every policy in every variant of a city, on the same days of a world."""

    variants: Sequence[Variant]
    policies: Sequence[Policy]
    cells: Sequence[Cell]
    world: str = "fast"

    @property
    def arms(self) -> list[Arm]:
        return [Arm(v, policy, self.world) for v in self.variants for policy in self.policies]

    def plan(self) -> bytes:
        """What is asked, for a file."""
        first, *others = self.variants
        named = [source for source in self.policies if isinstance(source, str)]
        asked = {
            "city": first.digest,
            "world": self.world,
            "policies": {source: policy_digest(source) for source in named},
            "cells": [cell.name for cell in self.cells],
        }
        more = {"variants": {each.title: each.digest for each in others}} if others else {}
        return to_json(asked | more).encode()

    def frame(self, days: Sequence[Days]) -> Frame:
        """The result, from the days of the arms."""
        keys, opened = [arm.key for arm in self.arms], self.variants[0].opened
        if len(set(keys)) < len(keys):
            raise InputError("two policies or two variants have the same name; rename one of them")
        notes = (*opened.notes(self.world), *_unended(self.arms, days))
        levels = {variant.title: variant.demand for variant in self.variants}
        found = dict(zip(keys, days, strict=True))
        return Frame(opened.name, self.world, tuple(self.cells), found, levels, notes)


def run(
    experiment: Experiment,
    folder: Path | None = None,
    executor: Executor | None = None,
    shard: Shard = WHOLE,
    begin: Callable[[], None] = lambda: None,
) -> Frame:
    """Run an experiment; with a folder, days that took time are kept there and not run again."""
    days = run_arms(experiment.arms, experiment.cells, folder, executor, shard, begin)
    return experiment.frame(days)


def run_arms(
    arms: Sequence[Arm],
    cells: Sequence[Cell],
    folder: Path | None = None,
    executor: Executor | None = None,
    shard: Shard = WHOLE,
    begin: Callable[[], None] = lambda: None,
    sumo: str | None = None,
) -> list[Days]:
    """The days of every arm, in the order of the cells; equal days run once.

    A shard runs its part of the missing days. `begin` is called before the first day is kept.
    """
    variants = list(dict.fromkeys(arm.variant for arm in arms))
    _refuse(variants, arms)
    with ScratchFolder() as scratch:
        saved = {variant: variant.saved(Path(scratch)) for variant in variants}
        asked = [_jobs(arm, saved[arm.variant], cells, sumo) for arm in arms]
        answers = _answers(
            {key: job for keyed in asked for key, job in keyed},
            {str(variant.source): variant for variant in saved.values()},
            None if folder is None else Store(folder / DAYS),
            executor,
            shard,
            begin,
        )
    return [
        [_figures(arm, job.cell, answers[key]) for key, job in keyed] or _run_here(arm, cells)
        for arm, keyed in zip(arms, asked, strict=True)
    ]


def _refuse(variants: Sequence[Variant], arms: Sequence[Arm]) -> None:
    """Refuse, before anything runs, what cannot run; a policy is opened in its first variant."""
    for variant in variants:
        check_somebody(variant.city)
    for world in {arm.world for arm in arms}:
        check_world_name(world)
    for arm in {arm.policy: arm for arm in reversed(arms)}.values():
        opened, source = arm.variant.opened, arm.policy
        knowing = isinstance(source, str) and read_policy(source).knowing is not None
        if arm.world == "fast" or knowing:
            opened.fitted()
        if not knowing and not isinstance(source, InMemory):
            open_policy(source, opened.city, opened.calibration)


def _jobs(arm: Arm, where: Variant, cells: Sequence[Cell], sumo: str | None) -> Keyed:
    """The jobs of an arm with their keys; none for a rule without a file, which runs here."""
    if not isinstance(arm.policy, str):
        return []
    jobs = [
        Job(
            city=str(where.source),
            policy=arm.policy,
            cell=cell,
            world=arm.world,
            sumo=sumo if arm.world == "sumo" else None,
            calibration=None if where.calibration is None else str(where.calibration),
            arrivals=True,
        )
        for cell in arm.variant.cells(cells)
    ]
    setting = setting_of(jobs[0], arm.variant.digest, arm.variant.calibration_digest)
    return [(day_key(setting, job.cell), job) for job in jobs]


def _answers(
    jobs: Mapping[str, Job],
    variants: Mapping[str, Variant],
    store: Store | None,
    executor: Executor | None,
    shard: Shard,
    begin: Callable[[], None],
) -> dict[str, Answer]:
    """The answers by their keys: those in the store, and those that run now."""
    kept = {key: store.read(key, job) for key, job in jobs.items()} if store else {}
    answers = {key: answer for key, answer in kept.items() if answer is not None}
    todo = {job: key for key, job in shard.of(jobs.items()) if key not in answers}
    slow = {k for k in {(j.world, j.policy) for j in todo} if not is_quick(*k)}
    begun = False

    def keep(job: Job, answer: Answer) -> None:
        nonlocal begun
        if not begun:
            begin()
        begun, answers[todo[job]] = True, answer
        if store and (shard != WHOLE or (job.world, job.policy) in slow):
            store.keep(todo[job], job, answer)

    if todo:
        first = variants[next(iter(todo)).city]
        searching = any(read_policy(source).knowing for _, source in slow)  # in silence
        limits = msgspec.structs.replace(USUAL, silence_s=USUAL.time_s) if searching else USUAL
        run_days(
            [*todo], first.opened.name, first.city.horizon_s, executor, keep, limits,
            title=lambda job: variants[job.city].said,
        )  # fmt: skip
    if missing := jobs.keys() - answers.keys():
        where = f"{store.folder.parent}: " if store else ""
        raise InputError(f"{where}{len(missing)} days are missing; run the other shards too")
    return answers


def _figures(arm: Arm, cell: Cell, answer: Answer) -> dict[str, float]:
    city = arm.variant.city
    return figures(city, cell, answer.outcome, answer.arrivals, answer.begun)


def _run_here(arm: Arm, cells: Sequence[Cell]) -> Days:
    """The days of a policy without a source, in this process."""
    opened, policy, levelled = arm.variant.opened, arm.policy, arm.variant.cells(cells)
    if isinstance(policy, InMemory):
        simulated = policy.days(opened, levelled)
    else:
        ready, world = open_policy(policy, opened.city, opened.calibration), opened.fast_world()
        simulated = (
            Simulated(world.run_day(cell, ready), world.arrivals_s, world.left_s)
            for cell in levelled
        )
    return [
        figures(opened.city, cell, day.outcome, day.arrivals_s, departures(opened.city, day.left_s))
        for cell, day in zip(levelled, simulated, strict=True)
    ]


def figures(
    city: City, cell: Cell, outcome: Outcome, arrivals_s: Ints, begun: Departures | None
) -> dict[str, float]:
    """The measures of a day, how its trips began if that is known, and the share not held."""
    late = {} if begun is None else {"late_departures": begun.late, "lost_trips": begun.lost}
    shown = measure(city, cell, outcome, arrivals_s) | late
    return {**shown, "zero_hold_share": outcome.zero_hold_share}


def _unended(arms: Sequence[Arm], days: Sequence[Days]) -> list[str]:
    """What must be said of trips that did not end, variant by variant if it is not the same."""
    counts: dict[Variant, list[int]] = {}
    for arm, own in zip(arms, days, strict=True):
        counts.setdefault(arm.variant, []).extend(int(day[UNENDED.name]) for day in own)
    said: dict[str, list[str]] = {}
    for variant, unended in counts.items():
        for sentence in unended_said(len(variant.city.trips), unended):
            said.setdefault(sentence, []).append(variant.title)
    if list(said.values()) == [[variant.title for variant in counts]]:
        return list(said)
    return [f"{', '.join(names)}: {sentence}" for sentence, names in said.items()]
