"""The registered trial: frozen before any outcome exists, and checked by every later command.

`register` writes a self-contained folder: `trial.json` (the claim and every hash), `inputs/`
(copies of the city's tables and the policies' bundles) and `journal.jsonl`, in which each line has
the hash of the previous line. Any later difference stops the trial and is named. Only a change of
our own source can be signed off, and then every later output shows it.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from msgspec import UNSET

import evenline
from evenline.city.demand import Cell
from evenline.city.tables import city_notes, digest, save_city
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.policies.kinds import KINDS, Spec, follows_actor
from evenline.policies.names import is_bundle
from evenline.runs.day import described_policy, evaluator_files, library_versions
from evenline.runs.job import Job
from evenline.runs.staging import stage_own, stage_policy
from evenline.support.errors import InputError, choice
from evenline.support.files import folder_files, new_folder, sha256, to_json
from evenline.support.own import load_own
from evenline.support.records import plain, write_record
from evenline.support.sources import closure, digest_of, file_hashes
from evenline.trial.journal import append_event, deviations, journal, now, refuse_closed, withdrawn
from evenline.trial.plan import GATES, Plan, about, check_levels, read_plan
from evenline.trial.records import (
    TRIAL,
    TRIAL_FORMAT,
    Deviation,
    FrozenPolicy,
    NamedCity,
    Peek,
    Registered,
    RegisteredEvent,
    Source,
    Withdrawn,
    read_registered,
)
from evenline.trial.used import Used, check_fresh, note_used, registering, used_cells_files
from evenline.trial.verify import DETACHABLE
from evenline.worlds.calibration import calibration_digest, calibration_note, save_calibration
from evenline.worlds.open import (
    CALIBRATION,
    WORLDS,
    OpenCity,
    check_world_name,
    open_city,
    open_world,
)
from evenline.worlds.sumo.network import network_sha256
from evenline.worlds.sumo.runtime import installed_version, runtime_environment

INPUTS, PLAN = "inputs", "plan.toml"


@dataclass(frozen=True, eq=False)
class TrialJob:
    """One day of the matrix: a registered policy in a cell."""

    registered: Registered
    policy: FrozenPolicy
    cell: Cell

    @property
    def method(self) -> str:
        return self.policy.method

    @property
    def seed(self) -> int | None:
        return self.policy.seed

    @cached_property
    def address(self) -> str:
        """The job's address: a hash of everything that its outcome depends on."""
        registered = self.registered
        parts = {
            "method": self.method,
            "seed": self.seed,
            "policy": self.policy.digest,
            "cell": asdict(self.cell),
            "city": registered.city.digest,
            "sumo": registered.sumo,
            "evaluator": registered.evaluator.sha256,
        }
        later = ("world", "calibration", "versions") if registered.versions is not None else ()
        for name in (*later, *(("network",) if registered.network is not None else ())):
            parts[name] = getattr(registered, name)
        return hashlib.sha256(to_json(parts).encode()).hexdigest()

    @property
    def name(self) -> str:
        seed = "" if self.seed is None else f" {self.seed}"
        return f"{self.method}{seed} {self.cell.name}"

    @property
    def block(self) -> tuple[int, int]:
        return self.cell.sumo_seed, self.cell.demand_seed


@dataclass(frozen=True)
class Trial:
    """A registered trial: its folder, the content of `trial.json`, and that file's hash."""

    folder: Path
    registered: Registered
    sha256: str

    @property
    def inputs(self) -> Path:
        return self.folder / INPUTS

    @property
    def plan(self) -> Plan:
        return self.registered.plan

    def jobs(self) -> dict[str, TrialJob]:
        """Every job by address, block by block. Equal jobs are not merged."""
        policies = self.registered.policies
        every = (TrialJob(self.registered, p, c) for c in self.plan.cells() for p in policies)
        return {job.address: job for job in every}

    def for_executor(self, job: TrialJob) -> Job:
        """A job in the form of the executors."""
        world, sumo = self.registered.world, self.registered.sumo
        return Job(city="./city", policy=job.policy.path, cell=job.cell, world=world, sumo=sumo)

    @property
    def used(self) -> Used:
        """The trial's entry in a list of used cells."""
        registered, plan = self.registered, self.plan
        return Used(
            name=plan.name, trial=self.sha256, city=registered.city.digest, blocks=plan.blocks,
            subject=registered.subject,
        )  # fmt: skip

    def evaluators(self) -> set[str]:
        """The registered hash of the evaluator, and those signed off since."""
        signed = {event.evaluator for event in deviations(self.folder)}
        return {self.registered.evaluator.sha256} | signed


