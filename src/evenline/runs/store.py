"""A store of days: each is a file named by a hash of everything that the day depends on.

A change of the city, the policy, the simulator or our source is another day, so nothing in a store
is ever replaced. What is read again is checked by its own hash.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evenline.city.demand import Cell
from evenline.policies.bundle import policy_digest, read_policy
from evenline.runs.day import evaluator, library_versions
from evenline.runs.job import Answer, Job, to_line
from evenline.support.errors import InputError
from evenline.support.files import sha256, write_bytes
from evenline.support.own import Own, load_own
from evenline.support.records import Hashes, Record, Sha256, read_record
from evenline.support.sources import PACKAGE, closure, digest_of, file_hashes
from evenline.worlds.open import WORLDS
from evenline.worlds.sumo.runtime import installed_version


class _Day(Record):
    """A stored day: its answer, the hashes of the files written with it, and a hash of both."""

    answer: Answer
    files: Hashes
    sha256: Sha256


def setting_of(job: Job, city: str, calibration: str) -> tuple[str, ...]:
    """All that the days of a job depend on but the cell; the city and its calibration by digest."""
    bundle = read_policy(job.policy)
    world = job.world if job.world in WORLDS else _code_behind(load_own(job.world))
    sumo = job.sumo or installed_version() or "" if job.world == "sumo" else ""
    policy = policy_digest(bundle) + ("" if bundle.code is None else _code_behind(bundle.code))
    code = (*library_versions().values(), evaluator())
    return (*code, city, calibration, world, sumo, policy)


def day_key(setting: tuple[str, ...], cell: Cell) -> str:
    """A hash of everything that a day depends on."""
    return hashlib.sha256("\n".join((*setting, cell.name)).encode()).hexdigest()[:32]


def _code_behind(own: Own) -> str:
    """One hash of the user's own file and of the source files of ours that it imports."""
    return _code(own.file, own.sha256)


@cache
def _code(file: Path, digest: str) -> str:
    ours = [path for path in closure(file) if path.is_relative_to(PACKAGE)]
    return digest_of({**file_hashes(ours), "own": digest})


@dataclass(frozen=True)
class Store:
    """The days in a folder."""

    folder: Path

    def read(self, key: str, job: Job) -> Answer | None:
        """The answer of a stored day; None if it, or a file that it wrote, is not there."""
        path, files = self._path(key), _files(job)
        if not path.exists() or not all(file.is_file() for file in files.values()):
            return None
        day = read_record(path, _Day)
        if _hash(day.answer, day.files) != day.sha256:
            raise InputError(f"{path} has changed since it was written; delete it, to run it again")
        for name, file in files.items():
            if sha256(file) != day.files.get(name):
                raise InputError(f"{file} is not of the day that {path} stores; delete both")
        return day.answer

    def keep(self, key: str, job: Job, answer: Answer) -> None:
        """Store a day; the files that it wrote stay where they are."""
        files = {name: sha256(file) for name, file in _files(job).items()}
        day = _Day(answer=answer, files=files, sha256=_hash(answer, files))
        write_bytes(self._path(key), to_line(day))

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _files(job: Job) -> dict[str, Path]:
    """The files that a job writes."""
    paths = {"tokens": job.tokens, "visits": job.visits}
    return {name: path for name, path in paths.items() if path is not None}


def _hash(answer: Answer, files: Hashes) -> str:
    return hashlib.sha256(to_line(answer) + to_line(files)).hexdigest()
