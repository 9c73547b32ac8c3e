"""Each rule of the field by the property it was published for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from calibrated import calibration_of, policy_in
from evenline.city.cells import PURPOSES, demo_cell
from evenline.city.embedded import embedded_city
from evenline.control.event import RAW_FEATURES
from evenline.control.world import run_episode
from evenline.policies.names import BUILT_IN
from evenline.rules.policy import RulePolicy, holds_at
from evenline.rules.table import RULES
from evenline.runs.days import run_days
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.worlds.fast.world import FastWorld
from events import Event, events

TARGET_S = 120.0


def hold(rule: str, event: Event, late_s: float = 0.0, **constants: float) -> float:
    """By the compiled formula; plain Python must say the same."""
    row, out = RULES[rule], np.empty(1)
    policy = RulePolicy(rule, row, row.values(constants))
    raw = np.array([[event.get(name, 0.0) for name in RAW_FEATURES]])
    holds_at(row.address, policy.constants, raw, np.array([late_s]), out)
    assert row.formula(raw[0], policy.constants, late_s) == out[0]
    return float(out[0])


def seen(ahead_s: float, behind_s: float | None = None, **more: float) -> Event:
    """An event of a bus with a leader and perhaps a follower, on an even timetable."""
    return {
        "headway_ahead_s": ahead_s,
        "target_ahead_s": TARGET_S,
        "headway_behind_s": behind_s or 0.0,
        "target_behind_s": TARGET_S,
        "bus_ahead": 1.0,
        "bus_behind": float(behind_s is not None),
    } | more


def loop_headways(rule: str, late_s: float, stops: int, **constants: float) -> np.ndarray:
    """Arrival gaps of six buses at the last of many equal stops; the third set out late.

    A deterministic line: a bus runs 60 s from stop to stop and stands a tenth of its gap longer.
    """
    buses, run_s, dwell_share = 6, 60.0, 0.1
    arrival = np.arange(buses) * TARGET_S
    arrival[2] += late_s
    for _ in range(stops):
        gaps = np.diff(arrival, prepend=arrival[0] - TARGET_S)
        behind = [*np.diff(arrival), None]
        holds = [hold(rule, seen(gap, b), **constants) for gap, b in zip(gaps, behind, strict=True)]
        arrival = arrival + run_s + dwell_share * gaps + holds
    return np.diff(arrival)


@pytest.mark.parametrize(
    ("rule", "constants"),
    [
        ("forward", {"slack_s": 20.0, "gain": 0.4}),
        ("two-way", {"slack_s": 20.0, "gain": 0.4}),
        ("headway", {"gain": 1.0}),
    ],
)
def test_a_perturbed_headway_is_restored(rule: str, constants: dict[str, float]) -> None:
    """Without control the gap grows from stop to stop; with it, it goes."""
    late_s = 20.0
    wild = np.abs(loop_headways("zero", late_s, 15) - TARGET_S)
    calm = np.abs(loop_headways(rule, late_s, 15, **constants) - TARGET_S)
    assert wild.max() > 2 * late_s
    assert calm.max() < late_s / 2
    assert calm.max() < np.abs(loop_headways(rule, late_s, 3, **constants) - TARGET_S).max()


@settings(deadline=None)
@given(events, st.floats(0, 20), st.floats(0, 0.4))
def test_two_way_takes_a_missing_neighbour_as_on_time(
    event: Event, slack_s: float, gain: float
) -> None:
    ahead, behind = event["headway_ahead_s"], event["headway_behind_s"]
    uneven_s = {
        (1, 1): behind - ahead,
        (1, 0): event["target_ahead_s"] - ahead,
        (0, 1): behind - event["target_behind_s"],
        (0, 0): 0.0,
    }[int(event["bus_ahead"]), int(event["bus_behind"])]
    held = hold("two-way", event, slack_s=slack_s, gain=gain)
    assert held == pytest.approx(min(max(slack_s + gain * uneven_s, 0.0), 60.0), abs=1e-9)


@pytest.mark.parametrize("rule", ["forward", "two-way"])
def test_the_first_bus_of_a_line_does_not_run_away(rule: str) -> None:
    """Slack is for every bus, with one ahead or not: buses in their places stay there."""
    arrival, constants = np.arange(4) * TARGET_S, {"slack_s": 20.0, "gain": 0.4}
    for _ in range(15):
        gaps = [None, *np.diff(arrival)]
        behind = [*np.diff(arrival), None]
        events = [
            seen(gap or 0.0, b) | {"bus_ahead": float(gap is not None)}
            for gap, b in zip(gaps, behind, strict=True)
        ]
        arrival = arrival + [60.0 + hold(rule, event, **constants) for event in events]
    assert np.diff(arrival) == pytest.approx(TARGET_S)
    alone = seen(0.0) | {"bus_ahead": 0.0}
    assert hold(rule, alone, **constants) == 20.0


@settings(deadline=None)
@given(st.floats(-300, 100), st.floats(5, 20))
def test_a_schedule_brings_a_bus_back_to_its_timetable(late_s: float, slack_s: float) -> None:
    """A bus that ran as usual but for its first departure; slack makes a stop's time longer."""
    run_s, stops = 60.0, 30
    due_s = (run_s + slack_s) * np.arange(stops)
    arrival, left = late_s, np.empty(stops)
    for stop in range(stops):
        left[stop] = arrival + hold("schedule", {"stop": stop}, arrival - run_s * stop,
                                    slack_s=slack_s)  # fmt: skip
        arrival = left[stop] + run_s
    off = np.abs(left - due_s)
    assert (np.diff(off) <= 1e-9).all(), "at no stop is it further off than at the one before"
    assert off[-1] == pytest.approx(0.0, abs=1e-9)


