"""The results of a study in words: the verdict with its limits, captions, provenance.

Every sentence is a function of the study's data, so that the page says no more than its files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import evenline
from evenline.figures.page import signed
from evenline.report.data import Study
from evenline.support.files import sha256
from evenline.trial.plan import GATES, LessTime, less_time
from evenline.trial.used import has_outcomes

# What two gates checked when a registration did not say it.
_EARLIER_GATES = {
    "artifacts": "no registered file that is there was changed",
    "stability": "the training of the compared policies was recorded as stable",
}

_TIE_S = 0.05  # a difference of generalized time that no figure on the page would show


def change(value: float, digits: int = 1) -> str:
    """Format a difference with its sign."""
    return signed(value, f",.{digits}f")


def share(value: float, digits: int = 1) -> str:
    """Format a share in per cent."""
    return f"{100 * value:.{digits}f} %"


def named(method: str) -> str:
    """A method's name within a sentence."""
    return f"\u201c{method}\u201d"


def which(candidate: str) -> str:
    """The candidate's name within a sentence."""
    if candidate == "candidate":
        return "the candidate policy"
    return f"the policy {named(candidate)}"


def called(parent: str) -> str:
    """The parent's name after the word parent, unless that is its name."""
    return "" if parent == "parent" else f" {named(parent)}"


