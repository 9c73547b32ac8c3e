"""A rule's constants, searched in the fast world: CMA-ES on tuning days, the same for every try.

Generalized time alone has one best point; the front against completion takes several searches,
each with another price of an unfinished journey. Every try is kept, so that a search that was
killed goes on where it was: the searches are seeded and ask the same questions again. The result
is a folder with `front.json`, `front.png` and the tuned rule as a bundle.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.tables import digest, open_city
from evenline.control.event import new_headways
from evenline.figures.plots import LIGHT, png
from evenline.policies.bundle import (
    TIMETABLE,
    Bundle,
    make_policy,
    rule_spec,
    save_bundle,
    timetable_of,
)
from evenline.rules.chain import chain_code
from evenline.rules.classics import CLASSICS, Classic
from evenline.rules.controller import RuleController, due_times
from evenline.support.errors import InputError
from evenline.support.files import read_json, refuse_foreign, to_json, write_bytes, write_text
from evenline.support.progress import progress_bar
from evenline.worlds.calibration import embedded_calibration
from evenline.worlds.fast.world import FastWorld

TRIES, RESULT = "tries.json", "front.json"
PRICES_S = (0.0, 30.0, 120.0)  # of one per cent of journeys unfinished, per passenger
FIRST_STEP = 0.25  # of a constant's range


@dataclass(frozen=True)
class Try:
    """Constants and what the tuning days came to with them, on average."""

    constants: tuple[float, ...]
    generalized_s: float
    completion: float

    def price_s(self, price_s: float) -> float:
        """What a search makes small: generalized time and the price of unfinished journeys."""
        return self.generalized_s + price_s * 100.0 * (1.0 - self.completion)


def front(tries: Sequence[Try]) -> list[Try]:
    """The tries that no other betters in both respects, from the quickest on."""
    found: list[Try] = []
    for each in sorted(tries, key=lambda t: (t.generalized_s, -t.completion)):
        if not found or each.completion > found[-1].completion:
            found.append(each)
    return found


def tune(
    rule: str,
    city_name: str,
    out: Path,
    blocks: int = 10,
    budget: int = 240,
    chain: str = "raw",
    least_completion: float = 0.0,
    seed: int = 1,
) -> tuple[Try, list[Try]]:
    """Search, write the folder; the constants chosen and the front.

    Chosen is the least generalized time among tries with at least so much completion.
    """
    if rule not in CLASSICS or not CLASSICS[rule].constants:
        able = (name for name, classic in CLASSICS.items() if classic.constants)
        raise InputError(f"rule {rule!r}: those with constants are {', '.join(able)}")
    if seed < 1:
        raise InputError(f"seed {seed}: must be at least 1")  # the library takes 0 for the clock
    if budget < len(PRICES_S):
        raise InputError(f"budget {budget}: must be at least {len(PRICES_S)}, one for each search")
    refuse_foreign(out, TRIES)
    city, classic = open_city(city_name), CLASSICS[rule]
    cells = PURPOSES["tuning"].cells(blocks)
    setting = {
        "rule": rule,
        "chain": chain,
        "city": digest(city),
        "cells": [asdict(cell) for cell in cells],
        "budget": budget,
        "seed": seed,
        "evenline": evenline.__version__,
    }
    tries = _Tries(out / TRIES, setting, _judge(city, rule, chain, cells))
    with progress_bar() as bar:
        task = bar.add_task(f"tuning {rule} in {city.name}", total=budget)
        tries.on_try = lambda: bar.update(task, completed=min(tries.asked, budget))
        tries.ask(tuple(constant.default for constant in classic.constants))
        tries.keep()
        for price_s in PRICES_S:
            search(classic, tries, price_s, budget // len(PRICES_S), seed)
    best = front(tries.seen)
    able_tries = [each for each in best if each.completion >= least_completion]
    if not able_tries:
        most = f"the most is {best[-1].completion:.2%}"
        raise InputError(f"{rule}: no try completes {least_completion:.2%}; {most}")
    _write(out, city, rule, chain, classic, tries, setting, able_tries[0])
    return able_tries[0], best


def tuned_folder(out: Path, rule: str) -> Path:
    """Where the tuned rule is, under a name that tells it from others in a comparison."""
    return out / f"{rule}-tuned"


def _judge(
    city: City, rule: str, chain: str, cells: Sequence[Cell]
) -> Callable[[tuple[float, ...]], Try]:
    """What the tuning days come to, as a function of the constants."""
    classic, world = CLASSICS[rule], FastWorld(city, embedded_calibration(city))
    bundle = Bundle(rule, {"kind": "rule", "rule": rule, "constants": {}, "chain": chain})
    due_s = due_times(city, timetable_of(bundle, city)) if classic.timed else np.zeros(0)
    first_visit, code = new_headways(city).first_visit, chain_code(chain)

    def judge(constants: tuple[float, ...]) -> Try:
        controller = RuleController(
            rule, classic.kind, constants, code, float(city.horizon_s), first_visit, due_s
        )
        days = [world.run_controller(cell, controller) for cell in cells]
        return Try(
            constants,
            float(np.mean([day.generalized_s for day in days])),
            float(np.mean([day.completion for day in days])),
        )

    return judge


class _Tries:
    """Every try so far; what is known already is not run again."""

    def __init__(
        self, path: Path, setting: dict[str, Any], judge: Callable[[tuple[float, ...]], Try]
    ) -> None:
        self.path, self.setting, self.judge = path, setting, judge
        self.known: dict[tuple[float, ...], Try] = {}
        self.seen: list[Try] = []
        self.asked = 0
        self.on_try: Callable[[], None] = lambda: None
        if path.exists():
            self.known = {each.constants: each for each in _kept_tries(path, setting)}

    def ask(self, constants: tuple[float, ...]) -> Try:
        """A try, run or remembered."""
        if constants not in self.known:
            self.known[constants] = self.judge(constants)
        self.asked += 1
        self.seen.append(self.known[constants])
        self.on_try()
        return self.known[constants]

    def keep(self) -> None:
        """Write all tries down."""
        rows = [asdict(each) for each in self.known.values()]
        write_text(self.path, to_json({"setting": self.setting, "tries": rows}))


def _kept_tries(path: Path, setting: dict[str, Any]) -> list[Try]:
    """The tries of a search that was begun before."""
    kept = read_json(path)
    if not isinstance(kept, dict) or kept.get("setting") != setting:
        raise InputError(f"{path}: is of another search; choose another --out")
    try:
        return [
            Try(
                tuple(float(constant) for constant in row["constants"]),
                float(row["generalized_s"]),
                float(row["completion"]),
            )
            for row in kept["tries"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: holds no tries; choose another --out") from None


def search(classic: Classic, tries: _Tries, price_s: float, budget: int, seed: int) -> None:
    """CMA-ES within the constants' ranges, until the budget is spent or nothing moves."""
    import cma

    low = np.array([constant.low for constant in classic.constants])
    span = np.array([constant.high for constant in classic.constants]) - low
    start = (np.array([constant.default for constant in classic.constants]) - low) / span
    # The library wants two dimensions: a rule of one constant gets one that does nothing.
    idle = np.full(max(0, 2 - len(start)), 0.5)
    options = {"bounds": [0.0, 1.0], "seed": seed, "verbose": -9, "verb_log": 0}
    strategy = cma.CMAEvolutionStrategy(np.append(start, idle), FIRST_STEP, options)
    spent = 0
    while spent < budget and not strategy.stop():
        asked = strategy.ask()
        points = [tuple((low + span * x[: len(low)]).tolist()) for x in asked]
        found = [tries.ask(point) for point in points]
        strategy.tell(asked, [each.price_s(price_s) for each in found])
        spent += len(found)
        tries.keep()


# -- the result -----------------------------------------------------------------------------------


def _write(
    out: Path,
    city: City,
    rule: str,
    chain: str,
    classic: Classic,
    tries: _Tries,
    setting: dict[str, Any],
    chosen: Try,
) -> None:
    names = [constant.name for constant in classic.constants]
    best, default = front(tries.seen), tries.seen[0]
    found = {
        "constants": names,
        "tries": len(tries.seen),
        "default": asdict(default),
        "chosen": asdict(chosen),
        "front": [asdict(each) for each in best],
    }
    constants = dict(zip(names, chosen.constants, strict=True))
    provenance = {"made_by": "evenline tune", "tuning": setting} | {
        key: found[key] for key in ("tries", "default", "chosen")
    }
    spec = rule_spec(rule, constants, chain, city, provenance)
    bundle = Bundle(rule, spec)
    tensors = {TIMETABLE: timetable_of(bundle, city)} if classic.timed else {}
    save_bundle(tuned_folder(out, rule), spec, tensors)
    assert make_policy(Bundle(rule, spec, tensors), city).name == rule
    write_bytes(out / "front.png", png(front_figure(rule, city.name, tries.seen, chosen)))
    write_text(out / RESULT, to_json(found))


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
