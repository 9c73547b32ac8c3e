"""Tune the constants of a rule in the fast world: CMA-ES on tuning days, the same for every try.

Generalized time alone has one optimum; the front against completion needs several searches, each
with another price of an unfinished journey. Every try is stored, so a killed search can continue:
the searches are seeded and repeat the same tries. The result is a folder with `front.json`,
`front.png` and the tuned rule as a bundle.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from msgspec.structs import replace

from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell, check_somebody
from evenline.city.tables import digest
from evenline.control.outcome import Outcome
from evenline.figures.plots import LIGHT, png
from evenline.policies.bundle import (
    policy_digest,
    read_policy,
    refuse_changed_bundle,
    rule_spec,
    save_bundle,
)
from evenline.policies.kinds import TIMETABLE, Bundle, timetable_of
from evenline.policies.names import parse_source
from evenline.rules.chain import chain_code
from evenline.rules.table import RULES, Rule
from evenline.runs.day import evaluator, library_versions
from evenline.runs.executors import Executor, processes
from evenline.runs.job import Job
from evenline.support.errors import InputError, choice
from evenline.support.files import refuse_changed_files, refuse_foreign, to_json, write_listed
from evenline.support.progress import progress_bar
from evenline.support.records import Number, Record, Seconds, Share, Word, read_record
from evenline.worlds.calibration import calibration_digest
from evenline.worlds.open import OpenCity, open_city

TRIES, RESULT, FRONT = "tries.json", "front.json", "front.png"
PRICES_S = (0.0, 30.0, 120.0)  # price of one per cent of journeys unfinished, per passenger
FIRST_STEP = 0.25  # share of a constant's range


@dataclass(frozen=True)
class Try:
    """Constants and the mean outcome of the tuning days with them."""

    constants: tuple[Number, ...]
    generalized_s: Seconds
    completion: Share

    def price_s(self, price_s: float) -> float:
        """The objective of a search: generalized time plus the price of unfinished journeys."""
        return self.generalized_s + price_s * 100.0 * (1.0 - self.completion)


class Kept(Record):
    """The content of `tries.json`."""

    setting: dict[Word, Any]  # must equal that of the search
    tries: tuple[Try, ...]


def front(tries: Sequence[Try]) -> list[Try]:
    """The Pareto front of the tries, lowest generalized time first."""
    found: list[Try] = []
    for each in sorted(tries, key=lambda t: (t.generalized_s, -t.completion)):
        if not found or each.completion > found[-1].completion:
            found.append(each)
    return found


def tune(
    source: str,
    city_name: str,
    out: Path,
    blocks: int = 10,
    budget: int = 240,
    chain: str = "raw",
    least_completion: float = 0.0,
    seed: int = 1,
    calibration: Path | None = None,
    executor: Executor | None = None,
    force: bool = False,
) -> tuple[Try, list[Try], str]:
    """Search and write the folder; return the chosen try, the front, and the tuned policy's source.

    Chooses the lowest generalized time among tries with at least `least_completion`. Files that
    were changed since an earlier search wrote them are replaced only by `force`.
    """
    rule = tunable(source)
    chain_code(chain)
    if not 1 <= seed < 2**32:  # for 0 the library uses the clock
        raise InputError(f"seed {seed}: must be from 1 to {2**32 - 1}")
    if budget < len(PRICES_S):
        raise InputError(f"budget {budget}: must be at least {len(PRICES_S)}, one for each search")
    refuse_foreign(out, TRIES, force=force)
    opened = open_city(city_name, calibration)
    check_somebody(opened.city)
    fitted, cells = opened.fitted(), PURPOSES["tuning"].cells(blocks)
    setting = {
        "rule": policy_digest(source),
        "chain": chain,
        "city": digest(opened.city),
        "calibration": calibration_digest(fitted),
        "cells": [asdict(cell) for cell in cells],
        "budget": budget,
        "seed": seed,
        "evaluator": evaluator(),
        "libraries": library_versions(),
    }
    common = Job(
        city=city_name,
        policy=source,
        cell=cells[0],
        world="fast",
        calibration=None if calibration is None else str(calibration),
    )
    judge = _judge(rule, source, chain, common, cells, executor or processes())
    tries = _Tries(out / TRIES, setting, judge, force)
    refuse_changed_files(out, (TRIES, FRONT, RESULT), force)
    refuse_changed_bundle(out / f"{rule.name}-tuned", force)
    with progress_bar() as bar:
        task = bar.add_task(f"tuning {rule.name} in {opened.name}", total=budget)
        tries.on_try = lambda: bar.update(task, completed=min(tries.asked, budget))
        tries.ask([tuple(constant.default for constant in rule.constants)])
        tries.keep()
        for price_s in PRICES_S:
            search(rule, tries, price_s, budget // len(PRICES_S), seed)
    best = front(tries.seen)
    chosen = _chosen(best, least_completion, rule.name)
    tuned = _write(out, opened, source, rule, chain, tries, setting, chosen, force)
    return chosen, best, tuned


def _chosen(best: Sequence[Try], least_completion: float, name: str) -> Try:
    """The try of a front with the lowest time that completes enough journeys."""
    enough = [one for one in best if one.completion >= least_completion]
    if not enough:
        most = f"the highest is {best[-1].completion:.2%}"
        raise InputError(
            f"{name}: no constants reach a completion of {least_completion:.2%}; {most}"
        )
    return enough[0]


def tunable(source: str) -> Rule:
    """Load a rule by name, built-in or your own, and check that it has constants to tune."""
    bundle, parts = read_policy(source), parse_source(source)
    if parts.constants or parts.chain is not None:
        raise InputError(f"{source!r}: tune searches the constants; name a chain with --chain")
    if bundle.row is None or not bundle.row.constants or bundle.tensors:
        able = [name for name, rule in RULES.items() if rule.constants and name != "random"]
        raise InputError(f"{source!r} has no constants to tune; choose {choice(able)}")
    return bundle.row


def setting_of(source: str, rule: Rule, values: Sequence[float], chain: str) -> str:
    """The source of a rule with these constants and this chain, exact to the last digit."""
    constants = "".join(f":{name}={value!r}" for name, value in rule.named(values).items())
    return f"{parse_source(source).place}{constants}+{chain}"


def _judge(
    rule: Rule, source: str, chain: str, common: Job, cells: Sequence[Cell], executor: Executor
) -> Callable[[Sequence[tuple[float, ...]]], list[Try]]:
    """A function that runs the tuning days with several sets of constants at once."""

    def judge(points: Sequence[tuple[float, ...]]) -> list[Try]:
        sources = [setting_of(source, rule, point, chain) for point in points]
        jobs = [
            replace(common, policy=named, cell=cell)
            for named in dict.fromkeys(sources)
            for cell in cells
        ]
        found: dict[Job, Outcome] = {}
        with closing(executor(jobs)) as results:
            for ended in results:
                if ended.answer is None:
                    raise InputError(f"{ended.job.city}, {ended.job.name}: {ended.error}")
                found[ended.job] = ended.answer.outcome
        tries = []
        for point, named in zip(points, sources, strict=True):
            days = [found[job] for job in jobs if job.policy == named]
            time_s = float(np.mean([day.generalized_s for day in days]))
            tries.append(Try(point, time_s, float(np.mean([day.completion for day in days]))))
        return tries

    return judge


class _Tries:
    """All tries so far. A known try is not run again."""

    def __init__(
        self,
        path: Path,
        setting: dict[str, Any],
        judge: Callable[[Sequence[tuple[float, ...]]], list[Try]],
        force: bool = False,
    ) -> None:
        self.path, self.setting, self.judge, self.force = path, setting, judge, force
        self.known: dict[tuple[float, ...], Try] = {}
        self.seen: list[Try] = []
        self.asked = 0
        self.on_try: Callable[[], None] = lambda: None
        if path.exists():
            self.known = {each.constants: each for each in _kept_tries(path, setting)}

    def ask(self, points: Sequence[tuple[float, ...]]) -> list[Try]:
        """The tries of several sets of constants; runs those that are new."""
        new = [point for point in dict.fromkeys(points) if point not in self.known]
        if new:
            self.known |= dict(zip(new, self.judge(new), strict=True))
        found = [self.known[point] for point in points]
        self.asked += len(found)
        self.seen += found
        self.on_try()
        return found

    def keep(self) -> None:
        """Write all tries to the file."""
        rows = [asdict(each) for each in self.known.values()]
        content = to_json({"setting": self.setting, "tries": rows}).encode()
        write_listed(self.path.parent, {self.path.name: content}, self.force)


def _kept_tries(path: Path, setting: dict[str, Any]) -> tuple[Try, ...]:
    """Read the tries of an earlier search."""
    kept = read_record(path, Kept)
    if kept.setting != setting:
        raise InputError(f"{path} belongs to another search; choose another --out")
    return kept.tries


def search(rule: Rule, tries: _Tries, price_s: float, budget: int, seed: int) -> None:
    """CMA-ES within the constants' ranges, until the budget is spent or the search has
    converged.
    """
    import cma

    low = np.array([constant.low for constant in rule.constants])
    span = np.array([constant.high for constant in rule.constants]) - low
    start = (np.array([constant.default for constant in rule.constants]) - low) / span
    # The library needs two dimensions: a rule with one constant gets a dummy.
    idle = np.full(max(0, 2 - len(start)), 0.5)
    options = {"bounds": [0.0, 1.0], "seed": seed, "verbose": -9, "verb_log": 0}
    strategy = cma.CMAEvolutionStrategy(np.append(start, idle), FIRST_STEP, options)
    spent = 0
    while spent < budget and not strategy.stop():
        asked = strategy.ask()
        points = [tuple((low + span * x[: len(low)]).tolist()) for x in asked]
        found = tries.ask(points)
        strategy.tell(asked, [each.price_s(price_s) for each in found])
        spent += len(found)
        tries.keep()


# -- the result -----------------------------------------------------------------------------------


def _write(
    out: Path,
    opened: OpenCity,
    source: str,
    rule: Rule,
    chain: str,
    tries: _Tries,
    setting: dict[str, Any],
    chosen: Try,
    force: bool,
) -> str:
    """Write the front, its figure, and a built-in rule's bundle. Returns the tuned policy."""
    city = opened.city
    found = {
        "constants": [constant.name for constant in rule.constants],
        "tries": len(tries.seen),
        "default": asdict(tries.seen[0]),
        "chosen": asdict(chosen),
        "front": [asdict(each) for each in front(tries.seen)],
        "policy": setting_of(source, rule, chosen.constants, chain),
    }
    picture = png(front_figure(rule.name, city.name, tries.seen, chosen))
    write_listed(out, {FRONT: picture, RESULT: to_json(found).encode()}, force)
    if RULES.get(rule.name) is not rule:
        return str(found["policy"])  # a bundle contains no code
    told = {key: found[key] for key in ("tries", "default", "chosen")}
    provenance = {"made_by": "evenline tune", "tuning": setting} | told
    spec = rule_spec(rule.name, rule.named(chosen.constants), chain, city, provenance)
    bundle = Bundle(rule.name, spec, row=rule)
    tensors = {TIMETABLE: timetable_of(bundle, city, opened.calibration)} if rule.timed else {}
    folder = out / f"{rule.name}-tuned"
    save_bundle(folder, spec, tensors, force)
    return str(folder)


