"""The fidelity audits: fixed limits, episodes and never rows, intervals as scipy finds them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenline.city.demand import Cell
from evenline.control.outcome import Outcome
from evenline.worlds import fidelity
from evenline.worlds.fidelity import Line, accepted, audit, largest_gaps

LEVELS = (0.75, 1.0, 1.25)
BLOCKS = 10
CELLS = [Cell(2101 + block, 2201 + block, level) for block in range(BLOCKS) for level in LEVELS]
Sample = dict[Cell, Outcome]
World = dict[str, Sample]


def episode(cell: Cell, rng: np.random.Generator, spread: float = 0.02) -> Outcome:
    """A plausible day. Riding is four times waiting, so that the one hardly moves the other."""
    people = round(1000 * cell.demand)

    def about(value: float) -> int:
        return round(value * rng.normal(1.0, spread))

    waiting, riding = about(200 * people), about(800 * people)
    return Outcome(
        departed=people,
        completed=round(0.97 * people),
        waiting_s=waiting,
        riding_s=riding,
        pre_control_cost=0,
        token_cost=2 * waiting + riding,
        decisions=about(5000),
        zero_duration_tokens=about(400),
        holds_zero=4000,
        hold_total_s=float(about(10_000)),
        denied_boardings=0,
        trips_completed=100,
        trip_duration_total_s=about(300_000),
    )


def sample(seed: int, spread: float = 0.02) -> Sample:
    rng = np.random.Generator(np.random.PCG64(seed))
    return {cell: episode(cell, rng, spread) for cell in CELLS}


def changed(episodes: Sample, change: Callable[[Outcome], Outcome]) -> Sample:
    return {cell: change(outcome) for cell, outcome in episodes.items()}


def scaled(outcome: Outcome, name: str, factor: float) -> Outcome:
    value = getattr(outcome, name) * factor
    return replace(outcome, **{name: value if name == "hold_total_s" else round(value)})


def failed(lines: Sequence[Line]) -> set[tuple[str, str, str, str]]:
    return {(li.audit, li.policy, li.level, li.quantity) for li in lines if not li.passed}


@pytest.fixture(scope="module")
def world() -> World:
    """Zero hold, and a policy that shifts waiting into riding."""
    zero = sample(1)

    def held(outcome: Outcome) -> Outcome:
        shifted = scaled(scaled(outcome, "waiting_s", 0.9), "riding_s", 1.05)
        return replace(shifted, holds_zero=2000, hold_total_s=30_000.0)

    return {"zero": zero, "headway": changed(zero, held)}


# -- the limits -----------------------------------------------------------------------------------


def test_the_limits_are_the_papers() -> None:
    paper = {
        "passengers": 0.03,
        "decisions": 0.05,
        "generalized time": 0.15,
        "waiting time": 0.15,
        "in-vehicle time": 0.10,
        "trip duration": 0.05,
        "completion": 0.03,
    }
    ours = dict(fidelity.ZERO_LIMITS)
    ours.pop("simultaneous share")  # audited beside the paper's
    assert ours == paper
    assert fidelity.RESPONSE_LIMITS == {
        "completion": 0.03,
        "generalized time": 0.10,
        "waiting time": 0.10,
        "in-vehicle time": 0.10,
        "decisions": 0.05,
        "trip duration": 0.05,
    }
    assert fidelity.HOLD_LIMITS == {"mean hold": 0.35, "zero-hold share": 0.10}
    assert (fidelity.RESAMPLES, fidelity.CONFIDENCE) == (10_000, 0.95)


def test_the_goals_are_harder_than_the_limits() -> None:
    assert fidelity.GOALS == {
        "generalized time": 0.0461,
        "waiting time": 0.0875,
        "in-vehicle time": 0.0166,
        "completion": 0.0043,
        "trip duration": 0.0104,
    }
    assert all(goal < fidelity.ZERO_LIMITS[name] for name, goal in fidelity.GOALS.items())


def test_every_quantity_is_audited_at_every_level_with_its_limit(world: World) -> None:
    lines = audit(world, world)
    levels = ["0.75", "1.00", "1.25"]
    expected = (
        {("zero", "zero", at, *item) for at in levels for item in fidelity.ZERO_LIMITS.items()}
        | {
            ("response", "headway", at, *item)
            for at in levels
            for item in fidelity.RESPONSE_LIMITS.items()
        }
        | {("hold", "headway", "all", *item) for item in fidelity.HOLD_LIMITS.items()}
    )
    found = [(li.audit, li.policy, li.level, li.quantity, li.limit) for li in lines]
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(
    st.floats(0.001, 1),
    *[st.floats(-2, 2)] * 2,
)
def test_a_line_passes_when_its_whole_interval_lies_inside_the_limit(
    limit: float, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    line = Line("zero", "zero", "1.00", "waiting time", 1, 1, 0, low, high, limit)
    inside = all(abs(end) <= limit for end in (low, high))
    assert line.passed == accepted([line]) == line.as_dict()["passed"] == inside


def test_a_quantity_that_is_no_number_does_not_pass() -> None:
    line = Line("hold", "x", "all", "mean hold", 0, 1, math.nan, math.nan, math.nan, 0.35)
    assert not line.passed


# -- worlds alike, worlds apart -------------------------------------------------------------------


def test_identical_samples_pass_without_a_gap(world: World) -> None:
    lines = audit(world, world)
    assert accepted(lines)
    assert all(line.gap == 0 and line.sumo == line.fast for line in lines)
    assert all(line.low <= 0 <= line.high for line in lines)
    assert set(largest_gaps(lines).values()) == {0.0}


def test_the_audit_is_the_same_every_time(world: World) -> None:
    other = {"zero": sample(2), "headway": world["headway"]}
    assert audit(world, other) == audit(world, other)


@pytest.mark.parametrize("in_fast_s", [0.0, 30_000.0])
def test_a_policy_that_never_holds_in_sumo_must_not_hold_in_the_fast_world(
    world: World, in_fast_s: float
) -> None:
    def holding(hold_s: float) -> World:
        idle = changed(world["zero"], lambda outcome: replace(outcome, hold_total_s=hold_s))
        return {"zero": world["zero"], "idle": idle}

    lines = audit(holding(0.0), holding(in_fast_s))
    outside = {("hold", "idle", "all", "mean hold")} if in_fast_s else set()
    assert failed(lines) == outside
    assert all(math.isfinite(value) for li in lines for value in (li.gap, li.low, li.high))


def test_days_without_passengers_are_audited_too(world: World) -> None:
    nobody = {"departed": 0, "completed": 0, "waiting_s": 0, "riding_s": 0, "token_cost": 0}
    empty = {
        policy: changed(episodes, lambda outcome: replace(outcome, **nobody))
        for policy, episodes in world.items()
    }
    assert accepted(audit(empty, empty))


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("waiting_s", "waiting time"),
        ("riding_s", "in-vehicle time"),
        ("decisions", "decisions"),
        ("trip_duration_total_s", "trip duration"),
        ("completed", "completion"),
    ],
)
@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_a_world_that_is_a_fifth_off_fails_in_the_line_of_that_quantity(
    world: World, name: str, quantity: str, factor: float
) -> None:
    off = {
        policy: changed(episodes, lambda outcome: scaled(outcome, name, factor))
        for policy, episodes in world.items()
    }
    lines = audit(world, off)
    assert not accepted(lines)
    moved_too = {"generalized time"} if name == "riding_s" else set()
    in_zero = {name for audited, _, _, name in failed(lines) if audited == "zero"}
    assert quantity in in_zero <= {quantity} | moved_too
    of_quantity = [li for li in lines if (li.audit, li.quantity) == ("zero", quantity)]
    assert len(of_quantity) == len(LEVELS)
    for line in of_quantity:
        expected = 0.97 * (factor - 1) if quantity == "completion" else factor - 1
        assert line.gap == pytest.approx(expected, abs=0.002)
    gaps = largest_gaps(lines)
    assert gaps[quantity] == max(abs(line.gap) for line in of_quantity)
    assert gaps["passengers"] == 0


def test_a_world_that_is_off_at_one_level_fails_at_that_level(world: World) -> None:
    off = {
        cell: scaled(outcome, "waiting_s", 1.2 if cell.demand == 0.75 else 1.0)
        for cell, outcome in world["zero"].items()
    }
    found = failed(audit({"zero": world["zero"]}, {"zero": off}))
    assert found == {("zero", "zero", "0.75", "waiting time")}


def test_more_or_fewer_people_are_a_failure_of_passengers(world: World) -> None:
    def crowded(outcome: Outcome) -> Outcome:
        names = ("departed", "completed", "waiting_s", "riding_s")
        for name in names:
            outcome = scaled(outcome, name, 1.2)
        return outcome

    found = failed(audit({"zero": world["zero"]}, {"zero": changed(world["zero"], crowded)}))
    assert found == {("zero", "zero", level, "passengers") for level in ("0.75", "1.00", "1.25")}


@pytest.mark.parametrize(("factor", "passes"), [(1.25, True), (1.45, False), (0.6, False)])
def test_a_policy_that_holds_longer_in_one_world_fails_in_mean_hold(
    world: World, factor: float, passes: bool
) -> None:
    longer = changed(world["headway"], lambda outcome: scaled(outcome, "hold_total_s", factor))
    lines = audit(world, world | {"headway": longer})
    assert failed(lines) == (set() if passes else {("hold", "headway", "all", "mean hold")})


def test_a_policy_that_holds_more_often_in_one_world_fails_in_the_share_of_zeros(
    world: World,
) -> None:
    rarer = changed(world["headway"], lambda outcome: replace(outcome, holds_zero=1300))
    lines = audit(world, world | {"headway": rarer})
    assert failed(lines) == {("hold", "headway", "all", "zero-hold share")}


def test_a_policy_that_does_nothing_in_one_world_fails_in_its_response(world: World) -> None:
    """Waiting falls by a tenth of itself in the one world and by a quarter in the other."""
    stronger = changed(world["zero"], lambda outcome: scaled(outcome, "waiting_s", 0.75))
    lines = [li for li in audit(world, world | {"headway": stronger}) if li.audit == "response"]
    assert {quantity for _, _, _, quantity in failed(lines)} == {"waiting time"}
    for line in lines:
        if line.quantity == "waiting time":
            assert (line.sumo, line.fast) == pytest.approx((-0.1, -0.25), abs=1e-4)
            assert line.gap == pytest.approx(-0.15, abs=1e-4)


# -- episodes -------------------------------------------------------------------------------------


def test_episodes_count_alike_however_many_people_they_have() -> None:
    """A day of 100 people who wait 100 s and one of 900 who wait 300 s: 200 s, not 280 s."""
    cells = CELLS[:4:3]
    rng = np.random.Generator(np.random.PCG64(0))
    days = {
        cell: replace(episode(cell, rng), departed=people, waiting_s=people * wait)
        for cell, people, wait in zip(cells, (100, 900), (100, 300), strict=True)
    }
    lines = audit({"zero": days}, {"zero": days})
    (line,) = [line for line in lines if line.quantity == "waiting time"]
    assert line.sumo == line.fast == 200


def test_a_response_is_measured_within_each_cell() -> None:
    """Days that differ by half, each with exactly a tenth of the mean day's waiting saved."""
    rng = np.random.Generator(np.random.PCG64(3))
    zero = sample(4, spread=0.0)
    zero = {
        cell: scaled(outcome, "waiting_s", rng.uniform(0.5, 1.5)) for cell, outcome in zero.items()
    }
    saved = {
        cell: replace(outcome, waiting_s=outcome.waiting_s - 20 * outcome.departed)
        for cell, outcome in zero.items()
    }
    world = {"zero": zero, "headway": saved}
    for line in audit(world, world):
        if (line.audit, line.quantity) == ("response", "waiting time"):
            of_level = [
                o.waiting_s / o.departed for c, o in zero.items() if c.demand == float(line.level)
            ]
            assert line.sumo == pytest.approx(-20 / np.mean(of_level))
            assert (line.low, line.high) == pytest.approx((0, 0), abs=1e-9)


