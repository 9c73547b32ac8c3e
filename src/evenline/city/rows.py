"""Rows of CSV tables with their place, for messages, and files that must match a manifest."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from evenline.city.ranges import COLUMNS
from evenline.support.errors import InputError
from evenline.support.files import read_file

T = TypeVar("T")


def csv_text(name: str, rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS[name])
    writer.writerows(rows)
    return out.getvalue()


class Row:
    """A row with its file and number, for messages. Tables have many: it holds what was read."""

    __slots__ = ("_columns", "_number", "_path", "_values")

    def __init__(self, path: Path, number: int, columns: dict[str, int], values: list[str]) -> None:
        self._path, self._number = path, number
        self._columns, self._values = columns, values

    def __getitem__(self, column: str) -> str:
        return self._values[self._columns[column]]

    @property
    def where(self) -> str:
        return f"{self._path} row {self._number}"

    def number(self, column: str, kind: Callable[[str], T]) -> T:
        try:
            if not self[column].isascii() or "_" in self[column]:  # Python would read 1_0 as 10
                raise ValueError
            value = kind(self[column])
        except ValueError:
            raise InputError(f"{self.where}: {column} {self[column]!r} is not a number") from None
        if isinstance(value, int) and abs(value) >= 2**31:
            raise InputError(f"{self.where}: {column} {self[column]} is too large")
        return value

    def one_of(self, column: str, known: dict[str, T], what: str) -> T:
        if self[column] not in known:
            raise InputError(f"{self.where}: unknown {what} {self[column]!r}")
        return known[self[column]]


def numbers(rows: Sequence[Row], column: str, kind: Callable[[str], T]) -> list[T]:
    """A column as numbers; the same as `number` for every row, but fast for long tables."""
    texts = [row[column] for row in rows]
    joined = "".join(texts)
    if joined.isascii() and "_" not in joined:
        try:
            values = list(map(kind, texts))
        except ValueError:
            values = []
        if values and all(-(2**31) < value < 2**31 for value in values):  # type: ignore[operator]
            return values
    return [row.number(column, kind) for row in rows]


def read_content(folder: Path, name: str, hashes: dict[str, str]) -> bytes:
    """The content of a file that must be as the manifest says."""
    path = folder / name
    content = read_file(path, folder)
    if hashlib.sha256(content).hexdigest() != hashes.get(name):
        raise InputError(
            f"{path}: does not match the SHA-256 in manifest.json; "
            "if you changed it on purpose, run: evenline city check --seal " + str(folder)
        )
    return content


def read_table(folder: Path, name: str, hashes: dict[str, str]) -> list[Row]:
    path, content = folder / name, read_content(folder, name, hashes)
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig")), strict=True)
        lines = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file ({error})") from None
    if not lines or tuple(lines[0]) != COLUMNS[name]:
        raise InputError(f"{path}: the header must be {','.join(COLUMNS[name])}")
    columns = {column: i for i, column in enumerate(COLUMNS[name])}
    rows = []
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(COLUMNS[name]):
            raise InputError(
                f"{path} row {number}: has {len(line)} values; expected {len(COLUMNS[name])}"
            )
        rows.append(Row(path, number, columns, line))
    return rows
