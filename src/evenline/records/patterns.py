"""Services from what was driven: patterns, the trips that follow them, and a timetable.

A line is a route in one direction. A sequence of stops that many trips drove becomes a service;
other trips are matched to the service that they follow in part. Where there is no schedule, the
timetable is what the days agree on: departures of different days that lie close together are one
planned trip, and a day on which it is not seen did not record it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from evenline.city.model import Floats, Ints
from evenline.records.clean import Mask, Records
from evenline.support.errors import InputError

_OWN_SHARE, _OWN_TRIPS = 0.02, 4  # of a line's trips: what a sequence needs to be a service
_SAME_SHARE = 0.9  # of both sequences: what makes a sequence a variant of a service
_COVER_SHARE = 0.6  # of a service: what a trip must have visited to count as one of its trips
_MATCH_SHARE, _MATCH_LEAST_S, _MATCH_MOST_S = 1.0, 60.0, 900.0  # of a headway: the same departure

Place = tuple[int, int]  # a stop of the records, and how often the trip visited it before


class Direction(NamedTuple):
    """A route in one direction."""

    route: str
    direction: int


@dataclass(frozen=True)
class Pattern:
    """The stops of a service in order, and how many trips were seen to drive just them."""

    line: Direction
    places: tuple[Place, ...]
    trips: int


@dataclass(frozen=True, eq=False)
class Driven:
    """Visits matched to services, as columns, sorted by trip and position."""

    day: Ints
    trip: Ints  # a number of its own for each trip of each day
    service: Ints
    position: Ints
    time_s: Floats  # recorded as the arrival; `evenline.records.fit` finds out what it is
    departure_s: Floats
    due_s: Floats
    boarded: Floats
    alighted: Floats
    load: Floats  # on departure

    def __len__(self) -> int:
        return len(self.trip)

    def only(self, keep: Mask | Ints) -> "Driven":
        return Driven(**{column.name: getattr(self, column.name)[keep] for column in fields(self)})

    def moved(self, seconds: float) -> "Driven":
        """The same visits with a clock that starts later."""
        return replace(
            self,
            time_s=self.time_s - seconds,
            departure_s=self.departure_s - seconds,
            due_s=self.due_s - seconds,
        )

    def first_rows(self) -> Ints:
        """The first row of each trip."""
        return np.flatnonzero(np.diff(self.trip, prepend=-1)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Planned:
    """A timetable: planned trips by service and time, and the recorded trips behind each."""

    service: Ints
    departure_s: Ints
    seen: tuple[tuple[int, ...], ...]  # trips of `Driven`, at most one a day


# -- patterns -------------------------------------------------------------------------------------


def places_of(stops: Iterable[int]) -> tuple[Place, ...]:
    """The stops of a trip, with a number for each repeated one."""
    before: Counter[int] = Counter()
    places = []
    for stop in stops:
        places.append((stop, before[stop]))
        before[stop] += 1
    return tuple(places)


def _sequences(records: Records) -> dict[int, tuple[Place, ...]]:
    """The places of each trip, by the trip's number in the records."""
    visits = records.visits
    starts = np.flatnonzero(np.diff(visits.trip, prepend=-1))
    parts = np.split(visits.stop, starts[1:]) if len(starts) else []
    return {
        int(trip): places_of(stops.tolist())
        for trip, stops in zip(visits.trip[starts], parts, strict=True)
    }


def patterns(records: Records) -> list[Pattern]:
    """The services of each line: its usual sequences of stops, the most frequent first."""
    counted: dict[Direction, Counter[tuple[Place, ...]]] = defaultdict(Counter)
    for trip, places in _sequences(records).items():
        counted[Direction(*records.line(trip))][places] += 1
    services: list[Pattern] = []
    for line in sorted(counted):
        of_line: list[Pattern] = []
        trips = counted[line].total()
        for places, count in sorted(counted[line].items(), key=lambda item: (-item[1], item[0])):
            enough = count >= max(_OWN_TRIPS, _OWN_SHARE * trips)
            known = any(_same(places, pattern.places) for pattern in of_line)
            if len(places) >= 2 and not known and (enough or not of_line):
                of_line.append(Pattern(line, places, count))
        services += of_line
    if not services:
        raise InputError(f"{records.name}: no trip of these routes, days and hours has two visits")
    return services


