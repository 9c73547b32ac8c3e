"""Robustness of what we claim: the hardest settings of `whatif` again, for our controllers.

Less is allowed or drivers do less: held at terminals only, few holds obeyed, trips cancelled. Every
day that has been run is kept in a folder, so that a run that was stopped continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from evenline.city.cells import PURPOSES
from evenline.city.operations import USUAL_OPERATIONS
from evenline.cli.options import AddressOption, ExecutorOption, WorkersOption, executor_of
from evenline.experiments.experiment import Arm, Variant, run_arms
from evenline.experiments.frame import Days
from evenline.experiments.measures import Difference, difference_of, signed
from evenline.experiments.variants import hard_variants
from evenline.experiments.whatif import NOBODY, VERDICTS
from evenline.figures.document import insert
from evenline.runs.executors import Executor
from evenline.support.columns import markdown
from evenline.worlds.open import open_city
from reproduce.door import run

TAUGHT = "results/policies-taught/taught-6201"
DECISIVE = 8  # with fewer days, an interval seldom excludes 0
HOLDS = ("hold_at", "max_hold_s", "latest_s", "most_load", "ignored_share", "cut_share", "round_s",
         "control_points")  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A city in a world, the number of days, and the controllers that are confirmed there."""

    city: str
    world: str
    blocks: int
    policies: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"`{self.city}` in {'SUMO' if self.world == 'sumo' else 'the fast world'}"


IN_TOWN, IN_CITY = ("lookahead", "zero+candidate"), ("lookahead", TAUGHT, "zero+candidate")
PLACES = (
    Place("town", "fast", 10, IN_TOWN),
    Place("city", "fast", 10, IN_CITY),
    Place("town", "sumo", 10, IN_TOWN),
    Place("city", "sumo", 3, IN_CITY),
)


@dataclass(frozen=True)
class Finding:
    """What a controller changes in a variant, minus no holding on the same days."""

    variant: str
    policy: str
    generalized_s: Difference
    completion: Difference

    @property
    def verdict(self) -> str:
        return VERDICTS[self.generalized_s.sign]


def robustness(
    docs: Path, out: Path, places: Sequence[Place] = PLACES, executor: Executor | None = None
) -> str:
    """Run the days that are missing, and write each place into the document once it is done."""
    made = "Made by `python -m reproduce.robustness --docs docs/controllers.md`."
    parts = []
    for place in places:
        parts.append(_table(place, _findings(place, out, executor)))
        insert(docs, f"robustness {place.city} {place.world}", f"{parts[-1]}\n\n{made}")
    return "\n\n".join(parts)


def _findings(place: Place, out: Path, executor: Executor | None) -> list[list[Finding]]:
    """What each policy changes in each variant."""
    cells = PURPOSES["development"].cells(place.blocks, (1.0,))
    variants = hard_variants(open_city(place.city))
    policies = (NOBODY, *place.policies)
    arms = [
        Arm(_unheld(variant) if policy == NOBODY else variant, policy, place.world)
        for variant in variants
        for policy in policies
    ]
    days = iter(run_arms(arms, cells, out, executor))

    def found(variant: Variant, policy: str, without: Days, held: Days) -> Finding:
        changes = (difference_of(cells, held, without, n) for n in ("generalized_s", "completion"))
        return Finding(variant.title, Path(policy).name, *changes)

    rows = []
    for variant in variants:
        without = next(days)
        rows.append([found(variant, policy, without, next(days)) for policy in place.policies])
    return rows


def _unheld(variant: Variant) -> Variant:
    """The same for a policy that never holds: what limits holds makes no difference."""
    o = variant.city.operations
    if o.earliest_s is not None:
        return variant  # control points matter to the earliest departure
    usual = {name: getattr(USUAL_OPERATIONS, name) for name in HOLDS}
    city = replace(variant.city, operations=replace(o, **usual))
    return variant.changed(variant.factor, variant.name, city)


def _table(place: Place, found: list[list[Finding]]) -> str:
    names = [Path(policy).name for policy in place.policies]
    changes = ("time, s", "completion, points")
    rows = [["Setting", *(f"{name}: {change}" for name in names for change in changes)]]
    for row in found:
        shown = [
            text
            for each in row
            for text in (signed(each.generalized_s, ".1f"), signed(each.completion, ".2f", 100.0))
        ]
        rows.append([row[0].variant, *shown])
    title = f"{place.title}, {place.blocks} days, minus no holding on the same days:"
    return "\n".join([title, "", *markdown(rows), "", *verdicts(found, place.blocks)])


def verdicts(found: Sequence[Sequence[Finding]], blocks: int) -> list[str]:
    """Where a controller has lost its advantage in generalized time, in words."""
    said = []
    for verdict, words in (
        ("behind", "Clearly behind no holding"),
        ("open", "Neither clearly ahead of no holding nor behind"),
    ):
        which = [
            f"{each.policy} ({each.variant})"
            for row in found
            for each in row
            if each.verdict == verdict
        ]
        if which:
            said.append(f"{words}: {', '.join(which)}.")
    said = said or ["All are clearly ahead of no holding in every setting."]
    if blocks < DECISIVE:
        said.append(f"{blocks} days decide little: an interval with 0 in it may only be wide.")
    return said


# -- the command ----------------------------------------------------------------------------------


def main(
    docs: Annotated[Path, typer.Option(help="Document to write the tables to.")],
    out: Annotated[Path, typer.Option(help="Folder for the days.")] = Path("results/robustness"),
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Repeat the hardest settings for our controllers. Run it again to continue."""
    print(robustness(docs, out, executor=executor_of(executor, address, workers)))


if __name__ == "__main__":
    run("reproduce.robustness", main)
