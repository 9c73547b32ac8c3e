"""How long buses stand at stops, fitted robustly to what was recorded.

With recorded departures the fit is to dwells, otherwise to the times from stop to stop. It also
finds out whether recorded times are arrivals or departures.
"""

from dataclasses import dataclass, fields

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, Ints
from evenline.records.clean import Mask
from evenline.records.estimates import Estimate, Z, estimate, numbered, robust, unsure, within
from evenline.records.patterns import Driven
from evenline.worlds.calibration import HOUR_S, closeness

LONG_RUN_S, _LONG_DWELL_S = 1_800.0, 300.0
_CLOSE_WITHIN_S = 120.0  # so close a bus is slow whatever its people do
_ROUNDINGS = 3  # times that the fit is corrected for dwells of whole seconds
_EXACT_S = 0.5  # clocks show whole seconds, so where dwells fit better, errors are at least:
_LEAST_ERROR_S = np.array([0.15, 0.02, 0.02, 0.002])
_OPENING, _BOARDING, ALIGHTING, _CROWDING = (
    "opening_s",
    "boarding_s_per_passenger",
    "alighting_s_per_passenger",
    "crowding_s_per_passenger",
)
_PRIOR_S = {  # mean and standard deviation of what doors usually need
    _OPENING: (3.0, 3.0),
    _BOARDING: (4.0, 2.0),
    ALIGHTING: (4.0, 2.0),
    _CROWDING: (0.0, 0.05),
}


@dataclass(frozen=True, eq=False)
class Steps:
    """Times from one stop to the next, as columns."""

    day: Ints
    trip: Ints
    place: Ints  # of the first stop
    from_s: Floats
    to_s: Floats
    here: Floats  # people who passed the doors at the first stop
    there: Floats  # and at the second
    boards: Floats  # of them, people who got on: at the first stop, at the second
    boards_there: Floats
    load: Floats  # when it left the first
    stood_s: Floats  # recorded dwell at the first stop, or NaN
    begins: Mask  # whether it is the first of the service
    headway_s: Floats  # behind another bus one stop earlier, or NaN
    late_s: Floats  # how late its trip started, or NaN

    def only(self, rows: Mask | Ints) -> "Steps":
        return Steps(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})

    def close(self, within_s: float) -> Floats:
        """How close each bus was behind another one stop earlier; 0 if that is not known."""
        gaps = np.nan_to_num(self.headway_s, nan=within_s).tolist()
        return np.array([closeness(gap, within_s) for gap in gaps], float)

    def people(self, second: bool) -> tuple[Floats, Floats, Floats]:
        """Who boards and who alights at the first or the second stop, and who comes on board."""
        if second:
            return self.boards_there, self.there - self.boards_there, self.load
        off = self.here - self.boards
        return self.boards, off, np.maximum(self.load - self.boards + off, 0.0)


@dataclass(frozen=True)
class Doors:
    """How long a bus stands; see `evenline.city.model.Vehicle`.

    `stamp` says what the recorded time of a visit is: the bus's arrival or its departure.
    """

    opening_s: float
    boarding_s: float
    alighting_s: float
    crowding_s: float
    stamp: str

    def dwell_s(self, on: Floats, off: Floats, load: Floats) -> Floats:
        stands_s = _columns(on, off, load) @ self.seconds
        return np.asarray(np.ceil(stands_s.round(6)))

    @property
    def seconds(self) -> Floats:
        return np.array([self.opening_s, self.boarding_s, self.alighting_s, self.crowding_s])


def _columns(on: Floats, off: Floats, load: Floats) -> Floats:
    """How often each of the four numbers counts at a stop."""
    people = on + off
    return np.stack([np.minimum(people, 1.0), on, off, people * load], axis=1)


def steps_of(driven: Driven, city: City, headway_s: Floats) -> Steps:
    """The steps of all trips between neighbouring stops, from the headway of each visit."""
    follows = (driven.trip[1:] == driven.trip[:-1]) & (np.diff(driven.position) == 1)
    row = np.flatnonzero(follows)
    on, off = np.nan_to_num(driven.boarded), np.nan_to_num(driven.alighted)
    seconds = driven.time_s[row + 1] - driven.time_s[row]
    row = row[(seconds > 0) & (seconds < LONG_RUN_S)]
    before = np.maximum(row - 1, 0)
    again = (driven.trip[before] == driven.trip[row]) & (driven.position[row] > 0)
    return Steps(
        driven.day[row],
        driven.trip[row],
        service_stop_offsets(city)[driven.service[row]] + driven.position[row],
        driven.time_s[row],
        driven.time_s[row + 1],
        (on + off)[row],
        (on + off)[row + 1],
        on[row],
        on[row + 1],
        np.nan_to_num(driven.load[row]),
        driven.departure_s[row] - driven.time_s[row],
        driven.position[row] == 0,
        np.where(again, headway_s[before], np.nan),
        np.full(len(row), np.nan),
    )


