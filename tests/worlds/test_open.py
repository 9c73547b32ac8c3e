"""Cities and the calibrations that belong to them; worlds by name, a stranger's among them."""

import json
import shutil
from pathlib import Path

import pytest

from door import Door, outcome_in
from evenline.city.cells import demo_cell
from evenline.policies.bundle import open_policy
from evenline.support.errors import InputError
from evenline.support.files import sha256
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.open import CALIBRATION, EMBEDDED, check_world_name, open_city, open_world

NO_WORLD = "; choose 'fast' or 'sumo', or name your own as FILE.py:FUNCTION"


@pytest.fixture
def evenline(elsewhere: None, evenline: Door) -> Door:
    """Commands in a folder with a city `c`, which is the town under another name."""
    assert evenline("city", "build", "town", "--out", "c").done() == "c\n"
    return evenline


def edit(path: Path, row: int, column: str, value: str) -> None:
    lines = path.read_text().splitlines()
    values = lines[row].split(",")
    values[lines[0].split(",").index(column)] = value
    path.write_text("\n".join([*lines[:row], ",".join(values), *lines[row + 1 :]]) + "\n")


# -- calibrations ---------------------------------------------------------------------------------


def test_cities_with_the_same_streets_share_a_calibration() -> None:
    one, other = open_city("city").fitted(), open_city("city-two-peaks").fitted()
    assert calibration_digest(one) == calibration_digest(other)
    assert not (EMBEDDED / "city-two-peaks.json").exists()


def test_a_built_city_brings_its_calibration(evenline: Door, tmp_path: Path) -> None:
    fast = ["--city", "c", "--world", "fast"]
    evenline("simulate", *fast, "--policy", "schedule", "--out", "day").done()
    at_home = ["--city", "town", "--world", "fast", "--policy", "schedule"]
    evenline("simulate", *at_home, "--out", "home").done()
    assert outcome_in(tmp_path / "day") == outcome_in(tmp_path / "home")
    asked = ["compare", *fast, "--policies", "zero,schedule", "--blocks", 1, "--out", "cmp"]
    assert evenline(*asked).done().startswith("town, fast: mean of 3 days")
    assert json.loads(evenline("policy", "check", "schedule", "--city", "c").done())["decisions"]
    evenline("tune", "forward", "--city", "c", "--blocks", 1, "--budget", 3, "--out", "t").done()


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", "--world", "fast"],
        ["simulate", "--world", "sumo", "--policy", "schedule"],
        ["compare", "--world", "fast", "--policies", "zero", "--blocks", 1],
        ["compare", "--world", "fast", "--policies", "lookahead", "--blocks", 1],
        ["compare", "--world", "sumo", "--policies", "virtual-schedule", "--blocks", 1],
        ["tune", "forward", "--blocks", 1, "--budget", 3],
        ["policy", "export", "schedule"],
        ["city", "judge", "c", "--replay", "r"],
    ],
)
def test_a_city_without_a_calibration_says_how_to_get_one(
    evenline: Door, tmp_path: Path, command: list[object]
) -> None:
    (tmp_path / "c" / CALIBRATION).unlink()
    city = [] if command[0] == "city" else ["--city", "c"]
    told = evenline(*command, *city, "--out", "out").refused("calibration")
    assert "evenline city fit" in told and "--calibration" in told
    assert not (tmp_path / "out").exists(), "nothing is left behind"


def test_checking_a_policy_needs_a_calibration(evenline: Door, tmp_path: Path) -> None:
    (tmp_path / "c" / CALIBRATION).unlink()
    told = evenline("policy", "check", "zero", "--city", "c").refused("city c has no calibration")
    assert "evenline city fit c, or name one with --calibration" in told


def test_a_calibration_may_be_named(evenline: Door, tmp_path: Path) -> None:
    shutil.move(tmp_path / "c" / CALIBRATION, tmp_path / "fitted.json")
    named = ["--city", "c", "--calibration", "fitted.json"]
    evenline("simulate", *named, "--world", "fast", "--out", "day").done()
    evenline("compare", *named, "--policies", "zero,lookahead", "--blocks", 1, "--out", "k").done()
    evenline("policy", "check", "schedule", *named).done()
    evenline("policy", "export", "schedule", *named, "--out", "b").done()
    evenline("tune", "forward", *named, "--blocks", 1, "--budget", 3, "--out", "t").done()
    told = evenline("simulate", "--city", "c", "--calibration", "gone.json", "--out", "no")
    told.refused("gone.json: no such calibration file")


