"""Ids that SUMO and our tables take, made from the ids of other data.

Most ids stay as they are. Characters that SUMO refuses become `-`, and ids that would meet get a
number; what the source called a thing is kept beside it.
"""

import re
from collections.abc import Iterable

LONGEST = 40  # two ids and a word fit into the id of a road
LONGEST_SAID = 200
_REFUSED = re.compile(r"[\s/\\|;,'\"<>&]")
_RESERVED = re.compile(r"ANY|car?\d+")  # any bus, and our cars


def clean_ids(sources: Iterable[str]) -> dict[str, str]:
    """An id of ours for each id of the source; different ids stay different."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for source in sources:
        if source not in found:
            found[source] = free_id(_clean(source), taken)
    return found


def free_id(wanted: str, taken: set[str]) -> str:
    """This id, or with a number from 2 up if it is taken; takes it."""
    number, own = 1, wanted
    while own in taken:
        number += 1
        own = f"{wanted}~{number}"
    taken.add(own)
    return own


def one_line(text: str) -> str:
    """Text without line breaks and other characters that cannot be printed, and without spaces
    around it.
    """
    if text.isprintable():
        return text.strip()
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def said(text: str) -> str:
    """Text as people read it: on one line, not too long."""
    return " ".join(one_line(text).split())[:LONGEST_SAID].strip()


def _clean(source: str) -> str:
    text = "".join(c if c.isprintable() else "-" for c in source)
    text = _REFUSED.sub("-", text).replace("..", ".-")[:LONGEST].lstrip(":!")
    if not text:
        return "x"
    return f"{text}-" if _RESERVED.fullmatch(text) or text.endswith(".") else text
