"""A city from a feed has the feed's services, stops, trips and schedule, and says what it lacks."""

import datetime
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.checks import check_city
from evenline.city.cells import demo_cell
from evenline.city.model import City, visit_offsets
from evenline.city.operations import Operations
from evenline.city.overview import overview
from evenline.city.tables import load_city
from evenline.control.operations import running_trips
from evenline.importing.fleet import capacities_of
from evenline.importing.gtfs import SHARED, read_gtfs
from evenline.importing.imported import Imported
from evenline.importing.timetable import Wanted
from evenline.importing.writing import write_city
from evenline.support.errors import InputError
from evenline.worlds.open import OpenCity
from evenline.worlds.sumo.network import check_network
from feeds import (
    EXAMPLE,
    PLACES,
    Tables,
    degrees,
    feed_of,
    small_feed,
    time_of,
    write_feed,
    written,
)

TUESDAY = datetime.date(2026, 3, 3)
REAL = Path(__file__).parents[3] / "shared" / "data"


def imported(path: Path, routes: str = "10,11", **options: object) -> Imported:
    wanted = Wanted(tuple(routes.split(",")), TUESDAY, **options)  # type: ignore[arg-type]
    return read_gtfs(path, wanted)


def changed(tables: Tables, table: str, old: str, new: str) -> Tables:
    assert old in tables[table]
    return tables | {table: tables[table].replace(old, new)}


def test_the_example_is_the_small_feed() -> None:
    assert {p.name: p.read_text(encoding="utf-8") for p in EXAMPLE.iterdir()} == small_feed()


def test_town_comes_back_from_its_feed(town: City, tmp_path: Path) -> None:
    path = write_feed(tmp_path / "town.zip", feed_of(town))
    routes = ",".join(dict.fromkeys(service.route for service in town.services))
    city = imported(path, routes).city
    assert {stop.id for stop in city.stops} == {stop.id for stop in town.stops}
    assert len(city.services) == len(town.services)
    start_s = city.clock.start_s if city.clock else 0
    for number, service in enumerate(city.services):
        stops = [city.stops[stop].id for stop in service.stops]
        old = next(s for s in town.services if [town.stops[i].id for i in s.stops] == stops)
        assert service.route == old.route
        assert np.diff(service.distance_m) == pytest.approx(np.diff(old.distance_m), abs=1.0)
        mine = {(city.trips[t].id, city.trips[t].departure_s + start_s) for t in
                city.trips_of[number]}  # fmt: skip
        theirs = town.trips_of[town.services.index(old)]
        assert mine == {(town.trips[t].id, town.trips[t].departure_s) for t in theirs}
    check_city(OpenCity("town", city))


def test_the_schedule_clock_blocks_and_names_are_the_feeds() -> None:
    city = imported(EXAMPLE).city
    assert city.clock is not None and city.due_s is not None
    assert (city.clock.date, city.clock.start_s) == ("2026-03-03", 5 * 3600)
    assert city.clock.zone == "Europe/Zurich"
    first = city.trips[0]
    assert (first.id, first.source, first.duty, first.departure_s) == (
        "out-1", "out-1", "r10-1", 3600,
    )  # fmt: skip
    assert [service.id for service in city.services] == ["10.0", "10.1", "11.0"]
    assert city.services[0].name == "10 to Lake" and city.services[0].source == "r10"
    assert city.stops[0].name == "Station" and city.stops[0].source == "station"
    ends = visit_offsets(city)
    for number, trip in enumerate(city.trips):
        due = city.due_s[ends[number] : ends[number + 1]]
        assert due[0] == trip.departure_s and (np.diff(due) > 0).all()
    assert city.horizon_s >= city.due_s.max() + 1800
    assert city.origin is not None and abs(city.origin.lat - 46.5) < 0.01
    assert not len(city.journeys)


def test_what_is_left_out_is_listed_with_its_share() -> None:
    found = imported(EXAMPLE)
    assert found.remarks == (
        "left out: 10, direction 0, 4 stops from Station to Lake: 3 trips, 6% of the route's",
    )
    assert found.city.notes == (
        "3 of 67 trips are left out: they do not follow a main pattern",
        SHARED,
        "buses are assumed to take 50 passengers",
    )


def test_trips_of_a_block_share_a_vehicle_unless_told_otherwise(tmp_path: Path) -> None:
    city = imported(EXAMPLE).city
    assert city.operations == Operations(duties=True)
    later = running_trips(city, demo_cell(1)).onward
    first = city.trips[0]
    assert city.trips[later[0]].duty == first.duty and later[0] != 0
    alone = read_gtfs(EXAMPLE, Wanted(("10", "11"), TUESDAY), blocks=False).city
    assert alone.operations == Operations() and SHARED not in alone.notes
    assert [trip.duty for trip in alone.trips] == [trip.duty for trip in city.trips]
    only_express = small_feed()
    rows = only_express["trips.txt"].replace("r10-1", "").replace("r10-2", "").replace("r11-1", "")
    path = write_feed(tmp_path / "feed", only_express | {"trips.txt": rows})
    assert imported(path).city.operations == Operations()


