"""A policy that is made anew for each day, because it knows something of that day.

Such a policy is no way to run buses. It measures what knowledge is worth, up to that of a
clairvoyant. It is used by name as your own rule is, `FILE.py:NAME` or `MODULE:NAME`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evenline.city.demand import Cell
from evenline.control.world import Policy


@dataclass(frozen=True)
class Knowing:
    """A decorator for a function of the opened city and the cell that returns the day's policy."""

    made_for: Callable[[Any, Cell], Policy]
