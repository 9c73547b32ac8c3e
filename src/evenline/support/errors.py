"""The one kind of error a user is meant to read.

`InputError` carries a single line that names the file, row or value at fault and, where it
helps, what to do next. The command line prints it and exits with code 2; everything else that
is raised is a defect of ours and keeps its traceback.
"""

from collections.abc import Iterable


class InputError(Exception):
    """Bad input, said in one line."""


class SimulatorError(InputError):
    """A simulator that gave up on a day: the same day may pass at the next try."""


def choice(names: Iterable[str]) -> str:
    """Names to choose from, as a message says them: 'a', 'b' or 'c'."""
    *most, last = [repr(name) for name in names] or ["none"]
    return f"{', '.join(most)} or {last}" if most else last
