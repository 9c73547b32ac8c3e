"""The door: commands do what they say on `town`; bad input is one line and leaves nothing behind.

The command line runs in this process, SUMO in worker processes as always. A broken SUMO is the
real one in a runtime folder of its own, wrapped so that it fails at a chosen second.
"""

import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from door import Door
from evenline.city.embedded import embedded_city
from evenline.city.tables import digest, load_city, save_city
from evenline.cli.main import main
from evenline.policies.bundle import policy_digest
from evenline.support.errors import InputError
from evenline.support.files import LISTING, sha256
from evenline.worlds.open import open_city
from evenline.worlds.sumo.runtime import installed_version
from faults import install_libsumo
from hamlet import HAMLET, write_hamlet
from made import plan_text


@pytest.fixture(autouse=True)
def own_folder(elsewhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and versions of SUMO go to the test's folder unless told otherwise."""
    monkeypatch.setenv("EVENLINE_RUNTIMES", str(tmp_path / "runtimes"))


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- what works -----------------------------------------------------------------------------------


def test_simulate_prints_the_day_and_writes_its_folder(evenline: Door, tmp_path: Path) -> None:
    ended = evenline("simulate", "--policy", "headway", "--seed", 2, "--out", "day")
    assert ended.code == 0, ended.err
    kept = json.loads((tmp_path / "day" / "outcome.json").read_text())
    outcome = kept["outcome"]
    assert f"{outcome['generalized_s']:,.1f}" in ended.out
    assert f"{outcome['completion']:.4f}" in ended.out
    assert f"{outcome['unfinished']} of {outcome['departed']:,}" in ended.out
    assert kept["simulator"]["version"] == installed_version() and kept["cell"]["sumo_seed"] == 2
    assert kept["city"] == digest(embedded_city("town")) and kept["policy_name"] == "headway"
    assert kept["policy"]["digest"] == policy_digest("headway-1.0")
    visits = pq.read_table(tmp_path / "day" / "stop_visits.parquet")
    assert len(visits) == outcome["decisions"] + outcome["trips_completed"]
    assert sum(visits["hold_s"].to_pylist()) == pytest.approx(outcome["hold_total_s"])
    decided = visits.filter(visits["proposal_s"].is_valid())
    assert len(decided) == outcome["decisions"] and set(decided["changed_by"].to_pylist()) == {""}
    assert decided["proposal_s"].to_pylist() == decided["hold_s"].to_pylist()
    followed = [row["guard_no_bus_behind"] for row in decided.to_pylist()]
    assert True in followed and False in followed, "the guard's terms are there for every rule"
    assert (tmp_path / "day" / "time_space.png").read_bytes().startswith(b"\x89PNG")
    names = [LISTING, "outcome.json", "stop_visits.parquet", "time_space.png"]
    assert files_in(tmp_path / "day") == names


def test_a_result_records_the_version_that_sumo_reports(evenline: Door, tmp_path: Path) -> None:
    wrap_sumo(tmp_path / "runtimes" / "9.9.9", "pass")
    assert "9.9.9" in evenline("sumo").out
    assert evenline("simulate", "--sumo", "9.9.9", "--out", "day").code == 0
    kept = json.loads((tmp_path / "day" / "outcome.json").read_text())
    assert kept["simulator"]["version"] == installed_version()


def test_a_city_can_be_built_edited_sealed_and_checked(evenline: Door, tmp_path: Path) -> None:
    assert evenline("city", "build", "town", "--out", "mine").code == 0
    folder = tmp_path / "mine"
    assert "694" in evenline("city", "check", folder).out, "decisions a day"
    volumes = folder / "car_volumes.csv"
    volumes.write_text(volumes.read_text().replace("0,700.0", "0,100.0"))
    evenline("city", "check", folder).refused("car_volumes.csv", "evenline city check --seal")
    assert evenline("city", "check", folder, "--seal").code == 0
    assert load_city(folder).traffic.cars_per_hour[0] == 100.0
    assert evenline("city", "check", folder).code == 0


def write_turning_hamlet(folder: Path) -> None:
    """A hamlet whose first service turns around at a junction, where SUMO has no connection."""
    tables = {
        "services.csv": HAMLET["services.csv"].replace("A-B B-C C-D", "A-B B-C C-B"),
        "service_stops.csv": HAMLET["service_stops.csv"].replace("2,s3,1400", "2,t2,1250"),
        "legs.csv": HAMLET["legs.csv"].replace("s3", "t2"),
    }
    write_hamlet(folder, {name: text.encode() for name, text in tables.items()})


def test_checking_a_city_names_roads_that_do_not_connect(
    evenline: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_turning_hamlet(tmp_path / "h")
    assert evenline("city", "check", "h", "--seal").code == 0
    assert evenline("city", "check", "h").code == 0, "a service may turn back"
    cars = HAMLET["car_routes.csv"].replace("C-B B-A", "C-B B-C")
    write_hamlet(tmp_path / "h", {"car_routes.csv": cars.encode()})
    told = "h: car_routes.csv row 2: road C-B does not lead into B-C"
    evenline("city", "check", "h").refused(told)
    monkeypatch.setattr("evenline.worlds.sumo.runtime.installed_version", lambda: None)
    assert evenline("city", "check", "h").code == 0, "without SUMO only the tables are checked"


def test_checking_a_city_says_why_netconvert_refuses_a_road(evenline: Door, tmp_path: Path) -> None:
    roads = HAMLET["roads.csv"] + "loop,B,B,50.0,0\n"
    write_hamlet(tmp_path / "h", {"roads.csv": roads.encode()})
    told = "roads.csv row 7: The connection-destination edge 'loop' is not known."
    evenline("city", "check", "h").refused(told)


@pytest.mark.parametrize("content", [None, "{"])
@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--world", "sumo"),
        ("compare", "--policies", "zero,headway-1.0"),
        ("tune", "headway"),
        ("train",),
        ("city", "judge"),
        ("policy", "export", "zero"),
    ],
    ids=" ".join,
)
def test_a_bad_calibration_is_refused_before_any_work(
    command: tuple[str, ...], content: str | None, evenline: Door, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "bad.json").write_text(content)
    city = ("town",) if command[0] == "city" else ("--city", "town")
    ended = evenline(*command, *city, "--calibration", "bad.json", "--out", "out")
    ended.refused("bad.json: ")
    assert {path.name for path in tmp_path.iterdir()} <= {"bad.json"}, "nothing was begun"


