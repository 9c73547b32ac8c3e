"""A shadow that runs: a thread polls and decides, people answer, the page looks on.

One lock guards the shadow. The simulated street is the only place that accepted advice is sent to,
and only on this machine.
"""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from evenline.live.advice import Advice
from evenline.live.feed import FeedError, read_message
from evenline.live.poll import Poller
from evenline.live.record import Polled
from evenline.live.shadow import Shadow
from evenline.live.view import fixed_view, moving_view
from evenline.support.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OURS_S = 3600.0  # a feed whose clock is so close to ours has real time


def on_this_machine(url: str) -> bool:
    """Whether an address is on loopback."""
    return urlsplit(url).hostname in LOOPBACK


def url_polls(
    poller: Poller, speed: float, ended: threading.Event, clock: Callable[[], float] = time.time
) -> Iterator[Polled]:
    """The answers of a feed behind an address, with the moment by the feed's clock.

    A feed in real time is on our clock. A simulated one is `speed` times as fast and begins with
    its first message.
    """
    if speed != 1 and not on_this_machine(poller.url):
        raise InputError(f"speed {speed:g}: a feed elsewhere runs in real time; leave --speed out")
    shift_s: float | None = None
    real, began_s = speed == 1, time.monotonic()
    while not ended.is_set():
        content, failure = None, ""
        try:
            content = poller.poll(read_message)
        except FeedError as error:
            failure = str(error)
        passed_s = (time.monotonic() - began_s) * speed
        if content is not None:
            header_s = read_message(content).at_s
            if shift_s is None:
                real = real and (not header_s or abs(header_s - clock()) < OURS_S)
                shift_s = (clock() if real else header_s) - passed_s
            if not real:
                shift_s = max(shift_s, header_s - passed_s)
        if shift_s is not None:
            yield Polled(shift_s + passed_s, content, failure)
        else:
            yield Polled(0.0, None, failure)  # no time is known yet
        ended.wait(poller.wait_s / speed)


@dataclass
class Running:
    """A shadow and those who look at it."""

    shadow: Shadow
    street: str = ""  # the address of a simulated street that carries out what is accepted
    token: str = ""  # of the street
    accept: bool = False  # answer every advice with yes; for a simulated street
    version: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    ended: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.street and not on_this_machine(self.street):
            raise InputError(f"street {self.street!r}: must be a simulated street on this machine")
        if self.accept and not self.street:
            raise InputError("only a simulated street accepts everything; name it with --street")
        self.fixed: dict[str, Any] = fixed_view(self.shadow)

    def follow(self, polls: Iterator[Polled]) -> None:
        """Take polls until they end; an error ends the run and is kept."""
        try:
            for polled in polls:
                with self.lock:
                    new = self.shadow.take(polled)
                    self.version += 1
                if self.accept:
                    for advice in new:
                        self.answer(advice.number, True, "accepted by --accept")
                if self.ended.is_set():
                    break
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def answer(self, number: int, accept: bool, why: str) -> Advice:
        """A dispatcher's answer; the street is told if there is one."""
        with self.lock:
            advice = self.shadow.answer(number, accept, why)
            self.version += 1
        if accept and self.street:
            self._tell(advice)
        return advice

    def switch(self, service: str, on: bool) -> None:
        with self.lock:
            self.shadow.switch(service, on)
            self.version += 1

    def view(self, since_s: float) -> dict[str, Any]:
        with self.lock:
            return moving_view(self.shadow, since_s) | {"version": self.version}

    def _tell(self, advice: Advice) -> None:
        trip = self.shadow.city.trips[advice.trip].id
        said = {"trip": trip, "stop": advice.stop, "until_s": advice.until_s}
        request = urllib.request.Request(
            f"{self.street.rstrip('/')}/holds",
            data=json.dumps(said).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5):
                pass
        except (urllib.error.URLError, OSError) as error:
            self.shadow.failure = f"the street did not take the hold ({error})"
