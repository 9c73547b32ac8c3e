"""Compare policies on the same days, with paired differences and intervals over blocks.

The first policy is the reference. Beside each policy stands the share that it reaches of the gain
of a clairvoyant in the fast world. The result is a folder with `comparison.json`, `comparison.txt`
and `comparison.png`; it also stores days that take long, so that an interrupted comparison can
continue.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import check_somebody
from evenline.experiments.clairvoyant import CLAIRVOYANT
from evenline.experiments.experiment import Arm, Experiment, Variant, run_arms
from evenline.experiments.frame import Frame
from evenline.experiments.measures import (
    CONFIDENCE,
    DUTIES,
    MEASURES,
    PARTS,
    UNENDED,
    Measure,
    number,
    signed,
)
from evenline.figures.document import insert
from evenline.figures.plots import png
from evenline.policies.bundle import policy_digest, read_policy
from evenline.policies.names import BUILT_IN
from evenline.runs.executors import WHOLE, Executor, Shard
from evenline.support.columns import aligned, markdown
from evenline.support.errors import InputError
from evenline.support.files import (
    refuse_changed_files,
    refuse_foreign,
    to_json,
    write_bytes,
    write_listed,
)
from evenline.worlds.open import check_world_name, open_city

PURPOSE = "development"
PLAN, RESULT = "plan.json", "comparison.json"
TEXT, PICTURE = "comparison.txt", "comparison.png"
FILES = (PLAN, PICTURE, TEXT, RESULT)
WORST, SHARE = "Time at the worst level, s", "Of the clairvoyant's gain, %"


@dataclass(frozen=True, eq=False)
class Comparison(Frame):
    """Policies in one city, and what a clairvoyant gains there over the first of them."""

    digests: dict[str, str] = field(default_factory=dict)
    duties: bool = False
    clairvoyant_s: float | None = None  # its mean gain over the reference, in the fast world

    @property
    def measures(self) -> list[Measure]:
        """The measures that its tables show."""
        some = any(self.column(policy, UNENDED.name).any() for policy in self.policies)
        return [*MEASURES, *DUTIES * self.duties, *[UNENDED] * some]

    @property
    def parts(self) -> list[Measure]:
        """The parts of generalized time, if the world tells them."""
        return [
            part for part in PARTS if all(part.name in day for d in self.days.values() for day in d)
        ]

    def worst_level_s(self, policy: str) -> float:
        """The change of generalized time at the demand level where it is worst."""
        base = self.column(self.policies[0], "generalized_s")
        change = self.column(policy, "generalized_s") - base
        levels = np.array([cell.demand for cell in self.cells])
        return max(float(change[levels == level].mean()) for level in np.unique(levels))

    def share(self, policy: str) -> float | None:
        """The share of the clairvoyant's gain that a policy reaches; None if there is no gain."""
        if self.clairvoyant_s is None or self.clairvoyant_s <= 0:
            return None
        return -self.difference(policy).mean / self.clairvoyant_s

    def as_json(self) -> dict[str, Any]:
        """All results, ready for a file."""
        return {
            "city": self.city,
            "world": self.world,
            "evenline": evenline.__version__,
            "compared_with": self.policies[0],
            "blocks": len({(c.sumo_seed, c.demand_seed) for c in self.cells}),
            "clairvoyant_gain_s": self.clairvoyant_s,
            "policies": [self._policy_json(policy) for policy in self.policies],
        } | ({"notes": self.notes} if self.notes else {})

    def _policy_json(self, policy: str) -> dict[str, Any]:
        shown = [m.name for m in (*self.measures, *self.parts)]
        kept = [m.name for m in (*MEASURES, *DUTIES * self.duties, UNENDED, *self.parts)]
        return {
            "name": policy,
            "sha256": self.digests[policy],
            "mean": {name: float(self.column(policy, name).mean()) for name in shown},
            "difference": {name: asdict(self.difference(policy, measure=name)) for name in shown},
            "worst_level_s": self.worst_level_s(policy),
            "share_of_clairvoyant": self.share(policy),
            "days": [
                asdict(cell) | {name: day[name] for name in kept}
                for cell, day in zip(self.cells, self.of(policy), strict=True)
            ],
        }


