"""The page that puts every table of the paper's results and appendix next to ours.

Only what corresponds is compared: a trial of another claim is refused, and a method, a gate or a
result of another training has no number of the paper beside it.

Everything comes from files: a closed trial, which is verified first, and the results of training
and of the audits. Every sentence is a function of these numbers. Until the trial is closed, the
page says how far it is and shows only what does not depend on outcomes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from evenline.city.tables import load_city
from evenline.figures.plots import png
from evenline.replay.store import open_store
from evenline.report.data import read_trial
from evenline.report.trial import forest, verdict_lines
from evenline.report.words import on_record
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.files import read_json, write_bytes, write_text
from evenline.trial.journal import CLOSEOUT
from evenline.trial.packed import blocks_done, unpacked
from evenline.trial.plan import GATES, less_time
from evenline.trial.registration import Trial, notices
from evenline.trial.registration import read_trial as registered_trial
from evenline.trial.verify import verify
from reproduce.correspondence import (
    FINAL,
    audit_of,
    papers_labels,
    ratio_of,
    replay_of,
    training_of,
)
from reproduce.door import run
from reproduce.guard import guard_line
from reproduce.paper import paper
from reproduce.ratio import ratio_lines
from reproduce.training import training_values
from reproduce.unheld import accrued, effect_lines, unheld_of
from reproduce.versions import FILE as VERSIONS

Figures = Mapping[str, float]  # of the three endpoints
NAMES = {"generalized_s": "Time, s", "completion": "Completion", "unfinished": "Unfinished"}
FORMS = {"generalized_s": ",.2f", "completion": ".5f", "unfinished": ",.2f"}


@dataclass(frozen=True)
class Sources:
    """A trial, and the results that belong to it, where they are known."""

    trial: Trial
    labels: dict[str, str]  # the paper's label of a method
    training: Path | None
    replay: Path | None  # the audit's file
    fidelity: Path | None  # the audit's file
    ratio: Path | None  # the diagnostic's file


def write_evidence(
    document: Path, folder: Path, training: Path | None = None, audits: Path | None = None
) -> None:
    """Write the page. By default, training and audits are those of the trial's study, or of its
    city in `data` or `results` if they belong to the trial.
    """
    trial = registered_trial(folder)
    labels = papers_labels(trial)
    if not labels:
        raise InputError(
            f"{folder}: its claim is not the paper's, which compares {FINAL} behind the chains"
            f" candidate and parent; write its result with: evenline trial analyse {folder} --docs"
            " FILE"
        )
    sources = Sources(
        trial,
        labels,
        training_of(trial, training),
        audit_of(trial, "replay.json", "replay-audit", audits),
        audit_of(trial, "fidelity.json", "fidelity", audits),
        ratio_of(trial, audits),
    )
    made = f"Made by `python -m reproduce.evidence {folder} --docs {document}`"
    closed = (folder / CLOSEOUT).is_file()
    lines = _closed(document, folder, made, sources) if closed else _running(trial, made)
    if not closed:
        lines += _section("The evidence", "chain", _chain(sources))
    city, train = trial.registered.city.name, sources.training
    for title, source, path, rows, redo in (
        (
            "Ratio diagnostic",
            "ratio",
            sources.ratio,
            _ratio,
            f"python -m reproduce.ratio {train} --city",
        ),
        ("Replay and support", "replay", sources.replay, _replay, "evenline replay check --city"),
        ("Fidelity", "fidelity", sources.fidelity, _fidelity, "evenline city judge"),
    ):
        if path is not None and path.is_file():
            lines += _section(title, source, rows(read_json(path)))
        else:
            redo = f"`{redo} {city}` makes it"
            lines += _section(title, source, [f"None that belongs to this trial: {redo}."])
        if source == "replay" and (replay := replay_of(trial)) is not None:
            store = open_store(replay, load_city(trial.inputs / "city"))
            lines += ["", guard_line(store, paper()["replay"]["rows"]["share of guard rows"])]
    if train is not None:
        plan = read_json(train / "config.json")["plan"]
        lines += _section("Training values", "training", _training(plan))
    write_text(document, "\n".join(lines) + "\n")


# -- the trial ------------------------------------------------------------------------------------


def _running(trial: Trial, made: str) -> list[str]:
    """The beginning of the page while outcomes are sealed."""
    done, every = blocks_done(trial.folder), len(trial.plan.blocks)
    state = "is complete but not closed" if done == every else "is running"
    return [
        f"# Evidence: the trial {state}, {done} of {every} blocks done",
        "",
        f"{made}. The trial `{trial.registered.name}` of {trial.registered.jobs:,} days is"
        f" registered as `{trial.sha256}`. Its outcomes stay sealed until it is closed: this page"
        " shows only what does not depend on them.",
    ]


def _closed(document: Path, folder: Path, made: str, sources: Sources) -> list[str]:
    """The verdict and every table of the trial."""
    opinion = verify(folder)
    for problem in opinion.problems:
        raise InputError(f"{folder}: {problem}")
    trial, labels = read_trial(folder), sources.labels
    assert trial is not None, "a closed trial has its analysis"
    with unpacked(folder) as full:
        records = [read_json(path) for path in sorted((full / "records").glob("*.json"))]
    done, planned = opinion.report["records"], trial["jobs"]
    days = f"{done:,} days" if done == planned else f"{done:,} of {planned:,} planned days"
    analysis, image = trial["analysis"], document.parent / "images" / "evidence-blocks.png"
    write_bytes(image, png(forest(trial)))
    return [
        f"# Evidence: {'confirmed' if analysis['confirmed'] else 'not confirmed'}",
        "",
        f"{made}: {days}, {trial['simulator']}, registered as"
        f" `{trial['sha256']}`, closed under `{trial['merkle_root']}`.",
        "",
        *verdict_lines(analysis),
        *on_record(trial),
        *_section("The evidence", "chain", _chain(sources)),
        *_section("The claim", "verdict", _claim(trial, labels)),
        *_section("Candidate and parent", "primary", _primary(trial)),
        *_section("Blocks", "verdict", _blocks(trial)),
        "",
        f"![Candidate minus parent in each block](images/{image.name})",
        *_section("Demand levels", "levels", _levels(analysis["by_level"], records)),
        *_section("Training seeds", "seeds", _seeds(analysis["by_seed"])),
        *_section("Lineage controls", "methods", _controls(trial, labels)),
        *_where(sources.trial, records),
        *_section("Runtime", "runtime", _runtime(sources, records)),
    ]


def _section(title: str, source: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", f"The paper: {paper()[source]['source']}.", "", *lines]


def _chain(sources: Sources) -> list[str]:
    """What stands behind the verdict, in the paper's three parts."""
    trial, theirs = sources.trial, paper()["chain"]
    plan, learning = trial.plan, ["A replay", "a fast world", "actors"]
    if sources.replay is not None:
        figures = {row["name"]: row["value"] for row in read_json(sources.replay)["figures"]}
        rows, days = (figures.get(name, 0) for name in ("rows", "trajectories"))
        learning[0] = f"A replay of {rows:,} decisions on {days:,} days of SUMO"
    if sources.fidelity is not None:
        accepted = read_json(sources.fidelity)["accepted"]
        learning[1] = f"a calibrated fast world, {'accepted' if accepted else 'not accepted'}"
    if sources.training is not None:
        values = training_values(read_json(sources.training / "config.json")["plan"])
        learning[2] = (
            f"actors of {len(plan.seeds)} seeds after {values['offline IQL updates']} IQL updates"
            f" and {values['fixed actor endpoint']}, of which the last is used"
        )
    cells = len(plan.blocks) * len(plan.levels)
    ours = {
        "learning": f"{'; '.join(learning)}.",
        "development": "The chain, its constants and the learners' schedules are the paper's. What"
        " it leaves open, the city's demand above all, was chosen when the reserve's effect had"
        " been seen on development cells; no trial uses these.",
        "confirmation": f"Candidate and parent on {cells} cells that nobody had used:"
        f" {len(plan.blocks)} blocks crossed with {len(plan.levels)} demand levels. Exact sign"
        f" tests over blocks with all {len(plan.seeds)} training seeds in each.",
    }
    titles = {
        "learning": "Frozen learning evidence",
        "development": "Adaptive development",
        "confirmation": "Fresh formal confirmation",
    }
    body = [[title, theirs[name], ours[name]] for name, title in titles.items()]
    return markdown([["", "paper", "ours"], *body], text=3)


