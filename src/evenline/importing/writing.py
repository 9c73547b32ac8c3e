"""The end of every import: a city with people becomes a folder.

`write_city` adds demand, takes running times from the timetable if there is one, and writes the
folder only if it can be read again. `write_people` gives a city the folder that an import with the
same people would have written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evenline.city.model import City
from evenline.city.slowness import with_slowness
from evenline.city.tables import load_city, save_city
from evenline.importing.demand import NewPeople, demand_from, with_people
from evenline.importing.imported import Imported
from evenline.support.errors import InputError
from evenline.support.files import result_folder
from evenline.worlds.calibration import Calibration, save_calibration
from evenline.worlds.open import CALIBRATION, OpenCity, open_city
from evenline.worlds.timetable import VARIATION, still_fitting, timetable_calibration


@dataclass(frozen=True)
class Demand:
    """Where the passengers of a city come from: see `demand_from`."""

    source: str
    passengers: int | None = None
    seed: int = 1
    hours: Sequence[float] = ()

    def of(self, city: City) -> NewPeople:
        """The people of a city."""
        rng = np.random.Generator(np.random.PCG64(self.seed))
        return demand_from(self.source, city, rng, self.passengers, self.hours)


def write_city(
    imported: Imported,
    out: Path,
    demand: Demand | None = None,
    variation: float = VARIATION,
    force: bool = False,
) -> tuple[OpenCity, NewPeople | None]:
    """Write an imported city as a folder; return it, and the people that were made for it."""
    city, people = imported.city, None
    if demand is not None:
        people = demand.of(city)
        city = with_people(city, people)
    if city.slowness is None:
        city = with_slowness(city, None)

    def calibrated(city: City) -> Calibration | None:
        return None if city.due_s is None else timetable_calibration(city, variation)

    return _written(city, out, calibrated, force), people


def write_people(source: str, out: Path, demand: Demand, name: str, force: bool) -> NewPeople:
    """Write a city with other people under a name; streets and timetable stay."""
    opened = open_city(source)
    people = demand.of(opened.city)
    fitted = opened.calibration

    def calibrated(city: City) -> Calibration | None:
        return None if fitted is None else still_fitting(fitted, city)

    _written(replace(with_people(opened.city, people), name=name), out, calibrated, force)
    return people


def _written(
    city: City, out: Path, calibrated: Callable[[City], Calibration | None], force: bool
) -> OpenCity:
    """Write a city that can be read again, and the calibration of what is read."""
    with result_folder(out, force) as aside:
        save_city(city, aside)
        city = read_again(aside)
        calibration = calibrated(city)
        if calibration is not None:
            save_calibration(aside / CALIBRATION, calibration)
    return OpenCity(str(out), city, calibration)


def read_again(folder: Path) -> City:
    """A city that was just written."""
    try:
        return load_city(folder)
    except InputError as error:
        why = str(error).removeprefix(f"{folder}").lstrip(":/ ")
        raise InputError(f"the city cannot be written: {why}") from None
