"""Tables of the documents that come from a command of the package, written between their marks.

python -m reproduce.tables fidelity city --docs docs/fidelity.md
python -m reproduce.tables replay city --docs docs/replay.md
python -m reproduce.tables estimates geneva-03 --docs docs/records.md
python -m reproduce.tables judgement geneva-03 --records geneva --days 2012-10-03 --docs docs/records.md
python -m reproduce.tables agency geneva-03 --records geneva --out geneva-03.html --docs docs/records.md
"""  # noqa: E501

from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.city import CityArgument
from evenline.experiments import fidelity as audits
from evenline.experiments.records import audit_folder, audit_records, write_document
from evenline.experiments.replay_audit import write_audit
from evenline.figures.document import insert
from evenline.records.files import main_estimates
from evenline.report.recorded import write_records_page
from evenline.support.columns import markdown
from evenline.support.errors import InputError, choice
from evenline.worlds.open import open_city
from reproduce.door import run

KINDS = ("fidelity", "replay", "estimates", "judgement", "agency")


def main(
    table: Annotated[str, typer.Argument(help="One of " + ", ".join(KINDS) + ".")],
    city: CityArgument,
    docs: Annotated[Path, typer.Option(help="The document.")],
    records: Annotated[Path, typer.Option(help="A folder of TIDES tables.")] = Path("records"),
    days: Annotated[str, typer.Option(help="Days that were held out, as 2012-10-03.")] = "",
    out: Annotated[Path, typer.Option(help="The agency's page.")] = Path("page.html"),
    policies: Annotated[str, typer.Option(help="With commas.")] = "zero,headway,forward",
    blocks: Annotated[int, typer.Option(help="Simulated days.")] = 10,
    fits: Annotated[int, typer.Option(help="More calibrations.")] = 10,
) -> None:
    """Write a table between its marks in a document."""
    name = Path(city).name
    store, folder = (Path("results") / f"{kind}-{name}" for kind in ("replay", "audit"))
    if table == "fidelity":
        audits.write_document(docs, name, audits.fidelity_audit(city, None, store, folder), folder)
    elif table == "replay":
        write_audit(store, city, folder, docs)
    elif table == "estimates":
        _estimates(city, docs)
    elif table == "judgement":
        audit = audit_records(city, records, days)
        command = f"evenline city judge {city} --records {records.name} --days {days}"
        write_document(docs, audit, audit_folder(audit.opened.name, audit.held), command)
    elif table == "agency":
        write_records_page(city, records, out, policies.split(","), blocks, fits, docs)
    else:
        raise InputError(f"unknown table {table!r}; choose {choice(KINDS)}")


def _estimates(city: str, docs: Path) -> None:
    """What a city was fitted to, with intervals."""
    head = ("Parameter", "Value", "95 % interval", "Observations", "Note")
    rows = markdown([head, *main_estimates(Path(city))])
    made = f"Made by `evenline city check {Path(city).name}`."
    insert(docs, f"estimates {open_city(city).city.name}", "\n".join([made, "", *rows]))


if __name__ == "__main__":
    run("reproduce.tables", main)
