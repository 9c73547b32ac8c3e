"""Lines before they have roads, and what an importer of roads makes of them.

A line is one pattern of a timetable with its places in metres. A corridor or a map turns lines into
a layout: the nodes, roads, stops and services of a city.
"""

from dataclasses import dataclass

from evenline.city.geometry import Floats
from evenline.city.model import Carried, Node, Road, Service, Stop
from evenline.importing.timetable import SourceStop


@dataclass(frozen=True, eq=False)
class Shape:
    """One pattern: its stops in order and the way it takes, in metres from the city's origin.

    Without a shape in the feed, `points` joins the stops by straight lines and `shaped` is false.
    """

    id: str
    route: str
    name: str
    source: str
    places: tuple[SourceStop, ...]
    spots: Floats  # of the places, one row each
    points: Floats  # of the way
    distance_m: Floats  # of the places along the way
    shaped: bool = True


@dataclass(frozen=True)
class Fit:
    """How far a service and the shape of its line are apart, and how much of it the map lacks."""

    service: str
    median_m: float
    p95_m: float
    length_m: float
    bridged_m: float


@dataclass(frozen=True, eq=False)
class Layout:
    """The streets, stops and services of a city.

    `split` are stops that became several, because lines pass on different streets; `far` tells of
    stops that lie far from their street.
    """

    nodes: tuple[Node, ...]
    roads: tuple[Road, ...]
    stops: tuple[Stop, ...]
    services: tuple[Service, ...]
    carried: Carried | None = None
    fits: tuple[Fit, ...] = ()
    split: tuple[str, ...] = ()
    far: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentence that every result must repeat if the map has gaps."""
        bridged_m = sum(fit.bridged_m for fit in self.fits)
        if not bridged_m:
            return ()
        whole_m = sum(fit.length_m for fit in self.fits)
        return (
            f"the map lacks {bridged_m / 1000:.1f} of {whole_m / 1000:.1f} km of the services; "
            "straight links close the gaps",
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """How well each service fits its line, and what people should know of the stops."""
        fits = [
            f"{fit.service}: {fit.length_m / 1000:.1f} km of streets, from its shape "
            f"{fit.median_m:.0f} m (median), {fit.p95_m:.0f} m (95th percentile)"
            + (f"; {fit.bridged_m:,.0f} m are straight links" if fit.bridged_m else "")
            for fit in self.fits
        ]
        split = (
            f"stops on more than one street became several: {', '.join(self.split)}"
            if self.split
            else ""
        )
        return (*fits, *filter(None, [split]), *self.far)
