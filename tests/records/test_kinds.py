"""Kinds of days are told apart by what ran, and no fit or audit mixes them without a word."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenline.experiments.records import audit_folder, audit_records, import_records
from evenline.records.check import check_folder
from evenline.records.kinds import _alike, kinds_of, kinds_text
from evenline.records.read import open_records
from evenline.support.errors import InputError
from evenline.worlds.open import open_city
from recorded_truth import DAYS, write_records
from tides_folder import TRIPS, VISITS, write_tides

MONDAY = date(2026, 3, 2)


def week(folder: Path, trips: list[int]) -> Path:
    """Records from a Monday on, with so many trips a day."""
    rows, visits = [TRIPS.splitlines(True)[0]], [VISITS.splitlines(True)[0]]
    for number, count in enumerate(trips):
        day = MONDAY + timedelta(days=number)
        for trip in range(count):
            rows.append(f"{day},{trip},7,s,1,{trip % 2}\n")
            second = 7 * 3600 + trip * 3600 // count
            for order, stop in enumerate("XYZ", 1):
                at = second + 200 * order
                clock = f"{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}"
                visits.append(f"{day},{trip},{order},{stop},{day}T{clock},,1,1,1\n")
    return write_tides(folder, trips_performed="".join(rows), stop_visits="".join(visits))


def kinds(folder: Path) -> list[str]:
    records, _ = open_records(folder)
    return list(kinds_of(records).values())


def test_a_week_has_weekdays_a_saturday_and_a_sunday(tmp_path: Path) -> None:
    folder = week(tmp_path, [60, 58, 61, 60, 59, 40, 30])
    assert kinds(folder) == ["weekday"] * 5 + ["Saturday", "Sunday"]
    assert list(check_folder(folder).kinds.values()) == kinds(folder)


def test_a_holiday_that_runs_like_a_sunday_is_one_and_is_said(tmp_path: Path) -> None:
    folder = week(tmp_path, [60, 58, 30, 60, 59, 40, 31])
    of_weekdays = ["weekday", "weekday", "Sunday", "weekday", "weekday"]
    assert kinds(folder) == [*of_weekdays, "Saturday", "Sunday"]
    assert "2026-03-04 (a weekday)" in kinds_text(check_folder(folder).kinds)


def test_a_weekday_unlike_the_others_is_another_kind(tmp_path: Path) -> None:
    assert kinds(week(tmp_path, [60, 20, 60])) == ["weekday", "weekday 2", "weekday"]


@given(st.integers(0, 2**32 - 1))
def test_trips_that_were_not_recorded_make_no_other_kind(seed: int) -> None:
    """Every twentieth trip is missing by chance, on each of ten lines."""
    rng = np.random.default_rng(seed)
    first, second = rng.binomial(40, 0.95, (2, 10)).astype(float)
    assert _alike({"2026-03-02": first, "2026-03-03": second}, "2026-03-02", "2026-03-03")


def test_a_fit_to_days_of_two_kinds_is_refused(tmp_path: Path) -> None:
    folder = week(tmp_path / "records", [60, 60, 60, 60, 60, 40, 30])
    with pytest.raises(InputError, match=r"fit: .*-06 .*\(weekday\) than .*-07 \(Saturday\)"):
        import_records(folder, "", "6-12", "2026-03-06..07", tmp_path / "city", "city")
    assert not (tmp_path / "city").exists()
    assert import_records(folder, "", "6-12", "2026-03-02..06", tmp_path / "city", "city")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A city fitted to two days; a third day lacks every other trip, as Sundays do."""
    folder = tmp_path_factory.mktemp("kinds")
    write_records(folder / "records")
    fitted_to = f"{DAYS[0]},{DAYS[1]}"
    import_records(folder / "records", "", "6-12", fitted_to, folder / "city", "city")
    return folder


def test_an_audit_on_a_day_of_another_kind_is_refused(fitted: Path, tmp_path: Path) -> None:
    for path in (fitted / "records").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    trips = (tmp_path / "trips_performed.csv").read_text().splitlines(True)
    fewer = [row for i, row in enumerate(trips) if i % 2 or not row.startswith(DAYS[3])]
    (tmp_path / "trips_performed.csv").write_text("".join(fewer))
    city, before = str(fitted / "city"), (fitted / "city" / "calibration.json").read_bytes()
    for days in (DAYS[3], f"{DAYS[2]},{DAYS[3]}"):
        with pytest.raises(InputError, match=r"audit of city: .*another kind"):
            audit_records(city, tmp_path, days, tmp_path / "audit")
    assert not (tmp_path / "audit").exists()
    assert (fitted / "city" / "calibration.json").read_bytes() == before


def test_the_verdict_of_every_audited_day_is_kept(fitted: Path) -> None:
    city, said = str(fitted / "city"), []
    for day in (DAYS[3], DAYS[2], DAYS[3]):
        audit = audit_records(city, fitted / "records", day, fitted / day)
        said.append(audit.said)
    note = open_city(city).notes("fast")[-1]
    assert note.count(said[0]) == note.count(said[1]) == 1 and said[0] == said[2]
    assert note.index(DAYS[2]) < note.index(DAYS[3]) and "not yet judged" not in note
    assert sum(said[0] in each for each in open_city(city).notes("fast")) == 1


def test_audits_of_other_days_go_to_folders_of_their_own() -> None:
    folders = [audit_folder("a", days) for days in (DAYS[:1], DAYS[1:2], DAYS[:2], DAYS[:3])]
    assert len(set(folders)) == 4 and folders[0].name == f"audit-a-{DAYS[0]}"
