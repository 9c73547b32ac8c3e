"""Demand for a city from elsewhere: a table of journeys, an OD matrix, stop counts, or gravity.

`demand_from` makes the journeys of a city whose streets and timetable are known; the journeys that
the city has do not matter. What cannot be carried is listed, never dropped in silence, and the
notes say where the demand comes from.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import numpy as np

from evenline.city.demand import RATE_BIN_S
from evenline.city.model import City, Journeys
from evenline.city.slowness import with_slowness
from evenline.importing.counts import (
    Counts,
    Residual,
    people_of,
    residual,
    timetable_counts,
)
from evenline.importing.demand_tables import MOST_PEOPLE, DemandRow, DemandTable, open_table
from evenline.importing.gravity import RIDE_M, gravity
from evenline.importing.people import (
    LeftOut,
    Person,
    Wish,
    carried,
    extra,
    half_hour,
    known_places,
    levelled,
    repeated,
    whole,
)
from evenline.importing.ways import Ways
from evenline.support.errors import InputError

_GRAVITY = "gravity"
NOTE = "demand "  # how every note of ours begins
_DIRECTION = re.compile(r".+\.([01])(\.\d+)?")  # of a service id, with the number of its pattern


@dataclass(frozen=True)
class Report:
    """What was made, at demand 1.00, and what was not; residuals are those of stop counts."""

    passengers: int
    with_transfer: int
    left_out: tuple[LeftOut, ...] = ()
    boardings: Residual | None = None
    alightings: Residual | None = None

    @property
    def lost(self) -> float:
        """How many passengers are left out; alightings alone are listed, not counted again."""
        return sum(group.passengers for group in self.left_out if group.origin)


@dataclass(frozen=True, eq=False)
class NewPeople:
    """Journeys, the sentences that every result must repeat, and a report for people."""

    journeys: Journeys
    notes: tuple[str, ...]
    report: Report


def demand_from(
    source: str,
    city: City,
    rng: np.random.Generator,
    passengers: int | None = None,
    hours: Sequence[float] = (),
) -> NewPeople:
    """Journeys for a city from `gravity`, or from a CSV file, whose header tells its kind.

    `passengers`, and `hours` (weights by hour of the city's day), are for gravity only.
    """
    ways = Ways(city)
    start_s = city.clock.start_s if city.clock is not None else 0
    if source == _GRAVITY:
        return _synthetic(ways, passengers, hours, start_s, rng)
    if passengers is not None or hours:
        raise InputError(f"demand {source!r}: only 'gravity' takes passengers and hours")
    table = open_table(Path(source), start_s)
    made = {"journeys": _from_journeys, "matrix": _from_matrix, "counts": _from_counts}
    return made[table.kind](table, ways, rng)


def with_people(city: City, people: NewPeople) -> City:
    """A city with these people, and with the notes on its demand replaced by theirs.

    How slow its streets must be in SUMO depends on how long buses stand, so it is open again.
    """
    notes = (note for note in city.notes if not note.startswith(NOTE))
    city = replace(city, journeys=people.journeys, notes=(*notes, *people.notes))
    return with_slowness(city, None)


def left_out_table(report: Report) -> str:
    """The people left out, as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(LeftOut))
    writer.writerows(astuple(group) for group in report.left_out)
    return out.getvalue()


# -- gravity --------------------------------------------------------------------------------------


def _synthetic(
    ways: Ways,
    passengers: int | None,
    hours: Sequence[float],
    start_s: int,
    rng: np.random.Generator,
) -> NewPeople:
    if passengers is None:
        raise InputError("demand 'gravity': say for how many passengers, with --passengers")
    if not 0 < passengers <= MOST_PEOPLE:
        raise InputError(f"passengers {passengers}: must be from 1 to {MOST_PEOPLE:,}")
    people = gravity(ways, passengers + extra(passengers), hours, start_s, rng)
    note = f"{NOTE}is synthetic (gravity, {passengers:,} passengers)"
    return _new_people(people[:passengers], people[passengers:], ways, rng, [note])


