"""The one kind of error a user is meant to read.

`InputError` carries a single line that names the file, row or value at fault and, where it
helps, what to do next. The command line prints it and exits with code 2; everything else that
is raised is a defect of ours and keeps its traceback.
"""


class InputError(Exception):
    """Bad input, said in one line."""
