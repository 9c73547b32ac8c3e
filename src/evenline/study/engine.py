"""The study engine: runs the steps whose inputs have changed, in one folder, and can continue.

A step runs if its inputs or its files have changed since it last ran, and it prints the reason.
`state.json` is the only memory: which steps were started with which inputs, and which were finished
with which outputs. A kill loses only the work of the running step since its last checkpoint; the
next run continues there.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

import evenline
from evenline.city.tables import digest
from evenline.runs.executors import Executor, processes
from evenline.study.plan import StudyPlan, read_study_plan
from evenline.support.errors import InputError, choice
from evenline.support.files import refuse_foreign, sha256, to_json, write_bytes
from evenline.support.locks import one_runner
from evenline.support.records import (  # fmt: skip
    Hashes,
    Line,
    Record,
    Seconds,
    Word,
    read_record,
    read_toml,
    write_record,
)

_FORMAT = "evenline-study-2"
_PLAN, _STATE = "plan.toml", "state.json"
_TO_DO, _CONTINUES = "to do", "continues where it stopped"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """A running study: its folder, its plan, and its executor."""

    folder: Path
    plan: StudyPlan
    executor: Executor = field(default_factory=processes)

    @property
    def city(self) -> str:
        """The city's folder."""
        return str(self.folder / "city")


