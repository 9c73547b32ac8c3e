"""A SUMO scenario through the door: imported, checked, compared with SUMO, and refused."""

from pathlib import Path

from door import Door
from evenline.city.demand import Cell
from evenline.city.tables import load_city
from scenarios import written
from small_cities import streets


def test_a_scenario_becomes_a_city_that_agrees_with_sumo(evenline: Door, tmp_path: Path) -> None:
    config = written(streets(1, 3, 120, 900), Cell(7, 8, 1.0), tmp_path / "scenario")
    out = tmp_path / "mine"
    said = evenline("city", "import", "sumo", config, "--out", out).done()
    assert "1 lines: S00" in said and str(out) in said
    assert load_city(out).name == "mine"
    assert "in order" in " ".join(evenline("city", "check", out).done().split()), "wrapped or not"
    agreed = evenline("city", "check", out, "--scenario", config)
    assert agreed.code == 0 and "differences" in agreed.out


def test_the_import_and_the_check_name_services_without_a_headway(
    evenline: Door, tmp_path: Path
) -> None:
    config = written(streets(2, 1, 120, 900), Cell(7, 8, 1.0), tmp_path / "scenario")
    words = "2 of 2 services with a single trip, so without a headway that holding could keep: S0"
    assert words in evenline("city", "import", "sumo", config, "--out", tmp_path / "mine").done()
    assert f"warning: {words}" in evenline("city", "check", tmp_path / "mine").done()


def test_what_is_no_scenario_is_refused_and_leaves_nothing(evenline: Door, tmp_path: Path) -> None:
    out, config = tmp_path / "mine", tmp_path / "day.sumocfg"
    evenline("city", "import", "sumo", config, "--out", out).refused("no such file")
    config.write_text('<configuration><net-file value="../net.xml"/></configuration>')
    evenline("city", "import", "sumo", config, "--out", out).refused("lies outside the folder")
    assert not out.exists()


def test_only_a_scenario_has_an_exact_day(evenline: Door) -> None:
    evenline("simulate", "--city", "town", "--exact").refused("town is not a SUMO scenario")
