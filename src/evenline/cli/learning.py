"""The command that learns."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    CalibrationOption,
    CityOption,
    WidthsOption,
    print_notes,
    print_table,
    widths_of,
)


def train(
    city: CityOption = "town",
    learner: Annotated[
        str, typer.Option(help="Learners by name, all, or FILE.py:FUNCTION.")
    ] = "v14",
    seeds: Annotated[str, typer.Option(help="Training seeds, such as 6201-6205.")] = "6201-6205",
    replay: Annotated[Path | None, typer.Option(help="Folder of the replay.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run.")] = None,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    iql_updates: Annotated[int, typer.Option(help="Number of IQL updates on the replay.")] = 50_000,
    events: Annotated[
        int, typer.Option(help="Number of simulated decisions per learner.")
    ] = 25_000,
    lesson_updates: Annotated[
        int, typer.Option(help="Number of updates in each round of lessons (taught).")
    ] = 6_000,
    widths: WidthsOption = "128,256,256",
    blocks: Annotated[
        int, typer.Option(help="Number of fresh blocks to measure the actors on.")
    ] = 3,
    centred: Annotated[
        bool, typer.Option(help="Subtract what a day without holding costs at the same time.")
    ] = False,
    chain: Annotated[
        str, typer.Option(help="Chain behind which lessons are taken (taught).")
    ] = "raw",
    calibration: CalibrationOption = None,
) -> None:
    """Train policies on a replay and in the fast world. Run it again to continue."""
    from evenline.experiments.train import run_training
    from evenline.learn.schedule import Budget

    folder = out or Path("results") / f"train-{Path(city).name}"
    whole = Budget()
    warmup = round(events * whole.warmup_events / whole.events)
    budget = Budget(iql_updates, warmup, events, lesson_updates=lesson_updates)
    summary = run_training(
        city, learner, seeds, replay, folder, device, budget, widths_of(widths),
        blocks, calibration, centred, chain,
    )  # fmt: skip
    print_table(
        f"Actors of {Path(city).name} on fresh days of the fast world",
        {
            name: f"{row['generalized_s']:,.1f} s, completion {row['completion']:.4f},"
            f" mean hold {row['mean_hold_s']:.2f} s"
            for name, row in summary["curve"].items()
            if "-at-" not in name
        },
    )
    print_notes(city, "fast", calibration)
    print(folder)
