"""Running times for the fast world from the timetable, with a declared variation.

Use it until records or SUMO give better times. The mean between two stops is the scheduled time
less the time that a bus is expected to stand; buses and runs vary around it as declared, not as
measured.
"""

from itertools import pairwise
from statistics import NormalDist

import numpy as np

from evenline.city.demand import service_stop_offsets
from evenline.city.model import City, Floats, service_positions
from evenline.city.schedule import HOUR_S, hours_of, scheduled_s
from evenline.city.tables import network_digest
from evenline.support.errors import InputError
from evenline.worlds.calibration import (
    NOISE_QUANTILES,
    PACE_QUANTILES,
    PHASES,
    Calibration,
    quantile_levels,
)

FASTEST_MPS = 25.0
VARIATION = 0.1
_MOST_VARIATION = 1.0
_DECLARED = "declared_variation"
# Of the seconds that a bus cannot keep: how many it is late after; the first of the best is taken.
_LATE_SHARES = sorted((number / 20 for number in range(21)), key=lambda share: abs(share - 0.5))


def timetable_calibration(city: City, variation: float = VARIATION) -> Calibration:
    """The calibration that a timetable implies.

    The pace of a trip and the noise of a run each have a coefficient of variation of `variation`.
    """
    if city.due_s is None:
        raise InputError(f"city {city.name} has no schedule; running times cannot come from it")
    if not 0.0 <= variation <= _MOST_VARIATION:
        raise InputError(f"variation {variation}: must be from 0 to {_MOST_VARIATION:g}")
    least_s = np.maximum(1.0, np.ceil(_gaps_m(city) / FASTEST_MPS))
    mean_s = scheduled_runs(
        city, np.repeat(_mean_dwells(city)[:, None], hours_of(city), 1), least_s
    )
    pace_s = mean_s.mean(axis=1)
    return Calibration(
        network=network_digest(city),
        start_delay_s=0,
        mean_s=mean_s.round(2),
        pace_s=pace_s.round(2),
        phase_s=np.zeros((len(mean_s), PHASES)),
        noise_s=(variation * pace_s[:, None] * _normal(NOISE_QUANTILES)).round(2),
        least_s=least_s.round(),
        pace=(variation * _normal(PACE_QUANTILES)).round(5),
        follow=0.0,
        sources={},
        residuals={_DECLARED: variation},
        note="running times come from the timetable, with a declared variation of "
        f"{100 * variation:g} %",
    )


def is_declared(calibration: Calibration) -> bool:
    """Whether its variation is declared, and nothing was measured."""
    return _DECLARED in calibration.residuals


def still_fitting(calibration: Calibration, city: City) -> Calibration | None:
    """The calibration of a city whose people or streets in SUMO are others now; None if it was
    fitted to other streets.

    One from the timetable is made anew: it leaves out the time that buses stand, which depends on
    the people.
    """
    if is_declared(calibration):
        return timetable_calibration(city, calibration.residuals[_DECLARED])
    return calibration if calibration.network == network_digest(city) else None


def _normal(count: int) -> Floats:
    """Quantiles of the normal distribution with mean 0 and deviation 1, for interpolation."""
    return np.array([NormalDist().inv_cdf(level) for level in quantile_levels(count)])


def _gaps_m(city: City) -> Floats:
    """Metres from each service-stop to the next; 0 at the last."""
    gaps = np.zeros(int(service_stop_offsets(city)[-1]))
    for first, service in zip(service_stop_offsets(city), city.services, strict=False):
        gaps[first : first + len(service.stops) - 1] = np.diff(service.distance_m)
    return gaps


def section_edges(last: int, sections: int) -> list[int]:
    """Where the sections of a trip begin and end, in stops; the last stop is number `last`."""
    return sorted({0, last} | {round(last * part / sections) for part in range(1, sections)})


