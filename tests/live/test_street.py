"""The whole loop on a simulated street: feed, shadow, advice, accepted holds; and its faults."""

import threading
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from bench.polling import Played, accuracy
from evenline.city.cells import demo_cell
from evenline.live.events import LEAVES
from evenline.live.feed import read_message, write_message
from evenline.live.poll import Poller
from evenline.live.polls import url_polls
from evenline.live.record import Polled, Recorder, played
from evenline.live.running import Running
from evenline.live.serve import serving, street_clock
from evenline.live.server import street_app
from evenline.live.shadow import Rules, Shadow
from evenline.live.street import FastStreet, Faults, StreetFeed, hold_for, open_street
from evenline.policies.bundle import open_policy
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import OpenCity, open_city

END_S = 2700.0


@pytest.fixture(scope="module")
def opened() -> OpenCity:
    return open_city("town")


class Part(FastStreet):
    """The first part of a day."""

    @property
    def over(self) -> bool:
        return super().over or self._now_s >= END_S


def play(opened: OpenCity, faults: Faults, policy: str = "zero", poll_s: float = 30.0) -> Played:
    names = [service.id for service in opened.city.services]
    shadow = Shadow(opened, policy, names, Rules(lead_s=60))
    street, feed_rng = Part(opened, demo_cell(3)), np.random.default_rng(1)
    feed, now_s = StreetFeed(street, faults, feed_rng), 0.0
    while now_s < END_S:
        now_s += poll_s
        content = write_message(feed.at(now_s))
        for advice in shadow.take(Polled(shadow.frame.moment(now_s), content)):
            shadow.answer(advice.number, True)
            street.holds[advice.trip, advice.stop] = advice.until_s
    true_s = np.where(street.arrivals_s() <= now_s - poll_s, street.arrivals_s(), -1)
    return Played(shadow, None, shadow.situation.seen_s.copy(), true_s)  # type: ignore[arg-type]


def check_advice(shadow: Shadow, faults: Faults) -> None:
    """Advice is given where the data are good, and only there."""
    given = list(shadow.advice.values())
    assert len(given) > 10
    feed = StreetFeed(Part(shadow_city(shadow), demo_cell(3)), faults, np.random.default_rng(1))
    unsure = feed._unknown | feed._twice
    assert not unsure[[advice.trip for advice in given]].any(), "nobody is sure of these buses"
    begin_s, end_s = faults.silent
    blind_s = (begin_s + shadow.rules.fresh_s, end_s)
    assert not [a for a in given if blind_s[0] < a.made_s < blind_s[1]], "no report is fresh"
    assert not [a for a in given if a.applies and a.until_s < shadow.now_s - 90]


def shadow_city(shadow: Shadow) -> OpenCity:
    return open_city(shadow.city.name)


def test_the_street_is_the_world_while_nobody_is_held(opened: OpenCity) -> None:
    street, world = FastStreet(opened, demo_cell(3)), FastWorld(opened.city, opened.fitted())
    outcome = world.run_day(demo_cell(3), open_policy("zero", opened.city))
    for second in range(0, opened.city.horizon_s + 1, 600):
        street.advance(second)
        assert len({bus.trip for bus in street.buses()}) == len(street.buses())
    assert street.outcome() == outcome
    np.testing.assert_array_equal(street.arrivals_s(), world.arrivals_s)


def test_arrivals_are_seen_to_a_few_seconds_at_thirty_second_polls(opened: OpenCity) -> None:
    errors = accuracy(play(opened, Faults(noise_m=5.0)))
    assert errors["arrival_error_p50_s"] <= 4
    assert errors["arrival_error_p95_s"] <= 20
    assert errors["visits_seen_share"] >= 0.97


@pytest.mark.parametrize(
    ("faults", "seen"),
    [
        (Faults(noise_m=10, loss=0.2), 0.95),
        (Faults(delay_s=30), 0.93),
        (Faults(unknown=0.5), 0.6),
        (Faults(twice=0.5), 0.9),
        (Faults(silent=(1200.0, 1500.0)), 0.85),
    ],
    ids=["noise and loss", "delay", "half of the trip ids", "ghosts", "five minutes of silence"],
)
def test_faults_cost_some_visits_and_no_false_ones(
    opened: OpenCity, faults: Faults, seen: float
) -> None:
    done = play(opened, faults, "forward:gain=1")
    errors = accuracy(done)
    check_advice(done.shadow, faults)
    assert errors["visits_seen_share"] >= seen
    assert errors["arrival_error_p50_s"] <= 12
    never = (done.seen_s >= 0) & (done.true_s < 0) & (done.seen_s < END_S - 120)
    assert never.sum() <= 0.01 * (done.seen_s >= 0).sum()


def test_a_hold_keeps_a_bus_until_its_time_within_the_cap() -> None:
    raw = np.zeros(16)
    raw[2], raw[10] = 1000.0, 20.0  # it arrives, and its people need so long
    assert [hold_for(until, raw) for until in (None, 1010.0, 1050.0, 2000.0)] == [0, 0, 30, 60]


