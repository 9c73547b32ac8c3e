"""A city from a GTFS feed: services from patterns, trips with their schedule, stops by their names.

The feed gives lines; a function lays their roads (a corridor, or the streets of a map). The result
has no passengers: demand comes from elsewhere. Whatever the city lacks of the feed is said.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from evenline.city.geometry import Floats, Origin, along_m
from evenline.city.model import City, Clock, Ints, Trip, no_journeys
from evenline.city.operations import LONGEST_HOLD_S, ControlPoint, Operations
from evenline.city.schedule import HOUR_S
from evenline.importing.corridor import corridor
from evenline.importing.feed import Feed, open_feed
from evenline.importing.fleet import buses
from evenline.importing.ids import clean_ids, readable
from evenline.importing.imported import Imported
from evenline.importing.lines import Layout, Shape
from evenline.importing.shapes import along_shape, middle, read_shapes
from evenline.importing.timetable import (
    FARTHEST_M,
    Pattern,
    Run,
    Timetable,
    Wanted,
    along_way,
    read_timetable,
)
from evenline.support.errors import InputError

_LEAD_S = 300  # the day begins at least this long before the first trip
_SLACK_S, _SLACK_SHARE = (
    1800,
    0.5,
)  # and ends this much after the last is due, or more by its length
SHARED = "trips of one block share a vehicle, so a late vehicle begins its next trip late"
_FAR_M = 300.0  # a shape that is this far from most stops belongs to something else
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{0,100}")

Lay = Callable[[Sequence[Shape], Origin], Layout]


def read_gtfs(
    path: Path,
    wanted: Wanted,
    name: str = "",
    lay: Lay | None = None,
    capacities: Mapping[str, int] | None = None,
    blocks: bool = True,
) -> Imported:
    """The city of some routes of a feed on a day; `lay` gives lines their roads.

    `capacities` are assumed passengers of a bus, by route, and of the others under an empty name.
    With `blocks`, trips of one block share a vehicle.
    """
    feed = open_feed(path)
    timetable = read_timetable(feed, wanted)
    served = tuple(dict.fromkeys(pattern.route for pattern in timetable.patterns))
    vehicles, vehicle_of, fleet = buses(served, timetable.routes, capacities or {})
    origin = middle([place.spot for place in timetable.places.values()])
    lines, unfit = _feed_lines(feed, timetable, origin)
    layout = corridor(lines) if lay is None else lay(lines, origin)
    patterns = tuple(
        along_way(pattern, service.distance_m)
        for pattern, service in zip(timetable.patterns, layout.services, strict=True)
    )
    trips, due_s, start_s, shifted = _trips(patterns, vehicle_of)
    shared = blocks and _shared(trips)
    points = timepoints(feed, timetable)
    date = wanted.date.isoformat()
    longest_s = max(run.arrival_s[-1] - run.departure_s[0] for run in _runs(patterns))
    slack_s = max(_SLACK_S, round(_SLACK_SHARE * longest_s))
    city = City(
        name=name or readable(path.stem),
        horizon_s=-(-(int(due_s.max()) + slack_s) // _SLACK_S) * _SLACK_S,
        vehicle=vehicles[0],
        more_vehicles=vehicles[1:],
        nodes=layout.nodes,
        roads=layout.roads,
        stops=layout.stops,
        services=layout.services,
        trips=trips,
        journeys=no_journeys(),
        due_s=due_s,
        origin=origin,
        clock=Clock(date, start_s, time_zone(feed)),
        notes=(*_notes(timetable), *([SHARED] if shared else []), *layout.notes, fleet),
        carried=layout.carried,
        operations=Operations(duties=shared, control_points=_control_points(layout, points)),
    )
    remarks = (
        *timetable.remarks,
        *left_out(timetable),
        *unfit,
        *shifted,
        *_overtaking(patterns, lines),
    )
    marked = [f"{len(points):,} stops are timepoints; hold_at 'listed' holds only there"]
    return Imported(city, (*remarks, *layout.remarks, *(marked if points else [])))


def _control_points(layout: Layout, timepoints: set[str]) -> tuple[ControlPoint, ...]:
    """A control point at each timepoint of the feed."""
    return tuple(
        ControlPoint(number, LONGEST_HOLD_S)
        for number, stop in enumerate(layout.stops)
        if stop.source in timepoints
    )


def time_zone(feed: Feed) -> str:
    """The time zone of a feed's agencies, which all share it; empty if it names none."""
    if not feed.has("agency.txt"):
        return ""
    for row, (zone,) in feed.rows("agency.txt", ["agency_timezone"]):
        if not _ZONE.fullmatch(zone):
            raise InputError(
                f"{feed.path}: agency.txt: row {row}: agency_timezone {zone!r} is not a time zone "
                "such as Europe/Zurich"
            )
        return zone
    return ""


