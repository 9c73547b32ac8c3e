"""The error that users see.

The message of an `InputError` is one line that names the file, row or value at fault and says what
to do. The command line prints it and exits with code 2. Any other exception is a bug and keeps its
traceback.
"""

from collections.abc import Iterable


def shown(text: str, keep: str = "") -> str:
    """Text for people to read: control characters are escaped, except those of `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


class InputError(Exception):
    """Bad input, described in one line: line breaks and the like in a value are shown escaped."""

    def __str__(self) -> str:
        return shown(super().__str__())


class SimulatorError(InputError):
    """A simulator failed during a day; the same day may succeed at the next try."""


def choice(names: Iterable[str]) -> str:
    """Format names to choose from for a message: 'a', 'b' or 'c'."""
    *most, last = [repr(name) for name in names] or ["none"]
    return f"{', '.join(most)} or {last}" if most else last
