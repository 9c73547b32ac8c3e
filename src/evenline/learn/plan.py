"""What a training run is asked for and what it leaves behind; it can be read without JAX."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from evenline.city.model import City
from evenline.learn.schedule import Budget, Learner, check_chain, check_schedule
from evenline.policies.actor import OUTPUTS, network_layers
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_bytes
from evenline.support.records import Positive, Record, Seconds, Sha256, Word, plain
from evenline.support.tensors import Tensors, tensors_bytes, to_bfloat16

IQL_CHUNK = 100  # updates of IQL for one row of the metrics
METRIC_EVERY = 100  # events of the continuation for one row
LESSON_ROUNDS = 5
CURVE_BLOCKS = 3  # of fresh days on which actors are measured
TrainingSeed = Annotated[int, Meta(ge=0, lt=2**32)]


@dataclass(frozen=True)
class Size:
    """Widths of the network; the defaults are the paper's."""

    services: int
    slot: int = 128
    fused: int = 256
    hidden: int = 256

    def layers(self, extra: int = 0, outputs: int = OUTPUTS) -> dict[str, tuple[int, int]]:
        """How many numbers enter and leave each layer: see `network_layers`."""
        return network_layers(self.services, (self.slot, self.fused, self.hidden), extra, outputs)


@dataclass(frozen=True)
class Plan:
    """The plan of a training run."""

    learners: tuple[Learner, ...]
    seeds: tuple[TrainingSeed, ...]
    budget: Budget = field(default_factory=Budget)
    slot: Positive = 128
    fused: Positive = 256
    hidden: Positive = 256
    centred: bool = False  # rewards: see `centre`
    chain: Word = "raw"  # behind which lessons are taken
    checkpoint_s: Seconds = 120.0

    def size(self, city: City) -> Size:
        """The widths of the network for a city."""
        return Size(len(city.services), self.slot, self.fused, self.hidden)


class Config(Record):
    """The content of `config.json`: the settings, and the hashes of the training data."""

    city: Sha256
    replay: Sha256 | None  # None: lessons need no replay
    calibration: Sha256
    device: Word
    plan: Plan

    def as_json(self) -> str:
        """The record of a plan; the interval of checkpoints is not part of it."""
        config = plain(self)
        config["plan"].pop("checkpoint_s", None)
        return to_json(config)


def check_seed(seed: int) -> None:
    """Refuse a training seed that the random streams cannot use."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed}: must be from 0 to {2**32 - 1}")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be trained, before any work."""
    for seed in plan.seeds:
        check_seed(seed)
    if not plan.seeds or len(set(plan.seeds)) != len(plan.seeds):
        raise InputError(f"seeds {list(plan.seeds)}: give at least one seed, and none twice")
    for learner in plan.learners:
        check_schedule(learner, plan.budget)
        check_chain(learner.name, learner.lessons, plan.chain)


def write_actor(path: Path, actor: Mapping[str, Any]) -> None:
    """Store an actor, rounded to bfloat16: what is measured, exported and run is what is stored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, tensors_bytes(rounded_actor(actor)))


def rounded_actor(actor: Mapping[str, Any]) -> Tensors:
    """The tensors of an actor, rounded to bfloat16."""
    return {name: to_bfloat16(np.asarray(value)) for name, value in actor.items()}