# -- journeys and matrices ------------------------------------------------------------------------


def _from_journeys(table: DemandTable, ways: Ways, rng: np.random.Generator) -> NewPeople:
    wishes = []
    for row in _rows(table):
        at_s = row.second("departure")
        level = row.number("min_demand") if "min_demand" in row.values else None
        ends = row.values["origin"], row.values["destination"]
        wishes.append(Wish(at_s, *ends, half_hour(at_s, table.start_s), level))
    people, left_out = carried(wishes, ways)
    _check_some(table, people, left_out, ways.city)
    note = f"{NOTE}comes from a table of {len(wishes):,} journeys ({table.path.name})"
    if "min_demand" in table.columns:
        return _new_people(people, [], ways, rng, [note], left_out)
    note += "; levels above 1.00 repeat some of them at another time of the same half hour"
    return _new_people(people, _more(people, ways, rng), ways, rng, [note], left_out)


def _from_matrix(table: DemandTable, ways: Ways, rng: np.random.Generator) -> NewPeople:
    bands = []
    for row in _rows(table):
        from_s, to_s = row.second("from"), row.second("to")
        if to_s <= from_s:
            raise InputError(f"{row.where}: the band ends before it begins")
        ends = row.values["origin"], row.values["destination"]
        bands.append((from_s, to_s, *ends, row.number("passengers")))
    amounts = np.array([band[-1] for band in bands])
    _check_total(table, amounts.sum())
    wishes = [
        Wish(at_s, origin, destination, (from_s, to_s))
        for (from_s, to_s, origin, destination, _), count in zip(
            bands, whole(amounts, rng).tolist(), strict=True
        )
        for at_s in rng.integers(from_s, to_s, count).tolist()
    ]
    people, left_out = carried(wishes, ways)
    _check_some(table, people, left_out, ways.city)
    note = f"{NOTE}comes from an origin-destination matrix ({table.path.name})"
    return _new_people(people, _more(people, ways, rng), ways, rng, [note], left_out)


def _more(people: Sequence[Person], ways: Ways, rng: np.random.Generator) -> list[Person]:
    return repeated(people, extra(len(people)), ways, rng)


def _rows(table: DemandTable) -> list[DemandRow]:
    rows = list(table.rows())
    if not rows:
        raise InputError(f"{table.path}: has no rows below its header")
    _check_total(table, len(rows))
    return rows


def _check_total(table: DemandTable, people: float) -> None:
    if people > MOST_PEOPLE:
        raise InputError(f"{table.path}: has {people:,.0f} people; at most {MOST_PEOPLE:,}")


def _check_some(
    table: DemandTable, people: Sequence[Person], left_out: Sequence[LeftOut], city: City
) -> None:
    """Refuse a table of which nobody is carried; most often its stops have other ids."""
    if not people and not left_out:
        raise InputError(f"{table.path}: has no people; every number is 0")
    if not people:
        raise InputError(
            f"{table.path}: no bus of {city.name} carries any of these people; the first go "
            f"{left_out[0].ends}: {left_out[0].why}"
        )


# -- stop counts ----------------------------------------------------------------------------------


def _from_counts(table: DemandTable, ways: Ways, rng: np.random.Generator) -> NewPeople:
    counts, unknown = _read_counts(table, ways)
    _check_total(table, sum(counts.boardings.values()))
    people, left_out = people_of(counts, ways, table.start_s, rng)
    left_out = (*unknown, *left_out)
    _check_some(table, people, left_out, ways.city)
    boarded, alighted = timetable_counts(people, ways, counts.phase_s)
    notes = [
        f"{NOTE}comes from stop counts ({table.path.name}), balanced by iterative proportional "
        f"fitting with a prior that prefers rides of {RIDE_M / 1000:g} km; nobody transfers"
    ]
    counted = {service for service, _, _ in counts.boardings}
    bare = [line.id for i, line in enumerate(ways.city.services) if i not in counted]
    if bare:
        notes.append(f"{NOTE}has no counts of {', '.join(bare)}")
    return _new_people(
        people,
        _more(people, ways, rng),
        ways,
        rng,
        notes,
        left_out,
        residual(boarded, counts.boardings),
        residual(alighted, counts.alightings),
    )


