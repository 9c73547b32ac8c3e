"""Locks that go with the process, however it ends: one runner a folder, or one a shard of it."""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from evenline.support.errors import InputError


@contextmanager
def one_runner(folder: Path, index: int, count: int, who: str) -> Iterator[None]:
    """One runner a shard of a folder, and none beside a runner of the whole."""
    whole = (index, count) == (1, 1)
    with ExitStack() as locks:
        for name, mode in (
            (".lock", fcntl.LOCK_EX if whole else fcntl.LOCK_SH),
            (f".lock-{index}-of-{count}", fcntl.LOCK_EX),
        ):
            if whole and name != ".lock":
                continue
            file = locks.enter_context((folder / name).open("w"))
            try:
                fcntl.flock(file, mode | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{folder}: another {who} is at work here") from None
        yield
