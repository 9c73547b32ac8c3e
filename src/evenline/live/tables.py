"""Tables of recorded positions: GTFS-Realtime as CSV, and TIDES `vehicle_locations`.

One row is one report of a vehicle. Rows are played in the order of their times, all reports of a
polling interval together, as a server would have answered.
"""

import csv
import gzip
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import IO

from evenline.live.feed import LATEST_S, MOST_ENTITIES, OCCUPIED, Position, Snapshot, checked
from evenline.support.errors import InputError

TABLES = (".csv", ".csv.gz")
MOST_ROWS = 5_000_000
Row = dict[str, str]
_STATUS = {"Incoming at": 0, "Stopped at": 1, "In transit to": 2}  # as TIDES writes them


def table_snapshots(path: Path, every_s: float) -> Iterator[Snapshot]:
    """The reports of a table in their order, one snapshot per interval."""
    rows = sorted(_positions(path), key=lambda position: position.at_s)
    if not rows:
        raise InputError(f"{path} has no rows")
    for tick, group in groupby(rows, key=lambda position: math.floor(position.at_s / every_s)):
        # A poll sees the last report of each vehicle only.
        latest = {position.vehicle: position for position in group}
        if len(latest) > MOST_ENTITIES:
            raise InputError(f"{path}: has over {MOST_ENTITIES:,} vehicles within {every_s:g} s")
        yield Snapshot((tick + 1) * every_s, tuple(latest.values()))


def _positions(path: Path) -> Iterator[Position]:
    opened: Callable[..., IO[str]] = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            read = _reader(path, set(rows.fieldnames or ()))
            for number, row in enumerate(rows, 2):
                if number > MOST_ROWS:
                    raise InputError(f"{path}: has over {MOST_ROWS:,} rows; split it")
                yield _checked(path, number, read, row)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def _reader(path: Path, columns: set[str]) -> Callable[[Row], Position]:
    if {"vehicle.timestamp", "vehicle.position.latitude"} <= columns:
        return _from_realtime
    if {"event_timestamp", "vehicle_id", "latitude", "longitude"} <= columns:
        return _from_tides
    raise InputError(
        f"{path}: has neither the columns of GTFS-Realtime (vehicle.timestamp, ...) nor those of "
        "TIDES vehicle_locations (event_timestamp, vehicle_id, latitude, longitude)"
    )


def _checked(path: Path, number: int, read: Callable[[Row], Position], row: Row) -> Position:
    where = f"{path}: row {number}"
    try:
        position = read({name: value or "" for name, value in row.items() if name})
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where}: {error}") from None
    if not checked(position):
        raise InputError(
            f"{where}: not a possible report: vehicle {position.vehicle!r} at {position.lat}, "
            f"{position.lon}, time {position.at_s}"
        )
    return position


def _number(row: Row, name: str, default: float = -1.0) -> float:
    text = row.get(name, "").strip()
    return float(text) if text else default


def _whole(row: Row, name: str) -> int:
    value = _number(row, name)
    if not -1 <= value < 2**31 or value != int(value):
        raise ValueError(f"{name} {row.get(name)!r} is not a whole number of at least 0")
    return int(value)


def _from_realtime(row: Row) -> Position:
    """Columns are named as in the protobuf."""
    return Position(
        vehicle=row.get("vehicle.vehicle.id") or row.get("id", ""),
        at_s=_number(row, "vehicle.timestamp"),
        lat=_number(row, "vehicle.position.latitude", math.nan),
        lon=_number(row, "vehicle.position.longitude", math.nan),
        trip=row.get("vehicle.trip.trip_id", ""),
        route=row.get("vehicle.trip.route_id", ""),
        direction=_whole(row, "vehicle.trip.direction_id"),
        date=row.get("vehicle.trip.start_date", ""),
        start=row.get("vehicle.trip.start_time", ""),
        stop=row.get("vehicle.stop_id", ""),
        sequence=_whole(row, "vehicle.current_stop_sequence"),
        status=_whole(row, "vehicle.current_status"),
        speed_mps=_number(row, "vehicle.position.speed"),
        occupied=OCCUPIED.get(_whole(row, "vehicle.occupancy_status"), -1.0),
    )


def _from_tides(row: Row) -> Position:
    return Position(
        vehicle=row["vehicle_id"],
        at_s=_moment(row["event_timestamp"]),
        lat=_number(row, "latitude", math.nan),
        lon=_number(row, "longitude", math.nan),
        trip=row.get("trip_id_scheduled") or row.get("trip_id_performed", ""),
        date=row.get("service_date", "").replace("-", ""),
        stop=row.get("stop_id", ""),
        sequence=_whole(row, "scheduled_stop_sequence"),
        status=_STATUS.get(row.get("current_status", ""), -1),
        speed_mps=_number(row, "speed"),
    )


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"event_timestamp {text!r} has no time zone, such as Z or -05:00")
    seconds = moment.timestamp()
    if not 0 < seconds < LATEST_S:
        raise ValueError(f"event_timestamp {text!r} is before 1970 or after 2096")
    return seconds
