"""Records of buses as columns, and the rules that clean them.

`clean` applies `RULES` in order. A rule says what it looks for and what it does; it finds rows,
counts them and keeps an example. Only loads are made anew besides, from counts that are balanced
over the trip (`evenline.records.patterns.with_loads`). Times are seconds after the midnight that
begins the service date, by the local clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from evenline.city.geometry import flat_m
from evenline.city.model import Floats, Ints
from evenline.records.tides import Column
from evenline.support.errors import InputError

_EARLIEST_S, _LATEST_S = -6 * 3600, 36 * 3600  # of a visit, around its service date
_STANDSTILL_S = 1_800
FASTEST_MPS = 35.0
_MOST_PEOPLE = 1_000  # on a bus, or through its doors at one stop
_DWELL_APART_S = 5.0  # between a recorded dwell and the times around it
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Change = Callable[["Visits", Mask], "Visits"]


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits as columns, sorted by trip and order; NaN where nothing is recorded."""

    row: Ints  # of the file
    trip: Ints  # position in `Trips`, or -1
    order: Floats
    stop: Ints  # position in `Stops`, or -1
    arrival_s: Floats
    departure_s: Floats
    due_s: Floats  # scheduled arrival, or departure where only that is given
    dwell_s: Floats
    boarded: Floats
    alighted: Floats
    load: Floats  # on departure
    distance_m: Floats  # since the stop before

    def __len__(self) -> int:
        return len(self.row)

    def only(self, keep: Mask | Ints) -> "Visits":
        return Visits(**{column.name: getattr(self, column.name)[keep] for column in fields(self)})

    def follows(self) -> Mask:
        """Whether a visit is the next one of the same trip; one shorter than the table."""
        return np.asarray(self.trip[1:] == self.trip[:-1])


@dataclass(frozen=True, eq=False)
class Trips:
    """The trips that were performed, as columns."""

    id: Column
    day: Ints  # position in the days
    route: Column
    direction: Ints
    scheduled: Column  # its id in the timetable, or None
    block: Column

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, eq=False)
class Stops:
    """Every stop that was visited; NaN where its place is not recorded."""

    id: Column
    name: Column
    latitude: Floats
    longitude: Floats

    def apart_m(self, first: Ints, second: Ints) -> Floats:
        """The straight distance between stops; NaN where a place is unknown."""
        lat, lon = self.latitude, self.longitude
        return flat_m(lat[first], lon[first], lat[second], lon[second])


@dataclass(frozen=True, eq=False)
class Records:
    """All that a folder records."""

    name: str
    days: tuple[str, ...]
    trips: Trips
    stops: Stops
    visits: Visits
    along_m: Mapping[tuple[str, int, str], float]  # by route, direction, stop: from `route_stops`
    hashes: Mapping[str, str]

    def line(self, trip: int) -> tuple[str, int]:
        """The route and direction of a trip."""
        return str(self.trips.route[trip]), int(self.trips.direction[trip])

    def of_days(self, days: tuple[str, ...]) -> "Records":
        """The same records with the visits of some days only."""
        for day in days:
            if day not in self.days:
                raise InputError(
                    f"day {day} is not in the records; they have {', '.join(self.days)}"
                )
        wanted = np.isin(np.array(self.days)[self.trips.day], days)
        return replace(self, visits=self.visits.only(wanted[self.visits.trip]))


@dataclass(frozen=True)
class Rule:
    """A way to clean visits: what is wrong, what is done, how to find it and what changes."""

    name: str
    wrong: str
    done: str
    find: Callable[[Records], Mask]
    change: Change


@dataclass(frozen=True)
class Problem:
    """What a rule or a check found: how often, out of how many, and the first one."""

    name: str
    wrong: str
    count: int
    of: int
    example: str
    done: str


def problem(name: str, wrong: str, mask: Mask, example: str, done: str) -> Problem:
    """What is wrong in the rows of a mask."""
    return Problem(name, wrong, int(mask.sum()), len(mask), example, done)


def first_row(mask: Mask) -> str:
    """The first row of a mask as a spreadsheet counts it."""
    return f"row {int(np.argmax(mask)) + 2}"


# -- rules ----------------------------------------------------------------------------------------


def _drop(visits: Visits, wrong: Mask) -> Visits:
    return visits.only(~wrong)


