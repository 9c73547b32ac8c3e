"""Commands for cities, and for other versions of SUMO."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli import importing, people
from evenline.cli.options import (
    AddressOption,
    CityOption,
    ExecutorOption,
    ForceOption,
    WorkersOption,
    executor_of,
    numbers_of,
    print_columns,
    print_notes,
    print_table,
)
from evenline.support.progress import stderr

app = typer.Typer(no_args_is_help=True, help="Build, check, seal and measure cities.")
runtime_app = typer.Typer(no_args_is_help=True, help="Install and list other versions of SUMO.")

Folder = Annotated[Path, typer.Argument(help="A city folder.")]
app.command()(people.people)
app.add_typer(importing.app, name="import")


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="An embedded city.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    profile: Annotated[
        str | None, typer.Option(help="Another demand profile: rising, flat or two-peaks.")
    ] = None,
    hours: Annotated[
        str | None, typer.Option(help="Demand by hour of the day, such as 13,105,197,246,254.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(help="Second at which demand ends; the last hour's rate goes on.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write an embedded city as a folder of tables, if you wish with other demand.

    Streets, timetable and cars stay the same, so the city's calibration fits and is written too.
    """
    from evenline.city.embedded import embedded_city, with_hours, with_profile
    from evenline.city.tables import save_city
    from evenline.support.errors import InputError
    from evenline.support.files import result_folder
    from evenline.worlds.calibration import save_calibration
    from evenline.worlds.open import CALIBRATION, open_city

    if profile is not None and hours is not None:
        raise InputError("--profile and --hours exclude each other; give one of them")
    if profile is not None:
        city = with_profile(name, profile, until)
    elif hours is not None:
        city = with_hours(name, numbers_of(hours), until)
    elif until is not None:
        raise InputError("--until needs a demand by hour; add --profile or --hours")
    else:
        city = embedded_city(name)
    calibration = open_city(name).calibration
    with result_folder(out, force) as aside:
        save_city(city, aside)
        if calibration is not None:
            save_calibration(aside / CALIBRATION, calibration)
    print(out)


@app.command()
def check(folder: Folder) -> None:
    """Check every row of a city folder, and print what a planner looks at first and what looks
    wrong.

    With SUMO installed, also compile the network and check that the roads of a service connect.
    """
    from evenline.city.overview import overview
    from evenline.city.tables import load_city
    from evenline.support.errors import InputError
    from evenline.worlds.sumo.runtime import installed_version
    from evenline.worlds.sumo.scenario import check_network

    city = load_city(folder)
    if installed_version() is not None:
        try:
            check_network(city)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None
    print_table(
        f"{folder}: in order",
        {
            "name": city.name,
            "services": ", ".join(service.id for service in city.services),
            "stops": f"{len(city.stops):,}",
            "trips": f"{len(city.trips):,}",
            "decisions per day": f"{city.decisions:,}",
            "journeys": f"{len(city.journeys):,}",
            "signals": f"{sum(node.signal for node in city.nodes):,}",
            "horizon, s": f"{city.horizon_s:,}",
            **({"day": f"{city.clock.date} {city.clock.zone}"} if city.clock is not None else {}),
        },
    )
    found = overview(city)
    for table in found.tables:
        print_columns(table.title, table.head, table.rows)
    for note in city.notes:
        print(f"note: {note}")
    for warning in found.warnings:
        print(f"warning: {warning}")


@app.command()
def demand(
    city: CityOption = "city",
    out: Annotated[Path | None, typer.Option(help="Also draw it to this PNG file.")] = None,
) -> None:
    """Print how many people set out by hour at demand 1.00; draw that and where they board."""
    from evenline.city.tables import open_city
    from evenline.figures.measure import people_setting_out
    from evenline.figures.plots import demand_profile, png
    from evenline.support.files import write_bytes

    opened = open_city(city)
    people = people_setting_out(opened)
    print(f"{opened.name}: people who set out at demand 1.00")
    for hour, count in enumerate(people, 1):
        print(f"hour {hour:<3} {count:8,}")
    print(f"in all   {people.sum():8,}")
    if out is not None:
        write_bytes(out, png(demand_profile(opened)))
        print(out)


@app.command()
def seal(folder: Folder) -> None:
    """Check every row of edited tables and write their hashes to the manifest."""
    from evenline.city.tables import seal_city

    seal_city(folder)
    print(folder)


@app.command()
def regime(
    city: CityOption = "city",
    seeds: Annotated[int, typer.Option(help="Number of seeds, each at three demand levels.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder that contains cities.md and images/.")] = Path(
        "docs"
    ),
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Measure days without holding and write the tables to cities.md. Run it again to continue.

    Exits with code 1 if the embedded city is not in its intended regime.
    """
    from evenline.experiments.regime import write_regime

    document, checks = write_regime(city, seeds, out, executor_of(executor, address, workers))
    for check in checks:
        print(check.said)
    print_notes(city, "sumo")
    print(document)
    if not all(check.holds for check in checks):
        raise typer.Exit(1)


# -- versions of SUMO -----------------------------------------------------------------------------


@runtime_app.command()
def install(
    version: Annotated[str, typer.Argument(help="The version to install, such as 1.25.0.")],
) -> None:
    """Install another version of SUMO."""
    from evenline.worlds.sumo.runtime import install_runtime

    with stderr.status(f"installing SUMO {version}"):
        folder = install_runtime(version)
    print(folder)


@runtime_app.command("list")
def list_runtimes() -> None:
    """List the SUMO versions that --sumo accepts."""
    from evenline.worlds.sumo.runtime import installed_version, runtimes_folder

    if own := installed_version():
        print(f"{own} (installed with evenline)")
    for libsumo in sorted(runtimes_folder().glob("*/libsumo")):
        print(f"{libsumo.parent.name} {libsumo.parent}")
