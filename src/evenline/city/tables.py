"""A city on disk: a folder of readable tables and a manifest with the SHA-256 of each.

`save_city` writes the same bytes for the same city; `load_city` checks the manifest, then every
row, and names the file and row at fault. Column names follow GTFS where it has one. A city writes
an optional table only if it has something to say there, so an older city keeps its digest.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from msgspec import structs

from evenline.city.demand import CarriedLeg, journeys_from
from evenline.city.details import Tables, operations_of, optional_tables, with_details
from evenline.city.embedded import PLANS, embedded_city
from evenline.city.manifest import (
    MANIFEST,
    NETWORK,
    CarriedTable,
    Manifest,
    carried_names,
    manifest_of,
    operations_in,
    parts_of,
    read_manifest,
)
from evenline.city.model import Carried, City, Journeys, Node, Road, Service, Stop, Traffic, Trip
from evenline.city.ranges import COLUMNS, OPTIONAL, RANGES, Range
from evenline.city.rows import CityTable, csv_text, read_content, read_table, table_of
from evenline.support.errors import InputError, choice
from evenline.support.files import listing_of, new_folder, refuse_changed, sha256, to_json
from evenline.support.records import Hashes, plain, write_record

PEOPLE = ("passengers.csv", "legs.csv")
_OPERATED = ("starts.csv", "control_points.csv", "disruptions.csv")


def open_city(name_or_folder: str) -> City:
    """An embedded city by name, or a city folder by path."""
    if name_or_folder in PLANS:
        return embedded_city(name_or_folder)
    folder = Path(name_or_folder)
    if not name_or_folder or not folder.is_dir():
        raise InputError(
            f"unknown city {name_or_folder!r}; choose {choice(PLANS)}, or name a city folder"
        )
    return load_city(folder)


def city_notes(folder: Path) -> tuple[str, ...]:
    """The sentences that every result of a city folder repeats."""
    return read_manifest(folder).notes


def manifest_with(folder: Path, notes: tuple[str, ...]) -> bytes:
    """The manifest of a city folder with other notes, as its file holds it."""
    return to_json(plain(structs.replace(read_manifest(folder), notes=notes))).encode()


def digest(city: City) -> str:
    """The SHA-256 of the city's manifest, which identifies the city."""
    return _hash(to_json(plain(manifest_of(city, _hashes(_files(city))))))


def network_digest(city: City) -> str:
    """A SHA-256 of streets, cars, stops, timetable and vehicle, without passengers and operations.

    Running times depend only on these, so a calibration is valid for any demand.
    """
    files = _files(city, without=(*PEOPLE, *_OPERATED))
    manifest = plain(manifest_of(city, _hashes(files)))
    fitted = {name: manifest[name] for name in ("files", "vehicle", "horizon_s")}
    if city.carried is not None:
        fitted["carried"] = manifest["carried"]
    return _hash(to_json(fitted))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hashes(files: dict[str, bytes]) -> Hashes:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def save_city(city: City, folder: Path, force: bool = False) -> None:
    """Write a city as a folder of tables, atomically.

    Without `force` it replaces only a city folder in which nothing was added or changed.
    """
    if not force:
        _refuse_other(folder)
    files = _files(city)
    with new_folder(folder) as aside:
        for name, content in files.items():
            (aside / name).write_bytes(content)
        write_record(aside / MANIFEST, manifest_of(city, _hashes(files)))


def _refuse_other(folder: Path) -> None:
    """Refuse to replace a folder that is not a city's as we wrote it."""
    listing, manifest = listing_of(folder), folder / MANIFEST
    if not listing and manifest.is_file():
        hashes = {**read_manifest(folder).files, manifest.name: sha256(manifest)}
        listing = {name: [hashed] for name, hashed in hashes.items()}
    refuse_changed(folder, listing)


def _files(city: City, without: Collection[str] = ()) -> dict[str, bytes]:
    """Every file of a city's folder but the manifest, or all but some of its tables."""
    optional = {n: text for n, text in optional_tables(city).items() if n not in without}
    files = {name: text.encode() for name, text in (_tables(city, without) | optional).items()}
    if city.carried is not None:
        files[NETWORK] = city.carried.network
        files |= {**city.carried.additional, **city.carried.routes}
    return files


def _legs(city: City) -> Iterator[Iterable[object]]:
    journeys = city.journeys
    stops = [stop.id for stop in city.stops]
    carriers = [" ".join(city.services[s].id for s in row) for row in journeys.carriers]
    board, alight = journeys.leg_board.tolist(), journeys.leg_alight.tolist()
    carried = journeys.leg_carriers.tolist()
    for person, (first, end) in enumerate(pairwise(journeys.leg_start.tolist())):
        for leg in range(first, end):
            names = (stops[board[leg]], stops[alight[leg]], carriers[carried[leg]])
            yield (person, leg - first, *names)


