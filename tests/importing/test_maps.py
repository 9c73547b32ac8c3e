"""Maps become networks: OpenStreetMap by netconvert, networks as they are; lines run on them."""

import gzip
import hashlib
import re
import subprocess
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from defusedxml.ElementTree import fromstring

from evenline.city.demand import Cell
from evenline.city.model import Carried, City, Trip, Vehicle, no_journeys
from evenline.city.tables import load_city, open_city, save_city
from evenline.importing.gtfs import read_gtfs
from evenline.importing.lines import Layout
from evenline.importing.mapped import Map, matched
from evenline.importing.maps import network_of
from evenline.importing.streets import read_streets
from evenline.importing.timetable import Wanted
from evenline.support.errors import InputError
from evenline.worlds.sumo.network import check_network, compiled_network
from evenline.worlds.sumo.runtime import binary
from evenline.worlds.sumo.scenario import write_scenario
from evenline.worlds.sumo.streets import background, unpacked
from evenline.worlds.sumo.world import SumoWorld
from small_maps import BLOCK_M, ORIGIN, line_along, village

pytest.importorskip("osmium", reason="maps of OpenStreetMap need evenline[import]")

# East along row 2, which is one-way; north; back west along row 3, which is one-way too.
WAY = [(0, 2), (1, 2), (2, 2), (3, 2), (3, 3), (2, 3), (1, 3), (0, 3)]
STOPS = {
    "a": (0.5 * BLOCK_M, 2 * BLOCK_M - 5.0),
    "b": (2.5 * BLOCK_M, 2 * BLOCK_M - 5.0),
    "c": (1.5 * BLOCK_M, 3 * BLOCK_M + 5.0),
    "d": (0.4 * BLOCK_M, 3 * BLOCK_M + 5.0),
}
LINE = line_along(WAY, STOPS)
# From the village to the island, which no street reaches.
ACROSS = line_along(
    [(x, 2) for x in range(13)],
    {"a": STOPS["a"], "b": STOPS["b"], "sea": (7 * BLOCK_M, 2 * BLOCK_M),
     "e": (9.5 * BLOCK_M, 2 * BLOCK_M - 5.0), "f": (11.5 * BLOCK_M, 2 * BLOCK_M - 5.0)},
    id="M.0",
)  # fmt: skip


@pytest.fixture(scope="module")
def osm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return village(tmp_path_factory.mktemp("map") / "village.osm")


@pytest.fixture(scope="module")
def layout(osm: Path) -> Layout:
    return matched([LINE], ORIGIN, Map(osm))


@pytest.fixture(scope="module")
def bridged(osm: Path) -> Layout:
    return matched([LINE, ACROSS], ORIGIN, Map(osm, bridge=True))


def city_of(layout: Layout) -> City:
    trips = [
        Trip(f"{service.id}-{k}", i, 60 + 240 * k)
        for i, service in enumerate(layout.services)
        for k in range(3)
    ]
    return City(
        "village", 3600, Vehicle(), layout.nodes, layout.roads, layout.stops, layout.services,
        tuple(trips), no_journeys(), notes=layout.notes, carried=layout.carried,
    )  # fmt: skip


def osm_ways(layout: Layout) -> list[str]:
    """The ways of the map that the first service uses, in order."""
    names = [road.lstrip("-").split("#")[0] for road in layout.services[0].roads]
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


def test_a_line_runs_on_the_streets_that_it_follows_in_their_direction(layout: Layout) -> None:
    assert osm_ways(layout) == ["102", "203", "103"]
    assert not any(road.startswith("-") for road in layout.services[0].roads)  # not against a way
    assert layout.fits[0].p95_m < 6.0
    roads = {stop.source: stop.road.split("#")[0] for stop in layout.stops}
    assert roads == {"a": "102", "b": "102", "c": "103", "d": "103"}


def test_signals_bus_lanes_and_speed_limits_come_from_the_map(layout: Layout) -> None:
    (lit,) = [node for node in layout.nodes if node.signal]
    assert (lit.x_m, lit.y_m) == pytest.approx((2 * BLOCK_M, 2 * BLOCK_M), abs=0.5)
    lanes = {road.id.split("#")[0]: road.bus_lane for road in layout.roads}
    assert lanes == {"102": True, "203": False, "103": False}
    text = unpacked(layout.carried.network).decode() if layout.carried else ""
    assert 'id="102#0_0"' in text or 'id="102_0"' in text
    assert 'speed="11.11"' in text  # 40 km/h


