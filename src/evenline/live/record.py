"""Recorded feeds: write what was polled, and play it again, bit for bit.

A recording is a folder of messages as they came, and `index.jsonl`, a log with the moment and the
SHA-256 of each. A folder of messages without an index can be played too, in the order of their
names.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta

from evenline.live.feed import LATEST_S, MOST_BYTES, FeedError, Snapshot, read_message
from evenline.live.log import Linked, Log, read_log
from evenline.live.poll import Poller
from evenline.live.tables import TABLES, table_snapshots
from evenline.support.errors import InputError
from evenline.support.files import sha256, write_bytes
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

    at_s: float
    content: bytes | Snapshot | None
    failure: str = ""

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


def record(poller: Poller, folder: Path, until_s: float, told: Callable[[str], None]) -> int:
    """Poll a feed until a moment and keep what it says; returns the number of messages."""
    recorder, kept = Recorder(folder), 0
    try:
        while time.time() < until_s:
            try:
                content = poller.poll(read_message)  # refuses what could not be played
                if content is not None:
                    recorder.keep(time.time(), content)
                    kept += 1
                told(f"{kept} messages")
            except FeedError as error:
                told(str(error))
            time.sleep(max(0.0, min(poller.wait_s, until_s - time.time())))
    finally:
        recorder.close()
    return kept


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
    last_s = 0.0
    for path in paths:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: over {MOST_BYTES:,} bytes")
        content = path.read_bytes()
        try:
            last_s = max(last_s, read_message(content).at_s)
        except FeedError as error:
            raise InputError(f"{path}: {error}") from None
        yield Polled(last_s, content)


def paced(
    polls: Iterator[Polled], speed: float, sleep: Callable[[float], None]
) -> Iterator[Polled]:
    """The same answers, `speed` times as fast as they came; 0 means at once."""
    began_s, first_s = time.monotonic(), None
    for polled in polls:
        first_s = polled.at_s if first_s is None else first_s
        if speed > 0:
            wait_s = began_s + (polled.at_s - first_s) / speed - time.monotonic()
            if wait_s > 0:
                sleep(wait_s)
        yield polled
