"""A shadow that runs: a thread polls and decides, people answer, the page looks on.

One lock guards the shadow. The simulated street is the only place that accepted advice is sent to,
and only on this machine; what is withdrawn later is cancelled there.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from evenline.live.advice import ACCEPTED, WITHDRAWN, Advice
from evenline.live.polls import on_this_machine
from evenline.live.record import Polled
from evenline.live.shadow import Shadow
from evenline.live.view import fixed_view, moving_view
from evenline.support.errors import InputError
from evenline.support.extras import extra

with extra("live"):
    import httpx2


@dataclass
class Running:
    """A shadow with its page and, if there is one, its simulated street."""

    shadow: Shadow
    street: str = ""  # the address of a simulated street that carries out what is accepted
    token: str = ""  # of the street
    accept: bool = False  # accept all advice; for a simulated street only
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
        advice = self.shadow.advice.values()
        self._carried_out = {one.number for one in advice if one.state == ACCEPTED}

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

    def raise_error(self) -> None:
        """Raise the error that ended the run, if one did."""
        if self.error is not None:
            raise self.error

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
        """Take a dispatcher's answer, and tell an accepted hold to the street if there is one."""
        with self.lock:
            advice = self.shadow.answer(number, accept, why)
            self.version += 1
        if accept and self.street:
            problem = self._send_hold(advice, advice.until_s)
            with self.lock:
                self._carried_out.add(number)
                if problem:
                    self._carried_out.discard(number)
                    self.shadow.withdraw(number, f"the street did not take the hold ({problem})")
                    self.version += 1
        return advice

    def switch(self, service: str, on: bool) -> None:
        with self.lock:
            self.shadow.switch(service, on)
            self.version += 1
        self._cancel()

    def _cancel(self) -> None:
        """Cancel at the street what was withdrawn; a bus that has left needs no word."""
        with self.lock:
            sent = [self.shadow.advice[number] for number in self._carried_out]
            over = [advice for advice in sent if not advice.applies]
            self._carried_out -= {advice.number for advice in over}
        for advice in over:
            if self.street and advice.state == WITHDRAWN:
                self._send_hold(
                    advice, 0.0
                )  # if it fails, the street holds a bus that we lost anyway

    def view(self, since_s: float) -> dict[str, Any]:
        with self.lock:
            return moving_view(self.shadow, since_s) | {"version": self.version}

    def _send_hold(self, advice: Advice, until_s: float) -> str:
        """Ask the street to hold a bus until a second, 0: no more; returns what went wrong."""
        trip = self.shadow.city.trips[advice.trip].id
        hold = {"trip": trip, "stop": advice.stop, "until_s": until_s}
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        address = f"{self.street.rstrip('/')}/holds"
        try:
            answer = httpx2.post(address, json=hold, headers=headers, timeout=5)
        except (httpx2.HTTPError, ValueError) as error:
            return str(error)
        return "" if answer.is_success else f"it answers {answer.status_code}"
