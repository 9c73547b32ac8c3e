"""Recorded feeds: write what was polled, and play it again, bit for bit.

A recording is a folder of messages as they came, and `index.jsonl`, a log with the moment and the
SHA-256 of each. A folder of messages without an index can be played too, in the order of their
names.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta

from evenline.live.feed import LATEST_S, MOST_BYTES, FeedError, Snapshot, read_message
from evenline.live.log import Linked, Log, read_log
from evenline.live.tables import TABLES, table_snapshots
from evenline.support.errors import InputError
from evenline.support.files import refuse_special, sha256, write_bytes
from evenline.support.records import FileName, Sha256

INDEX = "index.jsonl"
MESSAGES = (".pb", ".bin", ".gtfsrt")


class Recorded(Linked, kw_only=True):
    """A line of a recording's index."""

    at_s: Annotated[float, Meta(ge=0, le=LATEST_S)]  # when it was polled, since 1970
    name: FileName
    sha256: Sha256


class Polled(NamedTuple):
    """An answer of a feed and the moment when it came; None: it did not change or failed."""

    at_s: float  # 0: no time is known yet
    content: bytes | Snapshot | None
    failure: str = ""
    waiting: bool = False  # nobody has asked: time passes between two answers
    read_ms: float = 0.0  # how long it took to read a message that was read before

    def snapshot(self) -> Snapshot | None:
        """What the feed said, or a `FeedError` if it cannot be read."""
        return read_message(self.content) if isinstance(self.content, bytes) else self.content


class Recorder:
    """A recording that grows; a kill costs at most the message that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: Log[Recorded] = Log(folder / INDEX, Recorded)
        self._count = len(self._index.entries)

    def keep(self, at_s: float, content: bytes) -> Path:
        """Write a message and enter it into the index."""
        self._count += 1
        path = self.folder / f"{self._count:06d}.pb"
        write_bytes(path, content)
        digest = hashlib.sha256(content).hexdigest()
        self._index.add(Recorded(at_s=at_s, name=path.name, sha256=digest))
        self._index.sync()
        return path

    def close(self) -> None:
        self._index.close()


def played(source: Path, every_s: float) -> Iterator[Polled]:
    """The answers of a recording in their order: a folder of messages, or a table of positions."""
    if source.is_dir():
        yield from _messages(source)
    elif source.name.endswith(TABLES):
        for snapshot in table_snapshots(source, every_s):
            yield Polled(snapshot.at_s, snapshot)
    elif source.is_file():
        raise InputError(f"{source}: a recording is a folder or ends in {' or '.join(TABLES)}")
    else:
        raise InputError(f"{source}: no such file or folder")


def _messages(folder: Path) -> Iterator[Polled]:
    if (folder / INDEX).is_file():
        empty = True
        for _, entry in read_log(folder / INDEX, Recorded, torn=True):
            empty = False
            path = folder / entry.name
            if not path.is_file() or sha256(path) != entry.sha256:
                raise InputError(f"{path} is missing or has changed since it was recorded")
            yield Polled(entry.at_s, path.read_bytes())
        if empty:
            raise InputError(f"{folder / INDEX} has no messages")
        return
    paths = sorted(path for path in folder.iterdir() if path.suffix in MESSAGES)
    if not paths:
        raise InputError(f"{folder} has no {INDEX} and no files that end in {MESSAGES[0]}")
    yield from _in_order(_read(path) for path in paths)


def _read(path: Path) -> Snapshot:
    refuse_special(path)
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: over {MOST_BYTES:,} bytes")
    try:
        return read_message(path.read_bytes())
    except FeedError as error:
        raise InputError(f"{path}: {error}") from None


def _in_order(snapshots: Iterator[Snapshot]) -> Iterator[Polled]:
    """Messages at the times of their headers; one that is later than the next one is wrong."""
    last_s, waiting = 0.0, next(snapshots)
    for after in snapshots:
        last_s = max(last_s, min(waiting.at_s, after.at_s or waiting.at_s))
        yield Polled(last_s, waiting)
        waiting = after
    yield Polled(max(last_s, waiting.at_s), waiting)
