"""What all tests share: fixtures, quick compilation, and the order of their files."""

import os
from pathlib import Path

import pytest

from door import Door, door
from evenline.city.embedded import embedded_city
from evenline.city.model import City

TESTS = Path(__file__).parent
# JAX reads these when it is imported. Programs of the tests run once and briefly: compile them
# quickly rather than well, and once for all processes.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(TESTS.parent / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# A worker takes a file at a time: begin with the long ones, so that both end together.
LONGEST_FIRST = (
    "learn/test_run.py",
    "test_docs.py",
    "rules/test_own.py",
    "test_adversarial.py",
    "experiments/test_collect.py",
    "learn/test_learning.py",
    "worlds/test_sumo_world.py",
    "cli/test_main.py",
    "learn/test_updates.py",
    "worlds/test_open.py",
    "runs/test_ray.py",
    "runs/test_executors.py",
    "test_wheel.py",
    "experiments/test_compare.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {TESTS / name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def evenline(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Door:
    """The command line, in this process; what it returns is `.done()` or `.refused("words")`."""
    return door(monkeypatch, capfd)


@pytest.fixture(scope="session")
def town() -> City:
    return embedded_city("town")
