"""Run a list of jobs with one progress bar and return their answers.

The first job that fails raises an `InputError` that names it. Earlier answers have already been
passed to the caller, so none is lost.
"""

from collections.abc import Callable, Sequence
from contextlib import closing

from evenline.runs.executors import Executor, processes
from evenline.runs.job import USUAL, Answer, Job, Limits
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar


def run_days(
    jobs: Sequence[Job],
    label: str,
    horizon_s: int,
    executor: Executor | None = None,
    keep: Callable[[Job, Answer], None] = lambda job, answer: None,
    limits: Limits = USUAL,
    title: Callable[[Job], str] = lambda job: job.city,
) -> dict[Job, Answer]:
    """Return the answer of every job. The bar counts simulated seconds; `title` is the name of a
    job's city in an error.
    """
    answers: dict[Job, Answer] = {}
    simulated_s: dict[Job, int] = {}
    execute = executor or processes()
    with progress_bar(counted=False) as bar:
        task = bar.add_task(label, total=len(jobs) * horizon_s)

        def note(job: Job, now_s: int) -> None:
            simulated_s[job] = now_s
            bar.update(task, completed=sum(list(simulated_s.values())))

        # Close at once to end the other workers before the error is printed.
        with closing(execute(jobs, limits=limits, progress=note)) as results:
            for ended in results:
                if ended.answer is None:
                    raise InputError(f"{title(ended.job)}, {ended.job.name}: {ended.error}")
                answers[ended.job] = ended.answer
                keep(ended.job, ended.answer)
                note(ended.job, horizon_s)
    return answers
