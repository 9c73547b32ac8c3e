"""The stop times of a GTFS feed: the calls of each trip, with every time.

Times that begin at 00:00 again after midnight are understood. A trip that contradicts itself is a
`TripFault`, so that the others can be used. Of trips on other days only the stops are kept.
"""

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from evenline.importing.feed import Feed
from evenline.support.errors import InputError

MOST_CALLS = 1_000_000  # that are kept at a time
MOST_STOPS = 10_000_000  # of the trips of all days
REGULAR, _NONE = "0", "1"  # pickup_type and drop_off_type; 2 and 3 are on request
_DAY_S = 86_400
_LONGEST_WRAP_S = 6 * 3600  # from a time before midnight to the next one, if that begins at 00:00
_TIME = re.compile(r"(\d{1,3}):([0-5]\d):([0-5]\d)")


class TripFault(InputError):
    """What is wrong with one trip, with its row; the other trips can be used."""


@dataclass(frozen=True, slots=True)
class Call:
    """A row of `stop_times.txt`; times may be blank."""

    row: int
    sequence: int
    stop: str
    arrival_s: int | None
    departure_s: int | None
    pickup: str
    drop_off: str

    @property
    def served(self) -> bool:
        return not self.pickup == self.drop_off == _NONE


@dataclass(frozen=True, slots=True)
class Visit:
    """A call that people can use, with its times, and whether the feed gives them."""

    call: Call
    arrival_s: int
    departure_s: int
    given: bool