def fit_doors(steps: Steps, stamp: str = "") -> tuple[Doors, list[Estimate]]:
    """How long buses stand for people, and whether times are arrivals or departures.

    With recorded departures, from the dwells of stops where anybody gets on or off; otherwise from
    the time to the next stop. If that depends on the people at the next stop rather than at this
    one, the recorded times are departures, unless `stamp` says what they are. Without dwells, only
    differences within a segment and hour count, so that a stop where every bus is slow does not
    look like people. Buses wait at their first stop, so it does not count either.
    """
    known = bool(np.isfinite(steps.stood_s).mean() > 0.5)
    used = steps.only(~steps.begins & ((steps.stood_s < _LONG_DWELL_S) | (not known)))
    group = numbered(used.place.astype(np.int64) * 48 + (used.from_s // HOUR_S).astype(int))
    y = used.stood_s if known else used.to_s - used.from_s
    apart = within(y, group)
    beside = np.stack([within(people, group) for people in (used.here, used.there)], axis=1)
    both, errors = robust(apart, beside, used.trip)
    if not stamp:
        stamp = "departure" if not known and both[1] > both[0] else "arrival"
    columns = _columns(*used.people(stamp == "departure"))
    if known:
        some = columns[:, 0] > 0
        of_doors = _four(y[some], columns[some], columns[some], used.trip[some], "recorded dwells")
    else:
        x = columns
        if stamp == "departure":
            x = columns - _came_meanwhile(columns, used, group) * apart[:, None]
        close = within(used.close(_CLOSE_WITHIN_S), group)
        x = np.stack([_beside(within(people, group), close) for people in x.T], axis=1)
        source = "from stop to stop, with a prior"
        of_doors = _four(_beside(apart, close), columns, x, used.trip, source)
    what, n = "what the recorded time is", len(y)
    return Doors(*of_doors[0], stamp), [
        *of_doors[1],
        estimate("people_here_s", both[0], errors[0], n, what),
        estimate("people_at_next_stop_s", both[1], errors[1], n, what),
    ]


def _beside(values: Floats, other: Floats) -> Floats:
    """What another column does not explain: a close follower is slow and finds few people."""
    return np.asarray(values - other * (other @ values) / max(float(other @ other), 1e-9))


def _came_meanwhile(columns: Floats, used: Steps, group: Ints) -> Floats:
    """What one more second on the way adds to each column at the stop that follows.

    A bus that is late for any reason finds more people there; that is not what they cost.
    """
    people = np.bincount(group, columns[:, 1]) / (HOUR_S * len(np.unique(used.day)))
    rate, used_doors = people[group], np.bincount(group, columns[:, 0]) / np.bincount(group)
    none = np.zeros(len(group))
    return np.stack([rate * (1 - used_doors[group]), rate, none, rate * used.load], axis=1)


def _four(
    y: Floats, columns: Floats, x: Floats, trip: Ints, source: str
) -> tuple[tuple[float, float, float, float], list[Estimate]]:
    """The four numbers of the doors, fitted together; `x` is what the columns tell of the times.

    A number that is not positive is taken as 0, and so is crowding that may be 0.
    """
    mean = np.array([usual for usual, _ in _PRIOR_S.values()])
    value, error = _fitted(y, columns, x, trip, mean)
    kept = value > np.array([0.0, 0.0, 0.0, Z * error[3]])
    used, less = _fitted(y, columns * kept, x * kept, trip, mean * kept)
    estimates = []
    for i, name in enumerate(_PRIOR_S):
        if not np.abs(x[:, i]).max(initial=0.0) > 0:
            why = f"not identifiable; assumed {used[i]:g}"
            estimates.append(unsure(name, float(used[i]), len(y), why))
        elif kept[i]:
            estimates.append(estimate(name, used[i], less[i], len(y), source))
        else:
            why = "may be 0" if value[i] > 0 else "not positive"
            estimates.append(estimate(name, value[i], error[i], len(y), f"{why}; assumed 0"))
    opening, boarding, alighting, crowding = (used * kept).round(4).tolist()
    return (opening, boarding, alighting, crowding), estimates


def _fitted(
    y: Floats, columns: Floats, x: Floats, trip: Ints, mean: Floats
) -> tuple[Floats, Floats]:
    """A robust fit of dwells that are rounded up to whole seconds, as in the fast world."""
    sd = np.array([sd for _, sd in _PRIOR_S.values()])
    value, error = robust(y, x, trip, (mean, sd))
    for _ in range(_ROUNDINGS):
        stands = columns @ value
        rounded = np.ceil(stands) - stands
        value, error = robust(y - rounded, x, trip, (mean, sd))
    exact = len(y) and float(np.median(np.abs(y - rounded - x @ value))) < _EXACT_S
    return value, np.maximum(error, _LEAST_ERROR_S) if exact else error
