"""Runs SUMO episodes in worker processes: as many as there are cores, retried, never in silence.

A worker that dies or falls silent is replaced and its episode tried again up to a limit; what
then still fails is returned by name, and the rest goes on.
"""

import json
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenline.city.demand import Cell
from evenline.rules.behaviours import Rule
from evenline.worlds.sumo.runtime import runtime_environment

TRIES = 3
SILENCE_S = 120.0


@dataclass(frozen=True)
class Job:
    """One episode to run, and the files to write (tokens and stop visits, each if named).

    `explain` adds the account of every decision to the stop visits.
    """

    city: str
    cell: Cell
    rule: Rule
    tokens: Path | None = None
    visits: Path | None = None
    explain: bool = False

    @property
    def name(self) -> str:
        return f"{self.rule.name} {self.cell.name}"

    def line(self) -> str:
        """The job as a worker reads it."""
        return json.dumps(
            {
                "city": self.city,
                "cell": asdict(self.cell),
                "rule": asdict(self.rule),
                "tokens": str(self.tokens) if self.tokens else None,
                "visits": str(self.visits) if self.visits else None,
                "explain": self.explain,
            }
        )


@dataclass(frozen=True)
class Result:
    """How a job ended: an answer, or the reason why there is none."""

    job: Job
    answer: dict[str, Any] | None
    error: str | None
    seconds: float
    tries: int
    final: bool = False  # the input itself is at fault: no use in trying again


Progress = Callable[[Job, int], None]


def run_jobs(
    jobs: Sequence[Job],
    workers: int | None = None,
    sumo: str | None = None,
    progress: Progress = lambda job, now_s: None,
    silence_s: float = SILENCE_S,
) -> Generator[Result, None, None]:
    """Run all jobs and yield each result as it comes. Closing the iterator ends the workers."""
    environment = runtime_environment(sumo)
    todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    done: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    count = min(len(jobs), workers or os.cpu_count() or 1)
    threads = [
        threading.Thread(
            target=_serve, args=(todo, done, stop, environment, progress, silence_s), daemon=True
        )
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in jobs:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _serve(
    todo: "queue.SimpleQueue[Job]",
    done: "queue.SimpleQueue[Result | BaseException]",
    stop: threading.Event,
    environment: dict[str, str],
    progress: Progress,
    silence_s: float,
) -> None:
    worker: _Worker | None = None
    try:
        while not stop.is_set():
            try:
                job = todo.get_nowait()
            except queue.Empty:
                return
            began, result = time.monotonic(), None
            for tries in range(1, TRIES + 1):
                worker = worker or _Worker(environment)
                answer, error, final = worker.ask(job, progress, stop, silence_s)
                if worker.process.poll() is not None or (error and not final):
                    worker.end()
                    worker = None
                result = Result(job, answer, error, time.monotonic() - began, tries, final)
                if answer is not None or final or stop.is_set():
                    break
            if result is not None and not stop.is_set():
                done.put(result)
    except BaseException as error:  # a defect in here must not leave the caller waiting
        done.put(error)
    finally:
        if worker is not None:
            worker.end()


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "evenline.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | {"NUMBA_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ, "out")
        self.selector.register(self.process.stderr, selectors.EVENT_READ, "err")
        self.buffer, self.errors = b"", b""

    def ask(
        self, job: Job, progress: Progress, stop: threading.Event, silence_s: float
    ) -> tuple[dict[str, Any] | None, str | None, bool]:
        """(answer, error, final): hand over a job and wait for the answer, or for a reason."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(job.line().encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None, self._epitaph(), False
        heard = time.monotonic()
        while not stop.is_set():
            for key, _ in self.selector.select(timeout=0.2):
                chunk = os.read(key.fd, 65536)
                if key.data == "err":
                    self.errors = (self.errors + chunk)[-4000:]
                    continue
                if not chunk:
                    return None, self._epitaph(), False
                heard = time.monotonic()
                self.buffer += chunk
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                said = json.loads(line)
                if "now_s" in said:
                    progress(job, said["now_s"])
                elif "done" in said:
                    return said["done"], None, False
                else:
                    return None, said["error"], not said["error"].startswith("SUMO stopped")
            if time.monotonic() - heard > silence_s:
                return None, f"no sign of life for {silence_s:.0f} s", False
        return None, "stopped", False

    def _epitaph(self) -> str:
        code = self.process.wait()
        last = self.errors.decode(errors="replace").strip().splitlines()
        return f"the worker ended with code {code}" + (f": {last[-1]}" if last else "")

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.selector.close()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
