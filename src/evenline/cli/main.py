"""The command line: parse, call, print. An `InputError` becomes one line and exit code 2."""

import sys
from typing import Annotated, NoReturn

import typer

from evenline.cli import audit, bench, city, days, learning, policy, report, study, trial
from evenline.support.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Simulate, train and test bus holding policies that keep buses evenly spaced.",
)
for command in (
    *(days.simulate, days.demo, days.collect, days.calibrate),
    *(learning.train, learning.teach, learning.curves),
    *(policy.tune, policy.compare, report.report),
):
    app.command()(command)
for name, room in (
    ("city", city.app),
    ("runtime", city.runtime_app),
    ("audit", audit.app),
    ("replay", audit.replay_app),
    ("bench", bench.app),
    ("policy", policy.app),
    ("trial", trial.app),
    ("study", study.app),
):
    app.add_typer(room, name=name)


@app.callback()
def settings(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Handle options that every command accepts."""


def main() -> NoReturn:
    """Run the command line; print a user's error as one line."""
    debug = "--debug" in sys.argv
    try:
        app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except (InputError, OSError) as error:
        # A path that cannot be read or written is bad input, too.
        if debug:
            raise
        print(f"evenline: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
