"""Commands that learn: train, teach, and the document of a training run."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import CalibrationOption, CityOption, print_table
from evenline.support.errors import InputError


def train(
    city: CityOption = "town",
    learner: Annotated[
        str, typer.Option(help="Learners by name, all, or FILE.py:FUNCTION.")
    ] = "v14",
    seeds: Annotated[str, typer.Option(help="Training seeds, such as 6201-6205.")] = "6201-6205",
    replay: Annotated[Path | None, typer.Option(help="The replay's folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder.")] = None,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    iql_updates: Annotated[int, typer.Option(help="Updates on the replay alone.")] = 50_000,
    events: Annotated[int, typer.Option(help="Simulated decisions of each learner.")] = 25_000,
    widths: Annotated[str, typer.Option(help="Slot, fused and hidden widths.")] = "128,256,256",
    diagnostic: Annotated[bool, typer.Option(help="Also train the domain classifiers.")] = True,
    blocks: Annotated[int, typer.Option(help="Fresh blocks the actors are measured on.")] = 3,
    calibration: CalibrationOption = None,
) -> None:
    """Train holding policies from a replay and the fast world; run it again to go on."""
    from evenline.experiments.train import run_training
    from evenline.learn.schedule import Budget

    folder = out or Path("results") / f"train-{Path(city).name}"
    sizes = [int(width) for width in widths.split(",") if width.isdigit()]
    if len(sizes) != 3:
        raise InputError(f"widths {widths!r}: write three numbers, such as 128,256,256")
    whole = Budget()
    budget = Budget(iql_updates, round(events * whole.warmup_events / whole.events), events)
    found = run_training(
        city, learner, seeds, replay, folder, device, budget, (sizes[0], sizes[1], sizes[2]),
        diagnostic, blocks, calibration,
    )  # fmt: skip
    print_table(
        f"Actors of {Path(city).name} on fresh days of the fast world",
        {
            name: f"{row['generalized_s']:,.1f} s, completion {row['completion']:.4f},"
            f" mean hold {row['mean_hold_s']:.2f} s"
            for name, row in found["curve"].items()
            if "-at-" not in name
        },
    )
    print(folder)


def teach(
    actor: Annotated[Path, typer.Argument(help="The actor to start from (.safetensors).")],
    out: Annotated[Path, typer.Option(help="Where the taught actor goes.")],
    city: CityOption = "city",
    seed: Annotated[int, typer.Option(help="Training seed: which days, which minibatches.")] = 6201,
    days: Annotated[int, typer.Option(help="Simulated days of lessons.")] = 9,
    calibration: CalibrationOption = None,
) -> None:
    """Improve an actor by the simulator's counterfactuals: every hold tried on the same luck."""
    from evenline.experiments.train import teach_actor

    teach_actor(actor, out, city, seed, days, calibration)
    print(out)


def curves(
    run: Annotated[Path, typer.Argument(help="A finished training run.")],
    docs: Annotated[Path, typer.Option(help="The document to write tables and figure into.")],
    city: CityOption = "city",
    learner: Annotated[str, typer.Option(help="The learner whose curve is drawn.")] = "v14",
) -> None:
    """Show what a training run came to: a table by learner, curves, the diagnostic."""
    from evenline.experiments.learning import write_learning

    write_learning(run, Path(city).name, learner, docs)
    print(docs)
