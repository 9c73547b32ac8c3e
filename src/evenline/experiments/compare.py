"""Compare policies on the same days, with paired differences and intervals over blocks.

The first policy is the reference. Beside each policy stands the share that it reaches of the gain
of a clairvoyant in the fast world. The result is a folder with `comparison.json`, `comparison.txt`
and `comparison.png`; it also stores days that take long, so that an interrupted comparison can
continue.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import stdtrit

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell, check_somebody
from evenline.city.model import City, Floats, Ints
from evenline.city.tables import digest
from evenline.control.outcome import Outcome
from evenline.experiments.clairvoyant import gains_s
from evenline.figures.document import insert
from evenline.figures.measure import regularity, unended_said, unended_trips
from evenline.figures.plots import LIGHT, png
from evenline.policies.bundle import open_policy, policy_digest, read_policy
from evenline.policies.names import BUILT_IN
from evenline.runs.day import evaluator, library_versions
from evenline.runs.executors import WHOLE, Executor, Shard, processes
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import (
    refuse_changed_files,
    refuse_foreign,
    to_json,
    write_bytes,
    write_listed,
    write_text,
)
from evenline.support.own import load_own
from evenline.support.progress import progress_bar
from evenline.support.records import Number, Word, read_record
from evenline.support.sources import closure, digest_of, file_hashes
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.open import WORLDS, OpenCity, check_world_name, open_city
from evenline.worlds.sumo.runtime import installed_version

PURPOSE = "development"
CONFIDENCE = 0.95
PLAN, RESULT = "plan.json", "comparison.json"
TEXT, PICTURE = "comparison.txt", "comparison.png"
FILES = (PLAN, PICTURE, TEXT, RESULT)
WORST, SHARE = "Time at the worst level, s", "Of the clairvoyant's gain, %"


@dataclass(frozen=True)
class Measure:
    """A column of the table: its name, its heading, its number format."""

    name: str
    heading: str
    form: str
    scale: float = 1.0


MEASURES = (
    Measure("generalized_s", "Generalized time, s", ",.1f"),
    Measure("waiting_s", "Waiting, s", ",.1f"),
    Measure("riding_s", "In vehicle, s", ",.1f"),
    Measure("completion", "Completion, %", ".2f", 100.0),
    Measure("unfinished", "Unfinished", ",.1f"),
    Measure("mean_hold_s", "Mean hold, s", ".2f"),
    Measure("headway_cv", "Headway CV", ".3f"),
    Measure("bunched_share", "Bunched, %", ".2f", 100.0),
    Measure("trip_duration_s", "Trip, s", ",.0f"),
    Measure("excess_wait_s", "Excess wait, s", ",.1f"),
)
DUTIES = (  # counted only in a city with duties
    Measure("late_departures", "Late departures", ",.1f"),
    Measure("lost_trips", "Lost trips", ",.1f"),
)
UNENDED = Measure("unended_trips", "Trips not ended", ",.2f")  # shown if there are any


# -- one day --------------------------------------------------------------------------------------


def measure(city: City, cell: Cell, outcome: Outcome, arrivals_s: Ints) -> dict[str, float]:
    """All figures of the table for one day."""
    known = {
        "waiting_s": outcome.waiting_each_s,
        "riding_s": outcome.riding_each_s,
        UNENDED.name: unended_trips(city, cell, outcome),
        **asdict(regularity(city, arrivals_s)),
    }
    counted = [m for m in DUTIES if getattr(outcome, m.name) is not None]
    return {
        m.name: float(known[m.name] if m.name in known else getattr(outcome, m.name))
        for m in (*MEASURES, *counted, UNENDED)
    }


@cache
def measurer() -> str:
    """One hash of our source files that the figures of a day depend on, beside the evaluator's."""
    return digest_of(file_hashes(closure("evenline.figures.measure")))


# -- many days ------------------------------------------------------------------------------------

Days = dict[str, dict[Cell, dict[str, float]]]  # by policy, by cell


@dataclass(frozen=True)
class Difference:
    """A mean difference from the reference; the interval is over blocks, or None for one block."""

    mean: float
    low: float | None
    high: float | None


def difference(cells: Sequence[Cell], here: Floats, there: Floats) -> Difference:
    """Average differences within each block first, because its days share passengers and
    drivers.
    """
    blocks: dict[tuple[int, int], list[float]] = {}
    for cell, delta in zip(cells, here - there, strict=True):
        blocks.setdefault((cell.sumo_seed, cell.demand_seed), []).append(float(delta))
    means = np.array([np.mean(deltas) for deltas in blocks.values()])
    if len(means) < 2:
        return Difference(float(means.mean()), None, None)
    error = means.std(ddof=1) / np.sqrt(len(means))
    half = stdtrit(len(means) - 1, 0.5 + CONFIDENCE / 2) * error  # the quantile of Student's t
    return Difference(float(means.mean()), float(means.mean() - half), float(means.mean() + half))


