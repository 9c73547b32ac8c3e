"""A SUMO scenario through the door: imported, checked, compared with SUMO, and refused."""

from pathlib import Path

import pytest

from door import Door, door
from evenline.city.demand import Cell
from evenline.city.tables import load_city
from scenarios import written
from small_cities import streets


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Door:
    return door(monkeypatch, capfd)


def test_a_scenario_becomes_a_city_that_agrees_with_sumo(run: Door, tmp_path: Path) -> None:
    config = written(streets(1, 3, 120, 900), Cell(7, 8, 1.0), tmp_path / "scenario")
    out = tmp_path / "mine"
    said = run("city", "import", "sumo", config, "--out", out).done()
    assert "1 lines: S00" in said and str(out) in said
    assert load_city(out).name == "mine"
    assert "in order" in " ".join(run("city", "check", out).done().split()), "wrapped or not"
    agreed = run("city", "check", out, "--scenario", config)
    assert agreed.code == 0 and "differences" in agreed.out


def test_the_import_and_the_check_name_services_without_a_headway(
    run: Door, tmp_path: Path
) -> None:
    config = written(streets(2, 1, 120, 900), Cell(7, 8, 1.0), tmp_path / "scenario")
    words = "2 of 2 services with a single trip, so without a headway that holding could keep: S0"
    assert words in run("city", "import", "sumo", config, "--out", tmp_path / "mine").done()
    assert f"warning: {words}" in run("city", "check", tmp_path / "mine").done()


def test_what_is_no_scenario_is_refused_and_leaves_nothing(run: Door, tmp_path: Path) -> None:
    out, config = tmp_path / "mine", tmp_path / "day.sumocfg"
    run("city", "import", "sumo", config, "--out", out).refused("no such file")
    config.write_text('<configuration><net-file value="../net.xml"/></configuration>')
    run("city", "import", "sumo", config, "--out", out).refused("lies outside the folder")
    assert not out.exists()


def test_only_a_scenario_has_an_exact_day(run: Door) -> None:
    run("simulate", "--city", "town", "--exact").refused("town is not a SUMO scenario")