def test_the_fast_world_needs_none_where_it_is_not_asked(evenline: Door, tmp_path: Path) -> None:
    (tmp_path / "c" / CALIBRATION).unlink()
    evenline("simulate", "--city", "c", "--world", "sumo", "--out", "day").done()
    assert json.loads((tmp_path / "day" / "outcome.json").read_text())["calibration"] is None


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("passengers.csv", "min_demand", "1.25"), ("legs.csv", "services", None)],
)
def test_other_people_keep_the_calibration(
    evenline: Door, tmp_path: Path, table: str, column: str, value: str | None
) -> None:
    before, path = open_city("c"), tmp_path / "c" / table
    if value is None:  # exchange two people's legs that are not alike
        lines = path.read_text().splitlines()
        name, *way = lines[1].split(",")
        other = next(i for i, line in enumerate(lines[2:], 2) if line.split(",")[1:] != way)
        lines[1] = ",".join([name, *lines[other].split(",")[1:]])
        path.write_text("\n".join(lines) + "\n")
    else:
        edit(path, 7, column, value)
    evenline("simulate", "--city", "c", "--out", "day").refused(table, "evenline city check --seal")
    evenline("city", "check", "c", "--seal").done()
    evenline("simulate", "--city", "c", "--world", "fast", "--out", "day").done()
    after = open_city("c")
    assert calibration_digest(after.fitted()) == calibration_digest(before.fitted())


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("trips.csv", "departure_s", "1"), ("car_volumes.csv", "cars_per_hour", "123.0")],
)
def test_another_timetable_or_traffic_refuses_the_calibration(
    evenline: Door, tmp_path: Path, table: str, column: str, value: str
) -> None:
    edit(tmp_path / "c" / table, 1, column, value)
    evenline("city", "check", "c", "--seal").done()
    for command in (
        ["simulate", "--world", "fast", "--out", "day"],
        ["compare", "--policies", "zero", "--blocks", 1, "--out", "day"],
    ):
        told = evenline(*command, "--city", "c").refused(f"c/{CALIBRATION} was fitted to other")
        assert "evenline city fit" in told
    assert not (tmp_path / "day").exists()


def test_the_name_of_a_folder_means_nothing(tmp_path: Path, evenline: Door) -> None:
    """A folder called as an embedded city has no calibration but its own."""
    shutil.move(tmp_path / "c", tmp_path / "nested" / "city")
    assert open_city("nested/city").calibration is not None
    (tmp_path / "nested" / "city" / CALIBRATION).unlink()
    assert open_city("nested/city").calibration is None
    assert open_city("town").calibration is not None and (EMBEDDED / "town.json").is_file()


# -- worlds ---------------------------------------------------------------------------------------

WORLD = '''
class Slower:
    """The fast world, watched."""

    def __init__(self, inner):
        self.inner, self.city = inner, inner.city

    @property
    def charged(self):
        return self.inner.charged

    @property
    def visits(self):
        return self.inner.visits

    def reset(self, cell):
        return self.inner.reset(cell)

    def step(self, holds_s):
        return self.inner.step(holds_s)

    def outcome(self):
        return self.inner.outcome()


def watched(opened):
    return Slower(opened.fast_world(keep_visits=True))


def derived(opened):
    from evenline.worlds.fast.world import FastWorld

    class Derived(FastWorld):
        pass

    return Derived(opened.city, opened.fitted(), keep_visits=True)


def broken(opened):
    raise ValueError("no map")


def nothing(opened):
    return None


class Unseen:
    """A world that keeps no stop visits."""

    def __init__(self, inner):
        self.inner, self.city, self.charged = inner, inner.city, 0
        self.reset, self.step, self.outcome = inner.reset, inner.step, inner.outcome


def unseen(opened):
    return Unseen(opened.fast_world())


number = 3
'''


def test_an_unknown_world_is_answered_with_those_there_are(evenline: Door, tmp_path: Path) -> None:
    with pytest.raises(InputError) as told:
        check_world_name("x")
    assert str(told.value) == f"unknown world 'x'{NO_WORLD}"
    for command in (["simulate"], ["compare", "--policies", "zero"]):
        said = evenline(*command, "--world", "x", "--out", "out").refused()
        assert said == f"evenline: unknown world 'x'{NO_WORLD}\n"
    assert not (tmp_path / "out").exists()


