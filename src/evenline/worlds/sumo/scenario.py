"""The files SUMO reads for one cell: stops, buses, cars and people, beside the city's network.

They are written for each cell, in well under a second.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenline.city.demand import Cell, realise
from evenline.city.model import City, Service, Trip, Vehicle
from evenline.control.operations import running_trips, start_late_s
from evenline.worlds.sumo.carried import own_options, write_own
from evenline.worlds.sumo.network import compiled_network, document, element, network_sha256

_STOP_LENGTH_M = 30.0
_BAY_LENGTH_M = 200.0
_CAR_VOLUME_SPREAD = 0.25  # blocks differ: volume is drawn from 1 -+ this


@dataclass(frozen=True)
class Scenario:
    """The input files of a cell, the options for SUMO, and the SHA-256 of the network."""

    options: tuple[str, ...]
    folder: Path
    network: str


def write_scenario(city: City, cell: Cell, folder: Path) -> Scenario:
    """Write a cell's files to a folder and return the options to start SUMO on them."""
    if city.own_buses:
        return Scenario(write_own(city, cell, folder), folder, network_sha256(city))
    network = compiled_network(city)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stops.add.xml").write_text(_stops_xml(city))
    (folder / "buses.rou.xml").write_text(_buses_xml(city, cell))
    (folder / "cars.rou.xml").write_text(_cars_xml(city, cell))
    (folder / "people.rou.xml").write_text(_people_xml(city, cell))
    return Scenario(sumo_options(city, cell, network.path, folder), folder, network.sha256)


def sumo_options(city: City, cell: Cell, network: Path, folder: Path) -> tuple[str, ...]:
    """The options to start SUMO on a cell's files."""
    if city.own_buses:
        return own_options(city, cell, network, folder)
    routes = ",".join(str(folder / f"{kind}.rou.xml") for kind in ("buses", "cars", "people"))
    # On the streets of a map buses change lanes. SUMO calls it a collision, and teleports the bus,
    # if one comes closer than its minimal gap; there, only buses that touch collide.
    touch = () if city.carried is None else ("--collision.mingap-factor", "0")
    return (
        *("--net-file", str(network)),
        *("--additional-files", str(folder / "stops.add.xml")),
        *("--route-files", routes),
        *("--begin", "0", "--end", str(city.horizon_s), "--step-length", "1"),
        *("--seed", str(cell.sumo_seed)),
        *("--default.departspeed", "0", "--default.departlane", "best"),
        *("--pedestrian.model", "nonInteracting"),
        *("--time-to-teleport", "300", "--max-depart-delay", "-1", *touch),
        *("--no-step-log", "true", "--no-warnings", "true", "--duration-log.disable", "true"),
        *("--xml-validation", "never", "--xml-validation.net", "never"),
    )


def _stops_xml(city: City) -> str:
    return document(
        "additional",
        (
            element(
                "busStop",
                id=stop.id,
                lane=f"{stop.road}_{stop.lane}",
                startPos=max(0.0, round(stop.pos_m - _STOP_LENGTH_M, 1)),
                endPos=stop.pos_m,
                parkingLength=_BAY_LENGTH_M,
                personCapacity=10_000,
            )
            for stop in city.stops
        ),
    )


def _buses_xml(city: City, cell: Cell) -> str:
    """Bus types, routes and trips. A trip of another bus type brings its own route, because a
    route says how long its buses stand. Trips that wait for their vehicle are added during the
    day, from a route of their own.
    """
    waits = running_trips(city, cell).waits
    lines = [_bus_type(vehicle, type_id(i)) for i, vehicle in enumerate(city.vehicles)]
    for service in city.services:
        lines.append(_route(city, service, city.vehicle, f'id="{service.id}" '))
    waiting = {city.trips[trip].id for trip in np.flatnonzero(waits)}
    for at, trip in sorted(_starts(city, cell), key=lambda start: (start[0], start[1].id)):
        service = city.services[trip.service]
        if trip.id in waiting:
            if trip.vehicle:
                route = f'id="{route_id(city, trip)}" '
                lines.append(_route(city, service, city.vehicles[trip.vehicle], route))
            continue
        lane = city.stops[service.stops[0]].lane
        named = "" if trip.vehicle else f' route="{service.id}"'
        head = (
            f'<vehicle id="{trip.id}" type="{type_id(trip.vehicle)}"{named} line="{service.id}" '
            f'depart="{at}" departPos="stop" departLane="{lane}" departSpeed="0"'
        )
        route = _route(city, service, city.vehicles[trip.vehicle])
        lines.append(f"{head}>{route}</vehicle>" if trip.vehicle else f"{head}/>")
    return document("routes", lines)


