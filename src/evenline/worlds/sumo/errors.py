"""Errors of SUMO's programs in one line, with the table and row that the line names."""

import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from evenline.city.model import City, Node, Road, Service, Stop, Trip
from evenline.worlds.sumo.runtime import binary

_NO_ERROR = ("Quitting", "Warning", "pj_obj_create")  # beginnings of lines beside an error
# libsumo's messages that explain nothing.
UNEXPLAINED = ("Process Error", "Could not parse commandline options.")


def first_line(text: str) -> str:
    """The first error that a SUMO program printed."""
    stripped = (line.removeprefix("Error: ").strip() for line in text.splitlines())
    lines = [line for line in stripped if line and not line.startswith(_NO_ERROR)]
    return " ".join(lines[: 1 + any(line.endswith(":") for line in lines[:1])])


def first_error(city: City, text: str) -> str:
    """The first error that a SUMO program printed, with the table and row that it names."""
    line = first_line(text)
    tables: dict[str, tuple[str, Sequence[Node | Road | Stop | Service | Trip]]] = {
        "edge": ("roads.csv", city.roads),
        "node": ("nodes.csv", city.nodes),
        "junction": ("nodes.csv", city.nodes),
        "busstop": ("stops.csv", city.stops),
        "route": ("services.csv", city.services),
        "vehicle": ("trips.csv", city.trips),
    }
    for kind, name in re.findall(r"(\w+) '([^']+)'", line):
        table, rows = tables.get(kind.lower(), ("", ()))
        for number, row in enumerate(rows, 1):
            if row.id == name:
                return f"{table} row {number}: {line}"
    return line


def loading_error(options: Sequence[str]) -> str:
    """What SUMO prints if it refuses to load; libsumo often has only words of `UNEXPLAINED`."""
    with suppress(subprocess.TimeoutExpired):
        command = [binary("sumo"), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=60
        )
        return done.stderr if done.returncode else ""
    return ""
