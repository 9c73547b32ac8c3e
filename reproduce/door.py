"""The door of a module: `python -m reproduce.NAME` takes options as the package's commands do."""

from collections.abc import Callable
from typing import NoReturn

import typer

from evenline.cli.main import main


def commands_of(function: Callable[..., None]) -> typer.Typer:
    """The command line of one function."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(function)
    return app


def run(name: str, function: Callable[..., None]) -> NoReturn:
    """Run the function of a module with the arguments of this process."""
    main(commands_of(function), name)