def test_sealing_refuses_what_is_wrong_and_changes_nothing(evenline: Door, tmp_path: Path) -> None:
    evenline("city", "build", "town", "--out", "mine")
    trips, manifest = tmp_path / "mine" / "trips.csv", tmp_path / "mine" / "manifest.json"
    trips.write_text(trips.read_text().replace("1E.00,1E,0", "1E.00,9Z,0"))
    before = manifest.read_text()
    evenline("city", "check", "mine", "--seal").refused("trips.csv row 1", "'9Z'")
    assert manifest.read_text() == before


def test_a_city_is_built_with_other_demand_and_shows_it(evenline: Door, tmp_path: Path) -> None:
    asked = ("city", "build", "town", "--out", "mine")
    assert evenline(*asked, "--by-hour", "3,1", "--until-s", 5_400).out == "mine\n"
    assert open_city("mine").fitted().network == open_city("town").fitted().network
    ended = evenline("city", "check", "mine", "--picture", "mine.png")
    assert "2,700" in ended.out and ended.out.endswith("mine.png\n")
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    for arguments, told in (
        (["--by-hour", "3,x"], "--by-hour '3,x'"),
        (["--by-hour", "3,1", "--profile", "flat"], "--profile and --by-hour exclude each other"),
        (["--until-s", "100"], "--until-s needs a demand by hour"),
        (["--profile", "steep"], "unknown demand profile 'steep'"),
    ):
        evenline("city", "build", "town", "--out", "other", *arguments).refused(told)
    assert not (tmp_path / "other").exists()


