"""Slow the streets of an imported city in SUMO until trips take the time of the timetable.

SUMO's streets have no traffic but ours. So from stop to stop, and by hour, every bus drives as many
times slower than its driver would as days without holding show to be needed. A few rounds of days
find these factors, and days with other seeds judge them. The city keeps the factors as a table and
says in a note which services do not take their time. The days of a run that was killed are kept.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell, service_stop_offsets
from evenline.city.details import optional_tables
from evenline.city.manifest import MANIFEST
from evenline.city.model import City, Floats, Ints, visit_offsets
from evenline.city.operations import LEAST_SLOWNESS, USUAL_OPERATIONS
from evenline.city.schedule import HOUR_S, hours_of, scheduled_s
from evenline.city.slowness import NOTE, TABLE, can_be_slowed, with_slowness
from evenline.city.tables import digest, manifest_with, save_city, seal_city
from evenline.control.visits import read_visits
from evenline.runs.days import run_days
from evenline.runs.executors import Executor
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import listing_of, new_folder, refuse_changed, write_listed
from evenline.support.locks import one_runner
from evenline.worlds.calibration import save_calibration
from evenline.worlds.open import CALIBRATION, open_city
from evenline.worlds.timetable import (
    filled_means,
    scheduled_runs,
    section_edges,
    still_fitting,
)

TRIPS = 2_000  # of a round, so that the luck of drivers does not show
LEAST_BLOCKS, MOST_BLOCKS = 4, 20
ROUNDS = 3  # of factors; the first round is driven on a quarter of the days
WITHIN = 0.03
MOST_FACTOR = 10.0  # about walking pace
AT_LIMIT = 1.01  # of the shortest run: there every driver drives as fast as the street allows
SECTIONS = 3
NAMED = 5  # services in a note


@dataclass(frozen=True)
class Kept:
    """How long the trips of a service take in SUMO, as shares of their scheduled time: whole on
    empty streets, and on slowed ones whole and by thirds of their stops. A limit is met where buses
    go as fast or as slowly as they may.
    """

    service: str
    scheduled_s: float
    empty: float
    slowed: float
    thirds: tuple[float, ...]
    fastest: bool
    slowest: bool

    @property
    def within(self) -> bool:
        """Whether it takes its time, whole and by thirds."""
        return all(abs(share - 1.0) <= WITHIN for share in (self.slowed, *self.thirds))

    @property
    def said(self) -> str:
        """What a note says of a service that does not."""
        thirds = ", ".join(f"{share:.2f}" for share in self.thirds)
        shares = (self.slowed, *self.thirds)
        why = "; its streets are too slow" if self.fastest else ""
        if self.slowest and min(shares) < 1.0 - WITHIN:
            why += "; its buses would have to crawl"
        return f"{self.service} takes {self.slowed:.2f} of its time (by thirds {thirds}{why})"


def slow_streets(
    source: str,
    out: Path | None = None,
    blocks: int | None = None,
    executor: Executor | None = None,
    force: bool = False,
) -> list[Kept]:
    """Slow the streets of a city folder, there or in a copy; return how long services take now.

    A calibration that was fitted to the streets as they were is left out.
    """
    folder, target = Path(source), Path(source) if out is None else out
    opened = open_city(source)
    if target.resolve() != folder.resolve():
        refuse_changed(target, listing_of(target), force)
    days = target.resolve().parent / f".{target.resolve().name}.streets"
    with one_runner(days, "run for these streets"):
        city, kept = slowed(opened.city, days, blocks, executor)
        with new_folder(target) as aside:
            shutil.copytree(folder, aside, dirs_exist_ok=True)
            (aside / TABLE).write_bytes(optional_tables(city)[TABLE].encode())
            (aside / MANIFEST).write_bytes(manifest_with(aside, city.notes))
            city = seal_city(aside)
            (aside / CALIBRATION).unlink(missing_ok=True)
            if opened.calibration and (own := still_fitting(opened.calibration, city)):
                save_calibration(aside / CALIBRATION, own)
            if listing_of(aside):
                made = [aside / name for name in (TABLE, MANIFEST, CALIBRATION)]
                write_listed(
                    aside, {p.name: p.read_bytes() for p in made if p.exists()}, force=True
                )
        shutil.rmtree(days)
    return kept


def slowed(
    city: City, folder: Path, blocks: int | None = None, executor: Executor | None = None
) -> tuple[City, list[Kept]]:
    """The city with slowed streets, and how long its services take; the days stay in a folder."""
    if not can_be_slowed(city):
        raise InputError(
            f"city {city.name} has no timetable of its own that trips could keep in SUMO; "
            "its streets stay as they are"
        )
    count = blocks or min(max(-(-TRIPS // len(city.trips)), LEAST_BLOCKS), MOST_BLOCKS)
    cells = PURPOSES["streets"].cells(2 * count, (1.0,))
    many = _Days(with_slowness(city, None), folder, cells[:count], executor)
    few = replace(many, cells=cells[: -(-count // 4)])
    factors = np.ones((int(service_stop_offsets(city)[-1]), hours_of(city)))
    empty = driven = few.driven(factors, "empty streets")
    least_s = few.driven(LEAST_SLOWNESS * factors, "as fast as streets allow").run_s.mean(axis=1)
    for number in range(1, ROUNDS + 1):
        wanted_s = scheduled_runs(city, driven.dwell_s, least_s, SECTIONS)
        change = np.where(driven.run_s > 0.0, wanted_s / np.maximum(driven.run_s, 1.0), 1.0)
        change[wanted_s <= AT_LIMIT * least_s[:, None]] = 0.0
        factors = np.clip(factors * change, LEAST_SLOWNESS, MOST_FACTOR).round(3)
        if number < ROUNDS:
            days = few if number == 1 else many
            driven = days.driven(factors, f"slower streets, round {number} of {ROUNDS}")
    judged = replace(many, cells=cells[count:]).driven(factors, "slower streets, other days")
    kept = _kept(city, factors, empty, judged)
    return with_slowness(city, factors, note_of(kept)), kept


def note_of(kept: Sequence[Kept]) -> str:
    """What every result must say of the streets in SUMO."""
    missed = [each.said for each in kept if not each.within]
    note = (
        f"{NOTE}buses are slowed from stop to stop until trips take their scheduled time: "
        f"{len(kept) - len(missed)} of {len(kept)} services do within {WITHIN:.0%}, whole and in "
        "thirds"
    )
    more = [f"{len(missed) - NAMED} more do not"] if len(missed) > NAMED else []
    return "; ".join((note, *missed[:NAMED], *more))


@dataclass(frozen=True, eq=False)
class _Driven:
    """Mean seconds of runs and stands by place and hour, and all times by day and stop visit."""

    run_s: Floats
    dwell_s: Floats
    arrival_s: Floats
    departure_s: Floats


@dataclass(frozen=True, eq=False)
class _Days:
    """Days without holding, with the usual operations."""

    city: City
    folder: Path
    cells: Sequence[Cell]
    executor: Executor | None

    def driven(self, factors: Floats, label: str) -> _Driven:
        """What buses did on streets of this slowness; days that exist are not run again."""
        city = replace(self.city, slowness=factors, operations=USUAL_OPERATIONS)
        place = self.folder / digest(city)[:16]
        if not (place / "city").exists():
            save_city(city, place / "city")
        jobs = [
            Job(city=str(place / "city"), policy="zero", cell=c, visits=place / f"{c.name}.parquet")
            for c in self.cells
        ]
        logs = [job.visits for job in jobs if job.visits is not None]
        if missing := [job for job in jobs if job.visits is not None and not job.visits.exists()]:
            run_days(missing, f"{city.name}: {label}", city.horizon_s, self.executor)
        return _driven(city, logs)


def _driven(city: City, logs: Sequence[Path]) -> _Driven:
    first, at = visit_offsets(city), {trip.id: i for i, trip in enumerate(city.trips)}
    arrival_s, departure_s = np.full((2, len(logs), int(first[-1])), np.nan)
    for day, path in enumerate(logs):
        table = read_visits(path)
        trips = first[[at[trip] for trip in table["trip"].to_pylist()]]
        visits = trips + table["stop_sequence"].to_numpy()
        arrival_s[day, visits] = table["arrival_s"].to_numpy()
        departure_s[day, visits] = table["departure_s"].to_numpy()
    run_s = np.append(arrival_s[:, 1:] - departure_s[:, :-1], np.full((len(logs), 1), np.nan), 1)
    run_s[:, first[1:] - 1] = np.nan  # from the last stop of a trip
    means = [_by_place_and_hour(city, each) for each in (run_s, departure_s - arrival_s)]
    return _Driven(means[0], means[1], arrival_s, departure_s)


def _by_place_and_hour(city: City, seconds: Floats) -> Floats:
    """Means by service-stop and the hour in which a bus is due there, of days and stop visits."""
    first, hours = service_stop_offsets(city), hours_of(city)
    due_s = np.concatenate([scheduled_s(city, trip) for trip in range(len(city.trips))])
    hour = np.clip(due_s // HOUR_S, 0, hours - 1).astype(int)
    place = _places(city, first)
    total, count = np.zeros((2, int(first[-1]), hours))
    for day in seconds:
        seen = np.isfinite(day)
        np.add.at(total, (place[seen], hour[seen]), day[seen])
        np.add.at(count, (place[seen], hour[seen]), 1)
    return filled_means(total, count)


def _places(city: City, first: Ints) -> Ints:
    """The service-stop of every stop visit."""
    rows = [np.arange(first[trip.service], first[trip.service + 1]) for trip in city.trips]
    return np.concatenate(rows)


def _kept(city: City, factors: Floats, empty: _Driven, slow: _Driven) -> list[Kept]:
    first, visits, found = service_stop_offsets(city), visit_offsets(city), []
    for number, service in enumerate(city.services):
        trips, last = list(city.trips_of[number]), len(service.stops) - 1
        if not trips:
            continue
        due_s = np.array([scheduled_s(city, trip) for trip in trips])
        here = visits[trips][:, None] + np.arange(last + 1)
        edges = section_edges(last, SECTIONS)

        def share(
            driven: _Driven, start: int, end: int, due_s: Floats = due_s, here: Ints = here
        ) -> float:
            """Of the scheduled time between two stops, as far as buses reached both."""
            ends_s = driven.arrival_s if end == due_s.shape[1] - 1 else driven.departure_s
            took_s = ends_s[:, here[:, end]] - driven.departure_s[:, here[:, start]]
            wanted_s = np.broadcast_to(due_s[:, end] - due_s[:, start], took_s.shape)
            seen = np.isfinite(took_s)
            return float(took_s[seen].sum() / max(wanted_s[seen].sum(), 1.0))

        thirds = tuple(share(slow, a, b) for a, b in pairwise(edges))
        rows = factors[first[number] : first[number + 1] - 1]
        found.append(
            Kept(
                service.id,
                float((due_s[:, -1] - due_s[:, 0]).mean()),
                share(empty, 0, last),
                share(slow, 0, last),
                thirds,
                bool((rows <= LEAST_SLOWNESS).any()),
                bool((rows >= MOST_FACTOR).any()),
            )
        )
    return found
