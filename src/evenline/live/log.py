"""An append-only file of JSON lines, each with the hash of the line before it.

Lines are durable when `sync` returns. A kill leaves whole lines and at most one torn line. Opening
the file again cuts that off, and with it a group of lines whose last one is missing. A line that
was changed, removed or inserted later is detected.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from evenline.support.errors import InputError
from evenline.support.files import from_json, refuse_special, sync_folder
from evenline.support.records import Record, Sha256, convert

FIRST = "0" * 64
MOST_LINE = 2**25
T = TypeVar("T")


class Linked(Record):
    """A line of a log; `previous` is the SHA-256 of the line before it."""

    previous: Sha256 = FIRST


def read_log(path: Path, kind: Any, torn: bool = False) -> Iterator[tuple[bytes, Any]]:
    """Every line of a log with its entry, checked. With `torn`, an unfinished last line is left
    out.
    """
    before = FIRST
    refuse_special(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    with file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            if not line.endswith(b"\n"):
                if torn and file.read(1) == b"":
                    return
                raise InputError(f"{path}: line {number} is not complete; cut it off")
            try:
                value = from_json(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}: line {number} is not valid JSON ({error})") from None
            entry = convert(kind, value, f"{path}: line {number}")
            if entry.previous != before:
                raise InputError(
                    f"{path}: line {number} does not contain the hash of the line before it; "
                    "the file was changed"
                )
            before = hashlib.sha256(line).hexdigest()
            yield line, entry


class Log(Generic[T]):
    """A log that is open for more entries; one process at a time.

    An entry of the type `opens` begins a group that one of the type `closes` ends.
    """

    entries: list[T]  # what it contained when it was opened

    def __init__(
        self, path: Path, kind: Any, opens: type | None = None, closes: type | None = None
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.entries = path, []
        self._waiting: list[bytes] = []
        self._previous, size = FIRST, 0
        group: tuple[str, int, int] | None = None  # the state before a group that is not whole
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for line, entry in read_log(path, kind, torn=True):
                if opens is not None and isinstance(entry, opens):
                    group = self._previous, size, len(self.entries)
                elif closes is not None and isinstance(entry, closes):
                    group = None
                self._previous = hashlib.sha256(line).hexdigest()
                size += len(line)
                self.entries.append(entry)
            if group is not None:
                self._previous, size, whole = group
                del self.entries[whole:]
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)
            os.fsync(self._file)
            sync_folder(path.parent)
        except BlockingIOError:
            os.close(self._file)
            raise InputError(
                f"{path}: another process is writing to it; wait until it ends"
            ) from None
        except BaseException:
            os.close(self._file)
            raise

    def add(self, entry: Any) -> None:
        """Add an entry; it is durable after the next `sync`."""
        line = msgspec.json.encode(msgspec.structs.replace(entry, previous=self._previous)) + b"\n"
        self._previous = hashlib.sha256(line).hexdigest()
        self._waiting.append(line)

    def sync(self) -> None:
        """Write the added entries to the disk."""
        if self._waiting:
            content, self._waiting = b"".join(self._waiting), []
            while content:
                content = content[os.write(self._file, content) :]
            os.fsync(self._file)

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        os.close(self._file)
