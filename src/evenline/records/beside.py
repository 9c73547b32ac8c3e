"""A GTFS feed beside records: it fills in scheduled times and blocks that the tables leave out.

The feed is `gtfs.zip` in the folder of records. A recorded trip names its scheduled one; where it
visits a stop several times, its visits are counted.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from evenline.importing.calls import seconds_of
from evenline.importing.feed import Feed, open_feed
from evenline.importing.gtfs import time_zone
from evenline.records.clean import Problem, Records, problem
from evenline.records.tides import FEED, feed_beside
from evenline.support.errors import InputError


def with_feed(records: Records, folder: Path) -> tuple[Records, list[Problem]]:
    """Records with what the feed of their folder adds, if there is one."""
    path = feed_beside(folder)
    if path is None:
        return records, []
    feed, trips, visits = open_feed(path), records.trips, records.visits
    wanted = {str(name) for name in trips.scheduled if name is not None}
    block = _blocks(feed, wanted)
    blocks = np.array(
        [
            given or block.get(name)
            for given, name in zip(trips.block, trips.scheduled, strict=True)
        ],
        object,
    )
    due, at = _due(feed, wanted), dict[tuple[int, int], int]()
    due_s = visits.due_s.copy()
    for row in np.flatnonzero((visits.trip >= 0) & (visits.stop >= 0)).tolist():
        trip, stop = int(visits.trip[row]), int(visits.stop[row])
        number = at.get((trip, stop), 0)
        at[trip, stop] = number + 1
        times = due.get((str(trips.scheduled[trip]), str(records.stops.id[stop])), [])
        if np.isnan(due_s[row]) and number < len(times):
            due_s[row] = times[number]
    filled = np.isnan(visits.due_s) & np.isfinite(due_s)
    blank = problem(
        "no scheduled time",
        "stop_visits leaves it out",
        np.isnan(visits.due_s),
        str(path.name),
        f"{int(filled.sum()):,} filled in from {FEED}",
    )
    trips = replace(trips, block=blocks)
    return replace(records, trips=trips, visits=replace(visits, due_s=due_s)), [blank]


def zone_beside(folder: Path) -> ZoneInfo | None:
    """The time zone that the feed of a folder names, if there is one."""
    path = feed_beside(folder)
    name = "" if path is None else time_zone(open_feed(path))
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError):
        raise InputError(f"{path}: agency.txt: there is no time zone {name!r}") from None


def _blocks(feed: Feed, wanted: set[str]) -> dict[str, str]:
    rows = feed.rows("trips.txt", ("trip_id",), ("block_id",))
    return {trip: block for _, (trip, block) in rows if trip in wanted and block}


def _due(feed: Feed, wanted: set[str]) -> dict[tuple[str, str], list[float]]:
    """The scheduled seconds of a trip at a stop, in order; NaN where the feed has none."""
    due: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    needed, optional = ("trip_id", "stop_id", "stop_sequence"), ("arrival_time", "departure_time")
    for number, (trip, stop, order, arrival, departure) in feed.rows(
        "stop_times.txt", needed, optional
    ):
        if trip in wanted:
            where = f"{feed.path}: stop_times.txt: row {number}"
            time = arrival or departure
            second = float(seconds_of(where, time)) if time else float("nan")
            due[trip, stop].append((int(order) if order.isdecimal() else 0, second))
    return {key: [second for _, second in sorted(rows)] for key, rows in due.items()}
