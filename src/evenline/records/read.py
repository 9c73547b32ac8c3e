"""Read a folder of TIDES tables as records.

Counts come from the visits or, where a visit has none, from passenger events. What is odd about a
whole table, such as times in UTC, is said beside what the cleaning rules find.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import numpy as np

from evenline.city.model import Floats, Ints
from evenline.records.beside import with_feed
from evenline.records.clean import Problem, Records, Stops, Trips, Visits, clean
from evenline.records.clocks import DAY_S, local_tables
from evenline.records.tides import EPOCH, RecordTable, hashes_of
from evenline.support.errors import InputError

_PASSENGER = ("Passenger boarded", "Passenger alighted")  # events


def open_records(folder: Path) -> tuple[Records, list[Problem]]:
    """Read a folder of records and clean it."""
    tables, clocks = local_tables(folder)
    raw, filled = with_feed(records_of(folder, tables), folder)
    records, by_rule = clean(raw)
    return records, [*clocks, *filled, *by_rule]


def records_of(folder: Path, tables: Mapping[str, RecordTable]) -> Records:
    """The records as they are, before any rule."""
    trips, index, days = _trips(tables["trips_performed"])
    visits, stops = _visits(tables, index)
    return Records(
        folder.resolve().name, days, trips, stops, visits, _along(tables), hashes_of(folder)
    )


def _trips(table: RecordTable) -> tuple[Trips, dict[tuple[float, str], int], tuple[str, ...]]:
    dates, names = table.numbers("service_date"), table.texts("trip_id_performed")
    for name, missing in (("service_date", np.isnan(dates)), ("trip_id_performed", names == None)):  # noqa: E711
        if missing.any():
            raise InputError(f"{table.path} row {int(np.argmax(missing)) + 2}: has no {name}")
    days, day = np.unique(dates, return_inverse=True)
    index: dict[tuple[float, str], int] = {}
    for row, key in enumerate(zip(dates.tolist(), names.tolist(), strict=True)):
        index.setdefault(key, row)
    direction = np.nan_to_num(table.numbers("direction_id")).astype(np.int32)
    route = np.array([label or "-" for label in table.texts("route_id")], object)
    trips = Trips(
        names,
        day.astype(np.int32),
        route,
        direction,
        table.texts("trip_id_scheduled"),
        table.texts("block_id"),
    )
    return trips, index, tuple(str(EPOCH + timedelta(days=int(d))) for d in days)


def _visits(
    tables: Mapping[str, RecordTable], index: Mapping[tuple[float, str], int]
) -> tuple[Visits, Stops]:
    table = tables["stop_visits"]
    dates, order = table.numbers("service_date"), table.numbers("trip_stop_sequence")
    for name, column in (("service_date", dates), ("trip_stop_sequence", order)):
        if np.isnan(column).any():
            row = int(np.argmax(np.isnan(column))) + 2
            raise InputError(f"{table.path} row {row}: has no {name}")
    keys = zip(dates.tolist(), table.texts("trip_id_performed").tolist(), strict=True)
    trip = np.array([index.get(key, -1) for key in keys], np.int32)
    stops, stop = _stops(table, tables.get("stops"))
    midnight = dates * DAY_S
    boarded, alighted = _counts(tables, trip, order, index)
    due = table.numbers("schedule_arrival_time")
    due = np.where(np.isnan(due), table.numbers("schedule_departure_time"), due)
    visits = Visits(
        np.arange(2, table.rows + 2, dtype=np.int32),
        trip,
        order,
        stop,
        table.numbers("actual_arrival_time") - midnight,
        table.numbers("actual_departure_time") - midnight,
        due - midnight,
        table.numbers("dwell"),
        boarded,
        alighted,
        table.numbers("departure_load"),
        table.numbers("distance"),
    )
    return visits.only(np.lexsort((visits.row, order, trip)).astype(np.int32)), stops


def _stops(visits: RecordTable, places: RecordTable | None) -> tuple[Stops, Ints]:
    names = visits.texts("stop_id")
    known = sorted({name for name in names.tolist() if name is not None})
    at = {name: i for i, name in enumerate(known)}
    stop = np.array([at.get(name, -1) for name in names.tolist()], np.int32)
    latitude, longitude = np.full(len(known), np.nan), np.full(len(known), np.nan)
    called = np.array(known, object)
    if places is not None:
        lat, lon = places.numbers("stop_lat"), places.numbers("stop_lon")
        for row, name in enumerate(places.texts("stop_id").tolist()):
            if (i := at.get(name)) is not None and abs(lat[row]) <= 90 and abs(lon[row]) <= 180:
                latitude[i], longitude[i] = lat[row], lon[row]
                called[i] = places.texts("stop_name")[row] or name
    return Stops(np.array(known, object), called, latitude, longitude), stop


def _counts(
    tables: Mapping[str, RecordTable],
    trip: Ints,
    order: Floats,
    index: Mapping[tuple[float, str], int],
) -> tuple[Floats, Floats]:
    """Boardings and alightings of each visit; from passenger events where a visit has none.

    A trip without any event has no counts, rather than no passengers.
    """
    visits, events = tables["stop_visits"], tables.get("passenger_events")
    counts = []
    for kind, event in zip(("boarding", "alighting"), _PASSENGER, strict=True):
        first, second = visits.numbers(f"{kind}_1"), visits.numbers(f"{kind}_2")
        counted = np.where(np.isnan(first), second, first + np.nan_to_num(second))
        if events is not None and np.isnan(counted).any():
            counted = np.where(
                np.isnan(counted), _summed(events, event, trip, order, index), counted
            )
        counts.append(counted)
    return counts[0], counts[1]


def _summed(
    events: RecordTable,
    kind: str,
    trip: Ints,
    order: Floats,
    index: Mapping[tuple[float, str], int],
) -> Floats:
    """The events of a kind at each visit; NaN where no passenger of the trip was counted."""
    number = events.numbers("event_count")
    number = np.where(np.isnan(number), 1.0, number)
    keys = zip(
        events.numbers("service_date").tolist(),
        events.texts("trip_id_performed").tolist(),
        events.numbers("trip_stop_sequence").tolist(),
        strict=True,
    )
    total: dict[tuple[int, float], float] = {}
    counted = set()
    for (day, name, at), what, count in zip(
        keys, events.texts("event_type").tolist(), number.tolist(), strict=True
    ):
        if what in _PASSENGER:
            counted.add(index.get((day, name), -1))
        if what == kind:
            place = (index.get((day, name), -1), at)
            total[place] = total.get(place, 0.0) + count
    places = zip(trip.tolist(), order.tolist(), strict=True)
    return np.array([total.get(p, 0.0 if p[0] in counted else np.nan) for p in places])


def _along(tables: Mapping[str, RecordTable]) -> dict[tuple[str, int, str], float]:
    table = tables.get("route_stops")
    if table is None:
        return {}
    rows = zip(
        table.texts("route_id").tolist(),
        np.nan_to_num(table.numbers("direction_id"), nan=-1).astype(int).tolist(),
        table.texts("stop_id").tolist(),
        table.numbers("shape_dist_traveled_m").tolist(),
        strict=True,
    )
    return {
        (route, way, stop): along
        for route, way, stop, along in rows
        if route and stop and along >= 0
    }
