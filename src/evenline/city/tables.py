"""A city on disk: a folder of readable tables and a manifest with the SHA-256 of each.

`save_city` writes the same bytes for the same city; `load_city` checks the manifest, then every
row, and names the file and row at fault. Column names follow GTFS where it has one. A city writes
an optional table only if it has something to say there, so an older city keeps its digest.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
from msgspec import Meta, field, structs

from evenline.city.demand import CarriedLeg, journeys_from
from evenline.city.details import operations_of, optional_tables, with_details
from evenline.city.embedded import PLANS, embedded_city
from evenline.city.model import (
    Carried,
    City,
    Clock,
    Journeys,
    Node,
    Origin,
    Road,
    Service,
    Stop,
    Traffic,
    Trip,
    Variation,
    Vehicle,
)
from evenline.city.operations import Operations
from evenline.city.ranges import COLUMNS, OPTIONAL, RANGES, VEHICLE, Range
from evenline.city.rows import Row, csv_text, numbers, read_content, read_table
from evenline.support.errors import InputError, choice
from evenline.support.files import listing_of, new_folder, refuse_changed, sha256, to_json
from evenline.support.records import (
    FileName,
    Hashes,
    Line,
    Record,
    Word,
    plain,
    read_record,
    write_record,
)

MANIFEST = "manifest.json"
FORMAT = "evenline-city-1"
PEOPLE = ("passengers.csv", "legs.csv")
OPERATED = ("control_points.csv", "disruptions.csv")
NETWORK = "network.net.xml.gz"
T = TypeVar("T")


class VehicleTable(Record, omit_defaults=True):
    """The bus type; numbers stay whole or decimal as written, because hashes depend on it."""

    capacity: int | float
    min_dwell_s: int | float
    exchange_s_per_passenger: int | float
    length_m: int | float
    max_speed_mps: int | float
    accel_mps2: int | float
    decel_mps2: int | float
    opening_s: Annotated[float, Meta(ge=0.0, le=600.0)] = 0.0
    alighting_s_per_passenger: Annotated[float, Meta(ge=0.0, le=600.0)] | None = None
    crowding_s_per_passenger: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.0


class OriginTable(Record):
    """The place on earth that coordinates are measured from."""

    lat: Annotated[float, Meta(ge=-90.0, le=90.0)]
    lon: Annotated[float, Meta(ge=-180.0, le=180.0)]


class ClockTable(Record):
    """When second 0 of the day is."""

    date: Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")]
    start_s: Annotated[int, Meta(ge=0, le=2 * 86_400)]
    zone: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_+/-]*\Z", max_length=100)]


class CarriedTable(Record):
    """The files of SUMO that the folder contains beside its network."""

    additional: tuple[FileName, ...] = ()
    routes: tuple[FileName, ...] = ()
    own_buses: bool = False
    begin_s: Annotated[int, Meta(ge=0, le=10 * 86_400)] = 0
    options: dict[Word, Line] = field(default_factory=dict)


class VariationTable(Record):
    """How demand differs from day to day."""

    days: Annotated[float, Meta(ge=1.0, le=1_000.0)]
    day_sd: Annotated[float, Meta(ge=0.0, le=10.0)]
    line_sd: Annotated[float, Meta(ge=0.0, le=10.0)]


Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Allowance = Annotated[float, Meta(ge=-86_400.0, le=86_400.0)]


class OperationsTable(Record, omit_defaults=True):
    """How the city is operated, as far as it has no table; see `Operations`."""

    hold_at: Literal["all", "terminals", "listed"] = "all"
    max_hold_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 60.0
    earliest_s: Allowance | None = None
    latest_s: Allowance | None = None
    most_load: Share = 1.0
    ignored_share: Share = 0.0
    cut_share: Share = 0.0
    round_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 0.0
    cancelled_share: Share = 0.0
    duties: bool = False
    recovery_s: Annotated[int, Meta(ge=0, le=86_400)] = 0


class Manifest(Record, omit_defaults=True):
    """The content of `manifest.json`: the hashes of the tables, and values that have no table."""

    format: Word
    name: str
    horizon_s: int
    vehicle: VehicleTable
    files: Hashes
    origin: OriginTable | None = None
    clock: ClockTable | None = None
    notes: tuple[Line, ...] = ()
    carried: CarriedTable | None = None
    operations: OperationsTable | None = None
    variation: VariationTable | None = None


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
    return _read_manifest(folder).notes


def manifest_with(folder: Path, notes: tuple[str, ...]) -> bytes:
    """The manifest of a city folder with other notes, as its file holds it."""
    return to_json(plain(structs.replace(_read_manifest(folder), notes=notes))).encode()


def digest(city: City) -> str:
    """The SHA-256 of the city's manifest, which identifies the city."""
    return hashlib.sha256(to_json(plain(_manifest(city, _files(city)))).encode()).hexdigest()


