"""How long a policy takes to answer: from a batch of events to its holds.

The batches are those of one recorded day of the fast world without holding, answered one after the
other in this process. Every built-in policy is measured, and an actor of each kind that the project
has. For the look-ahead, the calls at stops that it must compute say how near it is to its floor.
"""

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from evenline.city.cells import demo_cell
from evenline.control.event import Batch
from evenline.control.state import contract_of
from evenline.control.world import Policy
from evenline.policies.actor import ActorPolicy, actor_of
from evenline.policies.bundle import BUILT_IN, open_policy, tensors_of
from evenline.policies.lookahead import LOOKAHEAD, Lookahead
from evenline.rules.chain import CHAINS
from evenline.worlds.open import OpenCity, open_city

WARM_UP = 100  # batches; the first ones compile
ACTORS, KINDS = Path("data"), ("train", "taught")


def bench_policy(city_name: str, document: Path | None = None) -> dict[str, Any]:
    """Milliseconds of an answer: the median and the 99th percentile, by policy."""
    opened = open_city(city_name)
    batches = recorded_day(opened)
    found = {
        "city": opened.name,
        "batches": len(batches),
        "decisions": sum(len(batch.trips) for batch in batches),
        "policies": {name: latency(policy, batches) for name, policy in _policies(opened).items()},
        "lookahead": floor(opened, batches),
    }
    if document is not None:
        _write(document, city_name, found)
    return found


def recorded_day(opened: OpenCity) -> list[Batch]:
    """The batches of a day without holding."""
    world, batches = opened.fast_world(), list[Batch]()
    batch = world.reset(demo_cell(1))
    while batch is not None:
        batches.append(batch)
        batch = world.step([0.0] * len(batch.trips))
    return batches


def _policies(opened: OpenCity) -> dict[str, Policy]:
    """Every built-in policy, and the first actor of each kind that was trained for the city."""
    city = opened.city
    found: dict[str, Policy] = {
        name: open_policy(name, city, opened.calibration) for name in BUILT_IN
    }
    folders = [ACTORS / f"{kind}-{opened.name}" / "actors" for kind in KINDS]
    paths = [sorted(folder.glob("*.safetensors"))[:1] for folder in folders]
    for path in chain.from_iterable(paths):
        actor = actor_of(tensors_of(path, path.read_bytes()), len(city.services))
        found[path.stem] = ActorPolicy(path.stem, actor, contract_of(city), CHAINS["raw"])
    return found


def latency(policy: Policy, batches: Sequence[Batch]) -> dict[str, float]:
    """The time of an answer over a day, after a warm-up."""
    for batch in batches[:WARM_UP]:
        policy(batch)
    spent_s = np.empty(len(batches))
    for i, batch in enumerate(batches):
        began = time.perf_counter()
        policy(batch)
        spent_s[i] = time.perf_counter() - began
    half, most = 1e3 * np.percentile(spent_s, [50, 99])
    return {"p50_ms": round(float(half), 4), "p99_ms": round(float(most), 4)}


def floor(opened: OpenCity, batches: Sequence[Batch]) -> dict[str, float]:
    """The calls of buses at stops that the look-ahead computes for a decision, and their time."""
    policy = open_policy(LOOKAHEAD, opened.city, opened.calibration)
    assert isinstance(policy, Lookahead)
    for batch in batches[:WARM_UP]:
        policy(batch)
    before, began = policy.calls_computed, time.perf_counter()
    for batch in batches:
        policy(batch)
    spent_s = time.perf_counter() - began
    decisions = sum(len(batch.trips) for batch in batches)
    calls = policy.calls_computed - before
    return {
        "ms_per_decision": round(1e3 * spent_s / decisions, 4),
        "calls_per_decision": round(calls / decisions),
        "ns_per_call": round(1e9 * spent_s / calls, 1),
    }


def _write(document: Path, city_name: str, found: dict[str, Any]) -> None:
    """Write the figures between their marks in a document."""
    from evenline.figures.document import insert

    ahead = found["lookahead"]
    text = [
        f"Made by `evenline bench policy --city {city_name} --docs {document.name}`: "
        f"{found['batches']:,} batches with {found['decisions']:,} decisions.",
        "",
        "| Policy | Median, ms | 99th percentile, ms |",
        "| --- | ---: | ---: |",
        *(f"| {n} | {v['p50_ms']:.3f} | {v['p99_ms']:.3f} |" for n, v in found["policies"].items()),
        "",
        f"A decision of the look-ahead takes {ahead['ms_per_decision']:.3f} ms on average: "
        f"{ahead['calls_per_decision']:,} calls of buses at stops, {ahead['ns_per_call']:.0f} ns "
        "each.",
    ]
    insert(document, f"bench policy {found['city']}", "\n".join(text))
