"""Progress bars that show the remaining time; silent if standard error is not a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

stderr = Console(stderr=True)


@contextmanager
def progress_bar(counted: bool = True) -> Iterator[Progress]:
    """A bar on standard error: description, bar, count (or percent), time spent and left."""
    count = MofNCompleteColumn() if counted else TextColumn("{task.percentage:>3.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), count)
    left = (
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, *left, console=stderr, disable=not stderr.is_terminal) as bar:
        yield bar
