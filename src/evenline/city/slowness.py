"""What the results of a city say of its streets in SUMO, where there is nobody but our buses.

A city with a schedule has slowed streets once `evenline city fit --streets-only` has measured how
slow they must be. Until then its notes say that SUMO's trips take less time than the schedule.
"""

from dataclasses import replace

from evenline.city.model import City, Floats

TABLE = "slowness.csv"
NOTE = "in SUMO, "  # how every note of ours begins
EMPTY = (
    f"{NOTE}the streets are empty, so trips may take less than their scheduled time; slow the "
    "streets with: evenline city fit --streets-only"
)


def can_be_slowed(city: City) -> bool:
    """Whether a schedule says how long trips take in SUMO, and SUMO's own scenario does not."""
    return city.due_s is not None and not city.own_buses


def needs_slowing(city: City) -> bool:
    """Whether trips should take as long in SUMO as a schedule says, and nobody has seen to it."""
    return can_be_slowed(city) and city.slowness is None


def with_slowness(city: City, slowness: Floats | None, note: str = "") -> City:
    """The city with streets of this slowness, and a note on them in place of earlier ones."""
    notes = tuple(text for text in city.notes if not text.startswith(NOTE))
    if slowness is None:
        note = EMPTY if can_be_slowed(city) else ""
    return replace(city, slowness=slowness, notes=(*notes, note) if note else notes)
