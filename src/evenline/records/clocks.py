"""The tables of a folder of records by one clock of the street.

Times in UTC are turned to the time zone of the feed beside them; without one, they stay as they
are. Times with other offsets stay by the clock that wrote them, but those of a service date go on
by one offset: a night in which the clock changes has an hour more or less, and no time goes back.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from evenline.city.model import Floats, Ints
from evenline.records.beside import zone_beside
from evenline.records.clean import Mask, Problem, first_row, problem
from evenline.records.tides import EPOCH, FEED, RecordTable, read_folder
from evenline.support.errors import InputError

DAY_S = 86_400
_CHANGE_S = 3_600  # the most by which a clock changes in a night
_NOON_S = DAY_S // 2
_TIMED = ("stop_visits", "passenger_events", "vehicle_locations")


def local_tables(folder: Path) -> tuple[dict[str, RecordTable], list[Problem]]:
    """The tables of a folder by the clock of the street, and what was odd about their clocks."""
    tables, problems = read_folder(folder), []
    for name in (timed for timed in _TIMED if timed in tables and tables[timed].offset_s):
        table = tables[name]
        zone = zone_beside(folder) if table.in_utc else None
        if table.in_utc:
            problems.append(_in_utc(name, table, zone))
        usual_s = _usual(table) if zone is None else _of_zone(table, zone)
        moved, changed = {}, np.zeros(table.rows, bool)
        for column, offset_s in table.offset_s.items():
            shift_s = np.nan_to_num(usual_s - offset_s)
            moved[column] = table.numbers(column) + shift_s
            changed |= shift_s != 0
        tables[name] = replace(table, columns={**table.columns, **moved})
        if zone is None and changed.any():
            problems.append(_change_of_clock(name, changed))
    return tables, problems


def _in_utc(name: str, table: RecordTable, zone: ZoneInfo | None) -> Problem:
    if zone is not None:
        wrong, done = f"{name} has times in UTC", f"turned to {zone.key}, as {FEED} says"
    else:
        wrong = f"{name} has times in UTC, so hours and days are not those of the street"
        done = "taken as the local clock; write times with the local offset, such as +01:00"
    return Problem("times in UTC", wrong, table.rows, table.rows, table.in_utc[0], done)


def _change_of_clock(name: str, changed: Mask) -> Problem:
    return problem(
        "change of clock",
        f"{name} has times of a service date before and after the clock changes",
        changed,
        first_row(changed),
        "they go on by the clock of most times of the date",
    )


def _dates(table: RecordTable) -> Floats:
    """The service date of each row; where it has none, the day of its first known time."""
    dates = table.numbers("service_date")
    for column in table.offset_s:
        dates = np.where(np.isnan(dates), np.floor(table.numbers(column) / DAY_S), dates)
    return dates


def _of_zone(table: RecordTable, zone: ZoneInfo) -> Floats:
    """How far a zone's clock is ahead of UTC at noon of each row's service date."""
    dates = _dates(table)
    ahead = np.zeros(table.rows)
    for date in np.unique(dates[np.isfinite(dates)]).tolist():
        noon = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=date * DAY_S + _NOON_S)
        offset = noon.astimezone(zone).utcoffset()
        ahead[dates == date] = offset.total_seconds() if offset else 0.0
    return ahead


def _usual(table: RecordTable) -> Floats:
    """The offset of most times of each row's service date. Refuses offsets of different places."""
    dates, ahead = _dates(table), np.zeros(table.rows)
    most_s = _mode(np.concatenate(list(table.offset_s.values())))
    for column, offset_s in table.offset_s.items():
        wrong = np.abs(offset_s - most_s) > _CHANGE_S
        if wrong.any():
            _refuse(table, column, int(np.argmax(wrong)), float(most_s))
    for date in np.unique(dates[np.isfinite(dates)]).tolist():
        rows = np.flatnonzero(dates == date).astype(np.int32)
        offsets = {column: offset_s[rows] for column, offset_s in table.offset_s.items()}
        every = np.concatenate(list(offsets.values()))
        if np.isnan(every).all():
            continue
        ahead[rows] = _mode(every)
        if len(np.unique(every[np.isfinite(every)])) > 1:
            _check_one_change(table, rows, offsets, float(ahead[rows[0]]))
    return ahead


def _mode(offset_s: Floats) -> float:
    values, counts = np.unique(offset_s[np.isfinite(offset_s)], return_counts=True)
    return float(values[int(np.argmax(counts))])


def _check_one_change(
    table: RecordTable, rows: Ints, offsets: Mapping[str, Floats], most_s: float
) -> None:
    """Refuse a service date on which the clock changes more than once."""
    names = np.repeat(np.arange(len(offsets)), len(rows))
    offset_s = np.concatenate(list(offsets.values()))
    utc_s = np.concatenate([table.numbers(name)[rows] for name in offsets]) - offset_s
    order = np.argsort(utc_s, kind="stable")
    order = order[np.isfinite(utc_s[order])]
    turns = np.flatnonzero(np.diff(offset_s[order]))
    if len(turns) > 1:
        odd = order[np.argmax(offset_s[order] != most_s)]
        _refuse(table, list(offsets)[names[odd]], int(rows[odd % len(rows)]), most_s)


def _refuse(table: RecordTable, column: str, row: int, most_s: float) -> None:
    date = table.numbers("service_date")[row]
    day = "" if np.isnan(date) else f" of {EPOCH + timedelta(days=int(date))}"
    offset = _offset_text(float(table.offset_s[column][row]))
    raise InputError(
        f"{table.path} row {row + 2}: {column} is at {offset} from UTC, but "
        f"most times{day} are at {_offset_text(most_s)}; write all by one clock"
    )


def _offset_text(offset_s: float) -> str:
    minutes = abs(int(offset_s)) // 60
    return f"{'-' if offset_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