def network_digest(city: City) -> str:
    """A SHA-256 of streets, cars, stops, timetable and vehicle, without passengers and operations.

    Running times depend only on these, so a calibration is valid for any demand.
    """
    manifest = plain(_manifest(city, _files(city, without=(*PEOPLE, *OPERATED))))
    fitted = {name: manifest[name] for name in ("files", "vehicle", "horizon_s")}
    if city.carried is not None:
        fitted["carried"] = manifest["carried"]
    return hashlib.sha256(to_json(fitted).encode()).hexdigest()


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
        write_record(aside / MANIFEST, _manifest(city, files))


def _refuse_other(folder: Path) -> None:
    """Refuse to replace a folder that is not a city's as we wrote it."""
    listing, manifest = listing_of(folder), folder / MANIFEST
    if not listing and manifest.is_file():
        hashes = {**_read_manifest(folder).files, manifest.name: sha256(manifest)}
        listing = {name: [own] for name, own in hashes.items()}
    refuse_changed(folder, listing)


def _manifest(city: City, files: dict[str, bytes]) -> Manifest:
    carried = city.carried
    return Manifest(
        format=FORMAT,
        name=city.name,
        horizon_s=city.horizon_s,
        vehicle=_vehicle_table(city.vehicle),
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        origin=OriginTable(**asdict(city.origin)) if city.origin else None,
        clock=ClockTable(**asdict(city.clock)) if city.clock else None,
        notes=city.notes,
        carried=CarriedTable(
            additional=tuple(carried.additional),
            routes=tuple(carried.routes),
            own_buses=carried.own_buses,
            begin_s=carried.begin_s,
            options=dict(carried.options),
        )
        if carried
        else None,
        operations=_operations_table(city.operations),
        variation=VariationTable(**asdict(city.variation)) if city.variation else None,
    )


def _vehicle_table(vehicle: Vehicle) -> VehicleTable:
    """The bus type without what is as usual about its doors, so that older cities keep their
    digest.
    """
    values, usual = asdict(vehicle), asdict(Vehicle())
    return VehicleTable(**{k: v for k, v in values.items() if k in VEHICLE or v != usual[k]})


def _operations_table(operations: Operations) -> OperationsTable | None:
    """What the manifest says of the operations; nothing if they are the usual ones."""
    own = OperationsTable(
        **{name: getattr(operations, name) for name in OperationsTable.__struct_fields__}
    )
    return None if own == OperationsTable() else own


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
    return _load(folder, _read_manifest(folder))


def seal_city(folder: Path) -> City:
    """Check every row, then write the hashes of the edited tables to the manifest."""
    manifest = _read_manifest(folder)
    paths = {name: folder / name for name in (*COLUMNS, *_carried_names(manifest))}
    hashes = {name: sha256(path) for name, path in paths.items() if path.is_file()}
    manifest = structs.replace(manifest, files=hashes)
    city = _load(folder, manifest)
    write_record(folder / MANIFEST, manifest)
    return city


def _read_manifest(folder: Path) -> Manifest:
    return read_record(folder / MANIFEST, Manifest, FORMAT, folder)


