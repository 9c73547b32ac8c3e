"""The document keeps its prose, and the tables say mean and range."""

from dataclasses import replace
from pathlib import Path

import pytest

from door import Door, door
from evenline.city.model import City, Clock
from evenline.support.errors import InputError
from reproduce import regime
from reproduce.day import Day
from reproduce.regime import (
    Check,
    beside_the_paper,
    insert,
    intended_regime,
    regime_tables,
)


@pytest.fixture
def measure_regime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Door:
    """The command, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return door(monkeypatch, capfd, "reproduce.regime")


DAY = Day(
    generalized_s=2300.0,
    waiting_s=480.0,
    riding_s=1340.0,
    completion=0.96,
    unfinished=600,
    after_last_bus=450,
    denied_boardings=30,
    denied_by_hour=(10, 20),
    headway_cv=0.4,
    bunched_share=0.05,
    mean_load=20.0,
    full_share=0.01,
    trip_duration_s=3000.0,
    zero_token_share=0.3,
)


def test_tables_go_between_their_marks_and_leave_the_rest_alone(tmp_path: Path) -> None:
    document = tmp_path / "cities.md"
    document.write_text("before\n<!-- begin x -->\nold\n<!-- end x -->\nafter\n")
    insert(document, "x", "new")
    insert(document, "x", "newer")
    wanted = "before\n<!-- begin x -->\nnewer\n<!-- end x -->\nafter\n"
    assert document.read_text() == wanted


def test_a_document_without_marks_gets_them_at_the_end(tmp_path: Path) -> None:
    document = tmp_path / "new" / "cities.md"
    insert(document, "x", "text")
    insert(document, "y", "more")
    assert document.read_text().index("text") < document.read_text().index("more")


def test_half_a_pair_of_marks_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "cities.md"
    document.write_text("<!-- begin x -->\n")
    with pytest.raises(InputError, match=r"cities.md contains only one of the marks"):
        insert(document, "x", "new")
    assert document.read_text() == "<!-- begin x -->\n"


def test_tables_give_mean_and_range_and_the_growth_of_the_unfinished(town: City) -> None:
    city = replace(town, clock=Clock("2026-03-02", 30_600, "UTC"))
    low, high = DAY, replace(DAY, generalized_s=2400.0, unfinished=1000, denied_by_hour=(20, 20))
    more = [replace(low, unfinished=1200), replace(high, unfinished=1500)]
    text = "\n".join(regime_tables(city, {1.0: [low, high], 1.25: more}))
    assert "| 2,350 (2,300 to 2,400) | 2,350 (2,300 to 2,400) |" in text
    assert "| Unfinished passengers | 800 (600 to 1,000) | 1,350 (1,200 to 1,500) |" in text
    assert "| of these: left behind by full buses, or missed a change | 350 (150 to 550) |" in text
    assert "unfinished at 1.00: 1.75 (1.50 to 2.00)" in text
    assert "| 8:30 | 15.0 | 15.0 |" in text


def test_the_regime_of_city_is_checked_and_shown_beside_the_paper() -> None:
    """The mean completion of the levels is 0.9617 first, then 0.9400."""
    low, high = replace(DAY, completion=0.957), replace(DAY, completion=0.968)
    days = {0.75: [high], 1.0: [DAY], 1.25: [low]}
    good = intended_regime(days)
    assert [check.holds for check in good] == [True, True, True]
    assert good[1].said == "generalized time at demand 1.00, s: 2,300, as intended (2,250 to 2,500)"
    poor = replace(DAY, completion=0.9, generalized_s=2_501.0)
    bad = intended_regime({0.75: [DAY], 1.0: [poor], 1.25: [DAY]})
    assert [check.holds for check in bad] == [False, False, False]
    assert "0.9400, NOT as intended (0.9550 to 0.9700)" in bad[2].said
    text = "\n".join(beside_the_paper(days, good))
    assert "| Completion, share of departed passengers | 0.9617 | 0.96185 | 0.96650 |" in text
    assert "2,300 | 2,484.86 | 2,392.73 |" in text
    assert "- completion at demand 1.00: 0.9600, as intended" in text


def test_a_regime_that_is_not_the_intended_one_is_an_exit_code(
    measure_regime: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [Check("completion", 0.9, 0.955, 0.97, ".3f")]
    monkeypatch.setattr(regime, "write_regime", lambda *given: (Path("cities.md"), checks))
    ended = measure_regime()
    assert ended.code == 1
    assert ended.out == "completion: 0.900, NOT as intended (0.955 to 0.970)\ncities.md\n"


def test_the_regime_is_measured_once_and_written_between_its_marks(
    measure_regime: Door, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    document = tmp_path / "docs" / "cities.md"
    document.write_text("Prose.\n")
    assert measure_regime("--city", "town", "--seeds", 1).code == 0
    first, made = document.read_text(), tmp_path / "results" / "regime-town"
    assert first.startswith("Prose.\n") and "Generalized passenger time" in first
    for picture in ("map", "demand", "time-space"):
        assert (tmp_path / "docs" / "images" / f"town-{picture}.png").stat().st_size > 10_000
    episodes = {path: path.stat().st_mtime_ns for path in made.rglob("*.parquet")}
    assert len(episodes) == 4, "three levels without holding, one day of the headway rule"
    lost = min(episodes)
    lost.unlink()
    assert measure_regime("--city", "town", "--seeds", 1).code == 0
    rerun = [path for path, at in episodes.items() if path.stat().st_mtime_ns != at]
    assert rerun == [lost], "only what is missing runs again"
    assert document.read_text() == first