def _forget(*names: str, wrong: Callable[[Floats], Mask] = np.isfinite) -> Change:
    """Treat the wrong values of these columns as missing where a mask holds."""

    def change(visits: Visits, rows: Mask) -> Visits:
        columns = {name: getattr(visits, name) for name in names}
        forgotten = {n: np.where(rows & wrong(c), np.nan, c) for n, c in columns.items()}
        return replace(visits, **forgotten)

    return change


def _arrive_before_leaving(visits: Visits, wrong: Mask) -> Visits:
    dwell = np.nan_to_num(visits.dwell_s)
    return replace(visits, arrival_s=np.where(wrong, visits.departure_s - dwell, visits.arrival_s))


def _repeated(records: Records) -> Mask:
    visits = records.visits
    same = visits.follows() & (np.diff(visits.order) == 0)
    return np.concatenate([[False], same]) if len(visits) else np.zeros(0, bool)


def _negative(records: Records) -> Mask:
    v = records.visits
    with np.errstate(invalid="ignore"):
        return (v.boarded < 0) | (v.alighted < 0) | (v.load < 0) | (v.dwell_s < 0)


def _other_dwell(records: Records) -> Mask:
    v = records.visits
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(v.departure_s - v.arrival_s - v.dwell_s) > _DWELL_APART_S)


def _out_of_order(records: Records) -> Mask:
    """Visits outside the longest run of a trip in which time does not go back."""
    visits = records.visits
    back = visits.follows() & (np.diff(visits.arrival_s) < 0)
    wrong = np.zeros(len(visits), bool)
    for trip in np.unique(visits.trip[1:][back]):
        rows = np.flatnonzero(visits.trip == trip)
        wrong[rows[~_longest_rise(visits.arrival_s[rows])]] = True
    return wrong


def _longest_rise(times: Floats) -> Mask:
    """Mark the longest subsequence that never falls."""
    tails: list[int] = []  # the last element of the best rise of each length
    before = np.full(len(times), -1)
    for i, time in enumerate(times):
        at = int(np.searchsorted([times[t] for t in tails], time, side="right"))
        before[i] = tails[at - 1] if at else -1
        tails[at : at + 1] = [i]
    marked, i = np.zeros(len(times), bool), tails[-1]
    while i >= 0:
        marked[i], i = True, before[i]
    return marked


def _beyond_standstill(records: Records) -> Mask:
    """The shorter part of a trip with a standstill."""
    visits = records.visits
    pause = visits.follows() & (np.diff(visits.arrival_s) > _STANDSTILL_S)
    wrong = np.zeros(len(visits), bool)
    for trip in np.unique(visits.trip[1:][pause]):
        rows = np.flatnonzero(visits.trip == trip)
        parts = np.split(rows, np.flatnonzero(np.diff(visits.arrival_s[rows]) > _STANDSTILL_S) + 1)
        longest = max(parts, key=len)
        wrong[np.setdiff1d(rows, longest)] = True
    return wrong


def _stopped_clock(records: Records) -> Mask:
    """The visits of a trip of three or more that are all at one second."""
    visits, trips = records.visits, len(records.trips)
    first, last = np.full(trips, np.inf), np.full(trips, -np.inf)
    np.minimum.at(first, visits.trip, visits.arrival_s)
    np.maximum.at(last, visits.trip, visits.arrival_s)
    stopped = (first == last) & (np.bincount(visits.trip, minlength=trips) > 2)
    return np.asarray(stopped[visits.trip])


def _too_fast(records: Records) -> Mask:
    visits = records.visits
    away_m = records.stops.apart_m(visits.stop[:-1], visits.stop[1:])
    took_s = np.maximum(np.diff(visits.arrival_s), 1.0)
    with np.errstate(invalid="ignore"):
        fast = visits.follows() & (away_m > 200) & (away_m / took_s > FASTEST_MPS)
    return np.concatenate([[False], fast]) if len(visits) else np.zeros(0, bool)


def _alone(records: Records) -> Mask:
    trip = records.visits.trip
    return np.bincount(trip, minlength=len(records.trips))[trip] < 2


