"""A study of an imported city runs from nothing to its page, every day of it in SUMO."""

from pathlib import Path

import pytest

from door import Door
from evenline.city.tables import load_city
from evenline.support.files import read_json
from feeds import DATE
from feeds import EXAMPLE as FEED

PLAN = """
name = "mine"
city = "mine"

[calibration]
blocks = 1

[methods]
candidate = "headway"
parent = "zero"

[trial]
levels = [1.0]
blocks = { sumo_seed = 8151, demand_seed = 8251, count = 6 }

[claim]
candidate = "candidate"
parent = "parent"
completion_margin = "0.003"
level = "0.025"
required_wins = 6

[limits]
time_s = 60
memory_gib = 4
tries = 3
"""


def test_a_feed_becomes_a_verdict_and_a_page(
    tmp_path: Path,
    evenline: Door,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evenline.experiments.streets.TRIPS", 8)
    evenline(
        "city", "import", "gtfs", FEED, "--routes", 11, "--date", DATE, "--hours", "6-7",
        "--demand", "gravity", "--passengers", 40, "--out", "mine",
    ).done()  # fmt: skip
    Path("mine.toml").write_text(PLAN)
    evenline("study", "run", "mine.toml").done()
    study = Path("results/study-mine")
    assert load_city(study / "city").services[0].name == "11 to Station"
    assert read_json(study / "trial" / "analysis.json")["claim"]
    assert not read_json(study / "calibration" / "calibration.json").get("note")  # it is measured
    page = (study / "report.html").read_text()
    assert load_city(study / "city").slowness is not None
    assert load_city(Path("mine")).slowness is None
    slowed = "n SUMO, buses are slowed from stop to stop"
    for words in (slowed, "Mill", "emand is synthetic", "uses are assumed to take 50 passengers"):
        assert words in page
