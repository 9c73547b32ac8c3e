"""The matrix: every job of a registered trial, run once, one sealed JSON record each.

A record is named by its job's address and written atomically. Killing the runner loses at most the
running jobs; the next run continues with the missing ones. The finished matrix has the same bytes,
except for the `run` part of a record (times, host, failed tries) and the seals over it. A job that
fails every try is quarantined by name. When all records exist, `matrix.json` lists them by block
with their hashes.
"""

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenline.control.outcome import Outcome
from evenline.runs.executors import WHOLE, Executor, Shard
from evenline.runs.job import Answer, Ended, Job
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, to_json, write_text
from evenline.support.locks import one_runner
from evenline.support.records import convert, plain, write_record
from evenline.support.records import read_record as read_file
from evenline.trial.journal import append_event, now, refuse_closed, withdrawn
from evenline.trial.records import (
    MATRIX_FORMAT,
    RECORD_FORMAT,
    JobRecord,
    Matrix,
    Quarantined,
    QuarantineEntry,
    Released,
)
from evenline.trial.registration import Trial, TrialJob, open_trial

RECORDS, QUARANTINE, MATRIX = "records", "quarantine", "matrix.json"


@dataclass(frozen=True)
class Progress:
    """The progress of a matrix: jobs by address, in order, without outcomes.

    Withdrawn jobs have no record and are not waited for.
    """

    done: dict[str, TrialJob]
    quarantined: dict[str, TrialJob]
    missing: dict[str, TrialJob]
    withdrawn: dict[str, TrialJob]

    @property
    def complete(self) -> bool:
        return not self.quarantined and not self.missing


def record_path(trial: Trial, address: str) -> Path:
    """The path of a job's record."""
    return trial.folder / RECORDS / f"{address}.json"


def quarantine_path(trial: Trial, address: str) -> Path:
    """The path of the quarantine entry of a job that has failed every try."""
    return trial.folder / QUARANTINE / f"{address}.json"


def standing(trial: Trial) -> Progress:
    """Find the done, withdrawn, quarantined and missing jobs from the files."""
    progress, gone = Progress({}, {}, {}, {}), withdrawn(trial.folder)
    for address, job in trial.jobs().items():
        if record_path(trial, address).exists():
            progress.done[address] = job
        elif job.method in gone:
            progress.withdrawn[address] = job
        elif quarantine_path(trial, address).exists():
            progress.quarantined[address] = job
        else:
            progress.missing[address] = job
    return progress


def quarantine_lines(trial: Trial, progress: Progress) -> list[str]:
    """The jobs that failed every try, with their last errors."""
    return [
        f"quarantined: {job.name}: {entry.errors[-1]}"
        for address, job in progress.quarantined.items()
        if (entry := read_file(quarantine_path(trial, address), QuarantineEntry))
    ]


# -- running --------------------------------------------------------------------------------------


def run(
    folder: Path,
    executor: Executor,
    shard: Shard = WHOLE,
    retry: bool = False,
    on_end: Callable[[TrialJob, bool], None] = lambda job, done: None,
) -> Progress:
    """Run the missing jobs of a shard (with `retry` also quarantined ones); list records when
    done.
    """
    trial = open_trial(folder)
    with one_runner(folder, "runner", shard.index, shard.count):
        before = standing(trial)
        if before.missing or before.quarantined:
            refuse_closed(folder)
        for address, job in before.done.items():
            read_record(trial, address, job)
        todo = before.missing | (before.quarantined if retry else {})
        jobs = {a: job for a, job in shard.of(trial.jobs().items()) if a in todo}
        blocks: dict[tuple[int, int], dict[Job, list[str]]] = {}
        for address, job in jobs.items():  # two methods may be the same policy
            runs = blocks.setdefault(job.block, {})
            runs.setdefault(trial.for_executor(job), []).append(address)
        for runs in blocks.values():  # a finished block can be packed while the others run
            with closing(executor(list(runs), trial.inputs, trial.plan.limits)) as results:
                for ended in results:
                    for address in runs[ended.job]:
                        on_end(jobs[address], _keep(trial, address, jobs[address], ended))
    after = standing(trial)
    if after.complete and not (folder / MATRIX).exists():
        for left_aside in (folder / RECORDS).glob(".*"):  # temporary files of killed processes
            left_aside.unlink(missing_ok=True)
        write_record(folder / MATRIX, _matrix_of(trial))
    return after


def _keep(trial: Trial, address: str, job: TrialJob, ended: Ended) -> bool:
    """Write a job's record, or quarantine it. Returns True if it is done."""
    errors = [failure.message for failure in ended.failures]
    if ended.answer is not None:
        record = _make_record(trial, job, ended.answer, ended)
        problem = _difference(trial, job, convert(JobRecord, record, f"answer of {job.name}"))
        if problem is None:
            if not record_path(trial, address).exists():
                write_text(record_path(trial, address), to_json(record))
            if quarantine_path(trial, address).exists():
                append_event(trial.folder, Released(job=address, name=job.name))
                quarantine_path(trial, address).unlink()
            return True
        errors.append(problem)
    entry = QuarantineEntry(job=address, name=job.name, at=now(), errors=tuple(errors))
    append_event(trial.folder, Quarantined(**plain(entry)))
    write_record(quarantine_path(trial, address), entry)
    return False