@dataclass(frozen=True, eq=False)
class Comparison:
    """All days of all policies, and their figures."""

    city: str
    world: str
    cells: tuple[Cell, ...]
    digests: dict[str, str]
    days: Days
    notes: tuple[str, ...] = ()
    clairvoyant_s: float | None = None  # its mean gain over the reference, in the fast world

    @property
    def policies(self) -> list[str]:
        return list(self.days)

    @property
    def measures(self) -> list[Measure]:
        """The measures of its days."""
        figures = self.days[self.policies[0]][self.cells[0]]
        shown = [m for m in (*MEASURES, *DUTIES) if m.name in figures]
        some = any(self.column(policy, UNENDED.name).any() for policy in self.policies)
        return [*shown, UNENDED] if some else shown

    def column(self, policy: str, name: str) -> Floats:
        """The values of a measure over the cells."""
        return np.array([self.days[policy][cell][name] for cell in self.cells])

    def difference(self, policy: str, name: str) -> Difference:
        """A policy's difference from the reference."""
        return difference(
            self.cells, self.column(policy, name), self.column(self.policies[0], name)
        )

    def worst_level_s(self, policy: str) -> float:
        """The change of generalized time at the demand level where it is worst."""
        change = self.column(policy, "generalized_s") - self.column(
            self.policies[0], "generalized_s"
        )
        levels = np.array([cell.demand for cell in self.cells])
        return max(float(change[levels == level].mean()) for level in np.unique(levels))

    def share(self, policy: str) -> float | None:
        """The share of the clairvoyant's gain that a policy reaches; None if there is no gain."""
        if self.clairvoyant_s is None or self.clairvoyant_s <= 0:
            return None
        return -self.difference(policy, "generalized_s").mean / self.clairvoyant_s

    def as_json(self) -> dict[str, Any]:
        """All results, ready for a file."""
        return {
            "city": self.city,
            "world": self.world,
            "evenline": evenline.__version__,
            "compared_with": self.policies[0],
            "blocks": len({(c.sumo_seed, c.demand_seed) for c in self.cells}),
            "clairvoyant_gain_s": self.clairvoyant_s,
            "policies": [
                {
                    "name": policy,
                    "sha256": self.digests[policy],
                    "mean": {
                        m.name: float(self.column(policy, m.name).mean()) for m in self.measures
                    },
                    "difference": {
                        m.name: asdict(self.difference(policy, m.name)) for m in self.measures
                    },
                    "worst_level_s": self.worst_level_s(policy),
                    "share_of_clairvoyant": self.share(policy),
                    "days": [asdict(cell) | self.days[policy][cell] for cell in self.cells],
                }
                for policy in self.policies
            ],
        } | ({"notes": self.notes} if self.notes else {})


def notes_of(opened: OpenCity, world: str, days: Days) -> tuple[str, ...]:
    """What a comparison must say of its city, and of trips that did not end."""
    unended = [int(day[UNENDED.name]) for own in days.values() for day in own.values()]
    return (*opened.notes(world), *unended_said(len(opened.city.trips), unended))


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
    for name, found in digests.items():
        if (other := first.setdefault(found, name)) != name:
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
    workers: int | None = None,
) -> Comparison:
    """Run the missing days, write the result's folder, and the document if one is named.

    A shard runs its part of the stored days; the result is written when all of them exist. Files
    that were changed since an earlier comparison wrote them are replaced only by `force`.
    `clairvoyant` also runs the clairvoyant, in as many threads as `workers`, if there is something
    to compare and the city has a calibration.
    """
    check_world_name(world)
    refuse_foreign(out, PLAN, force=force)
    refuse_changed_files(out, FILES, force)
    opened, cells = open_city(city_name, calibration), tuple(PURPOSES[PURPOSE].cells(blocks))
    check_somebody(opened.city)
    digests = {source: policy_digest(source) for source in sources}
    refuse_same(digests)
    if world == "fast":
        opened.fitted()
    for source in sources:  # a policy that cannot be opened here is refused before anything runs
        open_policy(source, opened.city, opened.calibration)
    jobs = [
        Job(
            city=city_name,
            policy=source,
            cell=cell,
            world=world,
            sumo=sumo,
            calibration=None if calibration is None else str(calibration),
            arrivals=True,
        )
        for source in sources
        for cell in cells
    ]
    plan = _plan(opened, world, digests, cells)
    found = _days(opened, jobs, digests, out, plan, executor or processes(), shard, force)
    days: Days = {s: {job.cell: found[job] for job in jobs if job.policy == s} for s in sources}
    gain_s = None
    if clairvoyant and len(sources) > 1 and opened.calibration is not None:
        gain_s = _clairvoyant_s(opened, sources[0], digests[sources[0]], cells, out, workers)
    notes = notes_of(opened, world, days)
    comparison = Comparison(opened.name, world, cells, digests, days, notes, gain_s)
    named = ",".join(sources)
    command = f"--city {city_name} --world {world} --policies {named} --blocks {blocks}"
    command += "" if clairvoyant else " --no-clairvoyant"
    _write(comparison, out, plan, docs, command, force)
    return comparison


