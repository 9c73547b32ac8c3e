"""Options and printing that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from evenline.support.columns import aligned
from evenline.support.errors import InputError
from evenline.support.terminal import stdout

if TYPE_CHECKING:
    from evenline.runs.executors import Executor

CityOption = Annotated[str, typer.Option("--city", help="An embedded city, or a city folder.")]
CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", help="Calibration file (default: the city's own)."),
]
WorldOption = Annotated[
    str, typer.Option("--world", help="fast, sumo, or your own world as FILE.py:FUNCTION.")
]
SumoOption = Annotated[
    str | None, typer.Option("--sumo", help="An installed SUMO version other than the default.")
]
ReplayOption = Annotated[Path | None, typer.Option("--replay", help="Folder of the replay.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Folder for the result.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The city folder to write.")]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the city (default: that of the folder).")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace files that you added or changed, too.")
]
DocsOption = Annotated[
    Path | None, typer.Option("--docs", help="Also write the result to this document.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
BlocksOption = Annotated[
    int, typer.Option("--blocks", help="Number of blocks, each at three demand levels.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", help="Number of worker processes (default: one per core)."),
]
ExecutorOption = Annotated[str, typer.Option("--executor", help="processes or ray.")]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="Address of the Ray cluster, such as auto or HOST:6379."),
]
WidthsOption = Annotated[
    str, typer.Option("--widths", help="Slot, fused and hidden widths of the network.")
]
ShardOption = Annotated[
    str, typer.Option("--shard", help="Run one part of the days, such as 2/8; for batch queues.")
]


def executor_of(executor: str, address: str | None, workers: int | None) -> "Executor":
    """Make the executor from the options."""
    from evenline.runs.executors import chosen_executor

    return chosen_executor(executor, address, workers)


def widths_of(text: str) -> tuple[int, int, int]:
    """Three widths from text such as 128,256,256."""
    sizes = [int(width) for width in text.split(",") if width.isdigit()]
    if len(sizes) != 3:
        raise InputError(f"widths {text!r}: give three numbers, such as 128,256,256")
    return sizes[0], sizes[1], sizes[2]


def print_notes(city: str, world: str, calibration: Path | None = None) -> None:
    """Print what a result of this city must say."""
    from evenline.worlds.open import open_city

    for note in open_city(city, calibration).notes(world):
        print(f"note: {note}")


def numbers_of(hours: str) -> tuple[float, ...]:
    """Demand by hour from text such as 13,105,197."""
    try:
        return tuple(float(hour) for hour in hours.split(","))
    except ValueError:
        raise InputError(
            f"--by-hour {hours!r}: must be numbers with commas between them, such as 13,105,197"
        ) from None


def print_table(title: str, rows: dict[str, str]) -> None:
    """A table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    stdout.print(table)


def print_columns(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table in plain columns, which may be wide; the first column is text."""
    print(f"\n{title}", *aligned([head, *rows]), sep="\n")
