"""The days of a city that is a SUMO scenario: its own network, stops, buses and traffic.

All files go to SUMO as they are. On an exact day (demand seed 0, demand 1.00) so do its people. On
every other day the riders among them are replaced by the journeys of the cell, which begin and end
at stops; those who only walk stay.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, tostring
from xml.sax.saxutils import quoteattr

from evenline.city.demand import AS_IMPORTED, Cell, carrying, realise
from evenline.city.manifest import NETWORK
from evenline.city.model import Carried, City, Service, Stop
from evenline.support.errors import InputError
from evenline.worlds.sumo.config import (
    OWN_SEED,
    WHOLE,
    check_harmless,
    check_options,
    parsed,
    whole_option,
)
from evenline.worlds.sumo.streets import unpacked

_PEOPLE = "~people.rou.xml"  # no file of a scenario has this name
_BEFORE_END_M = 0.05  # people wait so far before the end of their stop
_FLOW = "."  # stands between the name of a flow and a person's number
_NAMED = "~"  # the names of our people begin with this
_STAGES = ("walk", "ride", "stop", "tranship", "transport", "personTrip", "access")


class Ride(NamedTuple):
    """A ride of a person: how many stages are left with it, its stops, services that carry it."""

    left: int
    board: int
    alight: int
    services: tuple[int, ...]


class Halts(NamedTuple):
    """Where scenario and city meet: our stops by SUMO's id and by road, the lines of services."""

    by_id: Mapping[str, Sequence[int]]
    by_road: Mapping[str, Sequence[tuple[float, int]]]  # with their positions
    services: Sequence[Service]
    lines: Sequence[frozenset[str]]  # what a ride may call the buses of a service


Plans = dict[str, tuple[Ride, ...]]


def _is_exact(city: City, cell: Cell) -> bool:
    """Whether a day has the scenario's own people, at their own times."""
    return city.own_buses and cell.demand_seed == AS_IMPORTED and cell.demand == 1.0


def exact_cell(city: City) -> Cell:
    """The day that the scenario itself describes."""
    if city.carried is None or not city.own_buses:
        raise InputError(f"{city.name} is not a SUMO scenario; leave out --exact")
    options = {"seed": str(OWN_SEED), **city.carried.options}
    return Cell(whole_option(options, "seed", "carried.options"), AS_IMPORTED, 1.0)


def write_own(city: City, cell: Cell, folder: Path) -> tuple[str, ...]:
    """Write a cell's files to a folder and return the options to start SUMO on them."""
    carried = city.carried
    assert carried is not None
    folder.mkdir(parents=True, exist_ok=True)
    write_carried(carried, folder, riders=_is_exact(city, cell))
    if not _is_exact(city, cell):
        (folder / _PEOPLE).write_text(_people_xml(city, cell))
    return own_options(city, cell, folder / NETWORK, folder)


def write_carried(carried: Carried, folder: Path, riders: bool = True) -> None:
    """Write the scenario's files, with or without the people who ride."""
    check_harmless(unpacked(carried.network, NETWORK), NETWORK)
    (folder / NETWORK).write_bytes(carried.network)
    for name, content in {**carried.additional, **carried.routes}.items():
        check_harmless(content, name)
        (folder / name).write_bytes(content if riders else _without_riders(content, name))


def own_options(city: City, cell: Cell, network: Path, folder: Path) -> tuple[str, ...]:
    """The scenario's own options, with the cell's seed."""
    assert city.carried is not None
    people = () if _is_exact(city, cell) else (_PEOPLE,)
    return carried_options(city.carried, cell.sumo_seed, network, folder, people)


def carried_options(
    carried: Carried, seed: int, network: Path, folder: Path, more: Iterable[str] = ()
) -> tuple[str, ...]:
    """The options to start SUMO on a scenario's files; those that we add only keep it quiet."""
    check_options(carried.options, "carried.options")
    settings = {name: value for name, value in carried.options.items() if name not in WHOLE}
    end = carried.options.get("end")
    lists = {"--additional-files": carried.additional, "--route-files": (*carried.routes, *more)}
    files = [(kind, ",".join(str(folder / n) for n in names)) for kind, names in lists.items()]
    return (
        *("--net-file", str(network)),
        *(word for kind, names in files if names for word in (kind, names)),
        *("--begin", str(carried.begin_s), *(("--end", end) if end else ())),
        *("--seed", str(seed)),
        *(word for name, value in sorted(settings.items()) for word in (f"--{name}", value)),
        *("--no-step-log", "true", "--no-warnings", "true", "--duration-log.disable", "true"),
        *("--xml-validation", "never", "--xml-validation.net", "never"),
    )


