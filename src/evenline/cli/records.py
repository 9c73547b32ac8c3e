"""Commands for records of real buses: check them, and write the page for an agency."""

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import CityOption, DocsOption, JsonOption, print_table
from evenline.support.progress import stderr

app = typer.Typer(no_args_is_help=True, help="Check records of real buses and report on them.")

RecordsFolder = Annotated[Path, typer.Argument(help="A folder of TIDES tables.")]


@app.command()
def check(folder: RecordsFolder, as_json: JsonOption = False) -> None:
    """Say what records hold and what is wrong with them, with the rule applied to each problem."""
    from rich.console import Console
    from rich.table import Table

    from evenline.records.check import check_folder
    from evenline.support.files import to_json

    found = check_folder(folder)
    if as_json:
        print(to_json(found.as_dict()), end="")
        return
    print_table(
        f"{folder}",
        {
            "rows": ", ".join(f"{name} {rows:,}" for name, rows in found.tables.items()),
            "trips by day": ", ".join(f"{d}: {count:,}" for d, count in found.trips_by_day.items()),
            "routes": ", ".join(found.routes),
            "stops": f"{found.stops:,}",
            "visits": f"{found.visits:,}, of which {found.usable:,} can be used",
            "missing": ", ".join(f"{name} {share:.1%}" for name, share in found.missing.items()),
            "transfers": found.transfers,
            "counted": f"{found.boarded:,.0f} board, {found.alighted:,.0f} alight",
        },
    )
    table = Table(
        "problem", "rows", "what is wrong", "example", "what is done", title_justify="left"
    )
    for each in found.problems:
        rows = f"{each.count:,} of {each.of:,}"
        table.add_row(each.name, rows, each.wrong, each.example, each.done)
    Console().print(table)


@app.command()
def report(
    records: Annotated[Path, typer.Option(help="The folder of TIDES tables.")],
    out: Annotated[Path, typer.Option(help="The HTML page to write.")],
    city: CityOption = "town",
    policies: Annotated[
        str, typer.Option(help="Policies to simulate, with commas; zero is without holding.")
    ] = "zero,headway,forward",
    blocks: Annotated[int, typer.Option(help="Simulated days.")] = 10,
    fits: Annotated[int, typer.Option(help="More calibrations, from trips drawn again.")] = 10,
    docs: DocsOption = None,
) -> None:
    """Write the page for an agency: waiting today, and what holding would have changed."""
    from evenline.report.recorded import write_records_page

    chosen = [each.strip() for each in policies.split(",") if each.strip()]
    with stderr.status(f"simulating {city}"):
        print(write_records_page(city, records, out, chosen, blocks, fits, docs))


@app.command()
def show(city: CityOption = "town", docs: DocsOption = None) -> None:
    """Say what a city was fitted to, with its main estimates, its limits and its verdict."""
    from evenline.figures.document import insert
    from evenline.records.files import main_estimates, read_fitted_to, read_limits
    from evenline.worlds.open import open_city

    opened = open_city(city)
    fitted_to = read_fitted_to(Path(city), len(opened.city.trips))
    limits = read_limits(Path(city), opened.fitted())
    estimates = main_estimates(Path(city))
    if docs is not None:
        head = ("Parameter", "Value", "95 % interval", "Observations", "Note")
        rows = [head, ("---", "---:", "---:", "---:", "---"), *estimates]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        made = f"Made by `evenline records show --city {Path(city).name}`."
        insert(docs, f"estimates {opened.name}", f"{made}\n\n{table}")
    print_table(
        opened.name,
        {
            "records": fitted_to.records,
            "days": ", ".join(fitted_to.days),
            "hours": f"{fitted_to.first_hour} to {fitted_to.last_hour}",
            "routes": ", ".join(fitted_to.routes) or "all",
            "trips, visits": f"{fitted_to.trips:,}, {fitted_to.visits:,}",
            "recorded times are": f"{fitted_to.stamp}s",
            **{name: f"{value} ({sure})" for name, value, sure, _, _ in estimates},
            "limit": f"{limits.most_ratio:g} times the gap between real days",
        },
    )
    for note in opened.notes("fast"):
        print(f"note: {note}")
