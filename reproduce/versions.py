"""Version sensitivity: candidate against parent under other versions of SUMO, descriptive.

Runs the two methods of a closed trial's claim again, with all seeds, on some of its blocks, under
versions of SUMO other than the registered one. Nothing here is part of the registered claim.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from msgspec.structs import replace
from scipy import stats

from evenline.cli.options import (
    AddressOption,
    DocsOption,
    ExecutorOption,
    OutOption,
    WorkersOption,
    executor_of,
)
from evenline.control.outcome import Outcome
from evenline.figures.document import insert
from evenline.runs.executors import Executor
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_text
from evenline.support.records import Record, plain, read_record
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
from evenline.trial.matrix import record_path
from evenline.trial.packed import unpacked
from evenline.trial.records import Day, JobRecord
from evenline.trial.registration import TrialJob, read_trial
from reproduce.beside import closed_trial, days_beside
from reproduce.door import run

CONFIDENCE = 0.95
FILE = "versions.json"


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
    trial = closed_trial(folder)
    registered, claim = trial.registered, trial.plan.claim
    if registered.sumo is None or registered.sumo in versions:
        raise InputError(f"{folder} was registered with SUMO {registered.sumo}; choose others")
    if not 2 <= blocks <= len(trial.plan.blocks):
        raise InputError(f"{blocks} blocks: choose 2 to {len(trial.plan.blocks)}")
    jobs = {
        address: job
        for address, job in trial.jobs().items()
        if job.method in (claim.candidate, claim.parent) and job.block in trial.plan.blocks[:blocks]
    }
    days: dict[str, Mapping[str, Day | Outcome]] = {registered.sumo: _recorded(folder, jobs)}
    for version in versions:
        again = {a: replace(trial.for_executor(job), sumo=version) for a, job in jobs.items()}
        days[version] = days_beside(trial, again, out / f"{version}.json", executor)
    summaries = {}
    for version in sorted(days):
        ends = {_key(job): endpoints_of_day(days[version][a]) for a, job in jobs.items()}
        summaries[version] = summary(ends, claim.candidate, claim.parent)
    rows = {version: plain(row) for version, row in summaries.items()}
    write_text(out / FILE, to_json({"trial": trial.sha256, "versions": rows}))
    return summaries


def _recorded(folder: Path, jobs: Mapping[str, TrialJob]) -> dict[str, Day]:
    """The trial's own days."""
    with unpacked(folder) as full:
        trial = read_trial(full)
        return {a: read_record(record_path(trial, a), JobRecord).outcome for a in jobs}


def _key(job: TrialJob) -> Key:
    assert job.seed is not None, "a claim compares methods with training seeds"
    return Key(job.method, job.seed, job.block, job.cell.demand)


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
    rows = [head]
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
        rows.append(cells)
    return "\n".join([*lines, *markdown(rows)])


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the trial.")],
    sumo: Annotated[list[str], typer.Option(help="A version of SUMO; may be repeated.")],
    blocks: Annotated[int, typer.Option(help="Number of the trial's blocks to run.")] = 5,
    out: OutOption = None,
    docs: DocsOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Run candidate and parent of a closed trial under other versions of SUMO. Run it again to
    continue.
    """
    place = out or Path("results") / f"versions-{folder.name}"
    runner = executor_of(executor, address, workers)
    found = version_sensitivity(folder, sumo, blocks, place, runner)
    named = " ".join(f"--sumo {version}" for version in sumo)
    text = document(found, f"python -m reproduce.versions {folder} {named} --blocks {blocks}")
    print(text)
    if docs is not None:
        insert(docs, f"versions of {folder.name}", text)
    print(place)


if __name__ == "__main__":
    run("reproduce.versions", main)
