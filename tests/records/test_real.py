"""Real records, where they are: what buses of two cities recorded is read and fitted."""

from pathlib import Path

import pytest

from evenline.experiments.records import days_of, hours_of, import_records
from evenline.records.build import patterns_of
from evenline.records.check import check_folder
from evenline.support.errors import InputError

DATA = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real records are not at {DATA}")


@real
def test_geneva_is_read_with_what_is_wrong() -> None:
    found = check_folder(DATA / "geneva")
    assert (found.visits, len(found.routes), len(found.days)) == (235_580, 12, 3)
    assert found.usable > 0.999 * found.visits
    assert found.missing["departure_s"] == 1.0
    assert {"standstill", "impossible speed", "load that drifts"} <= {
        p.name for p in found.problems
    }


@real
def test_the_times_of_geneva_turn_out_to_be_departures(tmp_path: Path) -> None:
    made = import_records(
        DATA / "geneva", "21", "7-12", "2012-10-01..02", tmp_path / "geneva", "geneva"
    )
    assert made.fitted.doors.stamp == "departure"
    doors = made.fitted.doors
    assert 0.1 < doors.alighting_s < doors.boarding_s < 2.0, "many doors: less than a second each"
    assert 2.0 < doors.opening_s < 10.0, "to brake, open, close and pull out"
    assert len(made.fitted.city.services) == 2
    assert patterns_of(made.fitted.city, made.records)[0].line.route == "21"


@real
def test_chicago_has_schedules_and_arrivals(tmp_path: Path) -> None:
    made = import_records(DATA / "chicago-20", "", "5-11", "2019-09-03", tmp_path / "c", "c")
    assert made.fitted.doors.stamp == "arrival"
    doors = made.fitted.doors
    assert 3.0 < doors.boarding_s < 4.5 and 1.0 < doors.alighting_s < 2.0, "people pay at one door"
    assert made.fitted.city.operations.duties, "blocks are recorded"
    assert 0 <= made.fitted.city.operations.recovery_s < 60
    assert any("the timetable is the schedule" in note for note in made.fitted.city.notes)


KNOWN = ("2012-10-01", "2012-10-02", "2012-10-03")


def test_days_and_hours_are_read_as_people_write_them() -> None:
    assert days_of("2012-10-01..03", KNOWN) == KNOWN
    assert days_of("2012-10-03, 2012-10-01", KNOWN) == ("2012-10-03", "2012-10-01")
    assert days_of("", KNOWN) == KNOWN
    assert hours_of("6-20") == (6, 20)


@pytest.mark.parametrize("text", ["2012-10-04", "2012-10..", "x", "2012-10-05..07", ","])
def test_other_days_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="day"):
        days_of(text, KNOWN)


@pytest.mark.parametrize("text", ["", "6", "20-6", "6-99", "a-b", "-1-5"])
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="hours"):
        hours_of(text)
