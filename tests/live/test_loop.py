"""The whole loop at once: a street, its feed over HTTP, a shadow, its page in a browser, a hold."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from browser import browsing
from evenline.city.cells import demo_cell
from evenline.cli.report import BROWSERS
from evenline.control.action import MAX_HOLD_S
from evenline.live.feed import write_message
from evenline.live.poll import Poller
from evenline.live.polls import url_polls
from evenline.live.record import Polled
from evenline.live.running import Running
from evenline.live.serve import serving, street_clock
from evenline.live.server import shadow_app, street_app
from evenline.live.shadow import Rules, Shadow
from evenline.live.street import FastStreet, Faults, StreetFeed
from evenline.worlds.open import open_city

BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
SPEED = 20.0
TOKEN = "secret-token"


def held(street: FastStreet, call: tuple[int, int]) -> bool:
    """Whether a bus stayed until its hold ended, or as long as a hold may be."""
    visit, until_s = int(street._first[call[0]]) + call[1], street.holds[call]
    reached_s, leaves_s = street.arrivals_s()[visit], street._leaves_s[visit]
    stayed_s = leaves_s - reached_s
    return bool(reached_s < leaves_s <= until_s and (leaves_s == until_s or stayed_s >= MAX_HOLD_S))


def warm(shadow: Shadow, feed: StreetFeed) -> float:
    """Let the day go on until an advice leaves time for a click; returns the second."""
    for second in np.arange(600.0, 5000.0, 15.0):
        content = write_message(feed.at(float(second)))
        new = shadow.take(Polled(shadow.frame.moment(float(second)), content))
        if any(advice.until_s > second + 140 for advice in new):
            return float(second)
    raise AssertionError("no advice in an hour")


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_a_click_on_the_page_holds_a_bus_of_the_street(tmp_path: Path) -> None:
    assert BROWSER is not None
    opened = open_city("town")
    street = FastStreet(opened, demo_cell(3))
    feed = StreetFeed(street, Faults(noise_m=5.0), np.random.default_rng(1))
    names = [service.id for service in opened.city.services]
    shadow = Shadow(opened, "forward:gain=1", names, Rules(lead_s=120.0, least_hold_s=30.0))
    second = warm(shadow, feed)
    with (
        browsing(BROWSER, tmp_path) as page,
        serving(street_app(feed, street_clock(SPEED, second), TOKEN)) as url,
    ):
        running = Running(shadow, url, TOKEN)
        with serving(shadow_app(running)) as shown:
            page.size(1200, 900)
            page.open(shown)
            page.wait("document.querySelector('#advice button.yes') !== null")
            polls = url_polls(Poller(f"{url}vehicle_positions.pb", 15.0), SPEED, running.ended)
            follower = threading.Thread(target=running.follow, args=(polls,), daemon=True)
            follower.start()
            while not street.holds:
                page.click("#advice button.yes:not([hidden])")
                page.wait("[...document.querySelectorAll('.state')].some("
                          "(state) => state.textContent === 'accepted')")  # fmt: skip
            page.wait(f"view.now > {max(street.holds.values()) + 30}")
            running.ended.set()
        follower.join(timeout=10)
    assert running.error is None
    accepted = {(a.trip, a.stop) for a in shadow.advice.values() if a.state == "done"}
    assert street.holds.keys() <= accepted, "the shadow saw the bus leave"
    assert any(held(street, call) for call in street.holds)
