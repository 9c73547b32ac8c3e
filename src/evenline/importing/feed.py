"""A GTFS feed, a zip or a folder, read table by table.

Nothing is extracted: tables are read as streams, with a limit on their size, and readers keep only
the rows that they need. Every complaint is one line that names the file, and the row where there is
one. Rows are counted as a text editor shows them, with the header as row 1.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from evenline.support.errors import InputError
from evenline.support.files import SMALL_BYTES, SWELLS

MOST_BYTES = 2**28  # of one table, unpacked
LONG_TABLES = {"stop_times.txt": 2**31, "shapes.txt": 2**31}  # those of a country are large
_LONGEST_FIELD = 100_000
_LONGEST_LINE = 2**20  # that is read at once; the fields of any table are shorter
MOST_EMPTY = 1_000_000  # rows of a table that say nothing
BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError)

Row = tuple[int, tuple[str, ...]]  # its number, the values of the columns that were asked for


@dataclass(frozen=True)
class Feed:
    """A feed by its path; `members` gives the place of each table inside a zip or a folder."""

    path: Path
    members: dict[str, str]

    def has(self, table: str) -> bool:
        return table in self.members

    def rows(
        self, table: str, needed: Sequence[str], optional: Sequence[str] = ()
    ) -> Iterator[Row]:
        """The rows of a table: needed columns, then optional ones (empty where they are absent).

        Values are stripped of spaces; rows that hold nothing else are skipped.
        """
        where = f"{self.path}: {table}"
        if table not in self.members:
            raise InputError(f"{where}: missing; a GTFS feed must have it")
        with self._open(table) as stream:
            limit = LONG_TABLES.get(table, MOST_BYTES)
            raw = io.BufferedReader(_Counted(stream, where, limit))
            text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
            reader = csv.reader(iter(partial(text.readline, _LONGEST_LINE), ""))
            empty = 0
            try:
                places = _places(where, next(reader, []), needed, optional)
                for values in reader:
                    if any(map(str.strip, values)):
                        yield reader.line_num, _picked(where, reader.line_num, values, places)
                    elif (empty := empty + 1) > MOST_EMPTY:
                        raise InputError(
                            f"{where}: row {reader.line_num}: more than {MOST_EMPTY:,} empty rows; "
                            "remove them"
                        )
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: not UTF-8 text ({error.reason})") from None
            except csv.Error as error:
                raise InputError(f"{where}: row {reader.line_num}: {error}") from None
            except BROKEN as error:
                raise InputError(f"{where}: cannot be read ({error})") from None

    def _open(self, table: str) -> IO[bytes]:
        member = self.members[table]
        if self.path.is_dir():
            return open(self.path / member, "rb")
        try:
            archive = zipfile.ZipFile(self.path)
            info = archive.getinfo(member)
            if info.file_size > max(SMALL_BYTES, SWELLS * info.compress_size):
                raise InputError(
                    f"{self.path}: {table}: unpacks to {info.file_size // 2**20:,} MiB, more than "
                    f"{SWELLS} times its size, as no timetable does; pack the feed again"
                )
            return archive.open(member)
        except BROKEN as error:
            raise InputError(f"{self.path}: {table}: cannot be read ({error})") from None


def open_feed(path: Path) -> Feed:
    """Find the tables of a feed; they may be inside one folder of the zip."""
    if path.is_dir():
        names = [entry.name for entry in path.iterdir() if entry.is_file()]
    elif path.is_file():
        try:
            with zipfile.ZipFile(path) as archive:
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
        except BROKEN as error:
            raise InputError(f"{path}: not a zip file ({error})") from None
    else:
        raise InputError(f"{path}: no such feed; name a GTFS zip or folder")
    members: dict[str, str] = {}
    for name in names:
        if _climbs(name):
            raise InputError(f"{path}: {name!r} leads out of the zip; pack the feed again")
        table = PurePosixPath(name).name
        if not table.endswith(".txt"):
            continue
        if table in members:
            raise InputError(f"{path}: has {table} twice, as {members[table]} and {name}")
        members[table] = name
    return Feed(path, members)


def _climbs(name: str) -> bool:
    """Whether a name in an archive is absolute or leads to a folder above."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return ".." in parts or parts[:1] == ("/",) or bool(PureWindowsPath(name).drive)


class _Counted(io.RawIOBase):
    """A stream of bytes that refuses to be endless."""

    def __init__(self, stream: IO[bytes], where: str, limit: int) -> None:
        self._stream, self._where, self._limit, self._left = stream, where, limit, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        content = self._stream.read(len(view))
        self._left -= len(content)
        if self._left < 0:
            raise InputError(f"{self._where}: more than {self._limit // 2**20:,} MiB; too large")
        view[: len(content)] = content
        return len(content)


def _places(
    where: str, header: Sequence[str], needed: Sequence[str], optional: Sequence[str]
) -> list[int]:
    """Where the columns are, in the order asked for; -1 for an optional one that is absent."""
    names = [name.strip() for name in header]
    for name in needed:
        if name not in names:
            raise InputError(f"{where}: no column {name}")
    for name in (*needed, *optional):
        if names.count(name) > 1:
            raise InputError(f"{where}: column {name} appears twice")
    return [names.index(name) if name in names else -1 for name in (*needed, *optional)]


def _picked(where: str, row: int, values: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    """The values of some columns of a row; a short row ends in empty values."""
    picked = tuple(values[at].strip() if 0 <= at < len(values) else "" for at in places)
    for value in picked:
        if len(value) > _LONGEST_FIELD:
            raise InputError(f"{where}: row {row}: a value has {len(value):,} characters")
    return picked
