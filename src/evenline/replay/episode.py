"""One day on disk: every decision, in order, exact to the bit.

A row has only values that cannot be computed from the city, the cell and the previous rows; a
column that only some days need is written only there. The outcome and the provenance are in the
file's metadata, so each file can be checked alone.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from evenline.city.demand import RATE_BIN_S, Cell, arrival_rates, service_stop_offsets
from evenline.city.model import City
from evenline.control import event
from evenline.control.event import Array, Batch
from evenline.control.outcome import Outcome
from evenline.control.world import Policy, World
from evenline.support.errors import InputError
from evenline.support.files import from_json, write_bytes
from evenline.support.records import Line, Number, Record, Sha256, Text, Word, convert

FORMAT = "evenline-episode-1"
_FORMAT_MORE = "evenline-episode-2"  # with some of the columns MORE
_NONE = -1  # no bus ahead or behind
COLUMNS: dict[str, pa.DataType] = {
    "time_s": pa.int32(),
    "trip": pa.int32(),
    "headway_ahead_s": pa.int32(),
    "headway_behind_s": pa.int32(),
    "waiting": pa.int32(),
    "on_board": pa.int32(),
    "base_dwell_s": pa.int32(),
    "system_waiting": pa.int32(),
    "system_on_board": pa.int32(),
    "hold_s": pa.float32(),
    "cost": pa.int32(),
}
_AS_COUNTED = {  # the columns that are raw features, unchanged
    "waiting": event.WAITING,
    "on_board": event.ON_BOARD,
    "base_dwell_s": event.BASE_DWELL,
    "system_waiting": event.SYSTEM_WAITING,
    "system_on_board": event.SYSTEM_ON_BOARD,
}
MORE: dict[str, pa.DataType] = {"stop": pa.int32(), "asked_s": pa.float32()}


RecordedRule = dict[Word, Text | Number | dict[Word, Number]]  # its name, rule and constants


class Metadata(Record):
    """The outcome of an episode and its provenance; `policy` is the rule that decided."""

    format: Word
    outcome: Outcome
    city: Sha256
    cell: Cell
    policy: RecordedRule
    sumo: Line
    evenline: Word

    @property
    def behaviour(self) -> str:
        return str(self.policy.get("name"))


@dataclass(frozen=True, eq=False)
class Decisions:
    """The columns of an episode. `cost` is a decision's own cost, `hold_s` the executed hold.

    `stop` is the position of the stop, if a bus did not decide at every one, such as a closed one;
    `asked_s` are the holds that were asked for, if others were executed.
    """

    time_s: npt.NDArray[np.int32]
    trip: npt.NDArray[np.int32]
    headway_ahead_s: npt.NDArray[np.int32]
    headway_behind_s: npt.NDArray[np.int32]
    waiting: npt.NDArray[np.int32]
    on_board: npt.NDArray[np.int32]
    base_dwell_s: npt.NDArray[np.int32]
    system_waiting: npt.NDArray[np.int32]
    system_on_board: npt.NDArray[np.int32]
    hold_s: npt.NDArray[np.float32]
    cost: npt.NDArray[np.int32]
    stop: npt.NDArray[np.int32] | None = None
    asked_s: npt.NDArray[np.float32] | None = None

    @property
    def stops(self) -> npt.NDArray[np.int32]:
        """The position of the stop of each row."""
        return _visit_number(self.trip) if self.stop is None else self.stop

    @property
    def shown_s(self) -> npt.NDArray[np.float32]:
        """The holds that later buses of a batch see: those that were asked for."""
        return self.hold_s if self.asked_s is None else self.asked_s

    @property
    def more(self) -> dict[str, pa.DataType]:
        """The columns that only this day needs."""
        return {name: kind for name, kind in MORE.items() if getattr(self, name) is not None}

    def __len__(self) -> int:
        return len(self.time_s)


def record_episode(world: World, cell: Cell, policy: Policy) -> tuple[Decisions, Outcome]:
    """Run a day and record every decision. Holds are rounded to single precision before use."""
    times: list[int] = []
    trips, raws = [np.zeros(0, np.int32)], [np.zeros((0, len(event.RAW_FEATURES)))]
    asked: list[float] = []
    holds: list[float] = []
    costs: list[int] = []
    batch = world.reset(cell)
    while batch is not None:
        hold = np.asarray(policy(batch), np.float32)
        times += [batch.time_s] * len(hold)
        trips.append(batch.trips)
        raws.append(batch.raw)
        asked += hold.tolist()
        batch = world.step(hold.tolist())
        holds += np.asarray(getattr(world, "executed_s", hold), np.float32).tolist()
        costs += [0] * (len(hold) - 1) + [world.charged]
    raw, trip = np.concatenate(raws), np.concatenate(trips)
    stop = raw[:, event.STOP].astype(np.int32)
    executed_s, asked_s = np.array(holds, np.float32), np.array(asked, np.float32)
    decisions = Decisions(
        time_s=np.array(times, np.int32),
        trip=trip,
        headway_ahead_s=_or_none(raw, event.HEADWAY_AHEAD, event.BUS_AHEAD),
        headway_behind_s=_or_none(raw, event.HEADWAY_BEHIND, event.BUS_BEHIND),
        **{name: raw[:, feature].astype(np.int32) for name, feature in _AS_COUNTED.items()},
        hold_s=executed_s,
        cost=np.array(costs, np.int32),
        stop=None if np.array_equal(stop, _visit_number(trip)) else stop,
        asked_s=None if np.array_equal(asked_s, executed_s) else asked_s,
    )
    if not np.array_equal(raw_events(world.city, cell.demand, decisions), raw):
        raise AssertionError("the stored columns do not give the raw events back")
    return decisions, world.outcome()


def _or_none(raw: Array, value: int, flag: int) -> npt.NDArray[np.int32]:
    return np.where(raw[:, flag] == 1, raw[:, value], _NONE).astype(np.int32)


def raw_events(city: City, demand: float, decisions: Decisions) -> Array:
    """The 16 raw features of every decision, rebuilt from the stored columns and the city."""
    service = np.array([trip.service for trip in city.trips], np.int64)[decisions.trip]
    stop = decisions.stops
    rates = arrival_rates(city, demand)
    slot = np.minimum(decisions.time_s // RATE_BIN_S, rates.shape[1] - 1)
    ahead, behind = city.headway_targets()
    raw = np.empty((len(decisions), 16))
    raw[:, event.SERVICE] = service
    raw[:, event.STOP] = stop
    raw[:, event.TIME] = decisions.time_s
    raw[:, event.HEADWAY_AHEAD] = np.maximum(decisions.headway_ahead_s, 0)
    raw[:, event.HEADWAY_BEHIND] = np.maximum(decisions.headway_behind_s, 0)
    raw[:, event.TARGET_AHEAD] = ahead[decisions.trip]
    raw[:, event.TARGET_BEHIND] = behind[decisions.trip]
    for name, feature in _AS_COUNTED.items():
        raw[:, feature] = getattr(decisions, name)
    raw[:, event.RATE] = rates[service_stop_offsets(city)[service] + stop, slot]
    raw[:, event.BUS_AHEAD] = decisions.headway_ahead_s != _NONE
    raw[:, event.BUS_BEHIND] = decisions.headway_behind_s != _NONE
    raw[:, event.CAPACITY] = city.capacities[decisions.trip]
    return raw


def _visit_number(trip: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The stop of each row if a bus decides once at each stop, in order."""
    order = np.argsort(trip, kind="stable")
    ordered = trip[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    run = np.repeat(starts, np.diff(np.concatenate([starts, [len(trip)]])))
    out = np.empty(len(trip), np.int32)
    out[order] = np.arange(len(trip)) - run
    return out


def batches(decisions: Decisions, raw: Array) -> list[Batch]:
    """The moments of an episode, as a policy saw them (wide moments are not split again)."""
    edges = np.flatnonzero(np.diff(decisions.time_s)) + 1
    return [
        Batch(int(decisions.time_s[part[0]]), decisions.trip[part], raw[part])
        for part in np.split(np.arange(len(decisions)), edges)
        if len(part)
    ]


def write_episode(
    path: Path, decisions: Decisions, outcome: Outcome, provenance: Mapping[str, object]
) -> None:
    """Write an episode atomically. The same episode gives the same bytes."""
    form = _FORMAT_MORE if decisions.more else FORMAT
    metadata = {"format": form, "outcome": outcome.counted(), **provenance}
    columns = COLUMNS | decisions.more
    table = pa.table(
        {name: pa.array(getattr(decisions, name), kind) for name, kind in columns.items()}
    )
    repeating = ["hold_s", "base_dwell_s", "cost", *decisions.more]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=12,
        use_dictionary=repeating,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in columns if name not in repeating},
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"evenline": json.dumps(metadata, sort_keys=True)})
    with writing(path):
        write_bytes(path, sink.getvalue().to_pybytes())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write, such as on a full disk, into an InputError with file and reason."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def read_metadata(path: Path) -> Metadata:
    """Read the outcome and provenance of an episode file."""
    try:
        stored = pq.read_metadata(path).metadata or {}
        metadata = from_json(stored.get(b"evenline", b"{}"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a whole Parquet file ({_first_line(error)})") from None
    if not isinstance(metadata, dict) or metadata.get("format") not in (FORMAT, _FORMAT_MORE):
        raise InputError(f"{path}: not an episode file ({FORMAT})")
    return convert(Metadata, metadata, str(path))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def read_outcome(path: Path) -> Outcome:
    """Read the outcome of an episode file."""
    return read_metadata(path).outcome


def read_decisions(path: Path) -> Decisions:
    """Read the columns of an episode file."""
    more = MORE if read_metadata(path).format == _FORMAT_MORE else {}
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(columns=[*COLUMNS, *more], use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({_first_line(error)})") from None
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise InputError(f"{path} has no column {missing[0]}")
    names = [*COLUMNS, *(name for name in more if name in table.column_names)]
    return Decisions(**{name: table.column(name).to_numpy() for name in names})