@settings(deadline=None)
@given(
    st.floats(-12, 12), st.floats(-12, 12), st.floats(0.0, 0.05), st.floats(0, 1), st.integers(0, 9)
)
def test_the_virtual_schedule_leaves_the_share_it_keeps(
    deviation: float, ahead_deviation: float, rate: float, kept: float, stop: int
) -> None:
    """In the authors' model a deviation e becomes f0 e at the next stop, whatever the bus ahead."""
    slack_s, board_s = 20.0, 4.0  # slack enough for what there is to catch up, within the cap
    gap = TARGET_S + deviation - ahead_deviation
    event = seen(gap, stop=stop, arrival_rate_per_s=rate)
    late_s = deviation + slack_s * stop
    held = hold("virtual-schedule", event, late_s, slack_s=slack_s, kept=kept, board_s=board_s)
    boarding = board_s * rate * (deviation - ahead_deviation)
    assert deviation + boarding + held - slack_s == pytest.approx(kept * deviation, abs=1e-9)


def test_a_loop_equalises_itself_without_any_target() -> None:
    """Bartholdi and Eisenstein: one control point, buses wait half the gap behind them."""
    gaps = np.array([10.0, 30.0, 80.0, 20.0, 40.0])  # to the bus behind, in order of arrival
    lap = gaps.sum()
    arrivals = np.concatenate([[0.0], np.cumsum(gaps[:-1])])
    for _ in range(60):
        order = np.argsort(arrivals)
        arrivals = arrivals[order]
        behind = np.append(np.diff(arrivals), arrivals[0] + lap - arrivals[-1])
        event = seen(TARGET_S, float(behind[0]), stop=0)
        held = hold("self-equalising", event, gain=0.5, every=1)
        arrivals[0] += held + lap
    spread = np.diff(np.sort(arrivals))
    assert spread.std() / spread.mean() < 0.25 * gaps.std() / gaps.mean()


@pytest.mark.parametrize("stop", range(10))
def test_self_equalising_waits_at_control_points_alone(stop: int) -> None:
    held = hold("self-equalising", seen(100, 200, stop=stop), gain=0.1, every=4)
    assert held == (pytest.approx(20.0) if stop % 4 == 0 else 0.0)


