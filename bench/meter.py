"""What the meters share: the best of several runs, and where figures go.

Other work on a machine can only slow a run down, so the fastest of several runs counts.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evenline.figures.document import insert
from evenline.support.columns import markdown

Figures = dict[str, Any]
RepeatsOption = Annotated[int, typer.Option(min=1, help="Number of runs; the best one counts.")]
DocsOption = Annotated[Path | None, typer.Option(help="Also write the figures to this document.")]


def seconds_of(run: Callable[[], object]) -> float:
    """How long one run takes by the clock."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def least_s(run: Callable[[], object], repeats: int) -> float:
    """How long the fastest of several runs takes."""
    return min(seconds_of(run) for _ in range(repeats))


def write_figures(document: Path, mark: str, command: str, lines: Sequence[str]) -> None:
    """Write lines between the marks of a document, below the command that made them."""
    insert(document, mark, "\n".join([f"Made by `{command} --docs {document}`.", "", *lines]))


def figure_table(figures: Figures) -> list[str]:
    """A table of names and values; a value that has parts gets a row for each of them."""
    rows: list[tuple[str, object]] = []
    for name, value in figures.items():
        parts = value.items() if isinstance(value, dict) else None
        rows += [(name, value)] if parts is None else [(f"{name}.{k}", v) for k, v in parts]
    return markdown([("Figure", "Value"), *rows])


def print_figures(figures: Figures) -> None:
    """Print figures as JSON."""
    print(json.dumps(figures, indent=1))