def _where(trial: Trial, records: Sequence[dict[str, Any]]) -> list[str]:
    """Where the effect comes from: until the last bus leaves, and after."""
    title, city = ["", "## Where the effect comes from", ""], trial.registered.city.name
    days = unheld_of(trial, Path(f"data/unheld-{city}"))
    found = accrued(records, trial.plan.claim, days or {})
    if found is None:
        return [*title, "The records of this trial do not tell when an effect accrues."]
    opened = load_city(trial.inputs / "city")
    lines = [*title, *effect_lines(found, opened.service_end_s, opened.horizon_s)]
    if days is None:
        redo = f"python -m reproduce.unheld {trial.folder} --out data/unheld-{city}"
        lines.append(f"Days without holding on the same cells are missing: `{redo}` runs them.")
    else:
        lines.append(
            f"The {len(days)} days without holding ran beside the trial after it was closed and are"
            " no part of it."
        )
    return lines


def _runtime(sources: Sources, records: Sequence[dict[str, Any]]) -> list[str]:
    """The versions that the days ran under, and what another version changes."""
    trial, theirs = sources.trial, paper()["runtime"]
    pythons = sorted({record["run"]["host"]["python"] for record in records})
    replay = read_json(sources.replay)["sumo"] if sources.replay else ""
    formal = trial.registered.sumo or ""
    rows = [
        ["SUMO of the replay", theirs["replay"][0], replay],
        ["SUMO of the formal days", theirs["formal"][0], formal],
        ["Python of the formal days", theirs["formal"][1], ", ".join(pythons)],
    ]
    lines = markdown([["", "paper", "ours"], *rows])
    path = Path(f"data/versions-{trial.registered.city.name}/{VERSIONS}")
    known = read_json(path) if path.is_file() else {}
    if known.get("trial") == trial.sha256:
        told = [
            f"{row['difference']['generalized_s']:+.1f} s under {version}"
            for version, row in known["versions"].items()
        ]
        blocks = known["versions"][formal]["blocks"]
        lines += ["", f"Candidate minus parent on the first {blocks} blocks: {', '.join(told)}."]
    return lines