def _read_counts(table: DemandTable, ways: Ways) -> tuple[Counts, list[LeftOut]]:
    """The counts of a table, and those of services and stops that the city does not have."""
    rows = _rows(table)
    phase_s = rows[0].second("from") % RATE_BIN_S
    counts = Counts({}, {}, phase_s)
    known = known_places(ways)
    unknown: list[LeftOut] = []
    for row in rows:
        from_s, stop = row.second("from"), row.values["stop_id"]
        if from_s % RATE_BIN_S != phase_s:
            raise InputError(
                f"{row.where}: must begin a number of half hours after {rows[0].where}"
            )
        boardings, alightings = row.number("boardings"), row.number("alightings")
        service, place = _service(row, ways.city), known.get(stop, "")
        if service is None or place not in _places(ways, service):
            why = f"{stop} is not a stop of {_line(row)} in the city"
            unknown += [LeftOut(stop, "", from_s, boardings, why)] if boardings else []
            unknown += [LeftOut("", stop, from_s, alightings, why)] if alightings else []
            continue
        key = (service, place, (from_s - phase_s) // RATE_BIN_S)
        if key in counts.boardings:
            raise InputError(f"{row.where}: {stop} was counted above in the same half hour")
        counts.boardings[key], counts.alightings[key] = boardings, alightings
    return counts, unknown


def _line(row: DemandRow) -> str:
    """What a row of counts calls the service."""
    names = (row.values.get(column, "") for column in ("service_id", "route_id", "direction_id"))
    return "/".join(filter(None, names))


def _service(row: DemandRow, city: City) -> int | None:
    """The service of a row: by its id, or by route (as here or in the source) and direction.

    An id such as `10.1` tells the direction, as imported ones do; else the first service of a route
    is direction 0 and the second is direction 1.
    """
    if "service_id" in row.values:
        name = row.values["service_id"]
        return next((i for i, s in enumerate(city.services) if s.id == name), None)
    name, direction = row.values["route_id"], int(row.number("direction_id"))
    route = [i for i, s in enumerate(city.services) if name in (s.route, s.source)]
    ids = [_DIRECTION.fullmatch(city.services[i].id) for i in route]
    matching = [
        service
        for order, (service, named) in enumerate(zip(route, ids, strict=True))
        if direction == (int(named[1]) if named else order)
    ]
    if len(matching) > 1:
        raise InputError(
            f"{row.where}: route {name} has {len(matching)} services in direction {direction}; "
            "count by service_id instead of route_id and direction_id"
        )
    return matching[0] if matching else None


def _places(ways: Ways, service: int) -> set[str]:
    return {ways.places[stop] for stop in ways.city.services[service].stops}


# -- all kinds ------------------------------------------------------------------------------------


def _new_people(
    people: Sequence[Person],
    more: Sequence[Person],
    ways: Ways,
    rng: np.random.Generator,
    notes: list[str],
    left_out: Sequence[LeftOut] = (),
    boardings: Residual | None = None,
    alightings: Residual | None = None,
) -> NewPeople:
    """The journeys of people and of those that higher levels add."""
    usual = [person for person in people if person.min_demand is None or person.min_demand <= 1]
    transfers = sum(len(person.legs) > 1 for person in usual)
    report = Report(len(usual), transfers, tuple(left_out), boardings, alightings)
    if report.lost:
        passengers = f"{report.lost:,.0f} passenger{'s' * (report.lost != 1)}"
        notes.append(f"{NOTE}leaves out {passengers} whom no bus can carry")
    return NewPeople(levelled(people, more, ways.city, rng), tuple(notes), report)
