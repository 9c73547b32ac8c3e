"""What every importer returns: a city, and what people should know of it."""

from dataclasses import dataclass

from evenline.city.model import City


@dataclass(frozen=True, eq=False)
class Imported:
    """A city made from other data, and lines that tell people what became of it."""

    city: City
    remarks: tuple[str, ...] = ()
