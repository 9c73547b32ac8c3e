"""A collection survives what kills it, belongs to one plan and one collector, and is sealed."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenline
from evenline.city.embedded import embedded_city
from evenline.city.tables import digest, save_city
from evenline.control.outcome import Outcome
from evenline.experiments.collect import (
    collect,
    episode_path,
    locked,
    missing_episodes,
    planned,
)
from evenline.replay.episode import (
    batches,
    raw_events,
    read_decisions,
    read_metadata,
    read_outcome,
    write_episode,
)
from evenline.rules.policy import BEHAVIOURS, recorded, set_rule
from evenline.runs.executors import Results
from evenline.runs.job import Answer, Described, Ended, Failure, Host, Job, Simulator
from evenline.support.errors import InputError
from evenline.support.records import plain
from evenline.worlds.open import EMBEDDED, open_city
from evenline.worlds.sumo.runtime import DEFAULT_VERSION
from recorded import collect_command, once, whole_store
from small_cities import streets

EPISODES = 24  # 8 behaviours, 1 block, 3 levels


def done(job: Job) -> Ended:
    """A job that was answered; the collector reads nothing from the answer itself."""
    answer = Answer(
        outcome=Outcome(*[0] * 13),
        city="",
        cell=job.cell,
        policy=Described(digest=""),
        simulator=Simulator(world="sumo"),
        calibration=None,
        evaluator="",
        versions={},
        host=Host(name="", machine="", system="", python=""),
    )
    return Ended(job=job, answer=answer, failures=(), duration_s=0.1)


def failed(job: Job, *failures: Failure) -> Ended:
    return Ended(job=job, answer=None, failures=failures, duration_s=0.1)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed store of `town` whose collection was never interrupted. Not to be changed."""
    return once(tmp_path_factory, "whole-store", whole_store)


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A city `city` whose days take SUMO a moment, and its whole `store`. Not to be changed."""
    folder = tmp_path_factory.mktemp("street")
    save_city(streets(services=2, trips=6, headway_s=120, horizon_s=1_500), folder / "city")
    whole_store(folder / "store", str(folder / "city"))
    return folder


@pytest.fixture
def own(store: Path, tmp_path: Path) -> Path:
    """A copy of that store for a test to change."""
    shutil.copytree(store, tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def no_sumo(store: Path, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Episodes come from the whole store instead of SUMO; the list says which were asked for."""
    ran: list[Job] = []
    install_runner(monkeypatch, store, ran)
    return ran


def install_runner(
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    ran: list[Job],
    fails: Callable[[Job], bool] = lambda job: False,
) -> None:
    crash = Failure(kind="simulator", message="SUMO stopped at 7 s of the day: no reason")

    def run(jobs: Sequence[Job], **_: Any) -> Results:
        for job in jobs:
            ran.append(job)
            if fails(job):
                yield failed(job, crash, crash, crash)
                continue
            assert job.tokens is not None
            job.tokens.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(episode_path(store, job.policy, job.cell), job.tokens)
            yield done(job)

    monkeypatch.setattr("evenline.experiments.collect.processes", lambda: run)


