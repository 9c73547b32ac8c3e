"""The entries of a shadow's log: what it saw, what it advised, what people answered.

A log is a list of these, each with the hash of the one before it (`evenline.live.log`). Times are
seconds of the city's day.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from evenline.live.log import Linked
from evenline.support.records import Line, Number, Positive, Seconds, Sha256, Share, Whole, Word

FORMAT = "evenline-shadow-1"
Answered = Literal["accepted", "rejected", "withdrawn", "done"]
Raw = Annotated[tuple[Number, ...], Meta(min_length=16, max_length=16)]


class Begun(Linked, kw_only=True, tag="begun", tag_field="kind"):
    """The shadow began, or began again after it was stopped."""

    format: Word
    evenline: Line
    city: Sha256
    policy: Line
    policy_sha256: Sha256
    lines: tuple[Line, ...]
    notes: tuple[Line, ...] = ()


class PollEntry(Linked, kw_only=True, tag="poll", tag_field="kind"):
    """One answer of the feed: how old, how many vehicles in which state, how long it took.

    `fixes` has the vehicle, the second, the metres along the line and how sure, by trip.
    """

    at_s: Number
    age_s: Number
    states: dict[Line, Whole]
    dropped: Whole
    took_ms: Seconds
    fixes: dict[Line, tuple[Line, Number, Number, Share]] = field(default_factory=dict)
    failure: Line | UnsetType = UNSET


class EventEntry(Linked, kw_only=True, tag="event", tag_field="kind"):
    """A bus reached or left a stop."""

    what: Literal["arrives", "leaves"]
    trip: Line
    stop: Whole
    at_s: Number
    sure: Share
    vehicle: Line = ""
    occupied: Share | UnsetType = UNSET


class AskedEntry(Linked, kw_only=True, tag="asked", tag_field="kind"):
    """A decision of the policy: the event that it saw and the hold that it proposed.

    `expected_s` is when the bus was expected at the stop, `feed_s` when the feed expected it.
    """

    now_s: Number
    trip: Line
    stop: Whole
    raw: Raw
    hold_s: Seconds
    noted_s: Seconds
    expected_s: Number
    sure: Share
    feed_s: Number | UnsetType = UNSET
    saves_s: Number | UnsetType = UNSET


class AdviceEntry(Linked, kw_only=True, tag="advice", tag_field="kind"):
    """An advice: hold at a stop until a time."""

    number: Positive
    now_s: Number
    trip: Line
    vehicle: Line
    stop: Whole
    until_s: Number
    hold_s: Seconds
    reason: Line


class AnswerEntry(Linked, kw_only=True, tag="answer", tag_field="kind"):
    """What became of an advice, and why."""

    number: Positive
    now_s: Number
    became: Answered
    why: Line = ""


class LineEntry(Linked, kw_only=True, tag="line", tag_field="kind"):
    """Advice for a service was switched on or off."""

    now_s: Number
    service: Line
    on: bool


Entry = Begun | PollEntry | EventEntry | AskedEntry | AdviceEntry | AnswerEntry | LineEntry
