"""What a person's terminal shows: text from data is text there, never markup and never a control
code.

Tables and messages of Rich go through `stdout` and `stderr`; everything that is printed while a
command runs goes through `plain_streams`. Both escape what `shown` escapes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text

from evenline.support.errors import shown

LAYOUT = "\n\t\x7f"  # of our own text; a terminal ignores the last one, which JSON may contain


def words(text: str, style: str = "") -> Text:
    """Text for a console, as it is."""
    return Text(shown(text, LAYOUT), style)


class Terminal(Console):
    """A console that takes every string as plain text; only a `Text` has a style. The cells of a
    table are never cut off.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        for table in objects:
            for column in table.columns if isinstance(table, Table) else ():
                column.overflow = "fold"
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(shown(text, LAYOUT), **options | {"markup": False})

    def status(self, status: RenderableType, **options: Any) -> Status:
        return super().status(words(status) if isinstance(status, str) else status, **options)


stdout, stderr = Terminal(), Terminal(stderr=True)


class _Plain:
    """A stream that writes control codes as text; consoles, which escape by themselves, pass it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # where Rich looks for the stream itself

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(shown(text, LAYOUT))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Escape what is printed in this block."""
    out, err = (cast(TextIO, _Plain(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
