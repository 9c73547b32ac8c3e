"""`evenline city import`: a feed or a format of one's own becomes a city that commands accept."""

import json
import re
import zipfile
from pathlib import Path

import pytest

from door import Door
from evenline.city.tables import load_city
from evenline.experiments.importing import import_own
from evenline.support.errors import InputError
from evenline.worlds.open import open_city
from feeds import DATE, EXAMPLE, Tables, small_feed, write_feed
from small_maps import EXAMPLE as MAP
from small_maps import example_map


def gtfs(feed: Path, out: Path, *more: object, routes: str = "10,11") -> tuple[object, ...]:
    return ("city", "import", "gtfs", feed, "--routes", routes, "--date", DATE, "--out", out, *more)


def test_a_feed_with_demand_becomes_a_city_that_runs(evenline: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    said = evenline(*gtfs(EXAMPLE, mine, "--demand", "gravity", "--passengers", 300)).done()
    assert "left out: 10, direction 0, 4 stops from Station to Lake: 3 trips" in said
    opened = open_city(str(mine))
    assert opened.name == "mine" and opened.calibration is not None
    assert len(opened.notes("fast")) == 6
    out = tmp_path / "day"
    said = evenline("simulate", "--city", mine, "--world", "fast", "--out", out).done()
    for note in opened.notes("fast"):
        assert f"note: {note}" in said
    told = json.loads((out / "outcome.json").read_text())
    assert tuple(told["notes"]) == opened.notes("fast") and told["outcome"]["departed"] == 300
    said = evenline(
        "compare", "--city", mine, "--policies", "zero,headway", "--blocks", 1,
        "--out", tmp_path / "compared",
    ).done()  # fmt: skip
    assert "note: demand is synthetic (gravity, 300 passengers)" in said


def test_a_feed_on_a_map_has_its_streets(evenline: Door, tmp_path: Path) -> None:
    pytest.importorskip("osmium", reason="maps of OpenStreetMap need evenline[import]")
    mine = tmp_path / "mine"
    said = evenline(*gtfs(EXAMPLE, mine, "--roads", MAP)).done()
    for service in ("10.0", "10.1", "11.0"):
        assert f"{service}: " in said
    city = load_city(mine)
    assert city.carried is not None
    ways = {service.id: [road.split("#")[0] for road in service.roads] for service in city.services}
    assert set(ways["10.0"]) == {"10"}  # each direction on its own one-way street
    assert set(ways["10.1"]) == {"11"}
    assert set(ways["11.0"]) == {"12", "11"}
    assert evenline("city", "check", mine).code == 0


def test_a_gap_of_the_map_is_bridged_on_demand(evenline: Door, tmp_path: Path) -> None:
    """The street of line 10 towards the lake lacks a piece."""
    pytest.importorskip("osmium", reason="maps of OpenStreetMap need evenline[import]")
    whole, cut = MAP.read_text(), tmp_path / "cut.osm"
    (street,) = re.findall(r'<way id="10".*</way>', whole)
    nodes = re.findall(r'<nd ref="\d+"/>', street)
    west = street.replace("".join(nodes[7:]), "")
    east = street.replace("".join(nodes[:8]), "").replace('id="10"', 'id="13"')
    cut.write_text(whole.replace(street, west + east))
    mine = tmp_path / "mine"
    line = evenline(*gtfs(EXAMPLE, mine, "--roads", cut, routes="10")).refused(
        "no street connects 10.0"
    )
    assert "--bridge" in line and not mine.exists()
    said = evenline(*gtfs(EXAMPLE, mine, "--roads", cut, "--bridge", routes="10")).done()
    assert "m are straight links" in said
    (note,) = [note for note in load_city(mine).notes if "straight links close the gaps" in note]
    assert note in said
    evenline("city", "check", mine).done()


def test_the_map_in_the_examples_is_the_one_that_we_make() -> None:
    assert MAP.read_text() == example_map()


def test_check_shows_what_a_planner_looks_at(evenline: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    evenline(*gtfs(EXAMPLE, mine, "--patterns", "all")).done()
    said = evenline("city", "check", mine).done()
    for words in ("10.0 10 to Lake", "minutes since", "6:00", "duties of vehicles", "2026-03-03"):
        assert words in said
    assert "warning: nobody travels; add passengers with: evenline city people" in said


def test_a_city_without_passengers_gives_a_clear_line(evenline: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    assert "nobody travels in this city yet" in evenline(*gtfs(EXAMPLE, mine)).done()
    told = evenline("simulate", "--city", mine, "--world", "fast", "--out", tmp_path / "day").done()
    assert "0 of 0" in told
    evenline(
        "compare", "--city", mine, "--policies", "zero,headway", "--out", tmp_path / "c"
    ).refused("nobody travels in mine")


def test_everything_that_is_told_is_printed(
    evenline: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the fits behind a long list of patterns that are left out."""
    lines = tuple(f"line {number}" for number in range(500))
    monkeypatch.setattr("evenline.importing.gtfs.left_out", lambda timetable: lines)
    said = evenline(*gtfs(EXAMPLE, tmp_path / "mine")).done().splitlines()
    assert set(lines) <= set(said)


def test_buses_have_the_capacity_of_their_route(evenline: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    said = evenline(*gtfs(EXAMPLE, mine, "--capacity", "10=90,11=30")).done()
    assert "buses are assumed to take so many passengers: 90 on 10; 30 on 11" in said
    city = load_city(mine)
    assert [city.capacity_of(service) for service in range(3)] == [90, 90, 30]
    evenline(*gtfs(EXAMPLE, mine, "--capacity", "12=90")).refused(
        "--capacity: no trips of a route '12'"
    )


def test_another_city_is_not_replaced(evenline: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    evenline(*gtfs(EXAMPLE, mine)).done()
    (mine / "own.txt").write_text("mine")
    evenline(*gtfs(EXAMPLE, mine)).refused("own.txt")
    assert (mine / "own.txt").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--hours", "10-6"), "--hours '10-6'"),
        (("--patterns", "some"), "--patterns 'some': choose 'main' or 'all'"),
        (("--variation", "7"), "variation 7.0: must be from 0 to 1"),
        (("--passengers", "10"), "--passengers needs a demand"),
        (("--demand", "nobody.csv"), "nobody.csv"),
        (("--bridge",), "--bridge and --lefthand need a map; add --roads MAP"),
        (("--roads", "nowhere.osm"), "nowhere.osm: no such map"),
        (("--hours", "2-3"), "no trip starts in the window"),
    ],
)
def test_a_wrong_option_is_one_line(
    evenline: Door, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    evenline(*gtfs(EXAMPLE, tmp_path / "mine", *options)).refused(words)
    assert not (tmp_path / "mine").exists()


def with_text(name: str, old: str, new: str, times: int = 1) -> Tables:
    tables = small_feed()
    assert old in tables[name]
    return tables | {name: tables[name].replace(old, new, times)}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (with_text("trips.txt", "s10\n", "s99\n", -1), "uses shape 's99', which shapes.txt lacks"),
        (with_text("agency.txt", "Europe/Zurich", "no zone!"), "'no zone!' is not a time zone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_feed_is_one_line(
    evenline: Door, tmp_path: Path, tables: Tables, words: str
) -> None:
    feed = write_feed(tmp_path / "feed.zip", tables)
    evenline(*gtfs(feed, tmp_path / "mine")).refused(str(feed), words)
    assert not (tmp_path / "mine").exists()


def test_a_feed_lists_its_routes(evenline: Door, tmp_path: Path) -> None:
    said = evenline("city", "check", EXAMPLE).done().splitlines()
    assert [line.split() for line in said[2:]] == [
        ["route", "id", "Monday", "to", "Friday", "Saturday", "Sunday", *("first", "day"),
         *("last", "day")],
        ["10", "Station", "-", "Lake", "r10", "51", "0", "0", "2026-01-01", "2026-12-31"],
        ["11", "Ring", "r11", "16", "0", "0", "2026-01-01", "2026-12-31"],
    ]  # fmt: skip
    said = evenline("city", "check", EXAMPLE, "--date", DATE).done()
    assert "trips on Tuesday 2026-03-03" in said
    evenline("city", "check", EXAMPLE, "--date", "soon").refused("--date 'soon'")
    evenline("city", "check", tmp_path).refused(str(tmp_path))
    line = evenline(
        "city", "import", "gtfs", EXAMPLE, "--routes", "10", "--date", "2026-03-07",
        "--out", tmp_path / "mine",
    ).refused("no trip of 10 on 2026-03-07")  # fmt: skip
    assert "from 2026-01-01 to 2026-12-31, the nearest on Friday 2026-03-06" in line


@pytest.mark.parametrize("name", ["../../stops.txt", "/stops.txt", "a/../../x", "C:\\stops.txt"])
def test_names_that_lead_out_of_a_zip_are_refused(
    evenline: Door, tmp_path: Path, name: str
) -> None:
    feed = write_feed(tmp_path / "feed.zip", small_feed())
    with zipfile.ZipFile(feed, "a") as archive:
        archive.writestr(name, "")
    evenline(*gtfs(feed, tmp_path / "mine")).refused(str(feed), "leads out of the zip")
    assert not (tmp_path / "mine").exists()


OWN = """
from evenline.city.embedded import embedded_city

def half(source):
    '''Town, if the source says so.'''
    assert open(source).read() == "town"
    return embedded_city("town")

def broken(source):
    return "no city"

def raising(source):
    return {}["gone\\nfor good"]
"""

CORRIDOR = """
import numpy as np

from evenline.importing.corridor import corridor
from evenline.importing.lines import Shape
from evenline.importing.timetable import SourceStop
from evenline.city.model import City, Trip, Vehicle, no_journeys

def read(source):
    '''One stop per row: name, x, y. A bus every ten minutes.'''
    rows = [row.split(",") for row in open(source).read().splitlines()]
    spots = np.array([[float(x), float(y)] for _, x, y in rows])
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(spots, axis=0).T))])
    places = tuple(SourceStop(name, name.title(), 0.0, 0.0) for name, _, _ in rows)
    line = Shape("1.0", "1", "Line 1", "1", places, spots, spots, along, shaped=False)
    laid = corridor([line])
    trips = tuple(Trip(f"t{n}", 0, 300 + 600 * n) for n in range(6))
    due_s = [trip.departure_s + m / 6 for trip in trips for m in along]
    return City(
        "x", 7200, Vehicle(), laid.nodes, laid.roads, laid.stops, laid.services, trips,
        no_journeys(), due_s=np.array(due_s, np.int32),
    )
