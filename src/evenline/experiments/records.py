"""Import a city from records with its calibration, and audit it on held-out days.

Both write whole folders or nothing. The audit also writes its verdict into the city's calibration,
so that every later result repeats it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.manifest import MANIFEST
from evenline.city.tables import manifest_with, network_digest, save_city
from evenline.figures.document import insert
from evenline.figures.recorded import audit_pictures
from evenline.records.audit import (
    Compared,
    Judged,
    judge,
    recorded_days,
    simulated_days,
    verdict,
)
from evenline.records.build import Built, build, chosen
from evenline.records.clean import Problem, Records
from evenline.records.files import (
    ESTIMATES,
    LIMITS,
    RECORDS,
    FittedTo,
    estimates_csv,
    new_limits,
    read_fitted_to,
    read_limits,
)
from evenline.records.fit import Fitted, fit
from evenline.records.kinds import refuse_mixed
from evenline.records.read import open_records
from evenline.support.columns import aligned, markdown
from evenline.support.errors import InputError
from evenline.support.files import (
    refuse_changed_files,
    result_folder,
    sha256,
    to_json,
    write_bytes,
    write_listed,
    write_text,
)
from evenline.support.records import write_record
from evenline.worlds.calibration import calibration_text, save_calibration
from evenline.worlds.open import CALIBRATION, OpenCity, open_city

AUDIT = "audit.json"
LONGEST_NOTE = 4_096
TRIED_DAYS = 400  # of a range of dates


@dataclass(frozen=True, eq=False)
class Import:
    """What an import made."""

    records: Records
    found: list[Problem]
    built: Built
    fitted: Fitted
    left_out: dict[str, int]  # trips of the chosen routes and days that the city is not made from


def days_of(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The days of text such as 2012-10-01..03 or 2012-10-01,2012-10-03, of those that are known."""
    days: list[str] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        first, dots, last = part.partition("..")
        if not dots:
            days.append(part)
            continue
        try:
            begin = date.fromisoformat(first)
            end = date.fromisoformat(first[: len(first) - len(last)] + last)
        except ValueError:
            raise InputError(f"days {part!r}: give dates such as 2012-10-01..03") from None
        span = (begin + timedelta(days=i) for i in range(min((end - begin).days + 1, TRIED_DAYS)))
        days += [str(day) for day in span if str(day) in known]
    days = list(dict.fromkeys(days)) if text else list(known)
    for day in days:
        if day not in known:
            raise InputError(f"day {day} is not in the records; they have {', '.join(known)}")
    if not days:
        raise InputError(f"days {text!r}: the records have only {', '.join(known)}")
    return tuple(days)