RULES = (
    Rule(
        "repeated visit",
        "the same trip and stop sequence is in the table more than once",
        "the first one is used",
        _repeated,
        _drop,
    ),
    Rule(
        "unknown trip",
        "a visit belongs to no trip of trips_performed",
        "not used",
        lambda records: records.visits.trip < 0,
        _drop,
    ),
    Rule(
        "unknown stop",
        "a visit names no stop",
        "not used",
        lambda records: records.visits.stop < 0,
        _drop,
    ),
    Rule(
        "negative count",
        "boardings, alightings, load or dwell below 0",
        "taken as missing",
        _negative,
        _forget("boarded", "alighted", "load", "dwell_s", wrong=lambda c: c < 0),
    ),
    Rule(
        "impossible count",
        f"boardings, alightings or load above {_MOST_PEOPLE:,}",
        "taken as missing",
        lambda r: (
            (r.visits.boarded > _MOST_PEOPLE)
            | (r.visits.alighted > _MOST_PEOPLE)
            | (r.visits.load > _MOST_PEOPLE)
        ),
        _forget("boarded", "alighted", "load", wrong=lambda c: c > _MOST_PEOPLE),
    ),
    Rule(
        "no arrival time",
        "a visit has a departure time but no arrival time",
        "arrival is departure minus dwell",
        lambda r: np.isnan(r.visits.arrival_s) & ~np.isnan(r.visits.departure_s),
        _arrive_before_leaving,
    ),
    Rule(
        "no time",
        "a visit has neither arrival nor departure time",
        "not used",
        lambda records: np.isnan(records.visits.arrival_s),
        _drop,
    ),
    Rule(
        "time of another day",
        "a visit is more than 6 h before or 36 h after the midnight of its service date",
        "not used",
        lambda r: (r.visits.arrival_s < _EARLIEST_S) | (r.visits.arrival_s > _LATEST_S),
        _drop,
    ),
    Rule(
        "departure before arrival",
        "a bus leaves before it arrives",
        "the departure time is taken as missing",
        lambda r: np.nan_to_num(r.visits.departure_s - r.visits.arrival_s) < 0,
        _forget("departure_s"),
    ),
    Rule(
        "dwell that disagrees",
        f"the dwell is not departure minus arrival, by more than {_DWELL_APART_S:.0f} s",
        "the times count, and the dwell is taken as missing",
        _other_dwell,
        _forget("dwell_s"),
    ),
    Rule(
        "visit out of order",
        "time goes back along a trip, as when a clock jumps",
        "visits outside the longest run in order are not used",
        _out_of_order,
        _drop,
    ),
    Rule(
        "standstill",
        f"more than {_STANDSTILL_S:,} s from one stop to the next, as when a clock jumps",
        "only the longer part of the trip is used",
        _beyond_standstill,
        _drop,
    ),
    Rule(
        "stopped clock",
        "all visits of a trip have the same time",
        "the trip is not used",
        _stopped_clock,
        _drop,
    ),
    Rule(
        "impossible speed",
        f"more than {FASTEST_MPS:.0f} m/s between two stops in a straight line",
        "the later visit is not used",
        _too_fast,
        _drop,
    ),
    Rule("lone visit", "a trip has one usable visit", "not used", _alone, _drop),
)


def clean(records: Records) -> tuple[Records, list[Problem]]:
    """Apply every rule in order; say what each found."""
    all_found = []
    for rule in RULES:
        rows = rule.find(records)
        example = described(records, int(np.argmax(rows))) if rows.any() else ""
        all_found.append(problem(rule.name, rule.wrong, rows, example, rule.done))
        if rows.any():
            records = replace(records, visits=rule.change(records.visits, rows))
    return records, all_found


def described(records: Records, visit: int) -> str:
    """A visit in words."""
    visits = records.visits
    trip, stop, at = int(visits.trip[visit]), int(visits.stop[visit]), visits.arrival_s[visit]
    named = f"trip {records.trips.id[trip]} on {records.days[records.trips.day[trip]]}"
    where = records.stops.id[stop] if stop >= 0 else "no stop"
    return (
        f"row {visits.row[visit]}: {named if trip >= 0 else 'no trip'}, stop "
        f"{visits.order[visit]:g} ({where}), {clock(at)}"
    )


def clock(second: float) -> str:
    """A second of the day as people read it; times after midnight go on from 24:00."""
    if np.isnan(second):
        return "no time"
    sign, second = ("-" if second < 0 else ""), abs(int(second))
    return f"{sign}{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
