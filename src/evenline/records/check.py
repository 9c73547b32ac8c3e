"""What a folder of records holds, and what is wrong with it.

`check_folder` counts days, routes and trips, says which values are missing, and lists every problem
with a count, an example and what is done about it: the cleaning rules of
`evenline.records.clean`, the constraints of the TIDES schemas, and counts that do not add up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.geometry import flat_m
from evenline.records.beside import with_feed
from evenline.records.clean import (
    FASTEST_MPS,
    Problem,
    Records,
    Visits,
    clean,
    described,
    first_row,
    problem,
)
from evenline.records.clocks import local_tables
from evenline.records.kinds import kinds_of
from evenline.records.read import records_of
from evenline.records.tides import NAMES, Field, RecordTable, fields_of

_DRIFT_PEOPLE, _DRIFT_SHARE = 3.0, 0.1
_KEPT = "kept as it is"
_JUMP_M = 200.0
_TRANSFERS = "not declared in these tables; every ride counts as a journey of its own"


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    folder: str
    tables: dict[str, int]  # rows
    days: tuple[str, ...]
    trips_by_day: dict[str, int]
    kinds: dict[str, str]  # of days
    routes: tuple[str, ...]
    stops: int
    visits: int
    usable: int
    missing: dict[str, float]  # share of visits without the value
    boarded: float
    alighted: float
    problems: tuple[Problem, ...]
    transfers: str = _TRANSFERS

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_folder(folder: Path) -> Checked:
    """Read a folder of records and list what is wrong."""
    tables, clocks = local_tables(folder)
    raw, filled = with_feed(records_of(folder, tables), folder)
    cleaned, by_rule = clean(raw)
    trips = np.unique(cleaned.visits.trip)
    by_day = np.bincount(cleaned.trips.day[trips], minlength=len(raw.days))
    problems = (
        *clocks,
        *filled,
        *by_rule,
        *_of_schemas(tables),
        *_of_counts(cleaned),
        *_of_tables(tables, raw),
    )
    return Checked(
        folder=raw.name,
        tables={name: table.rows for name, table in tables.items()},
        days=raw.days,
        trips_by_day=dict(zip(raw.days, by_day.tolist(), strict=True)),
        kinds=kinds_of(cleaned),
        routes=tuple(sorted({str(raw.trips.route[trip]) for trip in trips}, key=_by_number)),
        stops=len(raw.stops.id),
        visits=len(raw.visits),
        usable=len(cleaned.visits),
        missing=_missing(raw.visits),
        boarded=float(np.nansum(cleaned.visits.boarded)),
        alighted=float(np.nansum(cleaned.visits.alighted)),
        problems=tuple(one for one in problems if one.count),
    )


def _by_number(name: str) -> tuple[int, str]:
    """Sort routes as people do: 2 before 10, and names last."""
    return (int(name), "") if name.isdecimal() else (2**31, name)


def _missing(visits: Visits) -> dict[str, float]:
    names = ("arrival_s", "departure_s", "due_s", "boarded", "alighted", "load")
    return {
        name: round(float(np.isnan(getattr(visits, name)).mean()), 4) if len(visits) else 1.0
        for name in names
    }


def _of_schemas(tables: Mapping[str, RecordTable]) -> Iterator[Problem]:
    """Constraints of the TIDES schemas that rows break."""
    for name in NAMES:
        if (table := tables.get(name)) is None:
            continue
        for field in fields_of(name):
            column = table.columns.get(field.name)
            if column is not None:
                yield from _of_field(table, field, column)
        if table.unknown:
            yield Problem(
                "unknown column",
                f"{name} has columns that TIDES does not have",
                len(table.unknown),
                len(table.columns) + len(table.unknown),
                table.unknown[0],
                "not read",
            )


def _of_field(table: RecordTable, field: Field, column: Any) -> Iterator[Problem]:
    numeric = column.dtype.kind == "f"
    missing = np.isnan(column) if numeric else np.array([entry is None for entry in column], bool)
    name = f"{table.path.name.split('.')[0]}.{field.name}"
    if field.required and missing.any():
        what = f"{name} is required by TIDES"
        yield problem("required value missing", what, missing, first_row(missing), _KEPT)
    wrong = np.zeros(len(column), bool)
    if numeric:
        low = -np.inf if field.least is None else field.least
        high = np.inf if field.most is None else field.most
        wrong = ~missing & ~((column >= low) & (column <= high))
        if field.allowed:
            wrong |= ~missing & ~np.isin(column, [float(entry) for entry in field.allowed])
    elif field.allowed:
        wrong = ~missing & np.array([entry not in field.allowed for entry in column], bool)
    if wrong.any():
        value = column[int(np.argmax(wrong))]
        what = f"{name} has values that TIDES does not allow, such as {value!s:.40}"
        yield problem("value not allowed", what, wrong, first_row(wrong), "see the rules above")


def _of_counts(records: Records) -> Iterator[Problem]:
    """Trips whose counts do not add up."""
    visits, trips = records.visits, len(records.trips)
    on = np.bincount(visits.trip, np.nan_to_num(visits.boarded), trips)
    off = np.bincount(visits.trip, np.nan_to_num(visits.alighted), trips)
    ran = np.bincount(visits.trip, minlength=trips) > 0
    drift = ran & (np.abs(on - off) > np.maximum(_DRIFT_PEOPLE, _DRIFT_SHARE * on))
    if drift.any():
        trip = int(np.argmax(drift))
        yield Problem(
            "boardings against alightings",
            f"they differ by more than {_DRIFT_PEOPLE:.0f} people and {_DRIFT_SHARE:.0%} on a trip",
            int(drift.sum()),
            int(ran.sum()),
            f"trip {records.trips.id[trip]}: {on[trip]:.0f} board, {off[trip]:.0f} alight",
            "both are scaled to their mean when journeys are made",
        )
    wrong = _drifting(visits)
    if wrong.any():
        yield problem(
            "load that drifts",
            "the load is not the load before plus boardings minus alightings",
            wrong,
            described(records, int(np.argmax(wrong))),
            "loads are made from counts that are balanced over the trip",
        )
    silent = np.isnan(visits.boarded) | np.isnan(visits.alighted)
    if silent.any():
        yield problem(
            "no counts",
            "boardings or alightings of a visit are missing",
            silent,
            described(records, int(np.argmax(silent))),
            "not used for journeys",
        )


def _drifting(visits: Visits) -> Any:
    if not len(visits):
        return np.zeros(0, bool)
    expected = visits.load[:-1] + visits.boarded[1:] - visits.alighted[1:]
    off = visits.follows() & (np.diff(visits.order) == 1) & (visits.load[1:] != expected)
    return np.concatenate([[False], off & ~np.isnan(expected) & ~np.isnan(visits.load[1:])])


def _of_tables(tables: Mapping[str, RecordTable], raw: Records) -> Iterator[Problem]:
    """Trips without visits, repeated trips, and stops without a place."""
    unseen = np.bincount(raw.visits.trip[raw.visits.trip >= 0], minlength=len(raw.trips)) == 0
    keys = list(zip(raw.trips.day.tolist(), raw.trips.id.tolist(), strict=True))
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    repeated = np.array([first[key] != row for row, key in enumerate(keys)], bool)
    nowhere = np.isnan(raw.stops.latitude)
    for name, wrong, mask, names, done in (
        ("repeated trip", "a trip is in the table twice", repeated, raw.trips.id, "the first"),
        ("trip without visits", "no visit belongs to it", unseen & ~repeated, raw.trips.id, "none"),
        ("stop without a place", "no coordinates", nowhere, raw.stops.id, "drawn on a line"),
    ):
        if mask.any():
            yield problem(name, wrong, mask, names[int(np.argmax(mask))], done)
    if (pings := tables.get("vehicle_locations")) is not None:
        yield from _of_locations(pings)


def _of_locations(pings: RecordTable) -> Iterator[Problem]:
    """Vehicles whose clock goes back, or that are somewhere else at once."""
    fast = np.nan_to_num(pings.numbers("speed")) > FASTEST_MPS
    vehicle = np.array([str(name) for name in pings.texts("vehicle_id")], object)
    time_s = pings.numbers("event_timestamp")
    lat, lon = pings.numbers("latitude"), pings.numbers("longitude")
    order = np.argsort(vehicle, kind="stable")  # the rows of a vehicle as they were written
    same = vehicle[order][1:] == vehicle[order][:-1]
    took_s, rows = np.diff(time_s[order]), order[1:]
    lat, lon = lat[order], lon[order]
    away_m = flat_m(lat[1:], lon[1:], lat[:-1], lon[:-1])
    back, apart = np.zeros(pings.rows, bool), np.zeros(pings.rows, bool)
    back[rows] = same & (took_s < 0)
    apart[rows] = same & (away_m > _JUMP_M) & (away_m > FASTEST_MPS * np.maximum(took_s, 1.0))
    for name, wrong, mask in (
        ("impossible speed of a vehicle", f"it reports more than {FASTEST_MPS:.0f} m/s", fast),
        ("clock jump of a vehicle", "its time goes back from one location to the next", back),
        ("position jump of a vehicle", f"it moves faster than {FASTEST_MPS:.0f} m/s", apart),
    ):
        if mask.any():
            yield problem(name, wrong, mask, first_row(mask), "locations are not used")