def _claim(trial: dict[str, Any], labels: Mapping[str, str]) -> list[str]:
    analysis, printed = trial["analysis"], paper()["verdict"]
    claim = analysis["claim"]
    theirs = [f"{printed['wins']} of {printed['blocks']}, p = {printed['p']:.7f}", "passed"]
    rows = [
        [name, theirs[0], f"{row['wins']} of {row['blocks']}, p = {row['p']:.7f}"]
        for name, row in (
            ("blocks with less generalized time", claim["primary"]),
            ("blocks with completion not inferior", claim["completion"]),
        )
    ]
    both = claim["intersection_union_passed"]
    rows.append(["both tests (intersection-union)", theirs[1], _passed(both)])
    for part, word in (("gates", "gate"), ("robustness", "robustness gate")):
        for name, ok in analysis.get(part, {}).items():
            asked = less_time(name, claim["primary"]["required_wins"], claim["primary"]["blocks"])
            known = name in GATES or (asked is not None and asked.control in labels)
            rows.append([f"{word}: {name}", theirs[1] if known else "", _passed(ok)])
    failed = [name for name, theirs_, ours in rows if theirs_ and ours == "failed"]
    same = "Everything that passed in the paper passed here."
    said = f"Passed in the paper and failed here: {', '.join(failed)}." if failed else same
    return [*markdown([["Part", "paper", "ours"], *rows]), "", said]


def _passed(truth: bool) -> str:
    return "passed" if truth else "failed"


