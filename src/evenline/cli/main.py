"""The door: parse, call, print. An `InputError` becomes one line and exit code 2."""

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from evenline.cli.policy import app as policy_app
from evenline.cli.policy import compare, tune
from evenline.cli.report import report
from evenline.cli.study import app as study_app
from evenline.cli.trial import app as trial_app
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar, stderr

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn, deploy and prove bus holding policies that keep buses evenly spaced.",
)
city_app = typer.Typer(no_args_is_help=True, help="Build, check, seal and measure cities.")
runtime_app = typer.Typer(no_args_is_help=True, help="Further versions of SUMO.")
audit_app = typer.Typer(no_args_is_help=True, help="Check claims by rule.")
replay_app = typer.Typer(no_args_is_help=True, help="Work with a collected replay.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure speed and memory.")
app.add_typer(city_app, name="city")
app.add_typer(runtime_app, name="runtime")
app.add_typer(audit_app, name="audit")
app.add_typer(replay_app, name="replay")
app.add_typer(bench_app, name="bench")
app.add_typer(policy_app, name="policy")
app.add_typer(trial_app, name="trial")
app.add_typer(study_app, name="study")
app.command()(tune)
app.command()(compare)
app.command()(report)

CityOption = Annotated[str, typer.Option("--city", help="An embedded city, or a city folder.")]
WorkersOption = Annotated[
    int | None, typer.Option(help="Worker processes; all cores if not given.")
]


