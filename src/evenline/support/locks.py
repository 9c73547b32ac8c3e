"""Locks between processes. A lock ends with the process that holds it.

The file of a lock stays and blocks nobody; only a block that fails removes the file and the folders
that it created. We use the system's locks (`flock`): they can be shared, which the shards of one
folder need, and a killed process leaves none behind.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from evenline.support.errors import InputError
from evenline.support.files import no_empty_parents


@contextmanager
def locked(path: Path, mode: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Wait for a lock and hold it; creates its folder."""
    with no_empty_parents(path), ExitStack() as files:
        while True:
            is_new = not path.exists()
            file = files.enter_context(path.open("w"))
            fcntl.flock(file, mode)
            # A process that failed may have removed the file while we waited for it.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                break
        try:
            yield
        except BaseException:
            if is_new:
                with suppress(OSError):  # others share the lock
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            raise


@contextmanager
def one_runner(folder: Path, who: str, index: int = 1, count: int = 1) -> Iterator[None]:
    """Allow one runner per shard of a folder, or one runner of the whole folder."""
    if count == 1:
        modes = {".lock": fcntl.LOCK_EX}
    else:
        modes = {".lock": fcntl.LOCK_SH, f".lock-{index}-of-{count}": fcntl.LOCK_EX}
    with ExitStack() as locks:
        for name, mode in modes.items():
            try:
                locks.enter_context(locked(folder / name, mode | fcntl.LOCK_NB))
            except BlockingIOError:
                raise InputError(
                    f"{folder}: another {who} is running here; wait until it ends"
                ) from None
        yield
