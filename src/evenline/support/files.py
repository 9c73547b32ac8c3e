"""Atomic writing and hashing of files, and temporary folders.

A reader sees either the old content or all of the new content, even if the writer is killed.
A result's folder lists what we wrote in it (`.evenline.json`); what is not listed, or has changed
since, is replaced only by force.
"""

import fcntl
import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenline.support.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

SCRATCH, IN_USE = "evenline-", ".in-use"
EARLIER = "earlier"
LISTING = ".evenline.json"
SWELLS, SMALL_BYTES = 200, 2**25  # timetables and streets unpack to 4 to 25 times their size
CHOOSE = "move it away, choose another --out, or use --force to replace it"


def sha256(path: Path) -> str:
    """The SHA-256 of a regular file's bytes, as hex."""
    refuse_special(path)
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


def write_table(path: Path, table: "pa.Table") -> None:
    """Replace a Parquet file atomically."""
    import pyarrow as pa  # takes 0.1 s, which most commands do without
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_bytes(path, sink.getvalue().to_pybytes())


def to_json(value: Any) -> str:
    """Format a value as our JSON: readable, keys in a fixed order, no NaN."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def refuse_special(path: Path, folder: Path | None = None) -> None:
    """Refuse a device or a pipe, which may never end, and a link that leads out of a folder."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file")
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path}: is a link out of its folder; copy the file there")


def read_file(path: Path, folder: Path | None = None) -> bytes:
    """The content of a regular file, inside `folder` if given, or an error that says why not."""
    try:
        refuse_special(path, folder)
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def read_json(path: Path, folder: Path | None = None) -> Any:
    """Read a JSON file, or raise an error that says why not. Numbers must be finite."""
    try:
        return from_json(read_file(path, folder))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None


def from_json(content: bytes) -> Any:
    """The value of JSON text, or a ValueError. Numbers must be finite, and text must be whole."""
    text = content.decode()
    value = json.loads(text, parse_float=_finite, parse_constant=_finite)
    if "\\ud" in text or "\\uD" in text:  # half of a surrogate pair cannot be written again
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def refuse_foreign(target: Path, mark: str, hidden: bool = True, force: bool = False) -> None:
    """Refuse to replace a folder that is not ours: it must be empty or contain `mark`.

    Without `hidden`, a folder that contains only hidden files counts as empty. With `force`, every
    folder counts as ours.
    """
    if target.is_dir():
        if force:
            return
        there = (path for path in target.iterdir() if hidden or not path.name.startswith("."))
        if (target / mark).is_file() or not any(there):
            return
    if target.exists():
        raise InputError(f"{target} already exists and has no {mark}; choose another --out")


# -- what we wrote --------------------------------------------------------------------------------

Listing = Mapping[str, Collection[str]]  # the SHA-256 that a file may have, by relative path


def listing_of(folder: Path) -> dict[str, list[str]]:
    """What we wrote in a folder, from its `.evenline.json`; nothing if it has none."""
    path = folder / LISTING
    if not path.is_file():
        return {}
    listing = read_json(path)
    if not isinstance(listing, dict) or not all(
        isinstance(digests, list) for digests in listing.values()
    ):
        raise InputError(f"{path}: not a list of hashes by file; {CHOOSE}")
    return listing


def refuse_changed(folder: Path, listing: Listing, force: bool = False) -> None:
    """Refuse to replace a folder with anything in it that is not listed or has changed since."""
    if not folder.is_dir():
        if folder.exists():
            raise InputError(f"{folder} already exists and is not a folder; choose another --out")
        return
    if force:
        return
    folders = {parent.as_posix() for name in listing for parent in Path(name).parents}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink() and name in folders:
            continue
        if name != LISTING or not path.is_file():
            _refuse_other(path, listing.get(name, ()))


def _refuse_other(path: Path, hashes: Collection[str]) -> None:
    """Refuse to replace a file that does not have one of these hashes."""
    if not hashes or path.is_symlink() or not path.is_file():
        raise InputError(f"{path} was not written by Evenline, or by an old version; {CHOOSE}")
    if sha256(path) not in hashes:
        raise InputError(f"{path} has changed since Evenline wrote it; {CHOOSE}")


@contextmanager
def result_folder(target: Path, force: bool = False, keep: bool = False) -> Iterator[Path]:
    """A new folder that lists its files and replaces only an unchanged folder of this kind.

    With `keep`, a result that the new one replaces and differs from is kept in `earlier`.
    """
    refuse_changed(target, {} if force else listing_of(target), force)
    with new_folder(target) as aside:
        yield aside
        if keep and target.is_dir():
            _carry_over(target, aside)
        listing = {name: [digest] for name, digest in folder_files(aside).items()}
        write_text(aside / LISTING, to_json(listing))
        refuse_changed(target, {} if force else listing_of(target), force)  # after a long run


