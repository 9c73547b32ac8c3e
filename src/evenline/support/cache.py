"""Cached folders: made once, checked before each use, and made again if they are damaged.

The name of a cached folder says what it was made from, so the first process that makes it puts it
in place, whole, and nobody replaces it. Its list of hashes (`.evenline.json`) says what its files
must be, and which folder it belongs to. Caches of Python inside it do not count.
"""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from evenline.support.errors import InputError
from evenline.support.files import (
    LISTING,
    folder_files,
    listing_of,
    moved_aside,
    new_folder,
    to_json,
    write_text,
)
from evenline.support.locks import locked
from evenline.support.notice import note


class Damaged(InputError):
    """A cached folder is not there, or not as it was filled."""


def cached_folder(folder: Path, fill: Callable[[Path], None]) -> dict[str, str]:
    """Fill a folder unless it is there, and return the SHA-256 of its files by path.

    One process fills it and the others wait. A folder that is not as it was filled is removed and
    filled again, and a line says so.
    """
    folder = folder.resolve()
    with suppress(Damaged):
        return checked_folder(folder)
    try:
        with locked(folder.with_name(f".{folder.name}.lock")):
            _fill(folder, fill)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{folder}: the cached folder cannot be made ({why})") from None
    return checked_folder(folder)


def _fill(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder unless another process was first; the caller has its lock."""
    try:
        checked_folder(folder)
    except Damaged as damage:
        if os.path.lexists(folder):
            note(f"{damage}; it is made again")
            with moved_aside(folder):  # its name first, so that nobody finds half of it
                pass
        with new_folder(folder, _unless_there) as aside:
            fill(aside)
            listing = {name: [digest] for name, digest in _files(aside).items()}
            write_text(aside / LISTING, to_json(listing | {LISTING: [folder.name]}))


def checked_folder(folder: Path) -> dict[str, str]:
    """The SHA-256 of a cached folder's files by path; raises `Damaged` unless all are right."""
    try:
        listing, files = listing_of(folder), _files(folder)
    except (InputError, OSError) as error:
        raise Damaged(str(error)) from None
    if not listing:
        raise Damaged(f"{folder} has no list of its files")
    if listing.pop(LISTING, [folder.name]) != [folder.name]:  # older lists do not say it
        raise Damaged(f"{folder} has the files of another folder")
    for name in sorted(listing.keys() | files.keys()):
        if listing.get(name) != [files.get(name)]:
            raise Damaged(f"{folder / name} is not what was put there")
    return files


def _files(folder: Path) -> dict[str, str]:
    files = folder_files(folder)
    return {n: digest for n, digest in files.items() if n != LISTING and "__pycache__" not in n}


def _unless_there(aside: Path, folder: Path) -> None:
    """Give a filled folder its name unless another process was first."""
    try:
        os.rename(aside, folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        shutil.rmtree(aside)
