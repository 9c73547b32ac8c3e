"""Arrivals and departures between two polls: each once, in order, near the truth."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.live.courses import Course
from evenline.live.events import ARRIVES, LEAVES, Calls, Fix, calls_between

STOPS = (0.0, 400.0, 800.0, 1200.0, 1600.0)
DWELL_S, RUN_S = 15.0, 50.0
LINE = Course(
    np.array([0.0, 1600.0]),
    np.zeros(2),
    np.array([0.0, 1600.0]),
    STOPS,
    (30.0,) * 5,
    np.full((5, 1), RUN_S),
)


def true_calls(dwells: list[float], runs: list[float]) -> list[tuple[str, int, float]]:
    """What a bus really did that left the first stop at second 0."""
    calls, at = [(LEAVES, 0, 0.0)], 0.0
    for stop, (dwell, run) in enumerate(zip(dwells, runs, strict=True), 1):
        at += run
        calls.append((ARRIVES, stop, at))
        at += dwell
        calls.append((LEAVES, stop, at))
    return calls[:-1]


def place(calls: list[tuple[str, int, float]], at: float) -> float:
    """Where that bus was."""
    seconds = [call[2] for call in calls]
    return float(np.interp(at, seconds, [STOPS[call[1]] for call in calls]))


def seen(calls: list[tuple[str, int, float]], polls: list[float]) -> list[tuple[str, int, float]]:
    before, stop, standing, events = Fix(-1.0, 0.0), 1, 0, []
    for at in polls:
        after = Fix(at, place(calls, at))
        done: Calls = calls_between(LINE, before, after, stop, standing, DWELL_S)
        events += done.calls
        before, stop, standing = after, done.next_stop, done.standing
    return events


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(12, 60), min_size=4, max_size=4),
    st.lists(st.floats(30, 120), min_size=4, max_size=4),
    st.floats(1, 45),
    st.floats(0, 1),
)
def test_every_call_is_found_once_in_order_and_within_a_poll(
    dwells: list[float], runs: list[float], every: float, phase: float
) -> None:
    calls = true_calls(dwells, runs)
    polls = list(np.arange(phase * every, calls[-1][2] + 3 * every, every))
    events = seen(calls, polls)
    assert [call[:2] for call in events] == [call[:2] for call in calls]
    times = [call[2] for call in events]
    assert times == sorted(times)
    early_s = 30.0 / 400 * 120 + 1e-6  # a bus counts as gone 30 m after a stop
    for (_, _, at), (_, _, truth) in zip(events, calls, strict=True):
        assert abs(at - truth) <= every + early_s


def test_a_bus_that_stands_makes_no_event() -> None:
    between = calls_between(LINE, Fix(0, 800.0), Fix(30, 805.0), 3, 2, DWELL_S)
    assert between == Calls([], 3, 2)


def test_several_stops_between_two_reports_share_the_time() -> None:
    between = calls_between(LINE, Fix(0, 200.0), Fix(200, 1400.0), 1, -1, DWELL_S)
    assert [call[:2] for call in between.calls] == [
        (kind, stop) for stop in (1, 2, 3) for kind in (ARRIVES, LEAVES)
    ]
    assert 0 < between.calls[0][2] < between.calls[-1][2] < 200


def test_a_moving_bus_close_to_a_stop_has_not_arrived() -> None:
    near = 400.0 - 20.0
    assert calls_between(LINE, Fix(0, 100.0), Fix(30, near, 9.0), 1, -1, DWELL_S).calls == []
    assert calls_between(LINE, Fix(0, 100.0), Fix(30, near, 0.0), 1, -1, DWELL_S).calls != []
