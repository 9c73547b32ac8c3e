"""The analysis gives the paper's verdicts on the paper's numbers, and is exact where it says so.

The paper publishes means by method, demand level and training seed, and the signs of all blocks.
Days are made of these: an effect by level plus one by seed plus one by block that adds up to 0.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import wilcoxon

from evenline.trial.analyse import (
    ENDPOINTS,
    Figures,
    Findings,
    Key,
    analyse,
    by_block,
    differences,
    sign_test,
)
from evenline.trial.intervals import bca, hodges_lehmann, signed_rank_tail
from evenline.trial.plan import GATES, Claim
from reproduce.paper import paper

LEVELS = (0.75, 1.00, 1.25)
SEEDS = (6201, 6202, 6203, 6204, 6205)
BLOCKS = [(8101 + i, 8201 + i) for i in range(10)]
CLAIM = Claim(
    candidate="reserve",
    parent="parent",
    completion_margin="0.003",
    level="0.025",
    required_wins=9,
    gates=GATES,
)
SOUND = {"completeness": True, "artifacts": True, "stability": True}

# The paper's tables: means by method, differences by level and by seed.
MEANS, BY_LEVEL, BY_SEED = (
    {name: tuple(row[end] for end in ENDPOINTS) for name, row in paper()[table]["rows"].items()}
    for table in ("methods", "levels", "seeds")
)
BY_LEVEL = {float(level): row for level, row in BY_LEVEL.items()}
BY_SEED = {int(seed): row for seed, row in BY_SEED.items()}
DIGITS = (2, 5, 2)
# The tables are rounded: these are values inside their rounding that agree with one another.
PARENT = (2484.8555, 0.961846, 655.42)
LEVEL_ROUNDING = (-0.002, 0.0000045, 0.0)


def exact(value: float) -> Fraction:
    return Fraction(str(value))


def published() -> dict[Key, dict[str, Fraction]]:
    """1,350 days whose means are the paper's."""
    days = {}
    for column, name in enumerate(ENDPOINTS):
        seed_mean = sum(exact(row[column]) for row in BY_SEED.values()) / 5
        for number, block in enumerate(BLOCKS):
            # Blocks differ without changing a mean, and by less than would change a sign.
            sway = Fraction(2 * number - 9, 10) * abs(seed_mean)
            for seed in SEEDS:
                for level in LEVELS:
                    effect = exact(BY_LEVEL[level][column]) + exact(LEVEL_ROUNDING[column])
                    effect += exact(BY_SEED[seed][column]) - seed_mean + sway
                    for method, means in MEANS.items():
                        key = Key(method, seed, block, level)
                        value = exact(PARENT[column])
                        if method == "reserve":
                            value += effect
                        elif method != "parent":
                            value = exact(means[column]) + sway / 2
                        days.setdefault(key, {})[name] = value
    return days


@pytest.fixture(scope="module")
def verdict() -> Findings:
    return analyse(published(), CLAIM, SOUND)


def test_the_papers_verdict_follows_from_its_numbers(verdict: Findings) -> None:
    for name in ("primary", "completion"):
        test = getattr(verdict.claim, name)
        assert (test.wins, test.blocks, test.passed) == (10, 10, True)
        assert f"{test.p:.7f}" == "0.0009766"
    assert all(d > 0 for d in verdict.claim.completion.block_differences)
    assert verdict.claim.intersection_union_passed and verdict.confirmed
    assert verdict.gates == dict.fromkeys(GATES, True)


def rounded(row: Figures) -> tuple[float, ...]:
    return tuple(
        round(getattr(row, name), digits) for name, digits in zip(ENDPOINTS, DIGITS, strict=True)
    )


