"""The study engine: runs the steps whose inputs have changed, in one folder, and can continue.

A step runs if its inputs or its files have changed since it last ran, and it prints the reason.
`state.json` is the only memory: which steps were started with which inputs, which were finished
with which outputs, and how long they took. A kill loses only the work of the running step since its
last checkpoint; the next run continues there.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import evenline
from evenline.city.tables import digest
from evenline.runs.executors import Executor, processes
from evenline.study.plan import StudyPlan, read_study_plan
from evenline.support.errors import InputError, choice
from evenline.support.files import (
    read_json,
    refuse_foreign,
    sha256,
    to_json,
    write_bytes,
)
from evenline.support.locks import one_runner
from evenline.support.records import (
    Hashes,
    Line,
    Moment,
    Record,
    Seconds,
    Sha256,
    Word,
    plain,
    read_record,
    read_toml,
    write_record,
)
from evenline.trial.records import read_registered
from evenline.trial.used import check_fresh, has_outcomes, other_used_cells

FORMAT = "evenline-study-1"
PLAN, STATE, MANIFEST, TRIAL = "plan.toml", "state.json", "manifest.json", "trial"
FRESH = "name fresh seeds under [trial] in the plan"
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

    `run` does the missing work and returns one line. `owns` is the folder that is emptied when the
    inputs have changed; a step without one manages its own files. `leaves` names other files that a
    step writes there, such as checkpoints; any other file is foreign and never removed. If `mends`
    is set, only damaged files (and the first of `makes`, the seal) are removed and made again.
    `stale` may give a reason to run that no input shows.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    settings: Callable[[StudyPlan], dict[str, Any]]
    makes: tuple[str, ...]
    run: Callable[[Study], str]
    about_s: Callable[[Study], float]
    owns: str | None = None
    mends: bool = False
    leaves: tuple[str, ...] = ()
    stale: Callable[[Study], str | None] = lambda study: None


class Done(Record):
    """A finished step: its inputs, its outputs, how long it took, its message."""

    inputs: dict[Line, Line]
    outputs: Hashes
    seconds: Seconds
    finished_at: Moment
    said: Line

    @property
    def digest(self) -> str:
        """One hash of all files that the step made."""
        return hashlib.sha256(to_json(self.outputs).encode()).hexdigest()


class State(Record, kw_only=True):
    """The content of `state.json`, by step."""

    format: Word = FORMAT
    begun: dict[Word, dict[Line, Line]]
    done: dict[Word, Done]
    took_s: dict[Word, Seconds]
    spent_s: dict[Word, Seconds] = msgspec.field(default_factory=dict)  # on steps that were stopped


class StepMade(Record):
    """A step in the manifest: its inputs, and one hash of its outputs."""

    title: Line
    inputs: dict[Line, Line]
    made: Sha256
    finished_at: Moment
    seconds: Seconds


class Manifest(Record):
    """The content of `manifest.json` of a finished study."""

    format: Word
    name: Word
    evenline: Word
    steps: dict[Word, StepMade]
    files: Hashes


@dataclass(frozen=True)
class StepStatus:
    """The status of a step: why it has to run (None: up to date), and its past or expected time."""

    step: Step
    reason: str | None
    done: Done | None
    about_s: float


# -- state ----------------------------------------------------------------------------------------


def load_state(folder: Path) -> State:
    """Read the state of a study's folder; empty if it has none."""
    path = folder / STATE
    if not path.exists():
        return State(begun={}, done={}, took_s={})
    return read_record(path, State, FORMAT)


def _save(folder: Path, state: State) -> None:
    write_record(folder / STATE, state)


def files_of(folder: Path, patterns: Sequence[str]) -> Hashes:
    """The SHA-256 of every file that matches a pattern, by path inside the folder."""
    return {name: sha256(folder / name) for name in _names(folder, patterns)}


