"""A SUMO scenario as a city: the same buses, the same people, the same day."""

import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from evenline.city.demand import Cell, realise
from evenline.city.model import City
from evenline.city.overview import without_headway
from evenline.city.tables import digest, load_city, save_city
from evenline.control.outcome import Outcome
from evenline.control.visits import Visit
from evenline.experiments.agreement import compare_with_sumo
from evenline.importing.configuration import read_configuration
from evenline.importing.scenario import import_scenario
from evenline.support.errors import InputError
from evenline.worlds.sumo.carried import exact_cell
from evenline.worlds.sumo.network import check_network
from evenline.worlds.sumo.world import SumoWorld
from scenarios import configured, written
from small_cities import square, streets

CELL = Cell(7, 8, 1.0)
SETTINGS = {"begin": "0", "end": "1200", "seed": "7", "step-length": "1"}
DATA = Path(__file__).parents[3] / "shared" / "data"


def day(city: City, cell: Cell, hold_s: float = 0.0) -> tuple[Outcome, list[Visit]]:
    with SumoWorld(city) as world:
        batch = world.reset(cell)
        while batch is not None:
            batch = world.step([hold_s] * len(batch.trips))
        return world.outcome(), sorted(world.visits)


@pytest.fixture(scope="module")
def original() -> City:
    return streets(services=2, trips=4, headway_s=120, horizon_s=1200)