"""


def test_a_format_of_ones_own_can_lay_a_corridor(evenline: Door, tmp_path: Path) -> None:
    code, source, out = tmp_path / "mine.py", tmp_path / "stops.csv", tmp_path / "mine"
    code.write_text(CORRIDOR)
    source.write_text("harbour,0,0\nmarket,500,0\nchurch,900,300\nlake,1500,300\n")
    said = evenline(
        "city", "import", f"{code}:read", source, "--demand", "gravity", "--passengers", 50,
        "--out", out,
    ).done()  # fmt: skip
    assert "running times come from the timetable" in said
    assert [stop.name for stop in load_city(out).stops] == ["Harbour", "Market", "Church", "Lake"]
    evenline("city", "check", out).done()
    evenline("simulate", "--city", out, "--world", "fast", "--out", tmp_path / "day").done()


def test_a_format_of_ones_own_is_one_function(evenline: Door, tmp_path: Path) -> None:
    code, source = tmp_path / "mine.py", tmp_path / "source.txt"
    code.write_text(OWN)
    source.write_text("town")
    out = tmp_path / "copy"
    evenline("city", "import", f"{code}:half", source, "--out", out).done()
    assert load_city(out).name == "copy"
    evenline("city", "import", f"{code}:broken", source, "--out", out).refused("must return a City")
    line = evenline("city", "import", f"{code}:raising", source, "--out", tmp_path / "no").refused(
        f"{code}:raising: fails on {source} (KeyError: "
    )
    assert "gone" in line and not (tmp_path / "no").exists()
    with pytest.raises(InputError) as raised:
        import_own(f"{code}:raising", str(source))
    assert isinstance(raised.value.__cause__, KeyError)  # what --debug shows
    evenline("city", "import", f"{code}:gone", source, "--out", out).refused("has no 'gone'")
    evenline("city", "import", "xml", source, "--out", out).refused("no such command 'xml'")
