"""CSV tables by column, with the file and row of each value for messages; files of a manifest.

A value has the type that `RANGES` states for its column.
"""

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from evenline.city.ranges import COLUMNS, RANGES, Column, Range
from evenline.support.errors import InputError
from evenline.support.files import read_file

T = TypeVar("T")


def csv_text(name: str, rows: Iterable[Iterable[object]]) -> str:
    """A table of a city as text, with its header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS[name])
    writer.writerows(rows)
    return out.getvalue()


@dataclass(frozen=True)
class CityTable:
    """A table as it was read: the texts of each column, and their file for messages."""

    path: Path
    texts: Mapping[str, Sequence[str]]
    rows: int

    def where(self, row: int) -> str:
        return f"{self.path} row {row + 1}"

    def column(self, name: str) -> list[Any]:
        """The values of a column, of the type that `RANGES` states."""
        allowed, texts = RANGES[self.path.name][name], self.texts[name]
        if type(allowed) is Range:  # the same as below, but fast for long tables
            joined = "".join(texts)
            if joined.isascii() and "_" not in joined:
                with suppress(ValueError):
                    values = list(map(allowed.kind, texts))
                    if all(-(2**31) < value < 2**31 for value in values):
                        return values
        return [self._value(allowed, name, row) for row in range(self.rows)]

    def columns(self) -> list[list[Any]]:
        """The values of every column, in the order of the header."""
        return [self.column(name) for name in self.texts]

    def values(self) -> Iterator[list[Any]]:
        """The values of each row."""
        return map(list, zip(*self.columns(), strict=True))

    def _value(self, allowed: Column, name: str, row: int) -> Any:
        text = self.texts[name][row]
        try:
            value: Any = allowed.read(text)
        except ValueError:
            wrong = (
                f"{text!r} is not a number" if isinstance(allowed, Range) else f"must be {allowed}"
            )
            raise InputError(f"{self.where(row)}: {name} {wrong}") from None
        if isinstance(value, int) and abs(value) >= 2**31:
            raise InputError(f"{self.where(row)}: {name} {text} is too large")
        return value

    def one_of(self, column: str, known: Mapping[str, T], what: str) -> list[T]:
        """What each text of a column stands for."""
        texts = self.texts[column]
        for row, text in enumerate(texts):
            if text not in known:
                raise InputError(f"{self.where(row)}: unknown {what} {text!r}")
        return [known[text] for text in texts]


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


def read_table(folder: Path, name: str, hashes: dict[str, str]) -> CityTable:
    """The texts of a table with the right header, all rows as wide as that."""
    path, content = folder / name, read_content(folder, name, hashes)
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig")), strict=True)
        header, *rows = reader
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file ({error})") from None
    except ValueError:
        header, rows = [], []
    if tuple(header) != COLUMNS[name]:
        raise InputError(f"{path}: the header must be {','.join(COLUMNS[name])}")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(f"{path} row {number}: has {len(row)} values; expected {len(header)}")
    return table_of(path, rows)


def table_of(path: Path, rows: Sequence[Sequence[str]] = ()) -> CityTable:
    """A table from its rows; without any, a table that a folder need not have."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS[path.name])
    return CityTable(path, dict(zip(COLUMNS[path.name], columns, strict=True)), len(rows))
