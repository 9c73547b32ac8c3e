"""Untrained actors of the town, and states of its days, for tests of what carries them."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from evenline.city.embedded import embedded_city
from evenline.city.model import City
from evenline.control.event import Array
from evenline.control.state import contract_of
from evenline.policies.actor import ActorPolicy, actor_of, random_tensors
from evenline.policies.bundle import actor_spec, save_bundle
from evenline.policies.states import fast_states
from evenline.rules.chain import CHAINS
from evenline.worlds.open import open_city


@lru_cache
def town() -> City:
    return embedded_city("town")


@lru_cache
def town_states() -> Array:
    """Packed states of a day of the town: 600 tokens, some in batches of several."""
    return fast_states(open_city("town"), 600, seed=4)


def untrained(chain: str = "raw", seed: int = 0) -> ActorPolicy:
    services = len(town().services)
    actor = actor_of(random_tensors(services, seed), services)
    return ActorPolicy("untrained", actor, contract_of(town()), CHAINS[chain])


def save_actor(folder: Path, chain: str = "raw", seed: int = 0) -> Path:
    tensors = random_tensors(len(town().services), seed)
    save_bundle(folder, actor_spec(town(), chain, {"trained": "no"}), tensors)
    return folder


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))
