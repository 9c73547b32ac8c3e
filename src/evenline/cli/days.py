"""Commands that run days: one day, a first comparison, the replay, the calibration."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    AddressOption,
    BlocksOption,
    CalibrationOption,
    CityOption,
    ExecutorOption,
    ForceOption,
    OutOption,
    ShardOption,
    SumoOption,
    WorkersOption,
    WorldOption,
    executor_of,
    print_notes,
    print_table,
)
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar, stderr


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
    from evenline.experiments.simulate import simulate as run
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
    print_notes(city, world, calibration)
    print(folder)


def demo(
    city: CityOption = "town",
    blocks: BlocksOption = 3,
    out: Annotated[Path, typer.Option(help="Folder for the result.")] = Path("results/demo"),
    force: ForceOption = False,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Compare no holding with the headway rule on a few days; write one HTML page."""
    from evenline.experiments.demo import demo as run

    print(run(city, blocks, out, executor_of(executor, address, workers), force))


def collect(
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="Folder for the store.")] = None,
    blocks: Annotated[int | None, typer.Option(help="Number of blocks, if fewer than ten.")] = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
    shard: ShardOption = "1/1",
) -> None:
    """Collect the replay in SUMO: 8 behaviours x 10 blocks x 3 demand levels. Run it again to
    continue.
    """
    from evenline.experiments.collect import collect as run
    from evenline.experiments.collect import missing_episodes, planned
    from evenline.runs.executors import Shard

    folder = out or Path("results") / f"replay-{Path(city).name}"
    todo, every = missing_episodes(folder, city, blocks), planned(folder, city, blocks)
    with progress_bar() as bar:
        task = bar.add_task(f"replay {city}", total=len(every), completed=len(every) - len(todo))
        failures = run(
            folder,
            city,
            blocks,
            executor_of(executor, address, workers),
            on_end=lambda ended: bar.advance(task),
            shard=Shard.parse(shard),
        )
    for failure in failures:
        stderr.print(f"failed: {failure.job.name}: {failure.error}")
    if failures:
        raise InputError(f"{folder}: {len(failures)} episodes failed; run the same command again")
    print(folder)


def calibrate(
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="Folder for the calibration.")] = None,
    blocks: Annotated[int, typer.Option(help="Number of blocks, each with four days.", min=1)] = 8,
    force: ForceOption = False,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
    shard: ShardOption = "1/1",
) -> None:
    """Fit the fast world to SUMO and plot the fit. Run it again to continue."""
    from evenline.experiments.calibrate import calibrate as run
    from evenline.experiments.calibrate import place_in_city
    from evenline.runs.executors import Shard

    folder = out or Path("results") / f"calibration-{Path(city).name}"
    chosen = executor_of(executor, address, workers)
    part = Shard.parse(shard)
    found, passing = run(city, folder, blocks, chosen, part, force)
    rows = {k: f"{v:,}" for k, v in found.residuals.items()}
    rows |= {f"overtaking_share_{world}": f"{share:.4f}" for world, share in passing.items()}
    print_table(f"calibration of {city}", rows)
    print_notes(city, "sumo")
    print(place_in_city(city, folder / "calibration.json"))
