"""The command `evenline city import sumo`."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import ForceOption, NameOption, OutFolder
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

    SUMO runs the scenario once, to see its buses and people. What is left out is listed. It runs in
    a process of its own, with limits of time and memory.
    """
    from evenline.cli.importing import finish
    from evenline.experiments.importing import import_sumo as read_scenario
    from evenline.importing.imported import Imported
    from evenline.runs.worker import Said

    def read(name: str) -> Imported:
        with progress_bar(counted=False) as bar:
            task = bar.add_task(f"SUMO runs {config.name}", total=None)

            def advance(progress: Said) -> None:
                words = (
                    f"SUMO runs {config.name}: {progress.now_s:,} s, {progress.left:,} on the way"
                )
                bar.update(task, total=progress.end_s, completed=progress.now_s, description=words)

            return read_scenario(config, name, end, advance)

    finish(read, out, demand, passengers, seed, name=name, force=force)
