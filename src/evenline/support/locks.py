"""Locks between processes. A lock ends with the process that holds it.

The file of a lock stays and blocks nobody. We use the system's locks (`flock`): they can be shared,
which the shards of one folder need, and a killed process leaves none behind.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from evenline.support.errors import InputError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock and hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def one_runner(folder: Path, who: str, index: int = 1, count: int = 1) -> Iterator[None]:
    """Allow one runner per shard of a folder, or one runner of the whole folder."""
    if count == 1:
        modes = {".lock": fcntl.LOCK_EX}
    else:
        modes = {".lock": fcntl.LOCK_SH, f".lock-{index}-of-{count}": fcntl.LOCK_EX}
    with ExitStack() as locks:
        for name, mode in modes.items():
            file = locks.enter_context((folder / name).open("w"))
            try:
                fcntl.flock(file, mode | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{folder}: another {who} is running here; wait until it ends"
                ) from None
        yield
