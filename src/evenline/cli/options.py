"""Options and printing that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from evenline.runs.executors import Executor

CityOption = Annotated[str, typer.Option("--city", help="An embedded city, or a city folder.")]
CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", help="A calibration file; the city's own if not given."),
]
WorldOption = Annotated[
    str, typer.Option("--world", help="fast, sumo, or your own world as FILE.py:FUNCTION.")
]
SumoOption = Annotated[str | None, typer.Option("--sumo", help="Another SUMO version.")]
ReplayOption = Annotated[Path | None, typer.Option("--replay", help="The replay's folder.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="The result's folder.")]
DocsOption = Annotated[
    Path | None, typer.Option("--docs", help="A document to write the result into.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", help="Worker processes; all cores if not given.")
]
ExecutorOption = Annotated[str, typer.Option("--executor", help="processes or ray.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="The Ray cluster, such as auto or HOST:6379.")
]
ShardOption = Annotated[
    str, typer.Option("--shard", help="Run one part of the days, such as 2/8; for batch queues.")
]


def executor_of(executor: str, address: str | None, workers: int | None) -> "Executor":
    """The executor that the options ask for."""
    from evenline.runs.executors import chosen_executor

    return chosen_executor(executor, address, workers)


def print_table(title: str, rows: dict[str, str]) -> None:
    """A table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
