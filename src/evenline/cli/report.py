"""The command `evenline report`: write a study's page, and optionally its PDF and figures."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import ForceOption
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder, refuse_changed_files, write_listed

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PDF, PRINT_LIMIT_S = "report.pdf", 180


def report(
    study: Annotated[Path, typer.Argument(help="The study's folder.")],
    pdf: Annotated[bool, typer.Option("--pdf", help="Also print the page to report.pdf.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write the main figures as SVG and PDF.")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Write a study's report: one HTML page that works without a network. Prints its path."""
    from evenline.report.page import write_report

    browser = find_browser() if pdf else None  # refuse before any work
    refuse_changed_files(study, (PDF,) if pdf else (), force)
    page = write_report(study, figures, force)
    print(page)
    if figures:
        print(study / "figures")
    if browser is not None:
        write_listed(study, {PDF: printed(browser, page)}, force)
        print(study / PDF)


def find_browser() -> str:
    """The path of Chromium, or an error that says how to install it."""
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise InputError("--pdf needs Chromium; on Debian install it with: apt-get install chromium")


def printed(browser: str, page: Path) -> bytes:
    """A page as PDF."""
    with ScratchFolder() as folder:
        made = Path(folder) / "page.pdf"
        command = [
            *headless(browser, Path(folder)),
            "--no-pdf-header-footer",
            f"--print-to-pdf={made}",
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PRINT_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise InputError(
                f"{browser} did not finish printing within {PRINT_LIMIT_S} s"
            ) from None
        if not made.is_file():
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError(f"{browser} could not print {page} ({said})")
        return made.read_bytes()


def headless(browser: str, profile: Path) -> list[str]:
    """Chromium options: headless, own profile, no sandbox for root."""
    options = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options.append(f"--user-data-dir={profile}")
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    return [browser, *options]
