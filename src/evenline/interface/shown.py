"""How the objects of the Python interface look: as text in a terminal, as tables in a notebook."""

import html
from collections.abc import Mapping


def facts(title: str, rows: Mapping[str, str]) -> str:
    """A title, and under it names with their values."""
    width = max(len(name) for name in rows)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in rows.items())])


def html_facts(title: str, rows: Mapping[str, str]) -> str:
    """Names with their values, for a notebook."""
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"
