"""The report of a study: one HTML page that needs nothing else, not even a network.

`write_report` reads the study's folder, simulates a few days in the fast world for the pictures,
and embeds data, style and script. What a study does not have is named in one line in its place.
"""

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import evenline
from evenline.figures.measure import BUNCHED
from evenline.report import words
from evenline.report.data import Study, city_data, read_study
from evenline.report.days import simulated_days
from evenline.report.html import (
    Code,
    Section,
    Shown,
    contents,
    escaped,
    section_html,
    table,
    verdict_html,
)
from evenline.support.files import write_text

REPORT = "report.html"
SCRIPTS = ("page.js", "trial.js", "days.js", "audits.js")
FAST = (
    "Simulated in the fast world when this page was made: the trial's own days ran in SUMO and "
    "keep totals only."
)


def write_report(study: Path, figures: bool = False) -> Path:
    """Write the page into the study's folder, on request also its figures; the page's path."""
    found = read_study(study)
    days = None
    if found.city is not None and found.trial is not None:
        days = simulated_days(study, found.trial)
    path = study / REPORT
    write_text(path, report_page(found, days))
    if figures:
        from evenline.report.figures import write_figures

        write_figures(found, days, None if days is None else _most_changed(days))
    return path


def report_page(study: Study, days: dict[str, Any] | None) -> str:
    """The whole page as text."""
    sections = _sections(study, days)
    city = study.city.name if study.city is not None else study.name
    title = f"Bus holding in {city}: what the study found"
    body = [f"<h1>{escaped(title)}</h1>", verdict_html(words.verdict(study)), contents(sections)]
    body += [section_html(section) for section in sections]
    return Template(_asset("template.html")).substitute(
        title=escaped(title),
        style=_asset("page.css"),
        body="\n".join(body),
        made=escaped(f"Made by: evenline report {study.name} (evenline {evenline.__version__})."),
        data=_embedded(study, days),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def _asset(name: str) -> str:
    return (files("evenline.report") / "assets" / name).read_text(encoding="utf-8")


def _embedded(study: Study, days: dict[str, Any] | None) -> str:
    """The data for the script; no text in it can end the element it stands in."""
    trial = study.trial
    data = {
        "city": None if study.city is None else city_data(study.city),
        "trial": trial and {key: trial[key] for key in trial if key not in ("policies", "methods")},
        "days": days,
        "first_service": None if days is None else _most_changed(days),
        "bunched": BUNCHED,
        "training": study.training,
        "ratio": study.ratio,
        "fidelity": study.fidelity,
        "replay": study.replay,
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _most_changed(days: dict[str, Any]) -> str:
    """The service with which the diagrams begin: where candidate and parent hold differently."""
    first = days["blocks"][0]

    def held(role: str, service: str) -> float:
        return float(sum(first[role]["services"][service]["h"]))

    names: list[str] = list(first["candidate"]["services"])
    return max(names, key=lambda name: abs(held("candidate", name) - held("parent", name)))


# -- what is on the page --------------------------------------------------------------------------


def _sections(study: Study, days: dict[str, Any] | None) -> list[Section]:
    return [
        _methods(study),
        _forest(study),
        _effects(study),
        _map(study),
        _days(study, days),
        _reserve(study, days),
        _learning(study),
        _fidelity(study),
        _replay(study),
        _ratio(study),
        _provenance(study),
    ]


def _methods(study: Study) -> Section:
    title = "Candidate, parent and controls"
    trial = study.trial
    if trial is None:
        return Section("methods", title)
    claim, analysis = trial["claim"], trial["analysis"]
    roles = {claim["candidate"]: "candidate", claim["parent"]: "parent"}
    rows = []
    for name, mean in trial["methods"].items():
        if name == claim["candidate"]:
            against = ["", ""]
        elif name == claim["parent"]:
            primary = analysis["claim"]["primary"]
            gap = analysis["difference"]["generalized_s"]
            against = [words.change(gap), f"{primary['wins']} of {primary['blocks']}"]
        else:
            control = analysis["controls"][name]
            gap = control["difference"]["generalized_s"]
            against = [
                words.change(gap), f"{control['favourable_blocks']} of {control['blocks']}"
            ]  # fmt: skip
        rows.append(
            [
                name,
                roles.get(name, "control"),
                f"{mean['generalized_s']:,.1f}",
                f"{mean['waiting_each_s']:,.1f}",
                f"{mean['riding_each_s']:,.1f}",
                f"{100 * mean['completion']:.2f}",
                f"{mean['unfinished']:,.1f}",
                f"{mean['mean_hold_s']:.1f}",
                *against,
            ]
        )
    head = [
        "method", "role", "generalized time, s", "waiting, s", "on board, s", "completed, %",
        "unfinished a day", "mean hold, s", "candidate minus it, s", "blocks it is behind in",
    ]  # fmt: skip
    days = trial["methods"][claim["candidate"]]["days"]
    caption = (
        f"Means over {days:,} SUMO days a method; times per passenger. Only the comparison of "
        "candidate and parent is a registered claim."
    )
    body = table(caption, head, rows, texts={1}, strong=set(roles))
    return Section("methods", title, body=body)


def _forest(study: Study) -> Section:
    title = "Block by block"
    if study.trial is None:
        return Section("forest", title)
    finding, redo = words.forest_words(study.trial), words.again(study, "analyse")
    shown = Shown("forest", "Forest plot", finding, "", redo, controls=True)
    intro = (
        "A block is a set of fresh passengers, cars and signals that every policy meets alike. "
        "Blocks are independent of each other; the days inside one are not."
    )
    return Section("forest", title, intro, [shown])


def _effects(study: Study) -> Section:
    title = "By demand and by training seed"
    if study.trial is None:
        return Section("effects", title)
    finding, redo = words.effects_words(study.trial), words.again(study, "analyse")
    shown = Shown("effects", "Dot plot", finding, "", redo, controls=True)
    return Section("effects", title, "Does it hold on quiet and on busy days?", [shown])


def _map(study: Study) -> Section:
    title = "The network"
    city = study.city
    if city is None:
        return Section("map", title)
    caption = (
        f"{city.name}: {len({s.route for s in city.services})} routes in "
        f"{len(city.services)} directions, {len(city.stops)} stops, "
        f"{sum(node.signal for node in city.nodes)} signals, {len(city.trips)} bus trips in a "
        f"day of {round(city.horizon_s / 3600, 1):g} hours, buses for "
        f"{city.vehicle.capacity} passengers."
    )
    shown = Shown(
        "map", "Map", "", f"{caption} Choose a route to follow it below.",
        f"evenline report {study.name}", controls=True,
    )  # fmt: skip
    return Section("map", title, figures=[shown])


def _days(study: Study, days: dict[str, Any] | None) -> Section:
    title = "One day under both policies"
    if days is None or study.trial is None:
        return Section("days", title)
    claim = study.trial["claim"]
    pair = f"candidate ({claim['candidate']}) above, parent below"
    redo = f"evenline report {study.name}"
    figures = [
        Shown(
            "timespace", "Time-space diagrams", "",
            f"Each line is a bus on its way; {pair}. Evenly spaced lines are even headways. Drag "
            "along the diagram to zoom into a stretch of the day.",
            redo, "Time and space", True,
        ),
        Shown(
            "headways", "Heat maps", "",
            "Time since the bus before, as a share of the scheduled headway, at each stop (down) "
            "for each bus (across). The first stop and the first bus have none.",
            redo, "Headways",
        ),
        Shown(
            "load", "Line chart", "",
            "Passengers on board when buses leave each stop: mean, and what nine buses in ten stay "
            "within. Uneven headways show as a wide gap between the two.",
            redo, "Load",
        ),
    ]  # fmt: skip
    intro = (
        f"{FAST} The same passengers and traffic for both; demand \u00d7 {days['level']:.2f}, "
        f"training seed {days['seed']}."
    )
    return Section("days", title, intro, figures, tag="fast world")


def _reserve(study: Study, days: dict[str, Any] | None) -> Section:
    title = "Where and when the reserve acts"
    if days is None:
        return Section("reserve", title)
    count = len(days["blocks"])
    shown = Shown(
        "reserve", "Heat map by service and hour", words.reserve_words(days),
        "The reserve acts on lightly loaded last buses while people are still arriving. Mean over "
        f"{count} simulated day{'s' if count > 1 else ''}.",
        f"evenline report {study.name}", controls=True,
    )  # fmt: skip
    return Section("reserve", title, FAST, [shown], tag="fast world")


def _learning(study: Study) -> Section:
    title = "Learning"
    training = study.training
    if training is None:
        return Section("learning", title)
    redo = words.again(study, "train")
    figures = []
    if training["ends"]:
        caption = words.ends_words(training)
        figures.append(Shown("ends", "Dot plot by learner", caption, "", redo, "Results"))
    if training["metrics"]:
        seeds = "Lines are means over training seeds, bands their range."
        figures.append(
            Shown("metrics", "Line chart", "", seeds, redo, "Learning curves", controls=True)
        )
    return Section("learning", title, figures=figures)


def _fidelity(study: Study) -> Section:
    title = "Is the fast world like SUMO?"
    if study.fidelity is None:
        return Section("fidelity", title)
    caption, redo = words.fidelity_words(study.fidelity), words.again(study, "fidelity")
    shown = Shown("fidelity", "Interval plot", "", caption, redo, controls=True)
    intro = (
        "Policies learn in a fast model of the network. It may be used only where its days agree "
        "with SUMO's within limits fixed in advance."
    )
    return Section("fidelity", title, intro, [shown])


def _replay(study: Study) -> Section:
    title = "Is the replay what it claims to be?"
    replay = study.replay
    if replay is None:
        return Section("replay", title)
    caption, redo = words.replay_words(replay), words.again(study, "replay-audit")
    shown = Shown("replay", "Histogram", "", caption, redo, controls=True)
    verdicts = {True: "holds", False: "FAILS", None: ""}
    rows = [
        [f["name"], _figure_text(f, f["value"]), _figure_text(f, f["paper"]), verdicts[f["passed"]]]
        for f in replay["figures"]
    ]
    body = table(
        "Recomputed from the files; the paper's figures are of its own city.",
        ["", "here", "paper", "claim"], rows,
    )  # fmt: skip
    return Section("replay", title, figures=[shown], body=body)


def _figure_text(figure: dict[str, Any], value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if figure["low"] is None else words.share(value, 2)


def _ratio(study: Study) -> Section:
    title = "Can simulated and logged days be told apart?"
    if study.ratio is None:
        return Section("ratio", title)
    caption, redo = words.ratio_words(study.ratio), words.again(study, "train")
    shown = Shown("ratio", "Dot plot by learner", caption, "", redo)
    return Section("ratio", title, figures=[shown])


def _provenance(study: Study) -> Section:
    facts = table(
        "What identifies this study", ["", "value"],
        [[name, Code(value)] for name, value in words.facts(study)], texts={1},
    )  # fmt: skip
    rows = [
        [each.what, Code(each.file), Code(each.sha256[:16]), Code(each.redo, wrap=True)]
        for each in words.origins(study)
    ]
    origins = table(
        "What the figures were made from; commands run in the folder that holds the study",
        ["", "file", "SHA-256 begins", "to make it again"], rows, texts={1, 2, 3},
    )  # fmt: skip
    body = facts + (origins if rows else "")
    return Section("provenance", "Provenance", body=body)
