"""One day to run, as data: the job, its answer, and how it can fail.

Every command that runs days (collecting, calibrating, audits, comparisons, trials) describes
them as `Job`s and hands them to an executor (`evenline.runs.executors`).
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from evenline.city.demand import Cell
from evenline.city.model import Ints
from evenline.control.operations import Departures
from evenline.control.outcome import Outcome
from evenline.support.records import Hashes, Line, Record, Sha256, Whole, Word, plain

T = TypeVar("T")


class Limits(Record):
    """The limits of one try of a job. A job that exceeds them is tried again with the same
    seeds.
    """

    time_s: Annotated[int, Meta(ge=1, le=10_000_000)] = 3600
    memory_gib: Annotated[float, Meta(ge=0.1, le=100_000.0)] = 8.0
    tries: Annotated[int, Meta(ge=1, le=100)] = 3
    silence_s: Annotated[float, Meta(ge=0.0, le=10_000_000.0)] = 120.0


USUAL = Limits()


class Job(Record):
    """One day to run: city, policy, cell and world, and the files to write, if any.

    `city` is a name or a folder, `policy` any policy source, `world` fast, sumo or your own, `sumo`
    a version other than the default. `explain` adds the explanation of every decision to the stop
    visits; `arrivals` adds the arrival of every trip at every stop to the answer, and how many
    trips began late or never; `as_usual` runs the city with the usual operations instead of its
    own, as a calibration needs it.
    """

    city: Line
    policy: Line
    cell: Cell
    world: Line = "sumo"
    sumo: Word | None = None
    calibration: Line | None = None
    tokens: Path | None = None
    visits: Path | None = None
    explain: bool = False
    arrivals: bool = False
    as_usual: bool = False

    @property
    def name(self) -> str:
        return f"{self.policy} {self.cell.name}"


class Reading(Record):
    """A SUMO scenario of a stranger to read, and the folder in which to write its city."""

    config: Path
    name: Line
    out: Path
    end_s: int | None = None


class Simulator(Record):
    """The simulator of a day: the world, and SUMO's version and options if it was SUMO."""

    world: Line
    version: Line | None = None
    options: tuple[Line, ...] = ()
    code: Sha256 | None = None  # hash of the file of the user's own world
    network: Sha256 | None = None  # hash of the network that SUMO read


class Host(Record):
    """The machine that ran a day."""

    name: Line
    machine: Line
    system: Line
    python: Line


class Described(Record):
    """A policy by its digest, and the hash of each file of a bundle or of the user's own rule."""

    digest: Sha256
    files: Hashes = msgspec.field(default_factory=dict)


class Answer(Record):
    """The outcome of a day and everything it depends on, hashed by the process that ran it."""

    outcome: Outcome
    city: Sha256  # digest
    cell: Cell
    policy: Described
    simulator: Simulator
    calibration: Sha256 | None  # digest, if the world or the policy used it
    evaluator: Sha256  # digest of our source files that a day depends on
    versions: dict[Word, Line]  # versions of the libraries that compute
    host: Host
    activations: dict[Line, dict[Line, dict[Line, Whole]]] | None = None
    arrivals_s: tuple[Annotated[int, Meta(ge=-1, lt=2**31)], ...] = ()
    begun: Departures | None = None  # not told by a world of the user's own

    @property
    def arrivals(self) -> Ints:
        """When each trip reached each of its stops, one entry per visit; -1 if it did not."""
        return np.array(self.arrivals_s, np.int32)


class Failure(Record):
    """Why a try failed. Bad input and bugs fail every try; other failures may pass at the next."""

    kind: Literal["input", "defect", "simulator", "died", "silent", "time", "memory", "lost"]
    message: str

    @property
    def final(self) -> bool:
        return self.kind in ("input", "defect")


class Ended(Record):
    """The result of a job: an answer, or the failures of all tries."""

    job: Job
    answer: Answer | None
    failures: tuple[Failure, ...]
    duration_s: float

    @property
    def error(self) -> str:
        """The message of the last failure."""
        return self.failures[-1].message if self.failures else "stopped"

    @property
    def final(self) -> bool:
        """Whether another try would fail in the same way."""
        return bool(self.failures) and self.failures[-1].final


def answer_json(answer: Answer) -> dict[str, Any]:
    """An answer for a file that people read: with derived figures, without arrivals."""
    told: dict[str, Any] = plain(answer) | {"outcome": answer.outcome.as_dict()}
    return {name: value for name, value in told.items() if name not in ("arrivals_s", "begun")}


def to_line(value: Any) -> bytes:
    """Write a record as one line of JSON."""
    return msgspec.json.encode(value, enc_hook=str) + b"\n"


def from_line(line: bytes, kind: type[T]) -> T:
    """Read a record from a line of JSON."""
    return msgspec.json.decode(line, type=kind, dec_hook=lambda made, text: made(text))
