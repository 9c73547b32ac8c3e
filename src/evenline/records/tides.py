"""TIDES tables as they lie in a folder: CSV or Parquet, also with gzip, read with their schemas.

A value that is not of its column's type is malformed: one line names the file, row and value. A
value of the right type that breaks a constraint of the schema is kept here and counted by
`evenline.records.check`. Rows are counted as a spreadsheet shows them, with the header as row 1.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from evenline.support.errors import InputError
from evenline.support.files import sha256

NAMES = ("stop_visits", "trips_performed", "passenger_events", "vehicle_locations")
_NEEDED = NAMES[:2]
FEED = "gtfs.zip"  # beside the tables
_ENDINGS = (".csv", ".csv.gz", ".txt", ".txt.gz", ".parquet")
_SCHEMAS = Path(__file__).parent / "schemas"
_MISSING = ("NA", "NaN", "")
_MOST_BYTES = 2**31  # of one table, unpacked
_FIRST_YEAR, _LAST_YEAR = 1900, 2199  # of a date or a time
_LARGEST_OFFSET_S = 14 * 3600  # of a clock from UTC
_TIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?$"
EPOCH = date(1970, 1, 1)
UTC = ("UTC", "Z", "Etc/UTC", "GMT", "+00:00", "-00:00")
_BROKEN = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError)

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Field:
    """A column of a schema: its type, whether it is required, and the values it may have."""

    name: str
    type: str
    required: bool = False
    least: float | None = None
    most: float | None = None
    allowed: tuple[str, ...] = ()


_STOPS = {  # GTFS's own names, and one table of distances that TIDES leaves to GTFS
    "stops": (
        Field("stop_id", "string", required=True),
        Field("stop_name", "string"),
        Field("stop_lat", "number", least=-90, most=90),
        Field("stop_lon", "number", least=-180, most=180),
    ),
    "route_stops": (
        Field("route_id", "string", required=True),
        Field("direction_id", "integer", required=True),
        Field("stop_id", "string", required=True),
        Field("shape_dist_traveled_m", "number", required=True, least=0),
    ),
}


@dataclass(frozen=True, eq=False)
class RecordTable:
    """One table: its file, and its columns by name; a column that is absent is all missing.

    Texts are arrays of objects with None, numbers are floats with NaN. Dates are days and times are
    seconds since 1970-01-01 by the local clock that wrote them; `offset_s` says how far that clock
    was ahead of UTC, for columns that say so.
    """

    path: Path
    rows: int
    columns: Mapping[str, Column]
    unknown: tuple[str, ...] = ()  # columns that the schema does not have
    in_utc: tuple[str, ...] = ()  # columns whose times are all in UTC, so not by a local clock
    offset_s: Mapping[str, Column] = field(default_factory=dict)

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        column = self.columns.get(name)
        return np.full(self.rows, np.nan) if column is None else column

    def texts(self, name: str) -> Column:
        column = self.columns.get(name)
        return np.full(self.rows, None, object) if column is None else column


@cache
def fields_of(name: str) -> tuple[Field, ...]:
    """The columns of a table, from its TIDES schema or from ours."""
    if name in _STOPS:
        return _STOPS[name]
    schema = json.loads((_SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return tuple(_field(stated) for stated in schema["fields"])


def _field(stated: dict[str, Any]) -> Field:
    limits = stated.get("constraints") or {}
    return Field(
        stated["name"],
        stated["type"],
        bool(limits.get("required")),
        limits.get("minimum"),
        limits.get("maximum"),
        tuple(str(value) for value in limits.get("enum", ())),
    )


def read_folder(folder: Path) -> dict[str, RecordTable]:
    """Every table of a folder of records; the visits and the trips must be there."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of records")
    paths = {name: _file_of(folder, name) for name in (*NAMES, *_STOPS)}
    for name in _NEEDED:
        if paths[name] is None:
            raise InputError(
                f"{folder}: has no {name} table; name it {name}.csv, .csv.gz or .parquet"
            )
    tables = {name: _read_table(path, name) for name, path in paths.items() if path is not None}
    for name in _NEEDED:
        if not tables[name].rows:
            raise InputError(f"{tables[name].path}: has no row below the names of the columns")
    return tables