# -- registering ----------------------------------------------------------------------------------


def register(
    plan_path: Path,
    folder: Path,
    used_cells: Path,
    others: Sequence[Path] = (),
    subject: str | None = None,
) -> Trial:
    """Register a plan into a folder. Runs nothing; the cells count as used from now on.

    `others` are more lists of used cells. Trials of the same `subject` may share the cells.
    """
    plan = read_plan(plan_path)
    named = None if plan.calibration is None else Path(plan.calibration)
    opened, sumo = open_city(plan.city, named), _sumo_of(plan)
    city = opened.city
    with about(f"{plan_path}: levels"):
        check_levels(city, plan.levels)
    if plan.world != "sumo":
        open_world(plan.world, opened)  # refuse a world that cannot be opened
    subject = subject or _subject(plan, opened)
    with registering(used_cells.parent, folder.parent):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} already exists; register a trial into a new folder")
        lists = dict.fromkeys((*used_cells_files(used_cells), *others))
        repeated = check_fresh(plan.blocks, digest(city), *lists, subject=subject)
        with new_folder(folder) as aside:
            inputs = aside / INPUTS
            save_city(city, inputs / "city")
            if opened.calibration is not None:
                save_calibration(inputs / "city" / CALIBRATION, opened.calibration)
            shutil.copyfile(plan_path, aside / PLAN)
            registered = Registered(
                format=TRIAL_FORMAT,
                name=plan.name,
                registered_at=now(),
                evenline=evenline.__version__,
                plan=plan,
                plan_sha256=sha256(aside / PLAN),
                city=NamedCity(name=city.name, digest=digest(city)),
                policies=_freeze_policies(plan, opened, inputs),
                world=plan.world if plan.world in WORLDS else stage_own(plan.world, inputs),
                inputs=folder_files(inputs),
                sumo=sumo,
                evaluator=_source(evaluator_files()),
                analyser=_source(analyser_files()),
                jobs=plan.jobs,
                calibration=calibration_digest(opened.calibration) if opened.calibration else None,
                versions=library_versions(),
                network=None if sumo is None else network_sha256(city, sumo),
                gates=GATES,
                subject=subject,
                repeats=tuple(dict.fromkeys(used.trial or used.name for used in repeated)),
            )
            write_record(aside / TRIAL, registered)
            os.chmod(aside / TRIAL, 0o444)
            trial_sha256 = sha256(aside / TRIAL)
            append_event(aside, RegisteredEvent(trial=trial_sha256))
            note_used(used_cells, Trial(folder, registered, trial_sha256).used)
    return open_trial(folder)


def _subject(plan: Plan, opened: OpenCity) -> str:
    """A hash of what a plan asks, wherever its files lie."""
    digests = {
        label: [policy_digest(source) for source in sources]
        for label, sources in plan.methods.items()
    }
    world = plan.world if plan.world in WORLDS else load_own(plan.world).sha256
    asked = plain(plan) | {
        "city": digest(opened.city),
        "methods": digests,
        "world": world,
        "calibration": calibration_digest(opened.calibration) if opened.calibration else None,
    }
    return hashlib.sha256(to_json(asked).encode()).hexdigest()


