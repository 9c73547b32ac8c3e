"""Makes the immutable replay: every behaviour in every cell, in real SUMO, once.

An episode is a file; a file that is there is whole. Killing the collector loses at most the
episodes under way; the next run goes on with what is missing, and the finished store is the same
bytes. A disk that is full ends the collector in one line. When all episodes are there the manifest
seals them.
"""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from evenline.city.cells import PURPOSES
from evenline.city.demand import DEMAND_LEVELS
from evenline.city.model import City
from evenline.city.tables import digest, open_city
from evenline.replay.episode import read_metadata, writing
from evenline.replay.sealed import FORMAT, MANIFEST, PLAN, check_sealed, episode_path, seal
from evenline.rules.behaviours import BEHAVIOURS
from evenline.runs.pool import Job, Progress, Result, run_jobs
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, to_json, write_text
from evenline.worlds import calibration


def planned(folder: Path, city: str, blocks: int | None = None) -> list[Job]:
    """All episodes of a replay, zero hold first: 8 behaviours in 10 blocks of 3 levels."""
    return [
        Job(city, cell, rule, tokens=episode_path(folder, rule.name, cell))
        for rule in BEHAVIOURS.values()
        for cell in PURPOSES["replay"].cells(blocks, DEMAND_LEVELS)
    ]


def collect(
    folder: Path,
    city: str,
    blocks: int | None = None,
    workers: int | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
    progress: Progress = lambda job, now_s: None,
) -> list[Result]:
    """Run what is missing, then seal. Returns the failures, which leave the store unsealed."""
    with locked(folder):
        _check_plan(folder, city, blocks)
        jobs = planned(folder, city, blocks)
        if (folder / MANIFEST).exists():
            check_sealed(folder)
            return []
        _sweep(folder)
        city_digest = digest(open_city(city))
        missing = [job for job in jobs if not _present(job, city_digest)]
        failures = _run(folder, missing, workers, on_result, progress) if missing else []
        if not failures:
            paths = [path for job in jobs if (path := job.tokens) is not None]
            seal(folder, paths, calibration_sha256(open_city(city)))
        return failures


def _run(
    folder: Path,
    jobs: list[Job],
    workers: int | None,
    on_result: Callable[[Result], None],
    progress: Progress,
) -> list[Result]:
    """Run episodes; the failures. What would fail every episode alike ends the run at once."""
    failures = []
    with closing(run_jobs(jobs, workers=workers, progress=progress)) as results:
        for result in results:
            if result.error and result.final:
                raise InputError(
                    f"{result.error}; episodes already there are kept: "
                    "mend this and run the same command again"
                )
            _log(folder, result)
            on_result(result)
            if result.error:
                failures.append(result)
    return failures


def _sweep(folder: Path) -> None:
    """Remove what a killed writer left aside. Nobody else writes here: we hold the lock."""
    for path in folder.glob("episodes/*/.*"):
        path.unlink()


def missing_episodes(folder: Path, city: str, blocks: int | None = None) -> list[Job]:
    """What a collector would still have to run."""
    jobs = planned(folder, city, blocks)
    return [job for job in jobs if job.tokens is not None and not job.tokens.exists()]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One collector a folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{folder}: another collector is at work here") from None
        yield


def _check_plan(folder: Path, city: str, blocks: int | None) -> None:
    """A folder belongs to one plan: another city or number of blocks needs another folder."""
    wanted = {
        "format": FORMAT,
        "city": digest(open_city(city)),
        "city_name": open_city(city).name,
        "blocks": blocks or PURPOSES["replay"].blocks,
        "behaviours": [asdict(rule) for rule in BEHAVIOURS.values()],
    }
    path = folder / PLAN
    if not path.exists():
        with writing(path):
            write_text(path, to_json(wanted))
        return
    found = read_json(path)
    for key, value in wanted.items():
        if found.get(key) != value:
            raise InputError(
                f"{path}: this folder was begun with another {key}; choose another folder"
            )


def _present(job: Job, city_digest: str) -> bool:
    """Whether an episode is there; one that does not belong is an error, never overwritten."""
    assert job.tokens is not None
    if not job.tokens.exists():
        return False
    found = read_metadata(job.tokens)
    wanted = (city_digest, asdict(job.cell), asdict(job.rule))
    if (found["city"], found["cell"], found["policy"]) != wanted:
        raise InputError(
            f"{job.tokens}: holds another city, cell or behaviour; move it away and start again"
        )
    return True


def _log(folder: Path, result: Result) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = f"failed: {result.error}" if result.error else "done"
    tries = f" ({result.tries} tries)" if result.tries > 1 else ""
    path = folder / "log.txt"
    with writing(path), path.open("a") as file:
        file.write(f"{stamp} {result.job.name} {state} in {result.seconds:.1f} s{tries}\n")


def calibration_sha256(city: City) -> str | None:
    """The hash of the calibration that comes with a city; None for a city without one."""
    path = Path(calibration.__file__).parent / "calibrations" / f"{city.name}.json"
    try:
        calibration.embedded_calibration(city)  # is it this city's, and not a namesake's?
    except InputError:
        return None
    return sha256(path)
