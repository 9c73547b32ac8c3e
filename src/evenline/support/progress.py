"""Progress bars that show the remaining time; silent if standard error is not a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from evenline.support.terminal import stderr, words


class _Description(TextColumn):
    """The description of a task as plain text, whatever it is made of."""

    def render(self, task: Task) -> Text:
        return words(task.description)


@contextmanager
def progress_bar(counted: bool = True) -> Iterator[Progress]:
    """A bar on standard error: description, bar, count (or percent), time spent and left."""
    count = MofNCompleteColumn() if counted else TextColumn("{task.percentage:>3.0f}%")
    columns = (_Description(""), BarColumn(), count)
    left = (
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, *left, console=stderr, disable=not stderr.is_terminal) as bar:
        yield bar
