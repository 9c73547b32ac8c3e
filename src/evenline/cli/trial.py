"""The commands `evenline trial register`, `run`, `status`, `analyse`, `verify`, `closeout`,
`deviate`, `pack`, `unpack`, `used`, `evidence` and `bench`. All but the first compare with the
registration, and show deviations and broken seals. None prints an endpoint while the matrix is
incomplete.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenline.cli.options import (
    AddressOption,
    DocsOption,
    ExecutorOption,
    OutOption,
    ShardOption,
    WorkersOption,
    executor_of,
)
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.support.progress import stderr as console
from evenline.support.records import plain

if TYPE_CHECKING:  # the analysis needs SciPy, which most commands do not
    from evenline.trial.analyse import Analysis, Effect, Figures

app = typer.Typer(no_args_is_help=True, help="Test a claim about a policy: register, run, analyse.")

TrialFolder = Annotated[Path, typer.Argument(help="Folder of the trial.")]


@app.command()
def register(
    plan: Annotated[str, typer.Argument(help="A plan file, or the name of a built-in plan.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the trial.")] = None,
    ledger: Annotated[
        Path, typer.Option(help="File that lists the cells used by earlier trials.")
    ] = Path("results/used-cells.json"),
) -> None:
    """Register a plan before any outcome exists. Refuses cells that have been used."""
    from evenline.study.plan import find_plan
    from evenline.trial.plan import read_plan
    from evenline.trial.registration import register as freeze

    path = find_plan(plan)
    folder = out or Path("results") / f"trial-{read_plan(path).name}"
    trial = freeze(path, folder, ledger)
    _say(f"{trial.registered.jobs:,} jobs; registered as {trial.sha256}")
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
    from evenline.trial.registration import Job, open_trial

    runner = executor_of(executor, address, workers)
    part, trial = Shard.parse(shard), open_trial(folder)
    done, every = matrix.standing(trial).done, trial.jobs()
    with progress_bar() as bar:
        total = bar.add_task("all blocks", total=len(every), completed=len(done))
        tasks = {}
        for block in dict.fromkeys(job.block for job in every.values()):
            tasks[block] = bar.add_task(
                f"block {block[0]}",
                total=sum(job.block == block for job in every.values()),
                completed=sum(job.block == block for job in done.values()),
            )

        def advance(job: Job, finished: bool) -> None:
            if finished:
                bar.advance(tasks[job.block])
                bar.advance(total)

        found = matrix.run(folder, runner, part, retry, advance)
    _show_notices(folder)
    for line in matrix.quarantine_lines(trial, found):
        _say(line)
    if found.quarantined:
        raise InputError(
            f"{folder}: {len(found.quarantined)} jobs failed every try; fix the cause and run: "
            f"evenline trial run {folder} --retry"
        )
    _say(f"{len(found.done):,} of {len(every):,} jobs done")
    print(folder)


@app.command()
def versions(
    folder: TrialFolder,
    sumo: Annotated[list[str], typer.Option(help="A version of SUMO; may be repeated.")],
    blocks: Annotated[int, typer.Option(help="Number of the trial's blocks to run.")] = 5,
    out: OutOption = None,
    docs: DocsOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Run candidate and parent of a finished trial under other versions of SUMO. Run it again to
    continue.
    """
    from evenline.trial.versions import document, version_sensitivity, write_versions

    place = out or Path("results") / f"versions-{folder.name}"
    runner = executor_of(executor, address, workers)
    found = version_sensitivity(folder, sumo, blocks, place, runner)
    named = " ".join(f"--sumo {version}" for version in sumo)
    command = f"evenline trial versions {folder} {named} --blocks {blocks}"
    print(document(found, command))
    if docs is not None:
        write_versions(found, command, folder.name, docs)
    print(place)


