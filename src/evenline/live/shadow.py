"""The shadow: it follows the feed, asks the policy, gives advice, and holds nobody.

`take` is one poll: reports become events, events become questions, answers become advice where a
line is switched on and the data are fresh and sure. Everything goes into the log, and a shadow that
was killed goes on from it. No clock is read here except to measure how long a decision takes.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

import evenline
from evenline.city.model import Ints
from evenline.city.tables import digest
from evenline.control.event import (
    BUS_AHEAD,
    BUS_BEHIND,
    TARGET_AHEAD,
    Array,
    headway_behind,
    new_headways,
)
from evenline.live import advice as a
from evenline.live.advice import Advice, Controller
from evenline.live.entries import (
    FORMAT,
    AdviceEntry,
    AnswerEntry,
    AskedEntry,
    Begun,
    Entry,
    EventEntry,
    LineEntry,
    PollEntry,
    checked,
)
from evenline.live.events import ARRIVES, Event, Fix, Track, Tracks
from evenline.live.feed import FeedError, Snapshot
from evenline.live.frame import Frame, frame_of
from evenline.live.lines import due_times, lines_of
from evenline.live.log import Log
from evenline.live.match import Known, Matcher
from evenline.live.people import People
from evenline.live.record import Polled
from evenline.policies.bundle import Bundle, open_policy, policy_digest, read_policy
from evenline.support.errors import InputError, choice
from evenline.worlds.open import OpenCity

MATCHED = ("trip", "block", "place", "same", "trip is over")
KEPT_S = 5400.0  # of the paths that the page shows


@dataclass(frozen=True)
class Rules:
    """When advice is given."""

    lead_s: float = 60.0  # a bus is asked about so long before it reaches a stop
    fresh_s: float = 75.0  # older reports give no advice
    sure: float = 0.7
    least_hold_s: float = 10.0  # shorter holds are not worth a word
    round_s: float = 5.0
    stops: frozenset[str] = frozenset()  # control points; empty: every stop but the last


class Shadow:
    """A day in shadow mode."""

    def __init__(
        self,
        opened: OpenCity,
        policy: str | Bundle,
        lines: Collection[str] = (),
        rules: Rules | None = None,
        log: Path | None = None,
        decided: Callable[[], float] = time.perf_counter,
    ) -> None:
        if opened.unfit:  # running times come from it
            raise InputError(opened.unfit)
        city = self.city = opened.city
        self.frame: Frame = frame_of(city)
        self.rules = rules or Rules()
        bundle = read_policy(policy) if isinstance(policy, str) else policy
        self.controller = Controller(open_policy(bundle, city, opened.calibration))
        self.lines = lines_of(city, opened.calibration)
        self.due_s = due_times(city, self.lines, opened.calibration)
        matcher = Matcher(city, self.frame, self.lines, self.due_s)
        self.dwell_s = city.vehicle.min_dwell_s
        starts = [float(due[0]) for due in self.due_s]
        if city.due_s is not None:  # it says when a trip leaves, not when it is ready
            starts = [at - self.dwell_s for at in starts]
        self.start_s = starts
        self.tracks = Tracks(city, matcher, starts, self.dwell_s)
        self.people = People(city)
        self.on: set[int] = set()
        self.advice: dict[int, Advice] = {}
        self._current: dict[int, list[Advice]] = {}  # what still applies, by trip
        self.now_s = -1e9
        self.fed_s = -1e9  # when the feed last said something new
        self.failure = ""
        self.dropped = 0
        self.polls: deque[tuple[float, float, int]] = deque(maxlen=240)  # when, ms, events
        self.paths: dict[int, deque[tuple[float, float]]] = {}
        self._predicted: dict[tuple[str, str], float] = {}  # by trip and stop
        self._fixes: dict[str, tuple[str, float, float, float]] = {}
        self._clock = decided
        self._number = {service.id: i for i, service in enumerate(city.services)}
        self._trip = {trip.id: i for i, trip in enumerate(city.trips)}
        self._headways = new_headways(city)
        self._targets = np.transpose(city.headway_targets()).tolist()
        self._leaves: dict[int, float] = {}  # when a bus that stands will leave
        self._log: Log[Entry] | None = None
        for name in lines:
            self.on.add(self._service(name))
        if log is not None:
            self._log = Log(log, Entry)
            try:
                self._restore(self._log.entries)
            except InputError as error:
                self._log.close()
                raise InputError(f"{log}: {error}") from None
            self._log.entries = []
            for advice in self.advice.values():
                if advice.applies:
                    self._current.setdefault(advice.trip, []).append(advice)
        self._write(
            Begun(
                format=FORMAT,
                evenline=evenline.__version__,
                city=digest(city),
                policy=bundle.name,
                policy_sha256=policy_digest(bundle),
                lines=tuple(city.services[i].id for i in sorted(self.on)),
                notes=city.notes,
            )
        )
        self._sync()

    # -- one poll ---------------------------------------------------------------------------------

    def take(self, polled: Polled) -> list[Advice]:
        """Follow one answer of the feed, or its absence; returns the new advice."""
        began = self._clock()
        now_s = self.frame.second(polled.at_s)
        self.now_s = max(self.now_s, now_s)  # a clock that jumps back changes nothing
        snapshot, self.failure, self._fixes = None, polled.failure, {}
        try:
            snapshot = polled.snapshot()
        except FeedError as error:
            self.failure = str(error)
        events: list[Event] = []
        if snapshot is not None:
            events = self._follow(snapshot)
        new = self._ask()
        self._review()
        took_ms = 1000 * (self._clock() - began)
        self.polls.append((self.now_s, took_ms, len(events)))
        self._write(
            PollEntry(
                at_s=self.now_s,
                age_s=min(self.now_s - self.fed_s, 1e9),
                states=dict(self.tracks.counts()) if snapshot is not None else {},
                dropped=0 if snapshot is None else snapshot.dropped,
                took_ms=took_ms,
                fixes=self._fixes,
                failure=self.failure or UNSET,
            )
        )
        self._sync()
        return new

    def _follow(self, snapshot: Snapshot) -> list[Event]:
        self.dropped = snapshot.dropped
        if snapshot.positions:
            latest = max(position.at_s for position in snapshot.positions)
            self.fed_s = max(self.fed_s, min(self.frame.second(latest), self.now_s))
        self._predicted = {(p.trip, p.stop): p.at_s for p in snapshot.predictions}
        events = self.tracks.take(snapshot.positions, self.now_s)
        for event in events:
            self._event(event)
        for trip in [t for t, p in self.paths.items() if p[-1][0] < self.now_s - KEPT_S]:
            del self.paths[trip]
        for trip, track in self.tracks.running.items():
            path = self.paths.setdefault(trip, deque(maxlen=800))
            if not path or path[-1] != track.place:
                path.append(track.place)
                at_s, along_m = (round(value, 1) for value in track.place)
                fixed = (track.vehicle, at_s, along_m, round(track.sure, 3))
                self._fixes[self.city.trips[trip].id] = fixed
        return events

    def _event(self, event: Event) -> None:
        track = self.tracks.running.get(event.trip)
        occupied = track.occupied if track is not None else -1.0
        self._note(event, occupied)
        line = self.lines[self.city.trips[event.trip].service]
        if event.kind == ARRIVES and event.stop == line.last and event.trip in self.paths:
            self.paths[event.trip].append((event.at_s, line.stops_m[line.last]))
        self._write(
            EventEntry(
                what="arrives" if event.kind == ARRIVES else "leaves",
                trip=self.city.trips[event.trip].id,
                stop=event.stop,
                at_s=round(event.at_s, 1),
                sure=round(event.sure, 3),
                vehicle=track.vehicle if track is not None else "",
                occupied=min(occupied, 1.0) if occupied >= 0 else UNSET,
            )
        )

    def _note(self, event: Event, occupied: float) -> None:
        """Keep an event: headways, people, when the bus will leave."""
        h, trip, stop = self._headways, event.trip, event.stop
        place, visit = int(h.first_place[trip]) + stop, int(h.first_visit[trip]) + stop
        if event.kind == ARRIVES:
            second = round(event.at_s)
            h.position[trip], h.reached_s[trip] = stop, second
            h.visited_s[visit] = second
            h.last_s[place] = max(second, int(h.last_s[place]))
            load = self.people.on_board(trip, occupied)
            waiting = self.people.waiting(place, second, self._targets[trip][0])
            off, on = self.people.exchange(trip, place, waiting, load)
            self.people.arrives(trip, place, second, self._targets[trip][0], load)
            self._leaves[trip] = second + self.city.vehicle_of(trip).base_dwell_s(round(off + on))
        else:
            self.people.leaves(place, event.at_s)
            self._leaves.pop(trip, None)
            for advice in self._current.get(trip, [])[:]:
                if advice.stop <= stop:
                    self._left(advice, event.at_s)

    def _left(self, advice: Advice, at_s: float) -> None:
        if advice.state == a.ACCEPTED:
            late_s = round(at_s - advice.until_s)
            self._become(advice, a.DONE, f"left at {self.frame.clock(at_s)} ({late_s:+d} s)")
        else:
            self._become(advice, a.WITHDRAWN, "the bus has left")

    @property
    def seen_s(self) -> Ints:
        """When each trip was seen to reach each of its stops, one entry per visit; -1 if not."""
        return self._headways.visited_s

    # -- questions --------------------------------------------------------------------------------

    def expected_s(self, track: Track, stop: int) -> float:
        """When a bus will reach a stop ahead of it."""
        line, here = self.lines[self.city.trips[track.trip].service], track.fix.along_m
        at, first = track.fix.at_s, track.next_stop
        if first == 0:
            at, here = max(self.start_s[track.trip], at), line.stops_m[0]
            if stop > 0:
                at, first = at + self.dwell_s, 1
        elif track.standing >= 0:
            held = [x.until_s for x in self._current.get(track.trip, ()) if self._holds(x, track)]
            at = max(at, self._leaves.get(track.trip, at), *held)
        for k in range(first, stop + 1):
            at += line.travel_s(here, line.stops_m[k], at)
            here = max(here, line.stops_m[k])
            at += self.dwell_s if k < stop else 0.0
        return max(at, self.now_s)

    @staticmethod
    def _holds(advice: Advice, track: Track) -> bool:
        return advice.state == a.ACCEPTED and advice.stop == track.standing

    def _ask(self) -> list[Advice]:
        """Ask the policy about every bus that soon reaches a stop, and give its advice."""
        asked: list[tuple[int, int, float, Track]] = []
        for trip, track in self.tracks.running.items():
            last = self.lines[self.city.trips[trip].service].last
            before = self.controller.asked.get(trip, -1)
            if track.sure < 0.4 or self.now_s - track.fix.at_s > self.rules.fresh_s:
                continue
            if track.standing > before:
                if track.standing < last:
                    visit = int(self._headways.first_visit[trip]) + track.standing
                    seen_s = float(self._headways.visited_s[visit])
                    if seen_s >= 0:
                        asked.append((trip, track.standing, seen_s, track))
            elif before < track.next_stop < last:
                expected_s = self.expected_s(track, track.next_stop)
                if expected_s <= self.now_s + self.rules.lead_s:
                    asked.append((trip, track.next_stop, expected_s, track))
        if not asked:
            return []
        asked.sort(key=lambda row: (self.city.trips[row[0]].service, row[0]))
        order = self.order()
        rows = np.array([self._raw(*row, order) for row in asked])
        trips = [row[0] for row in asked]
        may = [self._may(track, stop) for _, stop, _, track in asked]
        answers = self.controller.ask(self.now_s, trips, rows, may)
        new = []
        for row, raw, answer, allowed in zip(asked, rows, answers, may, strict=True):
            given = self._decided(*row, raw, answer, allowed)
            if given is not None:
                new.append(given)
        return new

    def _may(self, track: Track, stop: int) -> bool:
        """Whether advice may be given: the line is on, the stop a control point, the data good."""
        service = self.city.trips[track.trip].service
        place = self.city.stops[self.city.services[service].stops[stop]]
        return (
            service in self.on
            and track.sure >= self.rules.sure
            and (not self.rules.stops or place.id in self.rules.stops)
        )

    def order(self) -> dict[int, list[Track]]:
        """The running buses of each service, the first one first."""
        order: dict[int, list[Track]] = {}
        for trip, track in self.tracks.running.items():
            order.setdefault(self.city.trips[trip].service, []).append(track)
        for tracks in order.values():
            tracks.sort(key=lambda track: -track.fix.along_m)
        return order

    def _raw(
        self, trip: int, stop: int, at_s: float, track: Track, order: dict[int, list[Track]]
    ) -> tuple[float, ...]:
        """The sixteen features of an event, in the order of RAW_FEATURES."""
        service, people = self.city.trips[trip].service, self.people
        place = int(self._headways.first_place[trip]) + stop
        target_s = self._targets[trip]
        ahead_s = self._ahead_s(trip, stop, place, at_s, track, order[service])
        behind_s = self._behind_s(trip, stop, track, order[service])
        waiting, load = people.waiting(place, at_s, target_s[0]), self._load(track)
        off, on = people.exchange(trip, place, waiting, load)
        vehicle = self.city.vehicle_of(trip)
        return (
            service, stop, max(round(at_s), 0), max(ahead_s, 0.0), max(behind_s, 0.0), *target_s,
            round(waiting), round(load), people.rate[place, people.half_hour(at_s)],
            vehicle.base_dwell_s(round(off + on)), ahead_s >= 0, behind_s >= 0, vehicle.capacity,
            0.0, sum(self._load(other) for other in order[service]),
        )  # fmt: skip

    def _load(self, track: Track) -> float:
        return self.people.on_board(track.trip, track.occupied)

    def _ahead_s(
        self, trip: int, stop: int, place: int, at_s: float, track: Track, order: list[Track]
    ) -> float:
        """The headway to the bus ahead at a stop, or -1 if none is known."""
        last_s = float(self._headways.last_s[place])
        visit = int(self._headways.first_visit[trip]) + stop
        if last_s >= 0 and last_s == self._headways.visited_s[visit]:  # that was this bus
            others = [t for t in self.city.trips_of[self.city.trips[trip].service] if t != trip]
            offsets = self._headways.first_visit[others] + stop
            last_s = float(self._headways.visited_s[offsets].max(initial=-1))
        index = order.index(track)
        if index > 0 and order[index - 1].next_stop <= stop:
            last_s = max(last_s, self.expected_s(order[index - 1], stop))
        return max(at_s - last_s, 0.0) if last_s >= 0 else -1.0

    def _behind_s(self, trip: int, stop: int, track: Track, order: list[Track]) -> float:
        """The headway to the bus behind as observed, or -1 if there is none on its way."""
        index, h = order.index(track), self._headways
        if index + 1 == len(order) or order[index + 1].next_stop == 0:
            return -1.0
        follower = order[index + 1]
        its = int(h.position[follower.trip])
        mine = int(h.first_visit[trip])
        known = its >= 0 and h.visited_s[mine + its] >= 0
        if known and (its >= h.position[trip] or h.visited_s[mine + its + 1] >= 0):
            h.behind[trip] = follower.trip
            return float(max(headway_behind(h, trip, round(self.now_s)), 0))
        line = self.lines[self.city.trips[trip].service]
        stops = max(track.next_stop - follower.next_stop, 0)
        away_s = line.travel_s(follower.fix.along_m, track.fix.along_m, self.now_s)
        return away_s + stops * self.dwell_s

    def _decided(
        self, trip: int, stop: int, at_s: float, track: Track, raw: Array, answer: a.Answer,
        allowed: bool,
    ) -> Advice | None:  # fmt: skip
        """Log a decision, and give advice if it is worth a word."""
        city, rules = self.city, self.rules
        until_s = a.rounded_until(a.leaves_at(raw), answer.hold_s, rules.round_s)
        worth = answer.hold_s >= rules.least_hold_s and until_s > self.now_s
        place = city.stops[city.services[city.trips[trip].service].stops[stop]]
        source = city.trips[trip].source or city.trips[trip].id
        feed_s = self._predicted.get((source, place.source or place.id))
        self._write(
            AskedEntry(
                now_s=self.now_s,
                trip=city.trips[trip].id,
                stop=stop,
                raw=tuple(float(value) for value in raw),
                hold_s=answer.hold_s,
                noted_s=answer.hold_s if allowed else 0.0,
                expected_s=round(at_s, 1),
                sure=round(track.sure, 3),
                feed_s=UNSET if feed_s is None else self.frame.second(feed_s),
                saves_s=UNSET if answer.saves_s is None else round(answer.saves_s, 1),
            )
        )
        # Without the bus ahead its headway is not known; only a first trip has none.
        known = raw[BUS_AHEAD] or (raw[BUS_BEHIND] and not raw[TARGET_AHEAD])
        if not (allowed and worth and known):
            return None
        caught = self.people.caught(city.trips[trip].service, stop, at_s, answer.hold_s)
        given = Advice(
            len(self.advice) + 1, trip, track.vehicle, stop, until_s, answer.hold_s, self.now_s,
            a.reason_of(raw, answer.hold_s, caught),
        )  # fmt: skip
        self.advice[given.number] = given
        self._current.setdefault(trip, []).append(given)
        self._write(
            AdviceEntry(
                number=given.number,
                now_s=self.now_s,
                trip=city.trips[trip].id,
                vehicle=given.vehicle,
                stop=stop,
                until_s=until_s,
                hold_s=given.hold_s,
                reason=given.reason,
            )
        )
        return given

    # -- advice -----------------------------------------------------------------------------------

    def _review(self) -> None:
        """Withdraw advice that no longer applies."""
        for advice in [each for current in self._current.values() for each in current]:
            track = self.tracks.running.get(advice.trip)
            why = ""
            if track is None or self.now_s - track.fix.at_s > self.rules.fresh_s:
                why = "no fresh report of the bus"
            elif self.now_s >= advice.until_s + (60.0 if advice.state == a.ACCEPTED else 0.0):
                why = "the time has passed"
            elif track.sure < self.rules.sure:
                why = "the reports are not sure enough"
            elif track.next_stop <= advice.stop and advice.state == a.OPEN:
                ready_s = self.expected_s(track, advice.stop) + self.dwell_s
                why = "the bus comes too late for it" if ready_s >= advice.until_s else ""
            if why:
                self._become(advice, a.WITHDRAWN, why)

    def _become(self, advice: Advice, state: str, why: str) -> None:
        advice.state, advice.why = state, why
        current = self._current.get(advice.trip, [])
        if not advice.applies and advice in current:
            current.remove(advice)
            if not current:
                del self._current[advice.trip]
        self._write(
            AnswerEntry(number=advice.number, now_s=self.now_s, became=state, why=why)  # type: ignore[arg-type]
        )

    def answer(self, number: int, accept: bool, why: str = "") -> Advice:
        """What a dispatcher says to an advice."""
        advice = self.advice.get(number)
        if advice is None:
            raise InputError(f"there is no advice {number}")
        if advice.state != a.OPEN:
            raise InputError(f"advice {number} is {advice.state}; it cannot be answered any more")
        why = "".join(c for c in why if c.isprintable())[:200]
        self._become(advice, a.ACCEPTED if accept else a.REJECTED, why)
        self._sync()
        return advice

    def switch(self, service: str, on: bool) -> None:
        """Switch advice for a service on or off; off withdraws what is open."""
        index = self._service(service)
        (self.on.add if on else self.on.discard)(index)
        self._write(LineEntry(now_s=self.now_s, service=service, on=on))
        if not on:
            for advice in [each for current in self._current.values() for each in current]:
                if self.city.trips[advice.trip].service == index:
                    self._become(advice, a.WITHDRAWN, "the line was switched off")
        self._sync()

    def _service(self, name: str) -> int:
        if name not in self._number:
            raise InputError(f"unknown line {name!r}; choose {choice(self._number)}")
        return self._number[name]

    # -- the log ----------------------------------------------------------------------------------

    def _write(self, entry: Any) -> None:
        if self._log is not None:
            self._log.add(entry)

    def _sync(self) -> None:
        if self._log is not None:
            self._log.sync()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _restore(self, entries: list[Entry]) -> None:
        """Go on after the entries of a log."""
        for entry in checked(entries, self.city):
            if isinstance(entry, Begun):
                self.on |= {self._service(name) for name in entry.lines}
            elif isinstance(entry, PollEntry):
                self.now_s = entry.at_s
                for name, (vehicle, *fixed) in entry.fixes.items():
                    self._track(self._trip[name], vehicle, *fixed)
            elif isinstance(entry, LineEntry):
                (self.on.add if entry.on else self.on.discard)(self._service(entry.service))
            elif isinstance(entry, AdviceEntry):
                self.advice[entry.number] = Advice(
                    entry.number, self._trip[entry.trip], entry.vehicle, entry.stop,
                    entry.until_s, entry.hold_s, entry.now_s, entry.reason,
                )  # fmt: skip
            elif isinstance(entry, AnswerEntry):
                self.advice[entry.number].state = entry.became
                self.advice[entry.number].why = entry.why
            elif isinstance(entry, EventEntry):
                self._recall(entry)
            else:
                trip = self._trip[entry.trip]
                if entry.stop > self.controller.asked.get(trip, -1):
                    raw = np.array(entry.raw)
                    self.controller.recall(entry.now_s, trip, raw, entry.noted_s)

    def _recall(self, entry: EventEntry) -> None:
        trip = self._trip[entry.trip]
        last = self.lines[self.city.trips[trip].service].last
        occupied = -1.0 if entry.occupied is UNSET else float(entry.occupied)
        self._note(Event(entry.what, trip, entry.stop, entry.at_s, entry.sure), occupied)
        if entry.what == ARRIVES and entry.stop == last:
            self.tracks.done.add(trip)

    def _track(self, trip: int, vehicle: str, at_s: float, along_m: float, sure: float) -> None:
        """Put a bus back where it was. Its events are older: they were logged before."""
        if trip in self.tracks.done:
            return
        stop, stands = int(self._headways.position[trip]), trip in self._leaves
        last = self.lines[self.city.trips[trip].service].last
        fix = Fix(at_s, along_m)
        known = self.tracks.known.setdefault(vehicle, Known())
        known.trip, known.how, known.along_m, known.at_s = trip, "trip", along_m, at_s
        known.block = self.city.trips[trip].block
        track = Track(vehicle, trip, "trip", sure, fix, min(stop + 1, last), since_s=at_s)
        track.standing = stop if stands else -1
        if stop < 0:  # seen for the first time on its way
            begun = self.tracks.begin(vehicle, trip, "trip", sure, fix)
            track.next_stop, track.standing = begun.next_stop, begun.standing
        self.tracks.running[trip] = track
        self.paths.setdefault(trip, deque(maxlen=800)).append(track.place)