def hashes_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of every table of a folder of records, and of the feed beside them."""
    paths = [_file_of(folder, name) for name in (*NAMES, *_STOPS)]
    paths.append(feed_beside(folder))
    return {path.name: sha256(path) for path in paths if path is not None}


def feed_beside(folder: Path) -> Path | None:
    """The feed in a folder of records, if there is one."""
    return _inside(folder / FEED) if (folder / FEED).is_file() else None


def _file_of(folder: Path, name: str) -> Path | None:
    paths = [path for ending in _ENDINGS if (path := folder / f"{name}{ending}").is_file()]
    if len(paths) > 1:
        raise InputError(f"{folder}: has {paths[0].name} and {paths[1].name}; keep one of them")
    return _inside(paths[0]) if paths else None


def _inside(path: Path) -> Path:
    """A file of a folder; a link may lead to one that is nobody's business, and errors quote it."""
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(f"{path}: is a link to a file outside the folder; copy the file here")
    return path


def _read_table(path: Path, name: str) -> RecordTable:
    """Read one table by its schema."""
    fields = {field.name: field for field in fields_of(name)}
    raw = _raw(path)
    twice = [column for column in raw.column_names if raw.column_names.count(column) > 1]
    if twice:
        raise InputError(f"{path}: column {twice[0]} appears twice")
    for label in fields.values():
        if label.required and label.name not in raw.column_names:
            raise InputError(f"{path}: has no column {label.name}, which {name} must have")
    known = {label: raw[label].combine_chunks() for label in raw.column_names if label in fields}
    columns = {label: _typed(path, fields[label], column) for label, column in known.items()}
    unknown = tuple(column for column in raw.column_names if column not in fields)
    times = {label: column for label, column in known.items() if fields[label].type == "datetime"}
    in_utc = tuple(label for label, column in times.items() if _in_utc(column))
    offset_s = {label: _offset_s(path, fields[label], column) for label, column in times.items()}
    known_s = {label: column for label, column in offset_s.items() if not np.isnan(column).all()}
    return RecordTable(path, raw.num_rows, columns, unknown, in_utc, known_s)


def _raw(path: Path) -> pa.Table:
    """The table with every column of a CSV file as text."""
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, use_threads=False)
            if table.nbytes > _MOST_BYTES:
                raise InputError(f"{path}: is larger than {_MOST_BYTES:,} bytes")
            return table
        content = _content(path)
        if not content.strip():
            raise InputError(f"{path}: is empty; the first row must name the columns")
        head = pa_csv.open_csv(pa.py_buffer(content)).schema.names
        return pa_csv.read_csv(
            pa.py_buffer(content),
            read_options=pa_csv.ReadOptions(use_threads=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(head, pa.string()),
                null_values=list(_MISSING),
                strings_can_be_null=True,
            ),
        )
    except _BROKEN as error:
        why = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as a table ({why[:200]})") from None


def _content(path: Path) -> bytearray:
    content = bytearray()
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        while part := stream.read(2**24):  # a small file may unpack to a huge one
            content += part
            if len(content) > _MOST_BYTES:
                raise InputError(f"{path}: is larger than {_MOST_BYTES:,} bytes")
    return content


# -- types ----------------------------------------------------------------------------------------


def _typed(path: Path, field: Field, column: pa.Array) -> Column:
    if field.type == "date":
        return _days(path, field, column)
    if field.type == "datetime":
        return _clock(path, field, column)
    if field.type in ("integer", "number"):
        return _number(path, field, column)
    try:
        text = column.cast(pa.string())
    except _BROKEN:
        raise InputError(f"{path}: column {field.name} must have texts") from None
    return np.array(text.to_numpy(zero_copy_only=False), object)


def _number(path: Path, field: Field, column: pa.Array) -> Column:
    if pa.types.is_string(column.type):
        plain = pc.match_substring_regex(column, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$")
        _refuse(path, field, column, plain, "a number")
    try:
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except _BROKEN:
        raise InputError(f"{path}: column {field.name} must have numbers") from None
    known = ~np.isnan(numbers)
    fine = np.isfinite(numbers) & (np.abs(numbers) < 2**53)
    if field.type == "integer":
        fine &= np.floor(numbers) == numbers
    what = "a whole number" if field.type == "integer" else "a finite number"
    _refuse(path, field, column, pa.array(fine | ~known), what)
    return np.asarray(numbers, float)


def _days(path: Path, field: Field, column: pa.Array) -> Column:
    """Days since 1970-01-01."""
    if pa.types.is_string(column.type):
        shaped = pc.match_substring_regex(column, r"^\d{4}-\d{2}-\d{2}$")
        _refuse(path, field, column, shaped, "a date such as 2026-01-31")
        column = _parsed(path, field, column, pa.date32(), "a date such as 2026-01-31")
    try:
        days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.float64())
    except _BROKEN:
        raise InputError(f"{path}: column {field.name} must have dates") from None
    return _of_our_time(path, field, column, days, 1)