def _carry_over(target: Path, aside: Path) -> None:
    """Carry the earlier results of a folder into a new one, and its current one if it differs."""
    names = [name for name in folder_files(target) if name != LISTING]
    kept = [name for name in names if Path(name).parts[0] == EARLIER]
    for name in kept:
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target / name, aside / name)
    changed = [name for name in names if name not in kept]
    made = [name for name in folder_files(aside) if name not in kept]
    if any(name not in made or sha256(target / name) != sha256(aside / name) for name in changed):
        _keep_earlier(target, changed, aside, shutil.copyfile)


def refuse_changed_files(folder: Path, names: Collection[str], force: bool = False) -> None:
    """Refuse to replace any of these files of a folder if it is not listed or has changed."""
    if force or not folder.is_dir():
        return
    listing = listing_of(folder)
    for name in names:
        if os.path.lexists(folder / name):
            _refuse_other(folder / name, listing.get(name, ()))


def write_listed(
    folder: Path,
    contents: Mapping[str, bytes],
    force: bool = False,
    result: Collection[str] = (),
) -> None:
    """Write files into a folder and list them; refuses like `refuse_changed_files`.

    `result` names the files that belong to one result: before one of them gets other content, all
    that are there move to `earlier`. The new hash is listed before the file is replaced, next to
    the old one, so a kill in between leaves a file that is still ours.
    """
    refuse_changed_files(folder, contents, force)
    there = [name for name in result if (folder / name).is_file()]
    if any(name in there and (folder / name).read_bytes() != new for name, new in contents.items()):
        _keep_earlier(folder, there, folder, os.replace)
    listing = listing_of(folder)
    for name, content in contents.items():
        before = listing.get(name, [])[-1:]
        new = hashlib.sha256(content).hexdigest()
        listing[name] = [*(digest for digest in before if digest != new), new]
    write_text(folder / LISTING, to_json(listing))
    for name, content in contents.items():
        write_bytes(folder / name, content)


def _keep_earlier(
    source: Path, names: Sequence[str], target: Path, put: Callable[[Path, Path], object]
) -> None:
    """Put an earlier result's files into `earlier` of a folder, under a hash of them; say so."""
    hashes = "".join(sha256(source / name) for name in sorted(names))
    place = Path(EARLIER) / hashlib.sha256(hashes.encode()).hexdigest()[:8]
    for name in names:
        (target / place / name).parent.mkdir(parents=True, exist_ok=True)
        put(source / name, target / place / name)
    print(f"the earlier result of {source} is kept in {source / place}", file=sys.stderr)


# -- folders --------------------------------------------------------------------------------------


@contextmanager
def no_empty_parents(path: Path) -> Iterator[None]:
    """Create a path's parent folders; if the block fails, remove those that are empty again."""
    missing = [parent for parent in path.absolute().parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty: something was written there
            for parent in missing:
                parent.rmdir()
        raise


@contextmanager
def moved_aside(folder: Path) -> Iterator[None]:
    """Take a folder out of its place, and remove it after the block; if that fails, put it back."""
    retired = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    os.replace(folder, retired / "old")
    try:
        yield
    except BaseException:
        os.replace(retired / "old", folder)
        retired.rmdir()
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _put_in_place(aside: Path, target: Path) -> None:
    """Replace a folder by renaming; if that fails, the old one gets its name back."""
    with moved_aside(target) if target.exists() else nullcontext():
        os.replace(aside, target)


@contextmanager
def new_folder(
    target: Path, put_in_place: Callable[[Path, Path], None] = _put_in_place
) -> Iterator[Path]:
    """Fill a temporary folder; it gets its name only when the block ends without error.

    An existing folder of that name is replaced only then, or kept if `put_in_place` says so.
    """
    target = target.resolve()  # a link stays, and its folder is replaced
    with no_empty_parents(target):
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
            put_in_place(aside, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder. Creating one also removes the folders of processes that were killed.

    The owner holds a lock inside while it lives, so no other process removes the folder. A folder
    whose owner dies before it has its lock stays.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        super().__init__(prefix=SCRATCH)
        folder = Path(self.name, ".new")
        self._lock = folder.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        folder.rename(folder.with_name(IN_USE))  # it has its lock before others can see it

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
