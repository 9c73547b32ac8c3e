"""What only some cities say: names, bus types, blocks, a schedule, and files of SUMO."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenline.city.model import Carried, City, Clock, Origin
from evenline.city.operations import ControlPoint, Disruption, Operations
from evenline.city.schedule import hours_of
from evenline.city.starts import half_normal
from evenline.city.tables import digest, load_city, network_digest, save_city, seal_city
from evenline.support.errors import InputError
from hamlet import DETAILS, HAMLET, refusal, seal, write_hamlet


@pytest.fixture
def detailed(tmp_path: Path) -> Path:
    return write_hamlet(tmp_path / "hamlet", {n: text.encode() for n, text in DETAILS.items()})


def test_details_are_read_as_they_stand(detailed: Path) -> None:
    city = load_city(detailed)
    assert (city.stops[0].name, city.stops[0].source) == ("Market", "de:07:1")
    assert (city.services[0].name, city.trips[1].source) == ("1 to the station", "71:b")
    assert city.roads[0].shape == ((250.0, 12.5), (300.0, -3.0))
    assert [stop.lane for stop in city.stops] == [0, 1, 0, 0, 0, 0]
    assert [city.vehicle_of(trip).capacity for trip in range(4)] == [50, 90, 50, 50]
    assert [trip.duty for trip in city.trips] == ["", "duty 7", "duty 7", ""]
    assert city.due_s is not None and city.due_s.tolist()[3:6] == [300, 390, 480]
    assert city.operations.control_points == (ControlPoint(0, 45.0), ControlPoint(4, 20.0))
    assert city.operations.disruptions == (
        Disruption("slow", road="B-C", from_s=60, until_s=600, factor=2.5),
        Disruption("cancelled", trip=3),
        Disruption("breakdown", trip=1, stop=1, day=7),
        Disruption("closed", stop=4, from_s=100, until_s=400),
    )


def slowed(city: City) -> City:
    slowness = np.full((sum(len(service.stops) for service in city.services), hours_of(city)), 1.0)
    slowness[1, 0] = 2.125
    return replace(city, slowness=slowness)


@pytest.fixture
def plain(tmp_path: Path) -> City:
    return load_city(write_hamlet(tmp_path / "plain"))


def test_slowness_comes_back_and_belongs_to_the_streets(plain: City, tmp_path: Path) -> None:
    city = slowed(plain)
    save_city(city, tmp_path / "slow")
    again = load_city(tmp_path / "slow")
    assert again.slowness is not None and city.slowness is not None
    assert (again.slowness == city.slowness).all()
    assert digest(again) == digest(city) and network_digest(again) != network_digest(plain)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1.0,9,0,2", "goes nowhere from stop 9"),
        ("1.0,0,99,2", "numbered from 0"),
        ("1.0,1,0,0.1", "factor"),
        ("9.9,0,0,2", "9.9"),
        ("1.0,0,0,1", "appear twice"),
    ],
)
def test_wrong_slowness_is_refused(plain: City, tmp_path: Path, row: str, words: str) -> None:
    save_city(slowed(plain), tmp_path / "slow")
    table = tmp_path / "slow" / "slowness.csv"
    row = row.replace("1.0", plain.services[0].id, 1)
    rows = [each for each in table.read_text().splitlines() if ",1,0," not in each]
    table.write_text("\n".join([*rows, row, ""]))
    with pytest.raises(InputError, match=words) as error:
        seal_city(tmp_path / "slow")
    assert "slowness" in str(error.value)


@pytest.fixture
def uneven(plain: City, tmp_path: Path) -> Path:
    """The hamlet with trips that start late in its only hour."""
    rows = [half_normal(60.0).round(1).tolist()] * len(plain.services)
    save_city(replace(plain, late_starts_s=np.array(rows)[:, None]), tmp_path / "uneven")
    return tmp_path / "uneven"


def test_late_starts_come_back_and_do_not_belong_to_the_streets(uneven: Path, plain: City) -> None:
    again = load_city(uneven)
    assert again.late_starts_s is not None
    assert (again.late_starts_s[0, 0] == half_normal(60.0).round(1)).all()
    assert digest(again) != digest(plain) and network_digest(again) == network_digest(plain)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("out,1," + "0," * 10 + "9", "numbered from 0"),
        ("out,0," + "9," * 10 + "0", "p0_s to p100_s must not fall"),
        ("out,0," + "0," * 10 + "soon", "p100_s 'soon' is not a number"),
        ("in,0," + "0," * 10 + "9", "unknown service 'in'"),
        ("back,0," + "0," * 10 + "9", "back has hour 0 twice"),
    ],
)
def test_wrong_late_starts_are_refused(uneven: Path, row: str, words: str) -> None:
    table = uneven / "starts.csv"
    header, _, back = table.read_text().splitlines()
    table.write_text("\n".join([header, back, row, ""]))
    with pytest.raises(InputError, match=words) as error:
        seal_city(uneven)
    assert "starts.csv row 2" in str(error.value)


def whole(city: City) -> City:
    return replace(
        city,
        origin=Origin(46.2, 6.1),
        clock=Clock("2012-10-01", 21_600, "Europe/Zurich"),
        notes=("demand is synthetic (gravity, 3 passengers)",),
        operations=replace(city.operations, hold_at="terminals", latest_s=90.0, duties=True),
        carried=Carried(b"net", {"stops.add.xml": b"<a/>"}, {"cars.rou.xml": b"<r/>"}, True, 300),
    )


def test_every_detail_comes_back_from_disk(detailed: Path, tmp_path: Path) -> None:
    city = whole(load_city(detailed))
    save_city(city, tmp_path / "saved")
    again = load_city(tmp_path / "saved")
    assert digest(again) == digest(city) != digest(load_city(detailed))
    for field in (
        "stops",
        "services",
        "trips",
        "roads",
        "more_vehicles",
        "origin",
        "clock",
        "notes",
        "operations",
    ):
        assert getattr(again, field) == getattr(city, field)
    assert np.array_equal(again.due_s, city.due_s)
    assert again.carried is not None and vars(again.carried) == vars(city.carried)
    assert digest(seal_city(tmp_path / "saved")) == digest(city)


def test_a_city_without_details_writes_no_optional_table(hamlet: Path, tmp_path: Path) -> None:
    save_city(load_city(hamlet), tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {*HAMLET, "manifest.json"}


def test_people_and_notes_do_not_change_what_a_calibration_belongs_to(detailed: Path) -> None:
    city = load_city(detailed)
    assert network_digest(replace(city, notes=("said",))) == network_digest(city)
    assert network_digest(whole(city)) != network_digest(city), "another network"


def test_a_changed_carried_file_is_refused(detailed: Path, tmp_path: Path) -> None:
    save_city(whole(load_city(detailed)), tmp_path / "saved")
    (tmp_path / "saved" / "cars.rou.xml").write_text("<more/>")
    assert refusal(tmp_path / "saved").startswith("cars.rou.xml: does not match the SHA-256")


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("names.csv", "stop,s1", "stop,s9", "names.csv row 1: unknown id 's9'"),
        ("names.csv", "stop,s1", "bus,s1", "names.csv row 1: kind 'bus' must be stop, service or"),
        ("road_shapes.csv", "A-B", "A-Z", "road_shapes.csv row 1: unknown road 'A-Z'"),
        ("road_shapes.csv", "12.5", "x", "road_shapes.csv row 1: points must be one or more"),
        ("trip_details.csv", "out.1,1", "out.1,2", "trips row 2 (out.1): vehicle 2 is not one"),
        ("trip_details.csv", "back.0", "out.1", "trip_details.csv row 2: out.1 appears twice"),
        ("schedule.csv", "out.0,1,90", "out.0,0,90", "schedule.csv row 2: stop 0 of out.0 appears"),
        ("schedule.csv", "out.0,1,90\n", "", "schedule.csv: out.0 has no time at one of its stops"),
        ("schedule.csv", "out.0,2,180", "out.0,2,80", "schedule row 3 (out.0): 80 s is before"),
        ("schedule.csv", "out.0,2,180", "out.0,3,180", "schedule.csv row 3: out.0 has no stop 3"),
        ("disruptions.csv", "slow,B-C", "slow,B-Z", "disruptions row 1: no road B-Z"),
        ("disruptions.csv", "60,600", "600,600", "disruptions row 1: until_s 600 must be after"),
        ("disruptions.csv", "600,2.5", "600,0.5", "disruptions row 1: factor 0.5 must be from 1"),
        ("disruptions.csv", "B-C,", "B-C,s2", "disruptions.csv row 1: leave stop_id empty for the"),
        ("disruptions.csv", "led,back.1", "led,s1", "disruptions.csv row 2: unknown trip 's1'"),
        ("disruptions.csv", "out.1,s2", "out.1,s3", "disruptions row 3: a bus breaks down before"),
        ("disruptions.csv", "closed,t2", "closed,t1", "disruptions row 4: a stop is closed to the"),
        ("disruptions.csv", "400,,", "400,2,", "disruptions.csv row 4: leave factor empty for the"),
        ("disruptions.csv", "back.1,,", "back.1,,9", "disruptions.csv row 2: leave from_s empty"),
        (
            "disruptions.csv",
            "back.1,,,",
            "back.1,,,9",
            "disruptions.csv row 2: leave until_s empty",
        ),
        ("disruptions.csv", "closed", "flood", "disruptions row 4: kind 'flood'; choose"),
    ],
)
def test_a_wrong_detail_is_named(detailed: Path, name: str, old: str, new: str, said: str) -> None:
    assert old in DETAILS[name]
    (detailed / name).write_text(DETAILS[name].replace(old, new, 1))
    seal(detailed)
    assert refusal(detailed).startswith(said)


def test_a_cancelled_trip_has_no_hours(detailed: Path) -> None:
    city = load_city(detailed)
    for hours in ({"from_s": 60}, {"until_s": 600}):
        wrong = (Disruption("cancelled", trip=3, **hours),)
        with pytest.raises(InputError, match="row 1: a trip is cancelled as a whole"):
            replace(city, operations=replace(city.operations, disruptions=wrong))


def test_an_optional_table_that_is_not_sealed_is_refused(hamlet: Path) -> None:
    (hamlet / "schedule.csv").write_text(DETAILS["schedule.csv"])
    with pytest.raises(InputError, match="does not match the SHA-256"):
        load_city(hamlet)
    assert seal_city(hamlet).due_s is not None


def test_a_service_may_use_a_road_twice(hamlet: Path) -> None:
    """Out, back, and out again past the first stop, whose second visit is a stop of its own."""
    (hamlet / "stops.csv").write_text(HAMLET["stops.csv"] + "s1~2,A-B,100.0,100.0,0.0\n")
    roads = "A-B B-A A-B"
    for name, text in (
        ("services.csv", HAMLET["services.csv"] + f"loop,2,1500.0,{roads}\n"),
        ("service_stops.csv", HAMLET["service_stops.csv"] + "loop,0,s1,100\nloop,1,t3,900\n"),
    ):
        (hamlet / name).write_text(text)
    with (hamlet / "service_stops.csv").open("a") as table:
        table.write("loop,2,s1~2,1100\n")
    seal(hamlet)
    assert load_city(hamlet).services[2].roads == tuple(roads.split())


def test_operations_that_contradict_each_other_or_the_city_are_refused(tmp_path: Path) -> None:
    folder = write_hamlet(tmp_path / "hamlet")
    seal(folder, operations={"ignored_share": 0.6, "cut_share": 0.6})
    assert "operations: cut_share 0.6 must be from 0 to" in refusal(folder)
    seal(folder, operations={"latest_s": 60.0})
    assert "operations: latest_s needs a schedule; add schedule.csv" in refusal(folder)


def test_operations_do_not_change_running_times_but_the_city(detailed: Path) -> None:
    """A calibration stays valid; a result names the city with its operations."""
    city = load_city(detailed)
    plain = replace(city, operations=Operations())
    assert network_digest(plain) == network_digest(city) and digest(plain) != digest(city)
