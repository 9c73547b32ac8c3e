"""Open a city together with its calibration, and open worlds by name.

A calibration belongs to its opened city: it is `calibration.json` in the city's folder, comes with
an embedded city, or is given. Nothing looks for it anywhere else.
"""

from dataclasses import dataclass
from pathlib import Path

from evenline.city.embedded import PLANS, same_streets
from evenline.city.model import City
from evenline.city.tables import open_city as read_city
from evenline.control.world import World
from evenline.support.errors import InputError, choice
from evenline.support.own import is_own, load_own
from evenline.worlds.calibration import Calibration, load_calibration
from evenline.worlds.fast.world import FastWorld

CALIBRATION = "calibration.json"
WORLDS = ("fast", "sumo")
EMBEDDED = Path(__file__).parent / "calibrations"


@dataclass(frozen=True, eq=False)
class OpenCity:
    """A city, the name or folder it was opened from, and its calibration if it has one."""

    source: str
    city: City
    calibration: Calibration | None = None
    unfit: str = ""  # why the calibration in the city's folder cannot be used

    @property
    def name(self) -> str:
        return self.city.name

    def notes(self, world: str) -> tuple[str, ...]:
        """The sentences that every result in a world repeats: the city's, the calibration's."""
        note = self.calibration.note if world == "fast" and self.calibration else ""
        new = note and note not in self.city.notes  # a city from records has the same note
        return (*self.city.notes, note) if new else self.city.notes

    def fitted(self) -> Calibration:
        """The calibration, or an error that says how to make one."""
        if self.unfit:
            raise InputError(self.unfit)
        if self.calibration is None:
            raise InputError(
                f"city {self.source} has no calibration for the fast world; make one with: "
                f"evenline city fit {self.source}, or name one with --calibration"
            )
        return self.calibration

    def fast_world(self, keep_visits: bool = False) -> FastWorld:
        """A fast world of this city."""
        return FastWorld(self.city, self.fitted(), keep_visits)


def open_city(source: str, calibration: Path | None = None) -> OpenCity:
    """Open a city by name or folder, with the given calibration or its own.

    A calibration in the folder that does not fit any more is refused when it is needed.
    """
    city = read_city(source)
    if calibration is not None:
        return OpenCity(source, city, load_calibration(calibration, city))
    if source in PLANS:
        path = EMBEDDED / f"{same_streets(source)}.json"
    else:
        path = Path(source) / CALIBRATION
    if not path.is_file():
        return OpenCity(source, city)
    try:
        return OpenCity(source, city, load_calibration(path, city))
    except InputError as error:
        return OpenCity(source, city, unfit=str(error))


def check_world_name(name: str) -> None:
    """Refuse the name of a world that does not exist."""
    if name not in WORLDS and not is_own(name):
        raise InputError(
            f"unknown world {name!r}; choose {choice(WORLDS)}, or name your own as FILE.py:FUNCTION"
        )


def open_world(name: str, opened: OpenCity, keep_visits: bool = False) -> World:
    """Open a world of a city: fast, sumo, or your own function of the opened city."""
    check_world_name(name)
    if name == "fast":
        return opened.fast_world(keep_visits)
    if name == "sumo":
        from evenline.worlds.sumo.world import SumoWorld

        return SumoWorld(opened.city)
    make = load_own(name).thing
    if not callable(make):
        raise InputError(f"{name}: is not a function of the opened city")
    world: World = make(opened)
    for member in ("city", "charged", "reset", "step", "outcome", "visits"):
        if not hasattr(type(world), member) and not hasattr(world, member):
            raise InputError(f"{name}: must return a world, and what it returns has no {member!r}")
    return world
