"""The commands `evenline trial register`, `run`, `status`, `analyse`, `verify`, `close`, `note`,
`pack` and `unpack`.

All but the first compare with the registration, and show deviations and broken seals. None prints
an endpoint while the matrix is incomplete.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from evenline.cli.options import (
    AddressOption,
    ExecutorOption,
    ShardOption,
    WorkersOption,
    executor_of,
)
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.support.records import plain
from evenline.support.terminal import stderr, stdout

if TYPE_CHECKING:  # the analysis needs SciPy, which most commands do not
    from evenline.trial.analyse import Analysis, Effect, Figures

app = typer.Typer(no_args_is_help=True, help="Test a claim about a policy: register, run, analyse.")

TrialFolder = Annotated[Path, typer.Argument(help="Folder of the trial.")]


@app.command()
def register(
    plan: Annotated[str, typer.Argument(help="A plan file, or the name of a built-in plan.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the trial.")] = None,
    used_cells: Annotated[
        Path, typer.Option(help="File that lists the cells used by earlier trials.")
    ] = Path("results/used-cells.json"),
) -> None:
    """Register a plan before any outcome exists; refuse cells that another plan has used."""
    from evenline.study.plan import find_plan
    from evenline.trial.plan import read_plan
    from evenline.trial.registration import register as freeze

    path = find_plan(plan)
    folder = out or Path("results") / f"trial-{read_plan(path).name}"
    trial = freeze(path, folder, used_cells)
    _say(f"{trial.registered.jobs:,} jobs; registered as {trial.sha256}")
    _show_notices(folder)
    print(folder)


@app.command()
def run(
    folder: TrialFolder,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
    shard: ShardOption = "1/1",
    retry: Annotated[bool, typer.Option(help="Also run quarantined jobs.")] = False,
) -> None:
    """Run every job that has no record yet. Run it again to continue."""
    from evenline.runs.executors import Shard
    from evenline.trial import matrix
    from evenline.trial.registration import TrialJob, open_trial

    runner = executor_of(executor, address, workers)
    part, trial = Shard.parse(shard), open_trial(folder)
    done, jobs = matrix.standing(trial).done, trial.jobs()
    with progress_bar() as bar:
        total = bar.add_task("all blocks", total=len(jobs), completed=len(done))
        tasks = {}
        for block in dict.fromkeys(job.block for job in jobs.values()):
            tasks[block] = bar.add_task(
                f"block {block[0]}",
                total=sum(job.block == block for job in jobs.values()),
                completed=sum(job.block == block for job in done.values()),
            )

        def advance(job: TrialJob, finished: bool) -> None:
            if finished:
                bar.advance(tasks[job.block])
                bar.advance(total)

        progress = matrix.run(folder, runner, part, retry, advance)
    _show_notices(folder)
    for line in matrix.quarantine_lines(trial, progress):
        _say(line)
    if progress.quarantined:
        raise InputError(
            f"{folder}: {len(progress.quarantined)} jobs failed every try; fix the cause and run: "
            f"evenline trial run {folder} --retry"
        )
    _say(f"{len(progress.done):,} of {len(jobs):,} jobs done")
    print(folder)


@app.command()
def status(folder: TrialFolder) -> None:
    """Show the progress of each block, without outcomes."""
    from evenline.trial.matrix import quarantine_lines, read_record, standing
    from evenline.trial.registration import open_trial

    trial = open_trial(folder)
    progress, jobs = standing(trial), trial.jobs()
    table = Table(title=f"trial {trial.registered.name}", title_justify="left")
    for column in ("block", "done", "quarantined", "missing", "mean s per job"):
        table.add_column(column, justify="right")
    for block in dict.fromkeys(job.block for job in jobs.values()):
        parts = [
            {address: job for address, job in part.items() if job.block == block}
            for part in (progress.done, progress.quarantined, progress.missing)
        ]
        took = [read_record(trial, a, job).run.duration_s for a, job in parts[0].items()]
        pace = f"{sum(took) / len(took):.1f}" if took else ""
        table.add_row("{}-{}".format(*block), *(f"{len(part):,}" for part in parts), pace)
    lines = quarantine_lines(trial, progress)  # may be refused, before anything is shown
    stdout.print(table)
    for line in lines:
        print(line)
    _show_notices(folder)


@app.command()
def analyse(
    folder: TrialFolder,
    peek: Annotated[
        bool,
        typer.Option(help="Show results before the trial is complete; the journal records it."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    docs: Annotated[
        Path | None, typer.Option(help="Also write the result to this document.")
    ] = None,
) -> None:
    """Run the registered analysis. Exits with code 1 if the claim is not confirmed."""
    from evenline.trial import evidence

    if peek and docs is not None:
        raise InputError(
            "--peek and --docs cannot be combined: an unfinished trial cannot go into a document"
        )
    if peek:
        means = evidence.peek(folder)
        _show_notices(folder)
        _print_rows("means by method of the jobs done so far: seal broken", means)
        return
    analysis = evidence.write_analysis(folder)
    if as_json:
        print(json.dumps(plain(analysis)))
    else:
        _print_analysis(analysis)
        print(folder / evidence.ANALYSIS)
    if docs is not None:
        from evenline.report.trial import write_trial

        write_trial(docs, folder)
    _show_notices(folder)
    if not analysis.confirmed:
        raise typer.Exit(1)


@app.command()
def verify(
    folder: TrialFolder,
    root: Annotated[str | None, typer.Option(help="The root printed at closeout.")] = None,
    registration: Annotated[
        str | None, typer.Option(help="The hash printed at registration.")
    ] = None,
) -> None:
    """Check all hashes and figures with independent code. Exits with code 1 if one is wrong."""
    from evenline.support.files import to_json, write_text
    from evenline.trial.journal import CLOSEOUT
    from evenline.trial.verify import VERIFICATION, is_trial, summary
    from evenline.trial.verify import verify as check

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not is_trial(folder):
        raise InputError(f"{folder} has no trial.json; start with: evenline trial register PLAN")
    opinion = check(folder, root=root, registration=registration)
    for problem in opinion.problems:
        print(problem)
    if opinion.problems:
        raise typer.Exit(1)
    if not (folder / CLOSEOUT).exists() and not opinion.packed:
        write_text(folder / VERIFICATION, to_json(opinion.report))
    for notice in opinion.report["notices"]:
        _say(notice)
    for line in summary(opinion):
        print(line)


@app.command()
def close(folder: TrialFolder) -> None:
    """Close the trial: hash all files under one Merkle root and make them read-only."""
    from evenline.trial.closeout import closeout

    manifest = closeout(folder)
    _show_notices(folder)
    print(f"confirmed {'yes' if manifest.confirmed else 'no'}")
    print(f"results   {manifest.results_sha256}")
    print(f"root      {manifest.merkle_root}")


@app.command()
def note(
    folder: TrialFolder,
    why: Annotated[str, typer.Option(help="What happened, and why.")],
    by: Annotated[str, typer.Option(help="Who decides it.")],
    withdraw: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Give up the remaining days of this control. The completeness gate then fails.",
        ),
    ] = None,
) -> None:
    """Write to the journal: sign off changes to our source, withdraw a control, or add a remark."""
    from evenline.trial import registration

    if withdraw is not None:
        registration.withdraw(folder, withdraw, why, by)
    else:
        registration.deviate(folder, why, by)
    _show_notices(folder)


@app.command()
def pack(
    folder: TrialFolder,
    out: Annotated[Path, typer.Option(help="Folder of the packed trial, such as data/trial-city.")],
    tensors: Annotated[bool, typer.Option(help="Also pack the tensors of policies.")] = False,
) -> None:
    """Pack each finished block into one file, next to the registration or the closed trial.

    Run it again after more blocks: a packed file is never replaced.
    """
    from evenline.trial.packed import pack as compress

    packed = compress(folder, out, tensors)
    _show_notices(folder)
    _say(f"{len(packed.blocks)} of {packed.planned} blocks, {packed.bytes / 1e6:.2f} MB")
    if packed.detached:
        _say(f"{len(packed.detached)} files of tensors are detached; keep them elsewhere")
    print(out)


@app.command()
def unpack(
    packed: Annotated[Path, typer.Argument(help="Folder of a packed trial.")],
    out: Annotated[Path, typer.Option(help="New folder of the trial.")],
    tensors: Annotated[
        list[Path] | None, typer.Option(help="Folder to search for detached tensors; repeatable.")
    ] = None,
) -> None:
    """Unpack a trial into a new folder, to continue it on this machine."""
    from evenline.trial.matrix import standing
    from evenline.trial.packed import unpack as expand

    trial, missing = expand(packed, out, tensors or ())
    _show_notices(out)
    _say(f"{len(standing(trial).done):,} of {trial.registered.jobs:,} jobs done")
    for name in missing:
        _say(f"not found: {name} (SHA-256 {trial.registered.inputs[name]})")
    if missing:
        _say("the trial cannot continue without these files; name their folders with --tensors")
    print(out)


def _say(line: str) -> None:
    """Print one line on standard error, without wrapping."""
    stderr.print(line, soft_wrap=True)


def _show_notices(folder: Path) -> None:
    from evenline.trial.registration import notices

    for notice in notices(folder):
        _say(notice)


def _print_analysis(analysis: "Analysis") -> None:
    claim = analysis.claim
    table = Table(title="registered claim", title_justify="left")
    for column in ("test", "wins", "required", "p", "passed"):
        table.add_column(column)
    for row, label in (
        (claim.primary, "lower generalized time"),
        (claim.completion, "completion not inferior"),
    ):
        wins = f"{row.wins} of {row.blocks}"
        table.add_row(label, wins, str(row.required_wins), f"{row.p:.7f}", _yes(row.passed))
    table.add_row("both (intersection-union)", "", "", "", _yes(claim.intersection_union_passed))
    for gate, passed in analysis.gates.items():
        table.add_row(f"gate: {gate}", "", "", "", _yes(passed))
    table.add_row("confirmed", "", "", "", _yes(analysis.confirmed), style="bold")
    for gate, passed in analysis.robustness.items():
        table.add_row(f"beside the claim: {gate}", "", "", "", _yes(passed))
    stdout.print(table)
    _print_rows("means", analysis.means)
    differences = {"all": analysis.difference}
    differences |= {f"demand {level}": row for level, row in analysis.by_level.items()}
    differences |= {f"seed {seed}": row for seed, row in analysis.by_seed.items()}
    _print_rows("candidate minus parent", differences)
    if analysis.controls:
        controls = {
            f"{label} ({row.favourable_blocks} of {row.blocks} blocks favourable)": row.difference
            for label, row in analysis.controls.items()
        }
        _print_rows("candidate minus control (descriptive)", controls)
    _print_intervals(analysis.beyond_the_claim)


def _print_rows(title: str, rows: Mapping[str, "Figures"]) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("", "Y, s per passenger", "completion", "unfinished"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in rows.items():
        figures = (
            f"{row.generalized_s:,.2f}",
            f"{row.completion:.5f}",
            f"{row.unfinished:,.2f}",
        )
        table.add_row(name, *figures)
    stdout.print(table)


def _print_intervals(beyond: Mapping[str, "Effect"]) -> None:
    table = Table(
        title="effect over blocks (descriptive; not part of the registered claim)",
        title_justify="left",
    )
    for column in ("", "estimate", "from", "to", "confidence"):
        table.add_column(column, justify="right" if column else "left")
    for name, effect in beyond.items():
        for kind, row in (("hodges lehmann", effect.hodges_lehmann), ("bca mean", effect.bca_mean)):
            if row is not None:
                figures = (f"{figure:,.5f}" for figure in (row.estimate, row.low, row.high))
                table.add_row(f"{name}, {kind}", *figures, f"{row.confidence:.3f}")
    stdout.print(table)


def _yes(passed: bool) -> str:
    return "yes" if passed else "NO"
