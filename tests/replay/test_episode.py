"""An episode on disk gives back every bit of what the world showed, or says why it cannot."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrated import calibration_of
from evenline.city.cells import demo_cell
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.operations import Disruption, Operations
from evenline.city.tables import digest
from evenline.control.event import RAW_FEATURES, Batch
from evenline.control.outcome import Outcome
from evenline.replay.episode import (
    COLUMNS,
    Decisions,
    batches,
    raw_events,
    read_decisions,
    read_metadata,
    read_outcome,
    record_episode,
    write_episode,
)
from evenline.rules.policy import BEHAVIOURS, recorded
from evenline.runs.executors import processes
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.records import plain
from evenline.worlds.fast.world import FastWorld
from recorded import day_by_hand, once

CELL = demo_cell(3)
NOTHING = Outcome(*([0] * 13))
NOWHERE = {"city": "0" * 64, "cell": asdict(Cell(1, 1)), "policy": {}, "sumo": "", "evenline": "0"}


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a real day of `town` under a random policy."""
    return once(tmp_path_factory, "day-by-hand", day_by_hand)


@pytest.fixture
def episode(day: Path) -> Path:
    return day / "by-hand.parquet"


@pytest.fixture
def shown(day: Path) -> dict[str, Any]:
    with np.load(day / "shown.npz") as file:
        return dict(file)


def same(one: Decisions, other: Decisions) -> bool:
    """Equal to the bit, not only in value."""
    columns = [(getattr(one, name), getattr(other, name)) for name in COLUMNS]
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in columns)


# -- what the world showed ------------------------------------------------------------------------


def test_the_raw_events_are_rebuilt_to_the_bit(
    town: City, episode: Path, shown: dict[str, Any]
) -> None:
    decisions = read_decisions(episode)
    rebuilt = raw_events(town, CELL.demand, decisions)
    assert rebuilt.tobytes() == shown["raw"].tobytes() and rebuilt.shape[1] == len(RAW_FEATURES)
    assert decisions.trip.tolist() == shown["trips"].tolist()
    assert decisions.time_s.tolist() == np.repeat(shown["times"], shown["sizes"]).tolist()


def test_the_holds_are_those_of_the_policy_in_single_precision(
    episode: Path, shown: dict[str, Any]
) -> None:
    holds = read_decisions(episode).hold_s
    assert holds.tolist() == shown["holds"].astype(np.float32).tolist()
    assert 0 < np.count_nonzero(holds) < len(holds)
    assert read_outcome(episode).hold_total_s == pytest.approx(float(holds.sum(dtype=float)))


def test_the_moments_are_those_the_policy_saw(
    town: City, episode: Path, shown: dict[str, Any]
) -> None:
    decisions = read_decisions(episode)
    moments = batches(decisions, raw_events(town, CELL.demand, decisions))
    assert [moment.time_s for moment in moments] == shown["times"].tolist()
    assert [len(moment.trips) for moment in moments] == shown["sizes"].tolist()
    holds = [hold for moment in moments for hold in BEHAVIOURS["random-often"](moment)]
    assert holds == shown["holds"].tolist()


def test_every_second_of_the_day_is_charged_to_one_token(town: City, episode: Path) -> None:
    decisions, outcome = read_decisions(episode), read_outcome(episode)
    assert decisions.cost.sum() == outcome.token_cost == outcome.cost - outcome.pre_control_cost
    inside = np.flatnonzero(np.diff(decisions.time_s) == 0)
    assert len(inside) == outcome.zero_duration_tokens > 0
    assert not decisions.cost[inside].any()
    assert len(decisions) == outcome.decisions == town.decisions


def test_a_bus_decides_at_its_stops_in_order_and_not_at_the_last(town: City, episode: Path) -> None:
    decisions = read_decisions(episode)
    raw = raw_events(town, CELL.demand, decisions)
    for trip in range(len(town.trips)):
        rows = np.flatnonzero(decisions.trip == trip)
        count = len(town.services[town.trips[trip].service].stops)
        assert raw[rows, RAW_FEATURES.index("stop")].tolist() == list(range(count - 1))
        assert (np.diff(decisions.time_s[rows]) > 0).all()


