"""A process that runs days: reads one task per line, writes progress and one answer per task.

A task is a list of jobs that differ only in their cells, or a stranger's scenario to read. A
simulator that crashes or hangs here does no harm to other processes, and it may be any installed
version. The process ends with its
owner. Run as `python -m evenline.runs.worker`; `evenline.runs.executors` talks to it.
"""

import os
import queue
import resource
import sys
import threading
import traceback
from typing import BinaryIO

from evenline.city.tables import save_city
from evenline.policies.actor import ActorPolicy
from evenline.runs.day import Opened, open_job, run_job, run_together
from evenline.runs.job import Answer, Failure, Job, Reading, from_line, to_line
from evenline.support.errors import InputError, SimulatorError
from evenline.support.records import Record
from evenline.worlds.fast.world import FastWorld

Task = list[Job] | Reading


class Said(Record):
    """A line from the worker: the progress of the day, the answers, or the failure.

    Of a scenario, progress also has the vehicles and people still to come and the end, if it is
    known; its answer is what people should be told.
    """

    now_s: int | None = None
    left: int = 0
    end_s: int | None = None
    told: tuple[str, ...] | None = None
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


def read_scenario(wanted: Reading, out: BinaryIO) -> Said:
    """Write the city of a scenario to its folder."""

    def progress(now_s: int, left: int, end_s: int | None) -> None:
        _write(out, Said(now_s=now_s, left=left, end_s=end_s))

    from evenline.importing.scenario import import_scenario  # most workers run days only

    made = import_scenario(wanted.config, wanted.name, wanted.end_s, progress)
    save_city(made.city, wanted.out)
    return Said(told=made.remarks)


def serve(tasks: "queue.SimpleQueue[bytes]", out: BinaryIO) -> None:
    """Answer tasks until the input ends. The next task reuses what the last one opened, if
    possible.
    """
    key, opened = None, None
    while True:
        task: Task = from_line(tasks.get(), Task)  # type: ignore[arg-type]
        try:
            if isinstance(task, Reading):
                said = read_scenario(task, out)
            else:
                first = task[0]
                wanted = (
                    *(first.city, first.policy, first.world, first.calibration),
                    *(first.visits is None, first.as_usual),
                )
                if opened is None or key != wanted:
                    key, opened = wanted, open_job(first)
                said = run_task(task, opened, out)
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


def limit_memory(gib: float) -> None:
    """Limit the memory of this process; a limit of the user's that is smaller stays."""
    limits = (int(gib * 2**30), *resource.getrlimit(resource.RLIMIT_AS))
    most = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Serve tasks until standard input ends; the argument is the memory to use, in GiB."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # only answers go to the answer channel, whatever the user's code prints
    limit_memory(float(sys.argv[1]))
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    serve(tasks, out)


if __name__ == "__main__":
    main()
