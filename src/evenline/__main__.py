"""The `evenline` command, also as `python -m evenline` where nothing is installed.

While its modules are imported, Ctrl-C ends it at once, as it ends a program without Python.
"""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Import the commands and run the one that is asked for."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from evenline.cli.main import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
