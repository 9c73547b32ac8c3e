"""`city people`: other people for the same streets; what it prints is what it wrote."""

from pathlib import Path

import pytest

from door import Door
from evenline.city.cells import demo_cell
from evenline.city.tables import load_city, network_digest, open_city
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.open import open_city as open_calibrated
from feeds import DATE, EXAMPLE


def test_gravity_is_named_in_the_city_and_its_calibration_stays(
    evenline: Door, tmp_path: Path
) -> None:
    out, town = tmp_path / "new", open_city("town")
    command = ("city", "people", "town", "--demand", "gravity", "--passengers", 400)
    said = evenline(*command, "--out", out).done()
    city = load_city(out)
    assert city.notes == ("demand is synthetic (gravity, 400 passengers)",)
    assert city.notes[0] in said and str(out) in said
    assert (city.journeys.min_demand <= 1).sum() == 400 and len(city.journeys) == 500
    assert network_digest(city) == network_digest(town)
    assert (out / "calibration.json").is_file()
    again = tmp_path / "again"
    evenline(*command, "--out", again, "--seed", 1).done()
    assert (again / "legs.csv").read_bytes() == (out / "legs.csv").read_bytes()
    evenline(*command, "--out", again, "--seed", 2).done()
    assert (again / "legs.csv").read_bytes() != (out / "legs.csv").read_bytes()


def test_those_left_out_are_printed_and_written(evenline: Door, tmp_path: Path) -> None:
    first, last = open_city("town").services[0].stops[0], open_city("town").services[0].stops[-1]
    stops = open_city("town").stops
    rows = [f"600,{stops[first].id},{stops[last].id}", f"600,{stops[first].id},mars"]
    table, lost = tmp_path / "journeys.csv", tmp_path / "lost.csv"
    table.write_text("\n".join(["departure_s,origin,destination", *rows]) + "\n")
    out = ("--out", tmp_path / "new", "--left-out", lost)
    said = evenline("city", "people", "town", "--demand", table, *out).done()
    assert f"left out: 1 from {stops[first].id} to mars: mars is not a stop of the city" in said
    assert "demand leaves out 1 passenger whom no bus can carry" in said
    assert lost.read_text().splitlines()[1].startswith(f"{stops[first].id},mars,0,1,")


def test_a_wrong_table_leaves_no_folder_behind(evenline: Door, tmp_path: Path) -> None:
    table = tmp_path / "od.csv"
    table.write_text("from_s,to_s,origin,destination,passengers\n0,60,a,b,x\n")
    command = ("city", "people", "town", "--demand", table, "--out", tmp_path / "new")
    evenline(*command).refused("od.csv row 2", "passengers 'x'")
    evenline(*command[:4], "gravity", *command[5:]).refused("how many passengers")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("variation", [0.1, 0.25])
def test_people_give_the_same_city_with_the_import_and_after_it(
    evenline: Door, tmp_path: Path, variation: float
) -> None:
    """So many people that they keep buses standing for longer than the least."""
    one, bare, other = (tmp_path / part / "mine" for part in ("one", "bare", "other"))
    wish = ("--demand", "gravity", "--passengers", 4000)
    feed = ("city", "import", "gtfs", EXAMPLE, "--routes", "10,11", "--date", DATE)
    evenline(*feed, "--variation", variation, *wish, "--out", one).done()
    evenline(*feed, "--variation", variation, "--out", bare).done()
    evenline("city", "people", bare, *wish, "--out", other).done()
    times = "calibration.json"
    assert (bare / times).read_bytes() != (one / times).read_bytes(), "people need time at the door"
    files = sorted(path.name for path in one.iterdir())
    assert files == sorted(path.name for path in other.iterdir())
    for name in files:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    days = []
    for folder in (one, other):
        world = open_calibrated(str(folder)).fast_world()
        world.run_day(demo_cell(1), BEHAVIOURS["zero"])
        days.append(world.outcome())
    assert days[0] == days[1]


def test_the_city_has_the_name_of_its_folder_or_the_one_it_is_given(
    evenline: Door, tmp_path: Path
) -> None:
    command = ("city", "people", "town", "--demand", "gravity", "--passengers", 4)
    evenline(*command, "--out", tmp_path / "other").done()
    assert load_city(tmp_path / "other").name == "other"
    evenline(*command, "--out", tmp_path / "third", "--name", "Town.2").done()
    assert load_city(tmp_path / "third").name == "Town.2"
