"""The page that puts every table of the paper's results and appendix next to ours.

Everything comes from files: a closed trial, which is verified first, and the results of training
and of the audits. Every sentence is a function of these numbers. Until the trial is closed, the
page says how far it is and shows only what does not depend on outcomes.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from evenline.figures.paper import paper
from evenline.figures.plots import png
from evenline.report.data import read_trial
from evenline.report.figures import forest
from evenline.report.trial import verdict_lines
from evenline.report.words import on_record
from evenline.support.errors import InputError
from evenline.support.files import read_json, write_bytes, write_text
from evenline.trial.packed import blocks_done
from evenline.trial.registration import CLOSEOUT, Trial
from evenline.trial.registration import read_trial as registered_trial
from evenline.trial.verify import verify

Figures = Mapping[str, float]  # of the three endpoints
FINAL = "v14"  # the learner whose actors the candidate uses
NAMES = {"generalized_s": "Time, s", "completion": "Completion", "unfinished": "Unfinished"}
FORMS = {"generalized_s": ",.2f", "completion": ".5f", "unfinished": ",.2f"}
CHANCE = 0.05  # an AUC within this of one half cannot tell the worlds apart


def write_evidence(
    document: Path, folder: Path, training: Path | None = None, audits: Path | None = None
) -> None:
    """Write the page; by default it reads training and audits of the trial's city from `data` or
    `results`.
    """
    trial = registered_trial(folder)
    city = trial.registered.city.name
    train, audit = training or _found("train", city), audits or _found("audit", city)
    made = f"Made by `evenline trial evidence {folder} --docs {document}`"
    closed = (folder / CLOSEOUT).is_file()
    lines = _closed(document, folder, made) if closed else _running(trial, made)
    config = _read(train / "config.json", "city", trial, "evenline train")
    for title, path, section, redo in (
        ("Ratio diagnostic", train / "ratio.json", _ratio, f"evenline train --city {city}"),
        (
            "Replay and support",
            audit / "replay.json",
            _replay,
            f"evenline audit replay --city {city}",
        ),
        ("Fidelity", audit / "fidelity.json", _fidelity, f"evenline audit fidelity --city {city}"),
    ):
        own = "city_digest" if section is _fidelity else None
        found = _read(path, own, trial, redo)
        lines += ["", f"## {title}", ""]
        lines += section(found) if found else [f"Not made yet: `{redo}` writes `{path}`."]
    if config:
        lines += ["", "## Training values", "", *_training(config["plan"])]
    write_text(document, "\n".join(lines) + "\n")


def _found(kind: str, city: str) -> Path:
    places = [Path(place) / f"{kind}-{city}" for place in ("data", "results")]
    return next((place for place in places if place.is_dir()), places[0])


def _read(path: Path, own: str | None, trial: Trial, redo: str) -> dict[str, Any] | None:
    """A result's JSON, or None if it does not exist; refuses a result of another city."""
    if not path.is_file():
        return None
    found = dict(read_json(path))
    if own is not None and found.get(own) != trial.registered.city.digest:
        raise InputError(f"{path} belongs to another city than the trial; run: {redo}")
    return found


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


def _closed(document: Path, folder: Path, made: str) -> list[str]:
    """The verdict and every table of the trial."""
    opinion = verify(folder)
    for problem in opinion.problems:
        raise InputError(f"{folder}: {problem}")
    trial = read_trial(folder)
    assert trial is not None, "a closed trial has its analysis"
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
        *_section("The claim", "verdict", _claim(analysis)),
        *_section("Candidate and parent", "primary", _primary(trial)),
        *_section("Blocks", "verdict", _blocks(trial)),
        "",
        f"![Candidate minus parent in each block](images/{image.name})",
        *_section("Demand levels", "levels", _levels(analysis["by_level"])),
        *_section("Training seeds", "seeds", _seeds(analysis["by_seed"])),
        *_section("Lineage controls", "methods", _controls(trial)),
    ]


def _section(title: str, source: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", f"The paper: {paper()[source]['source']}.", "", *lines]


def _claim(analysis: dict[str, Any]) -> list[str]:
    printed, claim = paper()["verdict"], analysis["claim"]
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
    rows += [[f"gate: {name}", theirs[1], _passed(ok)] for name, ok in analysis["gates"].items()]
    failed = [name for name, _, ours in rows if ours == "failed"]
    same = "Everything that passed in the paper passed here."
    said = f"Passed in the paper and failed here: {', '.join(failed)}." if failed else same
    return [*_table(["Part", "paper", "ours"], rows), "", said]


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
        f" points: {_compared(ours['completion'], printed['completion'])}. Our parent differs from"
        f" the paper's by {gap:+.1f} s and {100 * done:+.2f} points of completion; city and actors"
        " are not the paper's.",
    ]


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
        *_table(["Block", *NAMES.values()], rows),
        "",
        f"Candidate minus parent. Time is less in {lower} of {len(rows)} blocks"
        f" ({min(time_s):+.1f} to {max(time_s):+.1f} s) and completion higher in {higher}. The"
        f" paper prints no block differences; it says that all {printed['blocks']} are favourable"
        " in both.",
    ]


def _levels(ours: Mapping[str, Figures]) -> list[str]:
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
    ]


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


