"""`evenline city import`: a feed or a format of one's own becomes a city that commands accept."""

import json
import zipfile
from pathlib import Path

import pytest

from door import Door
from door import door as make_door
from evenline.city.importers import feed as feeds_read
from evenline.city.tables import load_city
from evenline.worlds.open import open_city
from feeds import DATE, EXAMPLE, Tables, small_feed, write_feed
from small_maps import EXAMPLE as MAP
from small_maps import example_map


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Door:
    return make_door(monkeypatch, capfd)


def gtfs(feed: Path, out: Path, *more: object, routes: str = "10,11") -> tuple[object, ...]:
    return ("city", "import", "gtfs", feed, "--routes", routes, "--date", DATE, "--out", out, *more)


def test_a_feed_with_demand_becomes_a_city_that_runs(run: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    said = run(*gtfs(EXAMPLE, mine, "--demand", "gravity", "--passengers", 300)).done()
    assert "left out: 10, direction 0, 4 stops from Station to Lake: 3 trips" in said
    opened = open_city(str(mine))
    assert opened.name == "mine" and opened.calibration is not None
    assert len(opened.notes("fast")) == 4
    out = tmp_path / "day"
    said = run("simulate", "--city", mine, "--world", "fast", "--out", out).done()
    for note in opened.notes("fast"):
        assert f"note: {note}" in said
    told = json.loads((out / "outcome.json").read_text())
    assert tuple(told["notes"]) == opened.notes("fast") and told["outcome"]["departed"] == 300
    said = run(
        "compare", "--city", mine, "--policies", "zero,headway", "--blocks", 1,
        "--out", tmp_path / "compared",
    ).done()  # fmt: skip
    assert "note: demand is synthetic (gravity, 300 passengers)" in said


def test_a_feed_on_a_map_has_its_streets(run: Door, tmp_path: Path) -> None:
    pytest.importorskip("osmium", reason="maps of OpenStreetMap need evenline[import]")
    mine = tmp_path / "mine"
    said = run(*gtfs(EXAMPLE, mine, "--roads", MAP)).done()
    for service in ("10.0", "10.1", "11.0"):
        assert f"{service}: " in said
    city = load_city(mine)
    assert city.carried is not None
    ways = {service.id: [road.split("#")[0] for road in service.roads] for service in city.services}
    assert set(ways["10.0"]) == {"10"}  # each direction on its own one-way street
    assert set(ways["10.1"]) == {"11"}
    assert set(ways["11.0"]) == {"12", "11"}
    assert run("city", "check", mine).code == 0


def test_the_map_in_the_examples_is_the_one_that_we_make() -> None:
    assert MAP.read_text() == example_map()


def test_check_shows_what_a_planner_looks_at(run: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    run(*gtfs(EXAMPLE, mine, "--patterns", "all")).done()
    said = run("city", "check", mine).done()
    for words in ("10.0 10 to Lake", "minutes since", "6 h", "duties of vehicles", "2026-03-03"):
        assert words in said
    assert "warning: nobody travels; add passengers with: evenline city people" in said


def test_a_city_without_passengers_gives_a_clear_line(run: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    assert "nobody travels in this city yet" in run(*gtfs(EXAMPLE, mine)).done()
    told = run("simulate", "--city", mine, "--world", "fast", "--out", tmp_path / "day").done()
    assert "0 of 0" in told
    run("compare", "--city", mine, "--policies", "zero,headway", "--out", tmp_path / "c").refused(
        "nobody travels in mine"
    )


def test_another_city_is_not_replaced(run: Door, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    run(*gtfs(EXAMPLE, mine)).done()
    (mine / "own.txt").write_text("mine")
    run(*gtfs(EXAMPLE, mine)).refused("own.txt")
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
    run: Door, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    run(*gtfs(EXAMPLE, tmp_path / "mine", *options)).refused(words)
    assert not (tmp_path / "mine").exists()


def lacking(name: str) -> Tables:
    return {key: text for key, text in small_feed().items() if key != name}


def with_text(name: str, old: str, new: str, times: int = 1) -> Tables:
    tables = small_feed()
    assert old in tables[name]
    return tables | {name: tables[name].replace(old, new, times)}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (lacking("stops.txt"), "stops.txt: missing"),
        (lacking("calendar.txt"), "has neither calendar.txt nor calendar_dates.txt"),
        (with_text("stops.txt", "stop_lat", "lat"), "stops.txt: no column stop_lat"),
        (with_text("stops.txt", "park,Park,", "gone,Park,"), "uses stop 'park'"),
        (with_text("trips.txt", "s10\n", "s99\n", -1), "uses shape 's99', which shapes.txt lacks"),
        (with_text("stop_times.txt", "06:00:00,06:00:00", "6 am,6 am"), "'6 am' is not a time"),
        (with_text("stop_times.txt", "06:00:00,06:00:00", "09:00:00,09:00:00"), "go backward"),
        (with_text("stops.txt", "46.", "96."), "is not a latitude and a longitude"),
        (with_text("agency.txt", "Europe/Zurich", "no zone!"), "'no zone!' is not a time zone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_feed_is_one_line(
    run: Door, tmp_path: Path, tables: Tables, words: str
) -> None:
    feed = write_feed(tmp_path / "feed.zip", tables)
    run(*gtfs(feed, tmp_path / "mine")).refused(str(feed), words)
    assert not (tmp_path / "mine").exists()


def test_a_bomb_is_refused(run: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_read, "MOST_BYTES", 100_000)
    tables = with_text("stop_times.txt", "\n", "\n" * 10_000_000)
    feed = write_feed(tmp_path / "feed.zip", tables)
    assert feed.stat().st_size < 100_000
    run(*gtfs(feed, tmp_path / "mine")).refused("too large")


def test_names_in_a_zip_lead_nowhere_else(run: Door, tmp_path: Path) -> None:
    """Nothing is extracted, so a name that climbs out of a folder is only a name."""
    feed = tmp_path / "feed.zip"
    with zipfile.ZipFile(feed, "w") as archive:
        for name, text in small_feed().items():
            archive.writestr(f"../../{name}", text)
    before = sorted(tmp_path.parent.rglob("*.txt"))
    run(*gtfs(feed, tmp_path / "mine")).done()
    assert sorted(tmp_path.parent.rglob("*.txt")) == before


OWN = """
from evenline.city.embedded import embedded_city

def half(source):
    '''Town, if the source says so.'''
    assert open(source).read() == "town"
    return embedded_city("town")

def broken(source):
    return "no city"
"""


def test_a_format_of_ones_own_is_one_function(run: Door, tmp_path: Path) -> None:
    code, source = tmp_path / "mine.py", tmp_path / "source.txt"
    code.write_text(OWN)
    source.write_text("town")
    out = tmp_path / "copy"
    run("city", "import", f"{code}:half", source, "--out", out).done()
    assert load_city(out).name == "copy"
    run("city", "import", f"{code}:broken", source, "--out", out).refused("must return a City")
    run("city", "import", f"{code}:gone", source, "--out", out).refused("has no 'gone'")
    run("city", "import", "xml", source, "--out", out).refused("no such command 'xml'")
