"""Commands for cities: make one, say what is in it, fit the fast world to it, and judge the fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenline.cli import importing, people
from evenline.cli.checking import (
    compare_with_scenario,
    draw_people,
    is_feed,
    is_records,
    show_city,
    show_feed,
    show_records,
)
from evenline.cli.options import (
    AddressOption,
    CalibrationOption,
    ExecutorOption,
    ForceOption,
    OutOption,
    ReplayOption,
    ShardOption,
    WorkersOption,
    executor_of,
    numbers_of,
    print_columns,
    print_notes,
    print_table,
)
from evenline.support.errors import InputError
from evenline.support.progress import progress_bar
from evenline.support.terminal import stderr

if TYPE_CHECKING:
    from evenline.runs.executors import Executor

app = typer.Typer(
    no_args_is_help=True, help="Make cities, check them, and fit the fast world to them."
)

CityArgument = Annotated[str, typer.Argument(help="An embedded city, or a city folder.")]
app.command()(people.people)
app.add_typer(importing.app, name="import")


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="An embedded city.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    profile: Annotated[
        str | None, typer.Option(help="Another demand profile: rising, flat or two-peaks.")
    ] = None,
    by_hour: Annotated[
        str | None, typer.Option(help="Demand by hour of the day, such as 13,105,197,246,254.")
    ] = None,
    until_s: Annotated[
        int | None, typer.Option(help="Second at which demand ends; the last hour's rate goes on.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write an embedded city as a folder of tables, if you wish with other demand.

    Streets, timetable and cars stay the same, so the city's calibration fits and is written too.
    """
    from evenline.city.embedded import embedded_city, with_hours, with_profile
    from evenline.city.tables import save_city
    from evenline.support.files import result_folder
    from evenline.worlds.calibration import save_calibration
    from evenline.worlds.open import CALIBRATION, open_city

    if profile is not None and by_hour is not None:
        raise InputError("--profile and --by-hour exclude each other; give one of them")
    if profile is not None:
        city = with_profile(name, profile, until_s)
    elif by_hour is not None:
        city = with_hours(name, numbers_of(by_hour), until_s)
    elif until_s is not None:
        raise InputError("--until-s needs a demand by hour; add --profile or --by-hour")
    else:
        city = embedded_city(name)
    calibration = open_city(name).calibration
    with result_folder(out, force) as aside:
        save_city(city, aside)
        if calibration is not None:
            save_calibration(aside / CALIBRATION, calibration)
    print(out)


@app.command()
def check(
    source: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="An embedded city, a city folder, a GTFS feed, or a folder of TIDES tables.",
        ),
    ],
    seal: Annotated[
        bool, typer.Option("--seal", help="Of a city: write the hashes of edited tables.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(help="Of a city: draw when people set out and where they board, as PNG."),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(help="Of a city: compare a day with SUMO's own run of this .sumocfg."),
    ] = None,
    date: Annotated[
        str | None, typer.Option(help="Of a feed: count the trips of this day, as 2026-03-03.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Of records: print only JSON.")] = False,
) -> None:
    """Say what is in a city, a feed, or records of real buses, and what looks wrong.

    Every row of a city is checked. With SUMO installed, its network is compiled, and the roads of
    each service must connect. Exits with code 1 if a day differs from that of --scenario.
    """
    path = Path(source)
    if is_feed(path):
        show_feed(path, date)
    elif is_records(path):
        show_records(path, as_json)
    else:
        if seal:
            from evenline.city.tables import seal_city

            seal_city(path)
        show_city(source)
        if picture is not None:
            draw_people(source, picture)
        if scenario is not None:
            compare_with_scenario(scenario, source)


@app.command()
def fit(
    city: CityArgument,
    streets_only: Annotated[
        bool, typer.Option("--streets-only", help="Only slow the streets to the timetable.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the fit; with --streets-only, for the city.")
    ] = None,
    blocks: Annotated[
        int | None, typer.Option(help="Number of blocks, each with four days.", min=1)
    ] = None,
    force: ForceOption = False,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
    shard: ShardOption = "1/1",
) -> None:
    """Fit the fast world to SUMO and plot the fit. Run it again to continue.

    First the streets of an imported city are slowed, by stop and hour, until trips take the time
    of its timetable.
    """
    from evenline.experiments.calibrate import BLOCKS, calibrate, place_in_city
    from evenline.runs.executors import Shard

    chosen = executor_of(executor, address, workers)
    if streets_only:
        _slow(city, out, blocks, chosen, force)
        return
    folder = out or Path("results") / f"calibration-{Path(city).name}"
    part = Shard.parse(shard)
    calibration, passing = calibrate(city, folder, blocks or BLOCKS, chosen, part, force)
    rows = {name: f"{value:,}" for name, value in calibration.residuals.items()}
    rows |= {f"overtaking_share_{world}": f"{share:.4f}" for world, share in passing.items()}
    print_table(f"calibration of {city}", rows)
    print_notes(city, "sumo")
    print(place_in_city(city, folder / "calibration.json"))


