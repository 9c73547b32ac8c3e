"""The shadow: it follows the feed, asks the policy, gives advice, and holds nobody.

`take` is one poll: reports become events, events become questions, answers become advice where a
line is switched on and the data are fresh and sure. Everything goes into the log. A shadow that was
killed reads the polls in its log again and continues as if it had never stopped. No clock is read
here except to measure how long a decision takes.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

import evenline
from evenline.city.tables import digest
from evenline.control.event import BUS_AHEAD, BUS_BEHIND, TARGET_AHEAD, Array
from evenline.live import advice as a
from evenline.live.advice import Advice, live_policy
from evenline.live.entries import (
    FORMAT,
    AdviceEntry,
    AnswerEntry,
    AskedEntry,
    Begun,
    Entry,
    EventEntry,
    HeardEntry,
    LineEntry,
    PollEntry,
    checked,
    packed,
    unpacked,
)
from evenline.live.events import ARRIVES, LEAVES, Event, Track
from evenline.live.feed import FeedError, Snapshot
from evenline.live.log import Log
from evenline.live.record import Polled
from evenline.live.situation import Place, Question, Situation
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.policies.kinds import Bundle
from evenline.support.errors import InputError, choice
from evenline.worlds.open import OpenCity

MATCHED = ("trip", "block", "place", "same", "trip is over")
_MOST_FAILURE = 300  # letters
_BACK_S, _PERSISTENT = 60.0, 3  # a clock that went back is believed after so many polls
KNOWN_S = -1e8  # an earlier second means that no time is known


@dataclass(frozen=True)
class Rules:
    """When advice is given."""

    lead_s: float = 60.0  # a bus is asked about so long before it reaches a stop
    fresh_s: float = 75.0  # older reports give no advice
    sure: float = 0.7
    least_hold_s: float = 10.0  # shorter holds are not advised
    round_s: float = 5.0
    repeat: bool = False  # repeat unanswered advice at the next stop
    stops: frozenset[str] = frozenset()  # control points; empty: every stop but the last


def rules_for(poll_s: float) -> Rules:
    """The rules for a feed that is polled so often: advice must be there before the bus."""
    return Rules(lead_s=1.5 * poll_s + 15.0, fresh_s=max(75.0, 3 * poll_s))


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
        self.situation = Situation(opened)
        self.frame = self.situation.frame
        self.rules = rules or Rules()
        bundle = read_policy(policy) if isinstance(policy, str) else policy
        self.policy = live_policy(open_policy(bundle, city, opened.calibration), city)
        self.on: set[int] = set()
        self.advice: dict[int, Advice] = {}
        self._current: dict[int, list[Advice]] = {}  # what still applies, by trip
        self._quiet_s: dict[int, float] = {}  # until when a trip gets no new advice
        self._behind = 0  # polls in a row that came from a clock far behind
        self.heard, self.heard_s = 0, 0.0  # polls so far, and the moment of the last one
        self.failure = ""
        self.dropped = 0
        self.polls: deque[tuple[float, float, int]] = deque(maxlen=240)  # when, ms, events
        self._clock = decided
        self._number = {service.id: i for i, service in enumerate(city.services)}
        self._trip = {trip.id: i for i, trip in enumerate(city.trips)}
        self._log: Log[Entry] | None = None
        given = {self._service(name) for name in lines}
        if log is not None:
            self._log = Log(log, Entry, HeardEntry, PollEntry)
            try:
                self._restore(self._log.entries)
            except InputError as error:
                self._log.close()
                raise InputError(f"{log}: {error}") from None
            self._log.entries = []
        self.on = given or self.on  # without lines, those of the log stay on
        self._write(
            Begun(
                format=FORMAT, evenline=evenline.__version__, city=digest(city), policy=bundle.name,
                policy_sha256=policy_digest(bundle), notes=city.notes,
                lines=tuple(city.services[i].id for i in sorted(self.on)),
            )
        )  # fmt: skip
        self._withdraw_off()
        self._sync()

    @property
    def now_s(self) -> float:
        """The second of the city's day of the last poll."""
        return self.situation.now_s

    # -- one poll ---------------------------------------------------------------------------------

    def take(self, polled: Polled) -> list[Advice]:
        """Follow one answer of the feed, or its absence; returns the new advice."""
        began, day = self._clock(), self.situation
        self.heard, self.heard_s = self.heard + 1, polled.at_s
        self._set_clock(polled.at_s)
        snapshot, failure = None, polled.failure
        events: list[Event] = []
        places: dict[str, Place] = {}
        try:
            snapshot = polled.snapshot()
        except FeedError as error:
            failure = str(error)
        self.failure = _one_line(failure, _MOST_FAILURE)
        heard: bytes | UnsetType = UNSET
        if snapshot is not None:
            events, places = self._hear(snapshot)
            heard = packed(day.needed(snapshot))
        self._write(
            HeardEntry(at_s=self.now_s, moment_s=polled.at_s, behind=self._behind, packed=heard)
        )
        for event in events:
            self._event(event)
        new = self._ask()
        self._review()
        took_ms = polled.read_ms + 1000 * (self._clock() - began)
        self.polls.append((self.now_s, took_ms, len(events)))
        age_s = self.now_s - day.fed_s if day.fed_s > KNOWN_S else 1e9
        states = dict(day.tracks.counts()) if snapshot is not None else {}
        self._write(
            PollEntry(
                at_s=self.now_s, age_s=age_s, states=states, took_ms=took_ms, fixes=places,
                dropped=0 if snapshot is None else snapshot.dropped,
                failure=self.failure or UNSET,
            )
        )  # fmt: skip
        self._sync()
        return new

    def pass_time(self, moment_s: float) -> None:
        """Withdraw what no longer applies while the feed says nothing."""
        if moment_s > 0:
            self.situation.now_s = max(self.now_s, self.frame.second(moment_s))
        self._review()
        self._sync()

    def _set_clock(self, moment_s: float) -> None:
        """Follow the clock of the polls. One that jumps back changes nothing, unless it stays."""
        if moment_s <= 0:  # no time is known yet
            return
        second, day = self.frame.second(moment_s), self.situation
        behind = second < day.now_s - _BACK_S
        self._behind = self._behind % _PERSISTENT + 1 if behind else 0
        if self._behind == _PERSISTENT:
            day.now_s = second
            self._quiet_s.clear()  # it was counted from a wrong time
        day.now_s = max(day.now_s, second)

    def _hear(self, snapshot: Snapshot) -> tuple[list[Event], dict[str, Place]]:
        self.dropped = snapshot.dropped
        events, places = self.situation.take(snapshot)
        self.policy.cancel(self.situation.tracks.matcher.cancelled)
        return events, places

    def _event(self, event: Event) -> None:
        if event.kind == LEAVES:
            self._passed(event)
        track = self.situation.tracks.running.get(event.trip)
        occupied = self.situation.occupied(event.trip)
        self._write(
            EventEntry(
                what="arrives" if event.kind == ARRIVES else "leaves", stop=event.stop,
                trip=self.city.trips[event.trip].id, at_s=round(event.at_s, 1),
                sure=round(event.sure, 3), vehicle=track.vehicle if track is not None else "",
                occupied=min(occupied, 1.0) if occupied >= 0 else UNSET,
            )
        )  # fmt: skip

    def _passed(self, event: Event) -> None:
        """End the advice of a bus that has left its stop."""
        for advice in self._current.get(event.trip, [])[:]:
            if advice.stop > event.stop:
                continue
            if advice.state == a.ACCEPTED:
                late_s = round(event.at_s - advice.until_s)
                left = f"left at {self.frame.clock(event.at_s)} ({late_s:+d} s)"
                self._become(advice, a.DONE, left)
            else:
                self._become(advice, a.WITHDRAWN, "the bus has left")

    # -- questions --------------------------------------------------------------------------------

    def _ask(self) -> list[Advice]:
        """Ask the policy about every bus that soon reaches a stop, and give its advice."""
        tracks = self.situation.tracks.running.values()
        questions = [q for track in tracks if (q := self._question(track)) is not None]
        if not questions:
            return []
        questions.sort(key=lambda q: (self.city.trips[q.trip].service, q.trip))
        raw = self.situation.raw(questions)
        may = [self._may(q.track, q.stop) for q in questions]
        answers = self.policy.ask(self.now_s, [q.trip for q in questions], raw, may)
        new = []
        for question, row, answer, allowed in zip(questions, raw, answers, may, strict=True):
            advised = allowed and self._worth(question, row, answer)
            advised_s = answer.hold_s if advised else 0.0
            self._note_decision(question, row, answer, allowed, advised_s)
            if advised:
                new.append(self._advise(question, row, answer))
            kept_s = answer.hold_s if allowed else 0.0
            self.policy.settle(question.trip, row, kept_s, advised_s)
        return new

    def _question(self, track: Track) -> Question | None:
        """Whether a policy is asked about a bus now: once at each stop but the last."""
        day, trip = self.situation, track.trip
        if track.sure < 0.4 or self.now_s - track.fix.at_s > self.rules.fresh_s:
            return None
        last = day.course_of(trip).last
        before = self.policy.asked.get(trip, -1)
        if track.standing > before:
            seen_s = day.reached_s(trip, track.standing) if track.standing < last else -1.0
            return Question(trip, track.standing, seen_s, track) if seen_s >= 0 else None
        if before < track.next_stop < last:
            expected_s = day.expected_s(track, track.next_stop)
            if expected_s <= self.now_s + self.rules.lead_s:
                return Question(trip, track.next_stop, expected_s, track)
        return None

    def _may(self, track: Track, stop: int) -> bool:
        """Whether advice may be given: the line is on, the stop is a control point, the data are
        good, and the bus has no advice that is open or was left unanswered.
        """
        service = self.city.trips[track.trip].service
        place = self.city.stops[self.city.services[service].stops[stop]]
        return (
            service in self.on
            and track.sure >= self.rules.sure
            and (not self.rules.stops or place.id in self.rules.stops)
            and self.situation.names(track.trip, stop) not in self.situation.skipped
            and self.now_s >= self._quiet_s.get(track.trip, -1e9)
            and all(advice.state != a.OPEN for advice in self._current.get(track.trip, ()))
        )

    def _worth(self, question: Question, raw: Array, answer: a.Answer) -> bool:
        """Whether a hold is worth advising: long enough to matter, longer than the usual error of
        expected arrivals, not yet past, and with a reason that people can see.
        """
        service = self.city.trips[question.trip].service
        until_s = a.rounded_until(a.leaves_at(raw), answer.hold_s, self.rules.round_s)
        # Without the bus ahead its headway is not known; only a first trip has none.
        known = raw[BUS_AHEAD] or (raw[BUS_BEHIND] and not raw[TARGET_AHEAD])
        return bool(
            answer.hold_s >= max(self.rules.least_hold_s, self.situation.noise_s(service))
            and until_s > self.now_s
            and known
            and a.has_reason(raw)
        )

    def _note_decision(
        self, question: Question, raw: Array, answer: a.Answer, allowed: bool, advised_s: float
    ) -> None:
        """Log a decision, and keep what it expects."""
        city, (trip, stop, at_s, track) = self.city, question
        feed_s = self.situation.predicted.get(self.situation.names(trip, stop))
        expected_s = round(at_s, 1)
        self.situation.expect(trip, stop, expected_s)
        self._write(
            AskedEntry(
                now_s=self.now_s, trip=city.trips[trip].id, stop=stop, raw=tuple(raw.tolist()),
                hold_s=answer.hold_s, noted_s=advised_s, expected_s=expected_s,
                sure=round(track.sure, 3), may=allowed,
                feed_s=UNSET if feed_s is None else self.frame.second(feed_s),
                saves_s=UNSET if answer.saves_s is None else round(answer.saves_s, 1),
            )
        )  # fmt: skip

    def _advise(self, question: Question, raw: Array, answer: a.Answer) -> Advice:
        city, (trip, stop, at_s, track) = self.city, question
        until_s = a.rounded_until(a.leaves_at(raw), answer.hold_s, self.rules.round_s)
        people, service = self.situation.people, city.trips[trip].service
        advice = Advice(
            len(self.advice) + 1, trip, track.vehicle, stop, until_s, answer.hold_s, self.now_s,
            a.reason_of(raw, answer.hold_s, people.caught(service, stop, at_s, answer.hold_s)),
        )  # fmt: skip
        self._give(advice)
        self._write(
            AdviceEntry(
                number=advice.number, now_s=self.now_s, trip=city.trips[trip].id, stop=stop,
                vehicle=advice.vehicle, until_s=until_s, hold_s=advice.hold_s, reason=advice.reason,
            )
        )  # fmt: skip
        return advice

    # -- advice -----------------------------------------------------------------------------------

    def _review(self) -> None:
        """Withdraw advice that no longer applies."""
        day = self.situation
        for advice in self._live():
            track = day.tracks.running.get(advice.trip)
            why = ""
            if advice.trip in day.tracks.matcher.cancelled:
                why = "the trip is cancelled"
            elif track is None or self.now_s - track.fix.at_s > self.rules.fresh_s:
                why = "no fresh report of the bus"
            elif self.now_s >= advice.until_s + (60.0 if advice.state == a.ACCEPTED else 0.0):
                why = "the time has passed"
            elif track.sure < self.rules.sure:
                why = "the reports are not sure enough"
            elif advice.state == a.OPEN:
                why = self._outdated(advice, track)
            if why:
                self._become(advice, a.WITHDRAWN, why)

    def _live(self) -> list[Advice]:
        return [advice for current in self._current.values() for advice in current]

    def _outdated(self, advice: Advice, track: Track) -> str:
        """Why an open advice is no longer good: the bus is late, or the headways have changed."""
        day, stop, at_s = self.situation, advice.stop, -1.0
        if track.next_stop <= stop:
            at_s = day.expected_s(track, stop)
            if at_s + day.dwell_s >= advice.until_s:
                return "the bus comes too late for it"
        elif track.standing == stop:
            at_s = day.reached_s(advice.trip, stop)
        if at_s < 0 or self.now_s <= advice.made_s:
            return ""
        (raw,) = day.raw([Question(advice.trip, stop, at_s, track)])
        hold_s = self.policy.again(self.now_s, advice.trip, raw)
        good = hold_s >= self.rules.least_hold_s / 2 and a.has_reason(raw)
        return "" if good else "the headways have changed"

    def _give(self, advice: Advice) -> None:
        self.advice[advice.number] = advice
        self._current.setdefault(advice.trip, []).append(advice)

    def _become(self, advice: Advice, state: str, why: str) -> None:
        self._change(advice, state, why, self.now_s)
        self._write(
            AnswerEntry(number=advice.number, now_s=self.now_s, became=state, why=why)  # type: ignore[arg-type]
        )

    def _change(self, advice: Advice, state: str, why: str, now_s: float) -> None:
        """Note what becomes of an advice. If nobody took it, the bus gets no new one for a
        headway: until then it would be the same advice about the same gap.
        """
        refused = advice.state == a.OPEN and state in (a.REJECTED, a.WITHDRAWN)
        if refused and not self.rules.repeat:
            self._quiet_s[advice.trip] = now_s + max(self.situation.targets_s[advice.trip])
        advice.state, advice.why = state, why
        current = self._current.get(advice.trip, [])
        if not advice.applies and advice in current:
            current.remove(advice)
            if not current:
                del self._current[advice.trip]
        call = (advice.trip, advice.stop)
        if state == a.ACCEPTED:
            self.situation.holds[call] = advice.until_s
        else:
            self.situation.holds.pop(call, None)

    def answer(self, number: int, accept: bool, why: str = "") -> Advice:
        """Take a dispatcher's answer to an advice."""
        advice = self.advice.get(number)
        if advice is None:
            raise InputError(f"there is no advice {number}")
        if advice.state != a.OPEN:
            raise InputError(f"advice {number} is {advice.state}; it can no longer be answered")
        self._become(advice, a.ACCEPTED if accept else a.REJECTED, _one_line(why, 200))
        self._sync()
        return advice

    def withdraw(self, number: int, why: str) -> None:
        """Take back an advice that cannot be carried out."""
        if self.advice[number].applies:
            self._become(self.advice[number], a.WITHDRAWN, _one_line(why, _MOST_FAILURE))
            self._sync()

    def switch(self, service: str, on: bool) -> None:
        """Switch advice for a service on or off; off withdraws what is open."""
        index = self._service(service)
        (self.on.add if on else self.on.discard)(index)
        self._write(LineEntry(now_s=self.now_s, service=service, on=on))
        self._withdraw_off()
        self._sync()

    def _withdraw_off(self) -> None:
        for advice in self._live():
            if self.city.trips[advice.trip].service not in self.on:
                self._become(advice, a.WITHDRAWN, "the line was switched off")

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
        """Follow the entries of a log up to its end."""
        asked: list[AskedEntry] = []
        for entry in checked(entries, self.city):
            if isinstance(entry, Begun):
                if entry.format != FORMAT:
                    raise InputError("was written by an earlier version; begin a new log")
                self.on = {self._service(name) for name in entry.lines}
            elif isinstance(entry, HeardEntry):
                self._hear_again(entry)
            elif isinstance(entry, LineEntry):
                (self.on.add if entry.on else self.on.discard)(self._service(entry.service))
            elif isinstance(entry, AdviceEntry):
                self._give(
                    Advice(
                        entry.number, self._trip[entry.trip], entry.vehicle, entry.stop,
                        entry.until_s, entry.hold_s, entry.now_s, entry.reason,
                    )
                )  # fmt: skip
            elif isinstance(entry, AnswerEntry):
                self._change(self.advice[entry.number], entry.became, entry.why, entry.now_s)
            elif isinstance(entry, AskedEntry):
                asked.append(entry)
            elif isinstance(entry, PollEntry) and asked:
                self._ask_again(asked)
                asked = []

    def _hear_again(self, entry: HeardEntry) -> None:
        """Follow a poll of the log; its events follow from it."""
        self.heard, self.heard_s = self.heard + 1, entry.moment_s
        self.situation.now_s, self._behind = entry.at_s, entry.behind
        if entry.behind == _PERSISTENT:
            self._quiet_s.clear()
        if entry.packed is not UNSET:
            self._hear(unpacked(entry.packed))

    def _ask_again(self, asked: list[AskedEntry]) -> None:
        """Let the policy follow the decisions of a poll; the advice given then stays as it was."""
        trips = [self._trip[entry.trip] for entry in asked]
        raw = np.array([entry.raw for entry in asked])
        may = [entry.may for entry in asked]
        answers = self.policy.ask(asked[0].now_s, trips, raw, may)
        for entry, trip, row, answer in zip(asked, trips, raw, answers, strict=True):
            self.situation.expect(trip, entry.stop, entry.expected_s)
            self.policy.settle(trip, row, answer.hold_s if entry.may else 0.0, entry.noted_s)


def _one_line(text: str, most: int) -> str:
    """A text as the log takes it: printable, and not too long."""
    return "".join(c for c in text if c.isprintable())[:most]
