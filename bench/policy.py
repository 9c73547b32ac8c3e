"""How long a policy takes to answer: from a batch of events to its holds.

The batches are those of one recorded day of the fast world without holding, answered one after the
other in this process. Every built-in policy is measured, and an actor of each kind that the project
has. For the look-ahead, the calls at stops that it must compute say how near it is to its floor.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from bench.meter import DocsOption, Figures, print_figures, seconds_of, write_figures
from evenline.city.cells import demo_cell
from evenline.cli.options import CityOption
from evenline.control.event import Batch
from evenline.control.state import contract_of
from evenline.control.world import Policy
from evenline.policies.actor import ActorPolicy, actor_of
from evenline.policies.bundle import open_policy
from evenline.policies.lookahead import LOOKAHEAD, Lookahead
from evenline.policies.names import BUILT_IN
from evenline.rules.chain import CHAINS
from evenline.support.columns import markdown
from evenline.support.tensors import read_tensors
from evenline.worlds.open import OpenCity, open_city
from reproduce.door import run

WARM_UP = 100  # batches; the first ones compile
ACTORS, KINDS = Path("data"), ("train", "taught")


def measure(city: str) -> Figures:
    """Milliseconds of an answer: the median and the 99th percentile, by policy."""
    opened = open_city(city)
    batches = recorded_day(opened)
    return {
        "city": opened.name,
        "batches": len(batches),
        "decisions": sum(len(batch.trips) for batch in batches),
        "policies": {name: latency(policy, batches) for name, policy in _policies(opened).items()},
        "lookahead": floor(opened, batches),
    }


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
    policies: dict[str, Policy] = {
        name: open_policy(name, city, opened.calibration) for name in BUILT_IN
    }
    folders = [ACTORS / f"{kind}-{opened.name}" / "actors" for kind in KINDS]
    paths = [sorted(folder.glob("*.safetensors"))[:1] for folder in folders]
    for path in chain.from_iterable(paths):
        actor = actor_of(read_tensors(path), len(city.services))
        policies[path.stem] = ActorPolicy(path.stem, actor, contract_of(city), CHAINS["raw"])
    return policies


def latency(policy: Policy, batches: Sequence[Batch]) -> dict[str, float]:
    """The time of an answer over a day, after a warm-up."""
    for batch in batches[:WARM_UP]:
        policy(batch)
    spent_s = [seconds_of(partial(policy, batch)) for batch in batches]
    half, most = 1e3 * np.percentile(spent_s, [50, 99])
    return {"p50_ms": round(float(half), 4), "p99_ms": round(float(most), 4)}


def floor(opened: OpenCity, batches: Sequence[Batch]) -> dict[str, float]:
    """The calls of buses at stops that the look-ahead computes for a decision, and their time."""
    policy = open_policy(LOOKAHEAD, opened.city, opened.calibration)
    assert isinstance(policy, Lookahead)
    for batch in batches[:WARM_UP]:
        policy(batch)
    before = policy.calls_computed
    spent_s = seconds_of(lambda: [policy(batch) for batch in batches])
    decisions = sum(len(batch.trips) for batch in batches)
    calls = policy.calls_computed - before
    return {
        "ms_per_decision": round(1e3 * spent_s / decisions, 4),
        "calls_per_decision": round(calls / decisions),
        "ns_per_call": round(1e9 * spent_s / calls, 1),
    }


def _lines(figures: Figures) -> list[str]:
    """The table of a document, and what a decision of the look-ahead costs."""
    ahead, policies = figures["lookahead"], figures["policies"].items()
    rows = [[name, f"{v['p50_ms']:.3f}", f"{v['p99_ms']:.3f}"] for name, v in policies]
    return [
        f"{figures['batches']:,} batches with {figures['decisions']:,} decisions.",
        "",
        *markdown([["Policy", "Median, ms", "99th percentile, ms"], *rows]),
        "",
        f"A decision of the look-ahead takes {ahead['ms_per_decision']:.3f} ms on average: "
        f"{ahead['calls_per_decision']:,} calls of buses at stops, {ahead['ns_per_call']:.0f} ns "
        "each.",
    ]


def main(city: CityOption = "city", docs: DocsOption = None) -> None:
    """Measure how long every built-in policy, and an actor if there is one, takes to answer.

    Prints JSON.
    """
    figures = measure(city)
    print_figures(figures)
    if docs is not None:
        mark, command = f"bench policy {figures['city']}", f"python -m bench.policy --city {city}"
        write_figures(docs, mark, command, _lines(figures))


if __name__ == "__main__":
    run("bench.policy", main)
