"""What is known of a day so far: where buses are, when they called, who is on board, what comes.

`take` follows one message of a feed. What is known then says when a bus will reach a stop, and
what a policy sees of it. Nothing here gives advice or writes.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenline.city.model import Ints, Vehicle
from evenline.control.event import Array, headway_behind, new_headways
from evenline.live.courses import courses_of, due_times
from evenline.live.events import ARRIVES, Event, Track, Tracks
from evenline.live.feed import Snapshot
from evenline.live.frame import Frame, frame_of
from evenline.live.match import Matcher
from evenline.live.people import People
from evenline.worlds.open import OpenCity

KEPT_S = 5400.0  # of the paths that the page shows
_MOST_ERRORS, _FEWEST_ERRORS = 100, 10  # of expected arrivals, kept and needed for a line
Place = tuple[str, float, float, float]  # vehicle, second, metres along its line, how sure


class Queue(NamedTuple):
    """The running buses of a service, the first one first."""

    tracks: list[Track]
    rank: dict[int, int]  # of each trip
    on_board: float  # of all buses together

    def ahead_of(self, track: Track) -> Track | None:
        """The bus ahead of a bus; two at the same place are not ahead of each other."""
        here_m, index = track.fix.along_m, self.rank[track.trip]
        while index > 0:
            index -= 1
            if self.tracks[index].fix.along_m > here_m:
                return self.tracks[index]
        return None


class Question(NamedTuple):
    """A bus that soon reaches a stop, or stands there, and when it comes or came."""

    trip: int
    stop: int
    at_s: float
    track: Track


def _dwell_s(vehicle: Vehicle, off: float, on: float, load: float) -> int:
    """How long a bus stands for people whose numbers are expected."""
    alighting = round(off)
    return vehicle.base_dwell_s(round(off + on) - alighting, alighting, round(load))


class Situation:
    """The buses and the people of a city's day, as a feed reports them."""

    def __init__(self, opened: OpenCity) -> None:
        city = self.city = opened.city
        self.frame: Frame = frame_of(city)
        self.courses = courses_of(city, opened.calibration)
        due_s = due_times(city, self.courses, opened.calibration)
        self.dwell_s = city.vehicle.min_dwell_s
        self.start_s = [float(due[0]) for due in due_s]
        if city.due_s is not None:  # it says when a trip leaves, not when it is ready
            self.start_s = [at - self.dwell_s for at in self.start_s]
        matcher = Matcher(city, self.frame, self.courses, due_s)
        self.course_of = matcher.course_of
        self.tracks = Tracks(city, matcher, self.start_s, self.dwell_s)
        self.people = People(city)
        self.now_s = -1e9
        self.fed_s = -1e9  # when the feed last said something new
        self.paths: dict[int, deque[tuple[float, float]]] = {}
        self.predicted: dict[tuple[str, str], float] = {}  # by the feed; by trip and stop
        self.skipped: set[tuple[str, str]] = set()  # trip and stop, as the feed names them
        self.holds: dict[tuple[int, int], float] = {}  # until when a trip will stand at a stop
        self.targets_s: list[list[float]] = np.transpose(city.headway_targets()).tolist()
        self._headways = new_headways(city)
        self._leaves: dict[int, float] = {}  # when a bus that stands will leave
        self._expected: dict[tuple[int, int], float] = {}
        self._errors: dict[int, deque[float]] = {}  # of expected arrivals, by service

    # -- what happened ----------------------------------------------------------------------------

    def take(self, snapshot: Snapshot) -> tuple[list[Event], dict[str, Place]]:
        """Follow a message: events in the order of time, and the trips that have a new place."""
        if snapshot.positions:
            latest = max(position.at_s for position in snapshot.positions)
            self.fed_s = max(self.fed_s, min(self.frame.second(latest), self.now_s))
        self._update(snapshot)
        events = self.tracks.take(snapshot.positions, self.now_s)
        for event in events:
            self.note(event, self.occupied(event.trip))
        for trip in [t for t, p in self.paths.items() if p[-1][0] < self.now_s - KEPT_S]:
            del self.paths[trip]
        places: dict[str, Place] = {}
        for trip, track in self.tracks.running.items():
            path, place = self.paths.get(trip), track.place
            if path is None:
                path = self.paths[trip] = deque(maxlen=800)
            if not path or path[-1] != place:
                path.append(place)
                fixed = (track.vehicle, round(place[0], 1), round(place[1], 1))
                places[self.city.trips[trip].id] = (*fixed, round(track.sure, 3))
        return events, places

    def _update(self, snapshot: Snapshot) -> None:
        """Follow trip updates: expected arrivals, cancelled trips, stops that are left out."""
        today = ("", self.frame.date)
        self.predicted = {(p.trip, p.stop): p.at_s for p in snapshot.predictions}
        self.skipped = {(trip, stop) for trip, date, stop in snapshot.skipped if date in today}
        off = {trip for trip, date in snapshot.cancelled if date in today}
        for trip in self.tracks.matcher.cancel(off) & self.tracks.running.keys():
            del self.tracks.running[trip]

    def needed(self, snapshot: Snapshot) -> Snapshot:
        """The part of a message that a later poll depends on: of its updates, those that somebody
        may ask about before the next message.
        """
        running = self.tracks.running.values()
        stops = {(t.trip, stop) for t in running for stop in (t.next_stop, t.standing) if stop >= 0}
        near = {self.names(*call) for call in stops}
        off = self.tracks.matcher.cancelled
        return snapshot._replace(
            predictions=tuple(p for p in snapshot.predictions if (p.trip, p.stop) in near),
            cancelled=frozenset((self.names(trip, 0)[0], "") for trip in off),
            skipped=frozenset(call for call in snapshot.skipped if (call[0], call[2]) in near),
        )

    def names(self, trip: int, stop: int) -> tuple[str, str]:
        """A trip and a stop of it as the feed names them."""
        planned = self.city.trips[trip]
        place = self.city.stops[self.city.services[planned.service].stops[stop]]
        return planned.source or planned.id, place.source or place.id

    def occupied(self, trip: int) -> float:
        """How full a bus says it is, or -1."""
        track = self.tracks.running.get(trip)
        return track.occupied if track is not None else -1.0

    def note(self, event: Event, occupied: float) -> None:
        """Keep an event: headways, people, when the bus will leave."""
        h, trip, stop = self._headways, event.trip, event.stop
        place, visit = int(h.first_place[trip]) + stop, int(h.first_visit[trip]) + stop
        if event.kind != ARRIVES:
            self.people.leaves(place, event.at_s)
            self._leaves.pop(trip, None)
            return
        second, service = round(event.at_s), self.city.trips[trip].service
        h.position[trip], h.reached_s[trip] = stop, second
        h.visited_s[visit] = second
        h.last_s[place] = max(second, int(h.last_s[place]))
        load = self.people.on_board(trip, occupied)
        people = self.people.arrives(trip, place, second, self.targets_s[trip][0], load)
        self._leaves[trip] = second + _dwell_s(self.city.vehicle_of(trip), *people, load)
        expected_s = self._expected.pop((trip, stop), None)
        if expected_s is not None:
            errors = self._errors.setdefault(service, deque(maxlen=_MOST_ERRORS))
            errors.append(abs(expected_s - event.at_s))
        course = self.courses[service]
        if stop == course.last and trip in self.paths:
            self.paths[trip].append((event.at_s, course.stops_m[stop]))

    @property
    def seen_s(self) -> Ints:
        """When each trip was seen to reach each of its stops, one entry per visit; -1 if not."""
        return self._headways.visited_s

    def reached_s(self, trip: int, stop: int) -> float:
        """When a trip was seen to reach a stop, or -1."""
        return float(self._headways.visited_s[int(self._headways.first_visit[trip]) + stop])

    # -- what comes -------------------------------------------------------------------------------

    def expected_s(self, track: Track, stop: int) -> float:
        """When a bus will reach a stop ahead of it."""
        course, here = self.course_of(track.trip), track.fix.along_m
        at, first = track.fix.at_s, track.next_stop
        if first == 0:
            at, here = max(self.start_s[track.trip], at), course.stops_m[0]
            if stop > 0:
                at, first = at + self.dwell_s, 1
        elif track.standing >= 0:
            held_s = self.holds.get((track.trip, track.standing), at)
            at = max(at, self._leaves.get(track.trip, at), held_s)
        for k in range(first, stop + 1):
            at += course.travel_s(here, course.stops_m[k], at)
            here = max(here, course.stops_m[k])
            at += self.dwell_s if k < stop else 0.0
        return max(at, self.now_s)

    def expect(self, trip: int, stop: int, at_s: float) -> None:
        """Keep when a bus is expected, to compare it with its arrival."""
        if self.reached_s(trip, stop) < 0:
            self._expected[trip, stop] = at_s

    def noise_s(self, service: int) -> float:
        """The median error of the arrivals that were expected on a line; 0 if too few are known."""
        errors = self._errors.get(service, ())
        return float(np.median(errors)) if len(errors) >= _FEWEST_ERRORS else 0.0

    def queues(self) -> dict[int, Queue]:
        """The running buses of each service."""
        order: dict[int, list[Track]] = {}
        for trip, track in self.tracks.running.items():
            order.setdefault(self.city.trips[trip].service, []).append(track)
        queues = {}
        for service, tracks in order.items():
            tracks.sort(key=lambda track: -track.fix.along_m)
            index = {track.trip: i for i, track in enumerate(tracks)}
            queues[service] = Queue(tracks, index, sum(map(self.load, tracks)))
        return queues

    def load(self, track: Track) -> float:
        """The people on board a bus."""
        return self.people.on_board(track.trip, track.occupied)

    # -- what a policy sees -----------------------------------------------------------------------

    def raw(self, questions: Sequence[Question]) -> Array:
        """The sixteen features of each event, in the order of RAW_FEATURES."""
        queues = self.queues()
        return np.array([self._raw(q, queues[self.city.trips[q.trip].service]) for q in questions])

    def _raw(self, question: Question, queue: Queue) -> tuple[float, ...]:
        trip, stop, at_s, track = question
        people, target_s = self.people, self.targets_s[trip]
        place = int(self._headways.first_place[trip]) + stop
        ahead_s = self._ahead_s(question, place, queue)
        behind_s = self._behind_s(trip, track, queue)
        waiting, load = people.waiting(place, at_s, target_s[0]), self.load(track)
        off, on = people.exchange(trip, place, waiting, load)
        vehicle = self.city.vehicle_of(trip)
        return (
            self.city.trips[trip].service, stop, max(round(at_s), 0), max(ahead_s, 0.0),
            max(behind_s, 0.0), *target_s, round(waiting), round(load),
            people.rate[place, people.half_hour(at_s)], _dwell_s(vehicle, off, on, load),
            ahead_s >= 0, behind_s >= 0, vehicle.capacity, 0.0, queue.on_board,
        )  # fmt: skip

    def _ahead_s(self, question: Question, place: int, queue: Queue) -> float:
        """The headway to the bus ahead at a stop, or -1 if none is known."""
        trip, stop, at_s, _ = question
        last_s = float(self._headways.last_s[place])
        if last_s >= 0 and last_s == self.reached_s(trip, stop):  # that was this bus
            others = [t for t in self.city.trips_of[self.city.trips[trip].service] if t != trip]
            offsets = self._headways.first_visit[others] + stop
            last_s = float(self._headways.visited_s[offsets].max(initial=-1))
        index = queue.rank[trip]
        if index > 0 and queue.tracks[index - 1].next_stop <= stop:
            last_s = max(last_s, self.expected_s(queue.tracks[index - 1], stop))
        return max(at_s - last_s, 0.0) if last_s >= 0 else -1.0

    def _behind_s(self, trip: int, track: Track, queue: Queue) -> float:
        """The headway to the bus behind as observed, or -1 if there is none on its way."""
        index, h = queue.rank[trip], self._headways
        if index + 1 == len(queue.tracks) or queue.tracks[index + 1].next_stop == 0:
            return -1.0
        follower = queue.tracks[index + 1]
        its = int(h.position[follower.trip])
        mine = int(h.first_visit[trip])
        known = its >= 0 and h.visited_s[mine + its] >= 0
        if known and (its >= h.position[trip] or h.visited_s[mine + its + 1] >= 0):
            h.behind[trip] = follower.trip
            return float(max(headway_behind(h, trip, round(self.now_s)), 0))
        course = self.course_of(trip)
        stops = max(track.next_stop - follower.next_stop, 0)
        away_s = course.travel_s(follower.fix.along_m, track.fix.along_m, self.now_s)
        return away_s + stops * self.dwell_s
