"""Schedules: the paper's numbers, and the table's order of mechanisms."""

from dataclasses import fields, replace
from itertools import pairwise

import pytest

from evenline.learn.lanes import rates_at
from evenline.learn.lineage import Lane, trunks
from evenline.learn.schedule import (
    FLAT,
    LEARNERS,
    Budget,
    Learner,
    Ramp,
    check_schedule,
    named_learners,
    scaled,
)
from evenline.support.errors import InputError


def test_the_final_profile_follows_the_papers_schedule() -> None:
    final = LEARNERS["v14"]
    assert final.rate(10_000) == 0.0, "frozen through 10,000 events"
    assert final.rate(10_001) == pytest.approx(0.1, abs=1e-3)
    assert final.rate(12_500) == pytest.approx(0.55)
    assert final.rate(15_000) == 1.0
    assert final.rate(20_000) == pytest.approx(0.625)
    assert final.rate(25_000) == pytest.approx(0.25)
    assert final.proximal == 5e-5
    assert Budget().updates == 70_000


def test_the_temperature_of_the_final_profile_resumes_at_its_full_rate() -> None:
    lane = [Lane(LEARNERS["v14"], 1)]
    assert rates_at(lane, 10_000).temperature[0] == 0.0
    assert rates_at(lane, 10_001).temperature[0] == 1.0


def test_each_stabilised_learner_is_the_one_before_plus_one_mechanism() -> None:
    order = [LEARNERS[name] for name in ("base", "v10", "v11", "v12", "v13", "v14")]
    changed = [
        {
            field.name
            for field in fields(Learner)
            if getattr(a, field.name) != getattr(b, field.name)
        }
        - {"name", "title"}
        for a, b in pairwise(order)
    ]
    assert changed == [{"actor_from"}, {"temperature_from"}, {"ramp"}, {"proximal"}, {"taper"}]


def test_there_are_eight_learners_of_the_paper() -> None:
    assert [learner.name for learner in named_learners("all")] == list(LEARNERS)
    assert len(LEARNERS) == 8
    assert not LEARNERS["sac"].replay and not LEARNERS["iql"].continues


def test_learners_share_a_trunk_exactly_as_long_as_their_rates_agree() -> None:
    lanes = [Lane(LEARNERS[n], seed) for n in ("base", "v10", "v11", "v12", "v13", "v14", "sac")
             for seed in (1, 2)]  # fmt: skip
    parents = trunks(lanes, 10_000)
    named = {lane.name: lanes[parent].name for lane, parent in zip(lanes, parents, strict=True)}
    assert named["v14-2"] == named["v13-2"] == named["v12-2"] == named["v11-2"] == "v11-2"
    assert named["v10-1"] == "v10-1" and named["base-1"] == "base-1" and named["sac-1"] == "sac-1"
    assert len(set(trunks(lanes, 12_000))) == len(lanes), "by then everyone goes another way"


def test_a_shorter_budget_keeps_proportions() -> None:
    short = scaled(LEARNERS["v14"], Budget(100, 500, 2_500))
    assert (short.actor_from, short.ramp.first, short.ramp.last) == (1_000, 1_000, 1_500)
    assert (short.taper.first, short.taper.last, short.anchor) == (1_500, 2_500, 1_000)
    assert scaled(LEARNERS["base"], Budget(100, 500, 2_500)).taper == FLAT


@pytest.mark.parametrize(
    ("learner", "budget", "says"),
    [
        (replace(LEARNERS["v12"], ramp=Ramp(9, 9, 0, 1)), Budget(), "ramp ends at 9, before it"),
        (replace(LEARNERS["v14"], taper=Ramp(9, 3, 1, 0)), Budget(), "taper ends at 3, before it"),
        (LEARNERS["base"], Budget(10, 900, 100), "900 warm-up events of 100"),
        (replace(LEARNERS["v13"], anchor=20_000), Budget(), "anchor at event 20000 is after"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(
    learner: Learner, budget: Budget, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        check_schedule(learner, budget)


def test_an_unknown_learner_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="'v99'; choose 'iql', 'base'"):
        named_learners("v14,v99")