def _same(places: Sequence[Place], other: Sequence[Place]) -> bool:
    """Whether a sequence is a service's but for a stop, a tenth of them, or gaps in between."""
    common, longest = len(common_places(places, other)), max(len(places), len(other))
    gaps = common == len(places) and (places[0], places[-1]) == (other[0], other[-1])
    return common >= min(_SAME_SHARE * longest, longest - 1) or (
        gaps and common >= _COVER_SHARE * longest
    )


def common_places(first: Sequence[Place], second: Sequence[Place]) -> list[tuple[int, int]]:
    """The longest sequence of places that two trips share, as pairs of positions."""
    length = np.zeros((len(first) + 1, len(second) + 1), int).tolist()
    for i in reversed(range(len(first))):
        row, below = length[i], length[i + 1]
        for j in reversed(range(len(second))):
            row[j] = below[j + 1] + 1 if first[i] == second[j] else max(below[j], row[j + 1])
    pairs, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        if first[i] == second[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def match(records: Records, services: Sequence[Pattern]) -> Driven:
    """Match every trip to the service that it followed for longest; leave out the others."""
    of_line: dict[Direction, list[int]] = defaultdict(list)
    for index, pattern in enumerate(services):
        of_line[pattern.line].append(index)
    known: dict[tuple[Direction, tuple[Place, ...]], tuple[int, list[tuple[int, int]]] | None] = {}
    rows: list[int] = []
    service: list[int] = []
    position: list[int] = []
    visits = records.visits
    starts = np.flatnonzero(np.diff(visits.trip, prepend=-1))
    for start, (trip, places) in zip(starts.tolist(), _sequences(records).items(), strict=True):
        key = Direction(*records.line(trip)), places
        if key not in known:
            known[key] = _best(places, of_line[key[0]], services)
        if (best := known[key]) is not None:
            rows += [start + i for i, _ in best[1]]
            service += [best[0]] * len(best[1])
            position += [j for _, j in best[1]]
    used = visits.only(np.array(rows, np.int32))
    return with_loads(
        Driven(
            records.trips.day[used.trip],
            used.trip,
            np.array(service, np.int32),
            np.array(position, np.int32),
            *(used.arrival_s, used.departure_s, used.due_s),
            *(used.boarded, used.alighted, used.load),
        )
    )


def with_loads(driven: Driven) -> Driven:
    """Make loads from counts that are balanced over the trip, because recorded loads drift.

    A trip whose counts are not all known has no loads.
    """
    first = driven.first_rows()
    trip = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(driven))))
    on, off = (np.bincount(trip, x, len(first)) for x in (driven.boarded, driven.alighted))
    mean = (on + off) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = driven.boarded * (mean / on)[trip], driven.alighted * (mean / off)[trip]
    change = np.where(on[trip] > 0, steps[0], 0.0) - np.where(off[trip] > 0, steps[1], 0.0)
    change = np.where(np.isfinite((on + off)[trip]), change, np.nan)
    total = np.cumsum(np.nan_to_num(change))
    before = np.concatenate([[0.0], total])[first][trip]
    load = np.where(np.isfinite(change), np.maximum(total - before, 0.0), np.nan)
    return replace(driven, load=load)


def _best(
    places: tuple[Place, ...], candidates: Sequence[int], services: Sequence[Pattern]
) -> tuple[int, list[tuple[int, int]]] | None:
    best: tuple[int, list[tuple[int, int]]] | None = None
    score = 0.0
    for index in candidates:
        pairs = common_places(places, services[index].places)
        share = len(pairs) / len(services[index].places)
        fit = share + len(pairs) / len(places)
        if share >= _COVER_SHARE and fit > score:
            best, score = (index, pairs), fit
    return best


# -- timetable ------------------------------------------------------------------------------------