# -- people ---------------------------------------------------------------------------------------


def day_plans(city: City, cell: Cell) -> Plans:
    """The rides of everyone who may travel on a day, by SUMO's name for the person."""
    if city.carried is not None and _is_exact(city, cell):
        return read_plans(city.carried, _halts_of(city))
    journeys, plans = city.journeys, Plans()
    first, boards, alights = (
        column.tolist() for column in (journeys.leg_start, journeys.leg_board, journeys.leg_alight)
    )
    for person in realise(city, cell).journey.tolist():
        legs = range(first[person], first[person + 1])
        plans[f"{_NAMED}{person}"] = tuple(
            Ride(
                legs.stop - leg,
                boards[leg],
                alights[leg],
                journeys.carriers[journeys.leg_carriers[leg]],
            )
            for leg in legs
        )
    return plans


def _halts_of(city: City) -> Halts:
    """Where a scenario and its city meet."""
    by_id: dict[str, list[int]] = {}
    for index, stop in enumerate(city.stops):
        by_id.setdefault(stop.source or stop.id, []).append(index)
    lines = [{service.source} for service in city.services]
    for trip in city.trips:
        lines[trip.service].add(trip.source or trip.id)
    assert city.carried is not None
    roads = {
        name: lane.rpartition("_")[0]
        for content in city.carried.additional.values()
        for name, lane in _stop_lanes(content)
    }
    return halts(by_id, roads, city.stops, city.services, lines)


def halts(
    by_id: Mapping[str, Sequence[int]],
    roads: Mapping[str, str],
    stops: Sequence[Stop],
    services: Sequence[Service],
    lines: Iterable[set[str]],
) -> Halts:
    """The meeting points, given the road of each stop of SUMO."""
    by_road: dict[str, list[tuple[float, int]]] = {}
    for name, ours in by_id.items():
        here = by_road.setdefault(roads.get(name, ""), [])
        here += [(stops[stop].pos_m, stop) for stop in ours]
    return Halts(by_id, by_road, services, [frozenset(names - {""}) for names in lines])


def _stop_lanes(content: bytes) -> Iterator[tuple[str, str]]:
    for element in parsed(content, "additional").iter():
        if element.tag in ("busStop", "trainStop"):
            yield element.get("id", ""), element.get("lane", "")


def read_plans(carried: Carried, halts: Halts) -> Plans:
    """The rides of the scenario's own people; those of a flow have one entry, named `ID.`."""
    return {
        person.get("id", "") + (_FLOW if person.tag == "personFlow" else ""): rides
        for name, content in {**carried.additional, **carried.routes}.items()
        if _has_people(content)
        for person in parsed(content, name).iter()
        if person.tag in ("person", "personFlow") and (rides := _rides(person, halts))
    }


def plan_of(plans: Plans, person: str) -> tuple[Ride, ...]:
    """The rides of a person, who may belong to a flow."""
    alone = plans.get(person)
    return alone if alone is not None else plans.get(person.rpartition(_FLOW)[0] + _FLOW, ())


def _has_people(content: bytes) -> bool:
    return b"<person" in content


def _rides(person: Element, halts: Halts) -> tuple[Ride, ...]:
    stages = [stage for stage in person if stage.tag in _STAGES]
    rides, place = [], _Place(at_m=_metres(person.get("departPos")))
    for number, stage in enumerate(stages):
        place = place.start(stage)
        end = _Place(stage.get("busStop", ""), _last_road(stage), _metres(stage.get("arrivalPos")))
        if stage.tag == "ride":
            lines = frozenset(stage.get("lines", "ANY").split())
            ride = _ride(place.stops(halts), end.stops(halts), lines, halts)
            if ride is not None:
                rides.append(Ride(len(stages) - number, *ride))
        place = end
    return tuple(rides)


