"""The commands `evenline study run`, `status` and `plan`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from evenline.cli.options import AddressOption, ExecutorOption, WorkersOption, executor_of
from evenline.support.terminal import stderr, stdout, words

if TYPE_CHECKING:
    from evenline.study.engine import Standing, Study

app = typer.Typer(no_args_is_help=True, help="Run a whole study with one command.")

PlanArgument = Annotated[str, typer.Argument(help="A plan file, or a built-in plan: town or city.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder of the study.")]


@app.command()
def run(
    plan: PlanArgument = "town",
    out: OutOption = None,
    first: Annotated[
        str | None, typer.Option("--from", help="Run this step and all later steps again.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stop after this step.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only print what would run, and why.")] = False,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Run the steps of a study that are missing or out of date. Run it again to continue."""
    from evenline.study.engine import open_study, refuse_early, run_study
    from evenline.study.plan import find_plan
    from evenline.study.steps import steps_of

    study = open_study(find_plan(plan), out, executor_of(executor, address, workers))
    _say_missing(study)
    if dry_run:
        _show(study, refuse_early(study, steps_of(study.plan), first, until))
        return
    try:
        whole = run_study(study, steps_of(study.plan), first, until, _say)
    except KeyboardInterrupt:
        _say(f"stopped; run the same command{' without --from' if first else ''} to continue")
        raise typer.Exit(130) from None
    print(study.folder / "report.html" if whole else study.folder)


@app.command()
def status(plan: PlanArgument = "town", out: OutOption = None) -> None:
    """Show the steps of a study: which are done, which would run and why, and how long each
    takes.
    """
    from evenline.study.engine import open_study, survey
    from evenline.study.plan import find_plan
    from evenline.study.steps import steps_of

    study = open_study(find_plan(plan), out)
    _show(study, survey(study, steps_of(study.plan)))


@app.command("plan")
def print_plan(plan: PlanArgument = "town") -> None:
    """Print a plan, to copy and change."""
    from evenline.study.plan import find_plan

    print(find_plan(plan).read_text(encoding="utf-8"), end="")


def _show(study: "Study", standings: "Sequence[Standing]") -> None:
    from evenline.study.engine import in_words

    table = Table(title=f"study {study.plan.name} in {study.folder}", title_justify="left")
    for column in ("step", "needs", "state", "took", "will take"):
        table.add_column(column)
    for now in standings:
        maybe = now.reason is not None and now.reason.startswith("if ")
        state = words(now.reason or "done", "dim" if maybe else "" if now.reason else "green")
        took = in_words(now.took_s) if now.took_s else ""
        will = f"about {in_words(now.left_s)}" if now.reason else ""
        table.add_row(now.step.name, words(", ".join(now.step.needs), "dim"), state, took, will)
    stdout.print(table)
    left_s = sum(now.left_s for now in standings)
    _say(f"about {in_words(left_s)} left" if left_s else "everything is up to date")


def _say_missing(study: "Study") -> None:
    """Warn about optional inputs that are missing before they cost hours."""
    reuse, replay = study.plan.replay.reuse, study.folder / "replay"
    if reuse and not replay.exists() and not Path(study.plan.place(reuse)).is_dir():
        _say(
            f"replay: reuse = {reuse!r}: not found next to the plan or above it; it will be "
            "collected"
        )


def _say(line: str) -> None:
    """Print one line on standard error, without wrapping."""
    stderr.print(line, soft_wrap=True)
