"""Commands for SUMO scenarios: import one as a city, and compare a day of ours with SUMO's own."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import CityOption, ForceOption, print_table
from evenline.support.progress import progress_bar, stderr

ConfigArgument = Annotated[Path, typer.Argument(help="The scenario's .sumocfg file.")]


def import_sumo(
    config: ConfigArgument,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    end: Annotated[
        int | None, typer.Option(help="Second at which the day ends (default: the scenario's).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the city (default: its folder).")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Make a city from a SUMO scenario: its network, signals, stops, buses, people and traffic.

    SUMO runs the scenario once, to see its buses and people.
    """
    from dataclasses import replace

    from evenline.city.tables import save_city
    from evenline.support.files import result_folder
    from evenline.worlds.sumo.importing import import_scenario

    with progress_bar(counted=False) as bar:
        task = bar.add_task(f"SUMO runs {config.name}", total=None)

        def told(now_s: int, left: int) -> None:
            said = f"SUMO runs {config.name}, {now_s:,} s, {left:,} on the way"
            bar.update(task, total=end, completed=now_s, description=said)

        made = import_scenario(config, end, told)
    city = replace(made.city, name=name or made.city.name)
    with result_folder(out, force) as aside:
        save_city(city, aside)
    for line in made.left_out:
        stderr.print(line, markup=False, highlight=False, soft_wrap=True)
    lines = dict.fromkeys(service.route for service in city.services)
    print_table(
        f"{config}: imported",
        {
            "lines": f"{len(lines):,}: {', '.join(lines)}",
            "services": f"{len(city.services):,}",
            "stops": f"{len(city.stops):,}",
            "trips": f"{len(city.trips):,}",
            "bus types": f"{len(city.vehicles):,}",
            "rides at demand 1.00": f"{int((city.journeys.min_demand <= 1).sum()):,}",
            "horizon, s": f"{city.horizon_s:,}",
        },
    )
    print(out)


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