def hours_of(text: str) -> tuple[int, int]:
    """Two hours from text such as 6-20."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last) <= 48):
        raise InputError(f"hours {text!r}: give two hours such as 6-20")
    return int(first), int(last)


def import_records(
    folder: Path, routes: str, hours: str, days: str, out: Path, name: str, force: bool = False
) -> Import:
    """Make a city of records, fit the fast world to them, and write both to a city folder."""
    window = hours_of(hours)
    records, found = open_records(folder)
    chosen_days = days_of(days, records.days)
    wanted = tuple(each.strip() for each in routes.split(",") if each.strip())
    taken = chosen(records, wanted, chosen_days, window)
    refuse_mixed(taken, "fit", chosen_days, chosen_days)
    built = build(taken, name, chosen_days, window)
    fitted = fit(built, dict(records.hashes))
    fitted = _with_notes(fitted, built, records, chosen_days)
    with result_folder(out, force) as aside:
        save_city(fitted.city, aside)
        write_text(aside / LIMITS, new_limits(network_digest(fitted.city), chosen_days))
        sources = {**records.hashes, LIMITS: sha256(aside / LIMITS)}
        calibration = replace(fitted.calibration, sources=sources)
        save_calibration(aside / CALIBRATION, calibration)
        write_text(aside / ESTIMATES, estimates_csv(fitted))
        write_record(
            aside / RECORDS, _fitted_to(records, wanted, chosen_days, window, built, fitted)
        )
    left_out = _left_out(records, wanted, chosen_days, taken, built)
    return Import(records, found, built, fitted, left_out)


def _left_out(
    records: Records, routes: tuple[str, ...], days: tuple[str, ...], taken: Records, built: Built
) -> dict[str, int]:
    """How many of the recorded trips are not in the city, by the reason."""
    trips = records.trips
    wanted = np.isin(np.array(records.days)[trips.day], days)
    if routes:
        wanted &= np.isin(trips.route.astype(str), routes)
    seen, inside, used = (np.zeros(len(trips), bool) for _ in range(3))
    seen[records.visits.trip] = inside[taken.visits.trip] = used[built.driven.trip] = True
    return {
        "have no two usable visits": int((wanted & ~seen).sum()),
        "begin outside the hours": int((wanted & seen & ~inside).sum()),
        "follow no service": int((inside & ~used).sum()),
    }


def _fitted_to(
    records: Records,
    routes: tuple[str, ...],
    days: tuple[str, ...],
    hours: tuple[int, int],
    built: Built,
    fitted: Fitted,
) -> FittedTo:
    return FittedTo(
        format="evenline-records-2",
        records=records.name,
        tables=dict(records.hashes),
        routes=routes,
        days=days,
        first_hour=hours[0],
        last_hour=hours[1],
        trips=len(built.driven.first_rows()),
        visits=len(built.driven),
        left_out=built.left_out,
        stamp="departure" if fitted.doors.stamp == "departure" else "arrival",
        recorded_share=tuple(round(float(share), 4) for share in fitted.recorded_share),
    )


def _with_notes(fitted: Fitted, built: Built, records: Records, days: tuple[str, ...]) -> Fitted:
    """Say in the city and its calibration what was recorded and what is assumed."""
    trips, visits = len(built.driven.first_rows()), len(built.driven)
    scheduled = bool(np.isfinite(built.driven.due_s).all())
    note = f"{fit_note(records.name, days)}; not yet judged on a day that the fit has not seen"
    times = "the schedule" if scheduled else "the mean of recorded departures, as no schedule is"
    city = replace(
        fitted.city,
        notes=(
            f"made from records of {records.name}: {', '.join(days)}, {trips:,} trips, {visits:,} "
            "visits",
            f"the timetable is {times}{'' if scheduled else ' recorded'}; a trip that other days "
            "have is taken as not recorded, not as cancelled",
            "passengers are drawn from counts; where they wait for several lines is not known",
            note,
        ),
    )
    return replace(
        fitted,
        city=city,
        calibration=replace(fitted.calibration, network=network_digest(city), note=note),
    )


def fit_note(name: str, days: Sequence[str]) -> str:
    """What every result says of the fit."""
    return f"running times and demand are fitted to records of {name}, {', '.join(days)}"


# -- audit ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found."""

    opened: OpenCity
    fitted_to: FittedTo
    held: tuple[str, ...]
    days: Compared
    lines: list[Judged]

    @property
    def said(self) -> str:
        return verdict(self.lines, self.held)

    def as_json(self) -> dict[str, Any]:
        return {
            "city": self.opened.name,
            "fitted_to": self.fitted_to.days,
            "held_out": self.held,
            "verdict": self.said,
            "lines": [line.as_dict() for line in self.lines],
        }