def _primary(trial: dict[str, Any]) -> list[str]:
    analysis, claim = trial["analysis"], trial["claim"]
    printed, methods = paper()["primary"]["difference"], paper()["methods"]["rows"]
    ours = analysis["difference"]
    rows = {
        "parent": (methods["parent"], analysis["means"][claim["parent"]]),
        "candidate": (methods["reserve"], analysis["means"][claim["candidate"]]),
        "difference": (printed, ours),
    }
    theirs, own = rows["parent"]
    gap, done = (
        own["generalized_s"] - theirs["generalized_s"],
        own["completion"] - theirs["completion"],
    )
    return [
        *_pairs("Policy", rows),
        "",
        f"Candidate minus parent is {ours['generalized_s']:+.1f} s here and"
        f" {printed['generalized_s']:+.1f} s in the paper: "
        f"{_compared(ours['generalized_s'], printed['generalized_s'])}. Completion changes by"
        f" {100 * ours['completion']:+.2f} and {100 * printed['completion']:+.2f} percentage"
        f" points: {_compared(ours['completion'], printed['completion'])}. Relative to the parent,"
        f" time changes by {_share(ours, own, 'generalized_s')} (the paper:"
        f" {_share(printed, theirs, 'generalized_s')}) and unfinished passengers by"
        f" {_share(ours, own, 'unfinished')} (the paper: {_share(printed, theirs, 'unfinished')})."
        " Our parent differs from"
        f" the paper's by {gap:+.1f} s and {100 * done:+.2f} points of completion; city and actors"
        " are not the paper's.",
    ]


def _share(change: Figures, of: Figures, name: str) -> str:
    return f"{change[name] / of[name]:+.2%}"


def _compared(ours: float, theirs: float) -> str:
    """An effect of ours next to the paper's, in words."""
    if ours == 0:
        return "no difference here"
    if (ours < 0) != (theirs < 0):
        return "the opposite direction"
    return f"the same direction, {abs(ours / theirs):.0%} of its size"


def _blocks(trial: dict[str, Any]) -> list[str]:
    claim = trial["analysis"]["claim"]
    time_s, completion = (claim[name]["block_differences"] for name in ("primary", "completion"))
    columns = zip(
        trial["blocks"], time_s, completion, claim["unfinished_block_differences"], strict=True
    )
    rows = [[f"{a}-{b}", f"{y:+.2f}", f"{c:+.5f}", f"{u:+.2f}"] for (a, b), y, c, u in columns]
    lower, higher = sum(y < 0 for y in time_s), sum(c > 0 for c in completion)
    printed = paper()["verdict"]
    return [
        *markdown([["Block", *NAMES.values()], *rows]),
        "",
        f"Candidate minus parent. Time is less in {lower} of {len(rows)} blocks"
        f" ({min(time_s):+.1f} to {max(time_s):+.1f} s) and completion higher in {higher}. The"
        f" paper prints no block differences; it says that all {printed['blocks']} are favourable"
        " in both.",
    ]


def _levels(ours: Mapping[str, Figures], records: Sequence[dict[str, Any]]) -> list[str]:
    printed = paper()["levels"]["rows"]
    levels = sorted(ours, key=float)
    times = [ours[level]["generalized_s"] for level in levels]
    good = sum(time < 0 for time in times)
    served = sum(ours[level]["completion"] > 0 for level in levels)
    if len(times) == 1:
        growth = "There is only one level."
    elif all(after < before for before, after in pairwise(times)):
        growth = "The saving grows with demand, as in the paper."
    else:
        best = levels[times.index(min(times))]
        growth = (
            "The saving does not grow from level to level as it does in the paper; it is largest"
            f" at demand {best}."
        )
    return [
        *_pairs("Demand", {level: (printed.get(level), ours[level]) for level in levels}, "+"),
        "",
        f"{growth} Time is less at {good} of {len(levels)} levels (the paper: {len(printed)} of"
        f" {len(printed)}), and completion is higher at {served}.",
        "",
        _journeys(records),
    ]


