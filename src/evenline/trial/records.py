"""The content of the files in a trial's folder: `trial.json`, the journal, records and the rest.

Files of earlier versions are read with defaults for new fields. The verifier (`trial/verify.py`)
reads the same files on its own and does not use this module.
"""

from pathlib import Path

import msgspec

from evenline.city.demand import Cell
from evenline.support.records import Record, Sha256, Whole, read_record
from evenline.trial.plan import Plan

TRIAL_FORMAT = "evenline-trial-1"
RECORD_FORMAT = "evenline-trial-record-1"
MATRIX_FORMAT = "evenline-trial-matrix-1"
CLOSEOUT_FORMAT = "evenline-trial-closeout-1"
TRIAL = "trial.json"
Hashes = dict[str, str]  # SHA-256 by path


# -- trial.json -----------------------------------------------------------------------------------


class NamedCity(Record):
    name: str
    digest: Sha256


class FrozenPolicy(Record):
    """A method's policy; `path` is a source below the inputs, or a built-in name."""

    method: str
    seed: int | None  # None: the method has no training seeds
    source: str
    path: str
    digest: Sha256
    files: Hashes
    stable: bool


class Source(Record):
    """Source files of ours, and one hash for all of them."""

    sha256: Sha256
    files: Hashes


class Registered(Record):
    """The registration: everything that was frozen before any outcome existed."""

    format: str
    name: str
    registered_at: str
    evenline: str
    plan: Plan
    plan_sha256: Sha256
    city: NamedCity
    policies: tuple[FrozenPolicy, ...]
    inputs: Hashes
    sumo: str | None  # None: the world is not SUMO
    evaluator: Source
    analyser: Source
    jobs: int
    world: str = "sumo"  # as a source below the inputs
    calibration: Sha256 | None = None
    versions: dict[str, str] | None = None  # None: registered before versions were recorded


def read_registered(folder: Path) -> Registered:
    """Read the registration of a trial's folder."""
    return read_record(folder / TRIAL, Registered, TRIAL_FORMAT)


# -- journal.jsonl --------------------------------------------------------------------------------


class _Event(Record, kw_only=True, tag_field="event"):
    """A line of the journal; `previous` is the hash of the previous line."""

    at: str = ""
    previous: str = ""

    @property
    def event(self) -> str:
        return str(self.__struct_config__.tag)


class RegisteredEvent(_Event, kw_only=True, tag="registered"):
    trial: Sha256


class Deviation(_Event, kw_only=True, tag="deviation"):
    """A difference that a person has signed off: files with their new hashes (None: deleted)."""

    why: str
    by: str
    evaluator: str
    source: dict[str, str | None] = msgspec.field(default_factory=dict)


class Quarantined(_Event, kw_only=True, tag="quarantined"):
    job: str
    name: str
    errors: tuple[str, ...]


class Released(_Event, kw_only=True, tag="released"):
    job: str
    name: str


class Peek(_Event, kw_only=True, tag="peek"):
    """Outcomes were shown before the matrix was complete."""

    records: Whole


Event = RegisteredEvent | Deviation | Quarantined | Released | Peek


class Journal(Record):
    lines: tuple[Event, ...]


# -- records/, quarantine/, matrix.json -----------------------------------------------------------


class Day(msgspec.Struct, frozen=True):
    """The part of an outcome that the analysis reads; its other figures are sealed with it."""

    departed: Whole
    completed: Whole
    cost: Whole

    def __post_init__(self) -> None:
        if self.completed > self.departed:
            raise ValueError("more passengers completed than departed")


class PolicyFiles(Record):
    digest: str
    files: Hashes


class SumoRun(Record):
    version: str | None
    options: tuple[str, ...]


class Measured(Record):
    """A day's outcome, and everything it depends on, hashed by the process that ran it."""

    city: str
    policy: PolicyFiles
    sumo: SumoRun
    evaluator: str
    outcome: Day
    ledger: dict[str, int]
    world: str = "sumo"
    calibration: Sha256 | None = None
    versions: dict[str, str] | None = None


class RunFacts(Record):
    """The values that may differ when a job is repeated."""

    finished_at: str
    duration_s: float
    host: dict[str, str]
    failed_tries: tuple[str, ...]


class JobRecord(Measured, kw_only=True):
    """A job's record: the day, the job, and two seals."""

    format: str
    trial: str
    job: str
    method: str
    seed: int | None
    cell: Cell
    run: RunFacts
    result_sha256: str
    record_sha256: str


class QuarantineEntry(Record):
    """A job that failed every try, and why."""

    job: str
    name: str
    at: str
    errors: tuple[str, ...]


class Matrix(Record):
    """The records' hashes by block, and one hash for all results."""

    format: str
    trial: str
    blocks: dict[str, Hashes]
    jobs: int
    results_sha256: str


# -- closeout.json --------------------------------------------------------------------------------


class Closeout(Record):
    """All files of a closed trial, under one Merkle root."""

    format: str
    trial: str
    name: str
    closed_at: str
    evenline: str
    confirmed: bool
    results_sha256: str
    notices: tuple[str, ...]
    files: Hashes
    merkle_root: str
