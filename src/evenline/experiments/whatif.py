"""What if: vary one thing of a city's operation at a time, with and without a controller.

The same days run without holding and under the policy in every variant of the city. The result is
a folder with `whatif.json` and `whatif.png`, and sentences that answer what an operator asks first.
It also stores days that take long, so that a run that was stopped continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import City, Floats
from evenline.experiments.experiment import AS_IT_IS, Experiment, Variant, run
from evenline.experiments.frame import Frame
from evenline.experiments.measures import DUTIES, MEASURES, UNENDED, Difference, number, signed
from evenline.experiments.variants import (
    AT_TERMINALS,
    BUSES,
    DRIVERS,
    HALF,
    HEADWAY,
    WHERE,
    all_variants,
    buses_of,
    respaced,
)
from evenline.figures.document import insert
from evenline.figures.plots import png
from evenline.policies.bundle import open_policy, policy_digest
from evenline.runs.executors import WHOLE, Executor, Shard
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.files import (
    refuse_changed_files,
    refuse_foreign,
    to_json,
    write_bytes,
    write_listed,
)
from evenline.worlds.open import open_city

PLAN, RESULT, PICTURE = "plan.json", "whatif.json", "whatif.png"
FILES = (PLAN, PICTURE, RESULT)
NOBODY = "zero"
MOST_BUSES = 8  # the controller's worth is sought up to here
VERDICTS = {-1: "ahead", 0: "open", 1: "behind"}


@dataclass(frozen=True)
class Finding:
    """A variant: means without holding and under the policy, and what the policy changes."""

    factor: str
    name: str
    without: dict[str, float]
    held: dict[str, float]
    generalized_s: Difference
    completion: Difference

    @property
    def verdict(self) -> str:
        """Whether the policy is ahead of no holding, by the interval of generalized time."""
        return VERDICTS[self.generalized_s.sign]


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The result: the days, what they say of every variant, and what an operator asks first."""

    frame: Frame
    findings: list[Finding]
    answers: list[str]


def findings(frame: Frame, variants: Sequence[Variant], policy: str) -> list[Finding]:
    """What the policy changes in every variant."""
    names = [m.name for m in (*MEASURES, *DUTIES, UNENDED)]

    def means(variant: Variant, policy: str) -> dict[str, float]:
        return {name: float(frame.column(policy, name, variant.title).mean()) for name in names}

    return [
        Finding(
            variant.factor or variant.name,
            variant.name,
            means(variant, NOBODY),
            means(variant, policy),
            *(
                frame.difference(policy, NOBODY, name, variant.title)
                for name in ("generalized_s", "completion")
            ),
        )
        for variant in variants
    ]


def whatif(
    source: str,
    policy: str,
    out: Path,
    blocks: int = 3,
    calibration: Path | None = None,
    force: bool = False,
    docs: Path | None = None,
    executor: Executor | None = None,
    shard: Shard = WHOLE,
) -> WhatIf:
    """Run all variants in the fast world; write the folder, and a document if one is named.

    A shard runs its part of the days; the result is written when all of them exist.
    """
    if blocks < 2:
        raise InputError(f"{blocks} blocks: an interval needs at least 2")
    refuse_foreign(out, PLAN, force=force)
    refuse_changed_files(out, FILES, force)
    opened = open_city(source, calibration)
    cells = tuple(PURPOSES["development"].cells(blocks, (1.0,)))
    world = opened.fast_world()
    world.run_day(cells[0], open_policy(NOBODY, opened.city))
    buses = buses_of(opened.city, world.arrivals_s)
    variants = all_variants(opened, buses)
    experiment = Experiment(variants, list(dict.fromkeys((NOBODY, policy))), cells)
    plan = experiment.plan()
    frame = run(experiment, out, executor, shard, lambda: write_listed(out, {PLAN: plan}, force))
    found = findings(frame, variants, policy)
    said = answers(found, lambda: _worth(variants[0], cells, buses, found[0]))
    said += left_aside(opened.city)
    result = {
        "city": variants[0].digest,
        "policy": {"source": policy, "sha256": policy_digest(policy)},
        "evenline": evenline.__version__,
        "blocks": blocks,
        "findings": [asdict(each) | {"verdict": each.verdict} for each in found],
        "answers": said,
    } | ({"notes": frame.notes} if frame.notes else {})
    picture = png(frame.plot(NOBODY, ("generalized_s",)).figure)
    made = {PLAN: plan, PICTURE: picture, RESULT: to_json(result).encode()}
    write_listed(out, made, force, FILES)
    if docs is not None:
        name = f"whatif-{opened.name}.png"
        write_bytes(docs.parent / "images" / name, picture)
        command = f"evenline whatif --city {source} --policy {policy} --blocks {blocks}"
        said_too = [*said, *(f"Note: {note}." for note in frame.notes)]
        insert(docs, f"whatif {opened.name}", _document(found, said_too, command, name))
    return WhatIf(frame, found, said)


