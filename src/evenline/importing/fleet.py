"""The buses of an imported timetable. A feed does not say how many people they take, so it is
assumed, for all routes or route by route, and a note says so.
"""

from collections.abc import Mapping, Sequence

from evenline.city.model import Vehicle
from evenline.city.ranges import MOST_CAPACITY
from evenline.support.errors import InputError, choice

EVERY = ""  # the routes that are not named


def capacities_of(text: str) -> dict[str, int]:
    """Capacities by route from text such as 90, or 10=90,11=50, or 60,10=90."""
    capacities: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        route, _, number = part.rpartition("=")
        if not (number.strip().isdecimal() and 1 <= int(number) <= MOST_CAPACITY):
            raise InputError(
                f"--capacity {text!r}: must be a number from 1 to {MOST_CAPACITY:,}, or numbers by "
                "route such as 10=90,11=50"
            )
        capacities[route.strip()] = int(number)
    return capacities


def buses(
    routes: Sequence[str], names: Mapping[str, str], capacities: Mapping[str, int]
) -> tuple[tuple[Vehicle, ...], dict[str, int], str]:
    """The bus types, the type of each route, and a note; routes go by their id or name."""
    usual = capacities.get(EVERY, Vehicle().capacity)
    known = {*routes, *(names[route] for route in routes), EVERY}
    for route in capacities:
        if route not in known:
            raise InputError(
                f"--capacity: no trips of a route {route!r}; choose "
                f"{choice(dict.fromkeys(names[route] for route in routes))}"
            )
    room = {r: capacities.get(r, capacities.get(names[r], usual)) for r in routes}
    kinds = list(dict.fromkeys(room.values()))
    note = f"buses are assumed to take {kinds[0]} passengers"
    if len(kinds) > 1:
        shown = (
            f"{kind} on {', '.join(names[r] for r in routes if room[r] == kind)}" for kind in kinds
        )
        note = f"buses are assumed to take so many passengers: {'; '.join(shown)}"
    types = tuple(Vehicle(capacity=kind) for kind in kinds)
    return types, {route: kinds.index(room[route]) for route in routes}, note