def _starts(city: City, cell: Cell) -> list[tuple[int, Trip]]:
    """When each trip sets out that waits for no other: as late as the cell makes it."""
    late_s = start_late_s(city, cell)
    if not len(late_s):
        return [(trip.departure_s, trip) for trip in city.trips]
    at = np.maximum([trip.departure_s for trip in city.trips] + late_s, 0)
    return list(zip(at.tolist(), city.trips, strict=True))


def type_id(vehicle: int) -> str:
    """SUMO's name of a bus type."""
    return f"bus{vehicle}" if vehicle else "bus"


def route_id(city: City, trip: Trip) -> str:
    """SUMO's name of the route of a trip that is added during the day."""
    return f"own.{trip.id}" if trip.vehicle else city.services[trip.service].id


def _bus_type(vehicle: Vehicle, name: str) -> str:
    return element(
        "vType",
        id=name,
        vClass="bus",
        length=vehicle.length_m,
        maxSpeed=vehicle.max_speed_mps,
        accel=vehicle.accel_mps2,
        decel=vehicle.decel_mps2,
        speedFactor="normc(0.78,0.10,0.55,1.00)",
        personCapacity=int(vehicle.capacity),
        boardingDuration=vehicle.exchange_s_per_passenger,
    )


def _route(city: City, service: Service, vehicle: Vehicle, named: str = "") -> str:
    halts = "".join(
        f'<stop busStop="{city.stops[stop].id}" duration="{vehicle.min_dwell_s}" parking="true"/>'
        for stop in service.stops
    )
    return f'<route {named}edges="{" ".join(service.roads)}">{halts}</route>'


def _cars_xml(city: City, cell: Cell) -> str:
    """Cars of a block: the hour's volume times the block's own factor, at random seconds."""
    traffic = city.traffic
    rng = np.random.Generator(np.random.PCG64([cell.sumo_seed, 0xCA25]))
    factor = 1 + _CAR_VOLUME_SPREAD * (2 * rng.random() - 1)
    lines = [
        '<vType id="car" vClass="passenger" length="4.5" accel="2.6" decel="4.5" '
        'speedFactor="normc(1.00,0.10,0.70,1.30)"/>'
    ]
    for number, route in enumerate(traffic.routes):
        lines.append(f'<route id="c{number}" edges="{" ".join(route)}"/>')
    cars = []
    share = np.cumsum(traffic.weights) / np.sum(traffic.weights) if traffic.weights else []
    for hour, volume in enumerate(traffic.cars_per_hour):
        count = round(volume * factor) if len(traffic.routes) else 0
        when = np.floor((hour + rng.random(count)) * 3600).astype(int)
        which = np.searchsorted(share, rng.random(count), side="right")
        cars += list(zip(when.tolist(), which.tolist(), strict=True))
    for number, (second, route) in enumerate(sorted(cars)):
        if second < city.horizon_s:
            lines.append(
                f'<vehicle id="car{number}" type="car" route="c{route}" depart="{second}" '
                'departPos="base" departLane="best" departSpeed="max"/>'
            )
    return document("routes", lines)


def _people_xml(city: City, cell: Cell) -> str:
    """Each passenger waits at a stop from the second of departure and rides leg after leg."""
    journeys, people = city.journeys, realise(city, cell)
    lines_of = [" ".join(city.services[s].id for s in row) for row in journeys.carriers]
    stops = [stop.id for stop in city.stops]
    begin, end = journeys.leg_start[people.journey], journeys.leg_start[people.journey + 1]
    board, alight = journeys.leg_board.tolist(), journeys.leg_alight.tolist()
    carriers = journeys.leg_carriers.tolist()
    lines = []
    for number, second, first, last in zip(
        people.journey.tolist(),
        people.departure_s.tolist(),
        begin.tolist(),
        end.tolist(),
        strict=True,
    ):
        place = city.stops[board[first]]
        rides = "".join(
            f'<ride {_start(place.road, leg == first)}busStop="{stops[alight[leg]]}" '
            f'lines="{lines_of[carriers[leg]]}"/>'
            for leg in range(first, last)
        )
        lines.append(
            f'<person id="p{number}" depart="{second}" '
            f'departPos="{max(place.pos_m - _STOP_LENGTH_M / 2, 0.0):.1f}">{rides}</person>'
        )
    return document("routes", lines)


def _start(road: str, first: bool) -> str:
    return f'from="{road}" ' if first else ""