def _tables(city: City, without: Collection[str]) -> dict[str, str]:
    journeys, services, stops = city.journeys, city.services, city.stops
    rows: dict[str, Iterable[Iterable[object]]] = {
        "nodes.csv": ((n.id, n.x_m, n.y_m, int(n.signal), n.offset_s) for n in city.nodes),
        "roads.csv": (
            (r.id, r.from_node, r.to_node, r.length_m, int(r.bus_lane)) for r in city.roads
        ),
        "stops.csv": ((s.id, s.road, s.pos_m, s.x_m, s.y_m) for s in stops),
        "services.csv": ((s.id, s.route, s.length_m, " ".join(s.roads)) for s in services),
        "service_stops.csv": (
            (s.id, i, stops[stop].id, at)
            for s in services
            for i, (stop, at) in enumerate(zip(s.stops, s.distance_m, strict=True))
        ),
        "trips.csv": ((t.id, services[t.service].id, t.departure_s) for t in city.trips),
        "passengers.csv": zip(
            range(len(journeys)),
            journeys.departure_s.tolist(),
            journeys.min_demand.astype(float).tolist(),
            strict=True,
        ),
        "legs.csv": _legs(city),
        "car_routes.csv": (
            (w, " ".join(r)) for w, r in zip(city.traffic.weights, city.traffic.routes, strict=True)
        ),
        "car_volumes.csv": enumerate(map(float, city.traffic.cars_per_hour)),
    }
    return {name: csv_text(name, table) for name, table in rows.items() if name not in without}


# -- reading --------------------------------------------------------------------------------------


def load_city(folder: Path) -> City:
    """Read a city folder. An error names the file and row at fault."""
    return _load(folder, read_manifest(folder))


def seal_city(folder: Path) -> City:
    """Check every row, then write the hashes of the edited tables to the manifest."""
    manifest = read_manifest(folder)
    paths = {name: folder / name for name in (*COLUMNS, *carried_names(manifest))}
    hashes = {name: sha256(path) for name, path in paths.items() if path.is_file()}
    manifest = structs.replace(manifest, files=hashes)
    city = _load(folder, manifest)
    write_record(folder / MANIFEST, manifest)
    return city


def _load(folder: Path, manifest: Manifest) -> City:
    tables = {
        name: table_of(folder / name)
        if _absent(folder, name, manifest)
        else read_table(folder, name, manifest.files)
        for name in COLUMNS
    }
    try:
        city = with_details(_assemble(manifest, tables), tables)
        city = replace(city, operations=operations_of(city, operations_in(manifest), tables))
        if manifest.carried is not None:
            city = replace(city, carried=_read_carried(folder, manifest, manifest.carried))
        _check_ranges(folder, manifest, tables)
        _check_sumo(tables)
        return city
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(f"{folder}/") else f"{folder}: {text}") from None


def _absent(folder: Path, name: str, manifest: Manifest) -> bool:
    return name in OPTIONAL and name not in manifest.files and not (folder / name).exists()


def _read_carried(folder: Path, manifest: Manifest, table: CarriedTable) -> Carried:
    files = {name: read_content(folder, name, manifest.files) for name in carried_names(manifest)}
    return Carried(
        network=files[NETWORK],
        additional={name: files[name] for name in table.additional},
        routes={name: files[name] for name in table.routes},
        own_buses=table.own_buses,
        begin_s=table.begin_s,
        options=table.options,
    )


def _assemble(manifest: Manifest, tables: Tables) -> City:
    stops = tuple(map(Stop, *tables["stops.csv"].columns()))
    stop_index = {stop.id: i for i, stop in enumerate(stops)}
    services = _services(tables, stop_index)
    service_index = {service.id: i for i, service in enumerate(services)}
    trips, cars = tables["trips.csv"], tables["car_routes.csv"]
    return City(
        **parts_of(manifest),
        nodes=tuple(map(Node, *tables["nodes.csv"].columns())),
        roads=tuple(map(Road, *tables["roads.csv"].columns())),
        stops=stops,
        services=services,
        trips=tuple(
            map(
                Trip,
                trips.texts["trip_id"],
                trips.one_of("service_id", service_index, "service"),
                trips.column("departure_s"),
            )
        ),
        journeys=_journeys(tables, stop_index, service_index),
        traffic=Traffic(
            tuple(cars.column("roads")),
            tuple(cars.column("weight")),
            tuple(_volumes(tables["car_volumes.csv"])),
        ),
    )