class _Place(NamedTuple):
    """Where a person is between two stages: at a stop, or only on a road."""

    stop: str = ""
    road: str = ""
    at_m: float | None = None

    def start(self, stage: Element) -> "_Place":
        road = stage.get("from", "")
        return self if self.stop or not road else self._replace(road=road)

    def stops(self, halts: Halts) -> Sequence[int]:
        """The stops where the person may be: on a road, the first that ends after the place."""
        if self.stop:
            return halts.by_id.get(self.stop, ())
        here = halts.by_road.get(self.road, ())
        return [stop for end_m, stop in sorted(here) if self.at_m is None or end_m >= self.at_m]


def _metres(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:  # such as random
        return None


def _last_road(stage: Element) -> str:
    return stage.get("to") or (stage.get("edges", "").split() or [""])[-1]


def _ride(
    boards: Sequence[int], alights: Sequence[int], lines: frozenset[str], halts: Halts
) -> tuple[int, int, tuple[int, ...]] | None:
    """The stops of a ride and the services that carry it, if any does."""
    for board in boards:
        for alight in alights:
            carriers = tuple(
                service
                for service in carrying(halts.services, board, alight)
                if "ANY" in lines or lines & halts.lines[service]
            )
            if carriers:
                return board, alight, carriers
    return None


def _without_riders(content: bytes, name: str) -> bytes:
    """The file without the people who ride."""
    if not _has_people(content):
        return content
    root = parsed(content, name)
    kept = copy.copy(root)
    kept[:] = [
        child for child in root if child.tag not in ("person", "personFlow") or _walks(child)
    ]
    return tostring(kept)


def _walks(person: Element) -> bool:
    return person.find("ride") is None


def _people_xml(city: City, cell: Cell) -> str:
    """Each passenger of the cell waits at a stop and rides leg after leg, as on any day of ours."""
    assert city.carried is not None
    journeys, people, begin_s = city.journeys, realise(city, cell), city.carried.begin_s
    buses = _names(city)
    lanes = dict(
        pair for content in city.carried.additional.values() for pair in _stop_lanes(content)
    )
    stops = [stop.source or stop.id for stop in city.stops]
    named = [quoteattr(stop) for stop in stops]
    roads = [quoteattr(lanes.get(stop, "").rpartition("_")[0]) for stop in stops]
    first, boards, alights, carriers = (
        column.tolist()
        for column in (
            journeys.leg_start,
            journeys.leg_board,
            journeys.leg_alight,
            journeys.leg_carriers,
        )
    )
    lines = ["<routes>"]
    for person, second in zip(people.journey.tolist(), people.departure_s.tolist(), strict=True):
        start = boards[first[person]]
        at_m = max(city.stops[start].pos_m - _BEFORE_END_M, 0.0)
        rides = "".join(
            f"<ride {f'from={roads[start]} ' if leg == first[person] else ''}"
            f"busStop={named[alights[leg]]} lines={buses(carriers[leg], boards[leg])}/>"
            for leg in range(first[person], first[person + 1])
        )
        lines.append(
            f'<person id="{_NAMED}{person}" depart="{begin_s + second}" departPos="{at_m:.2f}">'
            f"{rides}</person>"
        )
    return "\n".join((*lines, "</routes>", ""))


def _names(city: City) -> Callable[[int, int], str]:
    """What people at a stop call the buses of a row of carriers, quoted.

    They use the buses' ids, because not every scenario names lines. But SUMO lets people board a
    bus that they call by its id even if it no longer goes to their stop. Where a bus calls twice,
    they name its line, or take any bus that goes to their stop.
    """
    halts = [stop.source or stop.id for stop in city.stops]
    calls = [Counter(halts[stop] for stop in service.stops) for service in city.services]
    ids = [
        " ".join(city.trips[trip].source or city.trips[trip].id for trip in trips)
        for trips in city.trips_of
    ]

    @cache
    def named(row: int, board: int) -> str:
        services = city.journeys.carriers[row]
        if all(calls[service][halts[board]] < 2 for service in services):
            return quoteattr(" ".join(ids[service] for service in services))
        lines = [city.services[service].source for service in services]
        whole = all(len(line.split()) == 1 for line in lines)
        return quoteattr(" ".join(lines) if whole else "ANY")

    return named