@pytest.mark.parametrize("more", ["stop", "asked_s"])
def test_a_day_with_closed_stops_or_limited_holds_comes_back_whole(
    town: City, tmp_path: Path, more: str
) -> None:
    """Buses pass the closed stop without a decision; later buses of a batch saw what was asked."""
    closed = Operations(disruptions=(Disruption("closed", stop=town.services[0].stops[3]),))
    limited = Operations(hold_at="terminals", ignored_share=0.5)
    city = replace(town, operations=closed if more == "stop" else limited)
    world, shown = FastWorld(city, calibration_of(town)), []

    def policy(batch: Batch) -> list[float]:
        shown.append(batch.raw)
        return BEHAVIOURS["random-often"](batch)

    decisions, outcome = record_episode(world, CELL, policy)
    assert list(decisions.more) == [more]
    path = tmp_path / "day.parquet"
    write_episode(path, decisions, outcome, NOWHERE)
    again = read_decisions(path)
    assert read_metadata(path).format == "evenline-episode-2" and again.more == decisions.more
    assert same(again, decisions) and np.array_equal(again.shown_s, decisions.shown_s)
    assert np.array_equal(raw_events(city, CELL.demand, again), np.concatenate(shown))
    if more == "stop":
        first = again.stops[again.trip == town.trips_of[0][0]]
        assert 3 not in first and len(first) == len(town.services[0].stops) - 2


def test_another_process_writes_the_same_bytes(episode: Path, tmp_path: Path) -> None:
    path = tmp_path / "there.parquet"
    (ended,) = processes()([Job(city="town", policy="random-often", cell=CELL, tokens=path)])
    assert ended.answer is not None, ended.error
    assert path.read_bytes() == episode.read_bytes()


# -- on disk --------------------------------------------------------------------------------------


def test_an_episode_carries_its_outcome_and_where_it_comes_from(town: City, episode: Path) -> None:
    found = read_metadata(episode)
    assert found.city == digest(town) and found.cell == CELL
    assert found.policy == recorded(BEHAVIOURS["random-often"])
    assert found.sumo and found.evenline
    assert read_outcome(episode) == found.outcome


def test_the_same_episode_gives_the_same_bytes(episode: Path, tmp_path: Path) -> None:
    decisions, outcome, found = (
        read_decisions(episode),
        read_outcome(episode),
        plain(read_metadata(episode)),
    )
    provenance = {key: found[key] for key in found if key not in ("format", "outcome")}
    write_episode(tmp_path / "again.parquet", decisions, outcome, provenance)
    assert (tmp_path / "again.parquet").read_bytes() == episode.read_bytes()
    backwards = dict(reversed(provenance.items()))
    write_episode(tmp_path / "again.parquet", decisions, outcome, backwards)
    assert (tmp_path / "again.parquet").read_bytes() == episode.read_bytes()


def test_a_row_takes_at_most_eighteen_bytes(episode: Path) -> None:
    """Of a short day only the rows are counted, not the outcome and the rest of the footer."""
    body = episode.stat().st_size - pq.read_metadata(episode).serialized_size
    assert body / len(read_decisions(episode)) <= 18


whole = st.integers(-(2**31), 2**31 - 1)
rows = st.lists(st.tuples(*[whole] * 9, st.floats(width=32, allow_nan=False), whole), max_size=60)


@settings(deadline=None, max_examples=50)
@given(rows)
def test_any_columns_come_back_exact_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    decisions = Decisions(
        **{
            name: np.array(column, kind.to_pandas_dtype())
            for (name, kind), column in zip(COLUMNS.items(), columns, strict=True)
        }
    )
    path = tmp_path_factory.mktemp("columns") / "x.parquet"
    write_episode(path, decisions, NOTHING, NOWHERE)
    assert same(read_decisions(path), decisions) and read_outcome(path) == NOTHING


def test_a_truncated_file_is_refused_by_name(episode: Path, tmp_path: Path) -> None:
    content = episode.read_bytes()
    for number, length in enumerate([*range(0, len(content), 97), len(content) - 1]):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(content[:length])
        for read in (read_decisions, read_metadata, read_outcome):
            with pytest.raises(InputError) as caught:
                read(path)
            assert str(caught.value).startswith(f"{path}: not a whole Parquet file")


def flipped(episode: Path, folder: Path, places: Sequence[int]) -> list[Path]:
    """Copies of an episode with one bit flipped at each of some places."""
    content = episode.read_bytes()
    paths = []
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        paths.append(folder / f"{place}.parquet")
        paths[-1].write_bytes(damaged)
    return paths


def footer_start(episode: Path) -> int:
    return episode.stat().st_size - 8 - pq.read_metadata(episode).serialized_size


def test_a_flipped_bit_in_a_files_last_bytes_is_refused_by_name(
    episode: Path, tmp_path: Path
) -> None:
    """The length of the footer and the name of the format."""
    size = episode.stat().st_size
    for path in flipped(episode, tmp_path, range(size - 8, size)):
        with pytest.raises(InputError, match=path.name):
            read_decisions(path)