@settings(deadline=None, max_examples=40)
@given(st.floats(20, 300), st.floats(20, 300), st.integers(1, 4))
def test_prediction_leaves_as_the_evenest_departures_would(
    ahead_s: float, behind_s: float, buses: int
) -> None:
    """The first of the departures with the least sum of squared headways, found numerically."""
    arrivals = np.array([0.0, behind_s, *(behind_s + TARGET_S * np.arange(1, buses))])
    last = arrivals[-1]

    def squares(departures: np.ndarray) -> float:
        return float((np.diff([-ahead_s, *departures, last]) ** 2).sum())

    best = optimize.minimize(
        squares,
        arrivals[:-1] + 1.0,
        bounds=[(a, last) for a in arrivals[:-1]],
        constraints=[
            {"type": "ineq", "fun": lambda d: np.diff([-ahead_s, *d, last])},
        ],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    held = hold("prediction", seen(ahead_s, behind_s), buses=buses)
    assert held == pytest.approx(min(best.x[0], 60.0), abs=0.2)


def circle_gaps(rule: str, stops: int, **constants: float) -> np.ndarray:
    """Gaps ahead of six buses on a circle of equal stops, one of which was late at first.

    A bus stands a tenth of its gap longer, so that without control gaps grow apart.
    """
    gaps = TARGET_S + np.array([0.0, 40.0, -40.0, 0.0, 0.0, 0.0])
    for _ in range(stops):
        holds = [
            hold(rule, seen(ahead, behind), **constants)
            for ahead, behind in zip(gaps, np.roll(gaps, -1), strict=True)
        ]
        spent = 0.1 * gaps + holds
        gaps = gaps + spent - np.roll(spent, 1)
    return gaps


def test_even_headway_evens_out_a_perturbed_circle() -> None:
    assert np.ptp(circle_gaps("zero", 30)) > 2 * 80.0
    assert np.ptp(circle_gaps("even-headway", 30, share=1.5)) < 80.0 / 10


@settings(deadline=None)
@given(st.floats(1, 300), st.floats(1, 300), st.floats(0.3, 1.0))
def test_even_headway_holds_as_long_as_neither_neighbour_is_wronged(
    ahead_s: float, behind_s: float, share: float
) -> None:
    """Until the gap behind would be the smaller one, or the gap ahead is long enough."""
    held = hold("even-headway", seen(ahead_s, behind_s), share=share)

    def kept(longer_s: float) -> bool:
        ahead, behind = ahead_s + longer_s, behind_s - longer_s
        return ahead <= behind + 1e-9 and ahead <= share * TARGET_S + 1e-9

    assert held == 0.0 or kept(held)
    assert held == 60.0 or not kept(held + 0.01)


@pytest.mark.parametrize("rule", ["forward", "two-way", "prediction", "even-headway"])
def test_a_bus_in_its_place_is_not_held(rule: str) -> None:
    assert hold(rule, seen(TARGET_S, TARGET_S)) == 0.0


@pytest.mark.parametrize("rule", ["forward", "two-way", "prediction", "even-headway"])
def test_a_bus_alone_is_not_held(rule: str) -> None:
    alone = seen(0.0) | {"bus_ahead": 0.0}
    assert hold(rule, alone) == 0.0


@pytest.mark.parametrize("rule", ["prediction", "even-headway"])
def test_a_bus_between_one_other_and_nothing_is_not_held(rule: str) -> None:
    assert hold(rule, seen(0.0, 200.0) | {"bus_ahead": 0.0}) == 0.0 == hold(rule, seen(30.0))


@settings(deadline=None)
@given(events, st.floats(-500, 500), st.sampled_from(sorted(RULES)), st.data())
def test_every_hold_is_within_sixty_seconds_for_any_constants_in_range(
    event: Event, late_s: float, rule: str, data: st.DataObject
) -> None:
    constants = {
        c.name: data.draw(st.floats(c.low, c.high), label=c.name) for c in RULES[rule].constants
    }
    assert 0.0 <= hold(rule, event, late_s, **constants) <= 60.0


@pytest.mark.parametrize("name", [n for n in BUILT_IN if n != "lookahead"])
@pytest.mark.parametrize("chain", ["raw", "candidate"])
def test_a_day_in_the_kernel_is_the_day_decided_batch_by_batch(name: str, chain: str) -> None:
    city = embedded_city("town")
    world, policy = (
        FastWorld(city, calibration_of(city)),
        policy_in(f"{name}+{chain}", city),
    )
    cell = PURPOSES["development"].cells(1)[1]
    assert world.run_day(cell, policy) == run_episode(world, cell, policy)


def test_an_unknown_constant_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="unknown constant 'alpha'; choose 'slack_s' or 'gain'"):
        RULES["forward"].values({"alpha": 0.1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a lot", True])
def test_a_constant_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="constant gain"):
        RULES["forward"].values({"gain": value})  # type: ignore[dict-item]


def test_every_rule_runs_in_sumo() -> None:
    """Those that no other test drives there; each holds, and no hold is beyond the cap."""
    rules = ["myopic", "forward", "two-way", "virtual-schedule", "self-equalising", "prediction",
             "even-headway"]  # fmt: skip
    jobs = [Job(city="town", policy=rule, cell=demo_cell(1)) for rule in rules]
    found = run_days(jobs, "town", 7_200)
    assert {job.policy for job in found} == set(rules)
    for outcome in (answer.outcome for answer in found.values()):
        assert outcome.decisions > 400 and 0.0 < outcome.mean_hold_s <= 60.0