@pytest.fixture(scope="module")
def config(original: City, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(original, CELL, tmp_path_factory.mktemp("scenario"))


@pytest.fixture(scope="module")
def imported(config: Path) -> City:
    made = import_scenario(config, "streets")
    assert len(made.remarks) == 2
    return made.city


def test_services_stops_trips_and_distances_come_back(original: City, imported: City) -> None:
    assert sorted(s.id for s in imported.services) == [s.id for s in original.services]
    for service in original.services:
        again = next(s for s in imported.services if s.id == service.id)
        assert again.distance_m == pytest.approx(service.distance_m, abs=0.02)
        assert again.length_m == pytest.approx(service.length_m, abs=0.1)
        assert again.roads == service.roads
        assert [imported.stops[s].id for s in again.stops] == [
            original.stops[s].id for s in service.stops
        ]
    assert sorted((t.id, t.departure_s) for t in imported.trips) == sorted(
        (t.id, t.departure_s + 1) for t in original.trips
    ), "a trip begins when its bus can have reached the first stop"
    assert imported.vehicle == original.vehicle and imported.horizon_s == original.horizon_s


def test_people_come_back_as_journeys(original: City, imported: City) -> None:
    def journeys(city: City, cell: Cell) -> list[tuple[object, ...]]:
        people, all_of = realise(city, cell), city.journeys
        return sorted(
            (
                second,
                city.stops[all_of.leg_board[leg]].id,
                city.stops[all_of.leg_alight[leg]].id,
            )
            for journey, second in zip(people.journey, people.departure_s, strict=True)
            for leg in range(all_of.leg_start[journey], all_of.leg_start[journey + 1])
        )

    own = journeys(imported, exact_cell(imported))
    assert own and own == journeys(original, CELL)
    assert len(journeys(imported, Cell(1, 1, 1.25))) == round(1.25 * len(own))


def test_the_exact_day_is_the_original_day_in_every_sum(original: City, imported: City) -> None:
    there, here = day(original, CELL), day(imported, exact_cell(imported))
    # The imported timetable has the departures that SUMO saw: its service ends at another second.
    assert replace(here[0], service_cost=there[0].service_cost) == there[0]
    names = [
        {(city.trips[v.trip].id, *v[1:]) for v in visits}
        for city, visits in ((original, there[1]), (imported, here[1]))
    ]
    assert names[0] == names[1]


def test_sumo_alone_and_our_day_without_holds_agree(config: Path, imported: City) -> None:
    found = compare_with_sumo(config, imported)
    assert found.differences == 0 and found.first == ()
    assert (
        found.arrivals
        == found.of_trips
        == sum(len(imported.services[trip.service].stops) for trip in imported.trips)
    )


def test_another_seed_is_found_to_differ(config: Path, imported: City) -> None:
    assert imported.carried is not None
    other = replace(imported.carried, options={**imported.carried.options, "seed": "8"})
    found = compare_with_sumo(config, replace(imported, carried=other))
    assert found.differences > 0 and found.first


def test_a_hold_comes_on_top_of_the_stop(imported: City) -> None:
    _, visits = day(imported, exact_cell(imported), hold_s=20.0)
    held = [v for v in visits if v.hold_s]
    assert held
    assert all(v.departure_s - v.arrival_s >= v.base_dwell_s + 20 for v in held)


def test_other_cells_have_our_people(imported: City) -> None:
    cell = Cell(3, 4, 1.25)
    outcome, _ = day(imported, cell)
    assert outcome.departed == len(realise(imported, cell).journey)
    assert outcome.completed > 0


def test_the_folder_restores_the_city(imported: City, tmp_path: Path) -> None:
    save_city(imported, tmp_path / "city")
    again = load_city(tmp_path / "city")
    assert digest(again) == digest(imported)
    assert again.carried is not None and vars(again.carried) == vars(imported.carried)
    check_network(again)


@pytest.fixture(scope="module")
def lively(original: City, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flows without lines, two bus types, stops with a timetable, and people who walk."""
    folder = shutil.copytree(config.parent, tmp_path_factory.mktemp("lively") / "copy")
    first, second = original.services
    names = [[original.stops[s].id for s in service.stops] for service in (first, second)]
    halts = "".join(f'<stop busStop="{s}" until="{40 + 90 * i}"/>' for i, s in enumerate(names[0]))
    stands = "".join(f'<stop busStop="{s}" duration="9"/>' for s in names[1])
    (folder / "buses.rou.xml").write_text(
        "<routes>"
        '<vType id="small" vClass="bus" personCapacity="3" length="9" boardingDuration="3"/>'
        '<vType id="large" vClass="bus" personCapacity="70" length="18"/>'
        f'<route id="a" edges="{" ".join(first.roads)}">{halts}</route>'
        f'<route id="b" edges="{" ".join(second.roads)}">{stands}</route>'
        '<flow id="flow_bus7H" type="small" route="a" begin="10" end="700" period="150"/>'
        f'<vehicle id="once" type="large" depart="20"><route edges="{" ".join(first.roads)}"/>'
        f'<stop busStop="{names[0][1]}" duration="5"/></vehicle>'
        '<flow id="late" line="x 9" type="large" route="b" begin="30" end="700" number="4"/>'
        "</routes>"
    )
    roads = [original.stops[s].road for s in first.stops]
    walk = f'<walk edges="{roads[0]}" busStop="{names[0][0]}"/>'
    (folder / "people.rou.xml").write_text(
        '<routes><person id="stroller" depart="1">'
        f'<walk edges="{" ".join(first.roads)}"/></person>'
        f'<person id="w.1" depart="2" departPos="1">{walk}<ride busStop="{names[0][2]}"/>'
        f'<walk edges="{roads[2]}" arrivalPos="-1"/></person>'
        f'<personFlow id="crowd" begin="5" end="600" number="20" departPos="1">{walk}'
        f'<ride busStop="{names[0][2]}" lines="ANY"/></personFlow></routes>'
    )
    return configured(folder, SETTINGS | {"begin": "0", "pedestrian.model": "nonInteracting"})


def test_flows_types_walks_and_timetables_agree(lively: Path) -> None:
    made = import_scenario(lively, "lively")
    city = made.city
    assert [service.id for service in city.services] == ["7H", "x-9"]
    assert city.services[0].route == "7" and city.services[1].source == "x 9"
    assert sorted(v.capacity for v in city.vehicles) == [3, 70]
    assert "1 buses serve a single stop" in made.remarks[-1]
    assert int((city.journeys.min_demand <= 1).sum()) == 21, "who only walks is no passenger"
    found = compare_with_sumo(lively, city)
    assert found.differences == 0 and found.arrivals == found.of_trips + 1
    outcome, visits = day(city, exact_cell(city))
    assert outcome.departed == 21 and outcome.denied_boardings > 0
    assert sum(v.boarded for v in visits) == sum(v.alighted for v in visits) == outcome.completed
    assert all(v.departure_s - v.arrival_s >= v.base_dwell_s for v in visits)
    waited = [v for v in visits if v.base_dwell_s > 40]
    assert waited, "a bus ahead of its timetable stands until its time"


@pytest.mark.parametrize("named", ["veh{}", "bus_{}", "{}", "bus9H_{}", "line{}.0"])
def test_vehicles_without_a_line_are_services_by_their_roads_and_stops(
    original: City, config: Path, tmp_path: Path, named: str
) -> None:
    """Each vehicle has an id of its own; those that name a line keep it."""
    folder = shutil.copytree(config.parent, tmp_path / "copy")
    buses = (folder / "buses.rou.xml").read_text()
    ids = iter(range(100))
    buses = re.sub(
        r'<vehicle id="[^"]*"', lambda _: f'<vehicle id="{named.format(next(ids))}"', buses
    )
    (folder / "buses.rou.xml").write_text(re.sub(r' line="[^"]*"', "", buses))
    city = import_scenario(folder / "day.sumocfg", "unnamed").city
    assert len(city.services) == 2 and [len(trips) for trips in city.trips_of] == [4, 4]
    assert {service.roads for service in city.services} == {s.roads for s in original.services}
    assert without_headway(city) == []
    assert compare_with_sumo(folder / "day.sumocfg", city).differences == 0
    lines = map(str, range(100))
    apart = re.sub(r' line="[^"]*"', lambda _: f' line="{next(lines)}"', buses)
    (folder / "buses.rou.xml").write_text(apart)
    city = import_scenario(folder / "day.sumocfg", "named").city
    assert len(city.services) == 8
    (line,) = without_headway(city)
    assert line.startswith("8 of 8 services with a single trip, so without a headway")


def test_lines_that_several_ids_contain_stay_lines(config: Path, tmp_path: Path) -> None:
    """A vehicle whose number is in no other id joins the larger line of its roads and stops."""
    folder = shutil.copytree(config.parent, tmp_path / "copy")
    ids = iter(["bus4.0", "bus4.1", "bus5.0", "bus5.1", "bus5.2", "bus6.0", "bus4.2", "bus4.3"])
    first = re.findall(r'route="([^"]+)"', (folder / "buses.rou.xml").read_text())[0]
    buses = re.sub(r' (route|line)="[^"]*"', "", (folder / "buses.rou.xml").read_text())
    buses = re.sub(
        r'<vehicle id="[^"]*"', lambda _: f'<vehicle id="{next(ids)}" route="{first}"', buses
    )
    (folder / "buses.rou.xml").write_text(buses)
    city = import_scenario(folder / "day.sumocfg", "lines").city
    assert {s.id: len(city.trips_of[n]) for n, s in enumerate(city.services)} == {"4": 5, "5": 3}


def test_a_loop_line_ends_at_its_first_stop_again(tmp_path: Path) -> None:
    """Buses go once around a square and on to the stop where they began; people ride to it."""
    around = square()
    config = written(around, CELL, tmp_path)
    (service,), names = around.services, [stop.id for stop in around.stops]
    ring = [names[stop] for stop in service.stops]
    stands = "".join(f'<stop busStop="{stop}" duration="9"/>' for stop in (*ring, ring[0]))
    (tmp_path / "buses.rou.xml").write_text(
        '<routes><vType id="bus" vClass="bus" personCapacity="20"/>'
        f'<route id="ring" edges="{" ".join((*service.roads, service.roads[0]))}">{stands}</route>'
        '<flow id="ring" line="8" type="bus" route="ring" begin="0" period="300" number="3"/>'
        "</routes>"
    )
    roads = {stop.id: (stop.road, stop.pos_m) for stop in around.stops}
    journeys = [(5, ring[2], ring[0]), (40, ring[0], ring[1]), (70, ring[0], ring[3])]
    (tmp_path / "people.rou.xml").write_text(
        "<routes>"
        + "".join(
            f'<person id="p{i}" depart="{at_s}" departPos="{roads[board][1] - 1}">'
            f'<ride from="{roads[board][0]}" busStop="{alight}" lines="8"/></person>'
            for i, (at_s, board, alight) in enumerate(journeys)
        )
        + "</routes>"
    )
    city = import_scenario(config, "ring").city
    (line,) = city.services
    assert [city.stops[stop].id for stop in line.stops] == [*ring, f"{ring[0]}~2"]
    assert line.distance_m[-1] == pytest.approx(line.distance_m[0] + service.length_m, abs=0.1)
    legs = zip(city.journeys.leg_board, city.journeys.leg_alight, strict=True)
    found = {(city.stops[board].id, city.stops[alight].id) for board, alight in legs}
    assert found == {(ring[2], f"{ring[0]}~2"), (ring[0], ring[1]), (ring[0], ring[3])}
    assert compare_with_sumo(config, city).differences == 0
    for cell, count in ((exact_cell(city), 3), (Cell(3, 4, 1.0), 3)):
        outcome, visits = day(city, cell)
        assert outcome.completed == outcome.departed == count
        assert len(visits) == 5 * len(city.trips) and outcome.trips_completed == 3
        ends = [visit for visit in visits if visit.position == 4]
        assert sum(visit.alighted for visit in ends) == 1, "one rides on to the second visit"
        assert not any(visit.boarded for visit in ends)


# -- what a scenario may say ----------------------------------------------------------------------

BOMB = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><additional>&c;</additional>'
WRITES = '<additional><e1Detector id="d" lane="x_0" pos="1" freq="9" file="/etc/x"/></additional>'


def test_outputs_of_a_scenario_are_discarded(config: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(config.parent, tmp_path / "copy")
    (folder / "stops.add.xml").write_text(WRITES)
    read = read_configuration(folder / "day.sumocfg")
    assert b'file="NUL"' in read.additional["stops.add.xml"]
    assert set(read.options) & {"tripinfo-output", "log"} == set()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"net-file": "none.net.xml"}, "none.net.xml: no such file"),
        ({"net-file": ""}, "names no net-file"),
        ({"route-files": "../outside.rou.xml"}, "lies outside the folder"),
        ({"additional-files": "/etc/passwd"}, "lies outside the folder"),
        ({"load-state": "state.xml"}, "option load-state is not supported"),
        ({"remote-files": "x"}, "option remote-files is not supported"),
        ({"step-length": "0.5"}, "step-length 0.5 is not supported"),
        ({"begin": "soon"}, "begin 'soon' is not a time"),
        ({"begin": "nan"}, "must be whole seconds"),
        ({"end": "0"}, "must be whole seconds in order"),
        ({"seed": "-3"}, "seed '-3' must be a whole number"),
        ({"random": "true"}, "random draws another seed"),
        ({"additional-files": "bomb.add.xml"}, "defines entities"),
        ({"additional-files": "torn.add.xml"}, "torn.add.xml: not XML"),
        ({"additional-files": "deep.add.xml"}, "more than 100 elements inside each other"),
        ({"additional-files": "blank.add.xml.gz"}, "unpacks to more than 32 MiB; too large"),
        ({"scale": "1000000"}, "option scale cannot be '1000000'"),
        ({"scale": "nan"}, "option scale cannot be 'nan'"),
        ({"net-file": "empty.net.xml"}, "has no road between two junctions"),
        ({"net-file": "stops.add.xml"}, "is not a SUMO network"),
        ({"net-file": "nan.net.xml"}, "says 'NaN' where a number of metres must be"),
        ({"net-file": "deep.add.xml"}, "more than 100 elements inside each other"),
        ({"additional-files": "wide.add.xml"}, "not XML in UTF-8"),
        ({"additional-files": "more.add.xml"}, "reads another file"),
        ({"additional-files": "ssm.add.xml"}, "a parameter names an output file"),
        ({"route-files": "cars.rou.xml"}, "no bus serves two stops"),
        ({"route-files": "chance.rou.xml"}, "has random departures"),
        ({"route-files": "unrouted.rou.xml"}, "has people without a route"),
        ({"additional-files": "torn.add.xml.gz"}, "cannot be unpacked"),
    ],
)
def test_a_malformed_scenario_is_refused_in_one_line(
    config: Path, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    shutil.copytree(config.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "bomb.add.xml").write_text(BOMB)
    (tmp_path / "torn.add.xml").write_text("<additional><busStop")
    (tmp_path / "deep.add.xml").write_text("<a>" * 300_000 + "</a>" * 300_000)
    (tmp_path / "blank.add.xml.gz").write_bytes(gzip.compress(b" " * 2**26))
    (tmp_path / "empty.net.xml").write_text("<net/>")
    streets = (tmp_path / "city.net.xml").read_text()
    (tmp_path / "nan.net.xml").write_text(re.sub(r'length="[^"]*"', 'length="NaN"', streets))
    (tmp_path / "torn.add.xml.gz").write_bytes(b"\x1f\x8b\x08torn")
    (tmp_path / "wide.add.xml").write_bytes("<additional/>".encode("utf-16"))
    (tmp_path / "more.add.xml").write_text('<additional><include href="x"/></additional>')
    (tmp_path / "ssm.add.xml").write_text(
        '<additional><vType id="b"><param key="device.ssm.file" value="x"/></vType></additional>'
    )
    (tmp_path / "unrouted.rou.xml").write_text(
        '<routes><person id="p" depart="0"><personTrip from="a" to="b" modes="public"/></person>'
        "</routes>"
    )
    (tmp_path / "chance.rou.xml").write_text(
        '<routes><flow id="f" begin="0" end="9" probability="0.1" from="a" to="b">'
        '<stop busStop="s000" duration="5"/></flow></routes>'
    )
    with pytest.raises(InputError) as caught:
        import_scenario(configured(tmp_path, SETTINGS | change), "spoilt")
    assert said in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("stops.add.xml", 'id="s0', 'id="t0', "Invalid stop definition"),
        ("stops.add.xml", 'lane="', 'lane="x', "The lane x.* is not known"),
        ("stops.add.xml", 'endPos="', 'endPos="9', "Invalid position for busStop"),
        ("stops.add.xml", 'id="s001"', 'id="s000"', "declared twice"),
        ("city.net.xml", 'speed="', 'speed="fast', "Attribute 'speed' .* Invalid Number Format"),
        ("buses.rou.xml", 'edges="', 'edges="nowhere ', "The edge 'nowhere' .* is not known"),
        ("buses.rou.xml", 'type="bus"', 'type="tank"', "type 'tank' .* is not known"),
        ("buses.rou.xml", 'depart="', 'depart="soon', "departure time"),
        ("day.sumocfg", "<input>", '<input><time-to-teleport value="x"/>', "[Nn]umber [Ff]ormat"),
        ("day.sumocfg", "<input>", '<input><default.speeddev value="x"/>', "speeddev': .*x"),
    ],
)
def test_the_reason_why_sumo_refuses_a_scenario_is_passed_on(
    config: Path, tmp_path: Path, name: str, old: str, new: str, said: str
) -> None:
    shutil.copytree(config.parent, tmp_path, dirs_exist_ok=True)
    if name != "day.sumocfg":
        configured(tmp_path, SETTINGS)
    text = (tmp_path / name).read_text()
    assert old in text
    if "value=" in new:
        text = re.sub(r"<time-to-teleport [^>]*>", "", text)
    (tmp_path / name).write_text(text.replace(old, new))
    with pytest.raises(InputError, match=rf"^[^\n]*SUMO refused: [^\n]*{said}[^\n]*$"):
        import_scenario(tmp_path / "day.sumocfg", "spoilt")


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ({"tripinfo-output": "/tmp/x"}, "is not one that a city may carry"),
        ({"load-state": "x"}, "is not one that a city may carry"),
        ({"ignore-route-errors": "--tripinfo-output=/tmp/x"}, "cannot be '--tripinfo-output"),
        ({"end": "never"}, "end 'never' must be a whole number"),
        ({"seed": "1e9"}, "seed '1e9' must be a whole number"),
    ],
)
def test_a_city_that_carries_a_forged_option_does_not_start(
    imported: City, forged: dict[str, str], said: str
) -> None:
    assert imported.carried is not None
    options = {**imported.carried.options, **forged}
    with pytest.raises(InputError, match=said):
        day(replace(imported, carried=replace(imported.carried, options=options)), CELL)


def test_a_city_that_carries_a_writing_file_does_not_start(imported: City) -> None:
    assert imported.carried is not None
    files = {**imported.carried.additional, "detectors.add.xml": WRITES.encode()}
    with pytest.raises(InputError, match="may not write"):
        day(replace(imported, carried=replace(imported.carried, additional=files)), CELL)


# -- real scenarios -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lines", "end_s", "told"),
    [
        ("hamburg/run_simulation.sumocfg", {"112", "17"}, 40, "serve a single stop"),
        ("bologna-acosta/run.sumocfg", {"14", "86"}, 150, "a day of 150 s"),
    ],
)
def test_the_first_minutes_of_a_real_scenario_agree(
    name: str, lines: set[str], end_s: int, told: str
) -> None:
    if not (DATA / name).is_file():
        pytest.skip(f"{DATA / name} is absent")
    made = import_scenario(DATA / name, "real", end_s=end_s)
    assert lines <= {service.route for service in made.city.services}
    assert told in made.remarks[-1]
    found = compare_with_sumo(DATA / name, made.city)
    assert found.arrivals > 5 and found.differences == 0