def named_policies(policies: str) -> list[str]:
    """The sources of a comma-separated list; `all` means every built-in policy."""
    names: list[str] = []
    for name in filter(None, (part.strip() for part in policies.split(","))):
        names += [n for n in BUILT_IN if n != "headway"] if name == "all" else [name]
    names = list(dict.fromkeys(names))
    if not names:
        raise InputError("no policies given; use --policies, such as --policies zero,headway")
    for name in names:
        read_policy(name)
    return names


def refuse_same(digests: dict[str, str]) -> None:
    """Refuse a policy that is compared with itself under another name."""
    first: dict[str, str] = {}
    for name, sha256 in digests.items():
        if (other := first.setdefault(sha256, name)) != name:
            raise InputError(f"{other} and {name} are the same policy; name one of them")


def compare(
    city_name: str,
    world: str,
    sources: Sequence[str],
    blocks: int,
    out: Path,
    executor: Executor | None = None,
    docs: Path | None = None,
    calibration: Path | None = None,
    sumo: str | None = None,
    shard: Shard = WHOLE,
    force: bool = False,
    clairvoyant: bool = False,
) -> Comparison:
    """Run the missing days, write the result's folder, and the document if one is named.

    A shard runs its part of the stored days; the result is written when all of them exist. Files
    that were changed since an earlier comparison wrote them are replaced only by `force`.
    `clairvoyant` also runs the clairvoyant, if there is something to compare and the city has a
    calibration.
    """
    check_world_name(world)
    refuse_foreign(out, PLAN, force=force)
    refuse_changed_files(out, FILES, force)
    opened, cells = open_city(city_name, calibration), tuple(PURPOSES[PURPOSE].cells(blocks))
    check_somebody(opened.city)
    digests = {source: policy_digest(source) for source in sources}
    refuse_same(digests)
    variant = Variant(opened, source=city_name, calibration=calibration)
    experiment = Experiment([variant], sources, cells, world)
    plan, arms = experiment.plan(), experiment.arms
    searched = clairvoyant and len(sources) > 1 and opened.calibration is not None
    if searched:
        arms += [Arm(variant, sources[0]), Arm(variant, CLAIRVOYANT)]

    def begin() -> None:  # a setting that no day can run with leaves no folder
        write_listed(out, {PLAN: plan}, force, FILES)

    days = run_arms(arms, cells, out, executor, shard, begin, sumo)
    frame = experiment.frame(days[: len(sources)])
    gain_s = None
    if searched:
        usual, knowing = ([day["generalized_s"] for day in own] for own in days[len(sources) :])
        gain_s = float(np.mean(np.subtract(usual, knowing)))
    shared = {each.name: getattr(frame, each.name) for each in fields(Frame)}
    duties = opened.city.operations.duties
    comparison = Comparison(**shared, digests=digests, duties=duties, clairvoyant_s=gain_s)
    named = ",".join(sources)
    command = f"--city {city_name} --world {world} --policies {named} --blocks {blocks}"
    command += "" if clairvoyant else " --no-clairvoyant"
    _write(comparison, out, plan, docs, command, force)
    return comparison


# -- as text and document -------------------------------------------------------------------------


def _write(
    comparison: Comparison,
    out: Path,
    plan: bytes,
    docs: Path | None,
    command: str,
    force: bool,
) -> None:
    picture = png(comparison.plot().figure)
    text, result = text_table(comparison), to_json(comparison.as_json())
    made = (plan, picture, text.encode(), result.encode())
    write_listed(out, dict(zip(FILES, made, strict=True)), force, FILES)
    if docs is not None:
        name = f"{docs.stem}-{comparison.city}-{comparison.world}.png"
        write_bytes(docs.parent / "images" / name, picture)
        mark = f"compare {comparison.city} {comparison.world}"
        insert(docs, mark, _document(comparison, command, name))


