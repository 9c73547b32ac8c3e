"""The answers of a feed as they come: from an address, or from a recording at some speed.

Each answer has its moment. While there is none, because a server failed or a recording is silent,
time still passes, so that old advice can be withdrawn.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from evenline.live.feed import FeedError, Snapshot, read_message
from evenline.live.poll import Poller
from evenline.live.record import Polled, Recorder
from evenline.support.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OURS_S = 3600.0  # a feed whose clock is so close to ours has real time
_FAR_S, _LATE_S = 1800.0, 60.0  # a message so far ahead or behind is believed only if it persists
_PERSISTENT = 3
_MOST_TICKS = 40  # in one silence; after these no advice is left


def on_this_machine(url: str) -> bool:
    """Whether an address is on loopback."""
    return urlsplit(url).hostname in LOOPBACK


class FeedClock:
    """The moment of each answer.

    A feed on our clock has our time, read anew for each answer: a machine that slept does no harm.
    Another feed, such as a simulated street, has the time of its messages, which runs on `speed`
    times as fast as ours. A message far from that time is believed only if the next ones agree.
    """

    def __init__(
        self,
        speed: float = 1.0,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.speed, self._clock, self._ticks = speed, clock, ticks
        self._anchor: tuple[float, float] | None = None  # a moment, and our ticks then
        self._real = False
        self._heard_s, self._odd = 0.0, 0

    def moment(self, header_s: float | None = None) -> float:
        """The moment now, or 0 before the first message. `header_s` is the time of a message that
        has just come; 0: it says none.
        """
        if self._anchor is None:
            if header_s is None:
                return 0.0
            self._set(header_s)
        if header_s and header_s != self._heard_s:
            self._heard_s = header_s
            ahead_s = header_s - self._now()
            odd = ahead_s > _FAR_S or ahead_s < -(_LATE_S + self.speed)
            self._odd = self._odd + 1 if odd else 0
            if self._odd >= _PERSISTENT or 0 < ahead_s <= _FAR_S:
                self._set(header_s)
        return self._now()

    def _set(self, header_s: float) -> None:
        ours_s = self._clock()
        self._real = self.speed == 1 and (not header_s or abs(header_s - ours_s) < _OURS_S)
        self._anchor, self._odd = (header_s or ours_s, self._ticks()), 0

    def _now(self) -> float:
        if self._real:
            return self._clock()
        assert self._anchor is not None
        return self._anchor[0] + (self._ticks() - self._anchor[1]) * self.speed


class _Message(NamedTuple):
    """A message as it came and as it was read."""

    content: bytes
    snapshot: Snapshot
    read_ms: float


def _message_of(content: bytes) -> _Message:
    """Read a message, once."""
    began = time.perf_counter()
    snapshot = read_message(content)
    return _Message(content, snapshot, 1000 * (time.perf_counter() - began))


@dataclass
class Updates:
    """Trip updates that a server publishes apart from its positions."""

    poller: Poller
    latest: Snapshot = field(default_factory=lambda: Snapshot(0.0, ()))
    _due_s: float = 0.0

    def joined(self, snapshot: Snapshot, speed: float) -> tuple[Snapshot, str]:
        """Positions with the latest updates, and what failed."""
        failure = ""
        if time.monotonic() >= self._due_s:
            try:
                self.latest = self.poller.poll(read_message) or self.latest
            except FeedError as error:
                failure = f"trip updates: {error}"
                self._due_s = time.monotonic() + self.poller.wait_s / speed
        return snapshot._replace(
            predictions=snapshot.predictions + self.latest.predictions,
            cancelled=snapshot.cancelled | self.latest.cancelled,
            skipped=snapshot.skipped | self.latest.skipped,
        ), failure


def url_polls(
    poller: Poller,
    speed: float,
    ended: threading.Event,
    updates: Updates | None = None,
    clock: FeedClock | None = None,
    keep: Callable[[float, bytes], object] = lambda at_s, content: None,
) -> Iterator[Polled]:
    """The answers of a feed behind an address; `keep` gets each message as it came."""
    if speed != 1 and not on_this_machine(poller.url):
        raise InputError(f"speed {speed:g}: a feed elsewhere runs in real time; leave --speed out")
    clock = clock or FeedClock(speed)
    while not ended.is_set():
        message, snapshot, failure = None, None, ""
        try:
            message = poller.poll(_message_of)
        except FeedError as error:
            failure = str(error)
        at_s = clock.moment(message.snapshot.at_s if message is not None else None)
        if message is not None:
            keep(at_s, message.content)
            snapshot = message.snapshot
            if updates is not None:
                snapshot, failure = updates.joined(snapshot, speed)
        read_ms = message.read_ms if message is not None else 0.0
        yield Polled(at_s, snapshot, failure, read_ms=read_ms)
        left_s = poller.wait_s
        while left_s > 0 and not ended.wait(min(left_s, poller.every_s) / speed):
            left_s -= poller.every_s
            if left_s > 0:
                yield Polled(clock.moment(), None, failure, waiting=True)


def record(
    poller: Poller,
    folder: Path,
    ended: threading.Event,
    show: Callable[[str], None],
    speed: float = 1.0,
) -> int:
    """Poll a feed and keep its messages; returns how many there were.

    A message has the moment at which a shadow would have seen it.
    """
    recorder, kept = Recorder(folder), 0
    try:
        for polled in url_polls(poller, speed, ended, keep=recorder.keep):
            kept += polled.content is not None
            show(polled.failure or f"{kept} messages")
    finally:
        recorder.close()
    return kept


def unheard(play: Callable[[], Iterator[Polled]], heard: int, last_s: float) -> Iterator[Polled]:
    """The answers of a recording after the first `heard`, the last of which came at `last_s`.

    If another recording was heard, all answers after `last_s`.
    """
    polls = play()
    for polled in islice(polls, heard - 1, heard) if heard else ():
        if polled.at_s == last_s:
            return polls
    return (polled for polled in play() if polled.at_s > last_s) if heard else polls


def with_silence(
    polls: Iterator[Polled], every_s: float, last_s: float | None = None
) -> Iterator[Polled]:
    """The same answers, with ticks of time where a recording has gaps.

    `last_s` is the moment of an answer before them.
    """
    for polled in polls:
        if last_s is not None:
            ticks = min(int((polled.at_s - last_s) / every_s - 1e-9), _MOST_TICKS)
            for tick in range(1, ticks):
                yield Polled(last_s + tick * every_s, None, waiting=True)
        last_s = polled.at_s
        yield polled


def paced(
    polls: Iterator[Polled], speed: float, sleep: Callable[[float], object]
) -> Iterator[Polled]:
    """The same answers, `speed` times as fast as they came; 0 means at once."""
    began_s, first_s = time.monotonic(), None
    for polled in polls:
        first_s = polled.at_s if first_s is None else first_s
        if speed > 0:
            wait_s = began_s + (polled.at_s - first_s) / speed - time.monotonic()
            if wait_s > 0:
                sleep(wait_s)
        yield polled
