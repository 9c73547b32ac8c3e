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


def test_the_papers_plan_has_its_1350_jobs_in_its_30_cells() -> None:
    plan = read_plan(find_plan("city-trial"))
    assert (len(plan.methods), len(plan.seeds), plan.jobs) == (9, 5, 1_350)
    assert plan.cells() == PURPOSES["trial"].cells()
    assert plan.blocks[0] == (8101, 8201) and plan.blocks[-1] == (8110, 8210)
    assert (plan.claim.completion_margin, plan.claim.level) == ("0.003", "0.025")
    assert plan.claim.required_wins == 9


def test_a_town_trial_is_120_days() -> None:
    assert read_plan(find_plan("town-trial")).jobs == 120


def test_a_seed_has_its_own_source(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(methods='{ better = "runs/a-{seed}", worse = ["one", "two"] }'))
    assert read_plan(path).methods == {"better": ("runs/a-1", "runs/a-2"), "worse": ("one", "two")}


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nmae": '"x"'}, "'nmae' is not known"),
        ({"seeds": "[1, 1]"}, "none twice"),
        ({"levels": "[]"}, "levels: there must be at least one"),
        ({"levels": "[-1.0]"}, "demand -1.0: must be a number of at least 0"),
        ({"blocks": "{ sumo_seed = 9101, count = 6 }"}, "'demand_seed' is missing"),
        (
            {"blocks": "{ sumo_seed = 9101, demand_seed = 9201, count = 5 }"},
            "not even 5 wins reach level 0.025",
        ),
        ({"methods": '{ better = ["one"], worse = "zero" }'}, "better needs one source"),
        ({"claim": '{ candidate = "better", parent = "best" }'}, "'best' is not among the methods"),
        ({"claim": '{ candidate = "better", parent = "better" }'}, "must differ"),
        (
            {"claim": '{ candidate = "better", parent = "worse", required_wins = 5 }'},
            "6 blocks at level 0.025 require 6",
        ),
        (
            {"claim": '{ candidate = "better", parent = "worse", ties = "wins" }'},
            "ties can only be 'nonwins'",
        ),
        (
            {"claim": '{ candidate = "better", parent = "worse", gates = ["luck"] }'},
            "gate 'luck' is not known",
        ),
        ({"claim": '{ candidate = "better" }'}, "claim: 'parent' is missing"),
        ({"limits": "{ tries = 0 }"}, "must be positive"),
        ({"name": '"a/b"'}, "use letters"),
        ({"name": "small"}, "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_with_the_files_name(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(**changes))
    with pytest.raises(InputError) as error:
        read_plan(path)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
