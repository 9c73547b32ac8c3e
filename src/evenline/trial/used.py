"""Which cells are no longer fresh: a registry of purposes, and a ledger of earlier trials.

Every purpose of `evenline.city.cells` but the trial's own counts as used in every city. A trial
uses its blocks in its city from the moment it is registered, whatever becomes of it. A study keeps
the ledger of its own trials in its folder.
"""

from pathlib import Path

from evenline.city.cells import PURPOSES
from evenline.support.errors import InputError
from evenline.support.records import Record, read_record, write_record

FORMAT = "evenline-used-cells-1"
LEDGER = "used-cells.json"
Blocks = tuple[tuple[int, int], ...]


class Used(Record):
    """The cells that a trial has used in a city."""

    name: str
    trial: str  # the hash of its registration
    city: str
    blocks: Blocks


class Ledger(Record):
    """Every trial that has used cells, oldest first."""

    format: str = FORMAT
    trials: tuple[Used, ...] = ()


def ledgers_around(ledger: Path) -> list[Path]:
    """A ledger, and those of the studies that lie beside it."""
    return [ledger, *sorted(ledger.parent.glob(f"*/{ledger.name}"))]


def check_fresh(blocks: Blocks, city_digest: str, *ledgers: Path) -> None:
    """Refuse blocks that share a SUMO seed or a demand seed with anything seen before."""
    for purpose in PURPOSES.values():
        if purpose.name != "trial":
            theirs = tuple(
                (purpose.sumo_seed + i, purpose.demand_seed + i) for i in range(purpose.blocks)
            )
            _refuse_shared(blocks, theirs, f"{purpose.name} has used it")
    for ledger in ledgers:
        for trial in used_by_trials(ledger):
            if trial.city == city_digest:
                why = f"trial {trial.name!r} has used it ({ledger})"
                _refuse_shared(blocks, trial.blocks, why)


def _refuse_shared(blocks: Blocks, used: Blocks, why: str) -> None:
    for place, kind in enumerate(("SUMO", "demand")):
        seen = {block[place] for block in used}
        for block in blocks:
            if block[place] in seen:
                raise InputError(
                    f"{kind} seed {block[place]}: {why}; a trial needs seeds nobody has seen"
                )


def used_by_trials(ledger: Path) -> tuple[Used, ...]:
    """The entries of the ledger, oldest first."""
    return read_record(ledger, Ledger, FORMAT).trials if ledger.exists() else ()


def note_used(ledger: Path, used: Used) -> None:
    """Add a trial to the ledger."""
    write_record(ledger, Ledger(trials=(*used_by_trials(ledger), used)))


def other_ledgers(folder: Path) -> list[Path]:
    """The ledgers of trials outside a study: the trial commands', and those of studies beside."""
    places = [folder.resolve().parent, Path("results").resolve()]
    found = [path for place in places for path in ledgers_around(place / LEDGER)]
    return [path for path in dict.fromkeys(found) if path.parent != folder.resolve()]


def has_outcomes(folder: Path) -> bool:
    """Whether the trial of a study has run a day."""
    return any((folder / "trial").glob("records/*.json"))
