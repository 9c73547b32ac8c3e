"""Reading TIDES tables: formats, types, and one line for what is malformed."""

import zipfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from evenline.records.check import check_folder
from evenline.records.read import open_records
from evenline.records.tides import NAMES, fields_of, read_folder
from evenline.support.errors import InputError
from tides_folder import TABLES, TRIPS, VISITS, write_tides


def test_csv_gzip_and_parquet_hold_the_same(tmp_path: Path) -> None:
    plain = read_folder(write_tides(tmp_path / "plain"))
    packed = read_folder(write_tides(tmp_path / "packed", packed=True))
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    for name in TABLES:
        typed = pa_csv.read_csv(tmp_path / "plain" / name)  # dates and times become Arrow's own
        pq.write_table(typed, parquet / name.replace(".csv", ".parquet"))
    columns = read_folder(parquet)
    for name, table in plain.items():
        assert packed[name].columns.keys() == table.columns.keys()
        for column, values in table.columns.items():
            np.testing.assert_array_equal(packed[name].columns[column], values)
            if not column.endswith(("_time", "_timestamp")):  # Arrow turns those to UTC
                found = columns[name].columns[column]
                assert [str(each) for each in found] == [str(each) for each in values]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_times_in_utc_are_said(form: str, tmp_path: Path) -> None:
    utc = VISITS.replace("+01:00", "Z" if form == "csv" else "+01:00")
    folder = write_tides(tmp_path, stop_visits=utc)
    if form == "parquet":
        typed = pa_csv.read_csv(folder / "stop_visits.csv")  # Arrow turns times to UTC
        pq.write_table(typed, folder / "stop_visits.parquet")
        (folder / "stop_visits.csv").unlink()
    _, found = open_records(folder)
    said = next(each for each in found if each.name == "times in UTC")
    assert "stop_visits" in said.wrong and said.count == 6 and "local offset" in said.done
    assert said in check_folder(folder).problems
    _, found = open_records(write_tides(tmp_path / "local"))
    assert not any(each.name == "times in UTC" for each in found)


@pytest.mark.parametrize(("zone", "hour"), [("Europe/Zurich", 9), ("America/Chicago", 2)])
def test_times_in_utc_are_turned_to_the_time_zone_of_the_feed(
    zone: str, hour: int, tmp_path: Path
) -> None:
    folder = write_tides(tmp_path, stop_visits=VISITS.replace("+01:00", "Z"))
    agency = f"agency_name,agency_url,agency_timezone\nA,http://a,{zone}\n"
    with zipfile.ZipFile(folder / "gtfs.zip", "w") as feed:
        feed.writestr("agency.txt", agency)
        feed.writestr("trips.txt", "route_id,service_id,trip_id\n")
        feed.writestr("stop_times.txt", "trip_id,stop_id,stop_sequence\n")
    records, found = open_records(folder)
    assert records.visits.arrival_s[0] == hour * 3600
    said = next(each for each in found if each.name == "times in UTC")
    assert zone in said.done and said in check_folder(folder).problems
    with zipfile.ZipFile(folder / "gtfs.zip", "w") as feed:
        feed.writestr("agency.txt", agency.replace(zone, "Europe/Nowhere"))
    with pytest.raises(InputError, match="there is no time zone 'Europe/Nowhere'"):
        open_records(folder)


def test_a_time_counts_from_the_midnight_of_its_own_clock(tmp_path: Path) -> None:
    records, _ = open_records(write_tides(tmp_path))
    assert records.visits.arrival_s[0] == 8 * 3600
    after_midnight = VISITS.replace("2026-03-02T08:15:00", "2026-03-03T00:15:00")
    late = after_midnight.replace("08:12", "23:58").replace("08:10", "23:56")
    records, _ = open_records(write_tides(tmp_path, stop_visits=late))
    assert records.visits.arrival_s[-1] == 24.25 * 3600


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert (
        read_folder(write_tides(tmp_path, stop_visits="\ufeff" + VISITS))["stop_visits"].rows == 6
    )


def test_every_schema_names_its_keys() -> None:
    for name in NAMES:
        required = {field.name for field in fields_of(name) if field.required}
        assert required & {"trip_id_performed", "passenger_event_id", "location_ping_id"}


