"""A city on disk that is wrong: what is wrong is named by file and row, always in one line."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.city.model import City
from evenline.city.ranges import COLUMNS, RANGES
from evenline.city.tables import digest, load_city, save_city, seal_city
from evenline.support.errors import InputError
from hamlet import HAMLET, MANIFEST, cells_of, refusal, seal, with_cell, write_hamlet

# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*HAMLET, "manifest.json"])
def test_a_missing_file_is_named(hamlet: Path, name: str) -> None:
    (hamlet / name).unlink()
    assert refusal(hamlet) == f"{name}: no such file"


@pytest.mark.parametrize("name", HAMLET)
def test_a_changed_byte_is_named_by_its_file(hamlet: Path, name: str) -> None:
    content = bytearray((hamlet / name).read_bytes())
    content[-2] ^= 1
    (hamlet / name).write_bytes(bytes(content))
    assert refusal(hamlet).startswith(f"{name}: does not match the SHA-256 in manifest.json")


@pytest.mark.parametrize("name", HAMLET)
def test_a_table_that_is_no_csv_is_named(hamlet: Path, name: str) -> None:
    for content in (b"\xff\xfe\x00", HAMLET[name].encode() + b'"open'):
        (hamlet / name).write_bytes(content)
        seal(hamlet)
        assert refusal(hamlet).startswith(f"{name}: not a CSV file (")


@pytest.mark.parametrize("name", HAMLET)
def test_a_wrong_header_is_answered_with_the_right_one(hamlet: Path, name: str) -> None:
    header, rest = HAMLET[name].split("\n", 1)
    for wrong in ("", header.upper(), header + ",more", header.replace(",", ";")):
        (hamlet / name).write_text(f"{wrong}\n{rest}")
        seal(hamlet)
        assert refusal(hamlet) == f"{name}: the header must be {header}"


@pytest.mark.parametrize("name", HAMLET)
def test_a_row_of_the_wrong_width_is_named_by_its_number(hamlet: Path, name: str) -> None:
    rows = len(HAMLET[name].splitlines()) - 1
    width = len(cells_of(HAMLET[name])[0])
    for line, count in (("1", 1), ("", 0), ("1" + "," * width, width + 1)):
        (hamlet / name).write_text(HAMLET[name] + line + "\n")
        seal(hamlet)
        expected = f"{name} row {rows + 1}: has {count} values; expected {width}"
        assert refusal(hamlet) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "evenline-city-0"}, "manifest.json: format is not 'evenline-city-1'"),
        ({"files": {}}, "nodes.csv: does not match the SHA-256"),
        ({"horizon_s": 0}, "horizon_s 0: must be later than the first trip at 0 s"),
        ({"horizon_s": 400}, "trips row 4 (back.1): departure 400 s is outside the day of 400 s"),
    ],
)
def test_a_wrong_manifest_is_told_by_its_key(
    hamlet: Path, changes: dict[str, Any], message: str
) -> None:
    seal(hamlet, **changes)
    assert refusal(hamlet).startswith(message)


CORRUPTIONS = [
    ("nodes.csv", 2, 1, "wide", "nodes.csv row 2: x_m 'wide' is not a number"),
    ("nodes.csv", 4, 0, "A", "nodes row 4: A appears twice"),
    ("nodes.csv", 1, 0, "Z", "roads row 1 (A-B): no node A"),
    ("roads.csv", 6, 2, "Q", "roads row 6 (B-A): no node Q"),
    ("roads.csv", 4, 3, "0", "roads row 4 (D-C): length_m 0.0 must be a number from 0.1"),
    ("roads.csv", 2, 0, "A-B", "roads row 2: A-B appears twice"),
    ("stops.csv", 2, 1, "X-Y", "stops row 2 (s2): no road X-Y"),
    ("stops.csv", 3, 2, "501", "stops row 3 (s3): pos_m 501.0 is not on road C-D, which is"),
    ("stops.csv", 3, 2, "-1", "stops row 3 (s3): pos_m -1.0 is not on road C-D, which is"),
    ("stops.csv", 2, 1, "C-B", "services row 1 (out): stop s2 is not on any road of the service"),
    (
        "services.csv",
        2,
        3,
        "D-C B-A",
        "services row 2 (back): road B-A does not start where D-C ends",
    ),
    ("services.csv", 2, 3, "D-C C-Q", "services row 2 (back): no road C-Q"),
    ("services.csv", 2, 0, "forth", "service_stops.csv row 4: unknown service 'back'"),
    ("service_stops.csv", 5, 0, "up", "service_stops.csv row 5: unknown service 'up'"),
    ("service_stops.csv", 5, 2, "s9", "service_stops.csv row 5: unknown stop 's9'"),
    ("service_stops.csv", 3, 1, "1", "service_stops.csv row 3: stop_sequence 1 of out must be 2"),
    ("service_stops.csv", 6, 3, "750", "services row 2 (back): the stop at 750.0 m follows"),
    ("service_stops.csv", 2, 2, "s1", "services row 1 (out): serves stop s1 twice; give the"),
    ("trips.csv", 2, 1, "up", "trips.csv row 2: unknown service 'up'"),
    ("trips.csv", 2, 2, "0", "trips row 2 (out.1): departure 0 s is not after out.0 at 0 s"),
    ("trips.csv", 4, 2, "59", "trips row 4 (back.1): departure 59 s is not after back.0 at 60 s"),
    ("trips.csv", 1, 2, "-1", "trips row 1 (out.0): departure -1 s is outside the day"),
    ("trips.csv", 4, 2, "1200", "trips row 4 (back.1): departure 1200 s is outside the day"),
    ("trips.csv", 2, 0, "out.0", "trips row 2: out.0 appears twice"),
    ("passengers.csv", 2, 0, "2", "passengers.csv row 2: passenger_id must be 1"),
    ("passengers.csv", 2, 1, "-3", "passengers row 2: departure -3 s is outside the day"),
    ("passengers.csv", 3, 1, "1200", "passengers row 3: departure 1200 s is outside the day"),
    ("passengers.csv", 3, 1, "15", "passengers row 3: departs before the row above"),
    ("passengers.csv", 2, 2, "-0.5", "passengers row 2: min_demand -0.5 must be at least 0"),
    ("legs.csv", 1, 0, "7", "legs.csv row 1: unknown passenger 7"),
    ("legs.csv", 3, 1, "1", "legs.csv row 3: leg must be 0"),
    ("legs.csv", 2, 2, "s9", "legs.csv row 2: unknown stop 's9'"),
    ("legs.csv", 2, 3, "t9", "legs.csv row 2: unknown stop 't9'"),
    ("legs.csv", 2, 4, "up", "legs.csv row 2: unknown service 'up'"),
    ("legs.csv", 2, 4, "", "legs.csv row 2: lists no service"),
    ("legs.csv", 2, 4, "out", "legs row 2: out does not go from t1 to t2"),
    ("legs.csv", 1, 3, "t1", "legs row 1: out does not go from s1 to t1"),
    ("legs.csv", 1, 3, "s1", "legs row 1: out does not go from s1 to s1"),
    ("legs.csv", 2, 3, "t1", "legs row 2: back does not go from t1 to t1"),
    ("legs.csv", 4, 2, "s1", "legs row 4: does not start where the previous leg ends"),
    ("car_volumes.csv", 1, 1, "-1", "car_volumes.csv row 1: cars_per_hour -1.0 must be at least 0"),
]


@pytest.mark.parametrize(
    ("name", "drop", "message"),
    [
        ("trips.csv", 4, "trips: the timetable is empty"),
        ("legs.csv", 2, "passengers row 2: has no leg"),
        ("service_stops.csv", 5, "services row 2 (back): needs at least two stops, has 1"),
    ],
)
def test_rows_that_are_missing_are_missed(hamlet: Path, name: str, drop: int, message: str) -> None:
    """`trips.csv` loses all its rows, `legs.csv` its second, the last service all but one stop."""
    lines = HAMLET[name].splitlines(keepends=True)
    kept = {
        "trips.csv": lines[:1],
        "legs.csv": lines[:drop] + lines[drop + 1 :],
        "service_stops.csv": lines[:drop],
    }[name]
    (hamlet / name).write_text("".join(kept))
    seal(hamlet)
    assert refusal(hamlet) == message


CANNOT_BE = [
    ("service_stops.csv", 2, 3, "700.0", "service"),
    ("legs.csv", 1, 4, "out out", "legs.csv row 1"),
    ("car_routes.csv", 2, 1, "C-B Q-R", "car_routes row 2"),
    ("car_routes.csv", 2, 1, "C-B C-D", "car_routes row 2"),
    ("trips.csv", 2, 0, "out.0", "trips row 2"),
]


UNUSABLE = [
    ("car_volumes.csv", 1, 0, "1", "car_volumes.csv row 1: hour 1 must be 0"),
    ("nodes.csv", 2, 3, "1000", "nodes.csv row 2: signal 1000 must be a whole number from 0 to 1"),
    ("services.csv", 2, 1, "", "services.csv row 2: route_id '' must be 1 to 100 printable"),
    *(
        ("trips.csv", 4, 0, value, f"trips.csv row 4: trip_id {value!r} must be 1 to 100 printable")
        for value in (*(f"a{sign}b" for sign in "/\\|;,'\"<>&"), ":a", "!a", "a..b", "a" * 101)
    ),
    ("trips.csv", 4, 0, "car7", "trips.csv row 4: trip_id 'car7' is an id of our cars"),
    *(
        ("trips.csv", 4, 0, value, "trips row 4: ")
        for value in ("", "a b", "a\x00b", "\x00", "a\tb")
    ),
]


def test_each_column_has_a_range() -> None:
    assert {name: tuple(RANGES[name]) for name in COLUMNS} == COLUMNS
    assert {name: ",".join(COLUMNS[name]) for name in HAMLET} == {
        name: text.split("\n")[0] for name, text in HAMLET.items()
    }
    vehicle = {f"vehicle.{key}" for key in MANIFEST["vehicle"]}
    assert set(RANGES["manifest.json"]) == {"name", "horizon_s"} | vehicle


def test_routes_that_no_car_takes_are_refused(hamlet: Path) -> None:
    (hamlet / "car_routes.csv").write_text("weight,roads\n0,A-B B-C\n0.0,C-B B-A\n")
    seal(hamlet)
    assert refusal(hamlet).startswith("car_routes.csv row 1: weight is 0 in every row")


@pytest.mark.parametrize("service", ["c0", "ANY"])
def test_a_service_that_sumo_would_take_for_another_is_refused(hamlet: Path, service: str) -> None:
    for name in ("services.csv", "service_stops.csv", "trips.csv", "legs.csv"):
        text = HAMLET[name].replace("out,", f"{service},").replace(",out\n", f",{service}\n")
        (hamlet / name).write_text(text)
    seal(hamlet)
    assert refusal(hamlet).startswith(f"services.csv row 1: service_id {service!r} is an")


@pytest.mark.parametrize(
    "name", ["id:1:2", "Zoë", "a-b_c.d", "a!", "x(1)", "4711", "München-Hbf", "a=b@c#d%e$f*g"]
)
def test_ids_that_sumo_reads_are_accepted(hamlet: Path, name: str) -> None:
    (hamlet / "trips.csv").write_text(with_cell("trips.csv", 4, 0, name), encoding="utf-8")
    seal(hamlet)
    assert load_city(hamlet).trips[3].id == name


@pytest.mark.parametrize("name", HAMLET)
def test_a_byte_order_mark_is_accepted(hamlet: Path, name: str) -> None:
    before = digest(load_city(hamlet))
    (hamlet / name).write_bytes(b"\xef\xbb\xbf" + HAMLET[name].encode())
    assert digest(seal_city(hamlet)) == digest(load_city(hamlet)) == before


@pytest.mark.parametrize(
    ("name", "row", "column", "value", "message"), [*CORRUPTIONS, *CANNOT_BE, *UNUSABLE]
)
def test_a_wrong_value_is_told_with_file_and_row(
    hamlet: Path, name: str, row: int, column: int, value: str, message: str
) -> None:
    (hamlet / name).write_text(with_cell(name, row, column, value))
    seal(hamlet)
    assert refusal(hamlet).startswith(message)


def test_an_id_of_two_lines_is_told_in_one(hamlet: Path) -> None:
    rows = with_cell("trips.csv", 4, 0, "back\n1").replace(",400\n", ",59\n")
    (hamlet / "trips.csv").write_text(rows)
    seal(hamlet)
    assert refusal(hamlet).startswith("trips row 4")


def test_a_folder_of_one_letter_is_named_too(hamlet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hamlet / "trips.csv").write_text(with_cell("trips.csv", 4, 2, "59"))
    seal(hamlet)
    monkeypatch.chdir(hamlet.parent)
    hamlet.rename("t")
    with pytest.raises(InputError, match=r"^t: trips row 4"):
        load_city(Path("t"))


# -- what nobody thought of -----------------------------------------------------------------------


def survives(folder: Path) -> City | None:
    """A folder either is a city, which then comes back from disk, or is refused in one line."""
    try:
        city = load_city(folder)
    except InputError:
        assert refusal(folder)
        return None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)  # nothing here must outlive the test
        save_city(city, folder.parent / "again")
    assert digest(load_city(folder.parent / "again")) == digest(city)
    return city


edits = st.lists(
    st.tuples(
        st.sampled_from(sorted(HAMLET)),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["replace", "insert", "delete", "cut"]),
        st.one_of(st.sampled_from(b'0123456789,.-" \n\r\x00'), st.integers(0, 255)),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=300)
@given(edits)
def test_random_edits_of_sealed_tables_never_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, float, str, int]]
) -> None:
    tables = {name: text.encode() for name, text in HAMLET.items()}
    for name, place, kind, byte in edits:
        old, at = tables[name], int(place * len(tables[name]))
        tables[name] = {
            "replace": old[:at] + bytes([byte]) + old[at + 1 :],
            "insert": old[:at] + bytes([byte]) + old[at:],
            "delete": old[:at] + old[at + 1 :],
            "cut": old[:at],
        }[kind]
    folder = tmp_path_factory.mktemp("fuzz")
    city = survives(write_hamlet(folder / "x", tables))
    shutil.rmtree(folder)
    untouched = {name: text.encode() for name, text in HAMLET.items()}
    assert city is not None or tables != untouched, "only an edit can make a city unreadable"