def _slow(
    city: str, out: Path | None, blocks: int | None, executor: "Executor", force: bool
) -> None:
    """Slow a city's streets, there or in another folder."""
    from evenline.experiments.streets import slow_streets

    services = slow_streets(city, out, blocks, executor, force)
    print_columns(
        "trips in SUMO, as shares of their scheduled time",
        ("service", "minutes", "empty streets", "slowed", "first third", "second", "last"),
        [
            (service.service, f"{service.scheduled_s / 60:.1f}", f"{service.empty:.2f}")
            + tuple(f"{share:.2f}" for share in (service.slowed, *service.thirds))
            + ("",) * (3 - len(service.thirds))
            for service in services
        ],
    )
    print_notes(str(out or city), "sumo")
    print(out or city)


@app.command()
def judge(
    city: CityArgument,
    records: Annotated[
        Path | None, typer.Option(help="Judge by these TIDES tables, not by SUMO.")
    ] = None,
    days: Annotated[
        str | None, typer.Option(help="Recorded days that were held out, as 2012-10-03.")
    ] = None,
    replay: ReplayOption = None,
    calibration: CalibrationOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --records: print only JSON.")
    ] = False,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Test whether the fast world may stand in for SUMO, or a city from records for its street.

    Exits with code 1 if it may not. Run it again to continue.
    """
    if (records is None) != (days is None):
        raise InputError("--records and --days go together; give both or neither")
    if records is not None and days is not None:
        passed = _judge_by_records(city, records, days, out, force, as_json)
    else:
        runner = executor_of(executor, address, workers)
        passed = _judge_by_sumo(city, replay, calibration, out, force, runner)
    if not passed:
        raise typer.Exit(1)


def _judge_by_sumo(
    city: str,
    replay: Path | None,
    calibration: Path | None,
    out: Path | None,
    force: bool,
    executor: "Executor",
) -> bool:
    """The fidelity audit, on the days of the replay; those that are missing are run."""
    from evenline.experiments.collect import missing_episodes, planned
    from evenline.experiments.fidelity import fidelity_audit, print_lines
    from evenline.worlds.fidelity import accepted

    store = replay or Path("results") / f"replay-{Path(city).name}"
    folder = out or Path("results") / f"audit-{Path(city).name}"
    every, todo = planned(store, city), missing_episodes(store, city)
    with progress_bar() as bar:
        task = bar.add_task(f"SUMO {city}", total=len(every), completed=len(every) - len(todo))
        lines = fidelity_audit(
            city, calibration, store, folder, executor, lambda ended: bar.advance(task), force=force
        )
    print_lines(lines)
    print_notes(city, "fast", calibration)
    print(folder)
    return accepted(lines)


def _judge_by_records(
    city: str, records: Path, days: str, out: Path | None, force: bool, as_json: bool
) -> bool:
    """A city made from records, on days that it was not fitted to."""
    from evenline.experiments.records import audit_folder, audit_records, audit_table
    from evenline.support.files import to_json

    with stderr.status(f"simulating and measuring {city}"):
        audit = audit_records(city, records, days, out, force)
    if as_json:
        print(to_json(audit.as_json()))
    else:
        print(audit_table(audit))
        print(out or audit_folder(audit.opened.name, audit.held))
    return all(line.passed for line in audit.lines if line.judged)


@app.command()
def report(
    city: CityArgument,
    records: Annotated[Path, typer.Option(help="The folder of TIDES tables.")],
    out: Annotated[Path, typer.Option(help="The HTML page to write.")],
    policies: Annotated[
        str, typer.Option(help="Policies to simulate, with commas; zero is without holding.")
    ] = "zero,headway,forward",
    blocks: Annotated[int, typer.Option(help="Simulated days.")] = 10,
    fits: Annotated[int, typer.Option(help="More calibrations, from trips drawn again.")] = 10,
) -> None:
    """Write the page for an agency: waiting today, and what holding would have changed."""
    from evenline.report.recorded import write_records_page

    chosen = [name.strip() for name in policies.split(",") if name.strip()]
    with stderr.status(f"simulating {city}"):
        print(write_records_page(city, records, out, chosen, blocks, fits, None))