# -- bad words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "hope"], ["'hope'", "zero", "headway"]),
        (["--city", "atlantis"], ["'atlantis'", "town"]),
        (["--world", "flat"], ["'flat'", "sumo"]),
        (["--sumo", "0.0.1"], ["0.0.1", "evenline sumo 0.0.1"]),
        (["--demand", "-1"], ["-1.0"]),
        (["--demand", "0"], ["demand 0.0", "no passenger travels"]),
        (["--demand", "nan"], ["nan"]),
        (["--demand", "3"], ["3.0", "1.25"]),
        (["--seed", "0"], ["seed 0"]),
    ],
)
def test_a_wrong_value_is_named_and_leaves_nothing(
    evenline: Door, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    evenline("simulate", *arguments, "--out", "day").refused(*words)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--seed", "x"],
        ["simulate", "--seed"],
        ["simulate", "--no-such"],
        ["simulate", "extra"],
        ["--no-such"],
        ["fly"],
        ["city", "check"],
        ["city", "fly"],
    ],
)
def test_a_wrong_usage_is_one_line_and_ends_with_code_2(
    evenline: Door, arguments: list[str]
) -> None:
    ended = evenline(*arguments)
    assert ended.code == 2 and "Traceback" not in ended.err
    ended.refused("; see ", " --help")
    assert ended.out == ""


@pytest.mark.parametrize("arguments", [[], ["city"]])
def test_a_command_without_arguments_prints_its_help(evenline: Door, arguments: list[str]) -> None:
    ended = evenline(*arguments)
    assert "Usage: " in ended.out and ended.err == ""


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["evenline", "simulate", "--policy", "hope", "--debug"])
    with pytest.raises(InputError, match="hope"):
        main()


@pytest.mark.parametrize(
    "arguments",
    [["simulate"], ["city", "build", "town"]],
)
def test_a_folder_of_somebody_else_is_never_replaced(
    evenline: Door, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("irreplaceable")
    evenline(*arguments, "--out", "thesis").refused("thesis", "choose another --out")
    assert files_in(tmp_path) == ["thesis", "thesis/chapter.txt"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["city", "build", "town", "--out", "mine"], "mine/trips.csv"),
        (["simulate", "--world", "fast", "--out", "day"], "day/outcome.json"),
        (["simulate", "--world", "fast"], "results/simulate/town-fast-zero-*/outcome.json"),
    ],
)
def test_a_rerun_keeps_what_was_added_or_changed_and_force_replaces_it(
    evenline: Door, tmp_path: Path, arguments: list[str], name: str
) -> None:
    assert evenline(*arguments).code == evenline(*arguments).code == 0, "ours, unchanged"
    (ours,) = tmp_path.glob(name)
    notes, before = ours.with_name("notes.txt"), ours.read_text()
    notes.write_text("mine")
    evenline(*arguments).refused("notes.txt was not written by Evenline", "--force")
    notes.unlink()
    ours.write_text(before + "\n")
    evenline(*arguments).refused(f"{ours.name} has changed since", "--force")
    assert ours.read_text() == before + "\n"
    notes.write_text("mine")
    assert evenline(*arguments, "--force").code == 0
    assert not notes.exists() and ours.read_text() == before


def test_a_sealed_city_is_not_built_over(evenline: Door, tmp_path: Path) -> None:
    assert evenline("city", "build", "town", "--out", "mine").code == 0
    volumes = tmp_path / "mine" / "car_volumes.csv"
    volumes.write_text(volumes.read_text().replace("0,700.0", "0,100.0"))
    assert evenline("city", "check", "mine", "--seal").code == 0
    evenline("city", "build", "town", "--out", "mine").refused("car_volumes.csv")
    assert load_city(tmp_path / "mine").traffic.cars_per_hour[0] == 100.0


@pytest.mark.parametrize(
    "arguments",
    [
        "simulate --policy hope --world fast",
        "simulate --sumo 9.9.9",
        "compare --world sumo --sumo 9.9.9 --blocks 1 --policies zero,headway",
        "tune forward --blocks 0",
        "train --replay nowhere",
        "replay collect --blocks 99",
        "trial register plan.toml --out a/b --used-cells c/used.json",
        "study run town --until never",
        "policy export hope",
        "city build nowhere --out a/b",
    ],
)
def test_a_refused_command_leaves_nothing_behind(
    evenline: Door, tmp_path: Path, arguments: str
) -> None:
    wrong = '{ better = ["headway-1.0", "hope"], worse = ["zero", "myopic"] }'
    (tmp_path / "plan.toml").write_text(plan_text(methods=wrong))
    evenline(*arguments.split()).refused()
    assert files_in(tmp_path) == ["plan.toml"]


