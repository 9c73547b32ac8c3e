"""A city made by us, simulated, and written as TIDES records that are as bad as real ones: visits
missing, rows twice, clocks a little off, trips not recorded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.build import CityPlan, ServicePlan, build
from evenline.city.demand import Cell, DemandPlan, Peaks, service_stop_offsets
from evenline.city.model import City
from evenline.city.operations import Operations
from evenline.city.tables import network_digest
from evenline.control.visits import Visit
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.calibration import (
    LATE_QUANTILES,
    NOISE_QUANTILES,
    PACE_QUANTILES,
    PHASES,
    Calibration,
)
from evenline.worlds.fast.world import FastWorld

DAYS = ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05")
EXCHANGE_S = 2.5
BEGIN_S = 6 * 3600
GAPS, TWICE, UNSEEN = 0.02, 0.02, 0.05
NOISE_S = 12.0
RECOVERY_S, MOST_LATE_S = 60, 40.0
DOORS_S = {
    "opening_s": 3.0,
    "boarding_s_per_passenger": EXCHANGE_S,
    "alighting_s_per_passenger": 1.25,
    "crowding_s_per_passenger": 0.08,
}
RICH: dict[str, Any] = {
    "hours": np.array([1.0, 1.1, 0.95, 1.05, 1.0, 1.0]),
    "pace": 0.05,
    "follow": 0.2,
    "late_s": 90.0,
    "close_s": 20.0,
    "close_within_s": 150.0,
    "recover": 0.3,
    "late_follow": 0.25,
}
JAM = {"jam_near": 0.9, "jam_far": 0.4}
LONG_S = 240.0  # the longest delay of a jam; every tenth bus is in one


def true_city() -> City:
    """Two routes on parallel streets, eight stops each, a bus every six minutes for four hours."""
    profile = Peaks(1.0, ((3600.0, 3000.0, 1.0),), tail_s=300.0, tail_intensity=1.0)
    made = build(
        CityPlan(
            name="truth",
            seed=1,
            horizon_s=6 * 3600,
            block_m=400.0,
            services=tuple(
                ServicePlan(f"S{i}", f"{i}", ((0, i), (7, i)), 8, 40, 0, 39 * 360, even=True)
                for i in range(2)
            ),
            unsignalled=frozenset((c, i) for c in range(8) for i in range(2)),
            bus_lanes=(),
            cars_per_hour=(),
            car_routes=0,
            busy=profile,
            demand=DemandPlan(
                passengers=2_400, transfer_share=0.0, profile=profile, ride_share=0.4
            ),
        )
    )
    vehicle = replace(made.vehicle, min_dwell_s=0, exchange_s_per_passenger=EXCHANGE_S)
    return replace(made, vehicle=vehicle)


def true_calibration(city: City) -> Calibration:
    """Running times that differ by segment, with noise."""
    places, hours = int(service_stop_offsets(city)[-1]), -(-city.horizon_s // 3600)
    mean = np.repeat(60.0 + 7.0 * (np.arange(places) % 5)[:, None], hours, axis=1)
    levels = np.linspace(-1.7, 1.7, NOISE_QUANTILES)  # uniform, so that nothing is far out
    return Calibration(
        network=network_digest(city),
        start_delay_s=0,
        mean_s=mean,
        pace_s=np.zeros(places),
        phase_s=np.zeros((places, PHASES)),
        noise_s=np.tile(NOISE_S * levels, (places, 1)),
        least_s=np.ones(places),
        pace=np.zeros(PACE_QUANTILES),
        follow=0.0,
        sources={},
        residuals={},
    )


def rich_calibration(city: City) -> Calibration:
    """Running times that also differ by hour, trip, lateness and the bus ahead."""
    plain = true_calibration(city)
    return replace(
        plain,
        mean_s=plain.mean_s * RICH["hours"],
        pace=RICH["pace"] * np.linspace(-1.7, 1.7, PACE_QUANTILES),
        pace_s=plain.mean_s[:, 0],
        follow=RICH["follow"],
        lateness_s=np.tile(RICH["late_s"] * np.linspace(-1.7, 1.7, LATE_QUANTILES), (2, 1)),
        close_s=RICH["close_s"],
        close_within_s=RICH["close_within_s"],
        recover=RICH["recover"],
        late_follow=RICH["late_follow"],
    )


def jammed_calibration(city: City) -> Calibration:
    """A few long delays, in which the buses behind are held up, too; starts that differ."""
    plain = true_calibration(city)
    noise_s = plain.noise_s.copy()
    noise_s[:, -NOISE_QUANTILES // 10 :] = np.linspace(60.0, LONG_S, NOISE_QUANTILES // 10 + 1)
    late_s = np.tile(150.0 * np.linspace(-1.0, 1.0, LATE_QUANTILES), (2, 1))
    return replace(plain, noise_s=noise_s, lateness_s=late_s, **JAM)


def city_with_doors() -> City:
    """The same with doors that open slowly, let people off quickly and are crowded."""
    city, doors = true_city(), {k: v for k, v in DOORS_S.items() if k[:8] != "boarding"}
    return replace(city, vehicle=replace(city.vehicle, **doors))  # type: ignore[arg-type]


def shared_city() -> City:
    """The same with two vehicles for each route, which hardly come back in time."""
    city = true_city()
    names = [f"{trip.service}-{i % 40 % 2}" for i, trip in enumerate(city.trips)]
    trips = tuple(replace(t, duty=name) for t, name in zip(city.trips, names, strict=True))
    return replace(city, trips=trips, operations=Operations(duties=True, recovery_s=RECOVERY_S))


def shared_calibration(city: City) -> Calibration:
    """Drivers who leave a little later than they could."""
    late = np.tile(np.linspace(0.0, MOST_LATE_S, LATE_QUANTILES), (2, 1))
    return replace(true_calibration(city), lateness_s=late)


MADE = {
    "": (true_city, true_calibration),
    "rich": (true_city, rich_calibration),
    "shared": (shared_city, shared_calibration),
    "doors": (city_with_doors, true_calibration),
    "jams": (true_city, jammed_calibration),
}


def write_records(folder: Path, stamp: str = "arrival", kind: str = "") -> City:
    """Simulate the days and write them; `departure` writes only the times of departures.

    Records of a kind of `MADE` have a schedule.
    """
    city = MADE[kind][0]()
    made = MADE[kind][1](city)
    world = FastWorld(city, made, keep_visits=True)
    rng = np.random.default_rng(5)
    visits = [
        "service_date,trip_id_performed,trip_stop_sequence,stop_id,actual_arrival_time,"
        "actual_departure_time,boarding_1,alighting_1,departure_load,schedule_departure_time"
    ]
    trips = ["service_date,trip_id_performed,vehicle_id,route_id,direction_id,block_id"]
    for number, day in enumerate(DAYS):
        world.run_day(Cell(40 + number, 540 + number), BEHAVIOURS["zero"])
        seen = rng.random(len(city.trips)) >= UNSEEN
        for index in np.flatnonzero(seen):
            route = city.services[city.trips[index].service].route
            trips.append(f"{day},{day}-{index},v,{route},0,{city.trips[index].duty}")
        for visit in world.visits:
            if not seen[visit.trip]:
                continue
            row = _row(city, day, visit, stamp, rng)
            row += f",{_due(city, day, visit)}" if kind else ","
            visits += [row] * (0 if rng.random() < GAPS else 2 if rng.random() < TWICE else 1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trips_performed.csv").write_text("\n".join(trips) + "\n")
    (folder / "stop_visits.csv").write_text("\n".join(visits) + "\n")
    stops = [f"{s.id},{46 + s.y_m / 111_195:.6f},{6 + s.x_m / 77_240:.6f}" for s in city.stops]
    (folder / "stops.csv").write_text("stop_id,stop_lat,stop_lon\n" + "\n".join(stops) + "\n")
    return city


def _row(city: City, day: str, visit: Visit, stamp: str, rng: np.random.Generator) -> str:
    stop = city.stops[city.services[city.trips[visit.trip].service].stops[visit.position]]
    off = int(rng.integers(-1, 2))
    arrival, departure = _clock(day, visit.arrival_s + off), _clock(day, visit.departure_s + off)
    times = f"{departure}," if stamp == "departure" else f"{arrival},{departure}"
    left = visit.load - visit.alighted + visit.boarded
    people = f"{visit.boarded},{visit.alighted},{left}"
    return f"{day},{day}-{visit.trip},{visit.position + 1},{stop.id},{times},{people}"


def _due(city: City, day: str, visit: Visit) -> str:
    return _clock(day, city.trips[visit.trip].departure_s + 70 * visit.position)


def _clock(day: str, second: int) -> str:
    at = BEGIN_S + second
    return f"{day}T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}+01:00"
