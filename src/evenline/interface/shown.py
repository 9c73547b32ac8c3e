"""How the objects of the Python interface look: as text in a terminal, as tables in a notebook."""

import html
from collections.abc import Mapping, Sequence


def facts(title: str, rows: Mapping[str, str]) -> str:
    """A title, and under it names with their values."""
    width = max(len(name) for name in rows)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in rows.items())])


def columns(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A title, and under it a table with its heading first; the first column is text."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def html_facts(title: str, rows: Mapping[str, str]) -> str:
    """Names with their values, for a notebook."""
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"


def html_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A table with its heading first, for a notebook."""
    head, *rest = rows
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>"
        for row in rest
    )
    return f"<table><caption>{html.escape(title)}</caption><tr>{cells}</tr>{body}</table>"
