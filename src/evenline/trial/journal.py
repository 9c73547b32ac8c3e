"""The journal of a trial: one event a line, each with the hash of the line before it.

Whatever happens to a trial after its registration is written here and nowhere else.
"""

import hashlib
import json
import time
from pathlib import Path

from msgspec import structs

from evenline.support.errors import InputError
from evenline.support.files import from_json, read_file, write_bytes
from evenline.support.locks import locked
from evenline.support.records import convert, plain
from evenline.trial.records import Deviation, Event, Journal, Withdrawn

JOURNAL, CLOSEOUT = "journal.jsonl", "closeout.json"


def now() -> str:
    """The current time in the form of our files."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def journal(folder: Path) -> tuple[Event, ...]:
    """Read the journal of a trial, oldest event first, and check its chain of hashes."""
    path = folder / JOURNAL
    try:
        lines = read_file(path).splitlines(keepends=True)
        parsed = [from_json(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON lines ({error})") from None
    events, before = convert(Journal, {"lines": parsed}, str(path)).lines, ""
    for number, (line, event) in enumerate(zip(lines, events, strict=True), start=1):
        if event.previous != before:
            raise InputError(
                f"{path}: line {number} does not contain the hash of the previous line"
            )
        before = hashlib.sha256(line).hexdigest()
    if not events:
        raise InputError(f"{path} is empty")
    return events


def append_event(folder: Path, event: Event) -> None:
    """Add a line to the journal; shards take turns."""
    path = folder / JOURNAL
    with locked(folder / ".journal.lock"):
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        before = hashlib.sha256(lines[-1]).hexdigest() if lines else ""
        line = plain(structs.replace(event, at=event.at or now(), previous=before))
        write_bytes(path, b"".join([*lines, json.dumps(line, sort_keys=True).encode() + b"\n"]))


def deviations(folder: Path) -> list[Deviation]:
    """The deviations signed off so far."""
    return [event for event in journal(folder) if isinstance(event, Deviation)]


def withdrawn(folder: Path) -> dict[str, Withdrawn]:
    """The withdrawn methods."""
    return {event.method: event for event in journal(folder) if isinstance(event, Withdrawn)}


def refuse_closed(folder: Path) -> None:
    """Refuse to change a closed trial."""
    if (folder / CLOSEOUT).exists():
        raise InputError(f"{folder}: the trial is closed; register another one")
