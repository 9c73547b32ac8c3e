"""The cost-to-go of a service: what its passengers will still pay after a look-ahead has ended.

Computed, not simulated. Every bus keeps its lateness and needs the usual times from stop to stop.
People come at the rates of the half hour. We sum what they pay until the next bus and on it, and
what those pay for whom no bus comes any more: waiting until the day ends, and a price for each. All
numbers are what an operator knows: rates, a timetable, counts of people.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenline.city.demand import RATE_BIN_S
from evenline.city.model import City, service_positions
from evenline.control.event import Array
from evenline.support.compiled import inlined
from evenline.worlds.fast import kernel as k
from evenline.worlds.fast.layout import Day, Static

WAITING_WEIGHT = 2.0  # of a second of waiting, as in the ledger


class Outlook(NamedTuple):
    """What is known in advance about a city: usual arrivals, rates, rides."""

    usual_s: Array  # arrival of each visit on a usual day
    rate: Array  # level, place, half hour: people per second, divided among the services they take
    people: Array  # the integral of the rate up to the start of each half hour
    moment: Array  # and that of rate times second
    ride_s: Array  # mean time on board of the people who board at a place
    share: Array  # of each class of people: 1 over the number of services that carry them
    first_trip: npt.NDArray[np.int32]  # offset of each service in `Static.ranked`
    alights: Array  # share of those on board who alight at a place
    left_s: float  # the price of a passenger who is left
    mode: float


def outlook_of(
    city: City, usual_s: Array, levels: tuple[float, ...], class_share: Array, left_s: float,
    mode: float = -1.0,
) -> Outlook:
    """Sum the journeys of a city up to half-hour rates, at each demand level."""
    rate, ride_s = _rates(city, usual_s, levels)
    start = RATE_BIN_S * np.arange(rate.shape[2] + 1, dtype=np.float64)
    people = np.concatenate([np.zeros((*rate.shape[:2], 1)), np.cumsum(rate * RATE_BIN_S, 2)], 2)
    halves = rate * np.diff(start**2) / 2
    moment = np.concatenate([np.zeros((*rate.shape[:2], 1)), np.cumsum(halves, 2)], 2)
    trips = [len(trips) for trips in city.trips_of]
    first = np.concatenate([[0], np.cumsum(trips)]).astype(np.int32)
    alights = _alights(city)
    return Outlook(
        usual_s, rate, people, moment, ride_s, class_share, first, alights, left_s, mode
    )


def _alights(city: City) -> Array:
    """The share of those on board before a place who alight there, over the whole day."""
    journeys, positions = city.journeys, service_positions(city.services)
    first_place = np.concatenate([[0], np.cumsum([len(s.stops) for s in city.services])])
    off, aboard = np.zeros(int(first_place[-1])), np.zeros(int(first_place[-1]))
    for leg in range(len(journeys.leg_board)):
        carriers = journeys.carriers[journeys.leg_carriers[leg]]
        for service in carriers:
            board = positions[service, int(journeys.leg_board[leg])]
            alight = positions[service, int(journeys.leg_alight[leg])]
            first = int(first_place[service])
            off[first + alight] += 1 / len(carriers)
            aboard[first + board + 1 : first + alight + 1] += 1 / len(carriers)
    return off / np.maximum(aboard, 1e-9)


def _rates(city: City, usual_s: Array, levels: tuple[float, ...]) -> tuple[Array, Array]:
    """People per second by level, place and half hour, and the mean ride from each place."""
    journeys, positions = city.journeys, service_positions(city.services)
    first_place = np.concatenate([[0], np.cumsum([len(s.stops) for s in city.services])])
    first_visit = np.concatenate(
        [[0], np.cumsum([len(city.services[t.service].stops) for t in city.trips])]
    )
    bins = -(-city.horizon_s // RATE_BIN_S)
    rate = np.zeros((len(levels), int(first_place[-1]), bins))
    ride, count = np.zeros(int(first_place[-1])), np.zeros(int(first_place[-1]))
    level = np.array(levels)
    for p in range(len(journeys)):
        leg = journeys.leg_start[p]
        carriers = journeys.carriers[journeys.leg_carriers[leg]]
        half = min(int(journeys.departure_s[p]) // RATE_BIN_S, bins - 1)
        travels = journeys.min_demand[p] <= level
        for service in carriers:
            board = positions[service, int(journeys.leg_board[leg])]
            alight = positions[service, int(journeys.leg_alight[leg])]
            place = int(first_place[service]) + board
            rate[travels, place, half] += 1 / len(carriers) / RATE_BIN_S
            visit = int(first_visit[city.trips_of[service][0]])
            ride[place] += usual_s[visit + alight] - usual_s[visit + board]
            count[place] += 1
    return rate, ride / np.maximum(count, 1)


@inlined
def _between(o: Outlook, level: int, place: int, second: float) -> tuple[float, float]:
    """The people who have come up to a second, and their integral of time."""
    half = int(min(second // RATE_BIN_S, o.rate.shape[2] - 1))
    start, rate = half * RATE_BIN_S, o.rate[level, place, half]
    return (
        o.people[level, place, half] + rate * (second - start),
        o.moment[level, place, half] + rate * (second * second - start * start) / 2,
    )


@inlined
def cost_to_go(s: Static, o: Outlook, d: Day, service: int, now: int) -> float:
    """What the passengers of a service pay from now to the end of the day."""
    level, horizon = d.num[0].level, float(s.horizon_s)
    first_place, places = s.first_stop[service], s.first_stop[service + 1] - s.first_stop[service]
    total = 0.0
    for stop in range(places):
        place = first_place + stop
        queue = 0.0
        for i in range(d.place[place].classes):
            c = k.class_at(s, d, place, i)
            q = d.queue[c]
            if q.head_s <= now:
                seen = max(q.seen, q.head)
                while k.since_s(d, seen) <= now:
                    seen += 1
                q.seen = seen
                queue += o.share[c] * (seen - q.head)
        at = float(now)
        came, area = _between(o, level, place, at)
        for r in range(o.first_trip[service], o.first_trip[service + 1]):
            trip = s.ranked[r]
            bus = d.trip[trip]
            if bus.position >= stop or bus.due_s >= s.horizon_s:
                continue
            visit = bus.first_visit
            arrives = bus.due_s + (o.usual_s[visit + stop] - o.usual_s[visit + bus.position + 1])
            if arrives >= horizon:
                continue
            total += d.alighting[visit + stop] * (arrives - now)
            if arrives > at and stop < places - 1:
                people, moment = _between(o, level, place, arrives)
                new = people - came
                total += WAITING_WEIGHT * (queue * (arrives - now))
                total += WAITING_WEIGHT * (arrives * new - (moment - area))
                total += (queue + new) * o.ride_s[place]
                came, area, at, queue = people, moment, arrives, 0.0
        if stop < places - 1:
            people, moment = _between(o, level, place, horizon)
            new = people - came
            total += WAITING_WEIGHT * (queue * (horizon - now) + horizon * new - (moment - area))
            total += o.left_s * (queue + new)
    return total


class Fluid(NamedTuple):
    """Work space of a service's day in expectation: by stop."""

    queue: Array
    since_s: Array


