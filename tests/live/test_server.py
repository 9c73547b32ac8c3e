"""The page and its buttons: for people on this machine, not for other sites; a real browser."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from browser import browsing
from evenline.city.model import City
from evenline.cli.report import BROWSERS, headless
from evenline.live import serve
from evenline.live.poll import Poller
from evenline.live.polls import url_polls
from evenline.live.record import Polled
from evenline.live.running import Running
from evenline.live.serve import check_host, serve_shadow
from evenline.live.server import shadow_app
from evenline.live.shadow import Rules, Shadow
from evenline.support.errors import InputError
from evenline.worlds.open import OpenCity
from feed_server import Served, serving
from on_the_road import Road

BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)


LATE_S = {1: -170.0, 2: -100.0, 18: -150.0, 35: -150.0}  # buses close behind others


@pytest.fixture
def running(town: City) -> Running:
    """A shadow with an open advice, ten minutes or more into the day."""
    lines = [service.id for service in town.services]
    shadow = Shadow(OpenCity("town", town), "forward:gain=1", lines, Rules(lead_s=45))
    running = Running(shadow)
    drive(running, 600.0)
    while not open_numbers(running):
        drive(running, shadow.now_s + 20.0)
    return running


def drive(running: Running, until_s: float) -> None:
    """Let the buses drive on."""
    road, shadow = Road(running.shadow.city, LATE_S), running.shadow
    for second in np.arange(max(shadow.now_s, 0.0) + 20.0, until_s + 1.0, 20.0):
        snapshot = road.snapshot(float(second))
        running.follow(iter([Polled(snapshot.at_s, snapshot)]))
        running.ended.clear()


def open_numbers(running: Running) -> list[int]:
    return [advice.number for advice in running.shadow.advice.values() if advice.state == "open"]


@pytest.fixture
def client(running: Running) -> TestClient:
    return TestClient(shadow_app(running), base_url="http://127.0.0.1:8700")


def test_the_page_carries_everything_and_allows_nothing_else(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
    assert nonce is not None and f'<script nonce="{nonce[1]}">' in answer.text
    assert "http" not in re.sub(r"<!doctype.*?>", "", answer.text).replace("http-equiv", "")
    assert client.get("/").headers["content-security-policy"] != policy, "a new nonce each time"


def test_an_answer_and_a_switch_reach_the_shadow(client: TestClient, running: Running) -> None:
    number = open_numbers(running)[0]
    body = {"number": number, "accept": True, "why": "fine"}
    assert client.post("/answer", json=body).json() == {"state": "accepted"}
    assert running.shadow.advice[number].why == "fine"
    again = client.post("/answer", json=body)
    assert again.status_code == 400 and "can no longer be answered" in again.json()["error"]
    for name, on in (("2N", False), ("2S", False), ("2N", True)):
        assert client.post("/switch", json={"service": name, "on": on}).status_code == 200
    assert client.get("/state").json()["on"] == ["1E", "1W", "2N"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Content-Type": "text/plain"},
    ],
    ids=str,
)
def test_other_sites_press_no_buttons(
    client: TestClient, running: Running, headers: dict[str, str]
) -> None:
    number = open_numbers(running)[0]
    body = json.dumps({"number": number, "accept": True, "why": ""})
    sent = {"Content-Type": "application/json", **headers}
    assert client.post("/answer", content=body, headers=sent).status_code == 403
    assert running.shadow.advice[number].state == "open"


@pytest.mark.parametrize(
    "body",
    [b"", b"[1]", b"{}", b'{"number":"1","accept":true,"why":""}', b"[" * 4000, b" " * 9000],
    ids=["nothing", "list", "no keys", "text", "nested", "long"],
)
def test_a_strange_body_is_refused_in_one_line(client: TestClient, body: bytes) -> None:
    answer = client.post("/answer", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]


def test_a_token_opens_the_page_once_and_stays_in_a_strict_cookie(running: Running) -> None:
    app = shadow_app(running, ["shadow.example"], token="t" * 20)
    client = TestClient(app, base_url="https://shadow.example", follow_redirects=False)
    assert client.get("/").status_code == 403
    assert client.get("/state").status_code == 403
    assert client.get("/?token=wrong").status_code == 403
    answer = client.get("/?token=" + "t" * 20, headers={"X-Forwarded-Proto": "https"})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "secure" in cookie
    assert client.get("/state").status_code == 200


def test_nobody_else_is_served_without_a_token() -> None:
    check_host("127.0.0.1", "")
    with pytest.raises(InputError, match="others can reach it"):
        check_host("0.0.0.0", "short")
    check_host("0.0.0.0", "long enough a token")


def test_a_street_must_be_on_this_machine(running: Running) -> None:
    with pytest.raises(InputError, match="simulated street on this machine"):
        Running(running.shadow, street="http://buses.example/")
    with pytest.raises(InputError, match="only a simulated street accepts"):
        Running(running.shadow, accept=True)


def test_a_feed_elsewhere_runs_in_real_time() -> None:
    with pytest.raises(InputError, match="in real time"):
        next(url_polls(Poller("http://feed.example/x"), 60, threading.Event()))


def test_a_server_that_fails_is_told_and_tried_again(town: City) -> None:
    road, ended = Road(town), threading.Event()
    with serving(Served(status=500)) as url:
        polled = next(url_polls(Poller(url), 20, ended))
    assert "500" in polled.failure and polled.content is None
    shadow = Shadow(OpenCity("town", town), "zero")
    shadow.take(polled)
    assert shadow.failure == polled.failure
    snapshot = road.snapshot(30.0)
    shadow.take(Polled(snapshot.at_s, snapshot))
    assert shadow.now_s == pytest.approx(30.0), "a failure before the first message sets no clock"


@dataclass
class NotingStreet:
    """A street that notes what it is told, or refuses."""

    holds: list[dict[str, object]] = field(default_factory=list)
    status: int = 200

    async def take(self, request: Request) -> Response:
        self.holds.append(await request.json())
        return Response("{}", self.status)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/holds", self.take, methods=["POST"])])


def test_an_accepted_hold_that_is_withdrawn_is_cancelled_on_the_street(running: Running) -> None:
    street, number = NotingStreet(), open_numbers(running)[0]
    with serve.serving(street.app) as running.street:
        advice = running.answer(number, True, "")
        running.switch(running.shadow.city.services[
            running.shadow.city.trips[advice.trip].service].id, False)  # fmt: skip
    assert advice.state == "withdrawn"
    assert [hold["until_s"] for hold in street.holds] == [advice.until_s, 0.0]


def test_a_hold_that_the_street_refuses_is_withdrawn_and_shown(running: Running) -> None:
    number = open_numbers(running)[0]
    with serve.serving(NotingStreet(status=500).app) as running.street:
        advice = running.answer(number, True, "")
    assert advice.state == "withdrawn" and "the street did not take the hold" in advice.why
    assert "500" in next(a["why"] for a in running.view(0)["advice"] if a["number"] == number)


def test_an_error_while_polling_ends_the_server(running: Running) -> None:
    def broken() -> Iterator[Polled]:
        yield Polled(0.0, None)
        raise InputError("row 9: not a possible report")

    with pytest.raises(InputError, match="row 9"):
        serve_shadow(running, broken(), "127.0.0.1", 0, "", show=lambda line: None)


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture
def address(running: Running) -> Iterator[str]:
    with serve.serving(shadow_app(running)) as url:
        yield url
        running.ended.set()


def browse(url: str, profile: Path, *options: str) -> str:
    assert BROWSER is not None
    command = [*headless(BROWSER, profile), *options, "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=os.environ)
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_the_page_shows_buses_advice_and_the_feed(address: str, tmp_path: Path) -> None:
    shown = browse(address, tmp_path, "--window-size=390,800")
    assert len(re.findall(r'<th scope="row">bus-', shown)) >= 5
    assert re.search(r"hold bus-\w+\.\d\d at \w+ until \d\d:\d\d:\d\d", shown)
    assert "Feed age" in shown and "100 %" in shown
    assert shown.count('type="checkbox"') == 4
    assert '<p id="failure" role="alert" hidden="">' in shown, "no error"


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_a_dispatcher_accepts_with_the_mouse_and_rejects_with_the_keyboard(
    address: str, running: Running, tmp_path: Path
) -> None:
    assert BROWSER is not None
    shadow, first = running.shadow, open_numbers(running)[0]
    with browsing(BROWSER, tmp_path) as page:
        page.size(390, 800)
        page.open(address)
        page.click(f'[data-number="{first}"] input')
        page.type("driver agrees")
        page.click(f'[data-number="{first}"] button.yes')
        page.wait(f"""document.querySelector('[data-number="{first}"] .state')
            .textContent === "accepted" """)
        assert (shadow.advice[first].state, shadow.advice[first].why) == (
            "accepted", "driver agrees",
        )  # fmt: skip
        while not open_numbers(running):
            drive(running, shadow.now_s + 20.0)
        second = open_numbers(running)[0]
        page.wait(f"""document.querySelector('[data-number="{second}"]')""" + " !== null")
        for _ in range(60):  # by keyboard alone
            if page.value("document.activeElement.dataset.number") == str(second):
                break
            page.press("Tab")
        page.press("r")
        page.wait(f"""document.querySelector('[data-number="{second}"]')""" + " === null")
        assert shadow.advice[second].state == "rejected"
        assert page.value("document.getElementById('failure').hidden"), "no error"
        for dark in (False, True):
            page.size(390, 800, dark)
            assert page.value("document.documentElement.scrollWidth") <= 390, "fits a phone"


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_every_column_of_the_list_can_be_seen_on_a_screen(running: Running, tmp_path: Path) -> None:
    assert BROWSER is not None
    for service in running.fixed["services"]:
        service["name"] = f"{service['id']} to Congress Heights and the Bay"
    shown = "(() => { const list = document.querySelector('.wide'); return list.clientWidth > 0 &&"
    with browsing(BROWSER, tmp_path) as page, serve.serving(shadow_app(running)) as url:
        for width in (900, 1200, 1360, 1500, 1900):
            page.size(width, 900)
            page.open(url)
            page.wait("document.querySelector('#buses tr') !== null")
            assert page.value(f"{shown} list.scrollWidth <= list.clientWidth; }})()"), width
        running.ended.set()
