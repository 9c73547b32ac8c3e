"""The command that gives a city other people, and what it prints about them.

The options and `show_people` serve every command that imports a city.
"""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenline.cli.options import ForceOption, NameOption, OutFolder, numbers_of, print_table
from evenline.support.terminal import stderr

if TYPE_CHECKING:
    from evenline.importing.counts import Residual
    from evenline.importing.demand import NewPeople, Report

SHOWN = 10  # pairs of stops that are left out

DemandOption = Annotated[
    str,
    typer.Option("--demand", help="gravity, or a CSV file of journeys, an OD matrix or counts."),
]
PassengersOption = Annotated[
    int | None, typer.Option("--passengers", help="Number of passengers; for gravity.")
]
HoursOption = Annotated[
    str | None,
    typer.Option("--by-hour", help="Weights by hour of the city's day, as 1,3,2; for gravity."),
]
LeftOutOption = Annotated[
    Path | None,
    typer.Option("--left-out", help="Also write the people whom no bus can carry to this CSV."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of all draws.", min=0)]


def people(
    city: Annotated[str, typer.Argument(help="An embedded city, or a city folder.")],
    demand: DemandOption,
    out: OutFolder,
    passengers: PassengersOption = None,
    hours: HoursOption = None,
    seed: SeedOption = 1,
    left_out: LeftOutOption = None,
    name: NameOption = None,
    force: ForceOption = False,
) -> None:
    """Write a city with other people, from a table or synthetic; streets and timetable stay.

    The city's calibration fits and is written too. Running times that come from the timetable
    depend on how long buses stand, so they are taken from it again.
    """
    from evenline.importing.demand import left_out_table
    from evenline.importing.writing import Demand, write_people
    from evenline.support.files import write_text

    weights = numbers_of(hours) if hours is not None else ()
    wish = Demand(demand, passengers, seed, weights)
    with stderr.status("finding a way for everyone"):
        made = write_people(city, out, wish, name or out.resolve().name, force)
    if left_out is not None:
        write_text(left_out, left_out_table(made.report))
    show_people(made)
    print(out)


def show_people(made: "NewPeople") -> None:
    """Print what was made, what was not, and the notes."""
    report = made.report
    rows = {
        "passengers at demand 1.00": f"{report.passengers:,}",
        "with a transfer": f"{report.with_transfer:,} ({_share(report)})",
        "left out": f"{report.lost:,.0f}",
    }
    for name, residual in (("boardings", report.boardings), ("alightings", report.alightings)):
        if residual is not None:
            rows |= _rows(name, residual)
    print_table("people", rows)
    _show_left_out(report)
    for note in made.notes:
        print(note)


def _share(report: "Report") -> str:
    return f"{report.with_transfer / max(report.passengers, 1):.1%}"


def _rows(name: str, residual: "Residual") -> dict[str, str]:
    return {
        f"{name} counted": f"{residual.counted:,.0f}",
        f"{name} made": f"{residual.made:,}",
        f"{name}, largest residual": f"{residual.largest:,.1f}",
        f"{name}, mean absolute residual": f"{residual.mean:,.3f}",
    }


def _show_left_out(report: "Report") -> None:
    """The pairs of stops with the most people left out."""
    pairs: dict[str, float] = defaultdict(float)
    for lost in report.left_out:
        pairs[f"{lost.ends}: {lost.why}"] += lost.passengers
    for pair in sorted(pairs, key=lambda pair: -pairs[pair])[:SHOWN]:
        print(f"left out: {pairs[pair]:,.0f} {pair}")
    if len(pairs) > SHOWN:
        print(f"left out: and {len(pairs) - SHOWN:,} more pairs; --left-out FILE lists them all")