def _journeys(records: Sequence[dict[str, Any]]) -> str:
    """How many people travel, here and as the paper's differences imply."""
    theirs = [-row["unfinished"] / row["completion"] for row in paper()["levels"]["rows"].values()]
    departed = {record["cell"]["demand"]: record["outcome"]["departed"] for record in records}
    ours = [departed[level] for level in sorted(departed)]
    return (
        "The paper does not say how many people travel. Its differences in unfinished passengers"
        f" divided by those in completion are {', '.join(f'{x:,.0f}' for x in theirs)} people at"
        f" its three levels; ours are {', '.join(f'{x:,}' for x in ours)}."
        " [When a reserve helps](sensitivity.md) has a row with the paper's number."
    )


def _seeds(ours: Mapping[str, Figures]) -> list[str]:
    printed = paper()["seeds"]["rows"]
    times, theirs = ([row["generalized_s"] for row in rows.values()] for rows in (ours, printed))
    return [
        *_pairs("Seed", {seed: (printed.get(seed), row) for seed, row in ours.items()}, "+"),
        "",
        f"Time is less for {sum(time < 0 for time in times)} of {len(times)} seeds (the paper:"
        f" {len(theirs)} of {len(theirs)}), by {min(times):+.1f} to {max(times):+.1f} s (the paper:"
        f" {min(theirs):+.1f} to {max(theirs):+.1f} s).",
    ]


def _controls(trial: dict[str, Any], labels: Mapping[str, str]) -> list[str]:
    analysis, claim = trial["analysis"], trial["claim"]
    printed, ours = paper()["methods"]["rows"], analysis["means"]
    theirs: dict[str, Any] = {
        name: printed[labels[name]] if name in labels else None for name in ours
    }
    order = [*printed, None]
    rows = {
        f"{name}: {theirs[name]['title']}" if theirs[name] else name: (theirs[name], ours[name])
        for name in sorted(ours, key=lambda name: order.index(labels.get(name)))
    }
    # Candidate minus method, on the days of both: a withdrawn control has fewer.
    gaps = {claim["parent"]: analysis["difference"]}
    gaps |= {name: row["difference"] for name, row in analysis["controls"].items()}
    faster = [name for name, gap in gaps.items() if gap["generalized_s"] > 0]
    served = [name for name, gap in gaps.items() if gap["completion"] < 0]
    blocks = analysis["claim"]["primary"]["blocks"]
    short = [name for name, row in analysis["controls"].items() if row["blocks"] < blocks]
    wins = [
        f"{name} {row['favourable_blocks']} of {row['blocks']}"
        for name, row in analysis["controls"].items()
        if name in labels
    ]
    lines = [*_pairs("Method", rows), ""]
    lines += [
        _best("less time", faster) + " " + _best("higher completion", served),
        "In the paper the candidate is best in both.",
    ]
    if short:
        lines.append(
            f"The means of {', '.join(short)} are over the blocks that they have, and each is"
            " compared with the candidate on these."
        )
    if wins:
        lines.append(
            f"Blocks in which the candidate needs less time than a control: {', '.join(wins)}"
            f" (the paper: {paper()['verdict']['favourable_blocks_against_each_control']} of"
            f" {paper()['verdict']['blocks']} against each)."
        )
    if raw_actor := next((ours[name] for name in ours if labels.get(name) == "raw"), None):
        raw, parent = raw_actor, ours[claim["parent"]]
        above = printed["raw"]["generalized_s"] - printed["parent"]["generalized_s"]
        lines.append(
            "The raw actor differs from the parent, which tempers it, by"
            f" {raw['generalized_s'] - parent['generalized_s']:+.1f} s (the paper:"
            f" {above:+.1f} s)."
        )
    return lines


def _best(what: str, others: Sequence[str]) -> str:
    if not others:
        return f"No method has {what} than the candidate."
    return f"Methods with {what} than the candidate: {', '.join(others)}."


# -- what does not depend on outcomes -------------------------------------------------------------


def _ratio(found: dict[str, Any]) -> list[str]:
    return ratio_lines(found["rows"])


