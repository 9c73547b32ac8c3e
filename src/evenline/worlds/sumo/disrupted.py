"""What goes wrong on a day in SUMO: slow roads, closed stops, and people who must get out.

The worlds share one rule: whoever must get out does so at once, without time at the door. SUMO
removes the stages of such a person; whoever is not yet there gets new ones.
"""

from collections import defaultdict

from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.operations import BREAKDOWN, CLOSED, SLOW
from evenline.control.operations import disruptions_of
from evenline.worlds.sumo.runtime import libsumo

_WAITING_M = 15.0  # people stand so far from the end of their stop, as on any day


class Disrupted:
    """The disruptions of a day, asked second by second."""

    def __init__(self, city: City, cell: Cell) -> None:
        today = disruptions_of(city, cell)
        self._city = city
        self._breakdowns = [row for row in today if row.kind == BREAKDOWN]
        self._closed = [row for row in today if row.kind == CLOSED]
        self._slow = [row for row in today if row.kind == SLOW]
        self._changes: dict[int, set[str]] = defaultdict(set)  # roads, by second
        for row in self._slow:
            self._changes[row.from_s].add(row.road)
            if row.until_s is not None:
                self._changes[row.until_s].add(row.road)
        self._limits: dict[str, list[float]] = {}  # the usual speed of each lane of a road

    def set_speeds(self, now_s: int) -> None:
        """Let the roads be as slow as they are from this second on."""
        for road in self._changes.get(now_s, ()):
            factor = 1.0 + sum(
                row.factor - 1.0 for row in self._slow if row.road == road and row.lasts(now_s)
            )
            lanes = libsumo().lane
            names = [f"{road}_{i}" for i in range(libsumo().edge.getLaneNumber(road))]
            usual = self._limits.setdefault(road, [lanes.getMaxSpeed(name) for name in names])
            for name, limit in zip(names, usual, strict=True):
                lanes.setMaxSpeed(name, limit / factor)

    def closed(self, stop: int, now_s: int) -> bool:
        """Whether a stop is closed to a bus that now leaves the stop before it."""
        return any(row.stop == stop and row.lasts(now_s) for row in self._closed)

    def breaks_down(self, trip: int, position: int, now_s: int) -> bool:
        """Whether a bus breaks down as it reaches a stop; never at its last."""
        stops = self._city.services[self._city.trips[trip].service].stops
        return position < len(stops) - 1 and any(
            row.trip == trip
            and row.lasts(now_s)
            and (row.stop < 0 or stops.index(row.stop) <= position)
            for row in self._breakdowns
        )


def get_out(person: str) -> None:
    """Let a person out where the bus stands; SUMO ends their journey with the next step."""
    libsumo().person.removeStages(person)


def ride_on(city: City, person: str, legs: range, services: tuple[int, ...] = ()) -> None:
    """Let a person ride the given legs, the first of them with some services only."""
    journeys = city.journeys
    for leg in legs:
        carriers = journeys.carriers[journeys.leg_carriers[leg]]
        if services and leg == legs[0]:
            carriers = services
        lines = " ".join(city.services[service].id for service in carriers)
        goal = city.stops[journeys.leg_alight[leg]]
        libsumo().person.appendDrivingStage(person, goal.road, lines, goal.id)


def come_back(city: City, person: str, legs: range) -> None:
    """Let a person who has left SUMO wait at the stop at which the first of these legs begins."""
    stop = city.stops[city.journeys.leg_board[legs[0]]]
    libsumo().person.add(person, stop.road, max(stop.pos_m - _WAITING_M, 0.0))
    ride_on(city, person, legs)
