"""A reserve with the paper's guard is the candidate to the bit; findings say who is helped."""

import json
from pathlib import Path

import numpy as np
import pytest

from door import door
from evenline.city.cells import PURPOSES
from evenline.control.event import RAW_FEATURES, TARGET_BEHIND, TIME
from evenline.experiments.experiment import Arm, Variant, run_arms
from evenline.experiments.measures import Difference
from evenline.rules.chain import CALIBRATE, CHAINS, apply_chain
from evenline.runs.day import run_fleet
from evenline.worlds.fast.world import Fleet
from evenline.worlds.open import open_city
from reproduce.policies import Guard, guarded_holds
from reproduce.sensitivity import Finding, figure, proposed, scenarios, sentences
from small_actors import untrained

HORIZON_S = 7_200
CELLS = PURPOSES["development"].cells(2)
PAPERS = {"candidate": Guard(), "parent": Guard().parent}


def events(count: int) -> np.ndarray:
    """Events in which each term of the guard holds about half of the time."""
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 2, (count, len(RAW_FEATURES))).astype(float)
    at = {name: i for i, name in enumerate(RAW_FEATURES)}
    raw[:, at["time_s"]] = rng.integers(0, HORIZON_S, count)
    raw[:, at["on_board"]] = rng.integers(0, 30, count)
    raw[:, at["capacity"]] = 50 * raw[:, at["capacity"]]
    for name in ("headway_ahead_s", "headway_behind_s", "target_ahead_s"):
        raw[:, at[name]] = rng.integers(0, 900, count)
    return raw


@pytest.mark.parametrize("chain", PAPERS)
def test_the_papers_guard_after_the_calibration_is_the_papers_chain(chain: str) -> None:
    raw = events(20_000)
    proposals = np.random.default_rng(8).uniform(0, 60, len(raw)).round() * (raw[:, 0] > 0)
    holds = apply_chain(CALIBRATE, raw, proposals, HORIZON_S)
    constants = np.array(PAPERS[chain].constants(open_city("town").city))
    guarded_holds(raw, holds, constants)
    assert np.array_equal(holds, apply_chain(CHAINS[chain], raw, proposals, HORIZON_S))
    assert len(np.unique(holds)) > 10


@pytest.mark.parametrize("chain", PAPERS)
def test_days_of_the_papers_guard_are_days_of_the_chain(chain: str) -> None:
    town = Variant(open_city("town"))
    arms = [Arm(town, proposed(PAPERS[chain], town.city, None)), Arm(town, f"zero+{chain}")]
    guarded, chained = run_arms(arms, CELLS)
    assert guarded == chained


def test_days_of_an_actor_behind_the_papers_guard_are_those_behind_its_chain() -> None:
    town, policy, cells = open_city("town"), untrained("candidate"), CELLS[:2]
    fleet = Fleet(town.city, town.fitted(), len(cells))
    run_fleet(fleet, cells, policy)
    times_s = [fleet.outcome(w).generalized_s for w in range(len(cells))]
    arm = Arm(Variant(town), proposed(Guard(), town.city, policy.actor))
    (days,) = run_arms([arm], cells)
    assert [day["generalized_s"] for day in days] == times_s


def test_the_other_reading_guards_only_last_trips() -> None:
    raw = events(20_000)
    raw[:, TIME], calm = 0.6 * HORIZON_S, np.zeros(len(raw))
    guarded_holds(
        raw, calm, np.array(Guard(behind=TARGET_BEHIND).constants(open_city("town").city))
    )
    assert set(np.unique(calm)) == {0.0, 60.0} and (raw[calm > 0, TARGET_BEHIND] == 0).all()


def test_only_the_streets_of_city_have_other_demand() -> None:
    factors = [each.factor for each in scenarios(open_city("town"))]
    assert "demand profile" not in factors and "no bus behind" in factors
    usual = [each for each in scenarios(open_city("city")) if each.usual]
    assert len(usual) == 7 and all(each.guard == Guard() for each in usual)
    assert {each.city().name for each in usual} == {"city"}
    (fewer,) = (each for each in scenarios(open_city("city")) if each.name == "15,090")
    assert (fewer.city().journeys.min_demand <= 1.0).sum() == pytest.approx(15_090, abs=1)


def found(setting: str, low: float, high: float, usual: bool = False) -> Finding:
    middle, level = (
        Difference((low + high) / 2, low, high),
        {"0.75": -1.0, "1.00": low, "1.25": high},
    )
    return Finding("start of the window", setting, 0.1, usual, middle, middle, level, 0.1)


def test_the_sentences_say_where_it_helps_where_it_hurts_and_where_nobody_knows() -> None:
    several = [
        found("0.15", -9, -7, True),
        found("0", -5, -3),
        found("0.3", 2, 4),
        found("0.5", -1, 1),
    ]
    text = " ".join(sentences(several)).replace("\u2212", "-")
    assert "by -8.0 (-9.0 to -7.0) s per passenger" in text
    assert "Of 3 other settings it helps in 1 and hurts in 1; the interval contains 0 in 1." in text
    assert "The best is a window from 0 (-4.0 s), the worst is a window from 0.3 (+3.0 s)." in text
    assert "It hurts with a window from 0.3 (+3.0 s)." in text
    assert "a window from 0.5 at demand 1.25 (+1 s)" in text
    above, below = figure(several, "nowhere").axes
    assert above.get_title() == "start of the window" and below.get_xlabel() == "share of the day"


def test_the_command_writes_a_folder_and_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = door(monkeypatch, capfd, "reproduce.sensitivity")
    asked = ("--city", "town", "--blocks", 2, "--out", "s", "--docs", "page.md")
    assert "As it is, the reserve changes" in run(*asked).done()
    rows = json.loads((tmp_path / "s" / "sensitivity.json").read_text())["findings"]
    first = [row["generalized_s"] for row in rows if row["usual"]]
    assert len(rows) == 19 and all(each == first[0] for each in first), (
        "the usual setting runs once"
    )
    page = (tmp_path / "page.md").read_text()
    assert "`python -m reproduce.sensitivity --city town --policy zero --blocks 2`" in page
    assert "(images/sensitivity-town.png)" in page
    assert (tmp_path / "images" / "sensitivity-town.png").stat().st_size > 10_000
    run("--city", "town", "--policy", "headway", "--out", "t").refused("not an actor")
    run("--city", "town", "--blocks", 1, "--out", "t").refused("at least 2")
