"""The shadow: advice only where it may, withdrawn in time, everything logged, a kill survived."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from evenline.city.cells import demo_cell
from evenline.city.model import City
from evenline.city.operations import Operations
from evenline.control.event import HEADWAY_AHEAD, RAW_FEATURES, STOP, Array
from evenline.live.advice import Advice, Answer
from evenline.live.entries import (
    AnswerEntry,
    AskedEntry,
    Entry,
    EventEntry,
    PollEntry,
)
from evenline.live.feed import Prediction, Snapshot, write_message
from evenline.live.log import read_log
from evenline.live.polls import unheard, with_silence
from evenline.live.record import Polled, Recorder
from evenline.live.record import played as recorded
from evenline.live.shadow import Rules, Shadow
from evenline.live.situation import Question
from evenline.live.street import FastStreet, Faults, StreetFeed
from evenline.live.view import moving_view
from evenline.policies.lookahead import Lookahead
from evenline.report.shadow import read_seen
from evenline.support.errors import InputError
from evenline.worlds.open import OpenCity, open_city
from on_the_road import Road
from shadow_log import facts

LATE_S = {1: -170.0}  # the second bus of the first service runs close behind the first
POLICY = "forward:gain=1"


@pytest.fixture(scope="module")
def road(town: City) -> Road:
    return Road(town, LATE_S)


def shadow_of(road: Road, lines: tuple[str, ...] = ("1E",), log: Path | None = None) -> Shadow:
    return Shadow(OpenCity("town", road.city), POLICY, lines, Rules(lead_s=45), log)


def played(shadow: Shadow, road: Road, begin: float = 0.0, end: float = 900.0, every: float = 20.0):  # type: ignore[no-untyped-def]
    given = []
    for second in np.arange(begin, end, every):
        snapshot = road.snapshot(float(second))
        given += shadow.take(Polled(snapshot.at_s, snapshot))
    return given


def entries(path: Path, kind: type) -> list:  # type: ignore[type-arg]
    return [entry for _, entry in read_log(path, Entry) if isinstance(entry, kind)]


def test_a_bus_too_close_is_advised_to_wait_with_a_reason(road: Road, tmp_path: Path) -> None:
    shadow = shadow_of(road, log=tmp_path / "log")
    given = played(shadow, road)
    shadow.close()
    assert given and {advice.trip for advice in given} == {1}
    for advice in given:
        assert advice.until_s % 5 == 0
        assert 10 <= advice.hold_s <= 60
        assert "bus ahead" in advice.reason and "on board wait" in advice.reason
        assert "more catch it" in advice.reason
        assert advice.made_s <= advice.until_s
    asked = entries(tmp_path / "log", AskedEntry)
    assert len(asked) == len({(entry.trip, entry.stop) for entry in asked}), "once at each stop"
    ahead = [e for e in asked if e.trip == road.city.trips[1].id and e.raw[STOP] > 1]
    true_s = [
        road.due_s[1][int(e.raw[STOP])] - 170 - road.due_s[0][int(e.raw[STOP])] for e in ahead
    ]
    assert [e.raw[HEADWAY_AHEAD] for e in ahead] == pytest.approx(true_s, abs=25)


def test_no_advice_until_a_line_is_switched_on(road: Road) -> None:
    shadow = shadow_of(road, lines=())
    assert played(shadow, road, end=500.0) == []
    shadow.switch("1E", True)
    assert played(shadow, road, begin=500.0)
    shadow.switch("1E", False)
    assert all(not advice.applies for advice in shadow.advice.values())
    with pytest.raises(InputError, match="unknown line '9'; choose '1E'"):
        shadow.switch("9", True)


def test_advice_is_given_at_control_points_only(road: Road) -> None:
    point = road.city.stops[road.city.services[0].stops[4]].id
    rules = Rules(lead_s=45, stops=frozenset({point}))
    shadow = Shadow(OpenCity("town", road.city), POLICY, ("1E",), rules)
    assert {advice.stop for advice in played(shadow, road)} == {4}


def test_advice_that_nobody_took_is_not_said_again_for_a_headway(road: Road) -> None:
    shadow = shadow_of(road)
    given = played(shadow, road)
    target_s = max(np.transpose(road.city.headway_targets())[1])
    said_s = [advice.made_s for advice in given]
    assert given and (np.diff(said_s) >= target_s).all()
    willing = shadow_of(road)
    taken = []
    for second in np.arange(0.0, 900.0, 20.0):
        snapshot = road.snapshot(float(second))
        for advice in willing.take(Polled(snapshot.at_s, snapshot)):
            taken.append(willing.answer(advice.number, True))
    assert len(taken) > len(given), "who follows advice gets the next one at the next stop"


def test_a_hold_within_the_error_of_what_was_expected_is_not_said(
    road: Road, tmp_path: Path
) -> None:
    shadow = shadow_of(road, log=tmp_path / "log")
    played(shadow, road)
    shadow.close()
    arrived = {
        (e.trip, e.stop): e.at_s
        for e in entries(tmp_path / "log", EventEntry)
        if e.what == "arrives"
    }
    of_line = {trip.id for trip in road.city.trips if trip.service == 0}
    errors = [
        abs(e.expected_s - arrived[e.trip, e.stop])
        for e in entries(tmp_path / "log", AskedEntry)
        if e.trip in of_line and arrived.get((e.trip, e.stop), -1.0) > e.now_s
    ]
    assert 10 <= len(errors) <= 100
    assert shadow.situation.noise_s(0) == pytest.approx(float(np.median(errors)), abs=3.0)
    unsure = shadow_of(road)
    unsure.situation.noise_s = lambda service: 61.0  # type: ignore[method-assign]
    assert played(unsure, road) == []


def test_advice_stays_within_what_the_operations_of_the_city_allow(road: Road) -> None:
    terminal = replace(road.city, operations=Operations(hold_at="terminals", max_hold_s=20.0))
    shadow = Shadow(OpenCity("town", terminal), POLICY, ("1E",), Rules(lead_s=45))
    assert {advice.stop for advice in played(shadow, road)} <= {0}
    short = replace(road.city, operations=Operations(max_hold_s=20.0))
    shadow = Shadow(OpenCity("town", short), POLICY, ("1E",), Rules(lead_s=45))
    given = played(shadow, road)
    assert given and max(advice.hold_s for advice in given) <= 20.0


def test_advice_is_withdrawn_when_the_feed_falls_silent(road: Road) -> None:
    shadow = shadow_of(road)
    given = []
    second = 0.0
    while not given:
        second += 20.0
        snapshot = road.snapshot(second)
        given = shadow.take(Polled(snapshot.at_s, snapshot))
    for _ in range(8):
        second += 20.0
        shadow.take(Polled(road.frame.moment(second), None, "the server answers 503"))
    assert given[0].state == "withdrawn"
    assert given[0].why
    assert shadow.failure == "the server answers 503"
    with pytest.raises(InputError, match="is withdrawn"):
        shadow.answer(given[0].number, True)


def test_a_malformed_answer_is_a_failed_poll(road: Road) -> None:
    shadow = shadow_of(road)
    shadow.take(Polled(road.frame.moment(10), b"\xff\xff"))
    assert "not a GTFS-Realtime" in shadow.failure


def test_a_clock_that_jumps_back_changes_nothing(road: Road) -> None:
    shadow = shadow_of(road)
    played(shadow, road, end=400.0)
    before = shadow.now_s
    shadow.take(Polled(road.frame.moment(100.0), road.snapshot(100.0)))
    assert shadow.now_s == before
    assert shadow.situation.tracks.running


def test_answers_are_logged_and_an_accepted_hold_is_done_when_the_bus_leaves(
    road: Road, tmp_path: Path
) -> None:
    shadow = shadow_of(road, log=tmp_path / "log")
    first = second = None
    for at in np.arange(0.0, 900.0, 20.0):
        snapshot = road.snapshot(float(at))
        for advice in shadow.take(Polled(snapshot.at_s, snapshot)):
            if first is None:
                first = shadow.answer(advice.number, True, "clear street")
            elif second is None:
                second = shadow.answer(advice.number, False, "driver\nchange")
    shadow.close()
    assert first is not None and second is not None
    assert first.state in ("done", "withdrawn") and second.state == "rejected"
    answers = entries(tmp_path / "log", AnswerEntry)
    mine = [(e.became, e.why) for e in answers if e.number == first.number]
    assert mine[0] == ("accepted", "clear street")
    assert [(e.became, e.why) for e in answers if e.number == second.number] == [
        ("rejected", "driverchange")
    ]


def answered(shadow: Shadow) -> None:
    """A dispatcher who accepts an advice, rejects the next one and leaves the third one."""
    for advice in list(shadow.advice.values()):
        if advice.state == "open" and advice.number % 3:
            shadow.answer(advice.number, advice.number % 3 == 1)


def follow(shadow: Shadow, recording: Path) -> None:
    """Play what a shadow has not heard of a recording."""
    answered(shadow)
    left = unheard(lambda: recorded(recording, 20.0), shadow.heard, shadow.heard_s)
    for polled in with_silence(left, 20.0, shadow.heard_s if shadow.heard else None):
        shadow.pass_time(polled.at_s) if polled.waiting else shadow.take(polled)
        answered(shadow)
    shadow.close()


@pytest.mark.parametrize("policy", ["forward:gain=1", "lookahead"])
def test_a_shadow_that_was_killed_anywhere_writes_the_log_of_one_that_ran_through(
    policy: str, tmp_path: Path
) -> None:
    opened, rng = open_city("town"), random.Random(3)
    faults = Faults(5.0, loss=0.1, unknown=0.3, twice=0.2, occupancy=True)
    feed = StreetFeed(FastStreet(opened, demo_cell(3)), faults, np.random.default_rng(1))
    recorder, begin_s = Recorder(tmp_path / "day"), feed.frame.begin_s
    for second in range(20, 3000, 20):
        snapshot = feed.at(second)
        if 1500 <= second < 1700:  # the recording is silent
            continue
        if 1000 <= second < 1800:  # trip updates come and go, and one poll fails
            expected = [
                Prediction(trip.id, "", opened.city.stops[stop].id, -1, begin_s + second + 50)
                for trip in opened.city.trips[:12]
                for stop in opened.city.services[trip.service].stops
            ]
            off = frozenset({(opened.city.trips[9].id, "")})
            snapshot = snapshot._replace(predictions=tuple(expected), cancelled=off)
        content = b"damaged" if second % 400 == 0 else write_message(snapshot)
        recorder.keep(begin_s + second + 7200 * (second == 900), content)  # a wrong clock, once
    recorder.close()

    def shadow(log: Path, lines: tuple[str, ...] = ()) -> Shadow:
        return Shadow(opened, policy, lines, Rules(lead_s=45), log)

    follow(shadow(tmp_path / "whole", ("1E", "1W")), tmp_path / "day")
    expected, content = facts(tmp_path / "whole"), (tmp_path / "whole").read_bytes()
    asked = [entry for entry in expected if isinstance(entry, AskedEntry)]
    assert len(asked) > 200 and any(entry.feed_s is not UNSET for entry in asked)
    states = {entry.became for entry in expected if isinstance(entry, AnswerEntry)}
    assert states == {"accepted", "rejected", "withdrawn", "done"}
    first = content.index(b"\n") + 1
    for number in range(8):  # some cuts are in the middle of a line, most in the middle of a poll
        log = tmp_path / f"cut-{number}"
        log.write_bytes(content[: rng.randrange(first, len(content))])
        follow(shadow(log), tmp_path / "day")
        assert facts(log) == expected


def test_a_log_of_an_earlier_version_can_be_read_but_not_gone_on_with(
    road: Road, tmp_path: Path
) -> None:
    shadow_of(road, log=tmp_path / "log").close()
    first = (tmp_path / "log").read_bytes().replace(b"evenline-shadow-2", b"evenline-shadow-1")
    (tmp_path / "log").write_bytes(first)
    assert read_seen(tmp_path / "log", road.city).begun
    with pytest.raises(InputError, match="log: was written by an earlier version; begin a new log"):
        shadow_of(road, log=tmp_path / "log")


def test_a_log_of_another_city_is_refused(road: Road, tmp_path: Path) -> None:
    shadow_of(road, log=tmp_path / "log").close()
    other = Road(replace(road.city, name="elsewhere", horizon_s=8_000), {})
    with pytest.raises(InputError, match="log: is the log of another city"):
        shadow_of(other, log=tmp_path / "log")


def test_two_plays_of_a_day_write_the_same_log(road: Road, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shadow = Shadow(
            OpenCity("town", road.city), POLICY, ("1E",), Rules(), tmp_path / name, lambda: 0.0
        )
        played(shadow, road, end=500.0)
        shadow.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    first = json.loads((tmp_path / "a").read_bytes().splitlines()[0])
    assert first["format"] == "evenline-shadow-2"


def test_a_feed_without_buses_is_no_error(road: Road) -> None:
    shadow = shadow_of(road)
    assert shadow.take(Polled(road.frame.moment(5), Snapshot(0.0, ()))) == []
    assert shadow.now_s == pytest.approx(5)


def advised(shadow: Shadow, road: Road, every: float = 20.0) -> tuple[Advice, float]:
    """The first advice, and the second when it was given."""
    second = 0.0
    while True:
        second += every
        snapshot = road.snapshot(second)
        if given := shadow.take(Polled(snapshot.at_s, snapshot)):
            return given[0], second


def test_advice_is_withdrawn_by_the_clock_while_nobody_polls(road: Road, tmp_path: Path) -> None:
    shadow = shadow_of(road, log=tmp_path / "log")
    given, second = advised(shadow, road)
    shadow.pass_time(road.frame.moment(second + 10))
    assert given.state == "open"
    shadow.pass_time(road.frame.moment(second + 200))
    shadow.close()
    assert given.state == "withdrawn"
    assert [entry.became for entry in entries(tmp_path / "log", AnswerEntry)] == ["withdrawn"]


def test_a_poll_of_a_wrong_clock_is_forgotten_after_three_others(road: Road) -> None:
    shadow = shadow_of(road)
    played(shadow, road, end=400.0)
    shadow.take(Polled(road.frame.moment(400.0 + 7200.0), road.snapshot(400.0)))
    assert shadow.now_s == 7600.0 and not shadow.situation.tracks.running
    given = played(shadow, road, begin=420.0, end=1500.0)
    assert shadow.now_s == pytest.approx(1480.0)
    assert shadow.situation.tracks.running and given, "advice comes again"


def test_a_failure_of_any_length_can_be_read_again(road: Road, tmp_path: Path) -> None:
    shadow = shadow_of(road, log=tmp_path / "log")
    shadow.take(Polled(0.0, None, "redirects to \n" + "x" * 5_000))
    assert shadow.now_s < -1e8 and moving_view(shadow, -1e9)["feed"]["age"] is None
    shadow.close()
    shadow_of(road, log=tmp_path / "log").close()
    assert len(entries(tmp_path / "log", PollEntry)) == 1


def test_lines_that_are_left_out_of_the_next_run_are_off(road: Road, tmp_path: Path) -> None:
    first = shadow_of(road, log=tmp_path / "log")
    given, _ = advised(first, road)
    first.close()
    second = shadow_of(road, ("1W",), tmp_path / "log")
    assert {road.city.services[i].id for i in second.on} == {"1W"}
    assert second.advice[given.number].why == "the line was switched off"
    second.close()
    third = shadow_of(road, (), tmp_path / "log")
    assert third.on == second.on
    third.close()


def test_a_hold_that_is_not_said_is_not_counted_on(road: Road, tmp_path: Path) -> None:
    rules = Rules(lead_s=45, least_hold_s=1e3)
    shadow = Shadow(OpenCity("town", road.city), POLICY, ("1E",), rules, tmp_path / "log")
    played(shadow, road, end=500.0)
    shadow.close()
    asked = entries(tmp_path / "log", AskedEntry)
    assert max(entry.hold_s for entry in asked) > 10
    assert {entry.noted_s for entry in asked} == {0.0}


def question(shadow: Shadow) -> Question:
    track = next(t for t in shadow.situation.tracks.running.values() if 0 < t.next_stop < 9)
    at_s = shadow.situation.expected_s(track, track.next_stop)
    return Question(track.trip, track.next_stop, at_s, track)


def test_the_look_ahead_expects_a_bus_that_is_not_advised_to_drive_on() -> None:
    opened, due_s = open_city("town"), []
    for lines, least_hold_s in (((), 10.0), (("1E",), 1e3)):
        shadow = Shadow(opened, "lookahead", lines, Rules(lead_s=45, least_hold_s=least_hold_s))
        played(shadow, Road(opened.city, LATE_S), end=600.0, every=30.0)
        policy, asked = shadow.policy.policy, question(shadow)
        assert isinstance(policy, Lookahead)
        due_s.append(policy._seen.due_s.copy())
        met = policy._seen.met.copy()
        shadow.policy.again(shadow.now_s, asked.trip, shadow.situation.raw([asked])[0])
        np.testing.assert_array_equal(policy._seen.met, met)
        np.testing.assert_array_equal(policy._seen.due_s, due_s[-1])
    np.testing.assert_allclose(due_s[0], due_s[1], atol=1.0)


def test_advice_is_withdrawn_when_the_headways_change(road: Road) -> None:
    shadow = shadow_of(road)
    given, second = advised(shadow, road, every=10.0)
    targets_s = shadow.situation.targets_s[given.trip]
    targets_s[0] = 1.0  # as if the gap ahead had become wide enough
    snapshot = road.snapshot(second + 10.0)
    shadow.take(Polled(snapshot.at_s, snapshot))
    assert (given.state, given.why) == ("withdrawn", "the headways have changed")


def test_cancelled_trips_and_skipped_stops_get_no_advice(road: Road) -> None:
    shadow, name = shadow_of(road), road.city.trips[1].id
    given, second = advised(shadow, road)
    after = road.snapshot(second + 20)._replace(cancelled=frozenset({(name, road.frame.date)}))
    shadow.take(Polled(after.at_s, after))
    assert (given.state, given.why) == ("withdrawn", "the trip is cancelled")
    stop = road.city.stops[road.city.services[0].stops[given.stop]].id
    other = shadow_of(road)
    for at in np.arange(0.0, second + 60.0, 20.0):
        snapshot = road.snapshot(float(at))._replace(skipped=frozenset({(name, "", stop)}))
        assert all(a.stop != given.stop for a in other.take(Polled(snapshot.at_s, snapshot)))


def test_who_is_on_board_comes_from_the_feed_where_it_says_so(road: Road) -> None:
    seats = road.city.vehicle_of(1).capacity
    for share in (0.5, 1.0):
        shadow, given, second = shadow_of(road), [], 0.0
        while not given:
            second += 20.0
            snapshot = road.snapshot(second, occupied=share)
            given = shadow.take(Polled(snapshot.at_s, snapshot))
        assert f"{round(share * seats)} on board wait" in given[0].reason


def test_ten_thousand_damaged_messages_go_through_and_the_log_opens_again(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenline.live.log.os.fsync", lambda file: None)  # for speed
    shadow, rng, whole = shadow_of(road, log=tmp_path / "log"), random.Random(7), b""
    for number in range(10_000):
        second = 0.12 * number
        whole = write_message(road.snapshot(second)) if number % 50 == 0 else whole
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        shadow.take(Polled(road.frame.moment(second), bytes(damaged)))
    known = len(shadow.advice)
    shadow.close()
    again = shadow_of(road, log=tmp_path / "log")
    assert again.now_s == pytest.approx(0.12 * 9_999) and len(again.advice) == known
    again.close()


def test_the_look_ahead_does_not_count_on_a_cancelled_trip() -> None:
    opened = open_city("town")
    shadow, road = Shadow(opened, "lookahead"), Road(opened.city)
    policy, trip, due_s = shadow.policy.policy, 9, []
    assert isinstance(policy, Lookahead)
    for second, off in ((20.0, {(opened.city.trips[trip].id, "")}), (40.0, set())):
        snapshot = road.snapshot(second)._replace(cancelled=frozenset(off))
        shadow.take(Polled(snapshot.at_s, snapshot))
        due_s.append(policy._seen.due_s[trip])
    assert due_s == [-np.inf, policy.forecast.start_s[trip]]


def tell(shadow: Shadow, **changes: float) -> None:
    """Let a policy that holds every bus for 40 s be told these headways."""

    def raw(questions: Sequence[Question]) -> Array:
        rows = told_raw(questions)
        rows[:, [RAW_FEATURES.index(name) for name in changes]] = list(changes.values())
        return rows

    told_raw, shadow.situation.raw = shadow.situation.raw, raw  # type: ignore[method-assign]
    asked, again = (
        (lambda *asked_with: [Answer(40.0) for _ in asked_with[1]]),
        (lambda *asked_with: 40.0),
    )
    shadow.policy.ask, shadow.policy.again = asked, again  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("ahead_s", "behind_s", "planned_s", "reason"),
    [
        (380.0, None, 420.0, "bus ahead 6:20 → 7:00"),
        (420.0, None, 0.0, ""),  # the last bus
        (420.0, None, 420.0, ""),
        (420.0, 420.0, 600.0, ""),
        (500.0, 480.0, 420.0, ""),
        (420.0, 465.0, 420.0, "the wider gap is behind it; bus ahead 7:00 → 7:40; bus behind 7:45"),
        (500.0, 600.0, 420.0, "the wider gap is behind it; bus ahead 8:20 → 9:00; bus behind 10:0"),
        (420.0, None, 600.0, "the wider gap is behind it; bus ahead 7:00 → 7:40; next bus planned"),
    ],
)
def test_a_bus_with_a_wide_gap_ahead_is_held_only_for_a_wider_one_behind(
    road: Road, ahead_s: float, behind_s: float | None, planned_s: float, reason: str
) -> None:
    shadow = shadow_of(road)
    tell(shadow, bus_ahead=1.0, headway_ahead_s=ahead_s, target_ahead_s=420.0)
    tell(shadow, bus_behind=behind_s is not None, headway_behind_s=behind_s or 0.0)
    tell(shadow, target_behind_s=planned_s)
    given = played(shadow, road, end=400.0)
    assert {advice.reason.startswith(reason) for advice in given} == ({True} if reason else set())


def test_advice_is_withdrawn_when_the_bus_behind_has_come_closer(road: Road) -> None:
    shadow = shadow_of(road)
    tell(shadow, bus_ahead=1.0, headway_ahead_s=430.0, target_ahead_s=420.0)
    tell(shadow, bus_behind=1.0, headway_behind_s=600.0, target_behind_s=420.0)
    given, second = advised(shadow, road, every=5.0)
    tell(shadow, headway_behind_s=430.0)
    snapshot = road.snapshot(second + 1.0)
    shadow.take(Polled(snapshot.at_s, snapshot))
    assert (given.state, given.why) == ("withdrawn", "the headways have changed")