def start_times(driven: Driven, services: int) -> tuple[Floats, Floats]:
    """When each trip (by `first_rows`) was at its service's first stop, and when it was due there.

    A trip first seen farther along is dated back by the median time of the others.
    """
    first = driven.first_rows()
    times = (driven.time_s, driven.due_s)
    starts = [column[first].copy() for column in times]
    at, service = driven.position[first], driven.service[first]
    leaves = np.where(np.isnan(driven.departure_s), driven.time_s, driven.departure_s)
    starts[0] = np.where(at == 0, leaves[first], starts[0])
    of_trip = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(driven))))
    for index in range(services):
        late = np.flatnonzero((service == index) & (at > 0))
        for position in np.unique(at[late]):
            here = (driven.service == index) & (driven.position == position)
            others = here & (at[of_trip] == 0)
            rows = late[at[late] == position]
            for column, start in zip(times, starts, strict=True):
                if others.any():
                    ride = np.median(column[others] - start[of_trip[others]])
                    start[rows] -= ride if np.isfinite(ride) else 0.0
    return starts[0], starts[1]


def timetable(driven: Driven, services: int) -> Planned:
    """The trips that the days agree on, with their times: the schedule's, or the mean of days."""
    seen_s, due_s = start_times(driven, services)
    start_s = np.where(np.isnan(due_s), seen_s, due_s)
    first = driven.first_rows()
    service: list[int] = []
    departure: list[int] = []
    seen: list[tuple[int, ...]] = []
    for index in range(services):
        rows = np.flatnonzero(driven.service[first] == index)
        groups = _agreed(
            {
                int(day): rows[driven.day[first[rows]] == day]
                for day in np.unique(driven.day[first[rows]])
            },
            start_s,
        )
        times = _apart([float(np.mean(start_s[list(group)])) for group in groups])
        service += [index] * len(groups)
        departure += times
        seen += [tuple(int(driven.trip[first[row]]) for row in group) for group in groups]
    return Planned(np.array(service, np.int32), np.array(departure, np.int32), tuple(seen))


def _apart(times: Sequence[float]) -> list[int]:
    """Whole seconds in order, no two the same."""
    whole: list[int] = []
    for time in times:
        whole.append(max(round(time), whole[-1] + 1) if whole else round(time))
    return whole


def _agreed(by_day: Mapping[int, Ints], start_s: Floats) -> list[list[int]]:
    """Groups of rows of different days that are one planned trip, in order of time."""
    days = sorted(by_day.values(), key=len, reverse=True)
    if not days:
        return []
    groups: list[list[int]] = []
    for rows in days:
        ordered = rows[np.argsort(start_s[rows], kind="stable")].tolist()
        if not groups:
            groups = [[row] for row in ordered]
            continue
        times = [float(np.mean(start_s[group])) for group in groups]
        pairs = aligned(times, start_s[ordered].tolist())
        alone = set(range(len(ordered))) - {j for _, j in pairs}
        for i, j in pairs:
            groups[i].append(ordered[j])
        groups += [[ordered[j]] for j in sorted(alone)]
        groups.sort(key=lambda group: float(np.mean(start_s[group])))
    return groups


def aligned(first: Sequence[float], second: Sequence[float]) -> list[tuple[int, int]]:
    """Pairs of the same event in two ordered lists of times: near ones, each used once.

    The pairs keep the order and have the least sum of differences, where one without a partner
    counts half the largest difference that a pair may have.
    """
    gaps = np.diff(np.array(first)) if len(first) > 1 else np.array([_MATCH_MOST_S])
    most = float(np.clip(_MATCH_SHARE * np.median(gaps), _MATCH_LEAST_S, _MATCH_MOST_S))
    alone = most / 2
    cost = [[alone * (len(first) - i + len(second) - j) for j in range(len(second) + 1)]
            for i in range(len(first) + 1)]  # fmt: skip
    for i in reversed(range(len(first))):
        row, below = cost[i], cost[i + 1]
        for j in reversed(range(len(second))):
            apart = abs(first[i] - second[j])
            single = alone + min(below[j], row[j + 1])
            row[j] = min(single, apart + below[j + 1]) if apart <= most else single
    pairs, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        apart = abs(first[i] - second[j])
        if apart <= most and cost[i][j] == apart + cost[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif cost[i][j] == alone + cost[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