def _sumo_of(plan: Plan) -> str | None:
    """The SUMO version of a trial in SUMO; refuses a version that is not installed."""
    check_world_name(plan.world)
    if plan.world != "sumo":
        if plan.sumo is not None:
            raise InputError(f"sumo: needs world 'sumo', but the world is {plan.world!r}")
        return None
    sumo = plan.sumo or installed_version()
    if sumo is None:
        raise InputError("SUMO is not installed here; install it with: pip install evenline")
    runtime_environment(sumo)
    return sumo


def _freeze_policies(plan: Plan, opened: OpenCity, inputs: Path) -> tuple[FrozenPolicy, ...]:
    """Copy every bundle and every rule of the user next to the city; built-ins keep their names."""
    frozen = []
    for method, sources in plan.methods.items():
        seeds = plan.seeds if len(sources) == len(plan.seeds) else (None,)
        for seed, source in zip(seeds, sources, strict=True):
            bundle = read_policy(source)
            # Refuse a policy that cannot run in this city.
            open_policy(bundle, opened.city, opened.calibration)
            path = stage_policy(source, inputs)
            copied = source if path == source else str(inputs / path)
            frozen.append(
                FrozenPolicy(
                    method=method,
                    seed=seed,
                    source=source,
                    path=path,
                    digest=policy_digest(bundle),
                    files=described_policy(copied).files,
                    stable=is_stable(bundle.spec),
                    spec=UNSET if is_bundle(source) else bundle.spec,
                )
            )
    return tuple(frozen)


def is_stable(spec: Spec) -> bool:
    """Whether a policy's training is recorded as stable; an untrained policy counts as stable.

    The training of a look-ahead is that of the actor that its forecast follows, if it does.
    """
    record = spec.provenance if isinstance(spec.provenance, dict) else {}
    if follows_actor(spec):
        record = record.get("base", {})
    elif not KINDS[spec.kind].trained:
        return True
    return isinstance(record, dict) and record.get("stable") is True


def analyser_files() -> dict[str, str]:
    """The hashes of our source files that turn outcomes into a verdict."""
    return file_hashes(closure("evenline.trial.analyse"))


def _source(files: dict[str, str]) -> Source:
    return Source(sha256=digest_of(files), files=files)


# -- comparing ------------------------------------------------------------------------------------


def open_trial(folder: Path) -> Trial:
    """Open a trial and check its folder and our source, or raise an error that names a
    difference.
    """
    trial = read_trial(folder)
    differing = _input_differences(trial)
    if differing:
        raise InputError(
            f"{folder / INPUTS / differing[0]} differs from the registered file"
            f"{_and_more(differing)}; restore it"
        )
    signed = {pair for event in deviations(folder) for pair in event.source.items()}
    unsigned = [changed[0] for changed in changed_source(trial) if changed not in signed]
    if unsigned:
        raise InputError(
            f"evenline/{unsigned[0]} differs from the registered source{_and_more(unsigned)}; "
            "restore it, or sign it off with: evenline trial note"
        )
    versions = trial.registered.versions
    if versions is not None and versions != library_versions():
        raise InputError(
            f"{folder} was registered with {_listed(versions)}, and {_listed(library_versions())} "
            "is installed; install the registered versions"
        )
    return trial


