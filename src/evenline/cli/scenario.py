"""Commands for SUMO scenarios: import one as a city, and compare a day of ours with SUMO's own."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import CityOption, ForceOption, NameOption, OutFolder, print_table
from evenline.cli.people import PassengersOption, SeedOption
from evenline.support.progress import progress_bar

ConfigArgument = Annotated[Path, typer.Argument(help="The scenario's .sumocfg file.")]


def import_sumo(
    config: ConfigArgument,
    out: OutFolder,
    end: Annotated[
        int | None, typer.Option(help="Second at which the day ends (default: the scenario's).")
    ] = None,
    demand: Annotated[
        str | None,
        typer.Option(help="Other people: gravity, or a CSV file (default: the scenario's own)."),
    ] = None,
    passengers: PassengersOption = None,
    seed: SeedOption = 1,
    name: NameOption = None,
    force: ForceOption = False,
) -> None:
    """Import a SUMO scenario as a city folder: network, signals, stops, buses, people, traffic.

    SUMO runs the scenario once, to see its buses and people. What is left out is listed.
    """
    from evenline.city.importers.imported import Imported
    from evenline.cli.importing import finish
    from evenline.worlds.sumo.importing import import_scenario

    def read(name: str) -> Imported:
        with progress_bar(counted=False) as bar:
            task = bar.add_task(f"SUMO runs {config.name}", total=None)

            def told(now_s: int, left: int, end_s: int | None) -> None:
                said = f"SUMO runs {config.name}: {now_s:,} s, {left:,} on the way"
                bar.update(task, total=end_s, completed=now_s, description=said)

            return import_scenario(config, name, end, told)

    finish(read, out, demand, passengers, seed, name=name, force=force)


def audit_scenario(config: ConfigArgument, city: CityOption) -> None:
    """Compare SUMO's own run of a scenario with our day without holds, arrival by arrival.

    Exits with code 1 if they differ.
    """
    from evenline.city.tables import open_city
    from evenline.experiments.agreement import compare_with_sumo

    opened = open_city(city)
    with progress_bar(counted=False) as bar:
        task = bar.add_task(f"{opened.name}, twice", total=opened.horizon_s)
        found = compare_with_sumo(config, opened, lambda now_s: bar.update(task, completed=now_s))
    print_table(
        f"{config} in SUMO and in {city}",
        {
            "buses and other vehicles that stopped": f"{found.vehicles:,}",
            "arrivals compared": f"{found.arrivals:,}",
            "of them reported as stop visits": f"{found.of_trips:,}",
            "differences": f"{found.differences:,}",
        },
    )
    for line in found.first:
        print(line)
    if found.differences:
        raise typer.Exit(1)
