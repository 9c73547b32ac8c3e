"""Robustness of what we claim: the hardest settings of `whatif` again, for our controllers.

Less is allowed or drivers do less: held at terminals only, few holds obeyed, trips cancelled. Every
day that has been run is kept in a folder, so that a run that was stopped continues.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from evenline.city.cells import PURPOSES
from evenline.city.model import City
from evenline.city.operations import USUAL_OPERATIONS
from evenline.city.tables import digest
from evenline.cli.options import WorkersOption
from evenline.experiments.compare import measurer, signed
from evenline.experiments.whatif import (
    NOBODY,
    Days,
    Finding,
    Order,
    Setting,
    finding,
    hard_settings,
    is_slow,
    running,
)
from evenline.figures.document import insert
from evenline.policies.bundle import policy_digest
from evenline.runs.day import evaluator, library_versions
from evenline.support.files import to_json, write_text
from evenline.support.progress import progress_bar
from evenline.support.records import Number, Word, read_record
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.open import OpenCity, open_city
from evenline.worlds.sumo.runtime import installed_version
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


def robustness(
    docs: Path, out: Path, places: Sequence[Place] = PLACES, workers: int | None = None
) -> str:
    """Run the days that are missing, and write each place into the document once it is done."""
    made = "Made by `python -m reproduce.robustness --docs docs/controllers.md`."
    parts = []
    for place in places:
        parts.append(_robust_table(place, _findings(place, out, workers)))
        insert(docs, f"robustness {place.city} {place.world}", f"{parts[-1]}\n\n{made}")
    return "\n\n".join(parts)


def _findings(place: Place, out: Path, workers: int | None) -> list[tuple[Finding, ...]]:
    """What each policy changes in each setting."""
    opened = open_city(place.city)
    cells, listed = PURPOSES["development"].cells(place.blocks, (1.0,)), hard_settings(opened.city)
    policies = (NOBODY, *place.policies)
    kept: dict[Path, Order] = {}
    of: dict[tuple[int, str], list[Path]] = {}
    for number, setting in enumerate(listed):
        for policy in policies:
            asked = _unheld(setting) if policy == NOBODY else setting
            fixed = _depends_on(opened, asked.city, place.world, policy)
            paths = [out / f"{_key(*fixed, cell.name)}.json" for cell in cells]
            of[number, policy] = paths
            for path, cell in zip(paths, cells, strict=True):
                kept.setdefault(path, Order(opened, asked, policy, (cell,), place.world))
    todo = {path: order for path, order in kept.items() if not path.exists()}
    slow = any(is_slow(policy, place.world) for policy in place.policies)
    with progress_bar() as bar, running(slow, workers) as run:
        days = bar.track(run(todo.values()), len(todo), description=f"robustness: {place.title}")
        for path, day in zip(todo, days, strict=True):
            write_text(path, to_json(day[0]))

    def days_of(number: int, policy: str) -> Days:
        return [read_record(path, dict[Word, Number]) for path in of[number, policy]]

    return [
        tuple(finding(s, cells, days_of(i, NOBODY), days_of(i, p)) for p in place.policies)
        for i, s in enumerate(listed)
    ]


def _unheld(setting: Setting) -> Setting:
    """The same setting for a policy that never holds: what limits holds makes no difference."""
    o = setting.city.operations
    if o.earliest_s is not None:
        return setting  # control points matter to the earliest departure
    usual = {name: getattr(USUAL_OPERATIONS, name) for name in HOLDS}
    return replace(setting, city=replace(setting.city, operations=replace(o, **usual)))


def _depends_on(opened: OpenCity, city: City, world: str, policy: str) -> tuple[str, ...]:
    """Everything that the days of a policy depend on, beside the cell."""
    fitted = "" if opened.calibration is None else calibration_digest(opened.calibration)
    sumo = (installed_version() or "") if world == "sumo" else ""
    code = (*library_versions().values(), evaluator(), measurer())
    return (*code, digest(city), fitted, world, sumo, policy_digest(policy))


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _robust_table(place: Place, found: list[tuple[Finding, ...]]) -> str:
    names = [Path(policy).name for policy in place.policies]
    head = " | ".join(f"{name}: time, s | completion, points" for name in names)
    lines = [f"{place.title}, {place.blocks} days, minus no holding on the same days:", ""]
    lines += [f"| Setting | {head} |", "|---" * (1 + 2 * len(names)) + "|"]
    for row in found:
        values = [
            f"{signed(each.generalized_s, '.1f')} | {signed(each.completion, '.2f', 100.0)}"
            for each in row
        ]
        lines.append(f"| {row[0].title} | {' | '.join(values)} |")
    return "\n".join([*lines, "", *verdicts(names, found, place.blocks)])


def verdicts(names: Sequence[str], found: list[tuple[Finding, ...]], blocks: int) -> list[str]:
    """Where a controller has lost its advantage in generalized time, in words."""
    said = []
    for verdict, words in (
        ("behind", "Clearly behind no holding"),
        ("open", "Neither clearly ahead of no holding nor behind"),
    ):
        which = [
            f"{name} ({row[i].title})"
            for row in found
            for i, name in enumerate(names)
            if row[i].verdict == verdict
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
) -> None:
    """Repeat the hardest settings for our controllers. Run it again to continue."""
    print(robustness(docs, out, workers=workers))


if __name__ == "__main__":
    run("reproduce.robustness", main)
