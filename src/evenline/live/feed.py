"""What a feed says at one moment: positions of vehicles and predictions, read from GTFS-Realtime.

Whatever a message contains, reading it ends in a `Snapshot` or in one `FeedError`. Sizes are
bounded, and an entity with impossible values is dropped and counted.
"""

import math
from typing import Any, NamedTuple

from evenline.support.errors import InputError

MOST_BYTES = 16 * 2**20
MOST_ENTITIES = 20_000
MOST_PREDICTIONS = 200_000
MOST_LETTERS = 200
LATEST_S = 4e9  # year 2096
OCCUPIED = {0: 0.0, 1: 0.2, 2: 0.4, 3: 0.65, 4: 0.9, 5: 1.0}  # share of capacity by status
STOPPED_AT = 1
SKIPPED, CANCELLED, DELETED = 1, 3, 7  # as GTFS-Realtime numbers them


class FeedError(InputError):
    """A feed could not be fetched or read this time; the next try may succeed."""


class Position(NamedTuple):
    """Where a vehicle was, and what it said about itself. Empty or negative: not said."""

    vehicle: str
    at_s: float  # since 1970
    lat: float
    lon: float
    trip: str = ""
    route: str = ""
    direction: int = -1
    date: str = ""  # of service, YYYYMMDD
    start: str = ""  # of the trip, HH:MM:SS
    stop: str = ""
    sequence: int = -1
    status: int = -1
    speed_mps: float = -1.0
    occupied: float = -1.0  # share of the capacity


class Prediction(NamedTuple):
    """When a trip is expected at a stop, as a feed says."""

    trip: str
    date: str
    stop: str
    sequence: int
    at_s: float


class Snapshot(NamedTuple):
    """A feed at one moment. `dropped` counts entities with impossible values."""

    at_s: float  # of its header; 0 if it has none
    positions: tuple[Position, ...]
    predictions: tuple[Prediction, ...] = ()
    dropped: int = 0
    cancelled: frozenset[tuple[str, str]] = frozenset()  # trip and date
    skipped: frozenset[tuple[str, str, str]] = frozenset()  # trip, date and stop


def bindings() -> Any:
    """The classes of GTFS-Realtime messages."""
    try:
        from google.transit import gtfs_realtime_pb2
    except ImportError:
        raise InputError("feeds need more packages; install them with: evenline[live]") from None
    return gtfs_realtime_pb2


def read_message(content: bytes) -> Snapshot:
    """Read a message, or raise a `FeedError`."""
    if len(content) > MOST_BYTES:
        raise FeedError(f"the feed has {len(content):,} bytes; at most {MOST_BYTES:,} are read")
    message = bindings().FeedMessage()
    try:
        message.ParseFromString(content)
    except Exception as error:  # the library raises several kinds
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise FeedError(f"the feed is not a GTFS-Realtime message ({said})") from None
    if len(message.entity) > MOST_ENTITIES:
        raise FeedError(f"the feed has {len(message.entity):,} entities; most: {MOST_ENTITIES:,}")
    header_s = float(message.header.timestamp)
    if not header_s < LATEST_S:
        raise FeedError(f"the feed's header says it was made at {header_s:.0f}, after 2096")
    positions: list[Position] = []
    predictions: list[Prediction] = []
    cancelled: set[tuple[str, str]] = set()
    skipped: set[tuple[str, str, str]] = set()
    dropped = 0
    for entity in message.entity:
        if entity.is_deleted:
            continue
        if entity.HasField("vehicle"):
            position = _position(entity, header_s)
            if checked(position):
                positions.append(position)
            else:
                dropped += 1
        if entity.HasField("trip_update") and len(predictions) < MOST_PREDICTIONS:
            trip = entity.trip_update.trip
            if not _short(trip.trip_id, trip.start_date):
                dropped += 1
            elif trip.schedule_relationship in (CANCELLED, DELETED):
                cancelled.add((trip.trip_id, trip.start_date))
            else:
                found = _predictions(entity.trip_update, skipped)
                predictions += [p for p in found if 0 < p.at_s < LATEST_S and _short(p.stop)]
    return Snapshot(
        header_s, tuple(positions), tuple(predictions), dropped, frozenset(cancelled),
        frozenset(skipped),
    )  # fmt: skip


def checked(position: Position) -> bool:
    """Whether the values of a position are possible."""
    lat, lon = position.lat, position.lon
    return (
        math.isfinite(lat)
        and math.isfinite(lon)
        and abs(lat) <= 90
        and abs(lon) <= 180
        and (lat, lon) != (0.0, 0.0)  # what receivers report before they know
        and 0 < position.at_s < LATEST_S
        and bool(position.vehicle)
        and _short(position.vehicle, position.trip, position.route, position.stop)
        and _short(position.date, position.start)
        and position.speed_mps <= 100  # also refuses NaN
        and position.occupied <= 10
    )


