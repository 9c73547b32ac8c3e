"""Commands that run days: one day, and a first comparison."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    AddressOption,
    CalibrationOption,
    CityOption,
    ExecutorOption,
    ForceOption,
    OutOption,
    SumoOption,
    WorldOption,
    executor_of,
    print_table,
)


def simulate(
    city: CityOption = "town",
    world: WorldOption = "sumo",
    policy: Annotated[
        str, typer.Option(help="A policy: a name, a bundle's folder, or FILE.py:FUNCTION.")
    ] = "zero",
    seed: Annotated[
        int, typer.Option(help="Random seed of the day: passengers, cars and drivers.")
    ] = 1,
    demand: Annotated[float, typer.Option(help="Demand level, up to 1.25.")] = 1.0,
    exact: Annotated[
        bool, typer.Option("--exact", help="The day that an imported SUMO scenario describes.")
    ] = False,
    sumo: SumoOption = None,
    calibration: CalibrationOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Run one day; write its outcome, stop visits and time-space diagram."""
    from evenline.city.cells import demo_cell
    from evenline.city.tables import open_city
    from evenline.experiments.simulate import day_notes
    from evenline.experiments.simulate import simulate as run
    from evenline.worlds.open import open_city as open_calibrated
    from evenline.worlds.sumo.carried import exact_cell

    cell = exact_cell(open_city(city)) if exact else demo_cell(seed, demand)
    name = f"{Path(city).name}-{Path(world).stem}-{Path(policy).name}-{cell.name}"
    folder = out or Path("results") / "simulate" / name
    chosen = executor_of(executor, address, None)
    answer = run(city, world, policy, cell, folder, sumo, calibration, chosen, force)
    outcome = answer.outcome
    print_table(
        f"{city}, {policy}, seed {cell.sumo_seed}, demand {cell.demand:.2f} "
        f"({world if world != 'sumo' else f'SUMO {answer.simulator.version}'})",
        {
            "generalized time Y, s per passenger": f"{outcome.generalized_s:,.1f}",
            "completion": f"{outcome.completion:.4f}",
            "unfinished of departed passengers": f"{outcome.unfinished:,} of {outcome.departed:,}",
            "decisions": f"{outcome.decisions:,}",
        },
    )
    for note in day_notes(open_calibrated(city, calibration), world, cell, outcome):
        print(f"note: {note}")
    print(folder)
