"""Collect the immutable replay: every behaviour in every cell, once, in SUMO.

Each episode is a file, and files are written atomically. Killing the collector loses at most the
running episodes; the next run continues with the missing ones, and the finished store has the same
bytes. A full disk ends the collector with a one-line error. When all episodes exist, the manifest
seals them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS, check_somebody
from evenline.city.tables import digest
from evenline.replay.episode import read_metadata, writing
from evenline.replay.sealed import (
    FORMAT,
    MANIFEST,
    PLAN,
    ReplayPlan,
    check_sealed,
    episode_path,
    seal,
)
from evenline.rules.policy import BEHAVIOURS, as_recorded, recorded
from evenline.runs.executors import WHOLE, Executor, Progress, Shard, no_progress, processes
from evenline.runs.job import Ended, Job
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_text
from evenline.support.locks import one_runner
from evenline.support.records import plain, read_record
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.open import OpenCity, open_city


def planned(folder: Path, city: str, blocks: int | None = None) -> list[Job]:
    """All episodes of a replay, zero hold first: 8 behaviours in 10 blocks of 3 levels."""
    return [
        Job(city=city, policy=name, cell=cell, tokens=episode_path(folder, name, cell))
        for name in BEHAVIOURS
        for cell in PURPOSES["replay"].cells(blocks, DEMAND_LEVELS)
    ]


def collect(
    folder: Path,
    city: str,
    blocks: int | None = None,
    executor: Executor | None = None,
    on_end: Callable[[Ended], None] = lambda ended: None,
    progress: Progress = no_progress,
    shard: Shard = WHOLE,
) -> list[Ended]:
    """Run the missing episodes, then seal. Returns the failures, which leave the store unsealed.

    A shard runs its part of the missing episodes; the shard that finishes the last one seals.
    """
    opened = open_city(city)
    check_somebody(opened.city)
    with locked(folder, shard):
        _check_plan(folder, opened, blocks)
        jobs = planned(folder, city, blocks)
        if (folder / MANIFEST).exists():
            check_sealed(folder)
            return []
        if shard == WHOLE:
            _sweep(folder)
        city_digest = digest(opened.city)
        missing = [job for job in shard.of(jobs) if not _present(job, city_digest)]
        execute = executor or processes()
        failures = _run(folder, missing, execute, on_end, progress) if missing else []
        paths = [path for job in jobs if (path := job.tokens) is not None]
        if not failures and all(path.exists() for path in paths):
            fitted = opened.calibration
            seal(folder, paths, None if fitted is None else calibration_digest(fitted))
        return failures


def _run(
    folder: Path,
    jobs: list[Job],
    executor: Executor,
    on_end: Callable[[Ended], None],
    progress: Progress,
) -> list[Ended]:
    """Run episodes and return the failures. Stop at once on an error that every episode would
    hit.
    """
    failures = []
    with closing(executor(jobs, progress=progress)) as results:
        for ended in results:
            if ended.answer is None and ended.final:
                raise InputError(
                    f"{ended.error}; finished episodes are kept; "
                    "fix this and run the same "
                    "command again"
                )
            _log(folder, ended)
            on_end(ended)
            if ended.answer is None:
                failures.append(ended)
    return failures


def _sweep(folder: Path) -> None:
    """Remove temporary files of killed processes. This is safe because we hold the lock."""
    for path in folder.glob("episodes/*/.*"):
        path.unlink()


def missing_episodes(folder: Path, city: str, blocks: int | None = None) -> list[Job]:
    """The episodes that are still missing."""
    jobs = planned(folder, city, blocks)
    return [job for job in jobs if job.tokens is not None and not job.tokens.exists()]


@contextmanager
def locked(folder: Path, shard: Shard = WHOLE) -> Iterator[None]:
    """Allow one collector per folder or shard; the lock is released when the process ends."""
    with one_runner(folder, "collector", shard.index, shard.count):
        yield


def _check_plan(folder: Path, opened: OpenCity, blocks: int | None) -> None:
    """A folder belongs to one plan: another city or number of blocks needs another folder."""
    wanted = {
        "format": FORMAT,
        "city": digest(opened.city),
        "city_name": opened.name,
        "blocks": blocks or PURPOSES["replay"].blocks,
        "behaviours": [recorded(policy) for policy in BEHAVIOURS.values()],
    }
    path = folder / PLAN
    if not path.exists():
        with writing(path):
            write_text(path, to_json(wanted))
        return
    found = plain(read_record(path, ReplayPlan, FORMAT))
    found["behaviours"] = [as_recorded(row) for row in found["behaviours"]]
    for key, value in wanted.items():
        if found[key] != value:
            raise InputError(
                f"{path}: this folder was started with a different {key}; choose another folder"
            )


def _present(job: Job, city_digest: str) -> bool:
    """Whether the episode exists. A file of another episode is an error and is never
    overwritten.
    """
    assert job.tokens is not None
    if not job.tokens.exists():
        return False
    found = read_metadata(job.tokens)
    wanted = (city_digest, job.cell, recorded(BEHAVIOURS[job.policy]))
    if (found.city, found.cell, as_recorded(found.policy)) != wanted:
        raise InputError(
            f"{job.tokens} belongs to another city, cell or behaviour; move it away and run the "
            "command again"
        )
    return True


def _log(folder: Path, ended: Ended) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = f"failed: {ended.error}" if ended.answer is None else "done"
    count = len(ended.failures) + (ended.answer is not None)
    tries = f" ({count} tries)" if count > 1 else ""
    path = folder / "log.txt"
    with writing(path), path.open("a") as file:
        file.write(f"{stamp} {ended.job.name} {state} in {ended.duration_s:.1f} s{tries}\n")
