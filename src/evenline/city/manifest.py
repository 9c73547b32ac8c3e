"""The manifest of a city folder: the hashes of its tables, and values that have no table.

Keys are checked with their types and ranges as they are read. What is as usual is not written, so
that an older city keeps its digest.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, field, structs

from evenline.city.model import Carried, City, Clock, Origin, Variation, Vehicle
from evenline.city.operations import Operations
from evenline.city.ranges import VEHICLE
from evenline.support.records import FileName, Hashes, Line, Record, Word, read_record

MANIFEST = "manifest.json"
FORMAT = "evenline-city-1"
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
    starts_shared: Share = 0.0


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


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a city folder."""
    return read_record(folder / MANIFEST, Manifest, FORMAT, folder)


def manifest_of(city: City, files: Hashes) -> Manifest:
    """The manifest of a city whose tables have these hashes."""
    vehicle, usual = asdict(city.vehicle), asdict(Vehicle())
    operations = _alike(OperationsTable, city.operations)
    return Manifest(
        format=FORMAT,
        name=city.name,
        horizon_s=city.horizon_s,
        vehicle=VehicleTable(
            **{key: v for key, v in vehicle.items() if key in VEHICLE or v != usual[key]}
        ),
        files=files,
        origin=_alike(OriginTable, city.origin),
        clock=_alike(ClockTable, city.clock),
        notes=city.notes,
        carried=_carried_table(city.carried) if city.carried else None,
        operations=None if operations == OperationsTable() else operations,
        variation=_alike(VariationTable, city.variation),
    )


def parts_of(manifest: Manifest) -> dict[str, Any]:
    """The parts of a city that its manifest holds, by their names there."""
    return {
        "name": manifest.name,
        "horizon_s": manifest.horizon_s,
        "vehicle": Vehicle(**structs.asdict(manifest.vehicle)),
        "origin": _alike(Origin, manifest.origin),
        "clock": _alike(Clock, manifest.clock),
        "notes": manifest.notes,
        "variation": _alike(Variation, manifest.variation),
    }


def operations_in(manifest: Manifest) -> Operations:
    """How the city is operated, as far as it has no table."""
    return Operations(**structs.asdict(manifest.operations) if manifest.operations else {})


def carried_names(manifest: Manifest) -> tuple[str, ...]:
    """The files of SUMO in the folder."""
    table = manifest.carried
    return () if table is None else (NETWORK, *table.additional, *table.routes)


def _carried_table(carried: Carried) -> CarriedTable:
    return CarriedTable(
        additional=tuple(carried.additional),
        routes=tuple(carried.routes),
        own_buses=carried.own_buses,
        begin_s=carried.begin_s,
        options=dict(carried.options),
    )


def _alike(kind: type[T], value: object) -> T | None:
    """The same values as a part of the manifest, or of a city; nothing stays nothing."""
    if value is None:
        return None
    parts = structs.fields(kind) if issubclass(kind, Record) else fields(kind)  # type: ignore[arg-type]
    return kind(**{part.name: getattr(value, part.name) for part in parts})