def test_the_unit_of_a_response_is_the_day_without_holds_in_sumo() -> None:
    zero, model = sample(5, 0.0), changed(sample(5, 0.0), lambda o: scaled(o, "waiting_s", 2.0))
    effect = {
        name: changed(episodes, lambda o: replace(o, waiting_s=o.waiting_s - 10 * o.departed))
        for name, episodes in (("sumo", zero), ("fast", model))
    }
    lines = audit({"zero": zero, "x": effect["sumo"]}, {"zero": model, "x": effect["fast"]})
    for line in lines:
        if (line.audit, line.quantity) == ("response", "waiting time"):
            assert line.sumo == line.fast == pytest.approx(-10 / 200)


# -- intervals ------------------------------------------------------------------------------------


def scipy_interval(
    samples: Sequence[np.ndarray], statistic: Callable[..., np.ndarray]
) -> tuple[float, float]:
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=10_000,
        confidence_level=0.95,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(7),
    )
    return found.confidence_interval.low, found.confidence_interval.high


def values(episodes: Sample, level: float, of: Callable[[Outcome], float]) -> np.ndarray:
    return np.array([of(outcome) for cell, outcome in episodes.items() if cell.demand == level])


def assert_interval(line: Line, low: float, high: float) -> None:
    """Two bootstraps of 10,000 draws agree to a few hundredths of the width."""
    assert (line.low, line.high) == pytest.approx((low, high), abs=0.05 * (high - low))


