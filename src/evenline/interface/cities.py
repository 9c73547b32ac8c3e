"""Cities from Python: import them from a feed, a scenario, records or a function of your own.

Each function writes a city's folder, as the command of the same name does, and returns the city.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evenline.interface.days import OpenCity, open_city
from evenline.interface.shown import facts, html_facts
from evenline.support.errors import InputError

if TYPE_CHECKING:
    from evenline.importing.imported import Imported
    from evenline.records.clean import Records

HOUR_S = 3600


def import_gtfs(
    feed: str | Path,
    out: str | Path,
    *,
    routes: Sequence[str],
    date: str | datetime.date,
    hours: tuple[float, float] = (0, 48),
    every_pattern: bool = False,
    roads: str | Path | None = None,
    demand: str | None = None,
    passengers: int | None = None,
    seed: int = 1,
    capacities: Mapping[str, int] | None = None,
) -> OpenCity:
    """Import some routes of a GTFS feed on a day.

    Trips that start within `hours` are taken; `roads` is a map for their streets. `demand` is
    "gravity", with a number of `passengers`, or a CSV file.
    """
    from evenline.importing.gtfs import read_gtfs
    from evenline.importing.mapped import Map, matched
    from evenline.importing.timetable import Wanted

    day = date if isinstance(date, datetime.date) else _day(date)
    start_s, end_s = (round(HOUR_S * hour) for hour in hours)
    wanted = Wanted(tuple(routes), day, start_s, end_s, every_pattern)
    lay = None if roads is None else partial(matched, source=Map(Path(roads), False, False))
    imported = read_gtfs(Path(feed), wanted, _name(out), lay, capacities)
    return _written(imported, out, demand, passengers, seed)


def import_sumo(
    config: str | Path,
    out: str | Path,
    *,
    demand: str | None = None,
    passengers: int | None = None,
    seed: int = 1,
) -> OpenCity:
    """Import a SUMO scenario; without a `demand` its own people travel."""
    from evenline.experiments.importing import import_sumo as read

    return _written(read(Path(config), _name(out)), out, demand, passengers, seed)


def import_own(
    function: str,
    source: str | Path,
    out: str | Path,
    *,
    demand: str | None = None,
    passengers: int | None = None,
    seed: int = 1,
) -> OpenCity:
    """Import what a function of yours, `FILE.py:NAME`, makes of a source."""
    from evenline.experiments.importing import import_own as read

    return _written(read(function, str(source), _name(out)), out, demand, passengers, seed)


@dataclass(frozen=True, eq=False)
class RecordedDays:
    """Records of real buses: their days and routes, a city fitted to some, judged on others."""

    folder: Path
    records: "Records" = field(repr=False)

    @property
    def days(self) -> tuple[str, ...]:
        """The recorded days."""
        return tuple(self.records.days)

    @property
    def routes(self) -> tuple[str, ...]:
        """The recorded routes."""
        return tuple(sorted({str(route) for route in self.records.trips.route}))

    def fit(
        self,
        out: str | Path,
        *,
        days: Sequence[str] = (),
        routes: Sequence[str] = (),
        hours: tuple[int, int] = (0, 48),
    ) -> OpenCity:
        """Make a city of some days and routes, all unless given, and fit the fast world to them."""
        from evenline.experiments.records import import_records

        window = f"{hours[0]}-{hours[1]}"
        import_records(self.folder, ",".join(routes), window, ",".join(days), Path(out), _name(out))
        return open_city(out)

    def judge(
        self, city: OpenCity, days: Sequence[str], out: str | Path | None = None
    ) -> "Verdict":
        """Judge a city on days that it was not fitted to; the city keeps the verdict as a note."""
        from evenline.experiments.records import audit_records

        folder = None if out is None else Path(out)
        audit = audit_records(city.source, self.folder, ",".join(days), folder)
        gaps = {
            line.measure: f"{line.ratio:.2f} ({'yes' if line.passed else 'no'})"
            for line in audit.lines
            if line.judged
        }
        return Verdict(audit.said, all(line.passed for line in audit.lines if line.judged), gaps)

    def rows(self) -> dict[str, str]:
        """What was recorded."""
        return {
            "days": ", ".join(self.days),
            "routes": ", ".join(self.routes),
            "trips": f"{len(self.records.trips):,}",
        }

    def __str__(self) -> str:
        return facts(f"{self.folder}", self.rows())

    def _repr_html_(self) -> str:
        return html_facts(f"{self.folder}", self.rows())


@dataclass(frozen=True)
class Verdict:
    """Whether a city stands on days that it has not seen: each measure's gap over a real day's."""

    sentence: str
    passed: bool
    gaps: dict[str, str]

    def __str__(self) -> str:
        return facts(self.sentence, self.gaps)

    def _repr_html_(self) -> str:
        return html_facts(self.sentence, self.gaps)


def read_records(folder: str | Path) -> RecordedDays:
    """Read a folder of TIDES tables."""
    from evenline.records.read import open_records

    records, _ = open_records(Path(folder))
    return RecordedDays(Path(folder), records)


def _written(
    imported: "Imported", out: str | Path, demand: str | None, passengers: int | None, seed: int
) -> OpenCity:
    from evenline.importing.writing import Demand, write_city

    if demand is None and passengers is not None:
        raise InputError('passengers need a demand; add demand="gravity"')
    wish = None if demand is None else Demand(demand, passengers, seed)
    write_city(imported, Path(out), wish)
    return open_city(out)


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InputError(f"date {text!r}: must be a date such as 2026-03-03") from None


def _name(out: str | Path) -> str:
    return Path(out).resolve().name