def test_trips_that_are_repeated_by_frequency_share_no_vehicle(tmp_path: Path) -> None:
    tables = small_feed()
    tables["frequencies.txt"] = (
        "trip_id,start_time,end_time,headway_secs\nring-1,06:00:00,07:00:00,600\n"
    )
    city = imported(write_feed(tmp_path / "feed", tables), "11").city
    repeated = [trip for trip in city.trips if trip.source.startswith("ring-1.")]
    assert len(repeated) == 6 and {trip.duty for trip in repeated} == {""}
    assert {trip.duty for trip in city.trips if trip not in repeated} == {"r11-1"}


def test_timepoints_are_control_points_that_a_city_can_hold_at(tmp_path: Path) -> None:
    tables = small_feed()
    head, *rows = tables["stop_times.txt"].splitlines()
    assert head.split(",")[3] == "stop_id"

    def marked(every: bool) -> City:
        exact = [row + f",{int(every or row.split(',')[3] == 'station')}" for row in rows]
        text = "\n".join([f"{head},timepoint", *exact]) + "\n"
        path = write_feed(tmp_path / str(every), tables | {"stop_times.txt": text})
        return imported(path).city

    city = marked(False)
    stops = [city.stops[point.stop].source for point in city.operations.control_points]
    assert set(stops) == {"station"}
    assert not city.operations.limits_holds, "until it says hold_at listed"
    assert replace(city.operations, hold_at="listed").limits_holds
    assert marked(True).operations.control_points == (), "nothing is told apart"


def test_the_blocks_and_timepoints_of_a_real_feed_are_used() -> None:
    path = REAL / "wmata" / "gtfs.zip"
    if not path.exists():
        pytest.skip(f"{path} is absent; it belongs to the shared data, not to the project")
    window = (9 * 3600, 15 * 3600)
    wanted = Wanted(("C53", "D40"), datetime.date(2026, 2, 16), *window, all_patterns=True)
    city = read_gtfs(path, wanted).city
    vehicles = {trip.duty for trip in city.trips}
    assert city.operations.duties and "" not in vehicles and len(vehicles) < len(city.trips) / 2
    assert 0 < len(city.operations.control_points) < len(city.stops) / 2


def test_all_patterns_share_the_trunk() -> None:
    found = imported(EXAMPLE, all_patterns=True)
    assert found.remarks == ()
    assert found.city.notes == (SHARED, "buses are assumed to take 50 passengers")
    services = {service.id: service for service in found.city.services}
    assert set(services) == {"10.0", "10.0.2", "10.1", "11.0"}
    assert set(services["10.0.2"].stops) < set(services["10.0"].stops)


def test_a_loop_is_a_service_that_ends_at_a_second_stop() -> None:
    city = imported(EXAMPLE, "11").city
    stops = [city.stops[stop] for stop in city.services[0].stops]
    assert [stop.id for stop in stops] == ["station", "mill", "park", "market", "station~2"]
    check_network(city)


def test_blank_times_lie_along_the_way_of_the_city(tmp_path: Path) -> None:
    """The way makes a detour between the first two stops, which straight lines do not see."""
    tables = small_feed()
    lat, lon = degrees(210, 1_200)
    rows = tables["shapes.txt"].splitlines()
    rows.insert(2, f"s10,{lat},{lon},0.5")
    tables["shapes.txt"] = "\n".join(rows) + "\n"
    calls = [row.split(",") for row in tables["stop_times.txt"].splitlines()]
    ends = {"1", "7"}
    blank = [
        [trip, *(time if number in ends else "" for time in times), stop, number]
        for trip, *times, stop, number in calls[1:]
        if trip.startswith("out")
    ]
    tables["stop_times.txt"] = written(",".join(calls[0]), blank)
    tables["trips.txt"] = "\n".join(
        row for row in tables["trips.txt"].splitlines() if "trip_id" in row or ",out-" in row
    )
    city = imported(write_feed(tmp_path / "f.zip", tables), "10").city
    assert city.due_s is not None
    (service,) = city.services
    metres, seconds = np.diff(service.distance_m), np.diff(city.due_s[: len(service.stops)])
    assert metres[0] > 4 * metres[1]
    assert metres / seconds == pytest.approx(metres.sum() / seconds.sum(), rel=0.02)
    assert not any("km/h" in warning for warning in overview(city).warnings)