@pytest.mark.parametrize("level", LEVELS)
def test_the_zero_audits_intervals_are_those_of_scipy(level: float) -> None:
    sumo, fast = sample(11, 0.1), sample(12, 0.05)

    def gap(model: np.ndarray, target: np.ndarray, axis: int = -1) -> np.ndarray:
        return model.mean(axis=axis) / target.mean(axis=axis) - 1

    def difference(model: np.ndarray, target: np.ndarray, axis: int = -1) -> np.ndarray:
        return model.mean(axis=axis) - target.mean(axis=axis)

    expected = {
        "waiting time": (gap, lambda o: o.waiting_s / o.departed),
        "generalized time": (gap, lambda o: (2 * o.waiting_s + o.riding_s) / o.departed),
        "trip duration": (gap, lambda o: o.trip_duration_total_s / o.trips_completed),
        "decisions": (gap, lambda o: o.decisions),
        "simultaneous share": (difference, lambda o: o.zero_duration_tokens / o.decisions),
    }
    lines = {
        line.quantity: line
        for line in audit({"zero": sumo}, {"zero": fast})
        if line.level == f"{level:.2f}"
    }
    for name, (statistic, of) in expected.items():
        samples = values(fast, level, of), values(sumo, level, of)
        assert lines[name].gap == pytest.approx(float(statistic(*samples)))
        assert_interval(lines[name], *scipy_interval(samples, statistic))


