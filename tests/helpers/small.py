"""A small replay of `town` recorded in the fast world: enough to train on, made in a moment."""

from pathlib import Path

from evenline.checks.learner import fast_replay
from evenline.replay.store import Store
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.open import open_city


def fast_store(folder: Path, blocks: int = 3, rules: tuple[str, ...] = tuple(BEHAVIOURS)) -> Store:
    """Record, seal and open."""
    return fast_replay(folder, open_city("town"), blocks, rules)
