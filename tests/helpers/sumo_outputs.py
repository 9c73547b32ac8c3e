"""What SUMO itself wrote about a day, read without any help of the world or its ledger.

SUMO calls a person waiting until the bus departs; passengers ride from the moment they board.
The moments of boarding are rebuilt here from SUMO's trips and stops and its rule for the doors.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from defusedxml.ElementTree import parse

EXCHANGE_S = 4


@dataclass(frozen=True)
class Ride:
    """One leg as SUMO saw it: a wait from `since_s` on, and a ride where a bus came."""

    person: str
    leg: int
    bus: str | None
    since_s: int
    left_s: int  # departure of the bus; the horizon for whoever is still at the stop
    arrived_s: int | None


@dataclass(frozen=True)
class Halt:
    """A bus at a stop; `ended_s` is the horizon for one that still stands there."""

    bus: str
    stop: str
    started_s: int
    ended_s: int
    exchanged: int


def output_options(folder: Path) -> list[str]:
    """The options that make SUMO write everything that is read here."""
    return [
        *("--person-summary-output", str(folder / "summary.xml")),
        *("--tripinfo-output", str(folder / "trips.xml")),
        *("--tripinfo-output.write-unfinished", "true"),
        *("--stop-output", str(folder / "stops.xml")),
        *("--stop-output.write-unfinished", "true"),
    ]


def person_summary(folder: Path, until_s: float = float("inf")) -> tuple[int, int]:
    """Passenger-seconds of waiting and riding: SUMO's counts of every step, added up."""
    steps = parse(folder / "summary.xml").getroot().findall("step")
    steps = [step for step in steps if float(step.get("time")) < until_s]
    return (
        sum(int(step.get("waitingForRide")) for step in steps),
        sum(int(step.get("riding")) for step in steps),
    )


def departures(folder: Path) -> dict[str, int]:
    """Everyone who set out, and when."""
    people = parse(folder / "trips.xml").getroot().iter("personinfo")
    return {person.get("id"): round(float(person.get("depart"))) for person in people}


def rides(folder: Path, horizon_s: int) -> list[Ride]:
    """Every leg that was begun, unfinished ones included."""
    found = []
    for person in parse(folder / "trips.xml").getroot().iter("personinfo"):
        since = round(float(person.get("depart")))
        for number, leg in enumerate(person.iter("ride")):
            bus = leg.get("vehicle")
            left, arrived = (round(float(leg.get(name))) for name in ("depart", "arrival"))
            ride = Ride(
                person.get("id"),
                number,
                None if bus == "NULL" else bus,
                since,
                horizon_s if left < 0 else left,
                None if arrived < 0 else arrived,
            )
            assert round(float(leg.get("waitingTime"))) == ride.left_s - since
            found.append(ride)
            if ride.arrived_s is None:
                break  # later legs are listed but have not begun
            assert round(float(leg.get("duration"))) == ride.arrived_s - ride.left_s
            since = ride.arrived_s
    return found


def carried_to_the_end(folder: Path, bus: str) -> int:
    """How many people completed a ride on a bus."""
    everyone = parse(folder / "trips.xml").getroot().iter("ride")
    return sum(ride.get("vehicle") == bus and float(ride.get("arrival")) >= 0 for ride in everyone)


def halts(folder: Path, horizon_s: int) -> list[Halt]:
    """Every stop of every bus."""
    found = []
    for stop in parse(folder / "stops.xml").getroot().iter("stopinfo"):
        started, ended = (round(float(stop.get(name))) for name in ("started", "ended"))
        exchanged = int(stop.get("loadedPersons")) + int(stop.get("unloadedPersons"))
        found.append(
            Halt(
                stop.get("id"),
                stop.get("busStop"),
                started,
                horizon_s if ended < 0 else ended,
                exchanged,
            )
        )
    return found


def boardings(all_rides: Iterable[Ride], all_halts: Iterable[Halt]) -> dict[Ride, int]:
    """When people boarded, for every ride with a bus."""
    boarders: dict[tuple[str, int], list[Ride]] = defaultdict(list)
    alighted: dict[str, list[int]] = defaultdict(list)
    for ride in all_rides:
        if ride.bus is not None:
            boarders[ride.bus, ride.left_s].append(ride)
            if ride.arrived_s is not None:
                alighted[ride.bus].append(ride.arrived_s)
    found: dict[Ride, int] = {}
    for halt in all_halts:
        leaving = [at for at in alighted[halt.bus] if halt.started_s <= at <= halt.ended_s]
        queue = sorted(boarders[halt.bus, halt.ended_s], key=lambda ride: ride.since_s)
        moments = _door(halt.started_s, leaving, [ride.since_s for ride in queue])
        found.update(zip(queue, moments, strict=True))
    return found


def waited_and_rode(
    all_rides: Iterable[Ride], boarded: Mapping[Ride, int], horizon_s: int
) -> tuple[int, int]:
    """Passenger-seconds of waiting and riding, unfinished journeys included."""
    waiting = riding = 0
    for ride in all_rides:
        board = boarded.get(ride, horizon_s)
        waiting += board - ride.since_s
        riding += (horizon_s if ride.arrived_s is None else ride.arrived_s) - board
    return waiting, riding


def _door(started_s: int, alighted: Sequence[int], since: Sequence[int]) -> list[int]:
    """When people boarded: one person passes the door at a time, whoever waits longest first.

    The door is free again 4 s later, less the second that SUMO gives back. When people alighted
    is known.
    """
    free, leaving, moments = started_s, sorted(alighted), []
    for waiting_since in since:
        while leaving and leaving[0] <= max(started_s, waiting_since, free - 1):
            free = max(free, leaving.pop(0)) + EXCHANGE_S
        moments.append(max(started_s, waiting_since, free - 1))
        free = max(free, moments[-1]) + EXCHANGE_S
    return moments
