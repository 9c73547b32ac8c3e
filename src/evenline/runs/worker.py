"""A process that runs days: one task a line in, progress and one answer a task out.

A task is a list of jobs that share everything but their cells. A simulator may crash or hang here
without taking anyone else down, and may be of any installed version. The process ends when its
owner does. Run as `python -m evenline.runs.worker`; `evenline.runs.executors` talks to it.
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
    """A line from the worker: how far the day is, the answers, or why there are none."""

    now_s: int | None = None
    answers: tuple[Answer, ...] | None = None
    failure: Failure | None = None


def run_task(jobs: list[Job], opened: Opened, out: BinaryIO) -> Said:
    """Run the jobs of a task; a fleet where one call can decide for all."""
    fast = isinstance(opened.world, FastWorld)
    files = any(job.tokens is not None or job.visits is not None for job in jobs)
    try:
        if fast and isinstance(opened.policy, ActorPolicy) and not files:
            return Said(answers=tuple(run_together(jobs, opened)))

        def told(now_s: int) -> None:
            _write(out, Said(now_s=now_s))

        return Said(answers=tuple(run_job(job, opened, told) for job in jobs))
    finally:
        opened.close()


def serve(tasks: "queue.SimpleQueue[bytes]", out: BinaryIO) -> None:
    """Answer tasks for ever. What the last task had opened is used again where it can be."""
    key, opened = None, None
    while True:
        jobs = from_line(tasks.get(), list[Job])
        first = jobs[0]
        wanted = (first.city, first.policy, first.world, first.calibration, first.visits is None)
        try:
            if opened is None or key != wanted:
                key, opened = wanted, open_job(first)
            said = run_task(jobs, opened, out)
        except SimulatorError as error:
            said = Said(failure=Failure(kind="simulator", message=str(error)))
        except InputError as error:
            said = Said(failure=Failure(kind="input", message=str(error)))
        except MemoryError:
            said = Said(failure=Failure(kind="memory", message="out of the memory it may use"))
        except (
            Exception
        ) as error:  # of ours, or of the user's own code: the reason must not be lost
            last = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            message = f"{reason} ({last.filename} line {last.lineno})"
            said = Said(failure=Failure(kind="defect", message=message))
        _write(out, said)


def _write(out: BinaryIO, said: Said) -> None:
    out.write(to_line(said))
    out.flush()


def _read(tasks: "queue.SimpleQueue[bytes]") -> None:
    """Hand on the lines of standard input; when it ends, so does this process, at once."""
    for line in sys.stdin.buffer:
        tasks.put(line)
    os._exit(0)


def main() -> None:
    """Serve tasks until standard input ends; the argument is the memory to use, in GiB."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing but answers on the answer channel
    memory = int(float(sys.argv[1]) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    serve(tasks, out)


if __name__ == "__main__":
    main()