# -- lines ----------------------------------------------------------------------------------------


def _feed_lines(
    feed: Feed, timetable: Timetable, origin: Origin
) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """A line for each pattern, and what is wrong with shapes that are not used."""
    wanted = {pattern.shape for pattern in timetable.patterns if pattern.shape}
    shapes = read_shapes(feed, wanted) if wanted and feed.has("shapes.txt") else {}
    names = _service_names(timetable)
    lines, remarks = [], []
    for name, pattern in zip(names, timetable.patterns, strict=True):
        places = tuple(timetable.places[stop] for stop in pattern.stops)
        spots = origin.points(place.spot for place in places)
        shape, distance_m, unfit = spots, along_m(spots), ""
        if pattern.shape in shapes:
            points = origin.points(shapes[pattern.shape])
            along = along_shape(points, spots)
            unfit = _unfit(points, along.distance_m, along.aside_m)
            if not unfit:
                shape, distance_m = points, along.distance_m
            else:
                remarks.append(f"{name}: shape {pattern.shape} is not used: {unfit}")
        lines.append(
            Shape(
                id=name,
                route=name.split(".")[0],
                name=readable(f"{timetable.routes[pattern.route]} to {places[-1].name}"),
                source=readable(pattern.route),
                places=places,
                spots=spots,
                points=shape,
                distance_m=distance_m,
                shaped=pattern.shape in shapes and not unfit,
            )
        )
    if wanted and not feed.has("shapes.txt"):
        remarks.append("shapes.txt is missing: lines go straight from stop to stop")
    return tuple(lines), tuple(remarks)


def _unfit(points: Floats, distance_m: Floats, aside_m: Floats) -> str:
    """Why stops cannot lie on a shape; empty if they can."""
    if not (np.diff(distance_m) > -1e-6).all():
        return "stops do not follow each other along it"
    if float(np.abs(points).max()) > FARTHEST_M or float(np.diff(distance_m).max()) > FARTHEST_M:
        return f"it leads more than {FARTHEST_M / 1000:,.0f} km away"
    if float(np.median(aside_m)) > _FAR_M:
        return f"half of the stops are {np.median(aside_m):,.0f} m or more away"
    return ""


def _service_names(timetable: Timetable) -> list[str]:
    """An id for each pattern: route and direction, with a number for those with fewer trips."""
    return [
        f"{timetable.ids[pattern.route]}.{pattern.direction}"
        + (f".{pattern.number}" if pattern.number > 1 else "")
        for pattern in timetable.patterns
    ]


# -- trips ----------------------------------------------------------------------------------------


def timepoints(feed: Feed, timetable: Timetable) -> set[str]:
    """The stops that the feed marks as timepoints of a trip, if it tells them from other stops."""
    trips = {run.trip for run in _runs(timetable.patterns)}
    trips |= {trip.rsplit(".", 1)[0] for trip in trips}  # those that are repeated
    marked: dict[str, set[str]] = {"0": set(), "1": set()}
    needed, optional = ("trip_id", "stop_id"), ("timepoint",)
    for _, (trip, stop, exact) in feed.rows("stop_times.txt", needed, optional):
        if trip in trips and exact in marked:
            marked[exact].add(readable(stop))
    return marked["1"] if marked["0"] else set()