def _load(folder: Path, manifest: Manifest) -> City:
    rows = {
        name: [] if _absent(folder, name, manifest) else read_table(folder, name, manifest.files)
        for name in COLUMNS
    }
    try:
        city = with_details(_assemble(manifest, rows), rows)
        told = structs.asdict(manifest.operations) if manifest.operations else {}
        city = replace(city, operations=operations_of(city, Operations(**told), rows))
        if manifest.carried is not None:
            city = replace(city, carried=_read_carried(folder, manifest, manifest.carried))
        _check_ranges(folder, manifest, rows)
        _check_sumo(rows)
        return city
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(f"{folder}/") else f"{folder}: {text}") from None


def _absent(folder: Path, name: str, manifest: Manifest) -> bool:
    return name in OPTIONAL and name not in manifest.files and not (folder / name).exists()


def _carried_names(manifest: Manifest) -> tuple[str, ...]:
    own = manifest.carried
    return () if own is None else (NETWORK, *own.additional, *own.routes)


def _read_carried(folder: Path, manifest: Manifest, own: CarriedTable) -> Carried:
    found = {name: read_content(folder, name, manifest.files) for name in _carried_names(manifest)}
    return Carried(
        network=found[NETWORK],
        additional={name: found[name] for name in own.additional},
        routes={name: found[name] for name in own.routes},
        own_buses=own.own_buses,
        begin_s=own.begin_s,
        options=own.options,
    )


def _assemble(manifest: Manifest, rows: dict[str, list[Row]]) -> City:
    stops = tuple(
        Stop(
            row["stop_id"],
            row["road_id"],
            row.number("pos_m", float),
            row.number("x_m", float),
            row.number("y_m", float),
        )
        for row in rows["stops.csv"]
    )
    stop_index = {stop.id: i for i, stop in enumerate(stops)}
    services = _services(rows, stop_index)
    service_index = {service.id: i for i, service in enumerate(services)}
    origin, clock = manifest.origin, manifest.clock
    return City(
        name=manifest.name,
        horizon_s=manifest.horizon_s,
        vehicle=Vehicle(**structs.asdict(manifest.vehicle)),
        nodes=tuple(
            Node(
                row["node_id"],
                row.number("x_m", float),
                row.number("y_m", float),
                bool(row.number("signal", int)),
                row.number("offset_s", int),
            )
            for row in rows["nodes.csv"]
        ),
        roads=tuple(
            Road(
                row["road_id"],
                row["from_node"],
                row["to_node"],
                row.number("length_m", float),
                bool(row.number("bus_lane", int)),
            )
            for row in rows["roads.csv"]
        ),
        stops=stops,
        services=services,
        trips=tuple(
            Trip(
                row["trip_id"],
                row.one_of("service_id", service_index, "service"),
                row.number("departure_s", int),
            )
            for row in rows["trips.csv"]
        ),
        journeys=_journeys(rows, stop_index, service_index),
        traffic=Traffic(
            tuple(tuple(row["roads"].split()) for row in rows["car_routes.csv"]),
            tuple(row.number("weight", float) for row in rows["car_routes.csv"]),
            tuple(_volume(*each) for each in enumerate(rows["car_volumes.csv"])),
        ),
        origin=Origin(**structs.asdict(origin)) if origin else None,
        clock=Clock(**structs.asdict(clock)) if clock else None,
        notes=manifest.notes,
        variation=Variation(**structs.asdict(manifest.variation)) if manifest.variation else None,
    )


def _check_ranges(folder: Path, manifest: Manifest, rows: dict[str, list[Row]]) -> None:
    """Refuse values that no simulator can use."""
    keys = structs.asdict(manifest)
    keys |= {f"vehicle.{key}": value for key, value in structs.asdict(manifest.vehicle).items()}
    for key, allowed in RANGES[MANIFEST].items():
        if not allowed.allows(str(keys[key])):
            raise InputError(f"{folder}/manifest.json: {key} {keys[key]!r} must be {allowed}")
    for name, table in rows.items():
        for column, allowed in RANGES[name].items():
            wrong = {v for v in {row[column] for row in table} if not allowed.allows(v)}
            row = next((row for row in table if row[column] in wrong), None)
            if row is not None:
                value = row[column] if isinstance(allowed, Range) else repr(row[column])
                raise InputError(f"{row.where}: {column} {value} must be {allowed}")


