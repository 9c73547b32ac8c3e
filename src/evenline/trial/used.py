"""Which cells have been used: by other purposes, and by earlier trials.

Every purpose of `evenline.city.cells` except the trial's own counts as used in every city. A trial
uses its blocks in its city as soon as it is registered, even if it never runs. A study lists the
cells of its trials in its folder. The package has a list too (`used-cells.json` next to
this file): the published trials, whose cells are used for everybody.

The same plan may be registered on its cells again: that repeats a trial, and every output says so.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from evenline.city.cells import PURPOSES
from evenline.support.errors import InputError
from evenline.support.locks import locked
from evenline.support.records import Record, Seed, Sha256, Word, read_record, write_record

FORMAT = "evenline-used-cells-1"
USED_CELLS = "used-cells.json"
PUBLISHED = Path(__file__).with_name(USED_CELLS)
Blocks = tuple[tuple[Seed, Seed], ...]


class Used(Record):
    """The cells that a trial has used in a city."""

    name: Word
    trial: Sha256 | None  # the hash of its registration; None if that was not kept
    city: Sha256
    blocks: Blocks
    subject: Sha256 | None = None  # a hash of what it asks: of an equal plan an equal one


class UsedCells(Record):
    """Every trial that has used cells, oldest first."""

    format: Word = FORMAT
    trials: tuple[Used, ...] = ()


@contextmanager
def registering(*folders: Path) -> Iterator[None]:
    """Let one registration at a time read and extend the lists of used cells in these folders."""
    with ExitStack() as locks:
        for folder in sorted({folder.resolve() for folder in folders}):  # always in this order
            locks.enter_context(locked(folder / f".{USED_CELLS}.lock"))
        yield


def used_cells_files(path: Path) -> list[Path]:
    """A list of used cells, those of the studies next to it, and that of the published trials."""
    return [path, *sorted(path.parent.glob(f"*/{path.name}")), PUBLISHED]


def check_fresh(
    blocks: Blocks, city_digest: str, *lists: Path, subject: str | None = None
) -> list[Used]:
    """Refuse blocks that share a SUMO seed or a demand seed with used cells.

    Returns the trials of the same subject that have used them: these are repeated.
    """
    repeated: list[Used] = []
    for purpose in PURPOSES.values():
        if purpose.name != "trial":
            firsts = (purpose.sumo_seed, purpose.demand_seed)
            theirs = [range(first, first + purpose.blocks) for first in firsts]
            _refuse_shared(blocks, theirs, f"{purpose.name} has used it")
    for path in lists:
        for trial in used_by_trials(path):
            if trial.city == city_digest and subject is not None and trial.subject == subject:
                repeated.append(trial)
            elif trial.city == city_digest:
                where = "published" if path == PUBLISHED else path
                why = f"trial {trial.name!r} has used it ({where})"
                _refuse_shared(blocks, list(zip(*trial.blocks, strict=True)), why)
    return repeated


def _refuse_shared(blocks: Blocks, used: Sequence[Sequence[int]], why: str) -> None:
    """Refuse blocks that share one of the used SUMO seeds or demand seeds."""
    for place, (kind, seen) in enumerate(zip(("SUMO", "demand"), used, strict=False)):
        for block in blocks:
            if block[place] in seen:
                raise InputError(
                    f"{kind} seed {block[place]}: {why}; choose seeds that have not been used"
                )


def used_by_trials(path: Path) -> tuple[Used, ...]:
    """The entries of a list of used cells, oldest first."""
    return read_record(path, UsedCells, FORMAT).trials if path.exists() else ()


def note_used(path: Path, used: Used) -> None:
    """Add a trial to a list of used cells, once."""
    before = used_by_trials(path)
    if used not in before:
        write_record(path, UsedCells(trials=(*before, used)))


def other_used_cells(folder: Path) -> list[Path]:
    """The lists of cells used outside a study: by trial commands, and by studies next to it."""
    places = [folder.resolve().parent, Path("results").resolve()]
    lists = [path for place in places for path in used_cells_files(place / USED_CELLS)]
    return [path for path in dict.fromkeys(lists) if path.parent != folder.resolve()]


def has_outcomes(folder: Path) -> bool:
    """Whether the trial of a study has run a day."""
    return any((folder / "trial").glob("records/*.json"))