# -- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The top of the page: verdict, finding, what was tested, the checks, the limits.

    A check is None where there was nothing to check.
    """

    word: str
    confirmed: bool | None
    lead: str
    covers: tuple[str, ...]
    checks: tuple[tuple[str, bool | None], ...]
    limits: tuple[str, ...]


def verdict(study: Study) -> Verdict:
    """The verdict of the trial, or that there is none."""
    trial = study.trial
    if trial is None:
        lead = (
            "The trial of this study has not ended, so nothing is confirmed or refuted. What "
            "follows describes the parts that are done."
        )
        notes = () if study.city is None else study.city.notes  # a trial has them on record
        limits = tuple(f"On record: {note}" for note in notes)
        return Verdict("No verdict yet", None, lead, (), (), limits)
    confirmed = bool(trial["analysis"]["confirmed"])
    return Verdict(
        "Confirmed" if confirmed else "Not confirmed",
        confirmed,
        _lead(trial, confirmed),
        _covers(trial),
        _checks(trial),
        _limits(study, trial),
    )


def _lead(trial: Mapping[str, Any], confirmed: bool) -> str:
    primary = trial["analysis"]["claim"]["primary"]
    finding = f"{_difference(trial)} {_count(primary)}"
    if confirmed:
        return f"{finding} Every condition that was fixed before the trial is met."
    if primary["passed"]:
        finding = f"This describes the days of the trial and proves nothing: {_lower(finding)}"
    elif not _is_tie(trial):
        finding = f"The difference may be chance: {_lower(finding)}"
    if not primary["passed"]:
        finding += (
            " Two policies that are equally good would give the candidate as many blocks or more "
            f"in {share(primary['p'], 0)} of trials."
        )
    missed = _missed(trial)
    return (
        f"{finding} The claim as registered does not hold, because "
        f"{'this condition is' if len(missed) == 1 else 'these conditions are'} not met: "
        f"{'; '.join(missed)}."
    )


def _difference(trial: Mapping[str, Any]) -> str:
    """What passengers lost under both policies, on average."""
    claim, analysis = trial["claim"], trial["analysis"]
    before, after = _means(trial)
    candidate = f"with {which(claim['candidate'])}"
    parent = f"with its parent{called(claim['parent'])}, the policy that it has to beat"
    if _is_tie(trial):
        compared = f"as much time {candidate} as {parent}: {after:,.0f} s each"
    else:
        gain = "less" if after < before else "more"
        compared = (
            f"{gain} time {candidate} than {parent}: {after:,.0f} instead of {before:,.0f} s each "
            f"({change(100 * (after / before - 1))} %)"
        )
    return (
        f"On average over these days, passengers in {trial['city']['name']} lost {compared}. The "
        "share of journeys completed changed by "
        f"{change(100 * analysis['difference']['completion'], 2)} percentage points (more is "
        "better)."
    )


def _means(trial: Mapping[str, Any]) -> tuple[float, float]:
    """Mean generalized time of the parent and of the candidate."""
    means, claim = trial["analysis"]["means"], trial["claim"]
    return means[claim["parent"]]["generalized_s"], means[claim["candidate"]]["generalized_s"]


def _is_tie(trial: Mapping[str, Any]) -> bool:
    before, after = _means(trial)
    return abs(after - before) < _TIE_S


def _count(primary: Mapping[str, Any]) -> str:
    return (
        f"The candidate was ahead in {primary['wins']} of {primary['blocks']} independent blocks "
        f"of simulated days; the rule fixed in advance asks for {primary['required_wins']}."
    )


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _covers(trial: Mapping[str, Any]) -> tuple[str, ...]:
    """What the verdict speaks of: a day of the city, how many days, what differs between them."""
    blocks, levels, seeds = (len(trial[name]) for name in ("blocks", "levels", "seeds"))
    learned = set(trial["trained"])
    days, demand = len(trial["pairs"]), ", ".join(f"{level:.2f}" for level in trial["levels"])
    lines = [
        f"{days:,} simulated days under each policy: {blocks} blocks, {levels} level"
        f"{'s' * (levels > 1)} of demand (\u00d7 {demand})"
        + (f", {seeds} {'training seeds' if learned else 'repeats'}. " if seeds > 1 else ". ")
        + "A block has passengers, car traffic and signals of its own, the same for every policy.",
    ]
    if (day := trial["covered"]) is not None:
        lines.insert(
            0,
            f"A day in {trial['city']['name']}, from {' to '.join(day['hours'])}: all its "
            f"{day['trips']:,} bus trips, on {day['routes']} route{'s' * (day['routes'] > 1)} in "
            f"{day['services']} direction{'s' * (day['services'] > 1)}, and "
            f"{day['passengers']:,} passengers at demand \u00d7 1.00.",
        )
    return tuple(lines)


def _gate(name: str, trial: Mapping[str, Any]) -> str:
    """A gate in a few words."""
    asked = _asked(name, trial["analysis"]["claim"]["primary"])
    if asked is not None:
        return f"less passenger time than {named(asked.control)} in at least {asked.wins} blocks"
    meanings: Mapping[str, str] = trial["gates"] or GATES | _EARLIER_GATES
    return meanings[name]


def _asked(gate: str, primary: Mapping[str, Any]) -> LessTime | None:
    return less_time(gate, primary["required_wins"], primary["blocks"])


def rivals(trial: Mapping[str, Any]) -> list[str]:
    """The controls that the candidate has to beat, too."""
    primary = trial["analysis"]["claim"]["primary"]
    asked = [_asked(gate, primary) for gate in trial["claim"]["gates"]]
    return [gate.control for gate in asked if gate is not None]


def _missed(trial: Mapping[str, Any]) -> list[str]:
    """The conditions of the claim that are not met, in a few words each."""
    analysis, claim = trial["analysis"], trial["claim"]
    primary, service = analysis["claim"]["primary"], analysis["claim"]["completion"]
    needed = f"in at least {primary['required_wins']} blocks"
    conditions = [
        (f"less passenger time {needed}", primary["passed"]),
        (f"completion within the margin {needed}", service["passed"]),
        *((_gate(name, trial), analysis["gates"][name]) for name in claim["gates"]),
    ]
    return [words for words, passed in conditions if not passed]


def _checks(trial: Mapping[str, Any]) -> tuple[tuple[str, bool | None], ...]:
    """The conditions of the claim, and gates beside it; None where there was nothing to check."""
    analysis, claim = trial["analysis"], trial["claim"]
    primary, service = analysis["claim"]["primary"], analysis["claim"]["completion"]
    untrained = {claim["candidate"], claim["parent"]}.isdisjoint(trial["trained"])
    gates: list[tuple[str, bool | None]] = []
    for name in claim["gates"]:
        words, passed = _gate(name, trial), bool(analysis["gates"][name])
        if name == "stability" and passed and untrained:
            gates.append(("stable training: neither policy was trained", None))
        else:
            gates.append((words, passed))
    return (
        (
            f"less passenger time in {primary['wins']} of {primary['blocks']} blocks "
            f"({primary['required_wins']} needed; p = {primary['p']:.4f})",
            primary["passed"],
        ),
        (
            f"journeys completed at most {100 * trial['margin']:g} percentage points below the "
            f"parent's in {service['wins']} of {service['blocks']} blocks "
            f"({service['required_wins']} needed)",
            service["passed"],
        ),
        *gates,
        *(
            (f"beside the claim: {_gate(name, trial)}", bool(passed))
            for name, passed in analysis.get("robustness", {}).items()
        ),
    )


def _limits(study: Study, trial: Mapping[str, Any]) -> tuple[str, ...]:
    claim, others = trial["claim"], rivals(trial)
    tested_too = (
        f", and asks for less time than {' and '.join(map(named, others))}. Others are described, "
        "not tested"
        if others
        else " and nothing else. Other methods are described, not tested"
    )
    limits = [
        f"These are simulated days ({trial['simulator']}) in one network, "
        f"{trial['city']['name']}. No real bus was held; another city needs its own trial.",
        f"The claim compares {which(claim['candidate'])} with its direct parent"
        f"{called(claim['parent'])}{tested_too}.",
        "Time is generalized passenger time: a second of waiting at a stop counts twice, a second "
        "on board once, for everyone who sets out, including those who never arrive.",
        "The sign test says in how many blocks the candidate is ahead, not by how much; sizes and "
        "their intervals below are descriptive.",
    ]
    digests = {p["digest"] for p in trial["policies"] if p["method"] == claim["candidate"]}
    if len(trial["seeds"]) == 1 and claim["candidate"] in trial["trained"]:
        limits.append("The policies were trained once; another training seed may end elsewhere.")
    elif len(trial["seeds"]) > 1 and len(digests) == 1:
        limits.append("The candidate is the same under every training seed: seeds add no evidence.")
    if study.fidelity is not None and not study.fidelity["accepted"]:
        limits.append("The fast world in which policies learn did not pass its audit against SUMO.")
    return (*limits, *on_record(trial))


def on_record(trial: Mapping[str, Any]) -> list[str]:
    """The notices that every display of a verdict must show."""
    lines, steps = [], {"verified by independent code": "verified", "closed": "merkle_root"}
    if missing := " or ".join(words for words, key in steps.items() if not trial[key]):
        lines.append(
            f"This verdict is not final: the trial has not been {missing}. Until then its files "
            "can still change."
        )
    if others := trial["used_by"]:
        lines.append(
            f"These days were not fresh: {', '.join(map(named, others))} used some of their seeds "
            "too, and the people who chose the policies may have seen those outcomes."
        )
    lines += [f"{note[:1].upper()}{note[1:]}." for note in trial["unended"]]
    return [*lines, *(f"On record: {notice}" for notice in trial["analysis"]["notices"])]


# -- captions: what a figure shows, said without it -----------------------------------------------


def forest_words(trial: Mapping[str, Any]) -> str:
    """The block differences of generalized time."""
    changes = trial["analysis"]["claim"]["primary"]["block_differences"]
    return (
        f"Candidate minus parent in {len(changes)} blocks: generalized time changed by "
        f"{change(min(changes))} to {change(max(changes))} s per passenger (less is better), and "
        f"fell in {sum(value < 0 for value in changes)} of them."
    )


def effects_words(trial: Mapping[str, Any]) -> str:
    """The mean difference at each level and its range over seeds."""
    levels = ", ".join(
        f"{change(row['generalized_s'])} s at demand \u00d7 {float(level):.2f}"
        for level, row in trial["analysis"]["by_level"].items()
    )
    seeds = [row["generalized_s"] for row in trial["analysis"]["by_seed"].values()]
    low, high = change(min(seeds)), change(max(seeds))
    by_seed = f"; by training seed {low} to {high} s" if low != high else ""
    return f"Mean change of generalized time per passenger (less is better): {levels}{by_seed}."


def holds_words(days: Mapping[str, Any], candidate: str) -> str:
    """How often the completion reserve changed a hold, or the candidate held, and where most."""
    asked, every = sum(row[-1] for row in days["decisions"]), days["activations"]["candidate"]
    reserved = [row for row in every if row[0] == "completion reserve"]
    acted = reserved or [row for row in every if row[0] == days["held"]]
    total = sum(row[-1] for row in acted)
    if not acted:
        return f"{which(candidate).capitalize()} held no bus on the simulated days."
    by_service: dict[str, int] = {}
    for _, service, _, times in acted:
        by_service[service] = by_service.get(service, 0) + times
    most = max(by_service, key=lambda name: by_service[name])
    who = "The completion reserve set" if reserved else f"{which(candidate).capitalize()} made"
    return (
        f"{who} {total / len(days['blocks']):,.0f} holds a day, "
        f"{share(total / max(1, asked))} of all decisions, most of them on service {most}."
    )


def decision_words(decision: Mapping[str, Any]) -> str:
    """One decision of the look-ahead: what it knew, what it chose, and why."""
    saved = -min(decision["costs"])
    return (
        f"At {decision['clock']} bus {decision['trip']} of service {decision['service']} reached "
        f"stop {decision['stop']}, {decision['ahead_s']:,.0f} s after the bus ahead "
        f"({decision['planned_s']:,.0f} s are planned); the bus behind was "
        f"{decision['behind_s']:,.0f} s away. {decision['on_board']:,.0f} people were on board and "
        f"{decision['waiting']:,.0f} waited. Held for {decision['chosen_s']:,.0f} s, it saves all "
        f"passengers of the service together {saved:,.0f} s of generalized time in the forecast."
    )


def ends_words(training: Mapping[str, Any]) -> str:
    """Where the learners ended on fresh days of the fast world."""
    means: dict[str, list[float]] = {}
    for row in training["ends"]:
        means.setdefault(row["learner"], []).append(row["generalized_s"])
    if not means:
        return "No actor has been evaluated."
    best = min(means, key=lambda name: sum(means[name]) / len(means[name]))
    zero = training["zero"]
    words = (
        f"{len(means)} learners on fresh days of the fast world; {best} has the lowest mean time"
    )
    words += f" ({sum(means[best]) / len(means[best]):,.0f} s per passenger"
    return words + (f"; {zero['generalized_s']:,.0f} s without holding)." if zero else ").")


def fidelity_words(audit: Mapping[str, Any]) -> str:
    """Whether the fast world passed, and its largest difference."""
    lines = audit["lines"]
    outside = sum(not line["passed"] for line in lines)
    gap = audit["largest_zero_gaps"].get("generalized time")
    words = f"{len(lines)} comparisons of the fast world with SUMO: " + (
        "every interval is within its limit." if not outside else f"{outside} are outside."
    )
    if gap is None:
        return words
    return f"{words} Generalized time without holding differs by at most {share(gap)}."


def replay_words(audit: Mapping[str, Any]) -> str:
    """Whether the claims about the logged days hold."""
    rows = next((f["value"] for f in audit["figures"] if f["name"] == "rows"), 0)
    failed = [f["name"] for f in audit["figures"] if f["passed"] is False]
    holds = "every claim that can fail holds."
    return (
        f"{rows:,.0f} logged decisions from SUMO {audit['sumo']}, recomputed from the files: "
        + (f"these claims fail: {', '.join(failed)}." if failed else holds)
    )


# -- provenance -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """A file that the page was made from, its hash, and the command that makes it again."""

    what: str
    file: str
    sha256: str
    redo: str


_MADE = {
    "plan.toml": ("plan", ""),
    "city/manifest.json": ("city", "city"),
    "replay/manifest.json": ("replay", "replay"),
    "replay-audit/replay.json": ("replay audit", "replay-audit"),
    "calibration/calibration.json": ("calibration", "calibration"),
    "fidelity/fidelity.json": ("fidelity audit", "fidelity"),
    "train/config.json": ("training", "train"),
    "train/metrics.parquet": ("training metrics", "train"),
    "train/curve.json": ("learning results", "train"),
    "trial/trial.json": ("registration", "register"),
    "trial/matrix.json": ("trial days", "trial"),
    "trial/analysis.json": ("analysis", "analyse"),
    "trial/verification.json": ("verification", "verify"),
    "trial/closeout.json": ("closeout", "close"),
}


def origins(study: Study) -> list[Origin]:
    """Every existing file, with the step of the study that makes it."""
    return [
        Origin(what, file, sha256(study.folder / Path(file)), again(study, step))
        for file, (what, step) in _MADE.items()
        if (study.folder / Path(file)).is_file()
    ]


def again(study: Study, step: str) -> str:
    """The command that makes a part of the study again; a trial's days are never run twice.

    Once there are outcomes, earlier steps run again in a separate folder.
    """
    folder = quote(study.place)
    if step == "report":
        return f"evenline report {folder}"
    if step in ("analyse", "verify", "close"):
        return f"evenline trial {step} {folder}/trial"
    if step == "trial":
        return f"evenline trial run {folder}/trial"
    command = f"evenline study run {folder}/plan.toml --out {folder}"
    if step == "register":
        return f"{command} --until register"
    if step and has_outcomes(study.folder):
        return f"{command}-again --until {step}"
    return f"{command} --from {step} --until {step}" if step else command


def facts(study: Study) -> list[tuple[str, str]]:
    """Hashes and versions that identify the study as a whole."""
    rows = [("evenline", evenline.__version__)]
    if (trial := study.trial) is not None:
        rows += [
            ("simulator", trial["simulator"]),
            ("registered at", trial["registered_at"]),
            ("trial", trial["sha256"]),
            ("all results", trial["analysis"]["results_sha256"]),
            ("city", trial["city"]["digest"]),
        ]
        if trial["merkle_root"]:
            rows.append(("Merkle root at closeout", trial["merkle_root"]))
    return rows