def _short(*texts: str) -> bool:
    """Whether these are short texts; the library returns bytes where one is no UTF-8."""
    for text in texts:  # a loop: half of the time to read a message goes here
        if not (isinstance(text, str) and len(text) <= MOST_LETTERS and text.isprintable()):
            return False
    return True


def _position(entity: Any, header_s: float) -> Position:
    seen, trip = entity.vehicle, entity.vehicle.trip
    speed = seen.position.speed if seen.position.HasField("speed") else -1.0
    return Position(
        vehicle=seen.vehicle.id or seen.vehicle.label or entity.id,
        at_s=float(seen.timestamp) or header_s,
        lat=seen.position.latitude,
        lon=seen.position.longitude,
        trip=trip.trip_id,
        route=trip.route_id,
        direction=trip.direction_id if trip.HasField("direction_id") else -1,
        date=trip.start_date,
        start=trip.start_time,
        stop=seen.stop_id,
        sequence=seen.current_stop_sequence if seen.HasField("current_stop_sequence") else -1,
        status=seen.current_status if seen.HasField("current_status") else -1,
        speed_mps=max(speed, -1.0),
        occupied=_occupied(seen),
    )


def _occupied(seen: Any) -> float:
    if seen.HasField("occupancy_percentage"):
        return float(seen.occupancy_percentage) / 100
    if seen.HasField("occupancy_status"):
        return OCCUPIED.get(seen.occupancy_status, -1.0)
    return -1.0


def _predictions(update: Any, skipped: set[tuple[str, str, str]]) -> list[Prediction]:
    """The expected arrivals of a trip; adds the stops that it leaves out to `skipped`."""
    found = []
    for call in update.stop_time_update:
        if call.schedule_relationship == SKIPPED:
            if _short(call.stop_id) and len(skipped) < MOST_PREDICTIONS:
                skipped.add((update.trip.trip_id, update.trip.start_date, call.stop_id))
            continue
        moment = call.arrival if call.arrival.time else call.departure
        sequence = call.stop_sequence if call.HasField("stop_sequence") else -1
        trip = update.trip
        found.append(
            Prediction(trip.trip_id, trip.start_date, call.stop_id, sequence, float(moment.time))
        )
    return found


def write_message(snapshot: Snapshot) -> bytes:
    """A snapshot as a GTFS-Realtime message; `read_message` reads the same again.

    Degrees are single floats there, good to about a metre, and occupancy is whole per cent.
    """
    message = bindings().FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    message.header.timestamp = round(snapshot.at_s)
    for number, position in enumerate(snapshot.positions):
        seen = message.entity.add(id=f"v{number}").vehicle
        seen.vehicle.id, seen.timestamp = position.vehicle, round(position.at_s)
        seen.position.latitude, seen.position.longitude = position.lat, position.lon
        trip = seen.trip
        trip.trip_id, trip.route_id = position.trip, position.route
        trip.start_date, trip.start_time = position.date, position.start
        seen.stop_id = position.stop
        if position.direction >= 0:
            trip.direction_id = position.direction
        if position.sequence >= 0:
            seen.current_stop_sequence = position.sequence
        if position.status >= 0:
            seen.current_status = position.status
        if position.speed_mps >= 0:
            seen.position.speed = position.speed_mps
        if position.occupied >= 0:
            seen.occupancy_percentage = round(100 * position.occupied)
    for number, told in enumerate(snapshot.predictions):
        update = message.entity.add(id=f"u{number}").trip_update
        update.trip.trip_id, update.trip.start_date = told.trip, told.date
        call = update.stop_time_update.add(stop_id=told.stop)
        call.arrival.time = round(told.at_s)
        if told.sequence >= 0:
            call.stop_sequence = told.sequence
    for number, (name, date) in enumerate(sorted(snapshot.cancelled)):
        trip = message.entity.add(id=f"c{number}").trip_update.trip
        trip.trip_id, trip.start_date, trip.schedule_relationship = name, date, CANCELLED
    for number, (name, date, stop) in enumerate(sorted(snapshot.skipped)):
        update = message.entity.add(id=f"s{number}").trip_update
        update.trip.trip_id, update.trip.start_date = name, date
        update.stop_time_update.add(stop_id=stop, schedule_relationship=SKIPPED)
    return bytes(message.SerializeToString())
