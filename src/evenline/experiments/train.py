"""The `evenline train` command: opens the inputs, trains, and measures the actors.

It imports no SUMO, environments or plotting, which an accelerator machine may lack.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from evenline.learn.lineage import lineage
from evenline.learn.own import own_learners, train_own
from evenline.learn.plan import CURVE_BLOCKS, Config, Plan, check_seed
from evenline.learn.schedule import Budget, check_chain, named_learners
from evenline.replay.store import open_store
from evenline.support.errors import InputError
from evenline.support.records import read_record
from evenline.support.tensors import read_tensors
from evenline.worlds.open import open_city

MOST_SEEDS = 1_000


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds from text such as `6201-6205` or `6201,6203`."""
    try:
        first, dash, last = text.partition("-")
        seeds: Sequence[int] = (
            range(int(first), int(last) + 1) if dash else [int(part) for part in text.split(",")]
        )
    except ValueError:
        raise InputError(
            f"cannot read seeds {text!r}; write them like 6201-6205 or 6201,6203"
        ) from None
    # A slice, because the length of a very long range overflows.
    if len(seeds[: MOST_SEEDS + 1]) > MOST_SEEDS:
        raise InputError(f"seeds {text}: give at most {MOST_SEEDS}")
    for seed in seeds:
        check_seed(seed)
    return tuple(seeds)


def replay_folder(city: str) -> Path:
    """The folder of a city's replay: collected here, or the one that comes with the project."""
    own, sealed = Path("results") / f"replay-{city}", Path("data") / f"replay-{city}"
    return own if (own / "manifest.json").exists() or not sealed.exists() else sealed


def run_training(
    city_name: str,
    learners: str,
    seeds: str,
    replay: Path | None,
    folder: Path,
    device: str,
    budget: Budget,
    widths: tuple[int, int, int],
    blocks: int = CURVE_BLOCKS,
    calibration_file: Path | None = None,
    centred: bool = False,
    chain: str = "raw",
) -> dict[str, Any]:
    """Train, then measure every stored actor on fresh days of the fast world.

    The fast world uses the given calibration, or the city's own.
    """
    from evenline.learn.run import chosen_device  # JAX, which reading a run's record does without
    from evenline.learn.training import learning_curve, shortened, train

    where = chosen_device(device)
    opened = open_city(city_name, calibration_file)
    city, calibration = opened.city, opened.fitted()
    ours, own = own_learners(learners)
    for learner in own:
        check_chain(learner, 0, chain)
    learned = tuple(named_learners(ours)) if ours else ()
    plan = Plan(learned, seeds_of(seeds), centred=centred, chain=chain)
    plan = replace(plan, slot=widths[0], fused=widths[1], hidden=widths[2])
    plan = shortened(plan, budget)
    store = None
    if own or any(not learner.lessons for learner in learned):
        store = open_store(replay or replay_folder(city.name), city)
    summary = train(folder, plan, city, calibration, store, device) if ours else {}
    for learner in own:
        assert store is not None
        train_own(folder, learner, opened, store, plan.seeds)
    packed = where.platform == "cpu"
    summary["curve"] = learning_curve(folder, city, calibration, packed, blocks, chain)
    return summary


def training_of(actor: Path) -> dict[str, Any]:
    """What a bundle tells about an actor's training; nothing if the actor is in no run's folder."""
    folder, (learner, _, seed) = actor.parent.parent, actor.stem.rpartition("-")
    if actor.parent.name != "actors" or not (folder / "config.json").is_file():
        return {}
    config = read_record(folder / "config.json", Config)
    if not seed.isdigit() or learner not in (known.name for known in config.plan.learners):
        return {}
    return {
        "learner": learner,
        "seed": int(seed),
        "centred": config.plan.centred,
        "taught_behind": config.plan.chain,
        "replay": config.replay,
        "calibration": config.calibration,
        "stable": training_is_stable(folder, learner, int(seed)),
    }


def training_is_stable(folder: Path, learner: str, seed: int) -> bool:
    """Whether each weight of an actor is finite, and so is each metric of its whole training.

    Its training is its lineage: what it shared with other learners counts, too. No update may lack
    its row of metrics.
    """
    plan = read_record(folder / "config.json", Config).plan
    rows = pq.read_table(folder / "metrics.parquet").to_pylist()
    terms: dict[str, set[str]] = {}  # the metrics of each phase
    for row in rows:
        numbers = {term for term, value in row.items() if isinstance(value, float)}
        terms.setdefault(row["phase"], set()).update(numbers)
    actor = read_tensors(folder / "actors" / f"{learner}-{seed}.safetensors")
    if not actor or not all(np.isfinite(tensor).all() for tensor in actor.values()):
        return False
    for part in lineage(plan, f"{learner}-{seed}"):
        inside = {
            row["update"]: [row[term] for term in sorted(terms[part.phase])]
            for row in rows
            if (row["phase"], row["lane"]) == (part.phase, part.lane)
            and part.after < row["update"] <= part.to
        }
        updates = [part.after, *sorted(inside)]
        gaps = [late - early for early, late in pairwise(updates)]
        if updates[-1] != part.to or max(gaps) > part.row_every:
            return False
        if not all(v is not None and np.isfinite(v) for row in inside.values() for v in row):
            return False
    return True
