"""The command line: parse, call, print.

An `InputError`, a wrong path and a wrong usage each become one line and exit code 2.
"""

import sys
from typing import Annotated, Any, NoReturn

import typer

from evenline.cli import city, days, learning, live, policy, replay, report, study, trial
from evenline.cli.sumo import sumo
from evenline.support.errors import InputError
from evenline.support.terminal import plain_streams

# Click's UsageError; newer versions of Typer contain Click, older ones import it.
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Simulate, train and test bus holding policies that keep buses evenly spaced.",
)
for command in (
    *(days.simulate, policy.compare, policy.whatif, policy.tune, learning.train),
    *(report.report, sumo),
):
    app.command()(command)
for name, room in (
    ("city", city.app),
    ("replay", replay.app),
    ("policy", policy.app),
    ("trial", trial.app),
    ("study", study.app),
    ("shadow", live.app),
):
    app.add_typer(room, name=name)


@app.callback()
def settings(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Handle options that every command accepts."""


@plain_streams()
def main(commands: typer.Typer = app, name: str = "evenline") -> NoReturn:
    """Run a command line; print a user's error as one line."""
    debug = "--debug" in sys.argv
    try:
        arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
        code = commands(args=arguments, prog_name=name, standalone_mode=False)
    except USAGE_ERROR as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # that one has printed the help
            print(f"{name}: {_usage(error)}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except (InputError, OSError) as error:
        # A path that cannot be read or written is bad input, too.
        if debug:
            raise
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code or 0)


def _usage(error: Any) -> str:
    """What is wrong with the arguments, and the command that explains them."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    command = error.ctx.command_path if error.ctx else "evenline"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"