def _plan(opened: OpenCity, world: str, digests: dict[str, str], cells: Sequence[Cell]) -> bytes:
    """The question of a comparison, for `plan.json`."""
    asked = {"city": digest(opened.city), "world": world, "policies": digests}
    return to_json(asked | {"cells": [cell.name for cell in cells]}).encode()


def _days(
    opened: OpenCity,
    jobs: Sequence[Job],
    digests: dict[str, str],
    out: Path,
    plan: bytes,
    executor: Executor,
    shard: Shard,
    force: bool,
) -> dict[Job, dict[str, float]]:
    """The figures of every day; those of slow days are stored in the folder and read again."""
    city, world = opened.city, jobs[0].world
    fitted = "" if opened.calibration is None else calibration_digest(opened.calibration)
    own = "" if world in WORLDS else load_own(world).sha256
    code = (*library_versions().values(), evaluator(), measurer())
    setting = (*code, digest(city), fitted, world, own)
    sumo = (jobs[0].sumo or installed_version() or "",) if world == "sumo" else ()
    kept = {
        job: out / "days" / f"{_key(*setting, *sumo, digests[job.policy], job.cell.name)}.json"
        for job in jobs
    }
    slow = {s for s in digests if world != "fast" or read_policy(s).kind.forecasts}
    found = {
        job: read_record(path, dict[Word, Number]) for job, path in kept.items() if path.exists()
    }
    todo, begun = [job for job in shard.of(jobs) if job not in found], False
    with progress_bar() as bar:
        task = bar.add_task(f"{city.name}, {world}", total=len(jobs), completed=len(found))
        with closing(executor(todo)) as results:
            for ended in results:
                job, answer = ended.job, ended.answer
                if answer is None:
                    raise InputError(f"{job.city}, {job.name}: {ended.error}")
                if not begun:  # a setting that no day can run with leaves no folder
                    write_listed(out, {PLAN: plan}, force, FILES)
                    begun = True
                found[job] = measure(city, job.cell, answer.outcome, answer.arrivals)
                if job.policy in slow or shard != WHOLE:
                    write_text(kept[job], to_json(found[job]))
                bar.advance(task)
    if missing := [job for job in jobs if job not in found]:
        raise InputError(f"{out}: {len(missing)} days are missing; run the other shards too")
    if not begun:
        write_listed(out, {PLAN: plan}, force, FILES)
    return found


def _clairvoyant_s(
    opened: OpenCity,
    reference: str,
    policy: str,
    cells: Sequence[Cell],
    out: Path,
    workers: int | None,
) -> float:
    """The mean gain of the clairvoyant over the reference; its days are stored in the folder."""
    fitted = calibration_digest(opened.fitted())
    setting = (*library_versions().values(), _searcher(), digest(opened.city), fitted, policy)
    kept = {cell: out / "days" / f"{_key(*setting, cell.name)}.json" for cell in cells}
    todo = [cell for cell in cells if not kept[cell].exists()]
    for cell, gain_s in gains_s(opened, reference, todo, workers) if todo else ():
        write_text(kept[cell], to_json({"clairvoyant_gain_s": gain_s}))
    found = [read_record(path, dict[Word, Number]) for path in kept.values()]
    return float(np.mean([each["clairvoyant_gain_s"] for each in found]))


@cache
def _searcher() -> str:
    """One hash of our source files that the clairvoyant's days depend on."""
    return digest_of(file_hashes(closure("evenline.experiments.clairvoyant")))