def test_the_papers_tables_come_back(verdict: Findings) -> None:
    assert {method: rounded(row) for method, row in verdict.means.items()} == MEANS
    assert rounded(verdict.difference) == (-92.12, 0.00466, -77.22)
    assert {float(k): rounded(row) for k, row in verdict.by_level.items()} == BY_LEVEL
    assert {int(k): rounded(row) for k, row in verdict.by_seed.items()} == BY_SEED
    assert round(100 * verdict.difference.generalized_s / PARENT[0], 2) == -3.71
    assert round(100 * verdict.difference.unfinished / PARENT[2], 2) == -11.78


def test_controls_are_favourable_in_all_blocks_and_labelled_descriptive(
    verdict: Findings,
) -> None:
    assert set(verdict.controls) == MEANS.keys() - {"reserve", "parent"}
    for row in verdict.controls.values():
        assert row.favourable_blocks == row.blocks == 10
        assert "not part of the registered claim" in row.note


def with_block(number: int, name: str, change: Fraction) -> dict[Key, dict[str, Fraction]]:
    """The published days, one block's candidate changed."""
    days = published()
    for key, row in days.items():
        if key.method == "reserve" and key.block == BLOCKS[number]:
            row[name] += change
    return days


def test_nine_of_ten_pass_and_eight_do_not() -> None:
    days = with_block(0, "generalized_s", Fraction(1_000))
    nine = analyse(days, CLAIM, SOUND).claim.primary
    assert (nine.wins, f"{nine.p:.6f}", nine.passed) == (9, "0.010742", True)
    for key, row in days.items():
        if key.method == "reserve" and key.block == BLOCKS[1]:
            row["generalized_s"] += 1_000
    eight = analyse(days, CLAIM, SOUND)
    assert (eight.claim.primary.wins, eight.claim.primary.passed) == (8, False)
    assert eight.claim.completion.passed
    assert not eight.claim.intersection_union_passed and not eight.confirmed


def test_the_completion_margin_is_exact() -> None:
    days = published()
    mean = by_block(differences(days, "reserve", "parent"), "completion")[4]
    at_margin = with_block(4, "completion", -mean - exact(0.003))
    inside = with_block(4, "completion", -mean - exact(0.003) + Fraction(1, 10**12))
    assert analyse(at_margin, CLAIM, SOUND).claim.completion.wins == 9, "a tie is none"
    assert analyse(inside, CLAIM, SOUND).claim.completion.wins == 10


def test_a_tie_of_many_unequal_days_is_a_nonwin() -> None:
    days = published()
    mean = by_block(differences(days, "reserve", "parent"), "generalized_s")[2]
    primary = analyse(with_block(2, "generalized_s", -mean), CLAIM, SOUND).claim.primary
    assert (primary.wins, primary.block_differences[2]) == (9, 0.0)


@pytest.mark.parametrize("gate", [*SOUND])
def test_one_gate_alone_denies_the_claim(gate: str) -> None:
    findings = analyse(published(), CLAIM, SOUND | {gate: False})
    assert findings.claim.intersection_union_passed and not findings.confirmed
    without = replace(CLAIM, gates=tuple(name for name in GATES if name != gate))
    assert analyse(published(), without, SOUND | {gate: False}).confirmed


@pytest.mark.parametrize(("lost", "passed"), [(1, True), (2, False)])
def test_a_gate_asks_for_less_time_than_a_control_in_as_many_blocks(
    lost: int, passed: bool
) -> None:
    days = published()
    for key, row in days.items():
        if key.method == "hold" and key.block in BLOCKS[:lost]:
            row["generalized_s"] -= 500  # better than the candidate there
    gates = (*GATES, "less time than hold", "less time than raw")
    findings = analyse(days, replace(CLAIM, gates=gates), SOUND)
    assert findings.controls["hold"].favourable_blocks == 10 - lost
    assert findings.gates["less time than hold"] is passed and findings.gates["less time than raw"]
    assert findings.claim.intersection_union_passed and findings.confirmed is passed
    assert analyse(days, CLAIM, SOUND).confirmed, "without the gate, a control decides nothing"


