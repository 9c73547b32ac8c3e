"""What `evenline city check` prints: of a city, of a feed, or of records of real buses."""

import zipfile
from pathlib import Path

import typer
from rich.table import Table

from evenline.cli.options import print_columns, print_table
from evenline.support.errors import InputError
from evenline.support.files import to_json
from evenline.support.progress import progress_bar
from evenline.support.terminal import stderr, stdout

VISITS = ("stop_visits", "trips_performed", "vehicle_locations")  # tables of TIDES


def is_feed(path: Path) -> bool:
    """Whether a path is a GTFS feed: a zip file, or a folder with its routes."""
    return (path / "routes.txt").exists() or (path.is_file() and zipfile.is_zipfile(path))


def is_records(path: Path) -> bool:
    """Whether a folder has a table of TIDES."""
    return any(file.name.startswith(VISITS) for file in path.glob("*")) if path.is_dir() else False


def show_feed(path: Path, date: str | None) -> None:
    """The routes of a feed: how many trips they have, and on which days.

    Without a date: on the weekday, the Saturday and the Sunday with most trips.
    """
    from evenline.cli.importing import day_of
    from evenline.importing.feed import open_feed
    from evenline.importing.listing import KINDS, listed_routes

    day = None if date is None else day_of(date)
    with stderr.status(f"reading {path}"):
        routes = listed_routes(open_feed(path), day)
    count = ("trips",) if day is not None else tuple(KINDS)
    head = ("route", "id", *count, "first day", "last day")
    rows = [
        (
            " ".join(dict.fromkeys(filter(None, (route.name, route.long_name)))),
            *(route.id, *(f"{number:,}" for number in route.trips)),
            *("" if end is None else f"{end}" for end in (route.first, route.last)),
        )
        for route in routes
    ]
    when = f"on {day:%A} {day}" if day is not None else "on the day of each kind that has most"
    print_columns(f"{path}: {len(routes):,} routes, trips {when}", head, rows)


def show_records(path: Path, as_json: bool) -> None:
    """What records hold and what is wrong with them, with the rule applied to each problem."""
    from evenline.records.check import check_folder
    from evenline.records.kinds import kinds_text

    summary = check_folder(path)
    if as_json:
        print(to_json(summary.as_dict()), end="")
        return
    print_table(
        f"{path}",
        {
            "rows": ", ".join(f"{name} {rows:,}" for name, rows in summary.tables.items()),
            "trips by day": ", ".join(f"{d}: {n:,}" for d, n in summary.trips_by_day.items()),
            "kinds of days": kinds_text(summary.kinds),
            "routes": ", ".join(summary.routes),
            "stops": f"{summary.stops:,}",
            "visits": f"{summary.visits:,}, of which {summary.usable:,} can be used",
            "missing": ", ".join(f"{name} {share:.1%}" for name, share in summary.missing.items()),
            "transfers": summary.transfers,
            "counted": f"{summary.boarded:,.0f} board, {summary.alighted:,.0f} alight",
        },
    )
    table = Table(
        "problem", "rows", "what is wrong", "example", "what is done", title_justify="left"
    )
    for problem in summary.problems:
        rows = f"{problem.count:,} of {problem.of:,}"
        table.add_row(problem.name, rows, problem.wrong, problem.example, problem.done)
    stdout.print(table)


def show_city(source: str) -> None:
    """A city whose rows are sound: its size, what a planner looks at first, what looks wrong."""
    from evenline.city.overview import overview
    from evenline.city.tables import open_city
    from evenline.worlds.sumo.network import check_network
    from evenline.worlds.sumo.runtime import installed_version

    city = open_city(source)
    if installed_version() is not None:
        try:
            check_network(city)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
    summary, fitted_to = overview(city), _fitted_to(source)
    print_table(
        f"{source}: in order",
        {
            "name": city.name,
            "services": ", ".join(service.id for service in city.services),
            "stops": f"{len(city.stops):,}",
            "trips": f"{len(city.trips):,}",
            "decisions per day": f"{city.decisions:,}",
            "journeys": f"{len(city.journeys):,}",
            "signals": f"{sum(node.signal for node in city.nodes):,}",
            "horizon, s": f"{city.horizon_s:,}",
            **({"day": f"{city.clock.date} {city.clock.zone}"} if city.clock is not None else {}),
        },
    )
    for table in summary.tables:
        print_columns(table.title, table.head, table.rows)
    if fitted_to is not None:
        print_table("fitted to records", fitted_to)
    for note in city.notes:
        print(f"note: {note}")
    for warning in summary.warnings:
        print(f"warning: {warning}")


def _fitted_to(source: str) -> dict[str, str] | None:
    """What a city was fitted to, with its main estimates; None if it is not made of records."""
    from evenline.records.files import RECORDS, main_estimates, read_fitted_to, read_limits
    from evenline.worlds.open import open_city

    folder = Path(source)
    if not (folder / RECORDS).is_file():
        return None
    opened = open_city(source)
    fitted_to = read_fitted_to(folder, len(opened.city.trips))
    return {
        "records": fitted_to.records,
        "days": ", ".join(fitted_to.days),
        "hours": f"{fitted_to.first_hour} to {fitted_to.last_hour}",
        "routes": ", ".join(fitted_to.routes) or "all",
        "trips, visits": f"{fitted_to.trips:,}, {fitted_to.visits:,}",
        "recorded times are": f"{fitted_to.stamp}s",
        **{name: f"{value} ({interval})" for name, value, interval, *_ in main_estimates(folder)},
        "limit": f"{read_limits(folder, opened.fitted()).most_ratio:g} times the gap between "
        "real days",
    }


def draw_people(source: str, picture: Path) -> None:
    """Draw how many people set out by hour at demand 1.00, and where they board."""
    from evenline.city.tables import open_city
    from evenline.figures.plots import demand_profile, png
    from evenline.support.files import write_bytes

    write_bytes(picture, png(demand_profile(open_city(source))))
    print(picture)


def compare_with_scenario(config: Path, source: str) -> None:
    """SUMO's own run of a scenario against our day without holds, arrival by arrival."""
    from evenline.city.tables import open_city
    from evenline.experiments.agreement import compare_with_sumo

    city = open_city(source)
    with progress_bar(counted=False) as bar:
        task = bar.add_task(f"{city.name}, twice", total=city.horizon_s)
        agreement = compare_with_sumo(config, city, lambda now_s: bar.update(task, completed=now_s))
    print_table(
        f"{config} in SUMO and in {source}",
        {
            "buses and other vehicles that stopped": f"{agreement.vehicles:,}",
            "arrivals compared": f"{agreement.arrivals:,}",
            "of them reported as stop visits": f"{agreement.of_trips:,}",
            "differences": f"{agreement.differences:,}",
        },
    )
    for line in agreement.first:
        print(line)
    if agreement.differences:
        raise typer.Exit(1)