def test_restricted_calls_are_named_in_every_result(tmp_path: Path) -> None:
    tables = small_feed()
    rows = [f"{row},{'1' if ',market,' in row else ''}" for row in
            tables["stop_times.txt"].splitlines()[1:]]  # fmt: skip
    head = "trip_id,arrival_time,departure_time,stop_id,stop_sequence,pickup_type"
    tables["stop_times.txt"] = "\n".join([head, *rows]) + "\n"
    city = imported(write_feed(tmp_path / "f.zip", tables), "11").city
    assert city.notes[0] == (
        "16 of 80 calls let people only on, only off or on request in the feed; here they may do "
        "both"
    )


def test_routes_have_the_buses_that_are_assumed() -> None:
    def city(text: str) -> City:
        return read_gtfs(
            EXAMPLE, Wanted(("10", "11"), TUESDAY), "x", None, capacities_of(text)
        ).city

    mixed = city("10=90,r11=30")
    assert [vehicle.capacity for vehicle in mixed.vehicles] == [90, 30]
    assert [mixed.capacity_of(service) for service in range(3)] == [90, 90, 30]
    assert mixed.notes[-1] == ("buses are assumed to take so many passengers: 90 on 10; 30 on 11")
    assert [city("70").capacity_of(service) for service in range(3)] == [70, 70, 70]
    assert [city("60,11=30").capacity_of(service) for service in range(3)] == [60, 60, 30]
    for text, words in (("10=0", "from 1 to"), ("many", "10=90,11=50"), ("9=50", "route '9'")):
        with pytest.raises(InputError, match=words):
            city(text)


def test_a_window_takes_the_trips_that_start_in_it() -> None:
    city = imported(EXAMPLE, start_s=7 * 3600, end_s=8 * 3600).city
    assert city.clock is not None and city.clock.start_s == 6 * 3600
    starts = {trip.departure_s + city.clock.start_s for trip in city.trips}
    assert min(starts) == 7 * 3600 and max(starts) < 8 * 3600


def test_trips_of_the_same_second_start_one_after_the_other(tmp_path: Path) -> None:
    tables = small_feed()
    row = next(line for line in tables["trips.txt"].splitlines() if ",out-1," in line)
    calls = [line for line in tables["stop_times.txt"].splitlines() if line.startswith("out-1,")]
    tables["trips.txt"] += row.replace("out-1", "twin") + "\n"
    tables["stop_times.txt"] += "\n".join(calls).replace("out-1", "twin") + "\n"
    found = imported(write_feed(tmp_path / "f.zip", tables), "10")
    assert "trip twin starts 1 s later: another trip of its pattern starts in the same second" in (
        found.remarks
    )
    trips = {trip.id: trip.departure_s for trip in found.city.trips}
    assert trips["twin"] == trips["out-1"] + 1


def test_a_trip_that_overtakes_another_is_told(tmp_path: Path) -> None:
    tables = small_feed()
    late = next(row for row in tables["stop_times.txt"].splitlines() if row.startswith("out-1,")
                and row.endswith(",lake,7"))  # fmt: skip
    tables = changed(tables, "stop_times.txt", late, "out-1,06:59:00,06:59:00,lake,7")
    found = imported(write_feed(tmp_path / "f.zip", tables), "10")
    assert any(line.startswith("10.0: 1 trip overtakes") for line in found.remarks)


def test_a_shape_elsewhere_is_not_used_and_said(tmp_path: Path) -> None:
    tables = small_feed()
    tables["shapes.txt"] = tables["shapes.txt"].replace("46.50", "46.58")
    found = imported(write_feed(tmp_path / "f.zip", tables), "10")
    assert any(
        "10.0: shape s10 is not used: half of the stops are" in line for line in found.remarks
    )


@pytest.mark.parametrize("point", ["0,0", "47.2,7.2196298"])  # the second is 77 km away
def test_a_shape_with_a_point_far_away_is_not_used(tmp_path: Path, point: str) -> None:
    tables = small_feed()
    rows = tables["shapes.txt"].splitlines()
    rows[3] = f"s10,{point},2"
    tables["shapes.txt"] = "\n".join(rows) + "\n"
    found = imported(write_feed(tmp_path / "f.zip", tables), "10")
    assert "10.0: shape s10 is not used: it leads more than 100 km away" in found.remarks


def test_a_feed_without_shapes_goes_straight(tmp_path: Path) -> None:
    tables = {name: text for name, text in small_feed().items() if name != "shapes.txt"}
    found = imported(write_feed(tmp_path / "f.zip", tables), "10")
    assert "shapes.txt is missing: lines go straight from stop to stop" in found.remarks
    assert not any(road.shape for road in found.city.roads if not road.id.endswith("-stop"))