def _controls(trial: dict[str, Any]) -> list[str]:
    analysis, claim = trial["analysis"], trial["claim"]
    printed, ours = paper()["methods"]["rows"], analysis["means"]
    roles = {claim["candidate"]: "reserve", claim["parent"]: "parent"}
    theirs = {name: printed.get(roles.get(name, name)) for name in ours}
    order = [*printed, *(name for name in ours if theirs[name] is None)]
    rows = {
        f"{name}: {theirs[name]['title']}" if theirs[name] else name: (theirs[name], ours[name])
        for name in sorted(ours, key=lambda name: order.index(roles.get(name, name)))
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
    if "raw" in ours:
        raw, parent = ours["raw"], ours[claim["parent"]]
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
    printed = paper()["ratio"]
    rows = [row for name, row in found.items() if name.rsplit("-", 1)[0] == FINAL]
    if not rows:
        return [f"The training run has no diagnostic of {FINAL}."]
    own = {key: [row[key] for row in rows] for key in printed["rows"]}
    mean = {key: sum(values) / len(values) for key, values in own.items()}
    table = [
        [
            key.replace("_", " "),
            f"{theirs['mean']:.4f} ({theirs['least']:.4f} to {theirs['most']:.4f})",
            f"{mean[key]:.4f} ({min(own[key]):.4f} to {max(own[key]):.4f})",
        ]
        for key, theirs in printed["rows"].items()
    ]
    held, theirs = mean["held_out_joint_auc"], printed["rows"]["held_out_joint_auc"]["mean"]
    lost = mean["training_joint_auc"] - held
    if abs(held - 0.5) <= CHANCE:
        said = "cannot tell SUMO from the fast world on held-out days, as in the paper"
    elif held > 0.5:
        said = "still tells SUMO from the fast world on held-out days, unlike the paper's"
    else:
        said = "is worse than chance on held-out days, as in the paper"
    return [
        f"The paper: {printed['source']}. Mean over {len(rows)} seeds of {FINAL} (least to most).",
        "",
        *_table(["Diagnostic", "paper", "ours"], table),
        "",
        f"The classifier {said}: its AUC falls by {lost:.2f} to {held:.2f} (the paper: by"
        f" {printed['rows']['training_joint_auc']['mean'] - theirs:.2f} to {theirs:.2f}). No update"
        " of a policy uses it, here or there.",
    ]


def _replay(found: dict[str, Any]) -> list[str]:
    figures = {row["name"]: row for row in found["figures"]}
    rows = []
    for name, row in figures.items():
        form = ",.0f" if row["low"] is None else ".3%"
        ours = format(row["value"], form)
        if row["low"] is not None:
            ours += f" ({row['low']:.3%} to {row['high']:.3%})"
        rows.append([name, "-" if row["paper"] is None else format(row["paper"], form), ours])
    said = []
    for name in (
        "share of exact zero holds",
        "share of guard rows",
        "guard rows held at least 30 s",
    ):
        if (row := figures.get(name)) and row["paper"]:
            said.append(f"{name}: {row['value'] / row['paper']:.2f} times the paper's")
    wrong = [name for name, row in figures.items() if row["passed"] is False]
    return [
        f"The paper: {paper()['replay']['source']}. SUMO {found['sumo']}; intervals are over"
        " cells.",
        "",
        *_table(["Figure", "paper", "ours"], rows),
        "",
        f"{'; '.join(said).capitalize()}. "
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
        f"The paper: {printed['source']}. Completion is absolute, all others are relative.",
        "",
        *_table(["Quantity", "paper", "ours"], rows),
        "",
        f"{inside} of {len(found['lines'])} intervals are inside their limits, so the fast world is"
        f" {'accepted' if found['accepted'] else 'not accepted'}. {smaller} of {len(rows)} figures"
        " are at most the paper's.",
    ]


def _training(plan: dict[str, Any]) -> list[str]:
    printed, budget = paper()["training"], plan["budget"]
    (final,) = [row for row in plan["learners"] if row["name"] == FINAL] or [None]
    ours: dict[str, float] = {
        "slot embedding width": plan["slot"],
        "fused width": plan["fused"],
        "hidden width of the heads": plan["hidden"],
        "offline IQL updates": budget["iql_updates"],
        "frozen-policy warm-up, events": budget["warmup_events"],
        "simulator events in all": budget["events"],
        "ratio pretraining, updates": budget["ratio_pretraining"],
        "ratio update interval": budget["ratio_every"],
        "learner updates in all": budget["iql_updates"]
        + budget["events"]
        - budget["warmup_events"],
        "training seeds": len(plan["seeds"]),
    }
    if final is not None:
        ours |= {
            "actor frozen until event": final["actor_from"],
            "temperature frozen until event": final["temperature_from"],
            "actor ramp, first event": final["ramp"]["first"],
            "actor ramp, last event": final["ramp"]["last"],
            "actor ramp, multiplier at the start": final["ramp"]["start"],
            "actor interpolation coefficient": final["proximal"],
            "terminal taper, first event": final["taper"]["first"],
            "terminal taper, last event": final["taper"]["last"],
            "terminal taper, multiplier at the end": final["taper"]["end"],
        }
    rows = [
        [name, f"{value:,}", f"{ours[name]:,}"]
        for name, value in printed["rows"].items()
        if name in ours
    ]
    other = [name for name, theirs, own in rows if theirs != own]
    rewards = "centred" if plan.get("centred") else "not centred"
    return [
        f"The paper: {printed['source']}, the values that a run records for {FINAL}.",
        "",
        *_table(["Parameter", "paper", "ours"], rows),
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
    return _table(head, body)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "| --- |" + " ---: |" * (len(head) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