def audit_records(
    city: str, folder: Path, days: str, out: Path | None = None, force: bool = False
) -> Audit:
    """Judge a city on held-out days; write the result, its pictures and the city's note."""
    opened, home = open_city(city), Path(city)
    calibration = opened.fitted()
    fitted_to = read_fitted_to(home, len(opened.city.trips))
    limits = read_limits(home, calibration)
    records, _ = open_records(folder)
    held = days_of(days, records.days)
    for day in held:
        if day in fitted_to.days:
            raise InputError(f"day {day}: the city was fitted to it; hold out another day")
    for day in fitted_to.days:
        if day not in records.days:
            raise InputError(f"{folder}: has no {day}, which the city was fitted to")
    every, hours = (*fitted_to.days, *held), (fitted_to.first_hour, fitted_to.last_hour)
    compared_days = chosen(records, fitted_to.routes, every, hours)
    refuse_mixed(compared_days, f"audit of {opened.name}", held, every)
    out = out or audit_folder(opened.name, held)
    names = (AUDIT, *(f"{name}.png" for name in ("time-space", "headways", "loads")))
    refuse_changed_files(out, names, force)
    compared = Compared(
        recorded_days(opened.city, records, fitted_to, fitted_to.days),
        recorded_days(opened.city, records, fitted_to, held),
        simulated_days(opened.city, calibration, fitted_to, limits.simulated_days),
    )
    audit = Audit(opened, fitted_to, held, compared, judge(opened.city, compared, limits))
    note = _with_verdict(calibration.note, audit)
    pictures = audit_pictures(opened.city, compared)
    result = {AUDIT: to_json(audit.as_json()).encode()}
    write_listed(out, result | {f"{name}.png": own for name, own in pictures.items()}, force)
    judged = calibration_text(replace(calibration, note=note)).encode()
    others = (each for each in opened.city.notes if each != calibration.note)
    said = {CALIBRATION: judged, MANIFEST: manifest_with(home, (*others, note))}
    write_listed(home, said, force=True)
    return audit


def audit_folder(name: str, held: Sequence[str]) -> Path:
    """Where an audit goes unless it is told: a folder for the days of each audit."""
    days = held[0] if len(held) == 1 else f"{held[0]}-to-{held[-1]}-{len(held)}-days"
    return Path("results") / f"audit-{name}-{days}"


def _with_verdict(note: str, audit: Audit) -> str:
    """The note of a city with the verdicts of all its audits; one of the same days is replaced."""
    again = f"on {', '.join(audit.held)}, which"
    _, *verdicts = re.split(r"; (?=on \d{4}-\d\d-\d\d)", note)
    kept = [each for each in verdicts if not each.startswith(again)]
    fitted_to = fit_note(audit.fitted_to.records, audit.fitted_to.days)
    every = "; ".join([fitted_to, *sorted([*kept, audit.said])])
    if len(every) > LONGEST_NOTE:
        raise InputError(f"{audit.opened.name}: has no room for another verdict; import it again")
    return every


def _row(line: Judged) -> list[str]:
    form = ".3f" if not line.unit else ".1f" if line.unit == "s" else ".2f"
    numbers = (line.recorded, line.simulated, line.model_gap, line.real_gap)
    name = f"{line.measure}, {line.unit}" if line.unit else line.measure
    passed = ("yes" if line.passed else "no") if line.judged else "not recorded"
    cells = (format(number, form) if np.isfinite(number) else "-" for number in numbers)
    return [name, *cells, f"{line.ratio:.2f}" if line.judged else "-", passed]


HEAD = ("Measure", "Recorded", "Simulated", "Gap to model", "Gap of days", "Ratio", "Within limit")


def audit_table(audit: Audit) -> str:
    """The audit as text; the first line says what the model was fitted to and how it did."""
    lines = aligned([HEAD, *(_row(line) for line in audit.lines)])
    said = f"{fit_note(audit.fitted_to.records, audit.fitted_to.days)}; {audit.said}"
    return "\n".join([f"note: {said}", *lines])


def write_document(document: Path, audit: Audit, folder: Path, command: str) -> None:
    """Write the audit's table and pictures into a document."""
    mark = f"audit {audit.opened.name} {' '.join(audit.held)}"
    pictures = []
    for name, alt in (
        ("time-space", "Buses over time and distance, recorded and simulated"),
        ("headways", "Headway CV along the line, recorded and simulated"),
        ("loads", "Load along the line, recorded and simulated"),
    ):
        own = f"{document.stem}-{audit.opened.name}-{name}.png"
        write_bytes(document.parent / "images" / own, (folder / f"{name}.png").read_bytes())
        pictures.append(f"![{alt}](images/{own})")
    table = markdown([HEAD, *(_row(line) for line in audit.lines)])
    fitted = ", ".join(audit.fitted_to.days)
    first = f"Made by `{command}`. Fitted to {fitted}; {audit.said}."
    insert(document, mark, "\n".join([first, "", *table, "", "\n\n".join(pictures)]))