@app.command()
def status(folder: TrialFolder) -> None:
    """Show the progress of each block, without outcomes."""
    from evenline.trial.matrix import quarantine_lines, read_record, standing
    from evenline.trial.registration import open_trial

    trial = open_trial(folder)
    found, every = standing(trial), trial.jobs()
    table = Table(title=f"trial {trial.registered.name}", title_justify="left")
    for column in ("block", "done", "quarantined", "missing", "mean s per job"):
        table.add_column(column, justify="right")
    for block in dict.fromkeys(job.block for job in every.values()):
        parts = [
            {address: job for address, job in part.items() if job.block == block}
            for part in (found.done, found.quarantined, found.missing)
        ]
        took = [read_record(trial, a, job).run.duration_s for a, job in parts[0].items()]
        pace = f"{sum(took) / len(took):.1f}" if took else ""
        table.add_row("{}-{}".format(*block), *(f"{len(part):,}" for part in parts), pace)
    lines = quarantine_lines(trial, found)  # may be refused, before anything is shown
    Console().print(table)
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
            "--peek and --docs exclude each other: an unfinished trial cannot go into a document"
        )
    if peek:
        means = evidence.peek(folder)
        _show_notices(folder)
        _print_rows("means by method of the jobs done so far: seal broken", means)
        return
    found = evidence.write_analysis(folder)
    if as_json:
        print(json.dumps(plain(found)))
    else:
        _print_analysis(found)
        print(folder / evidence.ANALYSIS)
    if docs is not None:
        from evenline.report.trial import write_trial

        write_trial(docs, folder)
    _show_notices(folder)
    if not found.confirmed:
        raise typer.Exit(1)


@app.command()
def verify(
    folder: TrialFolder,
    root: Annotated[str | None, typer.Option(help="The root printed at closeout.")] = None,
) -> None:
    """Check all hashes and figures with independent code. Exits with code 1 if anything is
    wrong.
    """
    from evenline.support.files import to_json, write_text
    from evenline.trial.registration import CLOSEOUT
    from evenline.trial.verify import VERIFICATION, is_trial, summary
    from evenline.trial.verify import verify as check

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not is_trial(folder):
        raise InputError(f"{folder} has no trial.json; start with: evenline trial register PLAN")
    opinion = check(folder, root=root)
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
def closeout(folder: TrialFolder) -> None:
    """Close the trial: hash all files under one Merkle root and make them read-only."""
    from evenline.trial.closeout import closeout as close

    manifest = close(folder)
    _show_notices(folder)
    print(f"confirmed {'yes' if manifest.confirmed else 'no'}")
    print(f"results   {manifest.results_sha256}")
    print(f"root      {manifest.merkle_root}")


@app.command()
def deviate(
    folder: TrialFolder,
    why: Annotated[str, typer.Option(help="What deviates from the registration, and why.")],
    by: Annotated[str, typer.Option(help="Who signs it off.")],
) -> None:
    """Record a deviation: sign off changes of our source, or note anything else."""
    from evenline.trial.registration import deviate as sign_off

    sign_off(folder, why, by)
    _show_notices(folder)


@app.command()
def withdraw(
    folder: TrialFolder,
    method: Annotated[str, typer.Argument(help="A control of the trial.")],
    why: Annotated[str, typer.Option(help="Why its remaining days cannot be run.")],
    by: Annotated[str, typer.Option(help="Who decides it.")],
) -> None:
    """Give up the remaining days of a control; the gate of completeness then fails."""
    from evenline.trial.registration import withdraw as give_up

    give_up(folder, method, why, by)
    _show_notices(folder)


@app.command()
def pack(
    folder: TrialFolder,
    out: Annotated[Path, typer.Option(help="Folder of the packed trial, such as data/trial-city.")],
    tensors: Annotated[bool, typer.Option(help="Also pack the tensors of policies.")] = False,
) -> None:
    """Pack every finished block into one file, and with it the registration or the closed trial.

    Run it again after every block: a packed file is never replaced.
    """
    from evenline.trial.packed import pack as compress

    found = compress(folder, out, tensors)
    _show_notices(folder)
    _say(f"{len(found.blocks)} of {found.planned} blocks, {found.bytes / 1e6:.2f} MB")
    if found.detached:
        _say(f"{len(found.detached)} files of tensors are detached; keep them in another place")
    print(out)


