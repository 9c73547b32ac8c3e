"""A trial on a real Ray cluster of two nodes, one of which dies in the middle of a job."""

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

from evenline.runs.executors import ray_cluster
from evenline.support.errors import InputError
from evenline.trial.evidence import write_analysis
from evenline.trial.matrix import run
from evenline.trial.registration import Job, journal
from evenline.trial.verify import verify
from faults import descendants, wait_until
from made import registered

pytest.importorskip("ray", reason="needs evenline[ray]")
SIX = {  # 2 methods x 3 blocks
    "seeds": "[1]",
    "levels": "[0.75]",
    "blocks": "{ sumo_seed = 9101, demand_seed = 9201, count = 3 }",
    "claim": '{ candidate = "better", parent = "worse", level = "0.125" }',
}
JOB = "evenline.runs.trial_job"


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
        return [pid for pid, said in descendants(self.process.pid).items() if JOB in said]

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
def cluster(short: Path) -> Iterator[tuple[str, Node]]:
    """The address of a cluster of two nodes, and the second of them."""
    port = free_port()
    head = Node(
        short / "head.log",
        *("--head", f"--port={port}", f"--temp-dir={short}/t", "--include-dashboard=false"),
    )
    second = None
    try:
        second = Node(short / "second.log", f"--address=127.0.0.1:{port}")
        yield f"127.0.0.1:{port}", second
    finally:
        for node in (second, head):
            if node is not None:
                node.kill(spare=[])


def test_a_lost_node_costs_time_and_no_record(cluster: tuple[str, Node], tmp_path: Path) -> None:
    address, second = cluster
    trial = registered(tmp_path, **SIX)
    done: list[str] = []
    orphans: list[int] = []

    def lose_the_second_node(job: Job, finished: bool) -> None:
        assert finished
        done.append(job.address)
        if len(done) == 1:
            wait_until(lambda: second.jobs)
            orphans.extend(second.jobs)
            second.kill(spare=orphans)

    found = run(trial.folder, ray_cluster(address), on_end=lose_the_second_node)
    assert orphans, "the node was killed in the middle of a job"
    assert found.complete
    assert sorted(done) == sorted(trial.jobs()), "nothing is lost and nothing doubled"
    assert [event.event for event in journal(trial.folder)] == ["registered"]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), 20)
    write_analysis(trial.folder)
    assert verify(trial.folder).problems == []


def test_a_cluster_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    trial = registered(tmp_path, **SIX)
    with pytest.raises(InputError, match="Ray at auto: "):
        run(trial.folder, ray_cluster("auto"))
