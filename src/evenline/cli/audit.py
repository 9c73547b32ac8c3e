"""Commands that check recorded days against fixed limits, and that export a replay."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import (
    AddressOption,
    CalibrationOption,
    CityOption,
    DocsOption,
    ExecutorOption,
    ForceOption,
    JsonOption,
    OutOption,
    ReplayOption,
    WidthsOption,
    WorkersOption,
    executor_of,
    print_notes,
    widths_of,
)
from evenline.cli.scenario import audit_scenario
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar, stderr

LEARNED = 0.5  # least correlation of a critic with an effect that is paid at once

app = typer.Typer(no_args_is_help=True, help="Check recorded days against fixed limits.")
app.command("scenario")(audit_scenario)
replay_app = typer.Typer(no_args_is_help=True, help="Export a collected replay.")


@app.command("fidelity")
def audit_fidelity(
    city: CityOption = "town",
    replay: ReplayOption = None,
    calibration: CalibrationOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    docs: DocsOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Test whether the fast world may stand in for SUMO. Exits with code 1 if not. Run it again
    to continue.
    """
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
            city,
            calibration,
            store,
            folder,
            executor_of(executor, address, workers),
            lambda ended: bar.advance(task),
            force=force,
        )
    print_lines(lines)
    if docs is not None:
        write_document(docs, name, lines, folder)
    print_notes(city, "fast", calibration)
    print(folder)
    if not accepted(lines):
        raise typer.Exit(1)


@app.command("records")
def audit_records(
    records: Annotated[Path, typer.Option(help="The folder of TIDES tables.")],
    days: Annotated[str, typer.Option(help="Days to hold out, as 2012-10-03.")],
    city: CityOption = "town",
    out: OutOption = None,
    force: ForceOption = False,
    docs: DocsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a city made from records on days that it was not fitted to. Exits with code 1 if a
    measure is farther from them than the registered limit.
    """
    from evenline.experiments.records import audit_records as run
    from evenline.experiments.records import audit_table, write_document
    from evenline.support.files import to_json

    with stderr.status(f"simulating and measuring {city}"):
        audit = run(city, records, days, out, force)
    folder = out or Path("results") / f"audit-{audit.opened.name}"
    print(to_json(audit.as_json()) if as_json else audit_table(audit))
    if docs is not None:
        command = f"evenline audit records --city {city} --records {records.name} --days {days}"
        write_document(docs, audit, folder, command)
    if not as_json:
        print(folder)
    if any(line.judged and not line.passed for line in audit.lines):
        raise typer.Exit(1)


@app.command("replay")
def audit_replay(
    city: CityOption = "town",
    replay: ReplayOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    docs: DocsOption = None,
) -> None:
    """Check every claim about a replay from its files. Exits with code 1 if one fails."""
    from evenline.experiments.replay_audit import write_audit

    name = Path(city).name
    store = replay or Path("results") / f"replay-{name}"
    folder = out or Path("results") / f"audit-{name}"
    with stderr.status(f"reading {store}"):
        figures = write_audit(store, city, folder, docs, force)
    for figure in figures:
        verdict = {True: "pass", False: "FAIL", None: ""}[figure.passed]
        print(f"{figure.name:45} {figure.text():>34}   paper {figure.paper_text():>12}  {verdict}")
    print_notes(city, "sumo")
    print(folder / "replay.html")
    if any(figure.passed is False for figure in figures):
        raise typer.Exit(1)


@app.command("learner")
def audit_learner(
    city: CityOption = "town",
    replay: ReplayOption = None,
    seeds: Annotated[str, typer.Option(help="Training seeds, such as 6201-6205.")] = "6201-6205",
    updates: Annotated[int, typer.Option(help="Number of IQL updates.")] = 10_000,
    widths: WidthsOption = "128,256,256",
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Folder for the result.")] = None,
    docs: DocsOption = None,
) -> None:
    """Test whether IQL learns an effect that is paid at once, from raw and from centred rewards.
    Exits with code 1 if it does not learn it from centred ones.
    """
    from evenline.city.tables import digest, open_city
    from evenline.experiments.train import replay_folder, seeds_of
    from evenline.figures.document import insert
    from evenline.learn.control import control_table, positive_control
    from evenline.learn.network import Size
    from evenline.replay.store import open_store
    from evenline.support.files import read_json, to_json, write_text

    opened = open_city(city)
    path = (out or Path("results") / f"audit-{opened.name}") / "learner.json"
    asked = {"city": digest(opened), "updates": updates, "seeds": list(seeds_of(seeds))}
    asked["widths"] = list(widths_of(widths))
    found = read_json(path) if path.exists() else {}
    if {key: found.get(key) for key in asked} != asked:
        store = open_store(replay or replay_folder(opened.name), opened)
        size = Size(len(opened.services), *widths_of(widths))
        found = asked | positive_control(store, seeds_of(seeds), updates, size, device)
        write_text(path, to_json(found))
    text = control_table(found)
    print(text)
    if docs is not None:
        command = f"evenline audit learner --city {city} --updates {updates}"
        insert(docs, f"control of {opened.name}", f"Made by `{command}`.\n\n{text}")
    print(path)
    if min(found["centred"]["correlations"]) < LEARNED:
        raise typer.Exit(1)


@replay_app.command("export")
def export_replay(
    city: CityOption = "town",
    replay: ReplayOption = None,
    minari: Annotated[
        Path | None, typer.Option(help="Write a Minari dataset below this folder.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Export only this many episodes.")] = None,
) -> None:
    """Write a replay in the format of another library."""
    from evenline.city.tables import open_city
    from evenline.replay.export import export_minari
    from evenline.replay.store import open_store

    if minari is None:
        raise InputError("choose a format, such as --minari FOLDER")
    name = Path(city).name
    store = open_store(replay or Path("results") / f"replay-{name}", open_city(city))
    with stderr.status(f"writing {minari}"):
        print(export_minari(store, f"evenline/{name}-v0", minari, episodes))