def test_a_stop_listed_twice_in_a_row_is_served_once(tmp_path: Path) -> None:
    tables = small_feed()
    tables = changed(tables, "stop_times.txt", "ring-1,06:00:00,06:00:00,station,1\n",
                     "ring-1,05:59:00,05:59:00,station,0\nring-1,06:00:00,06:00:00,station,1\n",
                     )  # fmt: skip
    city = imported(write_feed(tmp_path / "f.zip", tables), "11").city
    assert len(city.services) == 1 and len(city.trips) == 16


WAYS = st.lists(st.sampled_from(sorted(PLACES)), min_size=2, max_size=6).filter(
    lambda way: all(first != second for first, second in pairwise(way))
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(WAYS, st.integers(0, 90_000)), min_size=1, max_size=6))
def test_every_trip_of_a_generated_feed_is_in_the_city(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[list[str], int]]
) -> None:
    """Any sequences of stops, also past midnight and with loops, in one route."""
    trips, calls = [], []
    for number, (way, start) in enumerate(runs):
        trips.append(("r10", "week", f"t{number}", number % 2))
        calls += [
            (f"t{number}", time_of(start + 90 * n), time_of(start + 90 * n), stop, n)
            for n, stop in enumerate(way)
        ]
    tables = small_feed() | {
        "trips.txt": written("route_id,service_id,trip_id,direction_id", trips),
        "stop_times.txt": written(
            "trip_id,arrival_time,departure_time,stop_id,stop_sequence", calls
        ),
    }
    path = write_feed(tmp_path_factory.mktemp("feed") / "f", tables)
    city = imported(path, "10", all_patterns=True).city
    assert city.clock is not None and city.due_s is not None
    ends, found = visit_offsets(city), {trip.source: n for n, trip in enumerate(city.trips)}
    assert len(found) == len(runs)
    for number, (way, start) in enumerate(runs):
        trip = found[f"t{number}"]
        service = city.services[city.trips[trip].service]
        assert [city.stops[stop].source for stop in service.stops] == way
        due = city.due_s[ends[trip] : ends[trip + 1]] + city.clock.start_s
        late = int(due[0]) - start
        assert 0 <= late < len(runs)  # trips of the same second follow each other
        assert (np.diff(due) == 90).all() and due.max() < city.horizon_s + city.clock.start_s


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_feed_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any cell, any row, any table may be anything."""
    tables = small_feed()
    name = data.draw(st.sampled_from(sorted(tables)))
    lines = tables[name].splitlines()
    row = data.draw(st.integers(0, len(lines) - 1))
    cells = lines[row].split(",")
    cell = data.draw(st.integers(0, len(cells) - 1))
    wild = st.one_of(
        st.sampled_from(
            ["", "-1", "1e999", "nan", "99:99:99", "25:00:00", "../x", "a\tb", '"', "\x00"]
        ),
        st.text(max_size=5),
    )
    cells[cell] = data.draw(wild)
    lines[row] = ",".join(cells)
    damaged = tables | {name: "\n".join(lines) + "\n"}
    if data.draw(st.integers(0, 9)) == 0:
        del damaged[name]
    path = write_feed(tmp_path_factory.mktemp("feed") / "f", damaged)
    with suppress(InputError):  # anything else is our bug
        found = imported(path)
        write_city(found, path.parent / "city")
        assert len(load_city(path.parent / "city").trips) == len(found.city.trips) > 0


@pytest.mark.parametrize(
    ("folder", "routes", "date", "services"),
    [("cairns", "110,111,120", "2014-06-02", 6), ("fortaleza", "804,806,815", "2019-07-01", 3)],
)
def test_a_real_feed_becomes_a_corridor_city(
    folder: str, routes: str, date: str, services: int
) -> None:
    path = REAL / folder / "gtfs.zip"
    if not path.exists():
        pytest.skip(f"{path} is absent; it belongs to the shared data, not to the project")
    wanted = Wanted(tuple(routes.split(",")), datetime.date.fromisoformat(date), 0, 8 * 3600)
    city = read_gtfs(path, wanted).city
    assert len(city.services) == services and all(stop.name for stop in city.stops)
    check_network(city)
    check_city(OpenCity(folder, city))


def test_a_real_line_with_a_wrong_last_stop_keeps_its_speed() -> None:
    """T9.0 of Porto Alegre ends with its first stop, 6 km away; 96 % of the times are blank."""
    path = REAL / "porto-alegre" / "gtfs.zip"
    if not path.exists():
        pytest.skip(f"{path} is absent; it belongs to the shared data, not to the project")
    city = read_gtfs(path, Wanted(("T9",), datetime.date(2019, 5, 14), 43_200, 46_800)).city
    assert not any("only" in warning for warning in overview(city).warnings)
