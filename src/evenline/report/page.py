"""The report of a study: one self-contained HTML page.

`write_report` reads the study's folder, simulates a few days in the fast world for the pictures,
and embeds data, style and script.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

import evenline
from evenline.control.regularity import BUNCHED
from evenline.figures.page import rendered
from evenline.report import words
from evenline.report.data import Study, city_data, read_study
from evenline.report.days import simulated_days
from evenline.report.sections import sections
from evenline.support.files import refuse_changed_files, write_listed

REPORT = "report.html"
_SCRIPTS = ("page.js", "save.js", "trial.js", "days.js", "audits.js")
_SERVED = ("policies", "methods", "what", "trained", "covered")  # as text, not to the script


def write_report(folder: Path, force: bool = False) -> Path:
    """Write the page to the study's folder; return its path."""
    study = read_study(folder)
    refuse_changed_files(folder, (REPORT,), force)
    days = None
    if study.city is not None and study.trial is not None:
        days = simulated_days(folder, study.trial)
    write_listed(folder, {REPORT: report_page(study, days).encode()}, force)
    return folder / REPORT


def report_page(study: Study, days: dict[str, Any] | None) -> str:
    """The whole page as text."""
    city = study.city.name if study.city is not None else study.folder.resolve().name
    return rendered(
        "report/assets",
        title=f"Bus holding in {city}: what the study found",
        verdict=words.verdict(study),
        sections=sections(study, days),
        made=f"Made by: {words.again(study, 'report')} (evenline {evenline.__version__}).",
        data=_embedded(study, days),
        style=_asset("page.css"),
        script=Markup("\n").join(map(_asset, _SCRIPTS)),
    )


def _asset(name: str) -> Markup:
    """A file of ours that the page includes unchanged."""
    return Markup((files("evenline.report") / "assets" / name).read_text(encoding="utf-8"))


def _embedded(study: Study, days: dict[str, Any] | None) -> dict[str, Any]:
    """The data for the script."""
    trial = study.trial
    return {
        "city": None if study.city is None else city_data(study.city),
        "trial": trial and {key: trial[key] for key in trial if key not in _SERVED},
        "days": days,
        "first_service": None if days is None else _most_changed(days),
        "bunched": BUNCHED,
        "training": study.training,
        "fidelity": study.fidelity,
        "replay": study.replay,
    }


def _most_changed(days: dict[str, Any]) -> str:
    """The service that the diagrams show first: where candidate and parent hold differently."""
    first = days["blocks"][0]

    def held(role: str, service: str) -> float:
        return float(sum(first[role]["services"][service]["h"]))

    names: list[str] = list(first["candidate"]["services"])
    return max(names, key=lambda name: abs(held("candidate", name) - held("parent", name)))
