"""A plan says what the paper's says, and what it must not say is refused in one line."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evenline.city.cells import PURPOSES
from evenline.study.plan import find_plan
from evenline.support.errors import InputError
from evenline.trial.plan import read_plan, sign_probability, wins_required
from made import plan_text


def test_the_papers_plan_has_its_1350_jobs_in_30_cells_that_no_trial_has_used() -> None:
    plan = read_plan(find_plan("city-trial"))
    assert (len(plan.methods), len(plan.seeds), plan.jobs) == (9, 5, 1_350)
    assert len(plan.cells()) == 30 and not set(plan.cells()) & set(PURPOSES["trial"].cells())
    assert plan.blocks[0] == (8111, 8211) and plan.blocks[-1] == (8120, 8220)
    assert (plan.claim.completion_margin, plan.claim.level) == ("0.003", "0.025")
    assert plan.claim.required_wins == 9


def test_a_town_trial_is_60_days() -> None:
    assert read_plan(find_plan("town-trial")).jobs == 60


def test_a_seed_has_its_own_source(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(methods='{ better = "runs/a-{seed}", worse = ["one", "two"] }'))
    assert read_plan(path).methods == {"better": ("runs/a-1", "runs/a-2"), "worse": ("one", "two")}


@pytest.mark.parametrize("margin", ['"0.010"', "0.01", "0"])
def test_a_margin_is_text_or_a_number_and_stays_as_it_is_written(
    tmp_path: Path, margin: str
) -> None:
    path = tmp_path / "plan.toml"
    claim = f'{{ candidate = "better", parent = "worse", completion_margin = {margin} }}'
    path.write_text(plan_text(claim=claim))
    assert read_plan(path).claim.completion_margin == margin.strip('"')


def test_a_plan_names_the_world_it_runs_in(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text())
    assert read_plan(path).world == "sumo"
    path.write_text(plan_text(world='"fast"'))
    assert read_plan(path).world == "fast"


def test_the_papers_sign_probabilities() -> None:
    assert f"{float(sign_probability(10, 10)):.7f}" == "0.0009766"
    assert f"{float(sign_probability(9, 10)):.6f}" == "0.010742"
    assert wins_required(10, "0.025") == 9


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_sign_test_is_scipys_binomial_test(case: tuple[int, int]) -> None:
    wins, blocks = case
    expected = binomtest(wins, blocks, 0.5, alternative="greater").pvalue
    assert float(sign_probability(wins, blocks)) == pytest.approx(expected, rel=1e-9)


@given(st.integers(6, 40))
def test_required_wins_are_the_fewest_within_the_level(blocks: int) -> None:
    wins = wins_required(blocks, "0.025")
    assert sign_probability(wins, blocks) <= Fraction("0.025") < sign_probability(wins - 1, blocks)


def claim(more: str = "", parent: str = "worse") -> dict[str, str]:
    return {"claim": f'{{ candidate = "better", parent = "{parent}"{more and f", {more}"} }}'}


def blocks(first: int, count: int) -> dict[str, str]:
    return {"blocks": f"{{ sumo_seed = {first}, demand_seed = 9201, count = {count} }}"}


CONTROL = {"methods": '{ better = "headway", worse = "zero", control = "myopic" }'}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"seeds": "[1, 1]"}, "seeds: [1, 1] names a value twice"),
        (blocks(9101, 5), "even 5 wins do not reach level 0.025"),
        (blocks(2147483640, 10), "SUMO seed 2147483648: must be from 0 to 2147483647"),
        ({"methods": '{ better = ["one"], worse = "zero" }'}, "methods.better: give one source"),
        (claim(parent="best"), "claim: unknown method 'best'; choose '"),
        (claim(parent="better"), "must differ"),
        (claim("required_wins = 5"), "6 blocks at level 0.025 require 6"),
        (claim('ties = "wins"'), "ties can only be 'nonwins'"),
        (claim('direction = "higher"'), "direction can only be 'lower'"),
        (claim('level = "1"'), "level = '1': must be between 0 and 1"),
        (claim('level = "0"'), "level = '0': must be between 0 and 1"),
        (claim('gates = ["luck"]'), "claim: unknown gate 'luck'; choose 'mean direction'"),
        (claim('gates = ["less time than worse"]'), "claim: unknown control 'worse'; choose "),
        (
            CONTROL | claim('robustness = ["less time than control in 7 of 6 blocks"]'),
            "'less time than control in 7 of 6 blocks': the plan has 6 blocks; write 1 to 6",
        ),
        (
            CONTROL | claim('gates = ["less time than control in 0 of 6 blocks"]'),
            "'less time than control in 0 of 6 blocks': the plan has 6 blocks; write 1 to 6",
        ),
        (
            CONTROL | claim('gates = ["less time than control in 5 of 10 blocks"]'),
            "'less time than control in 5 of 10 blocks': the plan has 6 blocks",
        ),
        (
            claim('robustness = ["completeness"], gates = []'),
            "robustness: 'completeness' decides the claim; move it to gates",
        ),
        (claim('gates = ["artifacts", "artifacts"]'), "gate 'artifacts' is named twice"),
        ({"name": "small"}, "not valid TOML"),
        ({"levels": "[inf]"}, "levels[0]: inf is not a finite number"),
        (claim('level = "1/0"'), "claim: level = '1/0': expected a decimal number"),
    ],
)
def test_what_is_wrong_is_said_with_the_files_name(
    tmp_path: Path, changes: dict[str, str], problem: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(**changes))
    with pytest.raises(InputError) as error:
        read_plan(path)
    assert str(error.value).startswith(f"{path}: ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)
