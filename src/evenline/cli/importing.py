"""The commands `evenline city import`: one for each format, and functions of your own.

A format is one function here or in a file of its own; `finish` ends them all.
"""

import datetime
import re
from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from evenline.cli.options import ForceOption, NameOption, OutFolder
from evenline.cli.people import PassengersOption, SeedOption, show_people
from evenline.cli.scenario import import_sumo
from evenline.support.errors import InputError
from evenline.support.own import is_own
from evenline.support.terminal import stderr

if TYPE_CHECKING:
    from evenline.importing.gtfs import Lay
    from evenline.importing.imported import Imported

    Read = Callable[[str], Imported]  # the city under a name

OWN = "own"


class Formats(TyperGroup):
    """The formats by name; `FILE.py:NAME` is a format of the user's own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and is_own(args[0]):
            args = [OWN, *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Formats,
    no_args_is_help=True,
    help="Import a city: from GTFS, a SUMO scenario, records, or by your own FILE.py:NAME.",
)

DemandOption = Annotated[
    str | None,
    typer.Option(
        "--demand",
        help="gravity, or a CSV file of journeys, an OD matrix or counts (default: nobody yet).",
    ),
]
RoadsOption = Annotated[
    Path | None,
    typer.Option("--roads", help="A map: .osm or .osm.pbf of OpenStreetMap, or a SUMO .net.xml."),
]
BridgeOption = Annotated[
    bool, typer.Option("--bridge", help="Close gaps of the map by straight links.")
]
LefthandOption = Annotated[
    bool, typer.Option("--lefthand", help="Traffic keeps to the left on this map.")
]
VariationOption = Annotated[
    float,
    typer.Option("--variation", help="Declared variation of running times from the timetable."),
]


def finish(
    read: "Read",
    out: OutFolder,
    demand: DemandOption = None,
    passengers: PassengersOption = None,
    seed: SeedOption = 1,
    variation: VariationOption = 0.1,
    name: NameOption = None,
    force: ForceOption = False,
) -> None:
    """Read a city, add demand, write the folder, and print what people should know."""
    from evenline.city.overview import without_headway
    from evenline.importing.writing import Demand, write_city

    if demand is None and passengers is not None:
        raise InputError("--passengers needs a demand; add --demand gravity")
    imported = read(name or out.resolve().name)
    wish = None if demand is None else Demand(demand, passengers, seed)
    with stderr.status(f"writing {out}"):
        opened, people = write_city(imported, out, wish, variation, force)
    for line in (*imported.remarks, *without_headway(opened.city)):
        print(line)
    if people is not None:
        show_people(people)
    elif not len(opened.city.journeys):
        print(
            f"nobody travels in this city yet; add passengers with: evenline city people {out} "
            "--demand gravity --passengers N --out FOLDER"
        )
    for note in opened.notes("fast"):
        if people is None or note not in people.notes:
            print(note)
    print(out)


def importing(reading: "Callable[..., Read]") -> Callable[..., None]:
    """A command that reads a format and then finishes, with the options of both."""
    of_format, common = signature(reading).parameters, dict(signature(finish).parameters)
    del common["read"]

    @wraps(reading, assigned=("__name__", "__doc__"))  # Typer reads the options from its signature
    def command(**given: Any) -> None:
        read = reading(**{option: given.pop(option) for option in of_format})
        finish(read, **given)

    options = [
        option.replace(kind=Parameter.KEYWORD_ONLY)
        for option in (*of_format.values(), *common.values())
    ]
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return command


@app.command()
@importing
def gtfs(
    feed: Annotated[Path, typer.Argument(help="A GTFS feed: a zip file or a folder.")],
    routes: Annotated[str, typer.Option(help="Routes by short name or id, as 10,11.")],
    date: Annotated[str, typer.Option(help="The day, as 2026-03-03.")],
    hours: Annotated[
        str, typer.Option(help="Take the trips that start in these hours, as 6-10 (default: all).")
    ] = "0-48",
    patterns: Annotated[
        str, typer.Option(help="main: one pattern per route and direction; or all.")
    ] = "main",
    roads: RoadsOption = None,
    bridge: BridgeOption = False,
    lefthand: LefthandOption = False,
    duties: Annotated[
        bool, typer.Option(help="Let the trips of one block_id share a vehicle.")
    ] = True,
    capacity: Annotated[
        str,
        typer.Option(help="Passengers that a bus takes, as 90, or by route as 10=90,11=50."),
    ] = "",
) -> "Read":
    """Import some routes of a GTFS feed on a day as a city folder.

    Without a map, roads follow the shapes of the lines. What is left out is listed.
    """
    from evenline.importing.fleet import capacities_of
    from evenline.importing.gtfs import read_gtfs
    from evenline.importing.timetable import Wanted

    if patterns not in ("main", "all"):
        raise InputError(f"--patterns {patterns!r}: choose 'main' or 'all'")
    start_s, end_s = _window(hours)
    chosen = tuple(filter(None, (route.strip() for route in routes.split(","))))
    wanted = Wanted(chosen, day_of(date), start_s, end_s, patterns == "all")
    lay, capacities = _lay(roads, bridge, lefthand), capacities_of(capacity)

    def read(name: str) -> "Imported":
        with stderr.status(f"reading {feed}"):
            return read_gtfs(feed, wanted, name, lay, capacities, duties)

    return read


@app.command()
def records(
    folder: Annotated[Path, typer.Argument(help="A folder of TIDES tables.")],
    out: OutFolder,
    routes: Annotated[str, typer.Option(help="Routes by id, as 1,2,7 (default: all).")] = "",
    days: Annotated[
        str, typer.Option(help="Days, as 2012-10-01..03 or with commas (default: all).")
    ] = "",
    hours: Annotated[
        str, typer.Option(help="Take the trips that start in these hours, as 6-20.")
    ] = "0-48",
    name: NameOption = None,
    force: ForceOption = False,
) -> None:
    """Make a city of records of real buses, for the fast world, and fit it to them.

    Services, timetable, passengers and running times come from what was recorded.
    """
    import time

    from evenline.city.overview import without_headway
    from evenline.experiments.records import import_records

    began = time.process_time()
    with stderr.status(f"reading and fitting {folder}"):
        made = import_records(folder, routes, hours, days, out, name or out.resolve().name, force)
    took_s = time.process_time() - began
    for problem in made.found:
        if problem.count:
            print(f"{problem.name}: {problem.count:,} of {problem.of:,} visits, {problem.done}")
    city, left_out = made.fitted.city, made.built.left_out
    for line in without_headway(city):
        print(line)
    print(f"{len(city.services)} services, {len(city.trips):,} trips, {len(city.stops):,} stops")
    print(f"{left_out:,} visits follow no service and are left out")
    for reason, trips in made.left_out.items():
        if trips:
            print(f"left out: {trips:,} of the recorded trips, which {reason}")
    for estimate in made.fitted.estimates[:2]:
        low, high = max(estimate.low, 0.0), estimate.high
        print(
            f"{estimate.name} {estimate.value:.2f} (95 %: {low:.2f} to {high:.2f}; "
            f"{estimate.observations:,} visits, {estimate.note})"
        )
    print(f"recorded times are taken as {made.fitted.doors.stamp}s")
    print(f"read, fitted and written in {took_s:.1f} s of processor time")
    for note in city.notes:
        print(f"note: {note}")
    print(out)


app.command("sumo")(import_sumo)


@app.command(OWN, hidden=True)
@importing
def own(
    function: Annotated[str, typer.Argument(help="Your function: FILE.py:NAME.")],
    source: Annotated[str, typer.Argument(help="What your function reads.")],
) -> "Read":
    """Import a city with a function of your own: it takes the source and returns a City."""
    from evenline.experiments.importing import import_own

    return partial(import_own, function, source)


def _lay(roads: Path | None, bridge: bool, lefthand: bool) -> "Lay | None":
    """How lines get their roads: from a map, if there is one."""
    from evenline.importing.mapped import Map, matched

    if roads is None:
        if bridge or lefthand:
            raise InputError("--bridge and --lefthand need a map; add --roads MAP")
        return None
    return partial(matched, source=Map(roads, bridge, lefthand))


def day_of(text: str) -> datetime.date:
    """The day that an option names."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InputError(f"--date {text!r}: must be a date such as 2026-03-03") from None


def _window(text: str) -> tuple[int, int]:
    """Seconds from hours such as 6-10 or 6:30-10."""
    match = re.fullmatch(r"(\d{1,2})(?::([0-5]\d))?-(\d{1,2})(?::([0-5]\d))?", text)
    if match:
        from_h, from_m, to_h, to_m = (int(part or 0) for part in match.groups())
        start_s, end_s = 3600 * from_h + 60 * from_m, 3600 * to_h + 60 * to_m
        if start_s < end_s:
            return start_s, end_s
    raise InputError(f"--hours {text!r}: must be hours such as 6-10, the first before the second")