@pytest.mark.parametrize("asked", [8, 9, 10])
@pytest.mark.parametrize("part", ["gates", "robustness"])
def test_a_gate_may_ask_for_a_number_of_blocks_and_decides_only_among_the_gates(
    asked: int, part: str
) -> None:
    days = published()
    for key, row in days.items():
        if key.method == "hold" and key.block == BLOCKS[4]:
            row["generalized_s"] -= 500  # better than the candidate there
    gate = f"less time than hold in {asked} of 10 blocks"
    claim = replace(CLAIM, **{part: (*getattr(CLAIM, part), gate)})
    findings = analyse(days, claim, SOUND)
    assert getattr(findings, part)[gate] is (asked < 10)
    assert findings.claim.intersection_union_passed
    assert findings.confirmed is (asked < 10 or part == "robustness")


def test_one_demand_level_in_the_wrong_direction_denies_the_claim() -> None:
    days = published()
    for key, row in days.items():
        if key.method == "reserve" and key.level == 0.75:
            row["generalized_s"] += 45
    findings = analyse(days, CLAIM, SOUND)
    assert findings.claim.primary.wins >= 9 and findings.gates["mean direction"]
    assert not findings.gates["demand direction"] and not findings.confirmed


def test_a_mean_in_the_wrong_direction_denies_the_claim() -> None:
    findings = analyse(with_block(0, "generalized_s", Fraction(10_000)), CLAIM, SOUND)
    assert findings.claim.primary.passed
    assert not findings.gates["mean direction"] and not findings.confirmed


@given(st.lists(st.booleans(), min_size=10, max_size=10))
def test_only_the_number_of_wins_counts(wins: list[bool]) -> None:
    assert sign_test(wins, CLAIM) == sign_test(sorted(wins), CLAIM)
    assert sign_test(wins, CLAIM).passed == (sum(wins) >= 9)


# -- beyond the claim -----------------------------------------------------------------------------

distinct = st.lists(st.integers(-500, 500), min_size=6, max_size=12, unique_by=abs).filter(
    lambda values: 0 not in values
)


@settings(deadline=None, max_examples=60)
@given(distinct)
def test_the_interval_holds_what_the_exact_signed_rank_test_does_not_reject(
    values: list[int],
) -> None:
    interval = hodges_lehmann(values)
    level = 1 - interval.confidence
    assert 0.95 <= interval.confidence < 1
    for theta, inside in (
        (interval.low + 0.123, True),
        (interval.high - 0.123, True),
        (interval.low - 0.123, False),
        (interval.high + 0.123, False),
    ):
        shifted = np.array(values) - theta
        if len(set(np.abs(shifted))) < len(shifted):
            continue  # SciPy's exact test is for distinct sizes
        p = wilcoxon(shifted, method="exact").pvalue
        if interval.low + 0.3 < interval.high:
            assert (p > level + 1e-12) == inside


def test_the_estimate_of_a_symmetric_sample_is_its_centre() -> None:
    assert hodges_lehmann([-3.0, -1.0, 1.0, 3.0, 5.0, -5.0]).estimate == 0.0


def test_ten_blocks_leave_out_eight_sums_at_each_end() -> None:
    """The tables of the signed-rank test: n = 10, two-sided 5 %: the critical value is 8."""
    assert float(signed_rank_tail(10, 8)) == pytest.approx(0.0244140625)
    assert float(signed_rank_tail(10, 9)) == pytest.approx(0.0322265625)
    interval = hodges_lehmann(list(range(1, 11)))
    assert interval.confidence == pytest.approx(1 - 2 * 0.0244140625)


def test_the_bootstrap_is_the_same_whenever_it_is_computed_and_none_where_blocks_agree() -> None:
    values = [-92.0, -80.5, -101.2, -60.0, -75.0, -110.0, -99.0, -88.0, -91.0, -85.0]
    first = bca(values)
    assert first == bca(values) and first is not None
    assert first.low < first.estimate < first.high < 0
    assert bca([-1.0] * 10) is None
