"""The content of the files in a trial's folder: `trial.json`, the journal, records and the rest.

Files of earlier versions are read with defaults for new fields. The verifier (`trial/verify.py`)
reads the same files on its own and does not use this module.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenline.city.demand import Cell
from evenline.policies.kinds import Spec
from evenline.support.records import (
    FileName,
    Hashes,
    Line,
    Moment,
    Record,
    Seconds,
    Seed,
    Sha256,
    Whole,
    Word,
    read_record,
)
from evenline.trial.plan import Plan

TRIAL_FORMAT = "evenline-trial-1"
RECORD_FORMAT = "evenline-trial-record-1"
MATRIX_FORMAT = "evenline-trial-matrix-1"
CLOSEOUT_FORMAT = "evenline-trial-closeout-1"
TRIAL = "trial.json"


# -- trial.json -----------------------------------------------------------------------------------


class NamedCity(Record):
    name: Line
    digest: Sha256


class FrozenPolicy(Record):
    """A method's policy; `path` is a source below the inputs, or a built-in name.

    What is no bundle has its specification here, from which its digest follows; not in earlier
    registrations.
    """

    method: Word
    seed: Seed | None  # None: the method has no training seeds
    source: Line
    path: FileName
    digest: Sha256
    files: Hashes
    stable: bool
    spec: Spec | UnsetType = UNSET


class Source(Record):
    """Source files of ours, and one hash for all of them."""

    sha256: Sha256
    files: Hashes


class Registered(Record):
    """The registration: everything that was frozen before any outcome existed."""

    format: Word
    name: Word
    registered_at: Moment
    evenline: Word
    plan: Plan
    plan_sha256: Sha256
    city: NamedCity
    policies: tuple[FrozenPolicy, ...]
    inputs: Hashes
    sumo: Word | None  # None: the world is not SUMO
    evaluator: Source
    analyser: Source
    jobs: Whole
    world: Line = "sumo"  # as a source below the inputs
    calibration: Sha256 | None = None
    versions: dict[Word, Line] | None = None  # None: registered before versions were recorded
    network: Sha256 | None = None  # None: not in SUMO, or registered before it was recorded
    gates: dict[Line, Line] | None = None  # what each checks; None: less than they check now
    subject: Sha256 | None = None  # a hash of what the plan asks
    repeats: tuple[Line, ...] = ()  # trials of the same subject that have used its cells


def read_registered(folder: Path) -> Registered:
    """Read the registration of a trial's folder."""
    return read_record(folder / TRIAL, Registered, TRIAL_FORMAT)


# -- journal.jsonl --------------------------------------------------------------------------------


class _Event(Record, kw_only=True, tag_field="event"):
    """A line of the journal; `previous` is the hash of the previous line."""

    at: Moment | None = None  # None: not yet in the journal
    previous: Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""

    @property
    def event(self) -> str:
        return str(self.__struct_config__.tag)


class RegisteredEvent(_Event, kw_only=True, tag="registered"):
    trial: Sha256


class Deviation(_Event, kw_only=True, tag="deviation"):
    """A difference that a person has signed off: files with their new hashes (None: deleted)."""

    why: Line
    by: Line
    evaluator: Sha256
    source: dict[FileName, Sha256 | None] = msgspec.field(default_factory=dict)


class Quarantined(_Event, kw_only=True, tag="quarantined"):
    job: Sha256
    name: Line
    errors: tuple[Line, ...]


class Released(_Event, kw_only=True, tag="released"):
    job: Sha256
    name: Line


class Peek(_Event, kw_only=True, tag="peek"):
    """Outcomes were shown before the matrix was complete."""

    records: Whole


class Withdrawn(_Event, kw_only=True, tag="withdrawn"):
    """The remaining days of a control will not be run, so the trial stays incomplete."""

    method: Word
    why: Line
    by: Line


Event = RegisteredEvent | Deviation | Quarantined | Released | Peek | Withdrawn


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
    digest: Sha256
    files: Hashes


class SumoRun(Record):
    version: Line | None
    options: tuple[Line, ...]
    network: Sha256 | None = None  # of the network that SUMO read


class RunFacts(Record):
    """The values that may differ when a job is repeated."""

    finished_at: Moment
    duration_s: Seconds
    host: dict[Word, Line]
    failed_tries: tuple[Line, ...]


class JobRecord(Record, kw_only=True):
    """A job's record: the outcome of its day, everything the outcome depends on, and two seals."""

    format: Word
    trial: Sha256
    job: Sha256
    method: Word
    seed: Seed | None
    cell: Cell
    city: Sha256
    policy: PolicyFiles
    sumo: SumoRun
    evaluator: Sha256
    outcome: Day
    ledger: dict[Word, Whole]
    world: Line = "sumo"
    calibration: Sha256 | None = None
    versions: dict[Word, Line] | None = None
    run: RunFacts
    result_sha256: Sha256
    record_sha256: Sha256


class QuarantineEntry(Record):
    """A job that failed every try, and why."""

    job: Sha256
    name: Line
    at: Moment
    errors: Annotated[tuple[Line, ...], Meta(min_length=1)]


class Matrix(Record):
    """The records' hashes by block, and one hash for all results."""

    format: Word
    trial: Sha256
    blocks: dict[Word, Hashes]
    jobs: Whole
    results_sha256: Sha256


# -- closeout.json --------------------------------------------------------------------------------


class Closeout(Record):
    """All files of a closed trial, under one Merkle root."""

    format: Word
    trial: Sha256
    name: Word
    closed_at: Moment
    evenline: Word
    confirmed: bool
    results_sha256: Sha256
    notices: tuple[Line, ...]
    files: Hashes
    merkle_root: Sha256