def episodes(folder: Path) -> dict[str, bytes]:
    """Every episode that has its name, by path inside the store."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.glob("episodes/*/*.parquet")
        if not path.name.startswith(".")
    }


def sealed_content(folder: Path) -> dict[str, bytes]:
    return episodes(folder) | {
        name: (folder / name).read_bytes() for name in ("manifest.json", "plan.json")
    }


def unseal(folder: Path) -> None:
    (folder / "manifest.json").unlink()


# -- a whole collection ---------------------------------------------------------------------------


def test_every_behaviour_is_there_in_every_cell_and_nothing_else(store: Path) -> None:
    expected = {
        f"episodes/{name}/2101-2201-{level}.parquet"
        for name in BEHAVIOURS
        for level in ("0.75", "1.00", "1.25")
    }
    assert set(episodes(store)) == expected and len(expected) == EPISODES
    assert missing_episodes(store, "town", 1) == []


def test_the_manifest_names_every_file_by_its_hash(store: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_bytes())
    assert manifest["files"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in episodes(store).items()
    }
    assert manifest["sumo"] == DEFAULT_VERSION and manifest["evenline"] == evenline.__version__
    assert manifest["plan"] == json.loads((store / "plan.json").read_bytes())
    assert manifest["plan"]["city"] == digest(embedded_city("town"))
    assert manifest["plan"]["blocks"] == 1
    fitted = (EMBEDDED / "town.json").read_bytes()
    assert manifest["calibration"] == hashlib.sha256(fitted).hexdigest()


def test_a_city_without_a_calibration_of_its_own_has_no_hash(
    tmp_path: Path, no_sumo: list[Job]
) -> None:
    town = embedded_city("town")
    save_city(town, tmp_path / "elsewhere")
    assert collect(tmp_path / "new", str(tmp_path / "elsewhere"), 1) == []
    assert len(no_sumo) == EPISODES
    assert json.loads((tmp_path / "new" / "manifest.json").read_bytes())["calibration"] is None
    save_city(replace(town, horizon_s=town.horizon_s + 1), tmp_path / "town")
    namesake = open_city(str(tmp_path / "town"))
    assert namesake.calibration is None, "the same name is not the same city"


def test_a_sealed_store_is_read_only(store: Path) -> None:
    for name in [*episodes(store), "manifest.json"]:
        assert (store / name).stat().st_mode & 0o222 == 0, name


def test_an_episode_lies_where_its_cell_and_behaviour_say(store: Path) -> None:
    for name in episodes(store):
        found = read_metadata(store / name)
        assert store / name == episode_path(store, found.behaviour, found.cell)
        assert found.policy == recorded(BEHAVIOURS[found.behaviour])


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_the_holds_of_an_episode_are_those_of_its_behaviour(store: Path, name: str) -> None:
    """Replayed from the stored rows alone."""
    town, rule = embedded_city("town"), BEHAVIOURS[name]
    for path in sorted((store / "episodes" / name).iterdir()):
        decisions = read_decisions(path)
        raw = raw_events(town, read_metadata(path).cell.demand, decisions)
        holds = [hold for moment in batches(decisions, raw) for hold in rule(moment)]
        assert np.array_equal(decisions.hold_s, np.array(holds, np.float32))
        assert read_outcome(path).holds_zero == np.count_nonzero(decisions.hold_s == 0)


def test_the_same_people_depart_under_every_behaviour_and_more_at_a_higher_level(
    store: Path,
) -> None:
    departed: dict[float, set[int]] = {}
    for name in episodes(store):
        demand = read_metadata(store / name).cell.demand
        departed.setdefault(demand, set()).add(read_outcome(store / name).departed)
    assert departed == {0.75: {2_025}, 1.0: {2_700}, 1.25: {3_375}}


def test_the_log_has_a_line_for_each_episode(store: Path) -> None:
    lines = (store / "log.txt").read_text().splitlines()
    assert len(lines) == EPISODES and all(" done in " in line for line in lines)
    for job in planned(store, "town", 1):
        assert sum(f" {job.name} " in line for line in lines) == 1


# -- killed ---------------------------------------------------------------------------------------


def wait_for(count: int, folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Until a collection that is under way has so many episodes."""
    until = time.monotonic() + 120
    while len(episodes(folder)) < count:
        assert process.poll() is None and time.monotonic() < until, (
            "the collector should be at work"
        )
        time.sleep(0.02)


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file each episode is, and when it was written."""
    found = {name: (folder / name).stat() for name in episodes(folder)}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def test_a_collection_killed_twice_ends_in_the_bytes_of_one_never_interrupted(
    street: Path, tmp_path: Path
) -> None:
    """First the collector alone is killed, then it and its workers together."""
    folder = tmp_path / "killed"
    command = collect_command(folder, str(street / "city"))
    kept: dict[str, tuple[int, int]] = {}
    for count, everyone in ((4, False), (11, True)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_for(count, folder, process)
        finally:
            os.kill(-process.pid if everyone else process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == -signal.SIGKILL
        assert not (folder / "manifest.json").exists(), "what is not whole is not sealed"
        kept = stamps(folder) | kept
    assert 11 <= len(kept) < EPISODES, "killed on the way"
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert sealed_content(folder) == sealed_content(street / "store")
    assert kept.items() <= stamps(folder).items(), "no finished episode is run again"


def test_an_episode_that_fails_is_named_and_the_others_go_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Job] = []
    install_runner(monkeypatch, store, ran, fails=lambda job: job.policy == "myopic")
    failures = collect(tmp_path / "new", "town", 1)
    assert [f.job.policy for f in failures] == ["myopic"] * 3 and len(ran) == EPISODES
    assert len(episodes(tmp_path / "new")) == EPISODES - 3
    assert not (tmp_path / "new" / "manifest.json").exists()
    log = (tmp_path / "new" / "log.txt").read_text().splitlines()
    assert sum("failed: SUMO stopped at 7 s" in line and "(3 tries)" in line for line in log) == 3

    ran.clear()
    install_runner(monkeypatch, store, ran)
    assert collect(tmp_path / "new", "town", 1) == []
    assert [job.policy for job in ran] == ["myopic"] * 3
    assert sealed_content(tmp_path / "new") == sealed_content(store)


def test_a_lost_episode_is_run_again_and_the_seal_is_the_same(
    store: Path, own: Path, no_sumo: list[Job]
) -> None:
    unseal(own)
    lost = own / sorted(episodes(own))[5]
    lost.unlink()
    assert [job.tokens for job in missing_episodes(own, "town", 1)] == [lost]
    assert collect(own, "town", 1) == [] and [job.tokens for job in no_sumo] == [lost]
    assert sealed_content(own) == sealed_content(store)


def test_a_finished_store_is_left_alone_by_another_run(
    store: Path, own: Path, no_sumo: list[Job]
) -> None:
    assert collect(own, "town", 1) == [] and no_sumo == []
    assert sealed_content(own) == sealed_content(store)


# -- a full disk ----------------------------------------------------------------------------------

# Runs in a mount namespace of its own, so that the small disk goes with the process.
SMALL_DISK = """
set -e
mount -t tmpfs -o size=64k tmpfs "$1/disk"
set +e
"${@:2}" > "$1/out" 2> "$1/err"
echo $? > "$1/code"
set -e
cp -r "$1/disk/store" "$1/when-full"
mount -o remount,size=64m "$1/disk"
"${@:2}" > /dev/null
cp -rp "$1/disk/store" "$1/finished"
"""


def test_a_disk_that_fills_costs_nothing_that_was_collected(street: Path, tmp_path: Path) -> None:
    """A real disk of 64 kB, which then grows."""
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    (tmp_path / "disk").mkdir()
    probe = [*alone, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "disk")]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("needs to mount a small disk, which is not allowed here")
    command = collect_command(tmp_path / "disk" / "store", str(street / "city"))
    subprocess.run(
        [*alone, "bash", "-c", SMALL_DISK, "bash", str(tmp_path), *command],
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "code").read_text() == "2\n" and (tmp_path / "out").read_text() == ""
    said = (tmp_path / "err").read_text().strip().splitlines()[-1]
    assert re.fullmatch(
        rf"evenline: {tmp_path}/disk/store/\S+: cannot be written \(No space left on device\).*",
        said,
    ), said
    kept = episodes(tmp_path / "when-full")
    assert 2 <= len(kept) < EPISODES and kept.items() <= episodes(street / "store").items()
    assert not list((tmp_path / "when-full").rglob(".*.parquet.*")), "nothing half written"
    assert sealed_content(tmp_path / "finished") == sealed_content(street / "store")


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file may grow beyond this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_would_fail_every_episode_ends_the_collection_at_once(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files beyond a size are refused by the system, whoever runs the test."""
    ran: list[Job] = []

    def run(jobs: Sequence[Job], **_: Any) -> Results:
        for job in jobs:
            ran.append(job)
            assert job.tokens is not None
            source = episode_path(store, job.policy, job.cell)
            found = plain(read_metadata(source))
            provenance = {k: found[k] for k in ("city", "cell", "policy", "sumo", "evenline")}
            try:
                write_episode(job.tokens, read_decisions(source), read_outcome(source), provenance)
            except InputError as error:
                yield failed(job, Failure(kind="input", message=str(error)))
            else:
                yield done(job)

    monkeypatch.setattr("evenline.experiments.collect.processes", lambda: run)
    sizes = [
        episode_path(store, j.policy, j.cell).stat().st_size for j in planned(store, "town", 1)
    ]
    limit = max(sizes[:3])
    third = next(i for i, size in enumerate(sizes) if size > limit)
    with limited(limit), pytest.raises(InputError, match=r"parquet: cannot be written \(File too"):
        collect(tmp_path / "new", "town", 1)
    assert len(ran) == third + 1 and len(episodes(tmp_path / "new")) == third
    ran.clear()
    assert collect(tmp_path / "new", "town", 1) == [] and len(ran) == EPISODES - third
    assert sealed_content(tmp_path / "new") == sealed_content(store)