def seconds_of(where: str, text: str) -> int:
    """A time of a feed, which may be past midnight, in seconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: {text!r} is not a time such as 08:05:00")
    hours, minutes, seconds = map(int, match.groups())
    return 3600 * hours + 60 * minutes + seconds


def number_of(where: str, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where}: {column} is {text!r}; must be a number of at least 0")
    return value


def read_calls(
    feed: Feed, trips: Collection[str], every: Collection[str]
) -> tuple[dict[str, list[Call]], dict[str, tuple[str, ...]]]:
    """The rows of the trips of a day, and the stops that every trip of their routes serves."""
    calls: dict[str, list[Call]] = {trip: [] for trip in trips}
    stops_of: dict[str, array[int]] = defaultdict(lambda: array("q"))
    number: dict[str, int] = {}
    needed = ("trip_id", "stop_id", "stop_sequence")
    optional = ("arrival_time", "departure_time", "pickup_type", "drop_off_type")
    kept = passed = 0
    for row, (trip, stop, sequence, *rest) in feed.rows("stop_times.txt", needed, optional):
        if trip not in every:
            continue
        where = f"{feed.path}: stop_times.txt: row {row}"
        if trip in calls:
            calls[trip].append(_call(where, row, stop, sequence, rest))
            kept += 1
        if rest[2:] != [_NONE, _NONE] and _is_whole(sequence):
            stops_of[trip].extend((int(sequence), number.setdefault(stop, len(number))))
            passed += 1
        for count, most in ((kept, MOST_CALLS), (passed, MOST_STOPS)):
            if count > most:
                raise InputError(f"{where}: more than {most:,} stop times; choose fewer routes")
    names = tuple(number)
    return calls, {trip: _in_order(pairs, names) for trip, pairs in stops_of.items()}


def _call(where: str, row: int, stop: str, sequence: str, rest: Sequence[str]) -> Call:
    arrival, departure = (seconds_of(where, text) if text else None for text in rest[:2])
    for column, kind in zip(("pickup_type", "drop_off_type"), rest[2:], strict=True):
        if kind not in ("", "0", "1", "2", "3"):
            raise InputError(f"{where}: {column} is {kind!r}; must be 0, 1, 2 or 3")
    return Call(
        row,
        int(number_of(where, "stop_sequence", sequence)),
        stop,
        departure if arrival is None else arrival,
        arrival if departure is None else departure,
        *(kind or REGULAR for kind in rest[2:]),
    )


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 18


def _in_order(pairs: "array[int]", names: Sequence[str]) -> tuple[str, ...]:
    """The stops of a trip in the order of their numbers; one listed twice in a row counts once."""
    stops = [stop for _, stop in sorted(zip(pairs[::2], pairs[1::2], strict=True))]
    return tuple(names[stop] for i, stop in enumerate(stops) if not i or stop != stops[i - 1])


def in_order(feed: Feed, trip: str, calls: Sequence[Call]) -> list[Call]:
    """The calls of a trip by their numbers."""
    ordered = sorted(calls, key=lambda call: call.sequence)
    for first, second in pairwise(ordered):
        if first.sequence == second.sequence:
            raise TripFault(
                f"{feed.path}: stop_times.txt: row {second.row}: trip {trip!r} has "
                f"stop_sequence {second.sequence} twice"
            )
    joined = _joined(ordered)
    if len(joined) < 2:
        raise TripFault(f"{feed.path}: stop_times.txt: trip {trip!r} has fewer than two stops")
    return joined


def _joined(calls: Sequence[Call]) -> list[Call]:
    """A stop that is listed twice in a row, to arrive and to leave, is served once."""
    joined: list[Call] = []
    for call in calls:
        before = joined[-1] if joined else None
        if before is None or before.stop != call.stop:
            joined.append(call)
            continue
        if before.arrival_s is None:
            before = replace(before, arrival_s=call.arrival_s, departure_s=call.departure_s)
        elif call.departure_s is not None:
            before = replace(before, departure_s=call.departure_s)
        kinds = min(before.pickup, call.pickup), min(before.drop_off, call.drop_off)
        joined[-1] = replace(before, pickup=kinds[0], drop_off=kinds[1])
    return joined


# -- times ----------------------------------------------------------------------------------------


def visits_of(
    feed: Feed, trip: str, calls: Sequence[Call], along: Sequence[float]
) -> tuple[list[Visit], bool]:
    """The calls that people can use, with every time, and whether times began at 00:00 again.

    `along` is how far each call lies from the first: blank times are spread over it.
    """
    where = f"{feed.path}: stop_times.txt"
    for end in (calls[0], calls[-1]):
        if end.arrival_s is None:
            raise TripFault(
                f"{where}: row {end.row}: trip {trip!r} has no time at its first or last stop"
            )
    known: dict[int, tuple[int, int]] = {}
    before_s, wrapped = -1, False
    for number, call in enumerate(calls):
        if call.arrival_s is None or call.departure_s is None:
            continue
        arrives_s = _after(before_s, call.arrival_s)
        leaves_s = _after(arrives_s, call.departure_s)
        if arrives_s < before_s or leaves_s < arrives_s:
            raise TripFault(f"{where}: row {call.row}: times of trip {trip!r} go backward")
        wrapped |= leaves_s != call.departure_s
        known[number] = arrives_s, leaves_s
        before_s = leaves_s
    visits: list[Visit] = []
    for call, (arrives, leaves) in zip(calls, interpolated(known, along), strict=True):
        if visits and call.served and visits[-1].call.stop == call.stop:
            visits[-1] = replace(visits[-1], departure_s=leaves)
        elif call.served:
            visits.append(Visit(call, arrives, leaves, call.arrival_s is not None))
    return visits, wrapped


def _after(before_s: int, at_s: int) -> int:
    """A time of a trip, a day later if the clock began again since the time before."""
    again = at_s < before_s <= at_s + _DAY_S <= before_s + _LONGEST_WRAP_S
    return at_s + _DAY_S if again else at_s


def interpolated(
    known: Mapping[int, tuple[int, int]], along: Sequence[float]
) -> list[tuple[int, int]]:
    """Arrival and departure at every stop: those known; between them, by the share of the way."""
    times = [known.get(number, (0, 0)) for number in range(len(along))]
    for first, second in pairwise(sorted(known)):
        span, left_s, until_s = along[second] - along[first], known[first][1], known[second][0]
        for i in range(first + 1, second):
            share = (along[i] - along[first]) / span if span else (i - first) / (second - first)
            at_s = round(left_s + share * (until_s - left_s))
            times[i] = at_s, at_s
    return times