MALFORMED = {
    "a date": ("2026-03-02,a,1", "2026-13-02,a,1", "row 2: service_date '2026-13-02'"),
    "no date": ("2026-03-02,a,1", ",a,1", "row 2: has no service_date"),
    "a time": ("2026-03-02T08:02:00+01:00", "8 o'clock", "row 3: actual_arrival_time"),
    "a date before records": (
        "2026-03-02,a,1",
        "0000-01-01,a,1",
        "row 2: service_date '0000-01-01'",
    ),
    "a time before records": ("2026-03-02T08:00:00", "0000-01-01T08:00:00", "1900 to 2199"),
    "an offset that cannot be": ("08:02:00+01:00", "08:02:00+99:99", "row 3: actual_arrival_time"),
    "an offset of elsewhere": ("08:02:00+01:00", "08:02:00+05:00", "+05:00 from UTC, but most"),
    "a day of no month": ("2026-03-02T08:02:00", "2026-02-30T08:02:00", "row 3: actual_arrival"),
    "a count": (",1,1,3\n", ",one,1,3\n", "row 3: boarding_1 'one' is not a number"),
    "half a person": (",1,1,3\n", ",1.5,1,3\n", "boarding_1 '1.5' is not a whole number"),
    "an infinite count": (",1,1,3\n", ",1e999,1,3\n", "row 3: boarding_1"),
    "too many values": (",1,1,3\n", ",1,1,3,4\n", "cannot be read as a table"),
    "no column": ("trip_stop_sequence", "sequence", "no column trip_stop_sequence"),
    "a column twice": ("departure_load", "stop_id", "column stop_id appears twice"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    before, after, said = MALFORMED[name]
    write_tides(tmp_path, stop_visits=VISITS.replace(before, after, 1))
    with pytest.raises(InputError) as refused:
        open_records(tmp_path)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert "stop_visits.csv" in str(refused.value)


def test_a_folder_without_visits_or_with_two_forms_of_them_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "none")
    write_tides(tmp_path)
    (tmp_path / "stop_visits.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match="keep one of them"):
        read_folder(tmp_path)
    (tmp_path / "stop_visits.csv").unlink()
    with pytest.raises(InputError, match=r"stop_visits.csv.gz: cannot be read"):
        read_folder(tmp_path)
    (tmp_path / "stop_visits.csv.gz").unlink()
    with pytest.raises(InputError, match="has no stop_visits table"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["stop_visits", "trips_performed"])
def test_a_needed_table_without_rows_is_refused(name: str, tmp_path: Path) -> None:
    head = TABLES[f"{name}.csv"].splitlines(True)[0]
    folder = write_tides(tmp_path, **{name: head})
    for read in (check_folder, open_records):
        with pytest.raises(InputError, match=rf"{name}.csv: has no row below the names"):
            read(folder)


def test_other_tables_may_have_no_rows(tmp_path: Path) -> None:
    others = [name.removesuffix(".csv") for name in TABLES]
    heads = {name: TABLES[f"{name}.csv"].splitlines(True)[0] for name in others[2:]}
    assert check_folder(write_tides(tmp_path, **heads)).usable == 6


@pytest.mark.parametrize("name", ["stops.csv", "stop_visits.csv", "gtfs.zip"])
def test_no_file_outside_the_folder_is_read_or_quoted(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("user,password\nroot,hunter2,x\n")
    folder = write_tides(tmp_path / "records")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../secret")
    for read in (check_folder, open_records):
        with pytest.raises(InputError, match=f"{name}: is a link to a file outside") as refused:
            read(folder)
        assert "hunter2" not in str(refused.value) and "password" not in str(refused.value)


# -- the night in which the clock changes ---------------------------------------------------------

SPRING, AUTUMN = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)


def night(change: datetime, before: int, after: int) -> tuple[str, str]:
    """Trips of the evening before and of the night; times with the offset of their moment."""
    visits, trips = [VISITS.splitlines(True)[0]], [TRIPS.splitlines(True)[0]]
    date = (change - timedelta(days=1)).date()
    for number in range(20):
        trips.append(f"{date},t{number},7,s{number},1,0\n")
        for order, stop in enumerate("XYZ", 1):
            at = change + timedelta(minutes=30 * number - 480 + 8 * order)
            hours = before if at < change else after
            local = at.astimezone(timezone(timedelta(hours=hours)))
            visits.append(f"{date},t{number},{order},{stop},{local.isoformat()},,1,1,1\n")
    return "".join(visits), "".join(trips)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(("change", "before", "after"), [(SPRING, 1, 2), (AUTUMN, 2, 1)])
def test_no_time_goes_back_in_the_night_of_a_change_of_clock(
    change: datetime, before: int, after: int, form: str, tmp_path: Path
) -> None:
    visits, trips = night(change, before, after)
    folder = write_tides(tmp_path, stop_visits=visits, trips_performed=trips)
    if form == "parquet":  # one zone for the whole column, whose offset changes in that night
        typed = pa_csv.read_csv(folder / "stop_visits.csv")
        zoned = typed["actual_arrival_time"].cast(pa.timestamp("s", "Europe/Zurich"))
        place = typed.column_names.index("actual_arrival_time")
        pq.write_table(
            typed.set_column(place, "actual_arrival_time", zoned), folder / "stop_visits.parquet"
        )
        (folder / "stop_visits.csv").unlink()
    records, found = open_records(folder)
    assert len(records.visits) == 60, "every visit is used"
    assert np.diff(records.visits.arrival_s.reshape(20, 3)).tolist() == [[480, 480]] * 20
    assert np.diff(records.visits.arrival_s[::3]).tolist() == [1800] * 19
    assert records.visits.arrival_s[0] == (1 + before - 8) % 24 * 3600 + 480
    said = next(each for each in found if each.name == "change of clock")
    assert said.count == 12 and said in check_folder(folder).problems


@pytest.mark.parametrize("change", [SPRING, AUTUMN])
def test_a_night_in_utc_is_turned_by_the_zone_without_going_back(
    change: datetime, tmp_path: Path
) -> None:
    visits, trips = night(change, 0, 0)
    folder = write_tides(tmp_path, stop_visits=visits, trips_performed=trips)
    with zipfile.ZipFile(folder / "gtfs.zip", "w") as feed:
        feed.writestr("agency.txt", "agency_name,agency_url,agency_timezone\nA,a,Europe/Zurich\n")
        feed.writestr("trips.txt", "route_id,service_id,trip_id\n")
        feed.writestr("stop_times.txt", "trip_id,stop_id,stop_sequence\n")
    records, _ = open_records(folder)
    assert np.diff(records.visits.arrival_s[::3]).tolist() == [1800] * 19


def test_a_clock_that_changes_there_and_back_is_refused(tmp_path: Path) -> None:
    early = VISITS.replace("T08:00:00+01:00", "T05:00:00+01:00", 1)
    folder = write_tides(tmp_path, stop_visits=early.replace("T08:02:00+01", "T08:02:00+02", 1))
    with pytest.raises(InputError, match=r"row 3: .* \+02:00 from UTC.*; write all by one clock"):
        open_records(folder)