@app.command()
def unpack(
    packed: Annotated[Path, typer.Argument(help="Folder of a packed trial.")],
    out: Annotated[Path, typer.Option(help="New folder of the trial.")],
    tensors: Annotated[
        list[Path] | None, typer.Option(help="Folder to search for detached tensors; repeatable.")
    ] = None,
) -> None:
    """Make a trial's folder from a packed one, to continue it on this machine."""
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


@app.command()
def evidence(
    folder: TrialFolder,
    docs: Annotated[Path, typer.Option(help="The page to write, such as docs/evidence.md.")],
    training: Annotated[
        Path | None, typer.Option(help="Folder of the training run (default: the city's).")
    ] = None,
    audits: Annotated[
        Path | None, typer.Option(help="Folder of both audits (default: the city's).")
    ] = None,
) -> None:
    """Write a page with every table of the paper next to ours. Shows outcomes of a closed trial
    only.
    """
    from evenline.report.evidence import write_evidence

    write_evidence(docs, folder, training, audits)
    _show_notices(folder)
    print(docs)


@app.command()
def used(
    folder: TrialFolder,
    ledger: Annotated[
        Path | None, typer.Option(help="File to add to (default: the list in the package).")
    ] = None,
) -> None:
    """Publish a trial's cells as used, so that nobody registers them again."""
    from evenline.trial.registration import read_trial
    from evenline.trial.used import PUBLISHED, note_used

    place = ledger or PUBLISHED
    note_used(place, read_trial(folder).used)
    print(place)


@app.command()
def bench(
    city: Annotated[str, typer.Option("--city", help="An embedded city, or a folder.")] = "town",
    jobs: Annotated[int, typer.Option(min=1, help="Days to run each time.")] = 12,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers to compare with one.")] = 2,
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of alternating runs of each; medians count.")
    ] = 3,
) -> None:
    """Measure how much faster several workers are than one; prints JSON."""
    from evenline.bench.trial import bench_trial

    print(json.dumps(bench_trial(city, jobs, workers, repeats)))


def _say(line: str) -> None:
    """Print one line on standard error, without wrapping."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _show_notices(folder: Path) -> None:
    from evenline.trial.registration import notices

    for notice in notices(folder):
        _say(notice)


def _print_analysis(found: "Analysis") -> None:
    claim = found.claim
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
    for gate, passed in found.gates.items():
        table.add_row(f"gate: {gate}", "", "", "", _yes(passed))
    table.add_row("confirmed", "", "", "", _yes(found.confirmed), style="bold")
    Console().print(table)
    _print_rows("means", found.means)
    differences = {"all": found.difference}
    differences |= {f"demand {level}": row for level, row in found.by_level.items()}
    differences |= {f"seed {seed}": row for seed, row in found.by_seed.items()}
    _print_rows("candidate minus parent", differences)
    if found.controls:
        controls = {
            f"{label} ({row.favourable_blocks} of {row.blocks} blocks favourable)": row.difference
            for label, row in found.controls.items()
        }
        _print_rows("candidate minus control (descriptive)", controls)
    _print_intervals(found.beyond_the_claim)


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
    Console().print(table)


def _print_intervals(beyond: Mapping[str, "Effect"]) -> None:
    table = Table(
        title="effect over blocks (descriptive; not part of the registered claim)",
        title_justify="left",
    )
    for column in ("", "estimate", "from", "to", "confidence"):
        table.add_column(column, justify="right" if column else "left")
    for name, found in beyond.items():
        for kind, row in (("hodges lehmann", found.hodges_lehmann), ("bca mean", found.bca_mean)):
            if row is not None:
                figures = (f"{figure:,.5f}" for figure in (row.estimate, row.low, row.high))
                table.add_row(f"{name}, {kind}", *figures, f"{row.confidence:.3f}")
    Console().print(table)


def _yes(passed: bool) -> str:
    return "yes" if passed else "NO"
