"""A line for the user on standard error, from anywhere, including worker processes.

A worker's owner passes on the lines that begin with our mark.
"""

import sys
from functools import cache

from evenline.support.errors import shown

MARK = "evenline: "


def note(line: str) -> None:
    """Tell the user something that needs no answer."""
    print(f"{MARK}{shown(line)}", file=sys.stderr, flush=True)


@cache
def note_once(line: str) -> None:
    """Tell the user something once, however many workers say it."""
    note(line)
