"""Who runs the jobs of a trial: processes on this machine, or a Ray cluster. One small interface.

An executor takes orders by address and yields how each ended, in any order; nothing is dropped.
Wherever a job runs, it runs in a process of its own under a time and a memory limit, and is tried
again with the same seeds up to a limit. Only the caller writes records, so a lost machine costs
time and never a record.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenline.support.errors import InputError
from evenline.worlds.sumo.runtime import runtime_environment


@dataclass(frozen=True)
class Order:
    """What a process needs to know to run a job; paths are relative to the inputs' folder."""

    city: str
    policy: str
    cell: dict[str, Any]
    sumo: str | None
    time_s: float
    memory_gib: float
    tries: int


@dataclass(frozen=True)
class Ended:
    """How a job ended: an answer, or why every try failed."""

    answer: dict[str, Any] | None
    errors: tuple[str, ...]
    duration_s: float


Executor = Callable[[Mapping[str, Order], Path], Generator[tuple[str, Ended], None, None]]


class Lifeline:
    """A pipe that the processes listen to: when it is cut, or its owner dies, they end."""

    def __init__(self) -> None:
        self.listen, self._hold = os.pipe()
        self.cut = False

    def __enter__(self) -> "Lifeline":
        return self

    def __exit__(self, *_: object) -> None:
        self.cut = True
        os.close(self._hold)
        os.close(self.listen)


def run_alone(order: Order, inputs: Path, lifeline: Lifeline) -> Ended:
    """Run a job in a process of its own, again if it fails, until the tries are spent."""
    errors: list[str] = []
    while len(errors) < order.tries and not lifeline.cut:
        began = time.monotonic()
        answer, error, final = _try(order, inputs, lifeline)
        if answer is not None:
            return Ended(answer, tuple(errors), time.monotonic() - began)
        errors.append(error)
        if final:
            break
    return Ended(None, tuple(errors) or ("stopped",), 0.0)


def _try(order: Order, inputs: Path, lifeline: Lifeline) -> tuple[dict[str, Any] | None, str, bool]:
    """(answer, error, final): one process from beginning to end."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "evenline.runs.trial_job",
        ],  # -P: nothing is imported from inputs
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=inputs,
        env=runtime_environment(order.sumo) | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        pass_fds=(lifeline.listen,),
        start_new_session=True,  # so that a hang is ended together with what it started
    )
    line = json.dumps(asdict(order) | {"lifeline": lifeline.listen}) + "\n"
    try:
        out, err = process.communicate(line.encode(), timeout=order.time_s)
    except subprocess.TimeoutExpired:
        return None, f"not done after {order.time_s:.0f} s", False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    try:
        said = json.loads(out)
    except ValueError:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        return None, ": ".join([f"the process ended with code {process.returncode}", *last]), False
    if "done" in said:
        return said["done"], "", False
    # The input itself is at fault unless it was SUMO that gave up: no use in trying again.
    return None, said["error"], not said["error"].startswith("SUMO stopped")


def local(workers: int | None = None) -> Executor:
    """As many jobs at a time as there are workers, on this machine."""

    def run(orders: Mapping[str, Order], inputs: Path) -> Generator[tuple[str, Ended], None, None]:
        with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool, Lifeline() as lifeline:
            jobs = {
                pool.submit(run_alone, order, inputs, lifeline): address
                for address, order in orders.items()
            }
            try:
                for job in as_completed(jobs):
                    yield jobs[job], job.result()
            finally:
                for job in jobs:
                    job.cancel()

    return run


def ray_cluster(address: str) -> Executor:
    """One job a CPU on a Ray cluster. The inputs travel with the jobs; a lost node is no loss."""

    def run(orders: Mapping[str, Order], inputs: Path) -> Generator[tuple[str, Ended], None, None]:
        with _connected(address, inputs) as ray:
            tries = max((order.tries for order in orders.values()), default=1)
            task = ray.remote(num_cpus=1, max_retries=tries)(run_on_node)
            waiting = {task.remote(order): key for key, order in orders.items()}
            try:
                while waiting:
                    (done,), _ = ray.wait(list(waiting), num_returns=1)
                    yield waiting.pop(done), _ended(ray, done)
            finally:
                for job in waiting:
                    ray.cancel(job, force=True)

    return run


def run_on_node(order: Order) -> Ended:
    """What a Ray worker does with an order; Ray has unpacked the inputs where it stands."""
    with Lifeline() as lifeline:
        return run_alone(order, Path.cwd(), lifeline)


@contextmanager
def _connected(address: str, inputs: Path) -> Iterator[Any]:
    try:
        import ray
    except ImportError:
        raise InputError(
            "Ray is not installed; install it with: pip install 'evenline[ray]'"
        ) from None
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


def _ended(ray: Any, job: Any) -> Ended:
    try:
        ended: Ended = ray.get(job)
    except ray.exceptions.RayError as error:
        return Ended(None, (f"Ray: {(str(error).strip().splitlines() or ['no message'])[0]}",), 0.0)
    return ended