def scheduled_runs(city: City, dwell_s: Floats, least_s: Floats, sections: int = 1) -> Floats:
    """Mean seconds from each service-stop to the next, by the hour in which a bus is due there.

    Buses stand for `dwell_s` by service-stop and hour, and no run is shorter than `least_s`. So
    many sections of a trip take their time as far as they can.
    """
    first, hours = service_stop_offsets(city), hours_of(city)
    total, count = np.zeros((int(first[-1]), hours)), np.zeros((int(first[-1]), hours))
    for number, trip in enumerate(city.trips):
        due_s, start = scheduled_s(city, number), int(first[trip.service])
        along = np.arange(start, start + len(due_s) - 1)
        hour = np.clip(due_s // HOUR_S, 0, hours - 1).astype(int)
        stands_s = np.append(dwell_s[along[1:], hour[1:-1]], 0.0)  # the last is due at arrival
        total[along, hour[:-1]] += _running(due_s, stands_s, least_s[along], sections)
        count[along, hour[:-1]] += 1
    return filled_means(total, count)


def _running(due_s: Floats, stands_s: Floats, least_s: Floats, sections: int) -> Floats:
    """Seconds from stop to stop of a bus that stands so long and keeps to its times if it can.

    Where a timetable is too fast, the bus is as early before as it is late after, or more of one
    if sections of the trip take their time better so; the whole trip stays as scheduled if it can.
    """
    soonest_s = np.append(0.0, np.cumsum(least_s + stands_s))
    end_s = max(due_s[-1], due_s[0] + soonest_s[-1])
    slack_s = due_s - soonest_s
    late_s = soonest_s + np.minimum(np.maximum.accumulate(slack_s), end_s - soonest_s[-1])
    early_s = soonest_s + np.maximum(np.minimum.accumulate(slack_s[::-1])[::-1], due_s[0])
    edges = section_edges(len(due_s) - 1, sections)
    planned_s = np.maximum(np.diff(due_s[edges]), 1.0)

    def missed(late_share: float) -> float:
        at_s = (1.0 - late_share) * early_s + late_share * late_s
        return round(float(np.abs(np.diff(at_s[edges]) / planned_s - 1.0).max()), 6)

    late_share = min(_LATE_SHARES, key=missed)
    return np.asarray(np.diff((1.0 - late_share) * early_s + late_share * late_s) - stands_s)


def filled_means(total: Floats, count: Floats) -> Floats:
    """Means; an hour without a bus has that of the nearest hours with one."""
    means = np.zeros_like(total)
    hours = np.arange(total.shape[1])
    for place in np.flatnonzero(count.any(axis=1)):
        seen = count[place] > 0
        means[place] = np.interp(hours, hours[seen], total[place, seen] / count[place, seen])
    return means


def _mean_dwells(city: City) -> Floats:
    """The seconds that a bus is expected to stand at each service-stop, at demand 1.00.

    A leg that several services carry counts for each by its share of trips. A service has the
    doors of its first bus. As many alight as board, and crowding is left out.
    """
    first = service_stop_offsets(city)
    people, place = np.zeros(int(first[-1])), service_positions(city.services)
    trips = np.array([len(of_service) for of_service in city.trips_of])
    journeys = city.journeys
    for person, (begin, end) in enumerate(pairwise(journeys.leg_start.tolist())):
        if journeys.min_demand[person] > 1.0:
            continue
        for leg in range(begin, end):
            services = journeys.carriers[journeys.leg_carriers[leg]]
            share = 1.0 / trips[list(services)].sum()
            for service in services:
                for stop in (int(journeys.leg_board[leg]), int(journeys.leg_alight[leg])):
                    people[first[service] + place[service, stop]] += share
    least, per_passenger, opening = np.zeros((3, len(people)))
    for service, trips_of_service in enumerate(city.trips_of):
        vehicle = city.vehicle_of(trips_of_service[0]) if trips_of_service else city.vehicle
        here = slice(first[service], first[service + 1])
        least[here], opening[here] = vehicle.min_dwell_s, vehicle.opening_s
        per_passenger[here] = (vehicle.exchange_ms + vehicle.alighting_ms) / 2000
    return np.maximum(least, per_passenger * people + opening * -np.expm1(-people))
