"""The command `evenline report`: write a study's page, and optionally its PDF and figures."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from evenline.cli.options import ForceOption
from evenline.support.errors import InputError
from evenline.support.files import ScratchFolder, refuse_changed_files, write_listed

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PDF, FIGURES, LIMIT_S = "report.pdf", "figures", 180


def report(
    study: Annotated[Path, typer.Argument(help="The study's folder.")],
    pdf: Annotated[bool, typer.Option("--pdf", help="Also print the page to report.pdf.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also save every figure of the page as SVG.")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Write a study's report: one HTML page that works without a network. Prints its path."""
    from evenline.report.page import write_report

    browser = find_browser() if pdf or figures else None  # refuse before any work
    refuse_changed_files(study, (PDF,) if pdf else (), force)
    page = write_report(study, force)
    print(page)
    if browser is None:
        return
    files = drawings(browser, page) if figures else {}
    files |= {PDF: printed(browser, page)} if pdf else {}
    write_listed(study, files, force)
    for name in (*((FIGURES,) if figures else ()), *((PDF,) if pdf else ())):
        print(study / name)


def find_browser() -> str:
    """The path of Chromium, or an error that says how to install it."""
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise InputError(
        "--pdf and --figures need Chromium; on Debian install it with: apt-get install chromium"
    )


def printed(browser: str, page: Path) -> bytes:
    """A page as PDF."""
    with ScratchFolder() as folder:
        pdf = Path(folder) / "page.pdf"
        done = _run(browser, page, "", "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
        if not pdf.is_file():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError(f"{browser} could not print {page} ({reason})")
        return pdf.read_bytes()


def drawings(browser: str, page: Path) -> dict[str, bytes]:
    """Every figure of a page as SVG, as its button saves it, by path inside the study's folder."""
    done = _run(browser, page, "?figures", "--window-size=1200,900", "--dump-dom")
    dumped = re.search(r'<pre id="figures"[^>]*>(.*?)</pre>', done.stdout, re.DOTALL)
    if dumped is None:
        raise InputError(f"{browser} could not draw the figures of {page}")
    figures: dict[str, str] = json.loads(html.unescape(dumped[1]))
    return {f"{FIGURES}/{name}.svg": figure.encode() for name, figure in figures.items()}


def _run(browser: str, page: Path, query: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser without a window, under a profile that is thrown away."""
    with ScratchFolder() as profile:
        command = [*headless(browser, Path(profile)), *options, page.resolve().as_uri() + query]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{browser} did not finish within {LIMIT_S} s") from None


def headless(browser: str, profile: Path) -> list[str]:
    """Chromium options: headless, a profile of its own, no sandbox for root."""
    options = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options.append(f"--user-data-dir={profile}")
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    return [browser, *options]