def _check_ranges(folder: Path, manifest: Manifest, tables: Tables) -> None:
    """Refuse values that no simulator can use."""
    keys = structs.asdict(manifest)
    keys |= {f"vehicle.{key}": value for key, value in structs.asdict(manifest.vehicle).items()}
    for key, allowed in RANGES[MANIFEST].items():
        if not allowed.allows(str(keys[key])):
            raise InputError(f"{folder}/manifest.json: {key} {keys[key]!r} must be {allowed}")
    for name, table in tables.items():
        for column, allowed in RANGES[name].items():
            texts = table.texts[column]
            wrong = {text for text in set(texts) if not allowed.allows(text)}
            if wrong:
                row = next(row for row, text in enumerate(texts) if text in wrong)
                value = texts[row] if isinstance(allowed, Range) else repr(texts[row])
                raise InputError(f"{table.where(row)}: {column} {value} must be {allowed}")


def _check_sumo(tables: Tables) -> None:
    """Refuse ids that mean something else to SUMO, and routes that no car takes."""
    services, routes = tables["services.csv"], tables["car_routes.csv"]
    for row, service in enumerate(services.texts["service_id"]):
        if service == "ANY":
            raise InputError(
                f"{services.where(row)}: service_id 'ANY' is any bus to SUMO; choose another"
            )
    if not routes.rows:
        return
    if not any(routes.column("weight")):
        raise InputError(f"{routes.where(0)}: weight is 0 in every row; give a route more than 0")
    for table, column, cars in (
        (services, "service_id", r"c\d+"),
        (tables["trips.csv"], "trip_id", r"car\d+"),
    ):
        for row, name in enumerate(table.texts[column]):
            if re.fullmatch(cars, name):
                raise InputError(
                    f"{table.where(row)}: {column} {name!r} is an id of our cars; choose another"
                )


def _volumes(table: CityTable) -> list[float]:
    hours, volumes = table.columns()
    for row, (hour, volume) in enumerate(zip(hours, volumes, strict=True)):
        if hour != row:
            raise InputError(f"{table.where(row)}: hour {hour} must be {row}")
        if not 0 <= volume < math.inf:
            raise InputError(f"{table.where(row)}: cars_per_hour {volume} must be at least 0")
    return volumes


def _services(tables: Tables, stop_index: dict[str, int]) -> tuple[Service, ...]:
    names, routes, lengths, roads = tables["services.csv"].columns()
    table = tables["service_stops.csv"]
    order: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    rows = zip(
        table.one_of("service_id", order, "service"),
        table.column("stop_sequence"),
        table.one_of("stop_id", stop_index, "stop"),
        table.column("shape_dist_traveled_m"),
        strict=True,
    )
    for row, (stops, number, stop, at_m) in enumerate(rows):
        if number != len(stops):
            raise InputError(
                f"{table.where(row)}: stop_sequence {number} of {table.texts['service_id'][row]} "
                f"must be {len(stops)}"
            )
        stops.append((stop, at_m))
    return tuple(
        Service(
            name,
            route,
            tuple(stop for stop, _ in order[name]),
            tuple(at_m for _, at_m in order[name]),
            way,
            length_m,
        )
        for name, route, length_m, way in zip(names, routes, lengths, roads, strict=True)
    )


def _carriers(where: str, names: str, services: dict[str, int]) -> tuple[int, ...]:
    """The services that may carry a leg."""
    carriers: list[int] = []
    for name in names.split():
        if name not in services:
            raise InputError(f"{where}: unknown service {name!r}")
        if services[name] in carriers:
            raise InputError(f"{where}: service {name} appears twice")
        carriers.append(services[name])
    if not carriers:
        raise InputError(f"{where}: lists no service; name at least one")
    return tuple(carriers)


def _journeys(tables: Tables, stops: dict[str, int], services: dict[str, int]) -> Journeys:
    people, table = tables["passengers.csv"], tables["legs.csv"]
    for number, person in enumerate(people.column("passenger_id")):
        if person != number:
            raise InputError(f"{people.where(number)}: passenger_id must be {number}")
    legs: list[list[CarriedLeg]] = [[] for _ in range(people.rows)]
    carriers: dict[str, tuple[int, ...]] = {}  # many people make the same journey
    columns = zip(
        table.column("passenger_id"),
        table.column("leg"),
        table.one_of("board_stop_id", stops, "stop"),
        table.one_of("alight_stop_id", stops, "stop"),
        table.texts["services"],
        strict=True,
    )
    for row, (person, leg, board, alight, names) in enumerate(columns):
        if not 0 <= person < len(legs):
            raise InputError(f"{table.where(row)}: unknown passenger {person}")
        if leg != len(legs[person]):
            raise InputError(f"{table.where(row)}: leg must be {len(legs[person])}")
        if names not in carriers:
            carriers[names] = _carriers(table.where(row), names, services)
        legs[person].append((board, alight, carriers[names]))
    return journeys_from(people.column("departure_s"), people.column("min_demand"), legs)