def _difference(trial: Trial, job: TrialJob, record: JobRecord) -> str | None:
    """What differs from the registration on the machine that ran a job, if anything."""
    host, registered = record.run.host["name"], trial.registered
    pairs: list[tuple[str, object, object]] = [
        ("city", record.city, registered.city.digest),
        ("policy", record.policy.digest, job.policy.digest),
        ("SUMO", record.sumo.version, registered.sumo),
        ("world", record.world, registered.world),
    ]
    if registered.versions is not None:
        pairs.append(("version of a library", record.versions, registered.versions))
    if registered.network is not None:
        pairs.append(("network", record.sumo.network, registered.network))
    if record.calibration is not None:
        pairs.append(("calibration", record.calibration, registered.calibration))
    for what, measured, wanted in pairs:
        if measured != wanted:
            return f"{host} has another {what} than registered: {measured}, not {wanted}"
    if record.evaluator not in trial.evaluators():
        return f"{host} has other source files of evenline than registered; install the same"
    return None


def _make_record(trial: Trial, job: TrialJob, answer: Answer, ended: Ended) -> dict[str, object]:
    """A job's result with everything it depends on, under two seals.

    The inner seal leaves out trial and `run`, so a repeated trial gives the same seal.
    """
    result: dict[str, object] = {
        "format": RECORD_FORMAT,
        "job": job.address,
        "method": job.method,
        "seed": job.seed,
        "cell": asdict(job.cell),
        "city": answer.city,
        "policy": plain(answer.policy),
        "world": answer.simulator.world,
        "sumo": {
            "version": answer.simulator.version,
            "options": list(answer.simulator.options),
            "network": answer.simulator.network,
        },
        "calibration": answer.calibration,
        "versions": answer.versions,
        "evaluator": answer.evaluator,
        "outcome": answer.outcome.as_dict(),
        "ledger": _ledger_totals(answer.outcome),
    }
    result["result_sha256"] = seal_of(result)
    result["trial"] = trial.sha256
    result["run"] = {
        "finished_at": now(),
        "duration_s": round(ended.duration_s, 3),
        "host": plain(answer.host),
        "failed_tries": [failure.message for failure in ended.failures],
    }
    return result | {"record_sha256": seal_of(result)}


def _ledger_totals(outcome: Outcome) -> dict[str, int]:
    """The passenger ledger of the day, in passenger-seconds."""
    names = ("waiting_s", "riding_s", "cost", "pre_control_cost", "token_cost")
    return {name: getattr(outcome, name) for name in names}


def seal_of(value: Any) -> str:
    """The SHA-256 of a value in the form of our files."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()


# -- reading --------------------------------------------------------------------------------------


def read_record(trial: Trial, address: str, job: TrialJob) -> JobRecord:
    """Read a record and check that it belongs to its job, or raise an error."""
    path = record_path(trial, address)
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != RECORD_FORMAT:
        raise InputError(f"{path}: format is not {RECORD_FORMAT!r}")
    bare = {key: value for key, value in content.items() if key != "record_sha256"}
    if content.get("record_sha256") != seal_of(bare):
        raise InputError(f"{path} has changed since it was written (its seal differs)")
    record = convert(JobRecord, content, str(path))
    expected: dict[str, object] = {"trial": trial.sha256, "job": address}
    expected |= {"method": job.method, "seed": job.seed}
    expected |= {"cell": job.cell, "city": trial.registered.city.digest}
    for key, value in expected.items():
        if getattr(record, key) != value:
            raise InputError(f"{path} has another {key} than its job: {content[key]!r}")
    if problem := _difference(trial, job, record):
        raise InputError(f"{path}: {problem}")
    return record


def _matrix_of(trial: Trial) -> Matrix:
    """Every record's hash by block, and one hash for all results, without times and hosts."""
    blocks: dict[str, dict[str, str]] = {}
    results = {}
    for address, job in standing(trial).done.items():
        record = read_record(trial, address, job)
        block = blocks.setdefault("{}-{}".format(*job.block), {})
        block[address] = sha256(record_path(trial, address))
        results[address] = record.result_sha256
    return Matrix(
        format=MATRIX_FORMAT, trial=trial.sha256, blocks=blocks, jobs=len(results),
        results_sha256=seal_of(results),
    )  # fmt: skip


def read_matrix(trial: Trial) -> Matrix:
    """Read the list of records that was written when the last job was done."""
    return read_file(trial.folder / MATRIX, Matrix, MATRIX_FORMAT)


def finished(trial: Trial) -> dict[str, JobRecord]:
    """All records of a complete matrix, each as it was when the matrix was finished."""
    progress = standing(trial)
    if not progress.complete:
        left, jobs = len(progress.missing) + len(progress.quarantined), trial.registered.jobs
        raise InputError(
            f"{trial.folder}: {left} of {jobs} jobs are not done, and outcomes stay sealed until "
            "they are; continue with: evenline trial run"
        )
    if not (trial.folder / MATRIX).exists():
        raise InputError(f"{trial.folder} has no {MATRIX} yet; run: evenline trial run")
    listed = read_matrix(trial).blocks
    records = {}
    for address, job in progress.done.items():
        path = record_path(trial, address)
        if listed["{}-{}".format(*job.block)].get(address) != sha256(path):
            raise InputError(f"{path} has changed since the matrix was finished (SHA-256 differs)")
        records[address] = read_record(trial, address, job)
    return records
