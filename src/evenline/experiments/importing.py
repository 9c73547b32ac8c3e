"""Import a city: from a GTFS feed, or by a function of the user's own.

`write_city` ends every import: it adds demand, takes running times from the timetable if there is
one, and writes the folder only if it can be read again.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evenline.checks.city import check_city
from evenline.city.importers.demand import Found, demand_from, with_people
from evenline.city.importers.imported import Imported
from evenline.city.model import City
from evenline.city.tables import load_city, save_city
from evenline.support.errors import InputError
from evenline.support.files import result_folder
from evenline.support.own import load_own
from evenline.worlds.calibration import save_calibration
from evenline.worlds.open import CALIBRATION, OpenCity
from evenline.worlds.timetable import VARIATION, timetable_calibration


@dataclass(frozen=True)
class Demand:
    """Where the passengers of an imported city come from: see `demand_from`."""

    source: str
    passengers: int | None = None
    seed: int = 1


def write_city(
    found: Imported,
    out: Path,
    demand: Demand | None = None,
    variation: float = VARIATION,
    force: bool = False,
) -> tuple[OpenCity, Found | None]:
    """Write an imported city as a folder; return it, and the people that were made for it."""
    city, people = found.city, None
    if demand is not None:
        rng = np.random.Generator(np.random.PCG64(demand.seed))
        people = demand_from(demand.source, city, rng, demand.passengers)
        city = with_people(city, people)
    calibration = None if city.due_s is None else timetable_calibration(city, variation)
    with result_folder(out, force) as aside:
        save_city(city, aside)
        try:
            city = load_city(aside)
        except InputError as error:
            said = str(error).removeprefix(f"{aside}").lstrip(":/ ")
            raise InputError(f"the imported city cannot be written: {said}") from None
        if calibration is not None:
            save_calibration(aside / CALIBRATION, calibration)
    return OpenCity(str(out), city, calibration), people


def import_own(function: str, source: str, name: str = "") -> Imported:
    """The city that a function of the user's own makes of a source; it must pass `check_city`."""
    make = load_own(function).thing
    if not callable(make):
        raise InputError(f"{function}: is not a function of the source to import")
    try:
        city = make(source)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{function}: fails on {source} ({said})") from error
    if not isinstance(city, City):
        raise InputError(f"{function}: must return a City, and it returns {type(city).__name__}")
    city = replace(city, name=name) if name else city
    try:
        check_city(OpenCity(source, city))
    except AssertionError as error:
        raise InputError(f"{function}: the city it returns is not in order: {error}") from None
    return Imported(city)