@dataclass(frozen=True)
class Step:
    """One step: the steps it needs, the settings it reads, the files it makes and how.

    `run` does the missing work and returns one line; `about_s` says how long all of it takes on two
    idle cores. `owns` is the folder that is emptied when the inputs have changed; a step without
    one manages its files by itself. `leaves` names other files that a step writes there, such as
    checkpoints; any other file is foreign and never removed. If `mends` is set, only damaged files
    (and the first of `makes`, the seal) are removed and made again.

    `stale` may give a reason to run that no input shows; `sealed` one why no step before may change
    any more. `check` refuses, before any work starts, what `run` would refuse.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    makes: tuple[str, ...]
    run: Callable[[Study], str]
    settings: Callable[[StudyPlan], dict[str, Any]] = lambda plan: {}
    about_s: Callable[[Study], float] = lambda study: 2.0
    owns: str | None = None
    mends: bool = False
    leaves: tuple[str, ...] = ()
    stale: Callable[[Study], str | None] = lambda study: None
    sealed: Callable[[Study], str | None] = lambda study: None
    check: Callable[[Study], None] = lambda study: None


class Memory(Record):
    """A step that was started: its inputs, its outputs once it is done, its time so far."""

    inputs: dict[Line, Line]
    outputs: Hashes | None = None
    seconds: Seconds = 0.0

    @property
    def digest(self) -> str:
        """One hash of all files that the step made."""
        return hashlib.sha256(to_json(self.outputs).encode()).hexdigest()


class State(Record, kw_only=True):
    """The content of `state.json`."""

    format: Word = _FORMAT
    steps: dict[Word, Memory]


@dataclass(frozen=True)
class Standing:
    """Why a step has to run (None: it is up to date), and which of its files have changed.

    `changed` means other inputs than those that it ran with, or that it is requested.
    """

    step: Step
    reason: str | None = None
    changed: bool = False
    damaged: tuple[str, ...] = ()
    took_s: float = 0.0
    left_s: float = 0.0


# -- what has to run ------------------------------------------------------------------------------


def survey(study: Study, steps: Sequence[Step], again_from: str | None = None) -> list[Standing]:
    """List every step with the reason why it would run and how long; changes nothing."""
    state, standings = _state(study.folder), list[Standing]()
    requested = _requested(steps, again_from)
    for step in steps:
        now = _standing(study, step, state)
        waiting = [s.step.name for s in standings if s.reason and s.step.name in step.needs]
        if step in requested:
            now = replace(now, reason=now.reason or "requested", changed=True)
        elif now.reason is None and waiting:
            now = replace(now, reason=f"if step {waiting[0]} gives new results")
        standings.append(replace(now, left_s=_left_s(study, now)))
    return standings


def refuse_early(
    study: Study, steps: Sequence[Step], again_from: str | None = None, until: str | None = None
) -> list[Standing]:
    """Refuse what no longer may run, and what a step would refuse, before any work starts.

    Returns the standings of the steps up to the last requested one.
    """
    standings = survey(study, _chosen(steps, again_from, until), again_from)
    for number, later in enumerate(steps):
        again = next((now for now in standings[:number] if now.changed), None)
        if again is not None and (sealed := later.sealed(study)):
            raise InputError(
                f"{study.folder}: step {again.step.name} would run again ({again.reason}), but "
                f"{sealed}"
            )
    for now in standings:
        if now.reason:
            now.step.check(study)
    return standings


def _chosen(steps: Sequence[Step], first: str | None, last: str | None) -> Sequence[Step]:
    """The steps up to the last requested one; refuses unknown names."""
    names = [step.name for step in steps]
    for name in (first, last):
        if name is not None and name not in names:
            raise InputError(f"unknown step {name!r}; choose {choice(names)}")
    if first and last and names.index(first) > names.index(last):
        raise InputError(f"--from {first} comes after --until {last}")
    return steps[: names.index(last) + 1] if last else steps


def _requested(steps: Sequence[Step], again_from: str | None) -> Sequence[Step]:
    """The steps that are requested to run again."""
    names = [step.name for step in steps]
    return steps[names.index(again_from) :] if again_from else ()


def _standing(study: Study, step: Step, state: State) -> Standing:
    """Whether a step has to run, and why."""
    inputs, memory = _inputs(study, step, state), state.steps.get(step.name)
    if memory is None or not memory.inputs:  # never started, or to be forgotten
        return Standing(step, _TO_DO)
    now = Standing(step, took_s=memory.seconds)
    if memory.outputs is None:
        return replace(now, reason=_CONTINUES if memory.inputs == inputs else _TO_DO)
    for name in dict.fromkeys([*memory.inputs, *inputs]):
        before, after = memory.inputs.get(name), inputs.get(name)
        if before != after:
            new = f"step {name} has new results" if name in step.needs else ""
            return replace(now, reason=new or f"{name} is {after}, was {before}", changed=True)
    made, there = memory.outputs, _hashes(study.folder, step.makes)
    damaged = [n for n in sorted(there.keys() | made.keys()) if there.get(n) != made.get(n)]
    if not damaged:
        return replace(now, reason=step.stale(study))
    what = "has changed" if damaged[0] in there else "is missing"
    what = what if damaged[0] in made else "was not made by this step"
    more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
    return replace(now, reason=f"{damaged[0]} {what}{more}", damaged=tuple(damaged))


def _left_s(study: Study, now: Standing) -> float:
    """How long a step will take, less what it took before it was stopped."""
    if now.reason is None:
        return 0.0
    return max(now.step.about_s(study) - now.took_s * (now.reason == _CONTINUES), 0.0)


def _inputs(study: Study, step: Step, state: State) -> dict[str, str]:
    """The inputs of a step: settings and our version as text, other steps by their outputs."""
    settings = step.settings(study.plan) | {"evenline": evenline.__version__}
    before = {name: state.steps[name] for name in step.needs if name in state.steps}
    texts = {key: json.dumps(value) for key, value in settings.items()}
    return texts | {name: memory.digest for name, memory in before.items() if memory.outputs}


# -- a study's folder -----------------------------------------------------------------------------


def open_study(plan_path: Path, out: Path | None, executor: Executor | None = None) -> Study:
    """Open a study from its plan; does not change the folder.

    The plan inside a study's folder belongs to that folder. The folder of any other is named after
    the plan's file, so that a copied plan has its own.
    """
    plan, folder = read_study_plan(plan_path), Path("results") / f"study-{plan_path.stem}"
    if plan_path.name == _PLAN and (plan_path.parent / _STATE).is_file():
        folder = plan_path.parent
    folder = out or folder
    refuse_foreign(folder, _PLAN, hidden=False)  # a kill may leave only the lock
    _refuse_other_city(folder, plan)
    return Study(folder, plan, executor or processes())


def _refuse_other_city(folder: Path, plan: StudyPlan) -> None:
    """Refuse a folder with the study of another city; a city may move or change its tables."""
    if not (folder / _PLAN).is_file():
        return
    before, memory = read_toml(folder / _PLAN).get("city"), _state(folder).steps.get("city")
    begun = memory.inputs.get("city") if memory else None
    if before != plan.city and begun not in (None, json.dumps(digest(plan.open_city()))):
        raise InputError(
            f"{folder} has the study of another city, {before!r}; choose another --out, or rename "
            "the plan's file"
        )


def _state(folder: Path) -> State:
    """The state of a study's folder; empty if it has none."""
    path = folder / _STATE
    return read_record(path, State, _FORMAT) if path.exists() else State(steps={})


