"""The entries of a shadow's log: what it heard and saw, what it advised, what people answered.

A log is a list of these, each with the hash of the one before it (`evenline.live.log`). Times are
seconds of the city's day. All that follows from a poll stands between its `heard` and its `poll`
entry, so a shadow that is started again knows which polls are complete and repeats them.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from evenline.city.model import City, Trip
from evenline.city.tables import digest
from evenline.control.action import MAX_HOLD_S
from evenline.control.event import SERVICE, STOP, TIME
from evenline.live.feed import MOST_BYTES, Snapshot, checked_snapshot
from evenline.live.log import Linked
from evenline.support.errors import InputError
from evenline.support.records import Line, Number, Positive, Seconds, Sha256, Share, Whole, Word

FORMAT = "evenline-shadow-2"
_READ = ("evenline-shadow-1", FORMAT)  # the first one does not say what was heard
_MOST_UNPACKED = 4 * MOST_BYTES  # of a snapshot as JSON
_JSON = msgspec.json.Encoder(order="deterministic")
_Answered = Literal["accepted", "rejected", "withdrawn", "done"]
_Second = Annotated[float, Meta(ge=-1e9, le=1e9)]  # of the city's day
_Raw = Annotated[tuple[Number, ...], Meta(min_length=16, max_length=16)]


class Begun(Linked, kw_only=True, tag="begun", tag_field="kind"):
    """The shadow began, or began again after it was stopped."""

    format: Word
    evenline: Line
    city: Sha256
    policy: Line
    policy_sha256: Sha256
    lines: tuple[Line, ...]
    notes: tuple[Line, ...] = ()


class HeardEntry(Linked, kw_only=True, tag="heard", tag_field="kind"):
    """What a poll heard; first of the entries of a poll, of which `PollEntry` is the last.

    `moment_s` is the moment of the poll since 1970, `behind` counts polls in a row from a clock far
    behind, `packed` is what a later poll depends on of the feed's answer, if there was one.
    """

    at_s: _Second
    moment_s: Number
    behind: Whole
    packed: bytes | UnsetType = UNSET


def packed(snapshot: Snapshot) -> bytes:
    """A snapshot as JSON, compressed."""
    return zlib.compress(_JSON.encode(snapshot), 1)


def unpacked(content: bytes) -> Snapshot:
    """The same snapshot, or an `InputError`."""
    unpack = zlib.decompressobj()
    try:
        plain = unpack.decompress(content, _MOST_UNPACKED)
        snapshot = msgspec.json.decode(plain, type=Snapshot)
    except (zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"packed: cannot be read ({error})") from None
    if not (unpack.eof and checked_snapshot(snapshot)):
        raise InputError("packed: is not what a feed can say")
    return snapshot


class PollEntry(Linked, kw_only=True, tag="poll", tag_field="kind"):
    """One answer of the feed: how old, how many vehicles in which state, how long it took.

    `fixes` has the vehicle, the second, the metres along the line and how sure, by trip.
    """

    at_s: _Second
    age_s: Number
    states: dict[Line, Whole]
    dropped: Whole
    took_ms: Seconds
    fixes: dict[Line, tuple[Line, _Second, Number, Share]] = field(default_factory=dict)
    failure: Line | UnsetType = UNSET


class EventEntry(Linked, kw_only=True, tag="event", tag_field="kind"):
    """A bus reached or left a stop."""

    what: Literal["arrives", "leaves"]
    trip: Line
    stop: Whole
    at_s: _Second
    sure: Share
    vehicle: Line = ""
    occupied: Share | UnsetType = UNSET


class AskedEntry(Linked, kw_only=True, tag="asked", tag_field="kind"):
    """A decision of the policy: the event that it saw and the hold that it proposed.

    `expected_s` is when the bus was expected at the stop, `feed_s` when the feed expected it, `may`
    whether a hold could have been advised.
    """

    now_s: _Second
    trip: Line
    stop: Whole
    raw: _Raw
    hold_s: Seconds
    noted_s: Seconds
    expected_s: _Second
    sure: Share
    feed_s: _Second | UnsetType = UNSET
    saves_s: Number | UnsetType = UNSET
    may: bool = True


class AdviceEntry(Linked, kw_only=True, tag="advice", tag_field="kind"):
    """An advice: hold at a stop until a time."""

    number: Positive
    now_s: _Second
    trip: Line
    vehicle: Line
    stop: Whole
    until_s: _Second
    hold_s: Seconds
    reason: Line


class AnswerEntry(Linked, kw_only=True, tag="answer", tag_field="kind"):
    """What became of an advice, and why."""

    number: Positive
    now_s: _Second
    became: _Answered
    why: Line = ""


class LineEntry(Linked, kw_only=True, tag="line", tag_field="kind"):
    """Advice for a service was switched on or off."""

    now_s: _Second
    service: Line
    on: bool


Entry = (
    Begun | HeardEntry | PollEntry | EventEntry | AskedEntry | AdviceEntry | AnswerEntry | LineEntry
)


def checked(entries: Iterable[Entry], city: City) -> Iterator[Entry]:
    """The same entries; refuses those that cannot be of a shadow of this city."""
    trips, city_digest = {trip.id: trip for trip in city.trips}, digest(city)
    begun, advised = False, 0
    for entry in entries:
        if isinstance(entry, Begun):
            if entry.format not in _READ:
                raise InputError(f"format {entry.format!r} is not {FORMAT!r}")
            if entry.city != city_digest:
                raise InputError(f"is the log of another city than {city.name}")
            begun = True
        if not begun:
            raise InputError("is not the log of a shadow: it does not say how it began")
        if isinstance(entry, PollEntry):
            for name in entry.fixes:
                _check_stop(city, trips, name, 0)
        elif isinstance(entry, EventEntry | AskedEntry | AdviceEntry):
            _check_stop(city, trips, entry.trip, entry.stop)
        if isinstance(entry, AskedEntry):
            place = (entry.raw[SERVICE], entry.raw[STOP])
            of_event = place == (trips[entry.trip].service, entry.stop)
            if not of_event or not 0 <= entry.raw[TIME] <= 1e9 or entry.noted_s > MAX_HOLD_S:
                raise InputError(f"trip {entry.trip}: raw or noted_s belongs to another event")
        elif isinstance(entry, AdviceEntry):
            advised += 1
            if entry.number != advised:
                raise InputError(f"advice {entry.number} is out of order; expected {advised}")
        elif isinstance(entry, AnswerEntry) and entry.number > advised:
            raise InputError(f"answers advice {entry.number}, which was not given")
        yield entry


def _check_stop(city: City, trips: dict[str, Trip], trip: str, stop: int) -> None:
    if trip not in trips:
        raise InputError(f"the city has no trip {trip!r}")
    if stop >= len(city.services[trips[trip].service].stops):
        raise InputError(f"trip {trip} has no stop {stop}")
