"""A process that runs days: reads one task per line, writes progress and one answer per task.

A task is a list of jobs that differ only in their cells. A simulator that crashes or hangs here
does no harm to other processes, and it may be any installed version. The process ends with its
owner. Run as `python -m evenline.runs.worker`; `evenline.runs.executors` talks to it.
"""

import os
import queue
import resource
import sys
import threading
import traceback
from typing import BinaryIO

from evenline.policies.actor import ActorPolicy
from evenline.runs.day import Opened, open_job, run_job, run_together
from evenline.runs.job import Answer, Failure, Job, from_line, to_line
from evenline.support.errors import InputError, SimulatorError
from evenline.support.records import Record
from evenline.worlds.fast.world import FastWorld


class Said(Record):
    """A line from the worker: the progress of the day, the answers, or the failure."""

    now_s: int | None = None
    answers: tuple[Answer, ...] | None = None
    failure: Failure | None = None


def run_task(jobs: list[Job], opened: Opened, out: BinaryIO) -> Said:
    """Run the jobs of a task, as a fleet if one call can decide for all."""
    fast = isinstance(opened.world, FastWorld)
    files = any(job.tokens is not None or job.visits is not None for job in jobs)
    try:

        def told(now_s: int) -> None:
            _write(out, Said(now_s=now_s))

        if fast and isinstance(opened.policy, ActorPolicy) and not files:
            return Said(answers=tuple(run_together(jobs, opened, told)))
        return Said(answers=tuple(run_job(job, opened, told) for job in jobs))
    finally:
        opened.close()


def serve(tasks: "queue.SimpleQueue[bytes]", out: BinaryIO) -> None:
    """Answer tasks until the input ends. The next task reuses what the last one opened, if
    possible.
    """
    key, opened = None, None
    while True:
        jobs = from_line(tasks.get(), list[Job])
        first = jobs[0]
        wanted = (
            *(first.city, first.policy, first.world, first.calibration),
            *(first.visits is None, first.as_usual),
        )
        try:
            if opened is None or key != wanted:
                key, opened = wanted, open_job(first)
            said = run_task(jobs, opened, out)
        except SimulatorError as error:
            said = Said(failure=Failure(kind="simulator", message=str(error)))
        except InputError as error:
            said = Said(failure=Failure(kind="input", message=str(error)))
        except MemoryError:
            said = Said(failure=Failure(kind="memory", message="exceeded its memory limit"))
        except Exception as error:  # a bug of ours or of the user's code: keep the reason
            last = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            message = f"{reason} ({last.filename} line {last.lineno})"
            said = Said(failure=Failure(kind="defect", message=message))
        _write(out, said)


def _write(out: BinaryIO, said: Said) -> None:
    out.write(to_line(said))
    out.flush()


def _read(tasks: "queue.SimpleQueue[bytes]") -> None:
    """Forward the lines of standard input; exit as soon as it ends."""
    for line in sys.stdin.buffer:
        tasks.put(line)
    os._exit(0)


def main() -> None:
    """Serve tasks until standard input ends; the argument is the memory to use, in GiB."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # only answers go to the answer channel, whatever the user's code prints
    memory = int(float(sys.argv[1]) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    serve(tasks, out)


if __name__ == "__main__":
    main()