def _replay(found: dict[str, Any]) -> list[str]:
    figures, printed = {row["name"]: row for row in found["figures"]}, paper()["replay"]["rows"]
    rows = []
    for name, row in figures.items():
        form = ",.0f" if row["low"] is None else ".3%"
        ours = format(row["value"], form)
        if row["low"] is not None:
            ours += f" ({row['low']:.3%} to {row['high']:.3%})"
        rows.append([name, format(printed[name], form) if name in printed else "-", ours])
    ratios = [
        f"{name}: {figures[name]['value'] / printed[name]:.2f} times the paper's"
        for name in (
            "share of exact zero holds",
            "share of guard rows",
            "guard rows held at least 30 s",
        )
        if name in figures
    ]
    wrong = [name for name, row in figures.items() if row["passed"] is False]
    return [
        f"By `evenline replay check`, SUMO {found['sumo']}; intervals are over cells.",
        "",
        *markdown([["Figure", "paper", "ours"], *rows]),
        "",
        f"{'; '.join(ratios).capitalize()}. "
        + (f"Claims that failed: {', '.join(wrong)}." if wrong else "Every audited claim holds."),
    ]


def _fidelity(found: dict[str, Any]) -> list[str]:
    printed, zero = paper()["fidelity"], found["largest_zero_gaps"]
    widest: dict[str, float] = {}
    for line in found["lines"]:
        if line["audit"] != "zero":
            end = max(abs(line["low"]), abs(line["high"]))
            widest[line["quantity"]] = max(end, widest.get(line["quantity"], 0.0))
    pairs = [("largest gap without holding", printed["zero"], zero)]
    pairs.append(("largest end of an interval, seven policies", printed["response"], widest))
    rows, smaller = [], 0
    for what, theirs, ours in pairs:
        for name, value in theirs.items():
            smaller += ours[name] <= value
            rows.append([f"{name}: {what}", f"{value:.4f}", f"{ours[name]:.4f}"])
    inside = sum(line["passed"] for line in found["lines"])
    return [
        "Completion is absolute, all others are relative.",
        "",
        *markdown([["Quantity", "paper", "ours"], *rows]),
        "",
        f"{inside} of {len(found['lines'])} intervals are inside their limits, so the fast world is"
        f" {'accepted' if found['accepted'] else 'not accepted'}. {smaller} of {len(rows)} figures"
        " are at most the paper's.",
    ]


def _training(plan: dict[str, Any]) -> list[str]:
    printed, ours = paper()["training"]["rows"], training_values(plan)
    rows = [[name, value, ours.get(name, "")] for name, value in printed.items()]
    other = [name for name, theirs, own in rows if theirs != own]
    rewards = "centred" if plan.get("centred") else "not centred"
    return [
        f"The values of {FINAL}: those that the run recorded, and the constants of our learner.",
        "",
        *markdown([["Parameter", "paper", "ours"], *rows]),
        "",
        (f"Other than in the paper: {', '.join(other)}." if other else "All are the paper's.")
        + f" Rewards are {rewards} by the mean cost rate of the replay.",
    ]


# -- tables ---------------------------------------------------------------------------------------


def _pairs(
    first: str, rows: Mapping[str, tuple[Figures | None, Figures]], sign: str = ""
) -> list[str]:
    """The three endpoints, each the paper's and ours; a difference has its sign."""
    head = [first]
    for name in NAMES.values():
        head += [f"{name}: paper", "ours"]
    body = []
    for label, (theirs, ours) in rows.items():
        mark = "+" if label == "difference" else sign
        cells = [label]
        for name, form in FORMS.items():
            cells.append("" if theirs is None else format(theirs[name], mark + form))
            cells.append(format(ours[name], mark + form))
        body.append(cells)
    return markdown([head, *body])


# -- the command ----------------------------------------------------------------------------------


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the trial.")],
    docs: Annotated[Path, typer.Option(help="The page to write, such as docs/evidence.md.")],
    training: Annotated[
        Path | None, typer.Option(help="Folder of the training run (default: the city's).")
    ] = None,
    audits: Annotated[
        Path | None, typer.Option(help="Folder of both audits (default: the city's).")
    ] = None,
) -> None:
    """Write a page with every table of the paper next to ours. Shows outcomes of a closed trial
    only.
    """
    write_evidence(docs, folder, training, audits)
    for notice in notices(folder):
        print(notice)
    print(docs)


if __name__ == "__main__":
    run("reproduce.evidence", main)
