"""Tables of demand, as CSV: journeys, OD matrices by time band, and stop counts by half hour.

The header tells the kind of a table. Times are seconds of the city's day (`departure_s`) or of the
clock (`departure_time`), which may pass midnight as in GTFS. `COLUMNS` states what each column may
contain; any other value is refused in one line that names the file and row.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from evenline.city.ranges import SECOND, Column, Flag, Range, Words
from evenline.importing.feed import Feed
from evenline.support.errors import InputError

MOST_PEOPLE = 1_000_000  # of a table

_TIME = Words(r"[0-9]{1,3}:[0-5][0-9](:[0-5][0-9])?", "a time such as 08:05 or 08:05:30")
_NAME = Words(r".{1,200}", "1 to 200 printable characters without ..")
_COUNT = Range(0, 100_000)
COLUMNS: dict[str, Column] = {
    "departure_s": SECOND,
    "departure_time": _TIME,
    "from_s": SECOND,
    "from_time": _TIME,
    "to_s": SECOND,
    "to_time": _TIME,
    "origin": _NAME,
    "destination": _NAME,
    "min_demand": Range(0, 1_000),
    "passengers": Range(0, 1_000_000),
    "service_id": _NAME,
    "route_id": _NAME,
    "direction_id": Flag(),
    "stop_id": _NAME,
    "boardings": _COUNT,
    "alightings": _COUNT,
}
# In each place of a header, one of these groups of columns.
_KINDS: dict[str, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "journeys": (
        (("departure_s",), ("departure_time",)),
        (("origin", "destination"),),
    ),
    "matrix": (
        (("from_s", "to_s"), ("from_time", "to_time")),
        (("origin", "destination", "passengers"),),
    ),
    "counts": (
        (("service_id",), ("route_id", "direction_id")),
        (("stop_id",),),
        (("from_s",), ("from_time",)),
        (("boardings", "alightings"),),
    ),
}
_OPTIONAL = {"journeys": ("min_demand",), "matrix": (), "counts": ()}


@dataclass(frozen=True)
class DemandTable:
    """A table of demand whose header is known; `start_s` is the clock at second 0 of the day."""

    path: Path
    kind: str
    columns: tuple[str, ...]
    start_s: int

    def rows(self) -> Iterator["DemandRow"]:
        """Every row, with its values checked."""
        feed = Feed(self.path.parent, {self.path.name: self.path.name})
        for number, values in feed.rows(self.path.name, self.columns):
            where = f"{self.path} row {number}"
            row = DemandRow(where, dict(zip(self.columns, values, strict=True)), self.start_s)
            for column, value in row.values.items():
                if not COLUMNS[column].allows(value):
                    raise InputError(f"{where}: {column} {value!r} must be {COLUMNS[column]}")
            yield row


@dataclass(frozen=True)
class DemandRow:
    """The values of a row by column, and its file and number for messages."""

    where: str
    values: Mapping[str, str]
    start_s: int

    def second(self, name: str) -> int:
        """A time, as a second of the city's day; it may lie outside the day."""
        if f"{name}_s" in self.values:
            return int(float(self.values[f"{name}_s"]))
        hours, minutes, *seconds = map(int, self.values[f"{name}_time"].split(":"))
        return 3600 * hours + 60 * minutes + sum(seconds) - self.start_s

    def number(self, column: str) -> float:
        return float(self.values[column])


def open_table(path: Path, start_s: int) -> DemandTable:
    """Read the header of a table and tell its kind."""
    if not path.is_file():
        raise InputError(f"demand {str(path)!r}: no such file; name a CSV file, or write 'gravity'")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = [name.strip() for name in next(csv.reader([file.readline(10_000)]), [])]
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise InputError(f"{path}: not a CSV file ({error})") from None
    for kind, places in _KINDS.items():
        for groups in product(*places):
            columns = tuple(column for group in groups for column in group)
            if set(columns) <= set(header):
                optional = tuple(column for column in _OPTIONAL[kind] if column in header)
                return DemandTable(path, kind, columns + optional, start_s)
    raise InputError(f"{path}: the header is none of {_headers()}")


def _headers() -> str:
    """The headers that a table of demand may have, for a message."""
    texts = []
    for kind, places in _KINDS.items():
        columns = [" or ".join(",".join(group) for group in groups) for groups in places]
        texts.append(f"{kind} ({'; '.join(columns)})")
    return ", ".join(texts)
