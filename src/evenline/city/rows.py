"""Rows of CSV tables with their place, for messages, and files that must match a manifest."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from evenline.city.ranges import COLUMNS
from evenline.support.errors import InputError

T = TypeVar("T")


def csv_text(name: str, rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS[name])
    writer.writerows(rows)
    return out.getvalue()


class Row(dict[str, str]):
    """A row with its file and number, for messages."""

    def __init__(self, where: str, values: dict[str, str]) -> None:
        super().__init__(values)
        self.where = where

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


def read_content(folder: Path, name: str, hashes: dict[str, str]) -> bytes:
    """The content of a file that must be as the manifest says."""
    path = folder / name
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != hashes.get(name):
        raise InputError(
            f"{path}: does not match the SHA-256 in manifest.json; "
            "if you changed it on purpose, run: evenline city seal " + str(folder)
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
    rows = []
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(COLUMNS[name]):
            raise InputError(
                f"{path} row {number}: has {len(line)} values; expected {len(COLUMNS[name])}"
            )
        rows.append(Row(f"{path} row {number}", dict(zip(COLUMNS[name], line, strict=True))))
    return rows