@app.callback()
def settings(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Options that go before or after any command."""


# -- days -----------------------------------------------------------------------------------------


@app.command()
def simulate(
    city: CityOption = "town",
    world: Annotated[str, typer.Option(help="Who simulates: sumo or fast.")] = "sumo",
    policy: Annotated[str, typer.Option(help="zero, headway, or another rule's name.")] = "zero",
    seed: Annotated[int, typer.Option(help="Which day: passengers, cars, drivers.")] = 1,
    demand: Annotated[float, typer.Option(help="Demand multiplier, up to 1.25.")] = 1.0,
    sumo: Annotated[str | None, typer.Option(help="Another SUMO version.")] = None,
    out: Annotated[Path | None, typer.Option(help="The result's folder.")] = None,
) -> None:
    """Run one day; write its outcome, stop visits and time-space diagram."""
    from evenline.city.cells import demo_cell
    from evenline.experiments.simulate import simulate as run
    from evenline.runs.episodes import outcome_of

    cell = demo_cell(seed, demand)
    name = f"{Path(city).name}-{world}-{Path(policy).name}-{cell.name}"
    folder = out or Path("results") / "simulate" / name
    answer = run(city, world, policy, cell, folder, sumo)
    outcome = outcome_of(answer)
    _print_table(
        f"{city}, {policy}, seed {seed}, demand {demand:.2f} "
        f"({'fast world' if world == 'fast' else 'SUMO ' + answer['sumo']})",
        {
            "generalized time Y, s per passenger": f"{outcome.generalized_s:,.1f}",
            "completion": f"{outcome.completion:.4f}",
            "unfinished of departed passengers": f"{outcome.unfinished:,} of {outcome.departed:,}",
            "decisions": f"{outcome.decisions:,}",
        },
    )
    print(folder)


@app.command()
def demo(
    city: CityOption = "town",
    blocks: Annotated[int, typer.Option(help="Seeds, each at three demand levels.")] = 3,
    out: Annotated[Path, typer.Option(help="The result's folder.")] = Path("results/demo"),
    workers: WorkersOption = None,
) -> None:
    """Compare no holding with the headway rule on a few days; write one HTML page."""
    from evenline.experiments.demo import demo as run

    print(run(city, blocks, out, workers))


@app.command()
def collect(
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="The store's folder.")] = None,
    blocks: Annotated[int | None, typer.Option(help="Fewer than the ten blocks.")] = None,
    workers: WorkersOption = None,
) -> None:
    """Collect the replay in SUMO: 8 behaviours x 10 blocks x 3 demand levels. Resumes."""
    from evenline.experiments.collect import collect as run
    from evenline.experiments.collect import missing_episodes, planned

    folder = out or Path("results") / f"replay-{Path(city).name}"
    todo, every = missing_episodes(folder, city, blocks), planned(folder, city, blocks)
    with progress_bar() as bar:
        task = bar.add_task(f"replay {city}", total=len(every), completed=len(every) - len(todo))
        failures = run(folder, city, blocks, workers, on_result=lambda result: bar.advance(task))
    for failure in failures:
        stderr.print(f"failed: {failure.job.name}: {failure.error}")
    if failures:
        raise InputError(f"{folder}: {len(failures)} episodes failed; run the same command again")
    print(folder)


@app.command()
def calibrate(
    city: CityOption = "town",
    out: Annotated[Path | None, typer.Option(help="The calibration's folder.")] = None,
    workers: WorkersOption = None,
) -> None:
    """Fit the fast world to SUMO: run the calibration days, fit, draw. Resumes."""
    from evenline.experiments.calibrate import calibrate as run

    folder = out or Path("results") / f"calibration-{Path(city).name}"
    found, passing = run(city, folder, workers=workers)
    rows = {k: f"{v:,}" for k, v in found.residuals.items()}
    rows |= {f"overtaking_share_{world}": f"{share:.4f}" for world, share in passing.items()}
    _print_table(f"calibration of {city}", rows)
    print(folder / "calibration.json")


# -- learning -------------------------------------------------------------------------------------


@app.command()
def train(
    city: CityOption = "town",
    learner: Annotated[str, typer.Option(help="Learners by name, or all.")] = "v14",
    seeds: Annotated[str, typer.Option(help="Training seeds, such as 6201-6205.")] = "6201-6205",
    replay: Annotated[Path | None, typer.Option(help="The replay's folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder.")] = None,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    iql_updates: Annotated[int, typer.Option(help="Updates on the replay alone.")] = 50_000,
    events: Annotated[int, typer.Option(help="Simulated decisions of each learner.")] = 25_000,
    widths: Annotated[str, typer.Option(help="Slot, fused and hidden widths.")] = "128,256,256",
    diagnostic: Annotated[bool, typer.Option(help="Also train the domain classifiers.")] = True,
    blocks: Annotated[int, typer.Option(help="Fresh blocks the actors are measured on.")] = 3,
) -> None:
    """Train holding policies from a replay and the fast world; run it again to go on."""
    from evenline.experiments.train import run_training
    from evenline.learn.schedule import Budget

    folder = out or Path("results") / f"train-{Path(city).name}"
    sizes = [int(width) for width in widths.split(",") if width.isdigit()]
    if len(sizes) != 3:
        raise InputError(f"widths {widths!r}: write three numbers, such as 128,256,256")
    whole = Budget()
    budget = Budget(iql_updates, round(events * whole.warmup_events / whole.events), events)
    found = run_training(
        city, learner, seeds, replay, folder, device, budget, (sizes[0], sizes[1], sizes[2]),
        diagnostic, blocks,
    )  # fmt: skip
    _print_table(
        f"Actors of {Path(city).name} on fresh days of the fast world",
        {
            name: f"{row['generalized_s']:,.1f} s, completion {row['completion']:.4f},"
            f" mean hold {row['mean_hold_s']:.2f} s"
            for name, row in found["curve"].items()
            if "-at-" not in name
        },
    )
    print(folder)


@app.command()
def teach(
    actor: Annotated[Path, typer.Argument(help="The actor to start from (.safetensors).")],
    out: Annotated[Path, typer.Option(help="Where the taught actor goes.")],
    city: CityOption = "city",
    seed: Annotated[int, typer.Option(help="Training seed: which days, which minibatches.")] = 6201,
    days: Annotated[int, typer.Option(help="Simulated days of lessons.")] = 9,
) -> None:
    """Improve an actor by the simulator's counterfactuals: every hold tried on the same luck."""
    from evenline.experiments.train import teach_actor

    teach_actor(actor, out, city, seed, days)
    print(out)


@app.command("curves")
def curves(
    run: Annotated[Path, typer.Argument(help="A finished training run.")],
    docs: Annotated[Path, typer.Option(help="The document to write tables and figure into.")],
    city: CityOption = "city",
    learner: Annotated[str, typer.Option(help="The learner whose curve is drawn.")] = "v14",
) -> None:
    """Show what a training run came to: a table by learner, curves, the diagnostic."""
    from evenline.experiments.learning import write_learning

    write_learning(run, Path(city).name, learner, docs)
    print(docs)


# -- audits ---------------------------------------------------------------------------------------

ReplayOption = Annotated[Path | None, typer.Option("--replay", help="The replay's folder.")]


@audit_app.command("fidelity")
def audit_fidelity(
    city: CityOption = "town",
    replay: ReplayOption = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A calibration file; the city's own if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the result goes.")] = None,
    docs: Annotated[Path | None, typer.Option(help="A document to write the result into.")] = None,
    workers: WorkersOption = None,
) -> None:
    """Whether the fast world may stand in for SUMO. Exit code 1 if not. Resumes."""
    from evenline.experiments.collect import missing_episodes, planned
    from evenline.experiments.fidelity import fidelity_audit, print_lines, write_document
    from evenline.worlds.fidelity import accepted

    name = Path(city).name
    store = replay or Path("results") / f"replay-{name}"
    folder = out or Path("results") / f"audit-{name}"
    every, todo = planned(store, city), missing_episodes(store, city)
    with progress_bar() as bar:
        task = bar.add_task(f"SUMO {city}", total=len(every), completed=len(every) - len(todo))
        lines = fidelity_audit(
            city, calibration, store, folder, workers, lambda result: bar.advance(task)
        )
    print_lines(lines)
    if docs is not None:
        write_document(docs, name, lines, folder)
    print(folder)
    if not accepted(lines):
        raise typer.Exit(1)


@audit_app.command("replay")
def audit_replay(
    city: CityOption = "town",
    replay: ReplayOption = None,
    out: Annotated[Path | None, typer.Option(help="Where the result goes.")] = None,
    docs: Annotated[Path | None, typer.Option(help="A document to write the result into.")] = None,
) -> None:
    """Recompute every claim about a replay from its files. Exit code 1 if one fails."""
    from evenline.experiments.replay_audit import write_audit

    name = Path(city).name
    store = replay or Path("results") / f"replay-{name}"
    folder = out or Path("results") / f"audit-{name}"
    with stderr.status(f"reading {store}"):
        figures = write_audit(store, city, folder, docs)
    for figure in figures:
        verdict = {True: "pass", False: "FAIL", None: ""}[figure.passed]
        print(f"{figure.name:45} {figure.text():>34}   paper {figure.paper_text():>12}  {verdict}")
    print(folder / "replay.html")
    if any(figure.passed is False for figure in figures):
        raise typer.Exit(1)


@replay_app.command("export")
def export_replay(
    city: CityOption = "town",
    replay: ReplayOption = None,
    minari: Annotated[
        Path | None, typer.Option(help="Write a Minari dataset below this folder.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Only the first so many.")] = None,
) -> None:
    """Write a replay in the format of another library."""
    from evenline.city.tables import open_city
    from evenline.replay.export import export_minari
    from evenline.replay.store import open_store

    if minari is None:
        raise InputError("export: name a format, such as --minari FOLDER")
    name = Path(city).name
    store = open_store(replay or Path("results") / f"replay-{name}", open_city(city))
    with stderr.status(f"writing {minari}"):
        print(export_minari(store, f"evenline/{name}-v0", minari, episodes))


# -- cities ---------------------------------------------------------------------------------------

Folder = Annotated[Path, typer.Argument(help="A city folder.")]


@city_app.command()
def build(
    name: Annotated[str, typer.Argument(help="An embedded city.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
) -> None:
    """Write an embedded city as a folder of tables."""
    from evenline.city.embedded import embedded_city
    from evenline.city.tables import save_city
    from evenline.support.files import refuse_foreign

    city = embedded_city(name)
    refuse_foreign(out, "manifest.json")
    save_city(city, out)
    print(out)


@city_app.command()
def check(folder: Folder) -> None:
    """Check every row of a city folder and say what is in it."""
    from evenline.city.tables import load_city

    city = load_city(folder)
    _print_table(
        f"{folder}: in order",
        {
            "name": city.name,
            "services": ", ".join(service.id for service in city.services),
            "stops": f"{len(city.stops):,}",
            "trips": f"{len(city.trips):,}",
            "decisions a day": f"{city.decisions:,}",
            "journeys": f"{len(city.journeys):,}",
            "signals": f"{sum(node.signal for node in city.nodes):,}",
            "horizon, s": f"{city.horizon_s:,}",
        },
    )


@city_app.command()
def seal(folder: Folder) -> None:
    """Accept edited tables: check every row, then write their hashes into the manifest."""
    from evenline.city.tables import seal_city

    seal_city(folder)
    print(folder)


@city_app.command()
def regime(
    city: CityOption = "city",
    seeds: Annotated[int, typer.Option(help="Days at each of the three demand levels.")] = 5,
    out: Annotated[Path, typer.Option(help="Where cities.md and images/ are.")] = Path("docs"),
    workers: WorkersOption = None,
) -> None:
    """Measure a city's days without holding and write them into cities.md. Resumes."""
    from evenline.experiments.regime import write_regime

    print(write_regime(city, seeds, out, workers))


# -- machines -------------------------------------------------------------------------------------


@runtime_app.command()
def install(version: Annotated[str, typer.Argument(help="Such as 1.25.0.")]) -> None:
    """Install a SUMO version beside the one that comes with evenline."""
    from evenline.worlds.sumo.runtime import install_runtime

    with stderr.status(f"installing SUMO {version}"):
        folder = install_runtime(version)
    print(folder)


@runtime_app.command("list")
def list_runtimes() -> None:
    """The SUMO versions that `--sumo` accepts here."""
    from evenline.worlds.sumo.runtime import installed_version, runtimes_folder

    if own := installed_version():
        print(f"{own} (comes with evenline)")
    for libsumo in sorted(runtimes_folder().glob("*/libsumo")):
        print(f"{libsumo.parent.name} {libsumo.parent}")


@bench_app.command("sumo")
def bench_sumo(
    city: CityOption = "city",
    repeats: Annotated[int, typer.Option(help="Runs of each side, in turn.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="JSON and nothing else.")] = False,
) -> None:
    """One day in our SUMO world against the bare sumo binary on the same files."""
    from evenline.bench.sumo import bench_sumo as run

    with stderr.status(f"{city}: {repeats} times in our world and in bare SUMO"):
        found = run(city, repeats)
    if as_json:
        print(json.dumps(found))
    else:
        _print_table("SUMO world against bare SUMO", {k: str(v) for k, v in found.items()})


@bench_app.command("fast")
def bench_fast(
    city: CityOption = "city",
    repeats: Annotated[int, typer.Option(help="Runs of each; the best counts.")] = 5,
    sumo: Annotated[bool, typer.Option(help="Also run a day in SUMO, for the ratio.")] = True,
    scale: Annotated[
        bool, typer.Option(help="Also measure cities up to 100 times as large.")
    ] = False,
    docs: Annotated[Path | None, typer.Option(help="A document to write the result into.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON and nothing else.")] = False,
) -> None:
    """Decisions a second of the fast world on one core, and SUMO's time over ours."""
    from evenline.bench.fast import bench_fast as run

    with stderr.status(f"{city}: the fast world"):
        found = run(city, repeats, sumo, scale, docs)
    if as_json:
        print(json.dumps(found))
    else:
        _print_table("fast world", {k: str(v) for k, v in found.items()})


@bench_app.command("replay")
def bench_replay(
    city: CityOption = "city",
    replay: ReplayOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON and nothing else.")] = False,
) -> None:
    """How fast a replay loads, and how fast minibatches of states are built."""
    from evenline.bench.sumo import bench_replay as run

    found = run(city, replay or Path("results") / f"replay-{Path(city).name}")
    if as_json:
        print(json.dumps(found))
    else:
        _print_table("replay", {k: str(v) for k, v in found.items()})


@bench_app.command("learn")
def bench_learn(
    city: CityOption = "city",
    replay: Annotated[Path | None, typer.Option(help="The replay's folder.")] = None,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    repeats: Annotated[int, typer.Option(help="Runs of each side; the best counts.")] = 3,
    docs: Annotated[Path | None, typer.Option(help="A document to write the result into.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON and nothing else.")] = False,
) -> None:
    """Updates a second of our learner and of plain PyTorch, and an actor's latency."""
    from evenline.bench.learn import bench_learn as run
    from evenline.bench.learn import open_for_bench, write_figures
    from evenline.city.tables import open_city
    from evenline.experiments.train import replay_folder

    opened = open_city(city)
    store = open_for_bench(opened, replay or replay_folder(opened.name))
    found = run(opened, store, device, repeats)
    if docs is not None:
        write_figures(docs, found)
    if as_json:
        print(json.dumps(found))
    else:
        _print_table("learner", {k: str(v) for k, v in found.items()})


def _print_table(title: str, rows: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def main() -> NoReturn:
    """Run the command line; turn a user's error into one line."""
    debug = "--debug" in sys.argv
    try:
        app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except (InputError, OSError) as error:
        # A path that cannot be read or written is the user's to mend, like any other input.
        if debug:
            raise
        print(f"evenline: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
