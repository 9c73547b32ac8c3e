"""Results inside documents: replace the text between marks and keep the rest."""

from pathlib import Path

from evenline.support.errors import InputError
from evenline.support.files import write_text


def insert(document: Path, mark: str, text: str) -> None:
    """Write a text between its two marks in a document; without marks, at the end."""
    begin, end = f"<!-- begin {mark} -->", f"<!-- end {mark} -->"
    old = document.read_text() if document.exists() else ""
    if (begin in old) != (end in old):
        raise InputError(
            f"{document} contains only one of the marks {begin} and {end}; add the other"
        )
    if begin not in old:
        old += f"{begin}\n{end}\n"
    before, _, rest = old.partition(begin)
    _, _, after = rest.partition(end)
    write_text(document, f"{before}{begin}\n{text}\n{end}{after}")
