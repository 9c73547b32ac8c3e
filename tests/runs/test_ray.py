"""Days on a real Ray cluster of two nodes, one of which dies in the middle of a day, or both do."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.embedded import embedded_city
from evenline.city.tables import save_city
from evenline.replay.episode import read_outcome
from evenline.runs.executors import processes, ray_cluster
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.trial import matrix
from evenline.trial.registration import TrialJob
from faults import descendants, wait_until
from made import registered
from small_actors import save_actor

pytest.importorskip("ray", reason="needs evenline[ray]")
CELLS = PURPOSES["demo"].cells(2)
WORKER = "evenline.runs.worker"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: the paths of Ray's sockets have to fit in 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Node:
    """A Ray node as `ray start` makes it, on this machine."""

    def __init__(self, log: Path, *options: str) -> None:
        command = [str(Path(sys.executable).parent / "ray"), "start", "--block", *options]
        command += ["--num-cpus=1", "--node-ip-address=127.0.0.1"]
        command += ["--object-store-memory=100000000"]
        environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
        with log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        wait_until(lambda: "will now block" in log.read_text())

    @property
    def jobs(self) -> list[int]:
        """The processes of ours that run on the node."""
        return [pid for pid, said in descendants(self.process.pid).items() if WORKER in said]

    def kill(self, spare: list[int]) -> None:
        """A power cut: everything the node has started ends at once."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            if pid not in spare:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def head(short: Path) -> Iterator[tuple[str, Node]]:
    """The address of a cluster, and its head node."""
    port = free_port()
    node = Node(
        short / "head.log",
        *("--head", f"--port={port}", f"--temp-dir={short}/t", "--include-dashboard=false"),
    )
    yield f"127.0.0.1:{port}", node
    node.kill(spare=[])


@pytest.fixture
def cluster(head: tuple[str, Node], short: Path) -> Iterator[tuple[str, Node]]:
    """The address of a cluster of two nodes, and the second of them."""
    second = Node(short / "second.log", f"--address={head[0]}")
    yield head[0], second
    second.kill(spare=[])


def test_a_lost_node_costs_time_and_no_day(cluster: tuple[str, Node], tmp_path: Path) -> None:
    """The city's folder travels with the jobs, and the episodes come back."""
    address, second = cluster
    save_city(embedded_city("town"), tmp_path / "city")
    jobs = [
        Job(
            city=str(tmp_path / "city"),
            policy="headway",
            cell=cell,
            tokens=tmp_path / "back" / f"{cell.name}.parquet",
        )
        for cell in CELLS
    ]
    done: list[Job] = []
    orphans: list[int] = []
    for ended in ray_cluster(address)(jobs):
        assert ended.answer is not None, ended.error
        done.append(ended.job)
        assert ended.job.tokens is not None
        assert read_outcome(ended.job.tokens) == ended.answer.outcome
        if len(done) == 1:
            wait_until(lambda: second.jobs)
            orphans.extend(second.jobs)
            second.kill(spare=orphans)
    assert orphans, "the node was killed in the middle of a day"
    assert len(done) == len(jobs) and set(done) == set(jobs), "nothing is lost or doubled"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), 20)
    again = replace(jobs[0], tokens=tmp_path / "here.parquet")
    (here,) = processes(1)([again])
    assert here.answer is not None and jobs[0].tokens is not None
    assert (tmp_path / "here.parquet").read_bytes() == jobs[0].tokens.read_bytes()


def test_fast_days_are_those_of_this_machine_and_what_cannot_be_run_is_named(
    head: tuple[str, Node], tmp_path: Path
) -> None:
    """A rule, an actor's bundle and a rule of the user's own, beside a level that no day has."""
    (tmp_path / "own.py").write_text("def calm(bus):\n    return 12.5\n")
    actor = save_actor(tmp_path / "actor", "candidate")
    jobs = [
        Job(city="town", policy=policy, cell=cell, world="fast", arrivals=True)
        for policy in ("schedule", str(actor), f"{tmp_path / 'own.py'}:calm")
        for cell in CELLS[:2]
    ]
    wrong = replace(jobs[0], cell=Cell(1, 501, 3.0))
    there = {ended.job: ended for ended in ray_cluster(head[0])([wrong, *jobs])}
    assert there[wrong].final and "demand 3.0" in there.pop(wrong).error
    here = {ended.job: ended.answer for ended in processes(1)(jobs)}
    assert there.keys() == here.keys() == set(jobs)
    for job in jobs:
        far, near = there[job].answer, here[job]
        assert far is not None and near is not None
        assert (far.outcome, far.arrivals_s) == (near.outcome, near.arrivals_s)
        assert far.policy.digest == near.policy.digest


def test_the_jobs_of_a_cluster_that_dies_count_as_not_run(
    head: tuple[str, Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.runs.executors.RAY_SILENCE_S", 1.0)
    methods = '{ better = "schedule", worse = "zero" }'
    trial = registered(tmp_path, methods=methods, world='"fast"')
    address, node = head

    def stop(job: TrialJob, done: bool) -> None:
        assert done, "the first job"
        node.kill(spare=[])

    with pytest.raises(InputError, match=r"^Ray stopped: .*; run the same command again to"):
        matrix.run(trial.folder, ray_cluster(address), on_end=stop)
    found = matrix.standing(trial)
    assert (len(found.done), len(found.quarantined), len(found.missing)) == (1, 0, 23)
    (record,) = (matrix.record_path(trial, job) for job in found.done)
    kept = record.read_bytes()
    assert matrix.run(trial.folder, processes(1)).complete
    assert record.read_bytes() == kept


def test_a_cluster_that_is_not_there_is_said_in_one_line() -> None:
    job = Job(city="town", policy="zero", cell=CELLS[0])
    with pytest.raises(InputError, match="Ray at auto: ") as told:
        list(ray_cluster("auto")([job]))
    assert "\n" not in str(told.value)
