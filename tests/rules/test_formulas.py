"""Each rule against its own definition: the equation, the minimum, the statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenline.control.event import RAW_FEATURES, Batch
from evenline.rules.formulas import event_uniform
from evenline.rules.policy import BEHAVIOURS, RulePolicy, set_rule
from events import Event, batch_of, events, many_events


def hold(rule: RulePolicy, event: Event) -> float:
    (value,) = rule(batch_of(event))
    return value


def test_there_are_eight_behaviours_of_the_papers_four_kinds() -> None:
    kinds = [policy.rule.name for policy in BEHAVIOURS.values()]
    assert sorted(kinds.count(kind) for kind in set(kinds)) == [1, 1, 2, 4]
    assert len({(policy.rule.name, policy.values) for policy in BEHAVIOURS.values()}) == 8
    assert all(name == rule.name for name, rule in BEHAVIOURS.items())


@settings(deadline=None)
@given(events, st.sampled_from(sorted(BEHAVIOURS)))
def test_every_hold_is_within_sixty_seconds(event: Event, name: str) -> None:
    assert 0.0 <= hold(BEHAVIOURS[name], event) <= 60.0


@settings(deadline=None)
@given(events, st.sampled_from([0.2, 0.4, 0.7, 1.0]))
def test_headway_balance_is_the_papers_equation_times_its_gain(event: Event, gain: float) -> None:
    signal = 0.0
    if event["bus_behind"]:
        signal += (event["headway_behind_s"] - event["target_behind_s"]) / 2
    if event["bus_ahead"]:
        signal -= (event["headway_ahead_s"] - event["target_ahead_s"]) / 2
    expected = min(max(gain * signal, 0.0), 60.0)
    assert hold(BEHAVIOURS[f"headway-{gain}"], event) == pytest.approx(expected, abs=1e-9)


def local_cost(event: Event, h: np.ndarray | float) -> np.ndarray | float:
    """Riding passengers wait for the hold; those at the stops ahead and behind for the gaps."""
    ahead = event["bus_ahead"] * (event["headway_ahead_s"] + h) ** 2
    behind = event["bus_behind"] * (event["headway_behind_s"] - h) ** 2
    return event["on_board"] * h + 2 * event["arrival_rate_per_s"] * (ahead + behind) / 2


GRID = np.linspace(0.0, 60.0, 60_001)


@settings(deadline=None)
@given(events)
def test_the_myopic_hold_minimises_the_local_cost_on_a_fine_grid(event: Event) -> None:
    """No grid point is better by more than rounding, and a flat cost is not held for."""
    mine = hold(BEHAVIOURS["myopic"], event)
    costs = local_cost(event, GRID)
    best = float(np.min(costs))
    assert local_cost(event, mine) <= best + 1e-9 * max(1.0, abs(best))
    if event["arrival_rate_per_s"] > 0 and event["bus_ahead"] + event["bus_behind"]:
        assert abs(mine - GRID[int(np.argmin(costs))]) <= 1e-3
    else:
        assert mine == 0.0


@pytest.mark.parametrize(
    ("name", "share", "longest"), [("random-rare", 0.10, 60.0), ("random-often", 0.30, 30.0)]
)
def test_a_random_hurdle_holds_its_share_of_buses_for_uniform_times(
    name: str, share: float, longest: float
) -> None:
    count = 200_000
    holds = np.array(BEHAVIOURS[name](many_events(count)))
    held = holds[holds > 0]
    assert stats.binomtest(len(held), count, share).pvalue > 1e-3
    assert stats.kstest(held, stats.uniform(0, longest).cdf).pvalue > 1e-3
    assert held.min() > 0.0 and 0.999 * longest < held.max() <= longest


@pytest.mark.parametrize("feature", ["service", "stop", "time_s"])
def test_neighbouring_events_are_held_independently(feature: str) -> None:
    """The chance that a bus is held does not depend on whether its neighbour was."""
    batch = many_events(100_000)
    raw = batch.raw.copy()
    raw[:, RAW_FEATURES.index(feature)] += 1
    rule = BEHAVIOURS["random-often"]
    here = np.array(rule(batch)) > 0
    there = np.array(rule(Batch(0, batch.trips, raw))) > 0
    table = [
        [np.sum(here & there), np.sum(here & ~there)],
        [np.sum(~here & there), np.sum(~here & ~there)],
    ]
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("salt", [100, 101, 300, 301])
def test_the_numbers_behind_the_hurdle_are_uniform_in_every_part_of_a_day(salt: int) -> None:
    raw = many_events(20_000).raw
    numbers = np.array([event_uniform(row, salt) for row in raw])
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    assert stats.kstest(numbers, "uniform").pvalue > 1e-3
    half = numbers[raw[:, RAW_FEATURES.index("time_s")] < 12_000]
    assert stats.kstest(half, "uniform").pvalue > 1e-3


@settings(deadline=None)
@given(events, events)
def test_a_random_hold_is_a_pure_function_of_service_stop_and_time(
    event: Event, other: Event
) -> None:
    """The same in any company, at any time of asking, and whatever the buses around do."""
    same = other | {key: event[key] for key in ("service", "stop", "time_s")}
    for name in ("random-rare", "random-often"):
        rule = BEHAVIOURS[name]
        alone = hold(rule, event)
        assert hold(rule, event) == alone == hold(rule, same)
        assert rule(batch_of(other, event, other))[1] == alone


@pytest.mark.parametrize(("share", "every"), [(0.0, False), (1.0, True)])
def test_a_hurdle_of_zero_or_one_holds_nobody_or_everybody(share: float, every: bool) -> None:
    holds = np.array(set_rule("extreme", "random", share=share, longest_s=45.0)(many_events(2_000)))
    assert ((holds > 0) == every).all()


@settings(deadline=None)
@given(st.lists(events, min_size=1, max_size=16), st.sampled_from(sorted(BEHAVIOURS)))
def test_a_batch_is_held_as_its_buses_are_one_by_one(rows: list[Event], name: str) -> None:
    rule = BEHAVIOURS[name]
    assert list(rule(batch_of(*rows))) == [hold(rule, row) for row in rows]


@settings(deadline=None)
@given(events, st.sampled_from(sorted(BEHAVIOURS)))
def test_a_rule_leaves_its_event_as_it_was(event: Event, name: str) -> None:
    batch = batch_of(event)
    before = batch.raw.copy()
    BEHAVIOURS[name](batch)
    assert np.array_equal(batch.raw, before)
