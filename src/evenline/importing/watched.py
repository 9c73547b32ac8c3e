"""A scenario's own day as SUMO runs it, watched once: which buses run, where, and who rides.

SUMO itself expands flows and chooses routes, types and departures, so a city made from this has
exactly the scenario's buses. Nothing is changed on the way.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from defusedxml.ElementTree import iterparse

from evenline.city.manifest import NETWORK
from evenline.city.model import Carried, Origin, Vehicle
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder
from evenline.worlds.sumo.carried import carried_options, write_carried
from evenline.worlds.sumo.errors import UNEXPLAINED, first_line, loading_error
from evenline.worlds.sumo.runtime import libsumo, libsumo_functions
from evenline.worlds.sumo.world import check_alone, silent

_PUBLIC = ("bus", "coach", "tram", "rail", "rail_urban", "rail_electric", "rail_fast", "subway")
_RIDING, _AT_BUS_STOP = 3, 8  # as SUMO numbers stages and kinds of stops
_LONGEST_S = 6 * 86_400
# Seconds simulated, vehicles and people still to come, and the end if it is known.
Progress = Callable[[int, int, int | None], None]


@dataclass
class Bus:
    """A vehicle that serves stops, as it departed."""

    id: str
    line: str
    type: str
    depart_s: int  # as scheduled
    roads: tuple[str, ...]
    halts: tuple[str, ...]
    dwells_s: tuple[float, ...]
    reached_s: int | None = None  # its first stop


@dataclass(frozen=True)
class Halt:
    """A stop of the scenario."""

    id: str
    lane: str
    end_m: float
    name: str


@dataclass
class Watched:
    """What was seen. `since` has, for each person, the second at which each stage began."""

    horizon_s: int
    halts: dict[str, Halt] = field(default_factory=dict)
    buses: list[Bus] = field(default_factory=list)
    types: dict[str, Vehicle] = field(default_factory=dict)
    since: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    origin: Origin | None = None


def watch(carried: Carried, seed: int, end_s: int | None, progress: Progress) -> Watched:
    """Run the scenario to its end, or until everybody has arrived, and note what happens."""
    check_alone()
    with ScratchFolder() as name:
        folder = Path(name)
        write_carried(carried, folder)
        infos = folder / "tripinfo.xml"
        options = carried_options(carried, seed, folder / NETWORK, folder)
        written = ("--tripinfo-output", str(infos), "--tripinfo-output.write-unfinished", "true")
        log = folder / "errors.txt"
        try:
            with silent():
                libsumo().start(["sumo", *options, *written, "--error-log", str(log)])
                seen = _run(carried.begin_s, end_s, progress)
                libsumo().close()
        except InputError:
            raise
        except Exception as error:
            why = first_line(log.read_text(errors="replace")) if log.exists() else ""
            why = why or first_line(str(error)) or type(error).__name__
            if why in UNEXPLAINED:
                why = first_line(loading_error(options)) or why
            raise InputError(f"SUMO refused: {why}") from None
        finally:
            with suppress(Exception):  # it may have failed; report the first error
                libsumo().close()
        seen.since = _stages(infos, carried.begin_s)
    return seen


def _run(begin_s: int, end_s: int | None, progress: Progress) -> Watched:
    sumo = libsumo_functions()
    seen = Watched(0)
    for halt in sumo.busstop_getIDList():
        seen.halts[halt] = Halt(
            halt,
            sumo.busstop_getLaneID(halt),
            sumo.busstop_getEndPos(halt),
            sumo.busstop_getName(halt),
        )
    running: dict[str, Bus] = {}
    now_s = begin_s
    while end_s is None or now_s < end_s:
        left = sumo.simulation_getMinExpectedNumber()
        if end_s is None and _over(sumo, left):
            break
        if now_s - begin_s >= _LONGEST_S:
            raise InputError("the scenario does not end within six days; set an end")
        sumo.simulation_step()
        for vehicle in sumo.simulation_getDepartedIDList():
            bus = _bus(sumo, vehicle, now_s, seen.types)
            if bus is not None:
                running[vehicle] = bus
                seen.buses.append(bus)
        for vehicle in sumo.simulation_getStopStartingVehiclesIDList():
            bus = running.get(vehicle)
            if bus is not None and bus.reached_s is None:
                bus.reached_s = now_s
        now_s += 1
        if now_s % 10 == 0:
            progress(now_s - begin_s, left, None if end_s is None else end_s - begin_s)
    seen.horizon_s = now_s - begin_s
    with suppress(Exception):  # a network need not say where on earth it lies
        lon, lat = sumo.simulation_convertGeo(0.0, 0.0)
        if abs(lat) <= 90 and abs(lon) <= 180 and (lat, lon) != (0.0, 0.0):
            seen.origin = Origin(round(lat, 7), round(lon, 7))
    return seen


def _over(sumo: Any, left: int) -> bool:
    """Whether nobody is left but people who wait for a bus that will not come."""
    if left <= 0:
        return True
    if sumo.vehicle_getIDCount() or sumo.person_getIDCount() < left:
        return False
    return all(
        sumo.person_getStage(person).type == _RIDING and not sumo.person_getVehicle(person)
        for person in sumo.person_getIDList()
    )


def _bus(sumo: Any, vehicle: str, now_s: int, types: dict[str, Vehicle]) -> Bus | None:
    """The vehicle, if it is public transport and serves stops."""
    line = sumo.vehicle_getLine(vehicle)
    if not line and sumo.vehicle_getVehicleClass(vehicle) not in _PUBLIC:
        return None
    stops = [stop for stop in sumo.vehicle_getStops(vehicle, 0) if stop.stopFlags & _AT_BUS_STOP]
    if not stops:
        return None
    kind = sumo.vehicle_getTypeID(vehicle)
    if kind not in types:
        types[kind] = _type(sumo, kind)
    return Bus(
        id=vehicle,
        line=line,
        type=kind,
        depart_s=now_s - round(sumo.vehicle_getDepartDelay(vehicle)),
        roads=tuple(sumo.vehicle_getRoute(vehicle)),
        halts=tuple(stop.stoppingPlaceID for stop in stops),
        dwells_s=tuple(max(float(stop.duration), 0.0) for stop in stops),
    )


def _type(sumo: Any, kind: str) -> Vehicle:
    return Vehicle(
        capacity=max(int(sumo.vehicletype_getPersonCapacity(kind)), 1),
        min_dwell_s=0,
        exchange_s_per_passenger=float(sumo.vehicletype_getBoardingDuration(kind)),
        length_m=float(sumo.vehicletype_getLength(kind)),
        max_speed_mps=min(float(sumo.vehicletype_getMaxSpeed(kind)), 100.0),
        accel_mps2=float(sumo.vehicletype_getAccel(kind)),
        decel_mps2=float(sumo.vehicletype_getDecel(kind)),
    )


def _stages(path: Path, begin_s: int) -> dict[str, tuple[int | None, ...]]:
    """When each stage of each person began: where the one before it ended."""
    stages = {}
    for _, element in iterparse(str(path)):
        if element.tag == "personinfo":
            ends = [element.get("depart"), *(stage.get("arrival") for stage in element)]
            stages[element.get("id")] = tuple(
                None if end is None or float(end) < 0 else round(float(end)) - begin_s
                for end in ends[:-1]
            )
            element.clear()
        elif element.tag == "tripinfo":
            element.clear()
    return stages