def test_the_lanes_of_the_map_reach_sumo(layout: Layout) -> None:
    """What SUMO loads has the lanes of the map: two on row 2, of which one is for buses."""
    lanes: dict[str, set[int]] = {}
    for edge in fromstring(compiled_network(city_of(layout)).path.read_bytes()).iter("edge"):
        if edge.get("function") != "internal":
            way = str(edge.get("id")).lstrip("-").split("#")[0]
            lanes.setdefault(way, set()).add(len(edge.findall("lane")))
    assert {way: lanes[way] for way in ("102", "103", "203")} == {
        "102": {2}, "103": {1}, "203": {1},
    }  # fmt: skip


def test_the_network_lies_where_the_origin_says(layout: Layout) -> None:
    for node in layout.nodes:
        column, row = node.x_m / BLOCK_M, node.y_m / BLOCK_M
        assert (column, row) == pytest.approx((round(column), round(row)), abs=0.5 / BLOCK_M)


def test_buses_run_on_the_carried_network_without_a_teleport(
    bridged: Layout, tmp_path: Path
) -> None:
    save_city(city_of(bridged), tmp_path / "village")
    city = load_city(tmp_path / "village")
    check_network(city)
    assert compiled_network(city).path.read_bytes() == unpacked(bridged.carried.network)  # type: ignore[union-attr]
    options = write_scenario(city, Cell(1, 1), tmp_path / "files").options
    assert options[options.index("--collision.mingap-factor") + 1] == "0"  # only if buses touch
    with SumoWorld(city) as world:
        batch = world.reset(Cell(1, 1))
        while batch is not None:
            batch = world.step([0.0] * len(batch.trips))
        outcome = world.outcome()
    assert (outcome.trips_completed, outcome.teleports) == (6, 0)
    assert outcome.decisions == city.decisions


def test_a_city_that_does_not_fit_its_network_is_refused_with_its_row(layout: Layout) -> None:
    city = city_of(layout)
    lane = replace(city.stops[0], lane=7)
    with pytest.raises(InputError, match=r"stop_details\.csv: stop a: road 102\S* has no lane 7"):
        check_network(replace(city, stops=(lane, *city.stops[1:])))
    text = unpacked(layout.carried.network).decode()  # type: ignore[union-attr]
    first, second = city.services[0].roads[:2]
    cut = text.replace(f'<connection from="{first}" to="{second}"', '<connection from="" to=""')
    with pytest.raises(InputError, match=rf"row 1: road {first} does not lead into {second}"):
        check_network(replace(city, carried=Carried(gzip.compress(cut.encode()))))
    bare = text.replace(f'<lane id="{first}_', '<lane id="x_')
    with pytest.raises(InputError, match=rf"row 1: the network of the city has no road {first}"):
        check_network(replace(city, carried=Carried(gzip.compress(bare.encode()))))
    with pytest.raises(InputError, match="cannot be unpacked"):
        check_network(replace(city, carried=Carried(b"not gzip")))


def test_a_gap_is_refused_with_its_stops_and_place(osm: Path) -> None:
    with pytest.raises(
        InputError, match=r"village\.osm: no street connects M\.0 from 'Stop b' to 'Stop e'"
    ):
        matched([LINE, ACROSS], ORIGIN, Map(osm))


def test_bridges_close_a_gap_and_are_named_in_every_result(bridged: Layout) -> None:
    plain, across = bridged.fits
    assert plain.bridged_m == 0.0
    # From the east of the village, at 4 blocks, to the west of the island, at 9.
    assert across.bridged_m == pytest.approx(5 * BLOCK_M, abs=40.0)
    assert bridged.notes == (
        f"the map lacks {across.bridged_m / 1000:.1f} of "
        f"{(plain.length_m + across.length_m) / 1000:.1f} km of the services; "
        "straight links close the gaps",
    )
    (sea,) = [stop for stop in bridged.stops if stop.source == "sea"]
    assert sea.road.startswith("bridge")


def test_a_binary_extract_gives_the_same_network(osm: Path, layout: Layout, tmp_path: Path) -> None:
    import osmium

    pbf = tmp_path / "village.osm.pbf"
    with osmium.SimpleWriter(str(pbf)) as writer:
        for thing in osmium.FileProcessor(str(osm)):
            writer.add(thing)
    assert network_of(pbf, ORIGIN, [LINE.points], False).content == layout.carried.network  # type: ignore[union-attr]


def test_streets_far_from_the_lines_are_left_out(osm: Path) -> None:
    network = network_of(osm, ORIGIN, [LINE.points], False)
    ids = {id.lstrip("-").split("#")[0] for id in read_streets(network.content, network.placed).ids}
    assert "300" not in ids
    assert {"102", "103", "203"} <= ids


