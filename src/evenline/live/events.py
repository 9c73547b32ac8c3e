"""From reports to events: when each bus reached and left each stop between two polls.

Between two reports a bus drove at its usual speed and stood at the stops that it passed; the time
that is left over was spent standing where it was seen, or the bus drove slower. Reports that cannot
be true (from the future, jumps, two vehicles of one trip, a bus frozen on the road) make no events
and lower how sure we are.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from evenline.city.model import City
from evenline.live.courses import Course
from evenline.live.feed import STOPPED_AT, Position
from evenline.live.match import Known, Match, Matcher

_FUTURE_S = 60.0
_FROZEN_S = 240.0
_LOST_S = 180.0  # a bus that has not reported for so long is no longer shown as running
_GAP_S = 60.0  # events between reports farther apart are less sure
_SLOW_MPS = 3.0
_PERSISTENT = 3  # reports after which an impossible place is believed
ARRIVES, LEAVES = "arrives", "leaves"


class Event(NamedTuple):
    """A bus reached or left a stop, at a second of the day."""

    kind: str
    trip: int
    stop: int
    at_s: float
    sure: float


class Fix(NamedTuple):
    """Where a bus was on its line."""

    at_s: float
    along_m: float
    speed_mps: float = -1.0  # negative: not known

    def reached(self, course: Course, stop: int) -> bool:
        """Whether the bus is at a stop or beyond it."""
        share = 0.5 if self.speed_mps < 0 else 1.0 if self.speed_mps < _SLOW_MPS else 0.17
        return self.along_m >= course.stops_m[stop] - share * course.near_m[stop]

    def beyond(self, course: Course, stop: int) -> bool:
        """Whether the bus has left a stop."""
        share = 0.17 if self.speed_mps >= _SLOW_MPS else 1.0
        return self.along_m > course.stops_m[stop] + share * course.near_m[stop]


class Calls(NamedTuple):
    """What a bus did between two fixes: calls, the next stop, and where it stands (-1: nowhere)."""

    calls: list[tuple[str, int, float]]
    next_stop: int
    standing: int


def calls_between(
    course: Course, before: Fix, after: Fix, next_stop: int, standing: int, dwell_s: float
) -> Calls:
    """The calls of a bus between two fixes."""
    end = next_stop
    while end <= course.last and after.reached(course, end):
        end += 1
    left = standing >= 0 and (end > next_stop or after.beyond(course, standing))
    if end == next_stop and not left:
        return Calls([], next_stop, standing)
    stands = end > next_stop and not after.beyond(course, end - 1)
    passed = end - next_stop - stands
    goal_m = min(after.along_m, course.stops_m[end - 1]) if stands else after.along_m
    start_m = min(before.along_m, goal_m)
    travel_s = course.travel_s(start_m, goal_m, before.at_s)
    spare_s = after.at_s - before.at_s - travel_s - passed * dwell_s
    shrink = 1.0
    if spare_s < 0:
        shrink = (after.at_s - before.at_s) / max(travel_s + passed * dwell_s, 1e-9)
        spare_s = 0.0
    parts = left + stands + passed  # who shares the spare time
    share_s = spare_s / parts if parts else 0.0
    at, here, calls = before.at_s, start_m, []
    if left:
        at += share_s
        calls.append((LEAVES, standing, at))
    for stop in range(next_stop, end):
        there = max(here, min(course.stops_m[stop], goal_m))
        at += shrink * course.travel_s(here, there, before.at_s)
        calls.append((ARRIVES, stop, at))
        if stop < end - 1 or not stands:
            at += shrink * dwell_s + share_s
            calls.append((LEAVES, stop, at))
        here = there
    return Calls(calls, end, end - 1 if stands else -1)


@dataclass(slots=True, eq=False)
class Track:
    """A bus on a trip, as far as it is known."""

    vehicle: str
    trip: int
    how: str
    sure: float
    fix: Fix
    next_stop: int
    standing: int = -1
    since_s: float = 0.0  # it has been where it is
    occupied: float = -1.0
    odd: int = 0  # impossible reports in a row

    @property
    def place(self) -> tuple[float, float]:
        return self.fix.at_s, self.fix.along_m


class Tracks:
    """All buses on their trips. `take` turns reports into events."""

    def __init__(self, city: City, matcher: Matcher, start_s: list[float], dwell_s: float) -> None:
        self.city, self.matcher = city, matcher
        self.start_s, self.dwell_s = start_s, dwell_s
        self.known: dict[str, Known] = {}
        self.running: dict[int, Track] = {}  # by trip
        self.done: set[int] = set()
        self.state: dict[str, str] = {}  # of each vehicle of the last poll, in words

    def take(self, positions: tuple[Position, ...], now_s: float) -> list[Event]:
        """The events of the reports of one poll, in the order of time."""
        events: list[Event] = []
        latest: dict[str, Position] = {}
        for position in positions:  # a feed may list a vehicle twice
            other = latest.get(position.vehicle)
            if other is None or other.at_s < position.at_s:
                latest[position.vehicle] = position
        self.state = {}
        for position in latest.values():
            self.state[position.vehicle] = self._one(position, now_s, events)
        for trip, track in list(self.running.items()):
            if now_s - track.fix.at_s > _LOST_S:
                del self.running[trip]
        for vehicle, known in list(self.known.items()):
            if now_s - known.at_s > 4 * 3600:
                del self.known[vehicle]
        events.sort(key=lambda event: event.at_s)
        return events

    def counts(self) -> Counter[str]:
        """How many vehicles of the last poll are in which state."""
        return Counter(self.state.values())

    def _one(self, position: Position, now_s: float, events: list[Event]) -> str:
        second = self.matcher.frame.second(position.at_s)
        if second > now_s + _FUTURE_S:
            return "clock ahead"
        if now_s - second > _LOST_S:
            return "old report"
        known = self.known.setdefault(position.vehicle, Known())
        if second <= known.at_s:
            track = self.running.get(known.trip)
            return track.how if track is not None and track.vehicle == position.vehicle else "same"
        match = self.matcher.find(position, second, known)
        known.at_s, known.x_m, known.y_m = second, match.x_m, match.y_m
        if match.trip < 0:
            return match.how
        if match.trip in self.done or match.trip in known.done:
            return "trip is over"
        owner = self.running.get(match.trip)
        if owner is not None and owner.vehicle != position.vehicle:
            owner.sure = min(owner.sure, 0.6)
            if now_s - owner.fix.at_s < _GAP_S * 1.5 and not self._frozen(owner, now_s):
                return "second bus of a trip"
            del self.running[match.trip]
        before = self.running.get(known.trip)
        if known.trip != match.trip and before is not None and before.vehicle == position.vehicle:
            self._finish(before, known, second, events)
        known.trip, known.how = match.trip, match.how
        known.duty = self.city.trips[match.trip].duty or known.duty
        return self._follow(position, second, match, known, events)

    def _follow(
        self, position: Position, second: float, match: Match, known: Known, events: list[Event]
    ) -> str:
        """Move a bus to its new place."""
        course = self.matcher.course_of(match.trip)
        along_m, speed = match.along_m, position.speed_mps
        if position.status == STOPPED_AT:
            stop = self.matcher.stop_of(match.trip, position)
            if stop >= 0 and abs(course.stops_m[stop] - along_m) <= 100:
                along_m, speed = course.stops_m[stop], 0.0
        fix = Fix(second, along_m, speed)
        track = self.running.get(match.trip)
        if track is None:
            track = self.begin(position.vehicle, match.trip, match.how, match.sure, fix)
        elif self._impossible(course, track, fix):
            track.odd += 1
            track.sure = min(track.sure, 0.6)
            if track.odd < _PERSISTENT:
                return "impossible jump"
            # No events for what lay between.
            track = self.begin(position.vehicle, match.trip, match.how, match.sure, fix)
        known.along_m = along_m
        sure = match.sure * min(1.0, _GAP_S / max(second - track.fix.at_s, 1.0))
        if abs(along_m - track.fix.along_m) > 2.0:
            track.since_s = second
        before = track.fix
        track.fix, track.odd, track.how = fix, 0, match.how
        track.occupied = position.occupied if position.occupied >= 0 else track.occupied
        if self._frozen(track, second):
            track.sure = 0.3 * match.sure
            return "frozen"
        track.sure = min(match.sure, track.sure + 0.1)  # trust comes back slowly
        self._call(course, track, before, fix, min(sure, track.sure), events)
        if track.next_stop > course.last:
            self._finish(track, known, second, events)
        return match.how

    def _call(
        self,
        course: Course,
        track: Track,
        before: Fix,
        after: Fix,
        sure: float,
        events: list[Event],
    ) -> None:
        trip, start_s = track.trip, self.start_s[track.trip]
        if track.next_stop == 0:
            if not after.beyond(course, 0):  # it waits for its start
                if after.reached(course, 0) and after.at_s >= start_s:
                    waited = before.reached(course, 0) and not before.beyond(course, 0)
                    at_s = max(start_s, before.at_s) if waited else after.at_s
                    events.append(Event(ARRIVES, trip, 0, at_s, sure))
                    track.next_stop, track.standing = 1, 0
                return
            if before.reached(course, 0):
                at_s = min(max(start_s, before.at_s), after.at_s)
                events.append(Event(ARRIVES, trip, 0, at_s, sure))
                track.next_stop, track.standing = 1, 0
                before = Fix(at_s, before.along_m, before.speed_mps)
        calls, track.next_stop, track.standing = calls_between(
            course, before, after, track.next_stop, track.standing, self.dwell_s
        )
        events += [Event(kind, trip, stop, at_s, sure) for kind, stop, at_s in calls]

    def begin(self, vehicle: str, trip: int, how: str, sure: float, fix: Fix) -> Track:
        """Follow a bus from here on; what it did before is not known."""
        course, stop = self.matcher.course_of(trip), 0
        if fix.along_m > course.stops_m[0] + course.near_m[0]:
            while stop <= course.last and fix.reached(course, stop):
                stop += 1
        standing = stop - 1 if stop > 0 and not fix.beyond(course, stop - 1) else -1
        track = Track(vehicle, trip, how, sure, fix, stop, standing, fix.at_s)
        self.running[trip] = track
        return track

    def _impossible(self, course: Course, track: Track, fix: Fix) -> bool:
        moved_m, took_s = fix.along_m - track.fix.along_m, fix.at_s - track.fix.at_s
        return moved_m > 35.0 * took_s + 50.0 or moved_m < -90.0

    def _frozen(self, track: Track, now_s: float) -> bool:
        """Whether a bus has stood too long where no stop is."""
        at_end = track.next_stop == 0 or track.standing >= 0
        return not at_end and now_s - track.since_s > _FROZEN_S

    def _finish(self, track: Track, known: Known, second: float, events: list[Event]) -> None:
        """End a trip; a bus that reports its next trip near the last stop has reached that stop."""
        course = self.matcher.course_of(track.trip)
        left_m = course.stops_m[course.last] - track.fix.along_m
        if track.next_stop == course.last and left_m < 300:
            at_s = min(track.fix.at_s + left_m / 6.0, second)
            events.append(Event(ARRIVES, track.trip, course.last, at_s, 0.7 * track.sure))
            track.next_stop += 1
        if track.next_stop > course.last:
            self.done.add(track.trip)
        known.done.add(track.trip)
        self.running.pop(track.trip, None)
