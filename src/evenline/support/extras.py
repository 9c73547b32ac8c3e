"""Packages that a plain installation leaves out: each belongs to an extra of `pyproject.toml`.

They are imported only inside `with extra(NAME):`, which turns a missing one into one line with the
command that installs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from evenline.support.errors import InputError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import packages of an extra inside this block."""
    try:
        yield
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise InputError(
            f"{package} is not installed; install it with: pip install 'evenline[{name}]'"
        ) from None