def _names(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Every file that matches a pattern, by path inside the folder, without hidden files."""
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    inside = sorted(path.relative_to(folder) for path in paths)
    return [
        path.as_posix() for path in inside if not any(part.startswith(".") for part in path.parts)
    ]


def inputs_of(study: Study, step: Step, state: State) -> dict[str, str]:
    """The inputs of a step: settings as text, other steps by the hash of their outputs."""
    own = {key: json.dumps(value) for key, value in step.settings(study.plan).items()}
    needs = {name: state.done[name].digest for name in step.needs if name in state.done}
    return own | needs


def why(study: Study, step: Step, state: State) -> tuple[str | None, list[str]]:
    """Return why a step has to run, or None, and the files changed since it ran."""
    inputs, done = inputs_of(study, step, state), state.done.get(step.name)
    if done is None:
        begun = state.begun.get(step.name)
        return ("continues where it stopped" if begun == inputs else "not done yet"), []
    for name in dict.fromkeys([*done.inputs, *inputs]):
        before, now = done.inputs.get(name), inputs.get(name)
        if before != now and name in step.needs:
            return f"step {name} has new results", []
        if before != now:
            return f"{name} is {now}, was {before}", []
    found = files_of(study.folder, step.makes)
    names = sorted(found.keys() | done.outputs.keys())
    damaged = [name for name in names if found.get(name) != done.outputs.get(name)]
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        what = "has changed" if damaged[0] in found else "is missing"
        what = what if damaged[0] in done.outputs else "was not made by this step"
        return f"{damaged[0]} {what}{more}", damaged
    return step.stale(study), []


def foreign_files(study: Study, step: Step, state: State) -> list[str]:
    """The files in a step's folder that the step did not write."""
    if not step.owns:
        return []
    done, ours = state.done.get(step.name), set[str]()
    if done is not None:
        ours = {*done.outputs, *_names(study.folder, step.leaves)}
    elif step.name in state.begun:
        ours = {*_names(study.folder, (*step.makes, *step.leaves))}
    there = _names(study.folder, (f"{step.owns}/**/*",))
    return [name for name in there if name not in ours]


def survey(study: Study, steps: Sequence[Step], again_from: str | None = None) -> list[StepStatus]:
    """List every step with the reason why it would run; changes nothing."""
    state, standings = load_state(study.folder), []
    waiting, resized = set[str](), set[str]()
    forced = False
    for step in steps:
        forced = forced or step.name == again_from
        reason, _ = why(study, step, state)
        if reason is None and forced:
            reason = "requested"
        if reason is None and (first := [name for name in step.needs if name in waiting]):
            reason = f"if step {first[0]} gives new results"
        if reason is not None:
            waiting.add(step.name)
        # The last time is no estimate for more days or another network.
        if _is_resized(study, step, state) or not resized.isdisjoint(step.needs):
            resized.add(step.name)
        took_s = None if step.name in resized else state.took_s.get(step.name)
        about_s = took_s or step.about_s(study)
        standings.append(StepStatus(step, reason, state.done.get(step.name), about_s))
    return standings


def _is_resized(study: Study, step: Step, state: State) -> bool:
    """Whether a step's own settings have changed since it was last started."""
    begun = state.begun.get(step.name)
    own = {key: json.dumps(value) for key, value in step.settings(study.plan).items()}
    return begun is not None and any(begun.get(key) != value for key, value in own.items())


# -- running --------------------------------------------------------------------------------------


def open_study(plan_path: Path, out: Path | None, executor: Executor | None = None) -> Study:
    """Open a study from its plan; does not change the folder."""
    plan = read_study_plan(plan_path)
    folder = out or default_folder(plan_path)
    refuse_foreign(folder, PLAN, hidden=False)  # a kill may leave only the lock
    _refuse_other_city(folder, plan)
    return Study(folder, plan, executor or processes())


def default_folder(plan_path: Path) -> Path:
    """The folder of a study: named after the plan's file, so that a copied plan has its own.

    The plan inside a study's folder belongs to that folder.
    """
    if plan_path.name == PLAN and (plan_path.parent / STATE).is_file():
        return plan_path.parent
    return Path("results") / f"study-{plan_path.stem}"


def _refuse_other_city(folder: Path, plan: StudyPlan) -> None:
    """Refuse a folder with the study of another city; a city may move or change its tables."""
    if not (folder / PLAN).is_file():
        return
    before = read_toml(folder / PLAN).get("city")
    begun = load_state(folder).begun.get("city", {}).get("city")
    if before != plan.city and begun not in (None, json.dumps(digest(plan.open_city()))):
        raise InputError(
            f"{folder} has the study of another city, {before!r}; choose another --out, or rename "
            "the plan's file"
        )


def chosen(steps: Sequence[Step], first: str | None, last: str | None) -> list[Step]:
    """The steps up to the last requested one; refuses unknown names."""
    names = [step.name for step in steps]
    for name in (first, last):
        if name is not None and name not in names:
            raise InputError(f"unknown step {name!r}; choose {choice(names)}")
    if first and last and names.index(first) > names.index(last):
        raise InputError(f"--from {first} comes after --until {last}")
    return list(steps[: names.index(last) + 1] if last else steps)


def run_study(
    study: Study,
    plan_path: Path,
    steps: Sequence[Step],
    again_from: str | None = None,
    until: str | None = None,
    say: Say = lambda line: None,
) -> bool:
    """Run the steps that have to run, in order; return whether the whole study is done."""
    todo = chosen(steps, again_from, until)
    with one_runner(study.folder, "study"):
        refuse_seen(study, todo, again_from)
        if plan_path.resolve() != (study.folder / PLAN).resolve():
            write_bytes(study.folder / PLAN, plan_path.read_bytes())
        _sweep(study)
        state = load_state(study.folder)
        asked_for = _asked_for(todo, again_from)
        _forget(study, asked_for, state)
        for number, step in enumerate(todo, start=1):
            reason, damaged = why(study, step, state)
            label = f"{number:2}/{len(steps)} {step.title}"
            if reason is None:
                say(f"{label}: up to date")
                continue
            say(f"{label}: {'requested' if step in asked_for else reason}")
            done = _run_step(study, step, state, damaged)
            say(f"      {done.said} ({done.seconds:.1f} s)")
        if len(todo) < len(steps):
            return False
        _write_manifest(study, steps, state)
    return True


def _asked_for(steps: Sequence[Step], again_from: str | None) -> list[Step]:
    """The steps that are requested to run again."""
    names = [step.name for step in steps]
    return list(steps[names.index(again_from) :]) if again_from else []


def _forget(study: Study, steps: Sequence[Step], state: State) -> None:
    """Mark all these steps as not done in one write, so that a later run repeats all of them."""
    for step in steps:
        _refuse_strangers(study, step, state)
    for step in steps:
        _move_aside(study, step)
        for memory in (state.done, state.begun, state.spent_s):
            memory.pop(step.name, None)
    if steps:
        _save(study.folder, state)
        _sweep(study)


def _refuse_strangers(study: Study, step: Step, state: State) -> None:
    if found := foreign_files(study, step, state):
        raise InputError(
            f"{study.folder / found[0]} does not belong to step {step.name}, whose folder must "
            "be "
            "emptied; move the file away"
        )


def _move_aside(study: Study, step: Step) -> None:
    """Rename a step's folder before deleting it, so that a kill never leaves half of it."""
    if step.owns and (study.folder / step.owns).exists():
        aside = study.folder / f".old-{step.owns}"
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(study.folder / step.owns, aside)


def _sweep(study: Study) -> None:
    for aside in study.folder.glob(".old-*"):
        shutil.rmtree(aside, ignore_errors=True)


def _run_step(study: Study, step: Step, state: State, damaged: list[str]) -> Done:
    """Clear the folder, record the start, run, record the outputs."""
    inputs, folder = inputs_of(study, step, state), study.folder
    resumes = state.begun.get(step.name) == inputs
    if damaged or not resumes:
        _refuse_strangers(study, step, state)
    if damaged and resumes and step.mends:
        # Before the state changes, so that damage from a kill here is found again.
        for name in [*damaged, *files_of(folder, step.makes[:1])]:
            (folder / name).unlink(missing_ok=True)
    elif damaged and step.owns:
        resumes = False
    if _is_resized(study, step, state):
        state.took_s.pop(step.name, None)
    if not resumes:
        _move_aside(study, step)
        state.spent_s.pop(step.name, None)
    state.done.pop(step.name, None)
    state.begun[step.name] = inputs
    _save(folder, state)
    _sweep(study)
    began, before_s = time.monotonic(), state.spent_s.get(step.name, 0.0)
    try:
        said = step.run(study)
    except BaseException:
        state.spent_s[step.name] = round(before_s + time.monotonic() - began, 2)
        _save(folder, state)
        raise
    outputs = files_of(folder, step.makes)
    if not outputs:
        raise InputError(f"{folder}: step {step.name} wrote no files")
    seconds = round(before_s + time.monotonic() - began, 2)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    done = Done(inputs=inputs, outputs=outputs, seconds=seconds, finished_at=at, said=said)
    state.done[step.name] = done
    state.spent_s.pop(step.name, None)
    # The time of a killed run is no estimate of the whole.
    state.took_s[step.name] = max(seconds, state.took_s.get(step.name, 0.0) if resumes else 0.0)
    _save(folder, state)
    return done


def refuse_seen(study: Study, steps: Sequence[Step], again_from: str | None = None) -> None:
    """Once a trial has outcomes, its cells cannot test policies that are made later."""
    names = [step.name for step in steps]
    shared = _seen(study) & {seed for pair in study.plan.checked_trial().blocks for seed in pair}
    if not shared:
        if "register" in names:
            _refuse_used(study)
        return
    state, asked_for = load_state(study.folder), _asked_for(steps, again_from)
    for step in steps[: names.index(TRIAL) if TRIAL in names else None]:
        done = state.done.get(step.name)
        changed = done is not None and done.inputs != inputs_of(study, step, state)
        if changed or step in asked_for:
            reason = why(study, step, state)[0] if changed else "requested"
            raise InputError(
                f"{study.folder}: the trial already has outcomes of seed {min(shared)}, and step "
                ""
                f"{step.name} would run again ({reason}); {FRESH}"
            )


def _seen(study: Study) -> set[int]:
    """The seeds for which the study's trial has outcomes."""
    if not has_outcomes(study.folder):
        return set()
    registered = read_registered(study.folder / TRIAL)
    return {seed for block in registered.plan.blocks for seed in block}


def _refuse_used(study: Study) -> None:
    """Refuse cells that another trial has used, before any long work starts."""
    trial, city = study.plan.checked_trial(), digest(study.plan.open_city())
    try:
        check_fresh(trial.blocks, city, *other_used_cells(study.folder))
    except InputError as error:
        raise InputError(f"{study.folder}: {error}; {FRESH}") from None


def _write_manifest(study: Study, steps: Sequence[Step], state: State) -> None:
    """Every file of the study with its hash, and the inputs of each step."""
    kept = {
        name: study.folder / name
        for name in _names(study.folder, ("**/*",))
        if name not in (STATE, MANIFEST)
    }
    manifest = Manifest(
        format="evenline-study-manifest-1",
        name=study.plan.name,
        evenline=evenline.__version__,
        steps={step.name: _made(step, state.done[step.name]) for step in steps},
        files={name: sha256(path) for name, path in kept.items()},
    )
    path = study.folder / MANIFEST
    if not path.exists() or read_json(path) != plain(manifest):
        write_record(path, manifest)


def _made(step: Step, done: Done) -> StepMade:
    return StepMade(
        title=step.title,
        inputs=done.inputs,
        made=done.digest,
        finished_at=done.finished_at,
        seconds=done.seconds,
    )