def test_a_recorded_street_plays_to_the_same_log(opened: OpenCity, tmp_path: Path) -> None:
    feed = StreetFeed(Part(opened, demo_cell(3)), Faults(noise_m=5.0), np.random.default_rng(2))
    recorder, direct = Recorder(tmp_path / "day"), Shadow(
        opened, "zero", log=tmp_path / "a", decided=lambda: 0.0
    )  # fmt: skip
    for second in np.arange(30.0, 900.0, 30.0):
        polled = Polled(feed.frame.moment(float(second)), write_message(feed.at(float(second))))
        assert isinstance(polled.content, bytes)
        recorder.keep(polled.at_s, polled.content)
        direct.take(polled)
    recorder.close()
    direct.close()
    again = Shadow(opened, "zero", log=tmp_path / "b", decided=lambda: 0.0)
    for polled in played(tmp_path / "day", 30):
        again.take(polled)
    again.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_loop_runs_over_http(opened: OpenCity) -> None:
    """A street server, a shadow that polls it, advice accepted, the hold carried out."""
    street = FastStreet(opened, demo_cell(3))
    feed = StreetFeed(street, Faults(noise_m=5.0), np.random.default_rng(1))
    names = [service.id for service in opened.city.services]
    shadow = Shadow(opened, "forward:gain=1", names, Rules(lead_s=60))
    app = street_app(feed, street_clock(400, 1000), "secret-token")
    left: dict[tuple[int, int], float] = {}
    note = shadow.situation.note

    def noted(event, occupied):  # type: ignore[no-untyped-def]
        note(event, occupied)
        if event.kind == LEAVES:
            left[event.trip, event.stop] = event.at_s
        if len([key for key in street.holds if key in left]) >= 3:
            running.ended.set()

    shadow.situation.note = noted  # type: ignore[method-assign]
    with serving(app) as url:
        running = Running(shadow, url, "secret-token", accept=True)
        limit = threading.Timer(40.0, running.ended.set)
        limit.start()
        running.follow(url_polls(Poller(f"{url}vehicle_positions.pb", 15.0), 400, running.ended))
        limit.cancel()
    assert running.error is None and shadow.failure == ""
    held = {key: until for key, until in street.holds.items() if key in left}
    assert len(held) >= 3
    leaves_s = {key: street._leaves_s[street._first[key[0]] + key[1]] for key in held}
    on_time = [abs(leaves_s[key] - until) <= 1 for key, until in held.items()]
    assert any(on_time), "a bus left when the advice said"


def test_a_street_takes_holds_with_its_token_only(opened: OpenCity) -> None:
    feed = StreetFeed(FastStreet(opened, demo_cell(3)), Faults(), np.random.default_rng(1))
    client = TestClient(street_app(feed, lambda: 600.0, "secret"), base_url="http://127.0.0.1")
    hold = {"trip": opened.city.trips[0].id, "stop": 3, "until_s": 900}
    assert client.post("/holds", json=hold).status_code == 403
    with_token = {"Authorization": "Bearer secret"}
    assert client.post("/holds", json=hold, headers=with_token).status_code == 200
    assert feed.street.holds == {(0, 3): 900.0}
    client.post("/holds", json=hold | {"until_s": 0}, headers=with_token)
    assert feed.street.holds == {}, "a hold can be cancelled"
    client.post("/holds", json=hold, headers=with_token)
    strange = client.post("/holds", json=hold | {"trip": "x"}, headers=with_token)
    assert strange.status_code == 400
    assert read_message(client.get("/vehicle_positions.pb").content).positions
    assert client.get("/state").json()["over"] is False


def test_an_unknown_street_is_refused(opened: OpenCity) -> None:
    with pytest.raises(InputError, match="choose 'fast' or 'sumo'"):
        open_street("moon", opened, demo_cell(1))


def test_the_simulated_street_of_sumo_reports_places_on_the_lines(opened: OpenCity) -> None:
    shadow = Shadow(opened, "zero")
    street = open_street("sumo", opened, demo_cell(1))
    feed = StreetFeed(street, Faults(), np.random.default_rng(1))
    try:
        for second in np.arange(15.0, 500.0, 15.0):
            content = write_message(feed.at(float(second)))
            shadow.take(Polled(shadow.frame.moment(float(second)), content))
        true_s = street.arrivals_s()
    finally:
        street.close()
    both = (true_s >= 0) & (shadow.situation.seen_s >= 0)
    assert both.sum() >= 15
    assert np.percentile(np.abs(true_s - shadow.situation.seen_s)[both], 90) <= 20


def test_the_street_of_sumo_reports_every_second_over_http(opened: OpenCity) -> None:
    """Between arrivals too: where a report is not fresh, and when, tells nothing of an arrival."""
    street, second = open_street("sumo", opened, demo_cell(1)), 300.0
    feed = StreetFeed(street, Faults(), np.random.default_rng(1))
    ages, alone = [], 0
    try:
        with serving(street_app(feed, lambda: second, "secret")) as url:
            poller = Poller(f"{url}vehicle_positions.pb")
            for second in np.arange(300.0, 700.0, 7.0).tolist():
                snapshot = poller.poll(read_message)
                assert len({p.at_s for p in snapshot.positions}) == 1
                ages.append(snapshot.at_s - snapshot.positions[0].at_s)
                alone += second not in street.arrivals_s()
    finally:
        street.close()
    assert max(ages) <= 1.0
    assert alone > 20, "most polls come in a second without an arrival"
