"""The sections of a study's page, with their figures and tables, from the study's data.

A figure is a frame with words, a text alternative and a button for its data; the script draws
into it. The template (`assets/page.html.j2`) turns all of this into HTML and escapes it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from evenline.city.model import City
from evenline.figures.page import Numbers
from evenline.report import words
from evenline.report.data import Study


@dataclass(frozen=True)
class Shown:
    """A figure that the script draws: its name, its finding, how to make its data again.

    `finding` describes the first view; the script updates it when the reader chooses another.
    """

    id: str
    kind: str
    finding: str
    caption: str
    redo: str
    title: str = ""
    controls: bool = False

    @property
    def spoken(self) -> str:
        """The text alternative."""
        return " ".join(filter(None, (f"{self.kind}.", self.finding, self.caption)))


@dataclass(frozen=True)
class Table(Numbers):
    """A table; `columns` that are not numbers are text, code or command; `strong` rows are bold."""

    columns: Mapping[int, str] = field(default_factory=dict)
    strong: AbstractSet[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of the page; without figures and tables it says that the study has no such part."""

    id: str
    title: str
    intro: str = ""
    figures: Sequence[Shown] = ()
    tables: Sequence[Table] = ()
    tag: str = ""


def sections(study: Study, days: dict[str, Any] | None) -> list[Section]:
    """Every section, in the order of the page."""
    return [
        _methods(study),
        _forest(study),
        _effects(study),
        _map(study),
        _days(study, days),
        _holds(study, days),
        _learning(study),
        _fidelity(study),
        _replay(study),
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
        f"Means over {days:,} days a method ({trial['simulator']}); times per passenger. "
        "Only the comparisons that the verdict names were registered."
    )
    table = Table(caption, head, rows, {1: "text"}, roles.keys())
    return Section("methods", title, tables=[table])


def _forest(study: Study) -> Section:
    title = "Block by block"
    if study.trial is None:
        return Section("forest", title)
    finding, redo = words.forest_words(study.trial), words.again(study, "analyse")
    shown = Shown("forest", "Forest plot", finding, "", redo, controls=True)
    intro = (
        "A block is a set of fresh passengers, cars and signals, the same for every policy. "
        "Blocks are independent of each other; the days inside one are not."
    )
    return Section("forest", title, intro, [shown])


def _effects(study: Study) -> Section:
    title = "By demand and by training seed"
    if study.trial is None:
        return Section("effects", title)
    if len(study.trial["seeds"]) == 1:
        title = "By demand"
    finding, redo = words.effects_words(study.trial), words.again(study, "analyse")
    shown = Shown("effects", "Dot plot", finding, "", redo, controls=True)
    return Section("effects", title, "Does it hold on quiet and on busy days?", [shown])


def _map(study: Study) -> Section:
    title = "The network"
    city = study.city
    if city is None:
        return Section("map", title)
    signals = sum(node.signal for node in city.nodes)
    caption = (
        f"{city.name}: {len({s.route for s in city.services})} routes in "
        f"{len(city.services)} directions, {len(city.stops)} stops, "
        f"{signals} signal{'s' * (signals != 1)}, {len(city.trips)} bus trips in a "
        f"day of {round(city.horizon_s / 3600, 1):g} hours, buses for "
        f"{_capacities(city)} passengers."
    )
    shown = Shown(
        "map", "Map", "", f"{caption} Choose a route to follow it below.",
        f"evenline report {study.name}", controls=True,
    )  # fmt: skip
    return Section("map", title, figures=[shown])


def _capacities(city: City) -> str:
    sizes = sorted({city.vehicles[trip.vehicle].capacity for trip in city.trips})
    return " or ".join(map(str, sizes))


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
        f"{_simulated(study.trial)} The same passengers and traffic for both; "
        f"demand \u00d7 {days['level']:.2f}"
        + ("." if study.training is None else f", training seed {days['seed']}.")
    )
    return Section("days", title, intro, figures, tag="fast world")


def _simulated(trial: Mapping[str, Any]) -> str:
    return (
        "Simulated in the fast world when this page was made: the trial's own days "
        f"({trial['simulator']}) keep totals only."
    )


def _holds(study: Study, days: dict[str, Any] | None) -> Section:
    title = "Where and when buses are held"
    if days is None or study.trial is None:
        return Section("holds", title)
    count, redo = len(days["blocks"]), f"evenline report {study.name}"
    figures = [
        Shown(
            "holds", "Heat map by service and hour",
            words.holds_words(days, study.trial["claim"]["candidate"]),
            f"Mean over {count} simulated day{'s' if count > 1 else ''}.",
            redo, controls=True,
        )
    ]  # fmt: skip
    if days["decision"] is not None:
        figures.append(
            Shown(
                "decision", "Line chart", words.decision_words(days["decision"]),
                "When a bus reaches a stop, the look-ahead computes what the rest of the day would "
                "cost the passengers of its service for each hold, and takes the cheapest. This is "
                "the decision between two buses that saves most on the first of these days.",
                redo, "One decision",
            )
        )  # fmt: skip
    return Section("holds", title, _simulated(study.trial), figures, tag="fast world")


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
    table = Table(
        "Recomputed from the files; the paper's figures are for its own city.",
        ["", "here", "paper", "claim"], rows,
    )  # fmt: skip
    return Section("replay", title, figures=[shown], tables=[table])


def _figure_text(figure: dict[str, Any], value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if figure["low"] is None else words.share(value, 2)


def _provenance(study: Study) -> Section:
    facts = Table("What identifies this study", ["", "value"], words.facts(study), {1: "code"})
    origins = Table(
        "What the figures were made from; run the commands in the folder that contains the study",
        ["", "file", "SHA-256 begins", "to make it again"],
        [(each.what, each.file, each.sha256[:16], each.redo) for each in words.origins(study)],
        {1: "code", 2: "code", 3: "command"},
    )
    tables = [facts, origins] if origins.rows else [facts]
    return Section("provenance", "Provenance", tables=tables)
