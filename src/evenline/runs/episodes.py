"""Runs a list of SUMO episodes under one progress bar and hands back what they came to.

The first episode that cannot be run is an `InputError` that names it; the episodes finished
before it have been handed over already, so a caller that keeps them loses nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from evenline.control.outcome import Outcome, outcome_from
from evenline.runs.pool import Job, run_jobs
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar

Answer = dict[str, Any]


def run_episodes(
    jobs: Sequence[Job],
    label: str,
    horizon_s: int,
    workers: int | None = None,
    sumo: str | None = None,
    keep: Callable[[Job, Answer], None] = lambda job, answer: None,
) -> dict[Job, Answer]:
    """Outcome and provenance of every job. The bar counts simulated seconds."""
    answers: dict[Job, Answer] = {}
    simulated_s: dict[Job, int] = {}
    with progress_bar(counted=False) as bar:
        task = bar.add_task(label, total=len(jobs) * horizon_s)

        def note(job: Job, now_s: int) -> None:
            simulated_s[job] = now_s
            bar.update(task, completed=sum(list(simulated_s.values())))

        # Closing at once, and not when the error has been printed, ends the other workers.
        with closing(run_jobs(jobs, workers, sumo, note)) as results:
            for result in results:
                if result.answer is None:
                    raise InputError(f"{result.job.city}, {result.job.name}: {result.error}")
                answers[result.job] = result.answer
                keep(result.job, result.answer)
                note(result.job, horizon_s)
    return answers


def outcome_of(answer: Answer) -> Outcome:
    """The outcome inside an answer."""
    return outcome_from(answer["outcome"])
