"""The commands `evenline study run`, `status` and `plan`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenline.cli.options import AddressOption, ExecutorOption, WorkersOption, executor_of
from evenline.support.progress import stderr

if TYPE_CHECKING:
    from evenline.study.engine import Step, Study

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
    from evenline.study.engine import chosen, open_study, refuse_seen, run_study
    from evenline.study.plan import find_plan
    from evenline.study.steps import steps_of

    path = find_plan(plan)
    study = open_study(path, out, executor_of(executor, address, workers))
    _say_missing(study)
    if dry_run:
        steps = chosen(steps_of(study.plan), first, until)
        refuse_seen(study, steps, first)
        _show(study, steps, first)
        return
    try:
        whole = run_study(study, path, steps_of(study.plan), first, until, _say)
    except KeyboardInterrupt:
        _say(f"stopped; run the same command{' without --from' if first else ''} to continue")
        raise typer.Exit(130) from None
    print(study.folder / "report.html" if whole else study.folder)


@app.command()
def status(plan: PlanArgument = "town", out: OutOption = None) -> None:
    """Show the steps of a study: which are done, which would run and why, and how long each
    takes.
    """
    from evenline.study.engine import open_study
    from evenline.study.plan import find_plan
    from evenline.study.steps import steps_of

    study = open_study(find_plan(plan), out)
    _show(study, steps_of(study.plan))


@app.command("plan")
def print_plan(plan: PlanArgument = "town") -> None:
    """Print a plan, to copy and change."""
    from evenline.study.plan import find_plan

    print(find_plan(plan).read_text(encoding="utf-8"), end="")


def _show(study: "Study", steps: "Sequence[Step]", first: str | None = None) -> None:
    from evenline.study.engine import survey

    table = Table(title=f"study {study.plan.name} in {study.folder}", title_justify="left")
    for column in ("step", "needs", "state", "took", "will take"):
        table.add_column(column)
    left_s = 0.0
    for standing in survey(study, steps, first):
        maybe = standing.reason is not None and standing.reason.startswith("if ")
        word = "done" if standing.reason is None else standing.reason
        took = _time(standing.done.seconds) if standing.done else ""
        will = "" if standing.reason is None else f"about {_time(standing.about_s)}"
        left_s += 0.0 if standing.reason is None else standing.about_s
        mark = "[green]done[/]" if word == "done" else f"[dim]{word}[/]" if maybe else word
        needs = ", ".join(standing.step.needs)
        table.add_row(standing.step.name, f"[dim]{needs}[/]", mark, took, will)
    Console().print(table)
    _say(f"about {_time(left_s)} left" if left_s else "everything is up to date")


def _say_missing(study: "Study") -> None:
    """Warn about optional inputs that are missing before they cost hours."""
    reuse, own = study.plan.replay.reuse, study.folder / "replay"
    if reuse and not own.exists() and not Path(study.plan.place(reuse)).is_dir():
        _say(
            f"replay: reuse = {reuse!r}: not found next to the plan or above it; it will be "
            "collected"
        )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _say(line: str) -> None:
    """Print one line on standard error, without wrapping."""
    stderr.print(line, soft_wrap=True, highlight=False, markup=False)
