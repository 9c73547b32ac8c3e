"""The door: parse, call, print. An `InputError` becomes one line and exit code 2."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from evenline.errors import InputError
from evenline.progress import progress_bar, stderr

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn, deploy and prove bus holding policies that keep buses evenly spaced.",
)

CityOption = Annotated[str, typer.Option("--city", help="An embedded city, or a city folder.")]
WorkersOption = Annotated[
    int | None, typer.Option(help="Worker processes; all cores if not given.")
]


@app.callback()
def settings(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Options that go before any command."""


@app.command()
def collect(
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="The store's folder.")] = None,
    blocks: Annotated[int | None, typer.Option(help="Fewer than the ten blocks.")] = None,
    workers: WorkersOption = None,
) -> None:
    """Collect the replay in SUMO: 8 behaviours x 10 blocks x 3 demand levels. Resumes."""
    from evenline.replay.collect import collect as run
    from evenline.replay.collect import missing_episodes, planned

    folder = out or Path("results") / f"replay-{Path(city).name}"
    todo, every = missing_episodes(folder, city, blocks), planned(folder, city, blocks)
    with progress_bar() as bar:
        task = bar.add_task(f"replay {city}", total=len(every), completed=len(every) - len(todo))
        failures = run(folder, city, blocks, workers, on_result=lambda result: bar.advance(task))
    for failure in failures:
        stderr.print(f"failed: {failure.job.name}: {failure.error}")
    if failures:
        raise InputError(f"{folder}: {len(failures)} episodes failed; run the same command again")
    print(folder)


def main() -> NoReturn:
    """Run the command line; turn a user's error into one line."""
    debug = "--debug" in sys.argv
    try:
        app(standalone_mode=True)
    except InputError as error:
        if debug:
            raise
        print(f"evenline: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
