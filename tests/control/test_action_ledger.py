"""The action's two equations and the ledger's integral, each against its definition."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenline.control.action import (
    MAX_HOLD_S,
    NO_HOLD,
    action_of,
    check_action,
    check_holds,
    hold_of,
)
from evenline.control.ledger import Ledger
from evenline.control.outcome import Outcome, outcome_from
from evenline.support.compiled import compiled
from evenline.support.errors import InputError

actions = st.floats(-1.0, 1.0)
holds = st.floats(0.0, 60.0)
counts = st.integers(0, 20_000)


def test_the_ends_are_exact() -> None:
    assert (hold_of(-1.0), hold_of(0.0), hold_of(1.0)) == (0.0, 30.0, 60.0)
    assert (action_of(0.0), action_of(30.0), action_of(60.0)) == (-1.0, 0.0, 1.0)
    assert (NO_HOLD, MAX_HOLD_S) == (-1.0, 60.0)


@settings(deadline=None)
@given(actions)
def test_an_action_is_a_hold_by_the_papers_equation(action: float) -> None:
    assert hold_of(action) == pytest.approx(30.0 * action + 30.0, abs=1e-12)
    assert 0.0 <= hold_of(action) <= 60.0
    assert (hold_of(action) == 0.0) == (action == -1.0), "only -1 is no hold"


@settings(deadline=None)
@given(actions)
def test_an_action_comes_back_from_its_hold(action: float) -> None:
    assert action_of(hold_of(action)) == pytest.approx(action, abs=4e-16)


@settings(deadline=None)
@given(holds)
def test_a_hold_comes_back_from_its_action(hold: float) -> None:
    assert -1.0 <= action_of(hold) <= 1.0
    assert hold_of(action_of(hold)) == pytest.approx(hold, abs=1e-14)


@compiled
def both(value: float) -> tuple[float, float]:
    return hold_of(value), action_of(value)


def test_arrays_and_compiled_code_convert_to_the_same_bits() -> None:
    """Halving is exact, so that (a + 1) / 2 * 60 and (a + 1) * 30 are one number, too."""
    values = np.random.Generator(np.random.PCG64(1)).uniform(-1.0, 60.0, 1000)
    by_one = [(hold_of(value), action_of(value)) for value in values.tolist()]
    assert [both(value) for value in values] == by_one
    assert np.array_equal(np.stack([hold_of(values), action_of(values)], axis=1), by_one)
    assert np.array_equal(hold_of(values), (values + 1.0) * 30.0)
    assert np.array_equal(action_of(values), values / 30.0 - 1.0)


@settings(deadline=None)
@given(actions)
@example(-1.0)
@example(1.0)
def test_an_action_in_range_passes_as_it_is(action: float) -> None:
    assert check_action(action, "7X.03", "s012") == action


beyond = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).filter(lambda x: not -1.0 <= x <= 1.0),
    st.sampled_from([math.nan, math.inf, -math.inf, math.nextafter(1, 2), math.nextafter(-1, -2)]),
)


@settings(deadline=None)
@given(beyond)
def test_anything_else_is_refused_with_bus_stop_and_value(value: float) -> None:
    with pytest.raises(InputError) as caught:
        check_action(value, "7X.03", "s012")
    assert str(caught.value) == f"bus 7X.03 at stop s012: action {value} is not from -1 to 1"


@settings(deadline=None)
@given(st.lists(holds, max_size=16))
@example([0.0, 60.0])
def test_holds_in_range_pass_as_they_are(values: list[float]) -> None:
    places = [(f"bus{i}", f"stop{i}") for i in range(len(values))]
    assert check_holds(values, len(places), places.__getitem__) == values


@settings(deadline=None)
@given(
    st.lists(holds, min_size=1, max_size=16),
    st.data(),
    st.floats(allow_nan=True, allow_infinity=True).filter(lambda x: not 0.0 <= x <= 60.0),
)
def test_one_wrong_hold_is_named_among_the_right_ones(
    values: list[float], data: st.DataObject, wrong: float
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    values[at] = wrong
    places = [(f"bus{i}", f"stop{i}") for i in range(len(values))]
    with pytest.raises(InputError) as caught:
        check_holds(values, len(places), places.__getitem__)
    assert (
        str(caught.value) == f"bus bus{at} at stop stop{at}: hold {wrong} s is not from 0 to 60 s"
    )


@settings(deadline=None)
@given(st.integers(0, 16), st.integers(0, 16))
def test_one_hold_is_due_for_each_bus(given_holds: int, buses: int) -> None:
    places = [("b", "s")] * buses
    if given_holds == buses:
        assert check_holds([1.0] * given_holds, buses, places.__getitem__) == [1.0] * buses
        return
    with pytest.raises(InputError, match=f"{given_holds} holds for a batch of {buses} buses"):
        check_holds([1.0] * given_holds, buses, places.__getitem__)


@pytest.mark.parametrize(
    ("given_holds", "said"),
    [
        (None, "None"),
        (3.0, "3.0"),
        ("abc", "'abc'"),
        (["a", "b"], "['a', 'b']"),
        (["5", "5"], "['5', '5']"),
        ([None, 0.0], "[None, 0.0]"),
        ([[1.0], [2.0]], "[[1.0], [2.0]]"),
        ([10**400, 0.0], f"[{'1' + '0' * 58}..."),
    ],
)
def test_what_is_no_list_of_numbers_is_refused_and_shown(given_holds: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        check_holds(given_holds, 2, lambda _: ("b", "s"))
    assert str(caught.value) == f"got {said}; a policy returns one hold in seconds per bus"


# A day: people waiting and riding over so many seconds, and whether a token is charged then.
spans = st.lists(st.tuples(counts, counts, st.integers(0, 300), st.booleans()), max_size=40)


@settings(deadline=None)
@given(spans)
def test_the_ledger_is_the_integral_second_by_second(
    day: list[tuple[int, int, int, bool]],
) -> None:
    ledger, expected = Ledger(), 0
    for waiting, riding, seconds, _ in day:
        ledger.advance(waiting, riding, seconds)
        for _ in range(seconds):
            expected += 2 * waiting + riding
    assert ledger.cost == expected
    assert ledger.waiting_s == sum(waiting * seconds for waiting, _, seconds, _ in day)
    assert ledger.riding_s == sum(riding * seconds for _, riding, seconds, _ in day)


@settings(deadline=None)
@given(spans)
def test_every_second_is_charged_once_and_never_twice(
    day: list[tuple[int, int, int, bool]],
) -> None:
    """What a charge takes is what came since the one before; a second charge takes nothing."""
    ledger, since, charges = Ledger(), 0, []
    for waiting, riding, seconds, charge in day:
        ledger.advance(waiting, riding, seconds)
        since += (2 * waiting + riding) * seconds
        if charge:
            charges.append(ledger.charge())
            assert charges[-1] == since
            assert ledger.charge() == 0
            since = 0
    assert sum(charges) == ledger.charged == ledger.cost - since


def outcome(**changes: int | float) -> Outcome:
    figures: dict[str, int | float] = {
        "departed": 200,
        "completed": 150,
        "waiting_s": 1_000,
        "riding_s": 3_000,
        "pre_control_cost": 500,
        "token_cost": 4_500,
        "decisions": 40,
        "zero_duration_tokens": 4,
        "holds_zero": 30,
        "hold_total_s": 100.0,
        "denied_boardings": 3,
        "trips_completed": 8,
        "trip_duration_total_s": 7_200,
    }
    return Outcome(**(figures | changes))  # type: ignore[arg-type]


def test_the_endpoints_follow_from_the_counts() -> None:
    day = outcome()
    assert (day.cost, day.generalized_s) == (2 * 1_000 + 3_000, 25.0)
    assert (day.completion, day.unfinished) == (0.75, 50)
    assert (day.mean_hold_s, day.zero_hold_share, day.trip_duration_s) == (2.5, 0.75, 900.0)
    assert (day.waiting_each_s, day.riding_each_s, day.zero_duration_share) == (5.0, 15.0, 0.1)
    assert outcome_from(day.as_dict()) == day
    for name in ("cost", "generalized_s", "completion", "unfinished", "departed", "teleports"):
        assert day.as_dict()[name] == getattr(day, name)


def test_a_day_on_which_nothing_happened_still_has_endpoints() -> None:
    day = outcome(departed=0, completed=0, decisions=0, holds_zero=0, trips_completed=0)
    assert (day.generalized_s, day.completion, day.unfinished) == (0.0, 1.0, 0)
    assert (day.mean_hold_s, day.zero_hold_share, day.trip_duration_s) == (0.0, 1.0, 0.0)
    assert (day.waiting_each_s, day.riding_each_s, day.zero_duration_share) == (0.0, 0.0, 0.0)
