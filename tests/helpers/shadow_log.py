"""The log of a shadow as tests compare it."""

from pathlib import Path

from msgspec.structs import replace

from evenline.live.entries import Begun, Entry, PollEntry
from evenline.live.log import FIRST, read_log


def entries(log: Path) -> list[Entry]:
    return [entry for _, entry in read_log(log, Entry, torn=True)]


def facts(log: Path) -> list[Entry]:
    """What a log says, but for times taken and how often the shadow began."""
    same = [replace(entry, previous=FIRST) for entry in entries(log)]
    polls = [replace(e, took_ms=0.0) if isinstance(e, PollEntry) else e for e in same]
    return [entry for entry in polls if not isinstance(entry, Begun)]