def front_figure(rule: str, city: str, tries: Sequence[Try], chosen: Try) -> Figure:
    """All tries, the front, the default constants and the chosen ones."""
    figure = Figure(figsize=(7, 4.5), layout="constrained", facecolor=LIGHT.paper)
    axes = figure.subplots()
    best = front(tries)

    def draw(points: Sequence[Try], style: str, **options: Any) -> None:
        x = [each.generalized_s for each in points]
        axes.plot(x, [100 * each.completion for each in points], style, **options)

    draw(tries, ".", color=LIGHT.muted, alpha=0.5, label=f"{len(tries)} tries")
    draw(best, "o-", color=LIGHT.policies[0], markersize=4, label="front")
    draw(tries[:1], "s", color=LIGHT.ink, markersize=8, label="default constants")
    draw([chosen], "*", color=LIGHT.policies[1], markersize=15, label="chosen")
    worst = max(tries[0].generalized_s, best[-1].generalized_s)
    low, high = best[0].generalized_s, worst
    margin = 0.3 * max(high - low, 1.0)
    axes.set_xlim(low - 0.2 * margin, high + margin)
    axes.set(
        title=f"{rule} in {city}: tuning days",
        xlabel="generalized time, s per passenger",
        ylabel="journeys completed, %",
    )
    axes.grid(color=LIGHT.faint, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
