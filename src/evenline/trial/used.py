"""Which cells are no longer fresh: a registry of purposes, and a ledger of earlier trials.

Every purpose of `evenline.city.cells` but the trial's own counts as used in every city. A trial
uses its blocks in its city from the moment it is registered, whatever becomes of it. A study keeps
the ledger of its own trials in its folder.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenline.city.cells import PURPOSES
from evenline.support.errors import InputError
from evenline.support.files import read_json, to_json, write_text

FORMAT = "evenline-used-cells-1"
LEDGER = "used-cells.json"
Blocks = tuple[tuple[int, int], ...]


def ledgers_around(ledger: Path) -> list[Path]:
    """A ledger, and those of the studies that lie beside it."""
    return [ledger, *sorted(ledger.parent.glob(f"*/{ledger.name}"))]


def check_fresh(blocks: Blocks, city_digest: str, *ledgers: Path) -> None:
    """Refuse blocks that share a SUMO seed or a demand seed with anything seen before."""
    for purpose in PURPOSES.values():
        if purpose.name != "trial":
            theirs = [
                (purpose.sumo_seed + i, purpose.demand_seed + i) for i in range(purpose.blocks)
            ]
            _refuse_shared(blocks, theirs, f"{purpose.name} has used it")
    for ledger in ledgers:
        for trial in used_by_trials(ledger):
            if trial["city"] == city_digest:
                why = f"trial {trial['name']!r} has used it ({ledger})"
                _refuse_shared(blocks, trial["blocks"], why)


def _refuse_shared(blocks: Blocks, used: list[Any], why: str) -> None:
    for place, kind in enumerate(("SUMO", "demand")):
        seen = {block[place] for block in used}
        for block in blocks:
            if block[place] in seen:
                raise InputError(
                    f"{kind} seed {block[place]}: {why}; a trial needs seeds nobody has seen"
                )


def used_by_trials(ledger: Path) -> list[dict[str, Any]]:
    """The entries of the ledger, oldest first."""
    if not ledger.exists():
        return []
    found = read_json(ledger)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{ledger}: format is not {FORMAT!r}")
    return list(found["trials"])


def note_used(ledger: Path, entry: dict[str, Any]) -> None:
    """Add a trial to the ledger."""
    trials = [*used_by_trials(ledger), entry]
    write_text(ledger, to_json({"format": FORMAT, "trials": trials}))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock file and hold it; it goes with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def other_ledgers(folder: Path) -> list[Path]:
    """The ledgers of trials outside a study: the trial commands', and those of studies beside."""
    places = [folder.resolve().parent, Path("results").resolve()]
    found = [path for place in places for path in ledgers_around(place / LEDGER)]
    return [path for path in dict.fromkeys(found) if path.parent != folder.resolve()]


def has_outcomes(folder: Path) -> bool:
    """Whether the trial of a study has run a day."""
    return any((folder / "trial").glob("records/*.json"))
