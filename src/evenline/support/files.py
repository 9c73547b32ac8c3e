"""Atomic writing and hashing of files, and temporary folders.

A reader sees either the old content or all of the new content, even if the writer is killed.
"""

import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evenline.support.errors import InputError

SCRATCH, IN_USE = "evenline-", ".in-use"


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_files(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}


def sync_folder(folder: Path) -> None:
    """Make the names inside a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file's content atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, content: str) -> None:
    """Replace a text file atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_table(path: Path, table: pa.Table) -> None:
    """Replace a Parquet file atomically."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_bytes(path, sink.getvalue().to_pybytes())


def to_json(value: Any) -> str:
    """Format a value as our JSON: readable, keys in a fixed order, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """Read a JSON file, or raise an error that says why not. Numbers must be finite."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def refuse_foreign(target: Path, mark: str, hidden: bool = True) -> None:
    """Refuse to replace a folder that is not ours: it must be empty or contain `mark`.

    Without `hidden`, a folder that contains only hidden files counts as empty.
    """
    if target.is_dir():
        there = (path for path in target.iterdir() if hidden or not path.name.startswith("."))
        if (target / mark).is_file() or not any(there):
            return
    if target.exists():
        raise InputError(f"{target} already exists and has no {mark}; choose another --out")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a temporary folder; it gets its name only when the block ends without error.

    An existing folder of that name is replaced only then.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield aside
        aside.chmod(0o755)
        for path in sorted(aside.rglob("*")):
            if path.is_dir():
                sync_folder(path)
            else:
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(aside)
        _put_in_place(aside, target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _put_in_place(aside: Path, target: Path) -> None:
    """Replace a folder by renaming; if that fails, the old one gets its name back."""
    if not target.exists():
        os.replace(aside, target)
        return
    retired = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    os.replace(target, retired / "old")
    try:
        os.replace(aside, target)
    except BaseException:
        os.replace(retired / "old", target)
        retired.rmdir()
        raise
    shutil.rmtree(retired)


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder. Creating one also removes the folders of processes that were killed.

    The owner holds a lock inside while it lives, so no other process removes the folder. A folder
    whose owner dies before it has its lock stays.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        super().__init__(prefix=SCRATCH)
        own = Path(self.name, ".new")
        self._lock = own.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        own.rename(own.with_name(IN_USE))  # it has its lock before others can see it

    def cleanup(self) -> None:
        """Remove it now."""
        super().cleanup()
        self._lock.close()


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*/{IN_USE}"):
        with suppress(OSError):  # in use, or owned by somebody else
            lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