def _listed(versions: dict[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def read_trial(folder: Path) -> Trial:
    """Read a trial whose plan and registration are unchanged; our source may be another."""
    if not (folder / TRIAL).is_file():
        raise InputError(f"{folder} has no {TRIAL}; start with: evenline trial register PLAN")
    first, digest = journal(folder)[0], sha256(folder / TRIAL)
    if not isinstance(first, RegisteredEvent) or first.trial != digest:
        raise InputError(f"{folder / TRIAL} has changed since it was registered (SHA-256 differs)")
    registered = read_registered(folder)
    if sha256(folder / PLAN) != registered.plan_sha256:
        raise InputError(f"{folder / PLAN} has changed since it was registered (SHA-256 differs)")
    return Trial(folder, registered, digest)


def _input_differences(trial: Trial) -> list[str]:
    registered, present = trial.registered.inputs, folder_files(trial.inputs)
    names = sorted((registered.keys() | present.keys()) - (_not_needed(trial) - present.keys()))
    return [name for name in names if registered.get(name) != present.get(name)]


def absent_inputs(trial: Trial) -> list[str]:
    """Registered files that are gone; only the tensors of withdrawn methods may be."""
    return sorted(trial.registered.inputs.keys() - folder_files(trial.inputs).keys())


def _not_needed(trial: Trial) -> set[str]:
    """The tensors that only withdrawn methods use; they may be absent."""
    gone = withdrawn(trial.folder)
    users: dict[str, set[str]] = {}
    for policy in trial.registered.policies:
        for name in policy.files:
            users.setdefault(f"{policy.path}/{name}".removeprefix("./"), set()).add(policy.method)
    return {
        name for name, who in users.items() if who <= gone.keys() and DETACHABLE.fullmatch(name)
    }


def changed_source(trial: Trial) -> list[tuple[str, str | None]]:
    """Our files that differ from the registration, with their current hashes (None: deleted)."""
    changed: dict[str, str | None] = {}
    parts = (
        (trial.registered.evaluator, evaluator_files()),
        (trial.registered.analyser, analyser_files()),
    )
    for part, current in parts:
        registered = part.files
        for name in registered.keys() | current.keys():
            if registered.get(name) != current.get(name):
                changed[name] = current.get(name)
    return sorted(changed.items())


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


# -- journal --------------------------------------------------------------------------------------


def deviate(folder: Path, why: str, by: str) -> None:
    """Sign off the current changes of our source; without changes, record a note."""
    refuse_closed(folder)
    trial = read_trial(folder)
    if not why.strip() or not by.strip():
        raise InputError("a deviation needs a reason (--why) and a name (--by)")
    deviation = Deviation(
        why=why.strip(),
        by=by.strip(),
        source=dict(changed_source(trial)),
        evaluator=digest_of(evaluator_files()),
    )
    append_event(folder, deviation)


def withdraw(folder: Path, method: str, why: str, by: str) -> None:
    """Give up the remaining days of a control, so that the trial can be closed without them."""
    refuse_closed(folder)
    trial = read_trial(folder)
    claim, methods = trial.plan.claim, trial.plan.methods
    if method not in methods:
        raise InputError(f"unknown method {method!r}; choose {choice(methods)}")
    if method in (claim.candidate, claim.parent):
        raise InputError(f"{method} is part of the claim and cannot be withdrawn")
    if method in withdrawn(folder):
        raise InputError(f"{method} is already withdrawn")
    if not why.strip() or not by.strip():
        raise InputError("withdrawing a method needs a reason (--why) and a name (--by)")
    append_event(folder, Withdrawn(method=method, why=why.strip(), by=by.strip()))


def notices(folder: Path) -> list[str]:
    """The notices that every output shows: a world other than SUMO, the city's notes, deviations,
    broken seals.
    """
    registered = read_registered(folder)
    lines, world = [], registered.plan.world
    if world != "sumo":
        lines.append(f"run in the world {world!r}, not in SUMO")
    for trial in registered.repeats:
        lines.append(
            f"repeats trial {trial}: the same plan has used these days, so they are not fresh"
        )
    lines += input_notes(folder / INPUTS / "city", world)
    for event in journal(folder):
        if isinstance(event, Deviation):
            files = ", ".join(event.source) or "no source file"
            lines.append(f"deviation ({event.at}, {event.by}): {event.why} [{files}]")
        elif isinstance(event, Peek):
            lines.append(f"seal broken ({event.at}): outcomes of {event.records} jobs shown")
        elif isinstance(event, Withdrawn):
            lines.append(f"withdrawn ({event.at}, {event.by}): {event.method}: {event.why}")
    return lines


def input_notes(city: Path, world: str) -> list[str]:
    """The city's notes and, in the fast world, those of its calibration."""
    notes = list(city_notes(city))
    if world == "fast":
        notes.append(calibration_note(city / CALIBRATION))
    return list(dict.fromkeys(filter(None, notes)))  # a city from records has both
