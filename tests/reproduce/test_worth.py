"""Each setting changes what it says; the page has every number, and the clairvoyant knows most."""

import json
from pathlib import Path

import numpy as np
import pytest

from door import door
from evenline.city.cells import PURPOSES
from evenline.city.demand import RATE_BIN_S, realise
from evenline.experiments.clairvoyant import (
    FINE_S,
    Operator,
    day_running_times,
    day_tables,
)
from evenline.policies.lookahead import RATE, Lookahead
from evenline.worlds.open import open_city
from reproduce import policies as module
from reproduce.knowledge import CLAIRVOYANT
from reproduce.policies import (
    LATE_S,
    UNSEEN_SHARE,
    counted_once,
    flat,
    from_leaders,
    late,
    level_too_low,
    unseen,
)

OPENED = open_city("town")
TOWN = Operator(OPENED)
CELL = PURPOSES["development"].cells(1)[2]


@pytest.mark.parametrize("bin_s", [RATE_BIN_S, FINE_S])
def test_the_people_of_a_day_are_all_counted_at_their_time(bin_s: int) -> None:
    people = realise(TOWN.opened.city, CELL)
    rate = day_tables(TOWN, CELL, bin_s)[RATE]
    counted = np.bincount(people.departure_s // bin_s, minlength=rate.shape[1])
    assert rate.sum(0) * bin_s == pytest.approx(counted)


def test_wrong_and_stale_rates_are_what_they_say() -> None:
    usual = TOWN.tables[RATE]
    wrong, stale = level_too_low.made_for(OPENED, CELL), flat.made_for(OPENED, CELL)
    assert isinstance(wrong, Lookahead) and isinstance(stale, Lookahead)
    assert wrong.forecast.rate == pytest.approx(0.8 * 1.25 * usual)
    assert stale.forecast.rate.sum(1) == pytest.approx(usual.sum(1))
    assert (stale.forecast.rate == stale.forecast.rate[:, :1]).all()


def test_a_count_of_one_day_has_the_usual_people_with_chance() -> None:
    usual, once = TOWN.tables[RATE], counted_once.made_for(OPENED, CELL)
    assert isinstance(once, Lookahead)
    people, spread = once.forecast.rate.sum() * RATE_BIN_S, (usual.sum() * RATE_BIN_S) ** 0.5
    assert abs(people - usual.sum() * RATE_BIN_S) < 4 * spread
    assert (once.forecast.rate != usual).mean() > 0.2
    again = counted_once.made_for(OPENED, CELL)
    assert isinstance(again, Lookahead)
    np.testing.assert_array_equal(once.forecast.rate, again.forecast.rate)


def test_an_unseen_bus_is_not_held_and_a_late_report_is_not_known() -> None:
    """With no event late, the days are those of the look-ahead itself."""
    world, plain = TOWN.world(), TOWN.world().run_day(CELL, TOWN.look({}))
    lost = world.run_day(CELL, unseen.made_for(OPENED, CELL))
    assert lost == TOWN.world().run_day(CELL, unseen.made_for(OPENED, CELL)) != plain
    assert lost.holds_zero > plain.holds_zero + 0.5 * UNSEEN_SHARE * (
        plain.decisions - plain.holds_zero
    )
    assert world.run_day(CELL, late.made_for(OPENED, CELL)) != plain


def test_reports_that_are_not_late_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LATE_S > 0
    monkeypatch.setattr(module, "LATE_S", 0)
    cell = PURPOSES["development"].cells(1)[0]
    plain = TOWN.world().run_day(cell, TOWN.look({}))
    assert TOWN.world().run_day(cell, late.made_for(OPENED, cell)).generalized_s == pytest.approx(
        plain.generalized_s, rel=0.003
    )


def test_running_times_of_leaders_count_by_the_trust_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = TOWN.world().run_day(CELL, TOWN.look({}))
    assert TOWN.world().run_day(CELL, from_leaders.made_for(OPENED, CELL)) != plain
    monkeypatch.setattr(module, "LEADER_TRUST", 0.0)
    assert TOWN.world().run_day(CELL, from_leaders.made_for(OPENED, CELL)) == plain


def test_the_running_times_of_a_day_are_those_of_its_trips() -> None:
    world = TOWN.world(keep_visits=True)
    world.run_day(CELL, TOWN.look({}))
    run_s = day_running_times(TOWN, world.visits)
    arrived = {(v.trip, v.position): v.arrival_s for v in world.visits}
    pairs = [
        (run_s[v.trip, v.position], arrived[v.trip, v.position + 1] - v.departure_s)
        for v in world.visits
        if (v.trip, v.position + 1) in arrived
    ]
    assert len(pairs) > 300 and all(known == needed for known, needed in pairs)
    assert (run_s[:, 0] > 0).all(), "a trip that did not run has the usual times"


def test_the_command_writes_a_page_with_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = door(monkeypatch, capfd, "reproduce.worth")
    printed = run("--city", "town", "--blocks", 1, "--docs", "page.md", "--workers", 1).done()
    result = json.loads((tmp_path / "results" / "worth-town" / "worth.json").read_text())
    found = {each["name"]: each for each in result["settings"]}
    page = (tmp_path / "page.md").read_text()
    assert all(f"| {name} | " in page and name in printed for name in found)
    assert (tmp_path / "images" / "page-town.png").is_file()
    best = min(found.values(), key=lambda each: each["generalized_s"])
    assert best["name"] == CLAIRVOYANT and best["share"] == pytest.approx(1.0)
    assert 0.4 < found["lookahead"]["share"] < 1.0
    assert found["0 s"]["generalized_s"] == found["lookahead"]["generalized_s"]
    run("--city", "town", "--blocks", 0).refused("0 blocks: choose 1 to 500")
    run("--city", "town", "--workers", 0).refused("workers 0: must be at least 1")