# -- in words -------------------------------------------------------------------------------------


def answers(found: Sequence[Finding], worth_of: Callable[[], str]) -> list[str]:
    """What an operator asks first. A share is stated only of a saving that is away from 0."""
    by_name = {(each.factor, each.name): each for each in found}
    usual = by_name[AS_IT_IS, AS_IT_IS]
    saved = number(-usual.generalized_s.mean, ".1f")
    if usual.verdict == "behind" or usual.generalized_s == Difference(0.0, 0.0, 0.0):
        return [f"As the city is, the policy saves nothing: {_saving(usual)}."]
    if usual.verdict == "open":
        return [f"As the city is, it cannot be told whether the policy saves: {_saving(usual)}."]

    def kept(factor: str, name: str, saves: str) -> str:
        variant = by_name[factor, name]
        if variant.verdict == "behind":
            return f"It costs time there: {_saving(variant)}."
        if variant.verdict == "open":
            return f"That cannot be told: {_saving(variant)}, against {saved} s as the city is."
        share = variant.generalized_s.mean / usual.generalized_s.mean
        left = number(-variant.generalized_s.mean, ".1f")
        return f"{saves} {left} of {saved} s ({100 * share:.0f} %)."

    return [
        f"Is terminal holding enough? {kept(WHERE, AT_TERMINALS, 'It saves')}",
        f"What if half the drivers comply? {kept(DRIVERS, HALF, 'The policy still saves')}",
        f"How many buses is the controller worth? {worth_of()}",
    ]


def _saving(variant: Finding) -> str:
    """A saving with its interval."""
    d = variant.generalized_s
    shown = f"the saving is {number(0.0 - d.mean, '.1f')} s"
    if d.low is None or d.high is None:
        return shown
    return f"{shown}, its interval {number(0.0 - d.high, '.1f')} to {number(0.0 - d.low, '.1f')} s"


def _worth(usual: Variant, cells: Sequence[Cell], buses: Floats, finding: Finding) -> str:
    """How many more buses on each route save as much time as the policy, without holding."""

    def time_of(more: int) -> float:
        variant = usual.changed(BUSES, f"{more:+d}", respaced(usual.city, buses / (buses + more)))
        frame = run(Experiment([variant], [NOBODY], cells))
        return float(frame.column(NOBODY, "generalized_s").mean())

    # Without duties, the reference must have none either.
    duties = usual.city.operations.duties
    before = time_of(0) if duties else finding.without["generalized_s"]
    target = before + finding.generalized_s.mean
    among = f"on each route, which has about {buses.mean():.0f}"
    for more in range(1, MOST_BUSES + 1):
        time_s = time_of(more)
        if time_s <= target:
            share = (before - target) / max(before - time_s, 1e-9)
            return f"About {more - 1 + share:.1f} buses {among}."
        before = time_s
    return f"More than {MOST_BUSES} buses {among}."


def left_aside(city: City) -> list[str]:
    """What the rows with another timetable leave out, if the city has it."""
    lost = ["duties"] if city.operations.duties else []
    if any(each.trip >= 0 for each in city.operations.disruptions):
        lost.append("disruptions of single trips")
    if not lost:
        return []
    return [
        f"The rows of {HEADWAY} and {BUSES}, and the worth in buses, are without the city's "
        f"{' and '.join(lost)}: they do not fit another timetable."
    ]


def rows(found: Sequence[Finding]) -> list[list[str]]:
    """The table: a head, then one row for each variant; two columns of words."""
    lines = [
        [
            "Changed", "Setting", "Without holding, s", "Policy, s", "Difference, s", "Waiting, s",
            "Riding, s", "Completion, points", "Excess wait, s", "Late without holding",
            "Late departures",
        ]
    ]  # fmt: skip
    loses = found[0].held["lost_trips"] > 0.0  # of itself, not by a variant that cancels some
    if loses:
        lines[0].append("Lost trips")
    for each in found:
        a, b = each.without, each.held
        lines.append(
            [
                each.factor,
                each.name,
                number(a["generalized_s"], ",.1f"),
                number(b["generalized_s"], ",.1f"),
                signed(each.generalized_s, ".1f"),
                number(b["waiting_s"] - a["waiting_s"], "+.1f"),
                number(b["riding_s"] - a["riding_s"], "+.1f"),
                signed(each.completion, ".2f", 100.0),
                number(b["excess_wait_s"], ".1f"),
                number(a["late_departures"], ".1f"),
                number(b["late_departures"], ".1f"),
                *([number(b["lost_trips"], ".1f")] if loses else []),
            ]
        )
    return lines


def _document(found: Sequence[Finding], said: Sequence[str], command: str, picture: str) -> str:
    """Answers, table and figure as Markdown."""
    answered = [f"- {sentence}" for sentence in said]
    shown = f"![What each setting changes]({Path('images') / picture})"
    table = markdown(rows(found), text=2)
    return "\n".join([f"Made by `{command}`.", "", *answered, "", *table, "", shown])
