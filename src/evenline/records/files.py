"""What a city from records keeps beside its tables: what it was fitted to, and its limits.

The limits of the audit are written when the city is fitted, and the calibration names their
SHA-256. An audit whose limits have changed since is refused.
"""

import csv
import io
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from evenline.records.estimates import Estimate
from evenline.records.fit import Fitted
from evenline.records.measures import MEASURES
from evenline.support.errors import InputError
from evenline.support.files import sha256, to_json
from evenline.support.records import (
    Hashes,
    Line,
    Positive,
    Record,
    Sha256,
    Share,
    Whole,
    plain,
    read_record,
)
from evenline.worlds.calibration import Calibration

LIMITS, RECORDS, ESTIMATES = "limits.json", "records.json", "estimates.csv"
_OF_SERVICES = ("run ", "whole run ", "sd of lateness", "sd of noise", "sd of pace", "lateness ")
_MOST_RATIO = 1.2
_SIMULATED_DAYS = 10
Day = Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")]
Ratio = Annotated[float, Meta(ge=0.1, le=100.0)]


class Limits(Record):
    """The limits of an audit on days that the fit has not seen."""

    format: Literal["evenline-records-limits-1"]
    network: Sha256
    fitted_to: tuple[Day, ...]
    measures: tuple[Line, ...]
    most_ratio: Ratio  # of the gap to a held-out day to the gap between real days
    simulated_days: Annotated[int, Meta(ge=2, le=10)]


class FittedTo(Record):
    """What a city was fitted to, and what an audit must know of the fit."""

    format: Literal["evenline-records-2"]
    records: Line
    tables: Hashes
    routes: tuple[Line, ...]
    days: tuple[Day, ...]
    first_hour: Annotated[int, Meta(ge=0, le=48)]
    last_hour: Annotated[int, Meta(ge=0, le=48)]
    trips: Positive
    visits: Positive
    left_out: Whole
    stamp: Literal["arrival", "departure"]
    recorded_share: tuple[Share, ...]  # by trip


def new_limits(network: str, days: tuple[str, ...]) -> str:
    """The limits of a new city, as their file holds them."""
    return to_json(
        plain(
            Limits(
                format="evenline-records-limits-1",
                network=network,
                fitted_to=days,
                measures=tuple(measure.name for measure in MEASURES),
                most_ratio=_MOST_RATIO,
                simulated_days=_SIMULATED_DAYS,
            )
        )
    )


def read_limits(folder: Path, calibration: Calibration) -> Limits:
    """The limits of a city's folder, unchanged since the fit."""
    path: Path = folder / LIMITS
    limits = read_record(path, Limits)
    if calibration.sources.get(LIMITS) != sha256(path):
        raise InputError(
            f"{path}: has changed since the city was fitted; the limits must be those registered "
            "before the audit, so import the city again"
        )
    known = {measure.name for measure in MEASURES}
    if unknown := [name for name in limits.measures if name not in known]:
        raise InputError(f"{path}: measures: unknown measure {unknown[0]!r}")
    return limits


def read_fitted_to(folder: Path, trips: int) -> FittedTo:
    """What the city of a folder was fitted to."""
    path: Path = folder / RECORDS
    if not path.is_file():
        raise InputError(
            f"{folder}: has no {RECORDS}; make a city of records with: evenline city import records"
        )
    fitted = read_record(path, FittedTo)
    if len(fitted.recorded_share) != trips:
        raise InputError(f"{path}: recorded_share: needs {trips} numbers, one for each trip")
    if fitted.first_hour >= fitted.last_hour:
        raise InputError(f"{path}: last_hour: must be later than first_hour")
    return fitted


def estimates_csv(fitted: Fitted) -> str:
    """Every fitted number with its interval, or why it has none, and the observations behind it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("parameter", "value", "low", "high", "observations", "note"))
    for row in fitted.estimates:
        writer.writerow((row.name, *_numbers(row), row.observations, row.note))
    return out.getvalue()


def main_estimates(folder: Path) -> list[list[str]]:
    """The estimates of a city's folder that are not of one service: number, interval, count, note.

    The file is for people; what is not as we wrote it is left out.
    """
    path: Path = folder / ESTIMATES
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if len(row) == 6]
    return [
        [name, value, f"{low} to {high}" if low else "none", count, note]
        for name, value, low, high, count, note in rows[1:]
        if not name.startswith(_OF_SERVICES)
    ]


def _numbers(estimate: Estimate) -> tuple[float, float | str, float | str]:
    low, high = (round(x, 4) if estimate.sure else "" for x in (estimate.low, estimate.high))
    return round(estimate.value, 4), low, high