def test_a_network_of_ones_own_stays_as_it_is(osm: Path, layout: Layout, tmp_path: Path) -> None:
    """A network in another projection: the same streets, placed by its own words."""
    path = tmp_path / "utm.net.xml"
    options = ("--osm-files", str(osm), "--proj.utm", "true", "--geometry.remove", "true")
    subprocess.run(
        [binary("netconvert"), *options, "--no-turnarounds", "true", "-o", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    own = matched([LINE], ORIGIN, Map(path))
    assert own.carried is not None
    assert unpacked(own.carried.network) == path.read_bytes()
    assert osm_ways(own) == osm_ways(layout)
    for one, other in zip(own.nodes, layout.nodes, strict=True):
        assert (one.x_m, one.y_m) == pytest.approx((other.x_m, other.y_m), abs=1.0)
    behind = np.concatenate(background(city_of(own)))
    assert np.abs(behind).max() < 5 * BLOCK_M
    packed = tmp_path / "utm.net.xml.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert matched([LINE], ORIGIN, Map(packed)).services == own.services


@pytest.mark.parametrize("lefthand", [False, True])
def test_lanes_are_on_the_side_that_traffic_keeps_to(osm: Path, lefthand: bool) -> None:
    network = network_of(osm, ORIGIN, [LINE.points], lefthand)
    streets = read_streets(network.content, network.placed)
    assert streets.lefthand == lefthand
    for id, line in zip(streets.ids, streets.lines, strict=True):
        if id.startswith("203"):  # northbound in column 3
            assert (line[:, 0] < 3 * BLOCK_M).all() == lefthand


def test_streets_behind_the_lines_are_those_of_the_carried_network(layout: Layout) -> None:
    lines = background(city_of(layout))
    ends = np.array([line[0] for line in lines])
    assert len(lines) > 20
    assert ends.min() > -20.0
    assert ends.max() < 5 * BLOCK_M
    assert background(replace(city_of(layout), carried=None)) == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("map.txt", b"", "not a map that we can read"),
        ("map.osm", b"<osm", "cannot be read"),
        ("map.osm.pbf", b"no", "cannot be read"),
        ("map.net.xml", b"<net><edge/></net>", "not a SUMO network"),
        ("map.net.xml.gz", b"\x1f\x8bno", "cannot be unpacked"),
        (
            "map.net.xml",
            b'<net version="1.20"><location netOffset="0,0" convBoundary="0,0,1,1" '
            b'origBoundary="0,0,1,1" projParameter="!"/></net>',
            "does not say where on earth",
        ),
    ],
)
def test_a_file_that_is_no_map_gets_one_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said) as error:
        matched([LINE], ORIGIN, Map(tmp_path / name))
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_map_of_elsewhere_is_refused(osm: Path) -> None:
    far = replace(LINE, points=LINE.points + 50_000.0)
    with pytest.raises(InputError, match=r"village\.osm: has no street within 200 m of the lines"):
        matched([far], ORIGIN, Map(osm))
    with pytest.raises(InputError, match="no such map"):
        matched([LINE], ORIGIN, Map(Path("nowhere.osm")))


def test_the_files_of_cities_without_a_network_are_what_they_were(tmp_path: Path) -> None:
    write_scenario(open_city("town"), Cell(7, 8), tmp_path)
    whole = hashlib.sha256()
    for path in sorted(tmp_path.iterdir()):
        whole.update(path.name.encode() + path.read_bytes())
    assert whole.hexdigest() == "322ceb0d0f6687934420b0f57e49c6d49fa95e09267954428a98ee714de868bc"


PORTO_ALEGRE = Path(__file__).parents[2].parent / "shared" / "data" / "porto-alegre"


@pytest.mark.skipif(not PORTO_ALEGRE.is_dir(), reason="needs ../shared/data/porto-alegre")
def test_a_real_line_lies_within_a_lane_or_two_of_its_shape() -> None:
    wanted = Wanted(("510",), date(2019, 5, 14))
    lay = partial(matched, source=Map(PORTO_ALEGRE / "osm.pbf"))
    found = read_gtfs(PORTO_ALEGRE / "gtfs.zip", wanted, "porto-alegre", lay)
    fits = [line for line in found.remarks if "(median)" in line]
    assert len(fits) == len(found.city.services) == 2
    for line in fits:
        median_m, p95_m = map(float, re.findall(r"(\d+) m \(", line))
        assert median_m <= 6.0
        assert p95_m <= 15.0
    check_network(found.city)
