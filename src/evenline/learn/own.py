"""Your own learner: a function of a replay, an opened city and a seed that makes an actor.

`evenline train --learner FILE.py:NAME` calls it once for each seed and stores the actor's tensors
next to those of our learners. `evenline.checks.check_learner` tests it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evenline.learn.plan import write_actor
from evenline.learn.schedule import LEARNERS, TAUGHT
from evenline.policies.actor import check_tensors
from evenline.replay.store import Store
from evenline.support.errors import InputError
from evenline.support.files import to_json, write_text
from evenline.support.own import is_own, load_own
from evenline.support.records import Sha256, read_record
from evenline.worlds.open import OpenCity

_SOURCES = "own-learners.json"  # the hash of the file behind each own learner
OwnLearner = Callable[[Store, OpenCity, int], Mapping[str, Any]]


def own_learners(names: str) -> tuple[str, list[str]]:
    """Split names of learners, separated by commas, into ours and the user's own."""
    every = names.split(",")
    return ",".join(name for name in every if not is_own(name)), [n for n in every if is_own(n)]


def actor_name(learner: str) -> str:
    """The name under which a learner's actors are stored."""
    return load_own(learner).name if is_own(learner) else learner


def train_own(
    folder: Path, learner: str, opened: OpenCity, store: Store, seeds: tuple[int, ...]
) -> None:
    """Train an actor for each seed that has none yet, and check it before storing it."""
    code, kept = load_own(learner), folder / "actors" / _SOURCES
    sources = read_record(kept, dict[str, Sha256]) if kept.exists() else {}
    if code.name in (*LEARNERS, TAUGHT.name):
        raise InputError(f"{learner}: {code.name!r} is a learner of ours; rename the function")
    if sources.setdefault(code.name, code.sha256) != code.sha256:
        raise InputError(
            f"{folder} has actors of another {code.name!r}, or of an earlier version of its file; "
            "choose another folder"
        )
    write_text(kept, to_json(sources))
    for seed in seeds:
        path = folder / "actors" / f"{code.name}-{seed}.safetensors"
        if path.exists():
            continue
        made = code.thing(store, opened, seed)
        if not isinstance(made, Mapping):
            raise InputError(
                f"{learner} must return a dictionary of tensors, not {type(made).__name__}"
            )
        tensors = {name: np.asarray(value) for name, value in made.items()}
        try:
            check_tensors(tensors, len(opened.city.services))
        except InputError as error:
            raise InputError(f"{learner}, seed {seed}: {error}") from None
        write_actor(path, tensors)
