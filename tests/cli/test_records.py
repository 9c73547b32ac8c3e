"""The commands for records of real buses, on the smallest records there are."""

import json
from pathlib import Path

import pytest

from door import Door, door
from tides_folder import VISITS, write_tides


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Door:
    return door(monkeypatch, capfd)


def test_a_check_prints_a_table_or_only_json(run: Door, tmp_path: Path) -> None:
    write_tides(tmp_path)
    assert "6, of which 6 can be used" in run("records", "check", tmp_path).done()
    found = json.loads(run("records", "check", tmp_path, "--json").done())
    assert found["days"] == ["2026-03-02"] and found["visits"] == 6


def test_a_city_of_records_says_what_it_was_fitted_to(run: Door, tmp_path: Path) -> None:
    records, city = write_tides(tmp_path / "records"), tmp_path / "tiny"
    made = run("city", "import", "records", records, "--hours", "7-9", "--out", city).done()
    assert "1 services, 2 trips, 3 stops" in made and made.strip().endswith(str(city))
    note = "fitted to records of records, 2026-03-02; not yet judged"
    assert note in made
    document = tmp_path / "page.md"
    shown = run("records", "show", "--city", city, "--docs", document).done()
    assert note in shown and "boarding_s_per_passenger" in shown
    assert "| opening_s | " in document.read_text()
    audit = ("audit", "records", "--city", city, "--records", records, "--days", "2026-03-02")
    run(*audit).refused("2026-03-02", "the city was fitted to it")
    run("city", "import", "records", records, "--routes", "9", "--out", city).refused("'9'")
    run("records", "show", "--city", "town").refused("has no records.json")


def test_malformed_records_end_with_one_line(run: Door, tmp_path: Path) -> None:
    write_tides(tmp_path / "records", stop_visits=VISITS.replace("08:02:00", "8 h", 1))
    out = tmp_path / "city"
    line = run("city", "import", "records", tmp_path / "records", "--out", out).refused("row 3")
    assert "actual_arrival_time" in line and not out.exists()
