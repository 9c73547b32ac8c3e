"""The commands for records of real buses, on the smallest records there are."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from door import Door
from evenline.runs.executors import ONE_THREAD
from tides_folder import TRIPS, VISITS, write_tides


def test_a_check_prints_a_table_or_only_json(evenline: Door, tmp_path: Path) -> None:
    write_tides(tmp_path)
    assert "6, of which 6 can be used" in evenline("city", "check", tmp_path).done()
    found = json.loads(evenline("city", "check", tmp_path, "--json").done())
    assert found["days"] == ["2026-03-02"] and found["visits"] == 6


def test_a_city_of_records_says_what_it_was_fitted_to(evenline: Door, tmp_path: Path) -> None:
    records, city = write_tides(tmp_path / "records"), tmp_path / "tiny"
    made = evenline("city", "import", "records", records, "--hours", "7-9", "--out", city).done()
    assert "1 services, 2 trips, 3 stops" in made and made.strip().endswith(str(city))
    assert "left out" not in made.replace("0 visits follow no service and are left out", "")
    note = "fitted to records of records, 2026-03-02; not yet judged"
    assert note in made
    shown = evenline("city", "check", city).done()
    assert note in shown and "boarding_s_per_passenger" in shown
    audit = ("city", "judge", city, "--records", records, "--days", "2026-03-02")
    evenline(*audit).refused("2026-03-02", "the city was fitted to it")
    evenline("city", "import", "records", records, "--routes", "9", "--out", city).refused("'9'")
    evenline("city", "judge", city, "--records", records).refused(
        "--records and --days go together"
    )


@pytest.mark.parametrize("name", ["[red]8613[/blink]", "8613[red]", "\x1b[31mred"])
def test_names_in_records_reach_the_terminal_as_text(
    evenline: Door, tmp_path: Path, name: str
) -> None:
    folder, city = tmp_path / "records", tmp_path / "tiny"
    visits = VISITS.replace(",a,", f",{name},").replace(",Y,", f",{name},")
    trips = TRIPS.replace(",a,", f",{name},").replace(",1,0\n", f",{name},0\n")
    records = write_tides(folder, stop_visits=visits, trips_performed=trips)
    shown = name.replace("\x1b", "\\x1b")
    for command in (
        ("city", "check", records),
        ("city", "import", "records", records, "--hours", "7-9", "--out", city),
        ("city", "check", city),
    ):
        said = evenline(*command)
        assert said.code == 0, said
        assert (said.out + said.err).replace("\n", "").isprintable()
    assert shown in evenline("city", "check", records).done()
    spoilt = VISITS.replace("2026-03-02,a,1", f"{name},a,1")
    write_tides(folder, stop_visits=spoilt)
    assert evenline("city", "check", records).refused(shown).strip().isprintable()


def test_an_import_says_which_trips_it_leaves_out(evenline: Door, tmp_path: Path) -> None:
    """A trip later in the day, one without times, and one that drives another way."""
    rows, visits = [TRIPS, "2026-03-02,d,7,s4,1,0\n"], [VISITS]
    for trip, hour in (("e", "08"), ("late", "11")):
        rows.append(f"2026-03-02,{trip},7,s5,1,0\n")
        for order, stop in enumerate("XYZ" if trip == "late" else "ZW", 1):
            at = f"2026-03-02T{hour}:3{order}:00+01:00"
            visits.append(f"2026-03-02,{trip},{order},{stop},{at},,1,1,1\n")
    for extra in range(60):  # the usual way, so that the other one is rare
        rows.append(f"2026-03-02,x{extra},7,s6,1,0\n")
        for order, stop in enumerate("XYZ", 1):
            at = f"2026-03-02T07:{extra:02d}:{10 * order}+01:00"
            visits.append(f"2026-03-02,x{extra},{order},{stop},{at},,1,1,1\n")
    tables = {
        "trips_performed": "".join(rows),
        "stop_visits": "".join(visits),
        "stops": "stop_id\n",
    }
    records, city = write_tides(tmp_path / "records", **tables), tmp_path / "tiny"
    made = evenline("city", "import", "records", records, "--hours", "7-9", "--out", city).done()
    for reason in ("have no two usable visits", "begin outside the hours", "follow no service"):
        assert f"left out: 1 of the recorded trips, which {reason}" in made


@pytest.mark.parametrize("stops", ["stop_id\n", "stop_id,stop_lat,stop_lon\nX,46.2,6.1\n"])
def test_records_whose_times_are_all_equal_are_refused(
    evenline: Door, tmp_path: Path, stops: str
) -> None:
    at = "2026-03-02T08:00:00+01:00"
    equal = re.sub(r"2026-03-02T[0-9:+]+,(2026-03-02T[0-9:+]+)?", f"{at},{at}", VISITS)
    records = write_tides(tmp_path / "records", stop_visits=equal, stops=stops)
    assert "stopped clock" in evenline("city", "check", records, "--json").done()
    command = ("city", "import", "records", records, "--hours", "7-9", "--out", tmp_path / "city")
    evenline(*command).refused("two visits")
    two = "".join(line for line in equal.splitlines(True) if ",2,Y," not in line)
    write_tides(tmp_path / "records", stop_visits=two, stops=stops)
    evenline(*command).refused("no trip takes any time")


def test_small_records_are_read_with_little_memory(tmp_path: Path) -> None:
    """Room for the largest table that may be was taken for every table."""
    records, most = write_tides(tmp_path), 3 * 2**30
    command = [sys.executable, "-m", "evenline", "city", "check", str(records)]
    done = subprocess.run(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
        env=os.environ | ONE_THREAD,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "6, of which 6 can be used" in done.stdout, done.stderr


def test_a_billion_boardings_are_taken_as_missing(evenline: Door, tmp_path: Path) -> None:
    many = VISITS.replace(",3,0,3\n", ",1000000000,0,3\n")
    records, city = write_tides(tmp_path / "records", stop_visits=many), tmp_path / "tiny"
    made = evenline("city", "import", "records", records, "--hours", "7-9", "--out", city).done()
    assert "impossible count: 1 of 6 visits, taken as missing" in made
