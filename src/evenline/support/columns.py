"""A table as text: rows of strings, its head first, in aligned columns or as Markdown.

The first `text` columns are words and stand left; the others are numbers and stand right.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

Rows = Sequence[Sequence[str]]


def aligned(rows: Rows, text: int = 1) -> list[str]:
    """The lines of a table in plain columns, which may be wide."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            value.ljust(width) if place < text else value.rjust(width)
            for place, (value, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown(rows: Sequence[Sequence[object]], text: int = 1) -> list[str]:
    """The lines of a table in Markdown."""
    head, *body = rows
    marks = ["---"] * text + ["---:"] * (len(head) - text)
    return [f"| {' | '.join(map(str, row))} |" for row in (head, marks, *body)]


@dataclass(frozen=True)
class TextTable:
    """A table with a title and notes, as text in a terminal and as HTML in a notebook."""

    title: str
    rows: Rows
    notes: tuple[str, ...] = ()
    text: int = 1

    def __str__(self) -> str:
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([self.title, *aligned(self.rows, self.text), *notes])

    def _repr_html_(self) -> str:
        head, *body = self.rows
        lines = [_html_row(head, "th"), *(_html_row(row, "td") for row in body)]
        notes = "".join(f"<p>note: {html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}{''.join(lines)}</table>{notes}"


def _html_row(values: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(value)}</{tag}>' for value in values)}</tr>"
