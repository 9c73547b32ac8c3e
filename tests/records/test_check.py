"""The check of records: each problem is found, counted, shown and dealt with by a named rule."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenline.records.check import check_folder
from evenline.records.clean import RULES, Problem, _longest_rise
from evenline.records.read import open_records
from evenline.support.errors import InputError
from tides_folder import LOCATIONS, TRIPS, VISITS, write_tides

A2 = "2026-03-02,a,2,Y,2026-03-02T08:02:00+01:00,2026-03-02T08:02:10+01:00,1,1,3\n"


def problems(folder: Path) -> dict[str, Problem]:
    return {found.name: found for found in check_folder(folder).problems}


def test_sound_records_have_no_problem_of_visits(tmp_path: Path) -> None:
    found = check_folder(write_tides(tmp_path))
    assert {each.name for each in found.problems} == {"impossible speed of a vehicle"}
    assert (found.days, found.routes, found.visits, found.usable) == (("2026-03-02",), ("1",), 6, 6)
    assert (found.boarded, found.alighted) == (6, 6)
    assert found.missing["departure_s"] == pytest.approx(1 / 3, abs=1e-4)


SPOILT = {  # the rule: what is written instead of the second visit, and how many visits remain
    "repeated visit": (A2 + A2, 6),
    "unknown trip": (A2.replace(",a,", ",nobody,"), 5),
    "unknown stop": (A2.replace(",Y,", ",,"), 5),
    "negative count": (A2.replace(",1,1,3", ",-1,1,3"), 6),
    "impossible count": (A2.replace(",1,1,3", ",1000000000,1,3"), 6),
    "no arrival time": (A2.replace("2026-03-02T08:02:00+01:00,", ",", 1), 6),
    "no time": ("2026-03-02,a,2,Y,,,1,1,3\n", 5),
    "time of another day": (A2.replace("02T08:02:00", "09T08:02:00"), 5),
    "departure before arrival": (A2.replace("08:02:10", "08:01:10"), 6),
    "visit out of order": (A2.replace("08:02", "07:59"), 5),
    "standstill": (A2.replace("08:02", "07:20").replace(",a,2", ",a,0"), 5),
    "impossible speed": (A2.replace("08:02:00", "08:00:05"), 5),
}


@pytest.mark.parametrize("rule", SPOILT)
def test_a_rule_finds_its_problem_and_says_where(rule: str, tmp_path: Path) -> None:
    text, remain = SPOILT[rule]
    found = check_folder(write_tides(tmp_path, stop_visits=VISITS.replace(A2, text)))
    problem = {each.name: each for each in found.problems}[rule]
    assert problem.count == 1 and problem.example.startswith("row ")
    assert found.usable == remain


def test_every_rule_is_tried() -> None:
    others = {"lone visit", "dwell that disagrees", "stopped clock"}
    assert {rule.name for rule in RULES} - others == set(SPOILT)


def test_a_lone_visit_is_left_out(tmp_path: Path) -> None:
    found = check_folder(write_tides(tmp_path, stop_visits="".join(VISITS.splitlines(True)[:5])))
    assert found.usable == 3


def test_counts_that_do_not_add_up_are_said(tmp_path: Path) -> None:
    spoilt = VISITS.replace(",0,3,0\n", ",0,9,0\n").replace(",1,1,3\n", ",1,1,5\n")
    found = problems(write_tides(tmp_path, stop_visits=spoilt))
    assert found["boardings against alightings"].count == 1
    assert found["load that drifts"].count == 2


def test_trips_that_are_repeated_or_were_not_seen_are_said(tmp_path: Path) -> None:
    row = TRIPS.splitlines(True)[1]
    found = problems(write_tides(tmp_path, trips_performed=TRIPS + row + row.replace("a,7", "c,7")))
    assert found["repeated trip"].example == "a" and found["trip without visits"].example == "c"


def test_counts_come_from_passenger_events_where_visits_have_none(tmp_path: Path) -> None:
    lines = [line.split(",") for line in VISITS.splitlines()]
    bare = "".join(",".join([*line[:6], *line[8:]]) + "\n" for line in lines)
    records, _ = open_records(write_tides(tmp_path, stop_visits=bare))
    assert records.visits.boarded[:3].tolist() == [3, 0, 0]
    assert records.visits.alighted[:3].tolist() == [0, 0, 3]
    assert np.isnan(records.visits.boarded[3:]).all(), "nobody was counted on the other trip"


def test_an_event_counts_where_a_single_visit_has_no_count(tmp_path: Path) -> None:
    spoilt = VISITS.replace("+01:00,3,0,3\n", "+01:00,,0,3\n", 1)
    records, _ = open_records(write_tides(tmp_path, stop_visits=spoilt))
    assert records.visits.boarded.tolist() == [3, 1, 0, 2, 0, 0]


def test_a_dwell_that_contradicts_the_times_is_said_and_not_used(tmp_path: Path) -> None:
    lines = VISITS.splitlines()
    dwells = (251, 10, 0, 20, 10, 0)
    rows = [f"{line},{dwell}" for line, dwell in zip(lines[1:], dwells, strict=True)]
    text = "\n".join([f"{lines[0]},dwell", *rows]) + "\n"
    folder = write_tides(tmp_path, stop_visits=text)
    found = problems(folder)["dwell that disagrees"]
    assert found.count == 1 and "row 2" in found.example
    records, _ = open_records(folder)
    assert np.isnan(records.visits.dwell_s[0]) and records.visits.departure_s[0] == 8 * 3600 + 20


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_the_longest_rise_never_falls_and_none_is_longer(times: list[int]) -> None:
    marked = _longest_rise(np.array(times, float))
    kept = np.array(times)[marked]
    assert (np.diff(kept) >= 0).all()
    best = [1] * len(times)
    for i in range(len(times)):
        best[i] = 1 + max((best[j] for j in range(i) if times[j] <= times[i]), default=0)
    assert len(kept) == max(best)


def test_jumps_of_vehicles_are_said(tmp_path: Path) -> None:
    rows = LOCATIONS + (
        "3,2026-03-02,2026-03-02T08:00:20+01:00,7,46.2,6.1,3\n"
        "4,2026-03-02,2026-03-02T08:01:20+01:00,7,46.3,6.1,3\n"
        "5,2026-03-02,2026-03-02T07:00:00+01:00,8,46.9,6.1,3\n"
    )
    found = problems(write_tides(tmp_path, vehicle_locations=rows))
    assert found["clock jump of a vehicle"].example == "row 4"
    assert found["position jump of a vehicle"].example == "row 5"
    assert found["position jump of a vehicle"].count == found["clock jump of a vehicle"].count == 1


FEED = {
    "trips.txt": "trip_id,route_id,service_id,block_id\ns1,1,d,b7\ns2,1,d,b7\n",
    "stop_times.txt": "trip_id,stop_id,stop_sequence,arrival_time,departure_time\n"
    "s1,X,1,08:00:00,08:00:00\ns1,Y,2,,\ns1,Z,3,08:05:30,08:05:30\n"
    "s2,X,1,08:10:00,08:10:00\n",
}


def write_feed(folder: Path, **changed: str) -> None:
    with zipfile.ZipFile(folder / "gtfs.zip", "w") as feed:
        for name, text in FEED.items():
            feed.writestr(name, changed.get(name.removesuffix(".txt"), text))


def test_a_feed_beside_the_records_fills_in_times_and_blocks(tmp_path: Path) -> None:
    folder = write_tides(tmp_path)
    write_feed(folder)
    records, found = open_records(folder)
    due = records.visits.due_s
    assert (due[0], due[2], due[3]) == (8 * 3600, 8 * 3600 + 330, 8 * 3600 + 600)
    assert np.isnan(due[[1, 4, 5]]).all() and records.trips.block.tolist() == ["b7", "b7"]
    assert any("3 filled in from gtfs.zip" in each.done for each in found)
    assert "gtfs.zip" in records.hashes
    write_feed(folder, stop_times=FEED["stop_times.txt"].replace("08:05:30", "late", 1))
    with pytest.raises(InputError, match="row 4"):
        open_records(folder)


def test_a_trip_whose_clock_stopped_is_left_out(tmp_path: Path) -> None:
    stopped = re.sub(r"(,b,.*?T08:1)\d:\d\d", r"\g<1>0:00", VISITS)
    stopped = re.sub(r"T08:1\d:10", "T08:10:00", stopped)
    folder = write_tides(tmp_path, stop_visits=stopped)
    assert problems(folder)["stopped clock"].count == 3
    assert check_folder(folder).usable == 3


def test_a_count_that_no_bus_can_have_becomes_no_people(tmp_path: Path) -> None:
    """A number above the limit of a bus is taken as missing, and the rest of the row counts."""
    folder = write_tides(tmp_path, stop_visits=VISITS.replace(",3,0,3\n", ",1000000000,0,3\n"))
    records, _ = open_records(folder)
    assert np.isnan(records.visits.boarded[0]) and records.visits.load[0] == 3