def _key(*parts: str) -> str:
    """The key of a day: a hash of everything it depends on."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


# -- as text, figure, document --------------------------------------------------------------------


def _write(
    comparison: Comparison,
    out: Path,
    plan: bytes,
    docs: Path | None,
    command: str,
    force: bool,
) -> None:
    picture = png(figure(comparison))
    text, result = text_table(comparison), to_json(comparison.as_json())
    made = (plan, picture, text.encode(), result.encode())
    write_listed(out, dict(zip(FILES, made, strict=True)), force, FILES)
    if docs is not None:
        name = f"{docs.stem}-{comparison.city}-{comparison.world}.png"
        write_bytes(docs.parent / "images" / name, picture)
        mark = f"compare {comparison.city} {comparison.world}"
        insert(docs, mark, document(comparison, command, name))


def number(value: float, form: str) -> str:
    """Format a number, with a true minus."""
    return format(value, form).replace("-", "\u2212")


def signed(found: Difference, form: str, scale: float = 1.0) -> str:
    """Format a difference with its interval."""
    shown = number(scale * found.mean, f"+{form}")
    if found.low is None or found.high is None:
        return shown
    return f"{shown} ({number(scale * found.low, form)} to {number(scale * found.high, form)})"


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
        comparison, lambda p, m: signed(comparison.difference(p, m.name), m.form, m.scale)
    )
    head = ["Policy", *(m.heading for m in comparison.measures)]
    known = comparison.clairvoyant_s is not None
    for row, policy in zip(deltas, comparison.policies, strict=True):
        share = comparison.share(policy)
        row.append(number(comparison.worst_level_s(policy), "+,.1f"))
        row += ["-" if share is None else number(round(100 * share), "d")] if known else []
    return [head, *means], [[*head, WORST, *[SHARE] * known], *deltas[1:]]


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
    titles = [f"{comparison.city}, {comparison.world}: mean of {len(comparison.cells)} days"]
    titles.append(f"difference from {base}, {CONFIDENCE:.0%} interval over blocks")
    lines: list[str] = []
    for title, rows in zip(titles, (means, deltas), strict=True):
        if len(rows) == 1:
            continue
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines += ["", title] if lines else [title]
        for row in rows:
            cells = [value.rjust(width) for value, width in zip(row, widths, strict=True)]
            lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]))
    lines += _clairvoyant_line(comparison)
    if len(deltas) == 1:
        lines += ["", f"no differences: {base} is the only policy; name another one to compare"]
    return "\n".join([*(f"note: {note}" for note in comparison.notes), *lines]) + "\n"


def document(comparison: Comparison, command: str, picture: str) -> str:
    """The result for a document in Markdown."""
    means, deltas = _tables(comparison)
    base = Path(comparison.policies[0]).name
    few = ("generalized_s", "waiting_s", "riding_s", "completion", "headway_cv", "excess_wait_s")
    headings = {m.heading for m in comparison.measures if m.name in few} | {WORST, SHARE}
    chosen = [i for i, heading in enumerate(deltas[0]) if heading in headings]

    def lines(rows: list[list[str]], columns: Sequence[int]) -> list[str]:
        table = [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]
        return ["| " + " | ".join(row[i] for i in (0, *columns)) + " |" for row in table]

    return "\n".join(
        [
            f"Made by `evenline compare {command}` (Evenline {evenline.__version__}), "
            f"{len(comparison.cells)} days on the {PURPOSE} seeds.",
            *(f"Note: {note}." for note in comparison.notes),
            "",
            *lines(means, range(1, len(means[0]))),
            "",
            f"Differences from {base} with {CONFIDENCE:.0%} intervals over blocks:",
            "",
            *lines(deltas, chosen),
            *(["", *line] if (line := _clairvoyant_line(comparison)) else []),
            "",
            f"![Differences from {base} in generalized time and completion](images/{picture})",
        ]
    )


def figure(comparison: Comparison) -> Figure:
    """Differences from the reference in generalized time and completion, policies in rows."""
    shown = comparison.policies[1:] or comparison.policies
    panels = [m for m in MEASURES if m.name in ("generalized_s", "completion", "excess_wait_s")]
    size = (11.0, 1.6 + 0.3 * len(shown))
    result = Figure(figsize=size, layout="constrained", facecolor=LIGHT.paper)
    axes = result.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    at = np.arange(len(shown))[::-1]
    for axis, m in zip(axes, panels, strict=True):
        found = [comparison.difference(policy, m.name) for policy in shown]
        middle = m.scale * np.array([d.mean for d in found])
        low = m.scale * np.array([d.mean if d.low is None else d.low for d in found])
        high = m.scale * np.array([d.mean if d.high is None else d.high for d in found])
        axis.axvline(0.0, color=LIGHT.muted, linewidth=1.0)
        axis.hlines(at, low, high, color=LIGHT.policies[0], linewidth=2.0)
        axis.plot(middle, at, "o", color=LIGHT.policies[0], markersize=5)
        axis.set_title(m.heading, fontsize=10, color=LIGHT.ink)
        axis.grid(axis="x", color=LIGHT.faint, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(length=0, labelsize=9)
    axes[0].set_yticks(at, [Path(policy).name for policy in shown])
    base = Path(comparison.policies[0]).name
    result.supxlabel(
        f"difference from {base}, {CONFIDENCE:.0%} interval over blocks "
        f"({comparison.city}, {comparison.world}, {len(comparison.cells)} days)",
        fontsize=10,
    )
    return result