def _clock(path: Path, field: Field, column: pa.Array) -> Column:
    """Seconds since 1970-01-01 by the local clock: the offset from UTC is left out."""
    what = "a time such as 2026-01-31T23:59:59+01:00"
    if pa.types.is_string(column.type):
        _refuse(path, field, column, pc.match_substring_regex(column, _TIME), what)
        local = pc.replace_substring(pc.utf8_slice_codeunits(column, 0, 19), " ", "T")
        column = _parsed(path, field, local, pa.timestamp("s"), what)
    elif pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.local_timestamp(column)
    try:
        seconds = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
    except _BROKEN:
        raise InputError(f"{path}: column {field.name} must have times") from None
    return _of_our_time(path, field, column, seconds, 86_400)


def _of_our_time(path: Path, field: Field, column: pa.Array, values: pa.Array, day: int) -> Column:
    """Days or seconds as numbers, none of them centuries away."""
    numbers = np.asarray(values.to_numpy(zero_copy_only=False), float)
    first, last = ((date(year, 1, 1) - EPOCH).days * day for year in (_FIRST_YEAR, _LAST_YEAR + 1))
    fine = np.isnan(numbers) | ((numbers >= first) & (numbers < last))
    _refuse(path, field, column, pa.array(fine), f"of the years {_FIRST_YEAR} to {_LAST_YEAR}")
    return numbers


def _offset_s(path: Path, field: Field, column: pa.Array) -> Column:
    """How far the clock of each time was ahead of UTC; NaN where the time does not say."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        local, utc = pc.local_timestamp(column), column.cast(pa.timestamp(column.type.unit))
        both = [
            clock.cast(pa.timestamp("s"), safe=False).cast(pa.int64()) for clock in (local, utc)
        ]
        ahead = pc.subtract(*both).cast(pa.float64())
        return np.asarray(ahead.to_numpy(zero_copy_only=False), float)
    if not pa.types.is_string(column.type):
        return np.full(len(column), np.nan)
    signed = pc.replace_substring_regex(column, "Z$", "+00:00")
    parts = pc.extract_regex(signed, r"(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})$")
    hours, minutes = (
        np.asarray(pc.struct_field(parts, name).cast(pa.float64()).to_numpy(zero_copy_only=False))
        for name in ("hours", "minutes")
    )
    ahead = hours * 3600 + minutes * 60
    fine = np.isnan(ahead) | ((ahead <= _LARGEST_OFFSET_S) & (minutes < 60))
    _refuse(path, field, column, pa.array(fine), "at an offset from UTC that a clock can have")
    minus = pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False)
    return np.asarray(np.where(minus.to_numpy(zero_copy_only=False), -ahead, ahead))


def _in_utc(column: pa.Array) -> bool:
    """Whether times are in UTC, all of them."""
    if pa.types.is_timestamp(column.type):
        return column.type.tz in UTC and column.null_count < len(column)
    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return False
    return bool(pc.all(pc.match_substring_regex(column, r"(Z|[+-]00:?00)$")).as_py())


def _parsed(path: Path, field: Field, column: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Parse dates or times; the calendar decides, so that February has no 30th."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        fine = [text is None or _on_calendar(text) for text in column.to_pylist()]
        _refuse(path, field, column, pa.array(fine), what)
        raise InputError(f"{path}: column {field.name} has a value that is not {what}") from None


def _on_calendar(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _refuse(path: Path, field: Field, column: pa.Array, fine: pa.Array, what: str) -> None:
    """Refuse the first value that is not fine, with its row."""
    good = pc.fill_null(fine, True).to_numpy(zero_copy_only=False)
    if not good.all():
        row = int(np.argmin(good))
        value = str(column[row : row + 1].cast(pa.string())[0].as_py())
        shown = repr(value if len(value) <= 60 else f"{value[:60]}...")
        raise InputError(f"{path} row {row + 2}: {field.name} {shown} is not {what}")
