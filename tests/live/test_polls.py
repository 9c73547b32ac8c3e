"""The moments of answers: one wrong clock, a sleep or a silence of a feed does no lasting harm."""

import threading
from pathlib import Path

import pytest

from evenline.city.model import City
from evenline.live import feed, polls
from evenline.live.feed import Prediction, Snapshot, write_message
from evenline.live.poll import Poller
from evenline.live.polls import FeedClock, Updates, record, unheard, url_polls, with_silence
from evenline.live.record import Polled, played
from evenline.live.shadow import Shadow
from evenline.worlds.open import OpenCity
from feed_server import Served, serving
from on_the_road import Road

REAL_S = 1.8e9


class Ticking:
    """A clock that we move."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        return self.at_s


def test_a_feed_on_our_clock_has_our_time_also_after_a_sleep() -> None:
    wall, ticks = Ticking(REAL_S), Ticking(0.0)
    clock = FeedClock(1.0, wall, ticks)
    assert clock.moment() == 0.0, "no time is known before the first message"
    assert clock.moment(REAL_S - 20) == REAL_S
    wall.at_s += 3600.0  # the machine slept; its ticks did not go on
    assert clock.moment() == REAL_S + 3600.0


@pytest.mark.parametrize("speed", [1.0, 20.0])
def test_one_header_two_hours_ahead_moves_no_clock(speed: float) -> None:
    ticks = Ticking(0.0)
    clock = FeedClock(speed, Ticking(REAL_S), ticks)
    for poll in range(10):
        now_s = 1e9 + 15.0 * poll
        assert clock.moment(now_s + 7200.0 * (poll == 4)) == pytest.approx(now_s, abs=1)
        ticks.at_s += 15.0 / speed


def test_a_feed_that_begins_again_is_followed_after_three_messages() -> None:
    ticks = Ticking(0.0)
    clock = FeedClock(1.0, Ticking(REAL_S), ticks)
    clock.moment(1e9 + 7200.0)
    seconds = []
    for poll in range(1, 5):
        ticks.at_s = 15.0 * poll
        seconds.append(clock.moment(1e9 + 15.0 * poll) - 1e9)
    assert seconds == [7215.0, 7230.0, 45.0, 60.0]


def test_a_frozen_header_does_not_stop_the_clock() -> None:
    ticks = Ticking(0.0)
    clock = FeedClock(1.0, Ticking(REAL_S), ticks)
    for poll in range(30):
        ticks.at_s = 15.0 * poll
        assert clock.moment(1e9) == 1e9 + ticks.at_s


def test_time_passes_while_a_server_fails() -> None:
    ended = threading.Event()
    poller = Poller("http://127.0.0.1:9/x", every_s=15.0)
    with serving(Served(write_message(Snapshot(1e9, ())))) as url:
        poller.url = url
        answers = url_polls(poller, 300.0, ended)
        assert next(answers).content == Snapshot(1e9, ())
    answered = [next(answers) for _ in range(6)]
    assert [polled.waiting for polled in answered] == [False, True, False, True, True, True]
    assert all("refused" in polled.failure for polled in answered)
    moments = [polled.at_s for polled in answered]
    assert moments == sorted(moments) and moments[-1] - moments[0] >= 45


def test_a_message_is_read_once(monkeypatch: pytest.MonkeyPatch, town: City) -> None:
    read: list[bytes] = []

    def counted(content: bytes) -> Snapshot:
        read.append(content)
        return feed.read_message(content)

    monkeypatch.setattr(polls, "read_message", counted)
    monkeypatch.setattr("evenline.live.record.read_message", counted)
    with serving(Served(write_message(Road(town).snapshot(60.0)))) as url:
        polled = next(url_polls(Poller(url), 1.0, threading.Event()))
    Shadow(OpenCity("town", town), "zero").take(polled)
    assert len(read) == 1
    assert polled.read_ms > 0


def test_trip_updates_of_another_address_join_the_positions(town: City) -> None:
    road = Road(town)
    expected = Prediction(town.trips[0].id, road.frame.date, town.stops[3].id, 3, 1e9)
    off = frozenset({(town.trips[1].id, road.frame.date)})
    apart = write_message(Snapshot(1e9, (), (expected,), cancelled=off))
    with (
        serving(Served(write_message(road.snapshot(60.0)))) as url,
        serving(Served(apart)) as second,
    ):
        updates = Updates(Poller(second))
        answers = url_polls(Poller(url, every_s=15), 300.0, threading.Event(), updates)
        snapshot = next(answers).content
        assert isinstance(snapshot, Snapshot) and snapshot.positions
        assert snapshot.predictions == (expected,) and snapshot.cancelled == off
        updates.poller.url = "http://127.0.0.1:9/x"
        after = next(answers)
    assert after.failure.startswith("trip updates: ") and isinstance(after.content, Snapshot)
    assert after.content.cancelled == off, "what was known stays"


def test_a_recorded_simulation_plays_as_it_was_seen(town: City, tmp_path: Path) -> None:
    road, ended, second = Road(town), threading.Event(), 60.0
    served = Served(write_message(road.snapshot(second)))
    moments = []

    def tell(line: str) -> None:
        nonlocal second
        second += 300.0  # by the clock of the simulation, which is not ours
        served.content = write_message(road.snapshot(second))
        if line == "3 messages":
            ended.set()

    with serving(served) as url:
        record(Poller(url, every_s=15.0), tmp_path / "day", ended, tell, 300.0)
    shadow = Shadow(OpenCity("town", town), "zero")
    for polled in played(tmp_path / "day", 15.0):
        shadow.take(polled)
        moments.append(shadow.now_s)
        assert "old report" not in shadow.situation.tracks.counts()
    assert moments == pytest.approx([60.0, 360.0, 660.0], abs=60)


def test_a_play_goes_on_after_what_was_seen_and_time_passes_in_its_silence() -> None:
    answers = [Polled(at_s, b"") for at_s in (5.0, 15.0, 30.0, 100.0)]
    left = list(with_silence(unheard(lambda: iter(answers), 2, 15.0), 15.0, 15.0))
    assert [polled.at_s for polled in left] == [30.0, 45.0, 60.0, 75.0, 100.0]
    assert [polled.waiting for polled in left] == [False, True, True, True, False]
    left = list(with_silence(unheard(lambda: iter(answers), 3, 30.0), 15.0, 30.0))
    assert [polled.at_s for polled in left] == [45.0, 60.0, 75.0, 100.0]


def test_a_play_goes_on_after_the_last_poll_even_if_a_clock_was_wrong() -> None:
    answers = [Polled(at_s, b"") for at_s in (15.0, 9000.0, 30.0, 30.0, 45.0)]

    def left(heard: int, last_s: float) -> list[float]:
        return [polled.at_s for polled in unheard(lambda: iter(answers), heard, last_s)]

    assert left(0, 0.0) == [15.0, 9000.0, 30.0, 30.0, 45.0]
    assert left(2, 9000.0) == [30.0, 30.0, 45.0]
    assert left(3, 30.0) == [30.0, 45.0]
    assert left(3, 20.0) == left(9, 20.0) == [9000.0, 30.0, 30.0, 45.0], "another recording"
