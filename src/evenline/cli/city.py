"""Commands for cities, and for other versions of SUMO."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    AddressOption,
    CityOption,
    ExecutorOption,
    ForceOption,
    WorkersOption,
    executor_of,
    print_table,
)
from evenline.support.progress import stderr

app = typer.Typer(no_args_is_help=True, help="Build, check, seal and measure cities.")
runtime_app = typer.Typer(no_args_is_help=True, help="Install and list other versions of SUMO.")

Folder = Annotated[Path, typer.Argument(help="A city folder.")]


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="An embedded city.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    force: ForceOption = False,
) -> None:
    """Write an embedded city as a folder of tables."""
    from evenline.city.embedded import embedded_city
    from evenline.city.tables import save_city
    from evenline.support.files import result_folder
    from evenline.worlds.calibration import save_calibration
    from evenline.worlds.open import CALIBRATION, open_city

    embedded_city(name)
    opened = open_city(name)
    with result_folder(out, force) as aside:
        save_city(opened.city, aside)
        if opened.calibration is not None:
            save_calibration(aside / CALIBRATION, opened.calibration)
    print(out)


@app.command()
def check(folder: Folder) -> None:
    """Check every row of a city folder and print a summary.

    With SUMO installed, also compile the network and check that the roads of a service connect.
    """
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
        },
    )


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
    """Measure days without holding and write the tables to cities.md. Run it again to continue."""
    from evenline.experiments.regime import write_regime

    print(write_regime(city, seeds, out, executor_of(executor, address, workers)))


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
