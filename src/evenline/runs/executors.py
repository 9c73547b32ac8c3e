"""Executors run jobs, in processes on this machine or on a Ray cluster; a shard is one part of
them.

An executor takes jobs and yields the result of each, in any order. A job runs in a worker process
with limits of time and memory, and is tried again with the same seeds up to a limit. Days that take
milliseconds run in this process. The caller keeps the results, so a lost machine costs only time.
"""

import logging
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from evenline.policies.bundle import read_policy
from evenline.runs.day import open_job, run_job
from evenline.runs.job import USUAL, Ended, Failure, Job, Limits, Reading, from_line, to_line
from evenline.runs.staging import located, stage
from evenline.runs.worker import Said
from evenline.support.compiled import COMPILING
from evenline.support.errors import InputError, choice
from evenline.support.extras import extra
from evenline.support.files import write_bytes
from evenline.support.notice import MARK, note, note_once
from evenline.worlds.sumo.runtime import runtime_environment

T = TypeVar("T")
Progress = Callable[[Job, int], None]
Results = Generator[Ended, None, None]
Task = tuple[Job, ...]
ONE_THREAD = dict.fromkeys(
    ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
EXECUTORS = ("processes", "ray")
HERE = Path()
FLEET = 16  # days of an actor that run together
RAY_SILENCE_S = 30.0  # Ray itself ends our process after 60 s without its head node


def no_progress(job: Job, now_s: int) -> None:
    """Ignore progress."""


class Executor(Protocol):
    """Runs jobs whose paths are relative to `folder` and yields the result of each."""

    def __call__(
        self,
        jobs: Sequence[Job],
        folder: Path = HERE,
        limits: Limits = USUAL,
        progress: Progress = no_progress,
    ) -> Results: ...


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`, counted from 1, of a list of jobs: for batch queues."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        index, _, count = text.partition("/")
        if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
            raise InputError(f"shard {text!r}: write it like 2/8, from 1/8 to 8/8")
        return cls(int(index), int(count))

    def of(self, jobs: Iterable[T]) -> list[T]:
        """The jobs of this part: every `count`-th, starting with the `index`-th."""
        return list(jobs)[self.index - 1 :: self.count]


WHOLE = Shard()


def chosen_executor(name: str, address: str | None, workers: int | None) -> Executor:
    """Make the executor from a command's options."""
    if workers is not None and workers < 1:
        raise InputError(f"workers {workers}: must be at least 1")
    if name == "processes" and address is None:
        return processes(workers)
    if name == "ray":
        return ray_cluster(address or "auto")
    if name == "processes":
        raise InputError("--address needs --executor ray")
    raise InputError(f"unknown executor {name!r}; choose {choice(EXECUTORS)}")


# -- one worker -----------------------------------------------------------------------------------


class Worker:
    """The owner's end of one worker process."""

    def __init__(self, sumo: str | None, folder: Path, memory_gib: float) -> None:
        self.sumo = sumo
        self.process = subprocess.Popen(
            # -P: import nothing from the current folder
            [sys.executable, "-P", "-m", "evenline.runs.worker", str(memory_gib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=runtime_environment(sumo) | ONE_THREAD,
            start_new_session=True,  # so that we can kill it together with its children
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ, "out")
        self.selector.register(self.process.stderr, selectors.EVENT_READ, "err")
        self.buffer, self.errors, self.unfinished = b"", b"", b""

    def ask(
        self,
        task: Task | Reading,
        limits: Limits,
        progress: Callable[[Said], None],
        stop: threading.Event,
    ) -> Said | Failure:
        """Send a task and wait for its answer or its failure; progress is told on the way."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(to_line(task))
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        began = heard = time.monotonic()
        while not stop.is_set():
            for key, _ in self.selector.select(timeout=0.2):
                chunk = os.read(key.fd, 1 << 16)
                if key.data == "err":
                    self._hear(chunk)
                    if not chunk:
                        self.selector.unregister(key.fileobj)
                    continue
                if not chunk:
                    return self._died()
                heard = time.monotonic()
                self.buffer += chunk
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                try:
                    said = from_line(line, Said)
                except msgspec.MsgspecError:
                    return Failure(kind="died", message="the worker wrote an unreadable answer")
                if said.now_s is not None:
                    progress(said)
                else:
                    return said.failure or said
            if time.monotonic() - began > limits.time_s:
                return Failure(kind="time", message=f"not finished after {limits.time_s} s")
            if time.monotonic() - heard > limits.silence_s:
                message = f"no progress for {limits.silence_s:.0f} s"
                return Failure(kind="silent", message=message)
        return Failure(kind="lost", message="stopped")

    def _hear(self, chunk: bytes) -> None:
        """Keep the end of what the worker prints, and pass on what is meant for the user."""
        self.errors = (self.errors + chunk)[-4000:]
        *lines, rest = (self.unfinished + chunk).decode(errors="replace").split("\n")
        self.unfinished = rest.encode()[-4000:]
        for line in lines:
            if line.startswith(MARK):
                said = line.removeprefix(MARK).rstrip()
                (note_once if said == COMPILING else note)(said)

    def _died(self) -> Failure:
        code = self.process.wait()
        last = self.errors.decode(errors="replace").strip().splitlines()[-1:]
        message = ": ".join([f"the worker ended with code {code}", *last])
        return Failure(kind="died", message=message)

    def end(self) -> None:
        """Kill the process and its children."""
        self.selector.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        self._hear(self.process.stderr.read() or b"")
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def run_task(
    task: Task,
    worker: Worker | None,
    folder: Path,
    limits: Limits,
    progress: Progress,
    stop: threading.Event,
) -> tuple[list[Ended], Worker | None]:
    """Try a task until it succeeds or has no tries left; replace a worker that failed."""
    failures: list[Failure] = []
    began = time.monotonic()
    while len(failures) < limits.tries and not stop.is_set():
        if worker is not None and worker.sumo != task[0].sumo:
            worker.end()
            worker = None
        worker = worker or Worker(task[0].sumo, folder, limits.memory_gib)
        began = time.monotonic()
        said = worker.ask(task, limits, lambda said: progress(task[0], said.now_s or 0), stop)
        if not isinstance(said, Failure):
            seconds = (time.monotonic() - began) / len(task)
            ended = [
                Ended(job=job, answer=answer, failures=tuple(failures), duration_s=seconds)
                for job, answer in zip(task, said.answers or (), strict=True)
            ]
            return ended, worker
        failures.append(said)
        if not said.final:
            worker.end()
            worker = None
        else:
            break
    told = tuple(failures)
    seconds = time.monotonic() - began
    return [Ended(job=job, answer=None, failures=told, duration_s=seconds) for job in task], worker


# -- processes on this machine --------------------------------------------------------------------


def processes(workers: int | None = None) -> Executor:
    """Run jobs in worker processes, one per core unless `workers` is given."""

    def run(
        jobs: Sequence[Job],
        folder: Path = HERE,
        limits: Limits = USUAL,
        progress: Progress = no_progress,
    ) -> Results:
        for version in {job.sumo for job in jobs}:
            runtime_environment(version)  # refuse a version that is not installed
        tasks = yield from _quick(jobs, folder)
        if tasks:
            yield from _in_workers(tasks, workers, folder, limits, progress)

    return run


def _quick(jobs: Sequence[Job], folder: Path) -> Generator[Ended, None, list[Task]]:
    """Run days that take milliseconds here, and the others as tasks of workers."""
    tasks: list[Task] = []
    for group in grouped(jobs):
        first = located(group[0], folder)
        if not is_quick(first.world, first.policy):
            tasks += _split(group, folder)
            continue
        opened = open_job(first)
        for job in group:
            began, answer = time.monotonic(), None
            failures: tuple[Failure, ...] = ()
            try:
                answer = run_job(located(job, folder), opened)
            except InputError as error:
                failures = (Failure(kind="input", message=str(error)),)
            seconds = time.monotonic() - began
            yield Ended(job=job, answer=answer, failures=failures, duration_s=seconds)
    return tasks


def is_quick(world: str, source: str) -> bool:
    """Whether a day takes milliseconds: in the fast world, a compiled rule runs in the kernel.

    The user's own compiled code runs in a worker, which may crash.
    """
    if world != "fast":
        return False
    policy = read_policy(source)
    return policy.row is not None and policy.row.compiled and policy.code is None


def _split(group: Task, folder: Path) -> list[Task]:
    """A group as tasks: an actor's days in the fast world run as fleets, others alone."""
    first = located(group[0], folder)
    files = first.tokens is not None or first.visits is not None
    if first.world == "fast" and not files and read_policy(first.policy).kind.trained:
        return [group[i : i + FLEET] for i in range(0, len(group), FLEET)]
    return [(job,) for job in group]


def grouped(jobs: Sequence[Job]) -> list[Task]:
    """Group jobs that differ only in their cells and files, in the order of their first jobs."""
    groups: dict[object, list[Job]] = {}
    for job in jobs:
        files = (job.tokens is None, job.visits is None)
        shared = (job.city, job.policy, job.world, job.sumo, job.calibration)
        key = (*shared, job.arrivals, job.as_usual, files)
        groups.setdefault(key, []).append(job)
    return [tuple(group) for group in groups.values()]


def _in_workers(
    tasks: Sequence[Task],
    workers: int | None,
    folder: Path,
    limits: Limits,
    progress: Progress,
) -> Results:
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    done: queue.SimpleQueue[Ended | BaseException] = queue.SimpleQueue()
    stop = threading.Event()

    def serve() -> None:
        worker: Worker | None = None
        try:
            while not stop.is_set():
                try:
                    task = todo.get_nowait()
                except queue.Empty:
                    return
                ended, worker = run_task(task, worker, folder, limits, progress, stop)
                for each in () if stop.is_set() else ended:
                    done.put(each)
        except BaseException as error:  # a bug here must not leave the caller waiting
            done.put(error)
        finally:
            if worker is not None:
                worker.end()

    count = min(len(tasks), workers or os.cpu_count() or 1)
    threads = [threading.Thread(target=serve, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(sum(len(task) for task in tasks)):
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# -- a Ray cluster --------------------------------------------------------------------------------

Shipped = tuple[list[Ended], dict[str, bytes]]


def ray_cluster(address: str) -> Executor:
    """Run one task per CPU on a Ray cluster. The content of `folder` travels with the jobs.

    Files that a job writes come back with its answer and are stored on this machine. Ray tries a
    task of a lost node again. If Ray itself stops, that is an `InputError`: the jobs without a
    result did not run.
    """

    def run(
        jobs: Sequence[Job],
        folder: Path = HERE,
        limits: Limits = USUAL,
        progress: Progress = no_progress,
    ) -> Results:
        with staged(jobs, folder) as (inputs, orders), _connected(address, inputs) as ray:
            task = ray.remote(num_cpus=1, max_retries=limits.tries)(run_on_node)
            back = dict(zip(orders, jobs, strict=True))
            groups = [task for group in grouped(orders) for task in _split(group, inputs)]
            waiting = {task.remote(group, limits): group for group in groups}
            head = ray.get_runtime_context().gcs_address
            try:
                while waiting:
                    ready, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
                    if not ready:
                        _refuse_stopped(head)
                    for done in ready:
                        for each in _collected(ray, head, done, waiting.pop(done)):
                            yield replace(each, job=back[each.job])
            finally:
                for job in waiting:
                    ray.cancel(job, force=True)

    return run


def run_on_node(task: Task, limits: Limits) -> Shipped:
    """Run a task in a Ray worker; Ray has unpacked the inputs in the current folder."""
    with tempfile.TemporaryDirectory() as place:
        here, names = [], {}
        for number, job in enumerate(task):
            paths = {}
            for kind in ("tokens", "visits"):
                if (path := getattr(job, kind)) is not None:
                    paths[kind] = Path(place) / f"{number}-{kind}"
                    names[str(path)] = paths[kind]
            here.append(replace(job, **paths))
        ended, worker = run_task(tuple(here), None, Path(), limits, no_progress, threading.Event())
        if worker is not None:
            worker.end()
        back = dict(zip(here, task, strict=True))
        files = {name: path.read_bytes() for name, path in names.items() if path.exists()}
        return [replace(each, job=back[each.job]) for each in ended], files


def _refuse_stopped(head: str) -> None:
    """Raise an error if the head node of a Ray cluster does not answer for a while."""
    host, _, port = head.rpartition(":")
    until = time.monotonic() + RAY_SILENCE_S
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise _stopped(f"its head node {head} does not answer ({error})") from None
        time.sleep(0.2)


def _stopped(why: str) -> InputError:
    return InputError(f"Ray stopped: {why}; run the same command again to continue")


def _collected(ray: Any, head: str, done: Any, group: Task) -> list[Ended]:
    """The results of a task, with its files stored on this machine; a lost task is a failure."""
    try:
        ended, files = ray.get(done)
    except ray.exceptions.LocalRayletDiedError:
        raise _stopped("its process on this machine has died") from None
    except ray.exceptions.RayError as error:
        _refuse_stopped(head)
        said = (str(error).strip().splitlines() or ["no message"])[0]
        lost = (Failure(kind="lost", message=f"Ray: {said}"),)
        return [Ended(job=job, answer=None, failures=lost, duration_s=0.0) for job in group]
    for name, content in files.items():
        write_bytes(Path(name), content)
    return list(ended)


@contextmanager
def staged(jobs: Sequence[Job], folder: Path) -> Iterator[tuple[Path, list[Job]]]:
    """Copy the inputs of jobs into one folder, and return the jobs with paths inside it."""
    if folder != HERE:
        yield folder, list(jobs)
        return
    with tempfile.TemporaryDirectory(prefix="evenline-inputs-") as place:
        yield Path(place), stage(jobs, Path(place))


@contextmanager
def _connected(address: str, inputs: Path) -> Iterator[Any]:
    with extra("ray"):
        import ray
    try:
        ray.init(
            address=address,
            runtime_env={"working_dir": str(inputs.absolute())},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ConnectionError as error:
        raise InputError(f"Ray at {address}: {str(error).splitlines()[0]}") from None
    try:
        yield ray
    finally:
        ray.shutdown()