def _names(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Every file that matches a pattern, by path inside the folder, without hidden files."""
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    inside = sorted(path.relative_to(folder) for path in paths)
    return [p.as_posix() for p in inside if not any(part.startswith(".") for part in p.parts)]


def _hashes(folder: Path, patterns: Sequence[str]) -> Hashes:
    return {name: sha256(folder / name) for name in _names(folder, patterns)}


# -- running --------------------------------------------------------------------------------------


def run_study(
    study: Study,
    steps: Sequence[Step],
    again_from: str | None = None,
    until: str | None = None,
    say: Say = lambda line: None,
) -> bool:
    """Run the steps that have to run, in order; return whether the whole study is done."""
    todo, plan = _chosen(steps, again_from, until), study.folder / _PLAN
    with one_runner(study.folder, "study"):
        refuse_early(study, steps, again_from, until)
        if study.plan.file.resolve() != plan.resolve():
            write_bytes(plan, study.plan.file.read_bytes())
        state, requested = _state(study.folder), _requested(todo, again_from)
        _forget(study, requested, state)
        for number, step in enumerate(todo, start=1):
            now, label = _standing(study, step, state), f"{number:2}/{len(steps)} {step.title}"
            if now.reason is None:
                say(f"{label}: up to date")
                continue
            why = "requested" if step in requested else now.reason
            say(f"{label}: {why}, about {in_words(_left_s(study, now))}")
            line = _run_step(study, now, state)
            say(f"      {line} ({state.steps[step.name].seconds:.1f} s)")
    return len(todo) == len(steps)


def in_words(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _forget(study: Study, steps: Sequence[Step], state: State) -> None:
    """Forget what all these steps ran with, in one write, so that a later run repeats all."""
    for step in steps:
        _refuse_foreign_files(study, step, state)
    for step in steps:
        if step.name in state.steps:
            state.steps[step.name] = structs.replace(state.steps[step.name], inputs={})
    if steps:
        write_record(study.folder / _STATE, state)


def _refuse_foreign_files(study: Study, step: Step, state: State) -> None:
    """Refuse to empty a folder with files that the step did not write."""
    memory, ours = state.steps.get(step.name), set[str]()
    if memory is not None:
        made = _names(study.folder, step.makes) if memory.outputs is None else memory.outputs
        ours = {*made, *_names(study.folder, step.leaves)}
    for name in _names(study.folder, (f"{step.owns}/**/*",) if step.owns else ()):
        if name not in ours:
            raise InputError(
                f"{study.folder / name} does not belong to step {step.name}, whose folder must be "
                "emptied; move the file away"
            )


def _clear(study: Study, now: Standing, state: State, aside: Path) -> None:
    """Remove what a step made before it runs anew: its folder or, if it mends, what is damaged.

    A folder is renamed before it is deleted, so that a kill never leaves half of it. All of this
    comes before the state changes, so that damage from a kill here is seen again.
    """
    step, folder = now.step, study.folder
    _refuse_foreign_files(study, step, state)
    if now.damaged and step.mends:
        for name in [*now.damaged, *_names(folder, step.makes[:1])]:
            (folder / name).unlink(missing_ok=True)
    elif step.owns and (folder / step.owns).exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder / step.owns, aside)


def _run_step(study: Study, now: Standing, state: State) -> str:
    """Clear the folder, record the start, run, record the outputs; return what it says."""
    step, folder, inputs = now.step, study.folder, _inputs(study, now.step, state)
    before, aside = state.steps.get(step.name), folder / f".old-{step.owns}"
    if before is None or before.inputs != inputs or now.damaged:
        _clear(study, now, state, aside)

    def remember(seconds: float, outputs: Hashes | None = None) -> None:
        state.steps[step.name] = Memory(inputs=inputs, outputs=outputs or None, seconds=seconds)
        write_record(folder / _STATE, state)

    spent_s = now.took_s if now.reason == _CONTINUES else 0.0
    remember(spent_s)
    shutil.rmtree(aside, ignore_errors=True)
    began, outputs = time.monotonic() - spent_s, Hashes()
    try:
        line = step.run(study)
        outputs = _hashes(folder, step.makes)
        if not outputs:
            raise InputError(f"{folder}: step {step.name} wrote no files")
    finally:
        remember(round(time.monotonic() - began, 2), outputs)
    return line
