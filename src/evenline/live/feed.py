"""What a feed says at one moment: positions of vehicles and predictions, read from GTFS-Realtime.

Whatever a message contains, reading it ends in a `Snapshot` or in one `FeedError`. A message is cut
into its entities before any is parsed, because seven million empty parts fit into 14 MiB. An entity
that is too large for a bus or a trip, or has impossible values, is dropped and counted.
"""

import math
from typing import Any, NamedTuple

from evenline.support.errors import InputError
from evenline.support.extras import extra

MOST_BYTES = 16 * 2**20
MOST_ENTITIES = 20_000
MOST_ENTITY_BYTES = 2**16
_MOST_TRIP_CALLS, _MOST_CALLS = 1_000, 200_000  # stops of one trip update, and of all
_MOST_LETTERS = 200
LATEST_S = 4e9  # year 2096
OCCUPIED = {0: 0.0, 1: 0.2, 2: 0.4, 3: 0.65, 4: 0.9, 5: 1.0}  # share of capacity by status
STOPPED_AT = 1
_SKIPPED, _CANCELLED, _DELETED = 1, 3, 7  # as GTFS-Realtime numbers them


class FeedError(InputError):
    """A feed could not be fetched or read this time; the next try may succeed."""


class Position(NamedTuple):
    """Where a vehicle was, and what it reported of itself. Empty or negative: not reported."""

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
    with extra("live"):
        from google.transit import gtfs_realtime_pb2
    return gtfs_realtime_pb2


def read_message(content: bytes) -> Snapshot:
    """Read a message, or raise a `FeedError`."""
    if len(content) > MOST_BYTES:
        raise FeedError(f"the feed has {len(content):,} bytes; at most {MOST_BYTES:,} are read")
    header, entities, dropped = _cut(content)
    kinds = bindings()
    header_s = float(_parsed(kinds.FeedHeader(), header).timestamp)
    if not header_s < LATEST_S:
        raise FeedError(f"the feed's header says it was made at {header_s:.0f}, after 2096")
    positions: list[Position] = []
    predictions: list[Prediction] = []
    cancelled: set[tuple[str, str]] = set()
    skipped: set[tuple[str, str, str]] = set()
    called = 0
    for part in entities:
        entity = _parsed(kinds.FeedEntity(), part)
        if entity.is_deleted:
            continue
        if entity.HasField("vehicle"):
            position = _position(entity, header_s)
            if checked(position):
                positions.append(position)
            else:
                dropped += 1
        if entity.HasField("trip_update"):
            trip = entity.trip_update.trip
            calls = len(entity.trip_update.stop_time_update)
            called += calls
            many = calls > _MOST_TRIP_CALLS or (calls and called > _MOST_CALLS)
            if many or not _short(trip.trip_id, trip.start_date):
                dropped += 1
            elif trip.schedule_relationship in (_CANCELLED, _DELETED):
                cancelled.add((trip.trip_id, trip.start_date))
            else:
                expected = _predictions(entity.trip_update, skipped)
                predictions += [p for p in expected if 0 < p.at_s < LATEST_S and _short(p.stop)]
    return Snapshot(
        header_s, tuple(positions), tuple(predictions), dropped, frozenset(cancelled),
        frozenset(skipped),
    )  # fmt: skip


def _parsed(message: Any, content: bytes) -> Any:
    try:
        message.ParseFromString(content)
    except Exception as error:  # the library raises several kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FeedError(f"the feed is not a GTFS-Realtime message ({reason})") from None
    return message


def _cut(content: bytes) -> tuple[bytes, list[bytes], int]:
    """The header and the entities of a message, not parsed: its fields 1 and 2; and how many
    entities are too large.
    """
    parts: dict[int, list[bytes]] = {1: [], 2: []}
    at = large = 0
    try:
        for _ in range(MOST_ENTITIES + 2):  # with the header
            if at == len(content):
                return b"".join(parts[1]), parts[2], large
            key, at = _number(content, at)
            field, kind = key >> 3, key & 7
            size = {0: 0, 1: 8, 5: 4}.get(kind, -1)
            if kind in (0, 2):
                length, at = _number(content, at)
                size = length if kind == 2 else 0
            if not (field > 0 and 0 <= size <= len(content) - at):
                raise IndexError
            if kind == 2 and field in parts:
                if field == 2 and size > MOST_ENTITY_BYTES:
                    large += 1
                else:
                    parts[field].append(content[at : at + size])
            at += size
    except IndexError:
        raise FeedError("the feed is not a GTFS-Realtime message (it is cut or damaged)") from None
    raise FeedError(f"the feed has over {MOST_ENTITIES:,} entities; no more are read")


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of one to ten bytes, seven bits in each, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise IndexError


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
        and -1e9 < position.speed_mps <= 100  # also refuses NaN
        and position.occupied <= 10
    )


def checked_snapshot(snapshot: Snapshot) -> bool:
    """Whether `read_message` can have read this."""
    return (
        0 <= snapshot.at_s < LATEST_S
        and len(snapshot.positions) <= MOST_ENTITIES
        and all(checked(position) for position in snapshot.positions)
        and all(0 < expected.at_s < LATEST_S for expected in snapshot.predictions)
    )


def _short(*texts: str) -> bool:
    """Whether these are short texts; the library returns bytes where one is no UTF-8."""
    for text in texts:  # a loop: half of the time to read a message goes here
        if not (isinstance(text, str) and len(text) <= _MOST_LETTERS and text.isprintable()):
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
    trip, predictions = update.trip, []
    for call in update.stop_time_update:
        if call.schedule_relationship == _SKIPPED:
            if _short(call.stop_id):
                skipped.add((trip.trip_id, trip.start_date, call.stop_id))
            continue
        at_s = float(call.arrival.time or call.departure.time)
        sequence = call.stop_sequence if call.HasField("stop_sequence") else -1
        expected = Prediction(trip.trip_id, trip.start_date, call.stop_id, sequence, at_s)
        predictions.append(expected)
    return predictions


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
    for number, expected in enumerate(snapshot.predictions):
        update = message.entity.add(id=f"u{number}").trip_update
        update.trip.trip_id, update.trip.start_date = expected.trip, expected.date
        call = update.stop_time_update.add(stop_id=expected.stop)
        call.arrival.time = round(expected.at_s)
        if expected.sequence >= 0:
            call.stop_sequence = expected.sequence
    for number, (name, date) in enumerate(sorted(snapshot.cancelled)):
        trip = message.entity.add(id=f"c{number}").trip_update.trip
        trip.trip_id, trip.start_date, trip.schedule_relationship = name, date, _CANCELLED
    for number, (name, date, stop) in enumerate(sorted(snapshot.skipped)):
        update = message.entity.add(id=f"s{number}").trip_update
        update.trip.trip_id, update.trip.start_date = name, date
        update.stop_time_update.add(stop_id=stop, schedule_relationship=_SKIPPED)
    return bytes(message.SerializeToString())
