"""A shadow that runs: a thread polls and decides, people answer, the page looks on.

One lock guards the shadow. The simulated street is the only place that accepted advice is sent to,
and only on this machine; what is withdrawn later is cancelled there.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from evenline.live.advice import ACCEPTED, WITHDRAWN, Advice
from evenline.live.polls import on_this_machine
from evenline.live.record import Polled
from evenline.live.shadow import Shadow
from evenline.live.view import fixed_view, moving_view
from evenline.support.errors import InputError


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
        known = self.shadow.advice.values()
        self._told = {each.number for each in known if each.state == ACCEPTED}

    def follow(self, polls: Iterator[Polled]) -> None:
        """Take polls until they end; an error ends the run and is kept."""
        try:
            for polled in polls:
                self._take(polled)
                if self.ended.is_set():
                    break
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def _take(self, polled: Polled) -> None:
        with self.lock:
            if polled.waiting:
                self.shadow.pass_time(polled.at_s)
                new = []
            else:
                new = self.shadow.take(polled)
            self.version += 1
        if self.accept:
            for advice in new:
                self.answer(advice.number, True, "accepted by --accept")
        self._cancel()

    def answer(self, number: int, accept: bool, why: str) -> Advice:
        """A dispatcher's answer; the street is told if there is one."""
        with self.lock:
            advice = self.shadow.answer(number, accept, why)
            self.version += 1
        if accept and self.street:
            problem = self._tell(advice, advice.until_s)
            with self.lock:
                self._told.add(number)
                if problem:
                    self._told.discard(number)
                    self.shadow.withdraw(number, f"the street did not take the hold ({problem})")
                    self.version += 1
        return advice

    def switch(self, service: str, on: bool) -> None:
        with self.lock:
            self.shadow.switch(service, on)
            self.version += 1
        self._cancel()

    def _cancel(self) -> None:
        """Tell the street what was accepted and is withdrawn; a bus that has left needs no word."""
        with self.lock:
            known = [self.shadow.advice[number] for number in self._told]
            over = [each for each in known if not each.applies]
            self._told -= {each.number for each in over}
        for advice in over:
            if self.street and advice.state == WITHDRAWN:
                self._tell(advice, 0.0)  # if it fails, the street holds a bus that we lost anyway

    def view(self, since_s: float) -> dict[str, Any]:
        with self.lock:
            return moving_view(self.shadow, since_s) | {"version": self.version}

    def _tell(self, advice: Advice, until_s: float) -> str:
        """Ask the street to hold a bus until a second, 0: no more; returns what went wrong."""
        trip = self.shadow.city.trips[advice.trip].id
        said = {"trip": trip, "stop": advice.stop, "until_s": until_s}
        request = urllib.request.Request(
            f"{self.street.rstrip('/')}/holds",
            data=json.dumps(said).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5):
                return ""
        except (urllib.error.URLError, OSError) as error:
            return str(error)