def _rows(comparison: Comparison, shown: Callable[[str, Measure], str]) -> list[list[str]]:
    return [
        [Path(policy).name, *(shown(policy, m) for m in comparison.measures)]
        for policy in comparison.policies
    ]


def _tables(comparison: Comparison) -> tuple[list[list[str]], list[list[str]]]:
    """Means of every policy; differences of all but the first, also at the worst demand level, and
    their shares of the clairvoyant's gain where it is known. Each begins with its head.
    """
    means = _rows(
        comparison, lambda p, m: number(m.scale * comparison.column(p, m.name).mean(), m.form)
    )
    deltas = _rows(
        comparison, lambda p, m: signed(comparison.difference(p, measure=m.name), m.form, m.scale)
    )
    head = ["Policy", *(m.heading for m in comparison.measures)]
    known = comparison.clairvoyant_s is not None
    for row, policy in zip(deltas, comparison.policies, strict=True):
        share = comparison.share(policy)
        row.append(number(comparison.worst_level_s(policy), "+,.1f"))
        row += ["-" if share is None else number(round(100 * share), "d")] if known else []
    return [head, *means], [[*head, WORST, *[SHARE] * known], *deltas[1:]]


def _parts_table(comparison: Comparison) -> list[list[str]]:
    """Where the change of time of each policy accrues: while service runs, or after it."""

    def changes(policy: str) -> list[str]:
        return [
            signed(comparison.difference(policy, measure=part.name), part.form)
            for part in comparison.parts
        ]

    rows = [[Path(policy).name, *changes(policy)] for policy in comparison.policies[1:]]
    return [["Policy", *(part.heading for part in comparison.parts)], *rows]


def _clairvoyant_line(comparison: Comparison) -> list[str]:
    """What the clairvoyant gains, if it was asked."""
    if comparison.clairvoyant_s is None:
        return []
    where = "" if comparison.world == "fast" else " in the fast world, on the same days"
    return [
        f"A clairvoyant, which knows the day, gains {number(comparison.clairvoyant_s, ',.1f')} s "
        f"against {Path(comparison.policies[0]).name}{where}."
    ]


def text_table(comparison: Comparison) -> str:
    """What must be said of the city, then two plain tables: means, and differences from the
    reference.
    """
    means, deltas = _tables(comparison)
    base = Path(comparison.policies[0]).name
    lines = [f"{comparison.city}, {comparison.world}: mean of {len(comparison.cells)} days"]
    lines += aligned(means)
    if len(deltas) > 1:
        lines += ["", f"difference from {base}, {CONFIDENCE:.0%} interval over blocks"]
        lines += aligned(deltas)
        if comparison.parts:
            lines += ["", "the part of the change until the last trip leaves, and the part after"]
            lines += aligned(_parts_table(comparison))
    lines += _clairvoyant_line(comparison)
    if len(deltas) == 1:
        lines += ["", f"no differences: {base} is the only policy; name another one to compare"]
    return "\n".join([*(f"note: {note}" for note in comparison.notes), *lines]) + "\n"


def _document(comparison: Comparison, command: str, picture: str) -> str:
    """The result for a document in Markdown."""
    means, deltas = _tables(comparison)
    base = Path(comparison.policies[0]).name
    few = ("generalized_s", "waiting_s", "riding_s", "completion", "headway_cv", "excess_wait_s")
    headings = {m.heading for m in comparison.measures if m.name in few} | {WORST, SHARE}
    chosen = [0, *(i for i, heading in enumerate(deltas[0]) if heading in headings)]
    return "\n".join(
        [
            f"Made by `evenline compare {command}` (Evenline {evenline.__version__}), "
            f"{len(comparison.cells)} days on the {PURPOSE} seeds.",
            *(f"Note: {note}." for note in comparison.notes),
            "",
            *markdown(means),
            "",
            f"Differences from {base} with {CONFIDENCE:.0%} intervals over blocks:",
            "",
            *markdown([[row[i] for i in chosen] for row in deltas]),
            *(["", *line] if (line := _clairvoyant_line(comparison)) else []),
            "",
            f"![Differences from {base} in generalized time and completion](images/{picture})",
        ]
    )
