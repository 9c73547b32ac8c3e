"""An opened replay: states built on demand, tampering found by name, claims recomputed."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenline.city.model import City
from evenline.city.tables import open_city
from evenline.control.action import action_of
from evenline.control.event import Batch
from evenline.control.state import canonical, contract_of, pack
from evenline.experiments.replay_audit import write_audit
from evenline.replay.audit import audit_replay
from evenline.replay.episode import raw_events, read_decisions
from evenline.replay.export import export_minari
from evenline.replay.store import Store, batch_places, open_store
from evenline.support.errors import InputError
from evenline.support.files import sha256
from recorded import once, whole_store


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "whole-store", whole_store)


@pytest.fixture(scope="module")
def store(folder: Path, town: City) -> Store:
    return open_store(folder, town)


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    copy = tmp_path / "store"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*"):
        path.chmod(0o755)
    return copy


def files(store: Path) -> list[Path]:
    return sorted(store.rglob("*.parquet"))


def reseal(store: Path) -> None:
    """Give a damaged store right hashes again, as someone who knows how it works would."""
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["files"] = {name: sha256(store / name) for name in manifest["files"]}
    (store / "manifest.json").write_text(json.dumps(manifest))


def rewrite(path: Path, column: str, row: int, value: float) -> None:
    """Change one value of an episode and keep everything else, metadata included."""
    file = pq.ParquetFile(path)
    table, metadata = file.read(), file.metadata.metadata
    values = table[column].to_numpy().copy()
    values[row] = value
    kind = table.schema.field(column).type
    place = table.schema.get_field_index(column)
    table = table.set_column(place, column, pa.array(values, kind))
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"evenline": metadata[b"evenline"].decode()})


def test_a_state_is_the_one_the_policy_saw(store: Store, town: City) -> None:
    rng = np.random.default_rng(0)
    for number in (0, 7, 20):
        episode = store.episodes[number]
        decisions = read_decisions(store.folder / list(store.manifest.files)[number])
        raw = raw_events(town, episode.cell.demand, decisions)
        for row in rng.integers(episode.first, episode.last, 40):
            place, size = int(store.columns.batch[row]), int(store.columns.batch_size[row])
            first = row - place - episode.first
            part = slice(first, first + size)
            batch = Batch(int(decisions.time_s[first]), decisions.trip[part], raw[part])
            taken = [action_of(float(hold)) for hold in decisions.hold_s[first : first + place]]
            expected = canonical(pack(batch, place, taken), contract_of(town))
            np.testing.assert_array_equal(store.canonical(np.array([row]))[0], expected)


def test_rewards_durations_and_terminals_add_up_to_the_day(store: Store, town: City) -> None:
    duration = store.duration_s()
    for episode in store.episodes:
        rows = slice(episode.first, episode.last)
        outcome = episode.outcome
        total = 2 * outcome.waiting_s + outcome.riding_s - outcome.pre_control_cost
        assert store.cost[rows].sum() == total
        assert duration[rows].sum() == town.horizon_s - store.columns.time_s[episode.first]
        assert store.terminal[rows].sum() == 1 and store.terminal[episode.last - 1]
    assert store.action.min() == -1.0 and store.action.max() <= 1.0


def test_a_wide_moment_is_seen_in_parts_of_sixteen() -> None:
    place, size = batch_places(np.array([5] * 20 + [9] * 2, np.int32))
    assert place.tolist() == [*range(16), *range(4), 0, 1]
    assert size.tolist() == [16] * 16 + [4] * 4 + [2] * 2


def test_a_flipped_byte_is_found_by_name(own: Path, town: City) -> None:
    victim = files(own)[3]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(InputError, match=f"{victim.name} has changed since it was sealed"):
        open_store(own, town)


def test_a_truncated_or_missing_or_added_file_is_found_by_name(own: Path, town: City) -> None:
    victim = files(own)[4]
    content = victim.read_bytes()
    victim.write_bytes(content[:-100])
    with pytest.raises(InputError, match=f"{victim.name} has changed"):
        open_store(own, town)
    victim.unlink()
    with pytest.raises(InputError, match=f"{victim.name} is missing"):
        open_store(own, town)
    victim.write_bytes(content)
    victim.with_name("stranger.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"stranger\.parquet is not in the manifest"):
        open_store(own, town)


def test_two_files_swapped_are_found_even_with_right_hashes(own: Path, town: City) -> None:
    first, second = files(own)[0], files(own)[1]
    aside = own / "aside"
    os.replace(first, aside)
    os.replace(second, first)
    os.replace(aside, second)
    reseal(own)
    with pytest.raises(InputError, match=r"\.parquet contains "):
        open_store(own, town)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("time_s", 0, "row 11: out of order in time"),
        ("hold_s", float("nan"), "row 11: hold is not a number"),
        ("trip", 999, "contains a trip that does not exist in town"),
    ],
)
def test_a_bad_row_is_told_even_with_right_hashes(
    own: Path, town: City, column: str, value: float, message: str
) -> None:
    victim = files(own)[2]
    rewrite(victim, column, 10, value)
    reseal(own)
    with pytest.raises(InputError, match=message):
        open_store(own, town)


def test_the_replay_of_another_city_is_refused(own: Path) -> None:
    with pytest.raises(InputError, match="the replay was not collected in city"):
        open_store(own, open_city("city"))


@pytest.mark.parametrize("absent", [True, False])
def test_a_manifest_without_a_calibration_opens(own: Path, town: City, absent: bool) -> None:
    manifest = json.loads((own / "manifest.json").read_text())
    if absent:  # as sealed by earlier versions
        del manifest["calibration"]
    else:
        manifest["calibration"] = None
    (own / "manifest.json").write_text(json.dumps(manifest))
    assert len(open_store(own, town)) > 0


def test_the_audit_passes_a_sound_store_and_counts_by_brute_force(
    folder: Path, store: Store, town: City
) -> None:
    figures = {figure.name: figure for figure in audit_replay(folder, town)[0]}
    assert all(figure.passed is not False for figure in figures.values())
    assert figures["rows"].value == len(store)
    assert figures["trajectories"].value == len(store.episodes)
    zero = figures["share of exact zero holds"]
    assert zero.value == pytest.approx(float(np.mean(store.columns.hold_s == 0)))
    assert zero.low is not None and zero.high is not None and zero.low <= zero.value <= zero.high
    states = store.canonical(np.arange(len(store)))
    token = store.columns.batch.astype(int)
    own_slot = states[np.arange(len(store))[:, None], 5 + 14 * token[:, None] + np.arange(14)]
    ahead, behind, load, rate = (own_slot[:, i] for i in (11, 12, 8, 9))
    share = states[:, 0]
    guard = (
        (share >= 0.15) & (share < 0.75) & (ahead == 1) & (behind == 0) & (rate > 0)
        & (load <= 0.25)
    )  # fmt: skip
    assert figures["share of guard rows"].value == pytest.approx(float(guard.mean()), abs=1e-4)


def test_the_audit_fails_a_store_whose_costs_do_not_add_up(own: Path, town: City) -> None:
    rewrite(files(own)[5], "cost", -1, 12345)
    reseal(own)
    failed = [figure.name for figure in audit_replay(own, town)[0] if figure.passed is False]
    assert failed == ["largest ledger error, passenger-seconds"]


def test_the_page_shows_every_figure_and_says_first_what_fails(own: Path, tmp_path: Path) -> None:
    figures = write_audit(own, "town", tmp_path / "sound", tmp_path / "docs" / "replay.md")
    page = (tmp_path / "sound" / "replay.html").read_text()
    assert "that can fail was checked and holds" in page
    for figure in figures:
        assert f"{figure.name}<" in page and figure.text().split(" (")[0] in page
    assert page.count("<svg") + page.count("data:image/svg") == 6, "three figures, light and dark"
    written = (tmp_path / "docs" / "replay.md").read_text()
    assert all(f"| {figure.name} | {figure.text()} |" in written for figure in figures)
    cells = json.loads((tmp_path / "sound" / "replay.json").read_text())["support_by_cell"]
    assert sorted(cells) == ["2101-2201-0.75", "2101-2201-1.00", "2101-2201-1.25"]
    rewrite(files(own)[5], "cost", -1, 12345)
    reseal(own)
    write_audit(own, "town", tmp_path / "broken")
    page = (tmp_path / "broken" / "replay.html").read_text()
    assert "The replay of town fails: largest ledger error, passenger-seconds." in page
    write_audit(own, "town", tmp_path / "broken")
    (tmp_path / "broken" / "replay.html").write_text("mine")
    with pytest.raises(InputError, match=r"replay\.html has changed since.*--force"):
        write_audit(own, "town", tmp_path / "broken")
    write_audit(own, "town", tmp_path / "broken", force=True)
    assert (tmp_path / "broken" / "replay.html").read_text() == page


def test_minari_reads_back_what_was_exported(store: Store, tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    target = export_minari(store, "evenline/town-v0", tmp_path, episodes=2)
    dataset = minari.MinariDataset(target / "data")
    assert dataset.total_episodes == 2
    episode, first = dataset[0], store.episodes[0]
    rows = np.arange(first.first, first.last)
    np.testing.assert_array_equal(episode.observations[:-1], store.canonical(rows))
    np.testing.assert_array_equal(episode.actions[:, 0], store.action[rows])
    np.testing.assert_array_equal(episode.rewards, store.reward[rows])
    assert episode.terminations.tolist() == store.terminal[rows].tolist()
    with pytest.raises(InputError, match="already exists"):
        export_minari(store, "evenline/town-v0", tmp_path)


def test_d3rlpy_trains_on_the_exported_file(store: Store, tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    d3rlpy = pytest.importorskip("d3rlpy", reason="d3rlpy is not installed (docs/replay.md)")
    target = export_minari(store, "evenline/town-v0", tmp_path, episodes=2)
    days = list(minari.MinariDataset(target / "data").iterate_episodes())
    data = d3rlpy.dataset.MDPDataset(
        observations=np.concatenate([day.observations[:-1] for day in days]),
        actions=np.concatenate([day.actions for day in days]),
        rewards=np.concatenate([day.rewards for day in days]),
        terminals=np.concatenate([day.terminations for day in days]),
    )
    learner = d3rlpy.algos.IQLConfig(batch_size=32).create(device="cpu")
    learner.fit(
        data,
        n_steps=6,
        n_steps_per_epoch=6,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    action = learner.predict(days[0].observations[:5])
    assert action.shape == (5, 1) and np.isfinite(action).all()