def test_no_flipped_bit_changes_a_row_in_silence(episode: Path, tmp_path: Path) -> None:
    decisions, silent = read_decisions(episode), 0
    for path in flipped(episode, tmp_path, range(4, footer_start(episode), 101)):
        try:
            silent += not same(read_decisions(path), decisions)
        except InputError:
            continue
    assert silent == 0


def test_a_flipped_bit_in_the_footer_is_told_in_one_line(episode: Path, tmp_path: Path) -> None:
    places = range(footer_start(episode), episode.stat().st_size, 7)
    for path in flipped(episode, tmp_path, places):
        try:
            read_metadata(path)
        except InputError as error:
            lines = str(error).splitlines()
        else:
            continue
        assert len(lines) == 1 and lines[0].startswith(f"{path}: ")


def test_what_is_not_there_or_not_an_episode_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(InputError, match=r"x\.parquet: no such file"):
        read_decisions(path)
    path.write_text("time_s,trip\n")
    with pytest.raises(InputError, match=r"x\.parquet: not a whole Parquet file"):
        read_decisions(path)
    pq.write_table(pa.table({"time_s": [1]}), path)
    with pytest.raises(InputError, match=r"x\.parquet: not an episode file"):
        read_decisions(path)


def test_a_failed_write_leaves_the_old_episode(
    episode: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(episode.read_bytes())

    def full_disk(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(InputError, match=r"x\.parquet: cannot be written \(no space left"):
        write_episode(path, read_decisions(episode), NOTHING, NOWHERE)
    assert path.read_bytes() == episode.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


# -- recording a scripted world -------------------------------------------------------------------


@dataclass
class Script:
    """A world that shows given moments and charges given costs."""

    city: City
    moments: list[Batch]
    costs: list[int]
    charged: int = 0
    asked: int = 0

    def reset(self, cell: Cell) -> Batch | None:
        return self.moments[0] if self.moments else None

    def step(self, holds_s: Sequence[float]) -> Batch | None:
        assert all(float(np.float32(hold)) == hold for hold in holds_s), "what acts is what is kept"
        self.charged, self.asked = self.costs[self.asked], self.asked + 1
        return self.moments[self.asked] if self.asked < len(self.moments) else None

    def outcome(self) -> Outcome:
        return replace(NOTHING, token_cost=sum(self.costs))


def moments_of(city: City, shown: dict[str, Any]) -> list[Batch]:
    edges = np.cumsum(shown["sizes"])[:-1]
    trips, raws = np.split(shown["trips"], edges), np.split(shown["raw"], edges)
    return [
        Batch(int(time), trip, raw)
        for time, trip, raw in zip(shown["times"], trips, raws, strict=True)
    ]


def test_the_cost_of_a_moment_stands_at_its_last_token(town: City, shown: dict[str, Any]) -> None:
    moments = moments_of(town, shown)
    costs = list(range(1_000, 1_000 + len(moments)))
    world = Script(town, moments, costs)
    decisions, outcome = record_episode(world, CELL, lambda batch: [0.1] * len(batch.trips))
    last = np.cumsum(shown["sizes"]) - 1
    assert decisions.cost[last].tolist() == costs
    assert decisions.cost.sum() == sum(costs) == outcome.token_cost
    assert set(decisions.hold_s.tolist()) == {float(np.float32(0.1))}


def test_a_day_without_decisions_is_an_empty_episode(town: City, tmp_path: Path) -> None:
    decisions, outcome = record_episode(Script(town, [], []), CELL, lambda batch: [])
    assert len(decisions) == 0
    write_episode(tmp_path / "x.parquet", decisions, outcome, NOWHERE)
    again = read_decisions(tmp_path / "x.parquet")
    assert same(again, decisions) and raw_events(town, 1.0, again).shape == (0, 16)
    assert batches(again, raw_events(town, 1.0, again)) == []


@pytest.mark.parametrize("feature", RAW_FEATURES)
def test_a_feature_that_would_not_come_back_stops_the_recording(
    town: City, shown: dict[str, Any], feature: str
) -> None:
    """Half a passenger or half a second would be lost, so the episode is not kept at all."""
    raw = shown["raw"].copy()
    at = int(np.flatnonzero(raw[:, RAW_FEATURES.index("bus_ahead")])[0])
    raw[at, RAW_FEATURES.index(feature)] += 0.5
    world = Script(town, moments_of(town, shown | {"raw": raw}), [0] * len(shown["sizes"]))
    with pytest.raises(AssertionError, match="do not give the raw events back"):
        record_episode(world, CELL, lambda batch: [0.0] * len(batch.trips))
