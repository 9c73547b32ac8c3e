"""Results inside documents: text between marks is replaced, the prose around it stays."""

from pathlib import Path

from evenline.support.errors import InputError
from evenline.support.files import write_text


def insert(document: Path, mark: str, text: str) -> None:
    """Put a text between its two marks in a document; where there are none, at the end."""
    begin, end = f"<!-- begin {mark} -->", f"<!-- end {mark} -->"
    old = document.read_text() if document.exists() else ""
    if (begin in old) != (end in old):
        raise InputError(f"{document}: has only one of the marks {begin} and {end}")
    if begin not in old:
        old += f"{begin}\n{end}\n"
    before, _, rest = old.partition(begin)
    _, _, after = rest.partition(end)
    write_text(document, f"{before}{begin}\n{text}\n{end}{after}")
