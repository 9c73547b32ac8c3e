"""Policies from Python: tune a rule, train networks, and save either for use anywhere.

Tuning and training run the code of the commands `tune` and `train`, write a folder, and continue in
it when they are called again. What they return is a name that every function and command takes.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenline.policies.names import BUILT_IN
from evenline.rules.own import Function, rule_of
from evenline.rules.table import Rule
from evenline.support.columns import TextTable
from evenline.support.errors import InputError
from evenline.support.own import load_own

OwnRule = Rule | Function  # seconds to hold a bus


def policy_names() -> list[str]:
    """The names of the built-in policies."""
    return list(BUILT_IN)


def source_of(policy: str | OwnRule) -> str:
    """The name by which another process finds a policy: for a rule of yours, `FILE.py:NAME`."""
    if isinstance(policy, str):
        return policy
    rule = rule_of(policy)
    function = rule.formula if isinstance(policy, Rule) else policy
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    if file is None:
        raise InputError(f"rule {rule.name}: save it in a file, and name it as FILE.py:{rule.name}")
    source = f"{file}:{rule.name}"
    load_own(source)  # refuses a rule that the file does not have under this name
    return source


@dataclass(frozen=True)
class TunedRule:
    """A rule with the constants that a search chose: `policy` is its name for everything else."""

    policy: str
    constants: tuple[str, ...]
    chosen: Any = field(repr=False)
    front: list[Any] = field(repr=False)

    def rows(self) -> list[list[str]]:
        """The tries that no other beats in both time and completion, after the heading."""
        head = ["generalized time, s", "completion", *self.constants, ""]
        return [
            head,
            *(
                [
                    f"{one.generalized_s:,.1f}",
                    f"{one.completion:.2%}",
                    *(f"{value:.4g}" for value in one.constants),
                    "chosen" if one == self.chosen else "",
                ]
                for one in self.front
            ),
        ]

    def __str__(self) -> str:
        return str(TextTable(self.policy, self.rows()))

    def _repr_html_(self) -> str:
        return TextTable(self.policy, self.rows())._repr_html_()


def tune(
    rule: str | OwnRule,
    city: str = "town",
    *,
    budget: int = 240,
    blocks: int = 10,
    chain: str = "raw",
    completion: float = 0.0,
    out: str | Path | None = None,
    workers: int | None = None,
) -> TunedRule:
    """Find the best constants of a rule in the fast world, on days kept for tuning.

    Of the tries with at least this `completion`, the one with the least generalized time is chosen.
    """
    from evenline.experiments.tune import tunable
    from evenline.experiments.tune import tune as search
    from evenline.runs.executors import processes

    source = source_of(rule)
    wanted = tunable(source)
    folder = Path(out) if out is not None else _results(f"tune-{Path(city).name}-{wanted.name}")
    chosen, front, policy = search(
        source, city, folder, blocks, budget, chain, completion, executor=processes(workers)
    )
    return TunedRule(policy, tuple(one.name for one in wanted.constants), chosen, front)


@dataclass(frozen=True)
class Actor:
    """A trained network: its file, and the chain of physical rules behind which it acts."""

    path: Path
    city: str
    learner: str
    seed: int
    chain: str = "raw"

    def behind(self, chain: str) -> "Actor":
        """The same network behind another chain: raw, h16, parent or candidate."""
        from evenline.rules.chain import chain_code

        chain_code(chain)  # refuses a chain that does not exist
        return Actor(self.path, self.city, self.learner, self.seed, chain)

    def save(self, folder: str | Path) -> str:
        """Save the policy as a bundle, and return the folder's name: a policy like any other."""
        from evenline.policies.bundle import export_bundle
        from evenline.worlds.open import open_city

        opened = open_city(self.city)
        provenance = {"made_by": "evenline.train", "learner": self.learner, "seed": self.seed}
        city, fitted = opened.city, opened.calibration
        export_bundle(Path(folder), str(self.path), city, self.chain, provenance, fitted)
        return str(folder)


def train(
    city: str = "town",
    learner: str = "taught",
    *,
    seeds: Sequence[int] = range(1, 6),
    replay: str | Path | None = None,
    out: str | Path | None = None,
    **budget: int,
) -> list[Actor]:
    """Train one network for each seed, and measure them on fresh days of the fast world.

    `budget` has the numbers of `evenline.learn.schedule.Budget`, such as `lesson_updates=6_000`.
    """
    from evenline.experiments.train import run_training
    from evenline.learn.schedule import Budget

    folder = Path(out) if out is not None else _results(f"train-{Path(city).name}")
    named = ",".join(map(str, seeds))
    try:
        whole = Budget(**budget)
    except TypeError as error:
        raise InputError(f"train: {error}") from None
    store = None if replay is None else Path(replay)
    run_training(city, learner, named, store, folder, "cpu", whole, (128, 256, 256))
    return [
        Actor(folder / "actors" / f"{learner}-{seed}.safetensors", city, learner, seed)
        for seed in seeds
    ]


def _results(name: str) -> Path:
    return Path("results") / name