def test_a_place_that_cannot_be_written_is_named(evenline: Door, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    evenline("simulate", "--out", "file/day").refused("file")
    assert files_in(tmp_path) == ["file"]


# -- bad tables -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def town_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cities") / "town"
    save_city(embedded_city("town"), folder)
    return folder


def edit_row(folder: Path, name: str, row: int, column: str, value: str) -> None:
    """Change one value of a table and make the manifest agree, so that only the row is wrong."""
    path = folder / name
    lines = path.read_text().splitlines()
    values = lines[row].split(",")
    values[lines[0].split(",").index(column)] = value
    lines[row] = ",".join(values)
    path.write_text("\n".join(lines) + "\n")
    agree(folder, files={name: sha256(path)})


def agree(folder: Path, files: dict[str, str], **settings: object) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] |= files
    path.write_text(json.dumps(manifest | settings))


@pytest.mark.parametrize(
    ("table", "row", "column", "value", "words"),
    [
        ("trips.csv", 3, "service_id", "9Z", ["trips.csv row 3", "unknown service '9Z'"]),
        ("stops.csv", 2, "pos_m", "9999", ["stops row 2", "9999"]),
    ],
)
def test_a_wrong_row_is_named_and_no_result_is_left(
    evenline: Door,
    tmp_path: Path,
    town_folder: Path,
    table: str,
    row: int,
    column: str,
    value: str,
    words: list[str],
) -> None:
    shutil.copytree(town_folder, tmp_path / "mine")
    edit_row(tmp_path / "mine", table, row, column, value)
    before = files_in(tmp_path)
    evenline("city", "check", "mine").refused("mine", *words)
    evenline("simulate", "--city", "mine", "--out", "day").refused("mine", *words)
    assert files_in(tmp_path) == before


def test_a_missing_table_is_named(evenline: Door, tmp_path: Path, town_folder: Path) -> None:
    shutil.copytree(town_folder, tmp_path / "mine")
    (tmp_path / "mine" / "stops.csv").unlink()
    for command in (["city", "check", "mine"], ["city", "check", "mine", "--seal"]):
        evenline(*command).refused("mine/stops.csv: no such file")
    (tmp_path / "mine" / "manifest.json").unlink()
    evenline("city", "check", "mine").refused("mine/manifest.json: no such file")


# -- a SUMO that fails ----------------------------------------------------------------------------


def wrap_sumo(runtime: Path, at_second_500: str) -> None:
    """A runtime whose libsumo is the installed one, but does something at second 500."""
    text = f"""
import os, sys
sys.path.remove({str(runtime)!r})
del sys.modules["libsumo"]
import libsumo
from libsumo import _libsumo
real_step = _libsumo.simulation_step
def step(*arguments):
    if libsumo.simulation.getTime() == 500:
        {at_second_500}
    return real_step(*arguments)
_libsumo.simulation_step = step
"""
    install_libsumo(runtime, text)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("os.kill(os.getpid(), 9)", ["ended with code -9"]),
        ("raise RuntimeError('out of road')", ["SUMO stopped at 500 s", "out of road"]),
    ],
)
def test_a_sumo_that_fails_in_the_middle_is_one_line_and_leaves_nothing(
    evenline: Door,
    tmp_path: Path,
    failure: str,
    words: list[str],
) -> None:
    wrap_sumo(tmp_path / "runtimes" / "9.9.9", failure)
    before = [name for name in files_in(tmp_path) if "__pycache__" not in name]
    ended = evenline("simulate", "--sumo", "9.9.9", "--out", "day")
    ended.refused("town, zero 1-501-1.00", *words)
    assert [name for name in files_in(tmp_path) if "__pycache__" not in name] == before
