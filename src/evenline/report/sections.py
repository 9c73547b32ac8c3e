"""The sections of a study's page, with their figures and tables, from the study's data.

A figure is a frame with words, a text alternative and buttons for its data and drawing; the script
draws into it. The template (`assets/page.html.j2`) turns all of this into HTML and escapes it. A
part that the study does not have has no section.
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
    """A table; `columns` that are not numbers are text, prose, code or command; `strong` rows are
    bold.
    """

    columns: Mapping[int, str] = field(default_factory=dict)
    strong: AbstractSet[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    intro: str = ""
    figures: Sequence[Shown] = ()
    tables: Sequence[Table] = ()
    tag: str = ""


def sections(study: Study, days: dict[str, Any] | None) -> list[Section]:
    """Every section for which the study has data, in the order of the page."""
    parts = list[Section]()
    trial, city = study.trial, study.city
    if trial is not None:
        parts += [_methods(trial), _forest(study, trial), _effects(study, trial)]
    if city is not None:
        parts.append(_map(study, city))
    if days is not None and trial is not None:
        parts += [_days(study, trial, days), _holds(study, trial, days)]
    if study.training is not None:
        parts.append(_learning(study, study.training))
    if study.fidelity is not None:
        parts.append(_fidelity(study, study.fidelity))
    if study.replay is not None:
        parts.append(_replay(study, study.replay))
    return [*parts, _provenance(study)]


def _methods(trial: Mapping[str, Any]) -> Section:
    claim, beaten = trial["claim"], words.rivals(trial)
    roles = {
        claim["candidate"]: "candidate: is tested",
        claim["parent"]: "parent: has to be beaten",
    }
    described = [
        [
            name,
            roles.get(name, f"control: {'has to be beaten, too' if name in beaten else 'beside'}"),
            trial["what"][name],
        ]
        for name in trial["methods"]
    ]
    head = [
        "policy", "generalized time, s", "waiting, s", "on board, s", "completed, %",
        "unfinished a day", "mean hold, s", "candidate minus it, s", "blocks it is behind in",
    ]  # fmt: skip
    days = trial["methods"][claim["candidate"]]["days"]
    caption = (
        f"Means over {days:,} days a policy ({trial['simulator']}); times per passenger. Less is "
        "better, except for journeys completed; where candidate minus it is below zero, the "
        "candidate is better. Only the comparisons that the verdict names were registered."
    )
    tables = [
        Table("What each policy does", ["policy", "part", "when a bus is at a stop, it"],
              described, {1: "prose", 2: "prose"}, roles.keys()),
        Table(caption, head, _means(trial), strong=roles.keys()),
    ]  # fmt: skip
    return Section("methods", "The policies", tables=tables)


def _means(trial: Mapping[str, Any]) -> list[list[str]]:
    """The means of every policy, and how far the candidate is ahead of it."""
    claim, analysis = trial["claim"], trial["analysis"]
    primary, rows = analysis["claim"]["primary"], []
    for name, mean in trial["methods"].items():
        against = ["", ""]
        if name == claim["parent"]:
            gap = analysis["difference"]["generalized_s"]
            against = [words.change(gap), f"{primary['wins']} of {primary['blocks']}"]
        elif name != claim["candidate"]:
            control = analysis["controls"][name]
            gap = control["difference"]["generalized_s"]
            count = f"{control['favourable_blocks']} of {control['blocks']}"
            against = [words.change(gap), count]
        rows.append(
            [
                name,
                f"{mean['generalized_s']:,.1f}",
                f"{mean['waiting_each_s']:,.1f}",
                f"{mean['riding_each_s']:,.1f}",
                f"{100 * mean['completion']:.2f}",
                f"{mean['unfinished']:,.1f}",
                f"{mean['mean_hold_s']:.1f}",
                *against,
            ]
        )
    return rows


def _forest(study: Study, trial: Mapping[str, Any]) -> Section:
    redo = words.again(study, "analyse")
    shown = Shown("forest", "Forest plot", words.forest_words(trial), "", redo, controls=True)
    intro = "Blocks are independent of each other; the days inside one are not."
    return Section("forest", "Block by block", intro, [shown])


def _effects(study: Study, trial: Mapping[str, Any]) -> Section:
    title = "By demand" if len(trial["seeds"]) == 1 else "By demand and by training seed"
    redo = words.again(study, "analyse")
    shown = Shown("effects", "Dot plot", words.effects_words(trial), "", redo, controls=True)
    return Section("effects", title, "Does it hold on quiet and on busy days?", [shown])


def _map(study: Study, city: City) -> Section:
    signals = sum(node.signal for node in city.nodes)
    sizes = sorted({city.vehicles[trip.vehicle].capacity for trip in city.trips})
    caption = (
        f"{city.name}: {len({s.route for s in city.services})} routes in "
        f"{len(city.services)} directions, {len(city.stops)} stops, "
        f"{signals} signal{'s' * (signals != 1)}, {len(city.trips)} bus trips in a "
        f"day of {round(city.horizon_s / 3600, 1):g} hours, buses for "
        f"{' or '.join(map(str, sizes))} passengers."
    )
    if study.trial is not None:
        caption += " Choose a route to follow it below."
    shown = Shown("map", "Map", "", caption, words.again(study, "report"), controls=True)
    return Section("map", "The network", figures=[shown])


def _days(study: Study, trial: Mapping[str, Any], days: dict[str, Any]) -> Section:
    pair = f"candidate ({trial['claim']['candidate']}) above, parent below"
    redo = words.again(study, "report")
    figures = [
        Shown(
            "timespace", "Time-space diagrams", "",
            f"Each line is a bus trip; {pair}. Evenly spaced lines are even headways, which is "
            "better. Drag along the diagram to zoom into a stretch of the day.",
            redo, "Time and space", True,
        ),
        Shown(
            "headways", "Heat maps", "",
            "Time since the bus before, as a share of the scheduled headway, at each stop (down) "
            "for each trip (across); the paler, the better. The first stop and the first trip have "
            "none.",
            redo, "Headways",
        ),
        Shown(
            "load", "Line chart", "",
            "Passengers on board when buses leave each stop: mean, and what nine trips in ten stay "
            "within. Uneven headways show as a wide gap between the two.",
            redo, "Load",
        ),
    ]  # fmt: skip
    intro = (
        f"{_simulated(trial)} The same passengers and traffic for both; "
        f"demand \u00d7 {days['level']:.2f}"
        + ("." if study.training is None else f", training seed {days['seed']}.")
    )
    return Section("days", "One day under both policies", intro, figures, tag="fast world")


def _simulated(trial: Mapping[str, Any]) -> str:
    return (
        "Simulated in the fast world, a quick model of the network, when this page was made: the "
        f"trial's days ({trial['simulator']}) keep totals only."
    )


def _holds(study: Study, trial: Mapping[str, Any], days: dict[str, Any]) -> Section:
    count, redo = len(days["blocks"]), words.again(study, "report")
    figures = [
        Shown(
            "holds", "Heat map by service and hour",
            words.holds_words(days, trial["claim"]["candidate"]),
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
    return Section(
        "holds", "Where and when buses are held", _simulated(trial), figures, tag="fast world"
    )


def _learning(study: Study, training: Mapping[str, Any]) -> Section:
    redo, figures = words.again(study, "train"), []
    if training["ends"]:
        caption = words.ends_words(training)
        figures.append(Shown("ends", "Dot plot by learner", caption, "", redo, "Results"))
    if training["metrics"]:
        seeds = "Lines are means over training seeds, bands their range."
        figures.append(
            Shown("metrics", "Line chart", "", seeds, redo, "Learning curves", controls=True)
        )
    return Section("learning", "Learning", figures=figures)


def _fidelity(study: Study, audit: Mapping[str, Any]) -> Section:
    caption, redo = words.fidelity_words(audit), words.again(study, "fidelity")
    shown = Shown("fidelity", "Interval plot", "", caption, redo, controls=True)
    intro = (
        "Policies learn in a fast model of the network. It may be used only where its days agree "
        "with SUMO's within limits fixed in advance."
    )
    return Section("fidelity", "Is the fast world like SUMO?", intro, [shown])


def _replay(study: Study, audit: Mapping[str, Any]) -> Section:
    caption, redo = words.replay_words(audit), words.again(study, "replay-audit")
    shown = Shown("replay", "Histogram", "", caption, redo, controls=True)
    verdicts = {True: "holds", False: "FAILS", None: "not checked"}
    rows = [
        [f["name"], _figure_text(f, f["value"]), _figure_text(f, f["paper"]), verdicts[f["passed"]]]
        for f in audit["figures"]
    ]
    table = Table(
        "Recomputed from the files; the paper's figures are for its own city.",
        ["", "here", "paper", "claim"], rows,
    )  # fmt: skip
    return Section("replay", "Is the replay what it claims to be?", figures=[shown], tables=[table])


def _figure_text(figure: dict[str, Any], value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if figure["low"] is None else words.share(value, 2)


def _provenance(study: Study) -> Section:
    facts = Table("What identifies this study", ["", "value"], words.facts(study), {1: "code"})
    origins = Table(
        "What the figures were made from; the commands run where this page was made",
        ["", "file", "SHA-256 begins", "to make it again"],
        [(o.what, o.file, o.sha256[:16], o.redo) for o in words.origins(study)],
        {1: "code", 2: "code", 3: "command"},
    )
    tables = [facts, origins] if origins.rows else [facts]
    return Section("provenance", "Provenance", tables=tables)