def _check_sumo(rows: dict[str, list[Row]]) -> None:
    """Refuse ids that mean something else to SUMO, and routes that no car takes."""
    for row in rows["services.csv"]:
        if row["service_id"] == "ANY":
            raise InputError(f"{row.where}: service_id 'ANY' is any bus to SUMO; choose another")
    if not (routes := rows["car_routes.csv"]):
        return
    if not any(float(row["weight"]) for row in routes):
        raise InputError(f"{routes[0].where}: weight is 0 in every row; give a route more than 0")
    for name, column, cars in (
        ("services", "service_id", r"c\d+"),
        ("trips", "trip_id", r"car\d+"),
    ):
        for row in rows[f"{name}.csv"]:
            if re.fullmatch(cars, row[column]):
                raise InputError(
                    f"{row.where}: {column} {row[column]!r} is an id of our cars; choose another"
                )


def _volume(number: int, row: Row) -> float:
    if row.number("hour", int) != number:
        raise InputError(f"{row.where}: hour {row['hour']} must be {number}")
    volume = row.number("cars_per_hour", float)
    if not (np.isfinite(volume) and volume >= 0):
        raise InputError(f"{row.where}: cars_per_hour {volume} must be at least 0")
    return volume


def _services(rows: dict[str, list[Row]], stop_index: dict[str, int]) -> tuple[Service, ...]:
    order: dict[str, list[tuple[int, float]]] = {
        row["service_id"]: [] for row in rows["services.csv"]
    }
    for row in rows["service_stops.csv"]:
        here = row.one_of("service_id", order, "service")
        if row.number("stop_sequence", int) != len(here):
            raise InputError(
                f"{row.where}: stop_sequence {row['stop_sequence']} of {row['service_id']} "
                f"must be {len(here)}"
            )
        stop = row.one_of("stop_id", stop_index, "stop")
        here.append((stop, row.number("shape_dist_traveled_m", float)))
    return tuple(
        Service(
            row["service_id"],
            row["route_id"],
            tuple(stop for stop, _ in order[row["service_id"]]),
            tuple(at for _, at in order[row["service_id"]]),
            tuple(row["roads"].split()),
            row.number("length_m", float),
        )
        for row in rows["services.csv"]
    )


def _carriers(row: Row, services: dict[str, int]) -> tuple[int, ...]:
    """The services that may carry a leg."""
    carriers: list[int] = []
    for name in row["services"].split():
        if name not in services:
            raise InputError(f"{row.where}: unknown service {name!r}")
        if services[name] in carriers:
            raise InputError(f"{row.where}: service {name} appears twice")
        carriers.append(services[name])
    if not carriers:
        raise InputError(f"{row.where}: lists no service; name at least one")
    return tuple(carriers)


def _journeys(
    rows: dict[str, list[Row]], stops: dict[str, int], services: dict[str, int]
) -> Journeys:
    people = rows["passengers.csv"]
    legs: list[list[CarriedLeg]] = [[] for _ in people]
    for number, person in enumerate(numbers(people, "passenger_id", int)):
        if person != number:
            raise InputError(f"{people[number].where}: passenger_id must be {number}")
    table, known = rows["legs.csv"], {}
    of_person = zip(numbers(table, "passenger_id", int), numbers(table, "leg", int), strict=True)
    for row, (person, leg) in zip(table, of_person, strict=True):
        if not 0 <= person < len(people):
            raise InputError(f"{row.where}: unknown passenger {person}")
        if leg != len(legs[person]):
            raise InputError(f"{row.where}: leg must be {len(legs[person])}")
        key = (row["board_stop_id"], row["alight_stop_id"], row["services"])
        if key not in known:  # many people make the same journey
            known[key] = (
                row.one_of("board_stop_id", stops, "stop"),
                row.one_of("alight_stop_id", stops, "stop"),
                _carriers(row, services),
            )
        legs[person].append(known[key])
    return journeys_from(
        numbers(people, "departure_s", int), numbers(people, "min_demand", float), legs
    )