def _shared(trips: Sequence[Trip]) -> bool:
    """Whether two trips share a vehicle."""
    return any(count > 1 for block, count in Counter(t.duty for t in trips).items() if block)


def _trips(
    patterns: Sequence[Pattern], vehicle_of: Mapping[str, int]
) -> tuple[tuple[Trip, ...], Ints, int, tuple[str, ...]]:
    """The trips, when they are due, when the day begins, and what had to change."""
    first_s = min(run.departure_s[0] for run in _runs(patterns))
    start_s = max(0, first_s - _LEAD_S) // HOUR_S * HOUR_S
    ids = clean_ids(run.trip for run in _runs(patterns))
    trips: list[Trip] = []
    due: list[int] = []
    remarks = []
    for service, pattern in enumerate(patterns):
        before_s = -1
        for run in pattern.runs:
            departs_s = run.departure_s[0] - start_s
            late_s = max(0, before_s + 1 - departs_s)
            if late_s:
                remarks.append(
                    f"trip {run.trip} starts {late_s} s later: another trip of its pattern starts "
                    "in the same second"
                )
            before_s = departs_s + late_s
            vehicle, block = vehicle_of[pattern.route], readable(run.block)
            trips.append(
                Trip(ids[run.trip], service, before_s, vehicle, block, source=readable(run.trip))
            )
            times_s = (*run.departure_s[:-1], run.arrival_s[-1])
            due += [at_s - start_s + late_s for at_s in times_s]
    return tuple(trips), np.array(due, np.int32), start_s, tuple(remarks)


def _runs(patterns: Sequence[Pattern]) -> list[Run]:
    return [run for pattern in patterns for run in pattern.runs]


# -- what people should know ----------------------------------------------------------------------


def left_out(timetable: Timetable) -> tuple[str, ...]:
    """The patterns that are left out, with their share of the route's trips."""
    every = Counter[str]()
    for pattern in (*timetable.patterns, *timetable.left_out):
        every[pattern.route] += len(pattern.runs)
    remarks = []
    for pattern in timetable.left_out:
        first, last = pattern.ends
        count, share = len(pattern.runs), len(pattern.runs) / every[pattern.route]
        remarks.append(
            f"left out: {timetable.routes[pattern.route]}, direction {pattern.direction}, "
            f"{len(pattern.stops)} stops from {first} to {last}: "
            f"{count} {'trip' if count == 1 else 'trips'}, {share:.0%} of the route's"
        )
    return tuple(remarks)


def _overtaking(patterns: Sequence[Pattern], lines: Sequence[Shape]) -> tuple[str, ...]:
    """Trips that are due before the one that started before them."""
    remarks = []
    for pattern, line in zip(patterns, lines, strict=True):
        passed = sum(
            any(late < early for early, late in zip(one.arrival_s, other.arrival_s, strict=True))
            for one, other in pairwise(pattern.runs)
        )
        if passed:
            remarks.append(
                f"{line.id}: {passed} {'trip overtakes' if passed == 1 else 'trips overtake'} "
                "the one before in the timetable"
            )
    return tuple(remarks)


def _notes(timetable: Timetable) -> tuple[str, ...]:
    """What every result must say: how the city differs from the feed."""
    runs, notes = _runs(timetable.patterns), []
    lost = sum(len(pattern.runs) for pattern in timetable.left_out)
    if lost:
        every = lost + len(runs)
        notes.append(f"{lost:,} of {every:,} trips are left out: they do not follow a main pattern")
    limited = sum(run.limited for run in runs)
    if limited:
        calls = sum(len(run.given) for run in runs)
        notes.append(
            f"{limited:,} of {calls:,} calls let people only on, only off or on request in the "
            "feed; here they may do both"
        )
    return tuple(notes)
