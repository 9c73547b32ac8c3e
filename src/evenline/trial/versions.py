"""Version sensitivity: candidate against parent under other versions of SUMO, descriptive.

Runs the two methods of a finished trial's claim again, with all seeds, on some of its blocks, under
versions of SUMO other than the registered one. Each day is stored, so an interrupted run continues.
Nothing here is part of the registered claim.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from scipy import stats

from evenline.city.tables import load_city
from evenline.figures.document import insert
from evenline.runs.days import run_days
from evenline.runs.executors import Executor, processes
from evenline.runs.job import Answer
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_text
from evenline.support.records import Record, plain, read_record, write_record
from evenline.trial.analyse import (
    ENDPOINTS,
    Endpoints,
    Figures,
    Key,
    by_block,
    differences,
    endpoints_of_day,
    figures,
    means,
)
from evenline.trial.matrix import finished, record_path, standing
from evenline.trial.records import JobRecord
from evenline.trial.registration import CLOSEOUT, Job, Trial, open_trial, read_trial
from evenline.trial.verify import verify

CONFIDENCE = 0.95


class Version(Record):
    """Candidate minus parent under one version of SUMO; half the width of intervals over blocks."""

    candidate: Figures
    parent: Figures
    difference: Figures
    half_width: Figures
    by_level: dict[str, Figures]
    favourable_blocks: int
    blocks: int


def version_sensitivity(
    folder: Path, versions: Sequence[str], blocks: int, out: Path, executor: Executor | None = None
) -> dict[str, Version]:
    """Run the missing days, and compare every version with the registered one."""
    trial, records = _finished(folder)
    registered, claim = trial.registered, trial.plan.claim
    if registered.sumo is None or registered.sumo in versions:
        raise InputError(f"{folder} was registered with SUMO {registered.sumo}; choose others")
    if not 2 <= blocks <= len(trial.plan.blocks):
        raise InputError(f"{blocks} blocks: choose 2 to {len(trial.plan.blocks)}")
    first = trial.plan.blocks[:blocks]
    jobs = {
        address: job
        for address, job in trial.jobs().items()
        if job.method in (claim.candidate, claim.parent) and job.block in first
    }
    found = {
        registered.sumo: {
            _key(job): endpoints_of_day(records[a].outcome) for a, job in jobs.items()
        }
    }
    for version in versions:
        answers = _run(trial, jobs, version, out, executor)
        found[version] = {
            _key(job): endpoints_of_day(answers[a].outcome) for a, job in jobs.items()
        }
    summaries = {
        version: summary(found[version], claim.candidate, claim.parent) for version in sorted(found)
    }
    write_text(out / "versions.json", to_json({v: plain(row) for v, row in summaries.items()}))
    return summaries


def _finished(folder: Path) -> tuple[Trial, dict[str, JobRecord]]:
    """A finished trial with its records; a closed one may be older than our source."""
    if not (folder / CLOSEOUT).exists():
        trial = open_trial(folder)
        return trial, finished(trial)
    for problem in verify(folder).problems:
        raise InputError(f"{folder}: {problem}")
    trial = read_trial(folder)
    return trial, {a: read_record(record_path(trial, a), JobRecord) for a in standing(trial).done}


def _key(job: Job) -> Key:
    assert job.seed is not None, "a claim compares methods with training seeds"
    return Key(job.method, job.seed, job.block, job.cell.demand)


def _run(
    trial: Trial, jobs: dict[str, Job], version: str, out: Path, executor: Executor | None
) -> dict[str, Answer]:
    """The answers of all jobs under a version, by address; reads those that exist."""
    paths = {address: out / version / f"{address}.json" for address in jobs}
    orders = {
        replace(trial.order(job), sumo=version): address
        for address, job in jobs.items()
        if not paths[address].exists()
    }
    if orders:
        run_days(
            list(orders),
            f"SUMO {version}",
            load_city(trial.inputs / "city").horizon_s,
            partial(executor or processes(), folder=trial.inputs),
            lambda order, answer: write_record(paths[orders[order]], answer),
            trial.plan.limits,
        )
    return {address: read_record(path, Answer) for address, path in paths.items()}


def summary(endpoints: Endpoints, candidate: str, parent: str) -> Version:
    """Means, differences, and the half width of Student's interval over blocks."""
    pairs = differences(endpoints, candidate, parent)
    blocks = {name: [float(d) for d in by_block(pairs, name)] for name in ENDPOINTS}
    count = len(blocks["generalized_s"])
    scale = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1)) / count**0.5
    return Version(
        candidate=figures(means(endpoints, method=candidate)),
        parent=figures(means(endpoints, method=parent)),
        difference=figures(means(pairs)),
        half_width=Figures(
            **{name: scale * float(np.std(d, ddof=1)) for name, d in blocks.items()}
        ),
        by_level={
            str(level): figures(means(pairs, level=level))
            for level in sorted({key.level for key in pairs})
        },
        favourable_blocks=sum(d < 0 for d in blocks["generalized_s"]),
        blocks=count,
    )


def document(summaries: dict[str, Version], command: str) -> str:
    """The table of versions, in Markdown."""
    levels = list(next(iter(summaries.values())).by_level)
    head = ["SUMO", "Parent, s", "Candidate, s", "Difference, s", "Completion, points"]
    head += [*(f"at {level}, s" for level in levels), "Blocks with less time"]
    lines = [f"Made by `{command}`. Intervals are over blocks (95 %). Descriptive.", ""]
    lines += ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for version, row in summaries.items():
        time_s, points = row.difference.generalized_s, 100 * row.difference.completion
        around_s, around = row.half_width.generalized_s, 100 * row.half_width.completion
        cells = [
            version,
            f"{row.parent.generalized_s:,.1f}",
            f"{row.candidate.generalized_s:,.1f}",
            f"{time_s:+.1f} ({time_s - around_s:+.1f} to {time_s + around_s:+.1f})",
            f"{points:+.2f} ({points - around:+.2f} to {points + around:+.2f})",
            *(f"{row.by_level[level].generalized_s:+.1f}" for level in levels),
            f"{row.favourable_blocks} of {row.blocks}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_versions(summaries: dict[str, Version], command: str, name: str, docs: Path) -> None:
    """Write the table to a document, between its marks."""
    insert(docs, f"versions of {name}", document(summaries, command))