def test_the_response_audits_intervals_are_those_of_scipy() -> None:
    sumo = {"zero": sample(21, 0.05), "x": sample(22, 0.05)}
    fast = {"zero": sample(23, 0.05), "x": sample(24, 0.05)}

    def response(world: World) -> np.ndarray:
        of = [values(world[p], 1.25, lambda o: o.riding_s / o.departed) for p in ("x", "zero")]
        return of[0] - of[1]

    unit = values(sumo["zero"], 1.25, lambda o: o.riding_s / o.departed).mean()
    samples = response(fast) / unit, response(sumo) / unit
    (line,) = [
        line
        for line in audit(sumo, fast)
        if (line.audit, line.level, line.quantity) == ("response", "1.25", "in-vehicle time")
    ]
    assert line.gap == pytest.approx(samples[0].mean() - samples[1].mean())
    assert_interval(
        line,
        *scipy_interval(samples, lambda a, b, axis=-1: a.mean(axis=axis) - b.mean(axis=axis)),
    )


def test_the_hold_audits_intervals_are_those_of_scipy() -> None:
    """Episodes are drawn within each level: six samples, three in each world."""
    sumo = {"zero": sample(31), "x": sample(32, 0.2)}
    fast = {"zero": sample(33), "x": sample(34, 0.1)}
    samples = [
        values(world["x"], level, lambda o: o.hold_total_s / o.decisions)
        for world in (fast, sumo)
        for level in LEVELS
    ]

    def gap(*six: np.ndarray, axis: int = -1) -> np.ndarray:
        means = [one.mean(axis=axis) for one in six]
        return sum(means[:3]) / sum(means[3:]) - 1

    (line,) = [line for line in audit(sumo, fast) if line.quantity == "mean hold"]
    assert line.gap == pytest.approx(float(gap(*samples)))
    assert_interval(line, *scipy_interval(samples, gap))


def test_the_two_worlds_are_drawn_separately() -> None:
    """Identical samples still have an interval: nothing is paired between the worlds."""
    same = {"zero": sample(41, 0.1)}
    (line,) = [
        line
        for line in audit(same, same)
        if (line.level, line.quantity) == ("1.00", "waiting time")
    ]
    spread = values(same["zero"], 1.0, lambda o: o.waiting_s / o.departed)
    standard_error = math.sqrt(2 / BLOCKS) * spread.std() / spread.mean()
    assert line.high - line.low == pytest.approx(2 * 1.96 * standard_error, rel=0.15)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.0, 0.3))
def test_a_gap_lies_inside_its_interval(seed: int, spread: float) -> None:
    lines = audit({"zero": sample(seed, spread)}, {"zero": sample(seed + 1, spread)})
    for line in lines:
        slack = 1e-9 + 0.1 * (line.high - line.low)
        assert line.low - slack <= line.gap <= line.high + slack
