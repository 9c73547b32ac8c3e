"""Tables inside documents: the text between two marks is replaced, and the rest stays."""

from collections.abc import Iterable, Sequence

from evenline.figures.document import insert

__all__ = ["insert", "markdown_table"]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table: its first column is text, the others are numbers."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(map(str, row))} |" for row in (head, marks, *rows)]
