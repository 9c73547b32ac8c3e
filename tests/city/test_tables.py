"""A city on disk: what is written is read back, and an edit counts once it has been sealed."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenline.city.embedded import embedded_city
from evenline.city.model import Node, Road, Service, Stop, Trip
from evenline.city.tables import digest, load_city, open_city, save_city, seal_city
from evenline.support.errors import InputError
from hamlet import HAMLET, refusal, with_cell


@pytest.mark.parametrize("name", ["city", "town"])
def test_a_city_comes_back_from_disk_as_it_was(name: str, tmp_path: Path) -> None:
    city = embedded_city(name)
    save_city(city, tmp_path / "saved")
    again = load_city(tmp_path / "saved")
    assert digest(again) == digest(city)
    for field in ("name", "horizon_s", "vehicle", "nodes", "roads", "stops", "services", "trips"):
        assert getattr(again, field) == getattr(city, field)
    assert again.traffic == city.traffic and again.journeys.carriers == city.journeys.carriers
    for column in ("departure_s", "min_demand", "leg_start", "leg_board", "leg_alight"):
        ours, theirs = getattr(again.journeys, column), getattr(city.journeys, column)
        assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()
    assert again.journeys.leg_carriers.tolist() == city.journeys.leg_carriers.tolist()


def test_doors_are_written_only_where_a_bus_type_has_them(tmp_path: Path) -> None:
    city = embedded_city("town")
    for doors in ({"alighting_s_per_passenger": 0.0}, {"opening_s": 2.5}):
        own = replace(city, vehicle=replace(city.vehicle, **doors))  # type: ignore[arg-type]
        save_city(own, tmp_path / "saved")
        assert load_city(tmp_path / "saved").vehicle == own.vehicle
        written = json.loads((tmp_path / "saved" / "manifest.json").read_text())["vehicle"]
        assert written.items() >= doors.items() and len(written) == 8
    further = replace(city, more_vehicles=(replace(city.vehicle, opening_s=2.5),))
    with pytest.raises(InputError, match="only the bus type of the manifest may have opening_s"):
        save_city(further, tmp_path / "saved")


def test_the_same_city_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    city = embedded_city("town")
    for name in ("one", "two"):
        save_city(city, tmp_path / name)
    save_city(load_city(tmp_path / "one"), tmp_path / "two")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted([*HAMLET, "manifest.json"])
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_digest_is_the_sha256_of_the_manifest(tmp_path: Path) -> None:
    city = embedded_city("town")
    save_city(city, tmp_path / "saved")
    manifest = (tmp_path / "saved" / "manifest.json").read_bytes()
    assert digest(city) == hashlib.sha256(manifest).hexdigest()
    for name, recorded in json.loads(manifest)["files"].items():
        content = (tmp_path / "saved" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == recorded


def test_tables_written_by_hand_are_read_as_they_stand(hamlet: Path) -> None:
    city = load_city(hamlet)
    assert city.nodes[1] == Node("B", 500.0, 0.0, True, 30)
    assert city.roads[1] == Road("B-C", "B", "C", 500.0, True)
    assert city.stops[2] == Stop("s3", "C-D", 400.0, 1400.0, 0.0)
    assert city.services[1] == Service(
        "back", "1", (3, 4, 5), (100.0, 750.0, 1400.0), ("D-C", "C-B", "B-A"), 1500.0
    )
    assert city.trips[3] == Trip("back.1", 1, 400)
    assert city.decisions == 8
    assert city.journeys.leg_start.tolist() == [0, 1, 2, 4]
    assert [city.journeys.carriers[c] for c in city.journeys.leg_carriers] == [
        (0,),
        (1,),
        (0,),
        (0,),
    ]
    ahead, behind = city.headway_targets()
    assert ahead.tolist() == [0, 300, 0, 340] and behind.tolist() == [300, 0, 340, 0]


def test_a_city_is_opened_by_name_or_by_folder(hamlet: Path) -> None:
    assert open_city("town") is embedded_city("town")
    assert open_city(str(hamlet)).name == "hamlet"
    with pytest.raises(InputError, match=r"unknown city 'nowhere'; choose 'city', .* or 'town'"):
        open_city("nowhere")


def test_a_deliberate_edit_is_accepted_when_every_row_is_right(hamlet: Path) -> None:
    (hamlet / "trips.csv").write_text(with_cell("trips.csv", 2, 2, "310"))
    assert refusal(hamlet).endswith(f"evenline city check --seal {hamlet}".replace(str(hamlet), ""))
    assert seal_city(hamlet).trips[1] == Trip("out.1", 0, 310)
    assert load_city(hamlet).trips[1] == Trip("out.1", 0, 310)


def test_an_edit_that_is_wrong_is_not_sealed(hamlet: Path) -> None:
    before = (hamlet / "manifest.json").read_bytes()
    (hamlet / "trips.csv").write_text(with_cell("trips.csv", 2, 2, "0"))
    with pytest.raises(InputError, match=r"trips row 2 \(out\.1\): departure 0 s is not after"):
        seal_city(hamlet)
    (hamlet / "trips.csv").unlink()
    with pytest.raises(InputError, match=r"trips\.csv: no such file"):
        seal_city(hamlet)
    assert (hamlet / "manifest.json").read_bytes() == before


def test_a_failed_save_leaves_the_old_city_in_place(
    hamlet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(load_city(hamlet))
    write_bytes = Path.write_bytes

    def full_disk(path: Path, *args: Any, **kwargs: Any) -> int:
        if path.name == "trips.csv":
            raise OSError("no space left on device")
        return write_bytes(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full_disk)
        with pytest.raises(OSError, match="no space left"):
            save_city(embedded_city("town"), hamlet)
    assert digest(load_city(hamlet)) == before
    assert [path.name for path in hamlet.parent.iterdir()] == ["hamlet"]


@pytest.mark.parametrize("name", ["notes.txt", "trips.csv", "manifest.json"])
def test_a_city_replaces_only_a_city_that_nobody_changed(hamlet: Path, name: str) -> None:
    save_city(load_city(hamlet), hamlet)
    path = hamlet / name
    path.write_text((path.read_text() if path.exists() else "mine") + "\n,")
    before = {file.name: file.read_bytes() for file in hamlet.iterdir()}
    with pytest.raises(InputError, match=name):
        save_city(embedded_city("town"), hamlet)
    assert {file.name: file.read_bytes() for file in hamlet.iterdir()} == before
    save_city(embedded_city("town"), hamlet, force=True)
    assert load_city(hamlet).name == "town" and not (hamlet / "notes.txt").exists()


def test_a_folder_that_is_no_city_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("irreplaceable")
    with pytest.raises(InputError, match=r"chapter\.txt was not written by Evenline"):
        save_city(embedded_city("town"), tmp_path / "thesis")
    (tmp_path / "thesis" / "manifest.json").write_text('{"format": "evenline-replay-1"}')
    with pytest.raises(InputError, match=r"thesis/manifest\.json: format is not 'evenline-city-1'"):
        save_city(embedded_city("town"), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").exists()
