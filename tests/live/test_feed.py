"""Messages are read whole or refused in one error, and survive what real feeds and foes send."""

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenline.live import feed
from evenline.live.feed import (
    MOST_BYTES,
    MOST_ENTITIES,
    MOST_ENTITY_BYTES,
    FeedError,
    Position,
    Prediction,
    Snapshot,
    bindings,
    read_message,
    write_message,
)

words = st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=12)
degrees = st.floats(-80, 80, width=32).filter(lambda value: value != 0)
positions = st.builds(
    Position,
    vehicle=words.filter(bool),
    at_s=st.integers(1, 2**31).map(float),
    lat=degrees,
    lon=degrees,
    trip=words,
    route=words,
    direction=st.sampled_from([-1, 0, 1]),
    date=words,
    start=words,
    stop=words,
    sequence=st.integers(-1, 99),
    status=st.sampled_from([-1, 0, 1, 2]),
    speed_mps=st.sampled_from([-1.0, 0.0, 7.5]),
    occupied=st.sampled_from([-1.0, 0.0, 0.25, 1.0]),
)
predictions = st.builds(
    Prediction, words, words, words, st.integers(-1, 99), st.integers(1, 2**31).map(float)
)
snapshots = st.builds(
    Snapshot,
    at_s=st.integers(0, 2**31).map(float),
    positions=st.lists(positions, max_size=4).map(tuple),
    predictions=st.lists(predictions, max_size=4).map(tuple),
    dropped=st.just(0),
    cancelled=st.frozensets(st.tuples(words, words), max_size=3),
    skipped=st.frozensets(st.tuples(words, words, words), max_size=3),
)


@settings(max_examples=50, deadline=None)
@given(snapshots)
def test_a_written_message_reads_the_same(snapshot: Snapshot) -> None:
    assert read_message(write_message(snapshot)) == snapshot


def sound() -> bytes:
    made = [Position(f"b{i}", 1e9, 47.0, 8.0 + i / 100, f"t{i}", speed_mps=5.0) for i in range(20)]
    expected = [Prediction(f"t{i}", "20260101", f"s{i}", i, 1e9 + i) for i in range(20)]
    return write_message(Snapshot(1e9, tuple(made), tuple(expected)))


def test_ten_thousand_damaged_messages_are_read_or_refused() -> None:
    whole, rng, read = sound(), random.Random(5), 0
    for _ in range(10_000):
        damaged = bytearray(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(1, 9)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            snapshot = read_message(bytes(damaged))
        except FeedError:
            continue
        read += 1
        for seen in snapshot.positions:
            assert math.isfinite(seen.lat) and math.isfinite(seen.lon) and seen.vehicle
    assert 100 < read < 9_900, "some damage is refused, some goes unnoticed"


@pytest.mark.parametrize(
    "content",
    [b"\xff" * 50, b"<html>not found</html>", b"\x00", bytes(MOST_BYTES + 1)],
    ids=["noise", "a page", "NUL", "too long"],
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(FeedError, match="the feed"):
        read_message(content)


def test_a_feed_of_too_many_entities_is_refused() -> None:
    message = bindings().FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    for number in range(MOST_ENTITIES + 1):
        message.entity.add(id=str(number), is_deleted=True)
    with pytest.raises(FeedError, match="entities"):
        read_message(message.SerializeToString())


def part(number: int, content: bytes) -> bytes:
    """A field of a message."""
    size, length = len(content), b""
    while size > 127:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


HEADER = part(1, part(1, b"2.0"))
TRIP = part(1, part(1, b"t"))
BUS = write_message(Snapshot(0.0, (Position("bus", 1e9, 47.0, 8.0),)))[len(HEADER) + 2 :]


def entity(number: int, content: bytes) -> bytes:
    return part(2, part(1, b"e") + part(number, content))


@pytest.mark.parametrize(
    "many",
    [
        entity(3, TRIP + part(2, b"") * 7_000_000),
        entity(3, TRIP + part(2, b"") * 1_001) * 4_000,
        entity(3, TRIP + part(2, b"") * 990) * 4_000,
        entity(4, part(11, b"") * 2_000_000),
        entity(5, part(5, b"") * 30_000 + part(10, part(1, part(1, b"alert")))) * 100,
    ],
    ids=["one trip", "long trips", "many trips", "cars of a bus", "alerts"],
)
def test_a_message_of_many_small_parts_costs_little(
    many: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed, looked = [], 0

    def parse(message: Any, content: bytes) -> Any:
        parsed.append(len(content))
        return read(message, content)

    def predict(update: Any, skipped: Any) -> list[Prediction]:
        nonlocal looked
        looked += len(update.stop_time_update)
        return predictions_of(update, skipped)

    read, predictions_of = feed._parsed, feed._predictions
    monkeypatch.setattr(feed, "_parsed", parse)
    monkeypatch.setattr(feed, "_predictions", predict)
    snapshot = read_message(HEADER + many + BUS)
    assert [position.vehicle for position in snapshot.positions] == ["bus"], "the rest is read"
    assert snapshot.dropped or b"alert" in many, "and what is left out is counted"
    assert max(parsed) <= MOST_ENTITY_BYTES and looked <= 200_000


@pytest.mark.parametrize(
    "content",
    [
        part(1, b"") * 100_000,
        HEADER + b"\x18\x00" * 100_000,
        HEADER + entity(9, b"")[:-1],
        HEADER + b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        HEADER + b"\x1b\x1c",
    ],
    ids=["headers", "unknown", "cut", "a long number", "a group"],
)
def test_what_is_cut_or_spoilt_between_entities_is_refused(content: bytes) -> None:
    with pytest.raises(FeedError, match="the feed"):
        read_message(content)


@pytest.mark.parametrize(
    "bad",
    [
        {"lat": math.nan},
        {"lat": 91.0},
        {"lat": 0.0, "lon": 0.0},
        {"at_s": 2.0**50},
        {"trip": "x" * 201},
        {"trip": "a\nb"},
        {"speed_mps": 1e9},
    ],
    ids=str,
)
def test_an_impossible_position_is_dropped_and_counted(bad: dict[str, float]) -> None:
    good = Position("bus", 1e9, 47.0, 8.0)
    snapshot = read_message(write_message(Snapshot(1e9, (good, good._replace(**bad)))))
    assert snapshot.positions == (good,)
    assert snapshot.dropped == 1
