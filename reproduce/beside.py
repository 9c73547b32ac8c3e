"""Days run beside a closed trial, which are no part of it: each once, kept in one file.

No other day may run on a trial's cells before it is closed.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from evenline.city.tables import load_city
from evenline.control.outcome import Outcome
from evenline.policies.bundle import policy_digest
from evenline.runs.days import run_days
from evenline.runs.executors import Executor, processes
from evenline.runs.job import Answer, Job
from evenline.support.errors import InputError
from evenline.support.records import Line, Record, Sha256, read_record, write_record
from evenline.trial.journal import CLOSEOUT
from evenline.trial.registration import Trial, read_trial
from evenline.trial.verify import verify


class Days(Record):
    """The content of a file: the trial, and the answers by name."""

    trial: Sha256
    days: dict[Line, Answer]


def closed_trial(folder: Path) -> Trial:
    """A closed trial, verified; it may be packed, and older than our source."""
    if not (folder / CLOSEOUT).is_file():
        raise InputError(f"{folder} is not closed, so no day may run beside it; finish it first")
    for problem in verify(folder).problems:
        raise InputError(f"{folder}: {problem}")
    return read_trial(folder)


def days_beside(
    trial: Trial, jobs: Mapping[str, Job], path: Path, executor: Executor | None = None
) -> dict[str, Outcome]:
    """Run the jobs that the file lacks, and return the outcome of each by name."""
    days = dict(_read(trial, path, jobs)) if path.exists() else {}
    missing = {job: name for name, job in jobs.items() if name not in days}

    def keep(job: Job, answer: Answer) -> None:
        days[missing[job]] = answer
        write_record(path, Days(trial=trial.sha256, days=dict(sorted(days.items()))))

    if missing:
        horizon_s = load_city(trial.inputs / "city").horizon_s
        run = partial(executor or processes(), folder=trial.inputs)
        run_days(list(missing), path.stem, horizon_s, run, keep, trial.plan.limits)
        _read(trial, path, jobs)
    return {name: days[name].outcome for name in jobs}


def _read(trial: Trial, path: Path, jobs: Mapping[str, Job]) -> dict[str, Answer]:
    """The days of a file, if they are those of the jobs."""
    kept = read_record(path, Days)
    digests = {policy.path: policy.digest for policy in trial.registered.policies}
    for name, answer in kept.days.items():
        job = jobs.get(name)
        if job is None:
            continue
        policy = digests.get(job.policy) or policy_digest(job.policy)
        asked = (trial.sha256, trial.registered.city.digest, job.cell, job.sumo, policy)
        ran = (answer.city, answer.cell, answer.simulator.version, answer.policy.digest)
        if (kept.trial, *ran) != asked:
            raise InputError(f"{path}: day {name} is not of this trial; remove the file")
    return kept.days