def test_a_plan_or_log_that_cannot_be_written_is_named(tmp_path: Path, no_sumo: list[Job]) -> None:
    (tmp_path / "a" / "log.txt").mkdir(parents=True)
    with pytest.raises(InputError, match=r"log\.txt: cannot be written \(Is a directory\)"):
        collect(tmp_path / "a", "town", 1)
    with limited(10), pytest.raises(InputError, match=r"plan\.json: cannot be written \(File too"):
        collect(tmp_path / "b", "town", 1)


# -- what does not belong -------------------------------------------------------------------------


def test_a_second_collector_on_the_same_folder_is_refused(own: Path, no_sumo: list[Job]) -> None:
    with locked(own), pytest.raises(InputError, match="own: another collector is running here"):
        collect(own, "town", 1)
    assert collect(own, "town", 1) == [], "the lock went with its owner"


def test_a_second_collector_process_ends_with_one_line_and_code_2(tmp_path: Path) -> None:
    folder = tmp_path / "busy"
    with locked(folder):
        ended = subprocess.run(collect_command(folder), capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stdout == ""
    assert (
        ended.stderr
        == f"evenline: {folder}: another collector is running here; wait until it ends\n"
    )
    assert [path.name for path in folder.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("city", "blocks", "key"),
    [("town", 2, "blocks"), ("town", None, "blocks"), ("city", 1, "city")],
)
def test_a_folder_begun_with_another_plan_is_refused(
    store: Path, own: Path, no_sumo: list[Job], city: str, blocks: int | None, key: str
) -> None:
    with pytest.raises(
        InputError, match=rf"plan\.json: this folder was started with a different {key};"
    ):
        collect(own, city, blocks)
    assert no_sumo == [] and sealed_content(own) == sealed_content(store)


def test_a_folder_begun_with_other_behaviours_is_refused(
    own: Path, no_sumo: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BEHAVIOURS, "myopic", set_rule("myopic", "headway", gain=0.5))
    with pytest.raises(InputError, match="started with a different behaviours"):
        collect(own, "town", 1)
    assert no_sumo == []


def test_two_cells_in_each_others_place_are_noticed(own: Path, no_sumo: list[Job]) -> None:
    unseal(own)
    first, second = sorted((own / "episodes" / "zero").iterdir())[:2]
    aside = own / "aside"
    for source, place in ((first, aside), (second, first), (aside, second)):
        source.rename(place)
    with pytest.raises(InputError, match=f"zero/{first.name} belongs to another city, cell"):
        collect(own, "town", 1)
    assert not (own / "manifest.json").exists() and no_sumo == []


def test_an_episode_cut_short_is_refused_by_name_and_not_overwritten(
    own: Path, no_sumo: list[Job]
) -> None:
    unseal(own)
    name = sorted(episodes(own))[7]
    content = (own / name).read_bytes()
    (own / name).chmod(0o644)
    (own / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=f"{name}: not a whole Parquet file"):
        collect(own, "town", 1)
    assert (own / name).read_bytes() == content[: len(content) // 2] and no_sumo == []


@pytest.mark.parametrize("blocks", [0, 11])
def test_more_blocks_than_the_replay_has_are_refused(tmp_path: Path, blocks: int) -> None:
    with pytest.raises(InputError, match=f"{blocks} blocks: choose 1 to 10 for replay"):
        planned(tmp_path, "town", blocks)


def test_two_behaviours_in_each_others_place_are_noticed(own: Path, no_sumo: list[Job]) -> None:
    unseal(own)
    first, second = (own / "episodes" / rule for rule in ("zero", "myopic"))
    aside = own / "aside"
    for source, place in ((first, aside), (second, first), (aside, second)):
        source.rename(place)
    with pytest.raises(InputError, match="zero"):
        collect(own, "town", 1)


def test_a_sealed_store_that_was_changed_is_refused_and_not_sealed_anew(
    own: Path, no_sumo: list[Job]
) -> None:
    seal = (own / "manifest.json").read_bytes()
    path = own / sorted(episodes(own))[0]
    found = plain(read_metadata(path))
    provenance = {k: found[k] for k in ("city", "cell", "policy", "sumo", "evenline")}
    decisions = read_decisions(path)
    changed = type(decisions)(**(vars(decisions) | {"cost": decisions.cost + 1}))
    write_episode(path, changed, read_outcome(path), provenance)
    with pytest.raises(InputError, match=path.name):
        collect(own, "town", 1)
    assert (own / "manifest.json").read_bytes() == seal


def test_episodes_of_two_sumo_versions_are_not_sealed_together(
    own: Path, no_sumo: list[Job]
) -> None:
    unseal(own)
    path = own / sorted(episodes(own))[0]
    found = plain(read_metadata(path)) | {"sumo": "1.25.0"}
    provenance = {k: found[k] for k in ("city", "cell", "policy", "sumo", "evenline")}
    write_episode(path, read_decisions(path), read_outcome(path), provenance)
    with pytest.raises(InputError, match=r"1\.25\.0"):
        collect(own, "town", 1)


def test_the_plan_lists_the_constants_of_every_behaviour(store: Path) -> None:
    plan = json.loads((store / "plan.json").read_bytes())
    assert plan["behaviours"] == [recorded(policy) for policy in BEHAVIOURS.values()]
