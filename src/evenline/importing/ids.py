"""Ids that SUMO and our tables take, made from the ids of other data.

Most ids stay as they are. Characters that SUMO refuses become `-`, and ids that would meet get a
number; what the source called a thing is kept beside it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_LONGEST = 40  # two ids and a word fit into the id of a road
_LONGEST_SAID = 200
_REFUSED = re.compile(r"[\s/\\|;,'\"<>&]")
_RESERVED = re.compile(r"ANY|car?\d+")  # any bus, and our cars


def clean_ids(sources: Iterable[str]) -> dict[str, str]:
    """An id of ours for each id of the source; different ids stay different."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for source in sources:
        if source not in ids:
            ids[source] = free_id(_clean(source), taken)
    return ids


def route_ids(routes: Mapping[str, str]) -> dict[str, str]:
    """An id without full stops for each route of a feed: its short name, if that is no longer than
    its own id and no other route has it.
    """
    short = {route: name if len(name) <= len(route) else route for route, name in routes.items()}
    shared = Counter(short.values())
    named = {route: name if shared[name] == 1 else route for route, name in short.items()}
    clean, taken = clean_ids(named.values()), set[str]()
    return {route: free_id(clean[name].replace(".", "-"), taken) for route, name in named.items()}


def free_id(wanted: str, taken: set[str]) -> str:
    """This id, or with a number from 2 up if it is taken; takes it."""
    number, id = 1, wanted
    while id in taken:
        number += 1
        id = f"{wanted}~{number}"
    taken.add(id)
    return id


def readable(text: str) -> str:
    """Text as people read it: on one line, not too long."""
    words = "".join(c if c.isprintable() else " " for c in text).split()
    return " ".join(words)[:_LONGEST_SAID].strip()


def _clean(source: str) -> str:
    text = "".join(c if c.isprintable() else "-" for c in source)
    text = _REFUSED.sub("-", text).replace("..", ".-")[:_LONGEST].lstrip(":!")
    if not text:
        return "x"
    return f"{text}-" if _RESERVED.fullmatch(text) or text.endswith(".") else text
