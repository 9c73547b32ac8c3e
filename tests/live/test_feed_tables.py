"""Recorded tables are played in the order of time, and a bad row is named."""

import gzip
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from evenline.city.model import City
from evenline.live.record import played
from evenline.live.shadow import Shadow
from evenline.live.tables import table_snapshots
from evenline.support.errors import InputError
from evenline.worlds.open import OpenCity
from on_the_road import Road

WMATA = Path(__file__).parents[3] / "shared" / "data" / "wmata" / "vehicle_positions.csv.gz"
REALTIME = """\
id,vehicle.trip.trip_id,vehicle.position.latitude,vehicle.position.longitude,vehicle.timestamp,\
vehicle.vehicle.id,vehicle.occupancy_status,vehicle.current_status
9,T1,38.9,-77.1,1000000008,9,2,1.0
7,T2,38.8,-77.2,1000000019,7,7,2.0
7,T2,38.7,-77.2,1000000001,7,,
9,T1,38.9,-77.1,1000000031,9,5,1.0
"""
TIDES = """\
location_ping_id,service_date,event_timestamp,trip_id_performed,trip_id_scheduled,vehicle_id,\
latitude,longitude,speed,current_status,scheduled_stop_sequence
1,2026-02-16,2026-02-16T12:00:00-05:00,T1-9,T1,9,38.9,-77.1,5.5,Stopped at,3
"""


def test_the_rows_of_an_interval_are_one_answer(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(REALTIME)
    first, second = table_snapshots(tmp_path / "t.csv", 30)
    assert [(p.vehicle, p.lat, p.occupied) for p in first.positions] == [
        ("7", 38.8, -1.0),
        ("9", 38.9, 0.4),
    ], "the last report of each vehicle"
    assert [p.at_s for p in second.positions] == [1000000031]
    assert first.at_s == 1000000020


def test_tides_locations_are_read(tmp_path: Path) -> None:
    (tmp_path / "vehicle_locations.csv").write_text(TIDES)
    (poll,) = played(tmp_path / "vehicle_locations.csv", 30)
    (position,) = poll.snapshot().positions
    assert position.trip == "T1" and position.date == "20260216" and position.sequence == 3
    assert position.status == 1 and position.speed_mps == 5.5
    assert position.at_s == 1771261200


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("38.8", "north", "row 3: could not convert"),
        ("38.8", "98.8", "row 3: not a possible report"),
        ("1000000019", "", "row 3: not a possible"),
        ("2.0", "2.5", "row 3: vehicle.current_status"),
        ("vehicle.timestamp", "time", "has neither the columns"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, old: str, new: str, word: str) -> None:
    (tmp_path / "t.csv").write_text(REALTIME.replace(old, new))
    with pytest.raises(InputError, match=word):
        list(table_snapshots(tmp_path / "t.csv", 30))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(REALTIME.encode())[:-9])
    with pytest.raises(InputError, match=r"t\.csv\.gz: cannot be read"):
        list(table_snapshots(tmp_path / "t.csv.gz", 30))


@pytest.mark.skipif(not WMATA.is_file(), reason="the recorded positions of WMATA are not here")
def test_a_real_recording_has_thirty_buses_in_three_hours() -> None:
    snapshots = list(table_snapshots(WMATA, 30))
    assert 355 <= len(snapshots) <= 361
    assert len({p.vehicle for s in snapshots for p in s.positions}) == 30


def test_a_recorded_day_in_tides_plays_to_events(tmp_path: Path, town: City) -> None:
    road, path = Road(town), tmp_path / "vehicle_locations.csv"
    rows = ["service_date,event_timestamp,trip_id_performed,trip_id_scheduled,vehicle_id,"
            "latitude,longitude"]  # fmt: skip
    for second in np.arange(0.0, 900.0, 20.0):
        for p in road.snapshot(float(second)).positions:
            moment = datetime.fromtimestamp(p.at_s, UTC).isoformat()
            rows.append(f"2026-01-01,{moment},run-{p.trip},{p.trip},{p.vehicle},{p.lat},{p.lon}")
    path.write_text("\n".join(rows))
    shadow = Shadow(OpenCity("town", town), "zero")
    for polled in played(path, 20.0):
        shadow.take(polled)
    assert set(shadow.situation.tracks.counts()) <= {"trip", "same"}
    seen = shadow.situation.seen_s
    due_s = np.concatenate(road.due_s)
    assert (seen >= 0).sum() > 60
    assert np.percentile(np.abs(seen - due_s)[seen >= 0], 95) < 15


def test_more_vehicles_than_a_message_may_have_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"{n},,45.0,0.1,1767247200,\n" for n in range(20_001))
    (tmp_path / "positions.csv").write_text(REALTIME.splitlines()[0] + "\n" + rows)
    with pytest.raises(InputError, match="over 20,000 vehicles within 15 s"):
        list(table_snapshots(tmp_path / "positions.csv", 15.0))