@inlined
def fluid_cost(
    s: Static, o: Outlook, d: Day, f: Fluid, service: int, now: int, feedback: float
) -> float:
    """What the passengers of a service pay from now on if its buses run as expected.

    People come at the half hour's rates and leave at the usual share of each stop. Buses need the
    mean running times, and stand as long as their passengers need (`feedback` 1) or as on a usual
    day (0). A full bus leaves people for the next.
    """
    level, horizon = d.num[0].level, float(s.horizon_s)
    first_place, places = s.first_stop[service], s.first_stop[service + 1] - s.first_stop[service]
    capacity, exchange_s = float(s.capacity), s.exchange_ms / 1000.0
    waited, rode = 0.0, 0.0
    for stop in range(places - 1):
        place = first_place + stop
        queue = 0.0
        for i in range(d.place[place].classes):
            c = k.class_at(s, d, place, i)
            q = d.queue[c]
            if q.head_s <= now:
                seen = max(q.seen, q.head)
                while k.since_s(d, seen) <= now:
                    seen += 1
                q.seen = seen
                queue += o.share[c] * (seen - q.head)
        f.queue[stop], f.since_s[stop] = queue, now
    for r in range(o.first_trip[service], o.first_trip[service + 1]):
        trip = s.ranked[r]
        bus = d.trip[trip]
        if bus.position >= places - 1 or bus.due_s >= s.horizon_s:
            continue
        at, load, visit = float(bus.due_s), float(bus.load), bus.first_visit
        known = load  # riders whose stops are known
        rode += load * (at - now) if bus.position >= 0 else 0.0
        new = 0.0
        for stop in range(bus.position + 1, places):
            place = first_place + stop
            off = float(d.alighting[visit + stop])
            known -= off
            gone = o.alights[place] * new
            new -= gone
            if stop == places - 1 or at >= horizon:
                break
            since = f.since_s[stop]
            people, moment = _between(o, level, place, at)
            came, area = _between(o, level, place, since)
            here = f.queue[stop] + people - came
            if at > since:
                waited += f.queue[stop] * (at - since) + at * (people - came) - (moment - area)
                f.since_s[stop] = at
            else:
                here = f.queue[stop]
            on = min(here, max(capacity - known - new, 0.0))
            f.queue[stop] = here - on
            new += on
            needed = max(float(s.min_dwell_s), exchange_s * (on + off + gone))
            half = k.half_hour(s, int(at))
            run = s.times[level, half, place].mean_s
            usual = o.usual_s[visit + stop + 1] - o.usual_s[visit + stop]
            step = feedback * (needed + run) + (1.0 - feedback) * usual
            rode += (known + new) * (min(at + step, horizon) - at)
            at += step
    total = 0.0
    for stop in range(places - 1):
        place, since = first_place + stop, f.since_s[stop]
        people, moment = _between(o, level, place, horizon)
        came, area = _between(o, level, place, since)
        waited += f.queue[stop] * (horizon - since) + horizon * (people - came) - (moment - area)
        total += f.queue[stop] + people - came
    return WAITING_WEIGHT * waited + rode + o.left_s * total