def test_an_opened_world_runs_the_opened_city() -> None:
    town = open_city("town")
    policy = open_policy("headway", town.city, town.calibration)
    found = open_world("fast", town)
    assert found.city is town.city and town.name == "town"
    assert town.fast_world().run_day(demo_cell(1), policy).decisions > 400


@pytest.mark.parametrize("name", ["watched", "derived"])
def test_a_strangers_world_is_simulated_and_compared(
    evenline: Door, tmp_path: Path, name: str
) -> None:
    (tmp_path / "mine.py").write_text(WORLD)
    for world, folder in ((f"mine.py:{name}", "own"), ("fast", "fast")):
        where = ["--world", world, "--city", "c"]
        evenline("simulate", *where, "--policy", "headway", "--out", folder).done()
        compare = ["compare", "--policies", "zero,headway", "--blocks", 1, "--workers", 1]
        said = evenline(*compare, *where, "--out", f"{folder}-c", "--json").done()
        (tmp_path / f"{folder}.json").write_text(said)
    assert outcome_in(tmp_path / "own") == outcome_in(tmp_path / "fast")
    told = json.loads((tmp_path / "own" / "outcome.json").read_text())
    assert told["simulator"] == {
        "world": f"mine.py:{name}",
        "version": None,
        "options": [],
        "code": sha256(tmp_path / "mine.py"),
        "network": None,
    }
    own, fast = (json.loads((tmp_path / f"{f}.json").read_text()) for f in ("own", "fast"))
    assert own["world"] == f"mine.py:{name}" and own["policies"] == fast["policies"]


def test_the_days_of_another_world_are_not_taken_for_its_own(
    evenline: Door, tmp_path: Path
) -> None:
    """Kept days belong to the file as it was."""
    path = tmp_path / "mine.py"
    path.write_text(WORLD)
    asked = ["compare", "--world", "mine.py:watched", "--policies", "zero", "--blocks", 1]
    asked += ["--workers", 1]
    for text, kept in ((WORLD, 3), (WORLD, 3), (WORLD + "\n# changed\n", 6)):
        path.write_text(text)
        evenline(*asked, "--out", "out").done()
        assert len(list((tmp_path / "out" / "days").iterdir())) == kept


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine.py:nothing", ["mine.py:nothing"]),
        ("mine.py:number", ["mine.py:number"]),
        ("mine.py:unseen", ["visits"]),
        ("mine.py:gone", ["mine.py has no 'gone'"]),
        ("mine.py", ["mine.py: name the object to use"]),
        ("gone.py:world", ["gone.py: no such file"]),
        ("no_such_module:world", ["no_such_module"]),
    ],
)
def test_a_world_that_does_not_open_is_one_line(
    elsewhere: None, tmp_path: Path, name: str, words: list[str]
) -> None:
    (tmp_path / "mine.py").write_text(WORLD)
    with pytest.raises(InputError) as refused:
        open_world(name, open_city("town"))
    assert all(word in str(refused.value) for word in words)


def test_a_world_that_does_not_open_in_a_worker_is_one_line(evenline: Door, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WORLD)
    world = ("--world", "mine.py:broken", "--out", "day")
    evenline("simulate", *world).refused("no map")
    assert not (tmp_path / "day").exists()
    evenline("compare", *world, "--policies", "zero", "--workers", 1).refused("no map")


def test_a_calibration_that_no_longer_fits_blocks_only_the_fast_world(
    evenline: Door, tmp_path: Path
) -> None:
    evenline("city", "build", "town", "--out", "c").done()
    trips = (tmp_path / "c" / "trips.csv").read_text().replace(",0\n", ",1\n", 1)
    (tmp_path / "c" / "trips.csv").write_text(trips)
    evenline("city", "check", "c", "--seal").done()
    evenline("simulate", "--city", "c", "--world", "fast").refused("was fitted to other streets")
    evenline("simulate", "--city", "c", "--world", "sumo", "--out", "day").done()


def test_shards_of_a_comparison_come_together(evenline: Door, tmp_path: Path) -> None:
    asked = ("compare", "--policies", "zero,headway", "--blocks", "1", "--out", "together")
    evenline(*asked, "--shard", "1/2").refused("run the other shards too")
    evenline(*asked, "--shard", "2/2").done()
    assert evenline(*asked, "--json").done() == evenline(*asked[:-1], "alone", "--json").done()
