"""Commands for the replay: collect it in SUMO, check what it claims, export it."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    AddressOption,
    CityOption,
    ExecutorOption,
    ForceOption,
    OutOption,
    ReplayOption,
    ShardOption,
    WorkersOption,
    executor_of,
    print_notes,
)
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.support.terminal import stderr

app = typer.Typer(no_args_is_help=True, help="Collect, check and export a replay of SUMO days.")


@app.command()
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

    folder = out or _default_store(city)
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


@app.command()
def check(
    city: CityOption = "town",
    replay: ReplayOption = None,
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Check every claim about a replay from its files. Exits with code 1 if one fails."""
    from evenline.experiments.replay_audit import write_audit

    store = replay or _default_store(city)
    folder = out or Path("results") / f"audit-{Path(city).name}"
    with stderr.status(f"reading {store}"):
        figures = write_audit(store, city, folder, None, force)
    for figure in figures:
        verdict = {True: "pass", False: "FAIL", None: ""}[figure.passed]
        print(f"{figure.name:45} {figure.text():>34}   paper {figure.paper_text():>12}  {verdict}")
    print_notes(city, "sumo")
    print(folder / "replay.html")
    if any(figure.passed is False for figure in figures):
        raise typer.Exit(1)


@app.command()
def export(
    city: CityOption = "town",
    replay: ReplayOption = None,
    minari: Annotated[
        Path | None, typer.Option(help="Write a Minari dataset below this folder.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Export only this many episodes.")] = None,
) -> None:
    """Write a replay in the format of another library."""
    from evenline.city.tables import open_city
    from evenline.replay.export import export_minari
    from evenline.replay.store import open_store

    if minari is None:
        raise InputError("choose a format, such as --minari FOLDER")
    store = open_store(replay or _default_store(city), open_city(city))
    with stderr.status(f"writing {minari}"):
        print(export_minari(store, f"evenline/{Path(city).name}-v0", minari, episodes))


def _default_store(city: str) -> Path:
    return Path("results") / f"replay-{Path(city).name}"
