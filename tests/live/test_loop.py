"""The whole loop at once: a street, its feed over HTTP, a shadow, its page in a browser, a hold."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from browser import browsing
from evenline.city.cells import demo_cell
from evenline.cli.report import BROWSERS
from evenline.live.poll import Poller
from evenline.live.polls import url_polls
from evenline.live.running import Running
from evenline.live.serve import serving, street_clock
from evenline.live.server import shadow_app, street_app
from evenline.live.shadow import Rules, Shadow
from evenline.live.street import FastStreet, Faults, StreetFeed
from evenline.worlds.open import open_city

BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
SPEED = 15.0
TOKEN = "secret-token"


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_a_click_on_the_page_holds_a_bus_of_the_street(tmp_path: Path) -> None:
    assert BROWSER is not None
    opened = open_city("town")
    street = FastStreet(opened, demo_cell(3))
    feed = StreetFeed(street, Faults(noise_m=5.0), np.random.default_rng(1))
    names = [service.id for service in opened.city.services]
    shadow = Shadow(opened, "forward:gain=1", names, Rules(lead_s=90.0, least_hold_s=30.0))
    with (
        browsing(BROWSER, tmp_path) as page,
        serving(street_app(feed, street_clock(SPEED, 1200.0), TOKEN)) as url,
    ):
        running = Running(shadow, url, TOKEN)
        polls = url_polls(Poller(f"{url}vehicle_positions.pb", 15.0), SPEED, running.ended)
        follower = threading.Thread(target=running.follow, args=(polls,), daemon=True)
        with serving(shadow_app(running)) as shown:
            page.size(1200, 900)
            page.open(shown)
            follower.start()
            # The first one that is still open when it is clicked.
            page.wait("""(() => {
                const yes = [...document.querySelectorAll("button.yes:not([hidden])")].pop();
                if (yes) yes.click();
                return [...document.querySelectorAll("#advice .state")]
                    .some((state) => state.textContent === "accepted");
            })()""")
            (held, until_s), *_ = street.holds.items()
            page.wait(f"view.now > {until_s + 30}")
            running.ended.set()
        follower.join(timeout=10)
    assert running.error is None
    accepted = [a for a in shadow.advice.values() if (a.trip, a.stop) == held]
    assert accepted[0].until_s == until_s
    leaves_s = street._leaves_s[street._first[held[0]] + held[1]]
    reached_s = street.arrivals_s()[street._first[held[0]] + held[1]]
    assert reached_s < leaves_s <= until_s + 1, "it left when the advice said"
    assert leaves_s == pytest.approx(until_s, abs=1) or leaves_s - reached_s >= 60
