"""With the defaults nothing changes: the digests of the embedded cities, and two of their days.

The values were written down before cities could say how they are operated. A change of one bit of
an outcome or a stop visit fails here.
"""

import hashlib
from dataclasses import asdict

import numpy as np
import pytest

from evenline.city.cells import demo_cell
from evenline.city.tables import digest, network_digest
from evenline.rules.policy import BEHAVIOURS
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.open import open_city

PINNED = {
    "town": (
        "49146c54aae9e2a453b872f057c7f2a32eeb37c60134d9dfc61bc106ce5cb037",
        "01c4d1d7dcf84e9cddc6e10177b384aac662cb1396ac653d12f504ded30b1ca9",
        "ff356ea1c535b022807458a7d411448b7fe4b328ffee0e7197d740d3e867281a",
    ),
    "city": (
        "851eba1735bab8681dd3e079282d3a374b7b5b7477e7a0b6f2bd950cbd21ad86",
        "bfbe10bc3bb3ef25db0222b9c78f50b2e391c5c6e16d651eccfa720f0d4b9743",
        "2153776dd27bb4caa3bf1324acbb0482801f5af538b48091744b5cec43214e2c",
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_digests_and_days_of_the_embedded_cities_stay_the_same(name: str) -> None:
    opened, days = open_city(name), hashlib.sha256()
    world = FastWorld(opened.city, opened.fitted(), keep_visits=True)
    for seed, policy in ((1, "zero"), (2, "headway-1.0")):
        outcome = world.run_day(demo_cell(seed), BEHAVIOURS[policy])
        counted = asdict(outcome)
        del counted["service_cost"]  # counted since then
        days.update(repr(counted).encode())
        days.update(np.array(world.visits, float).tobytes())
    found = digest(opened.city), network_digest(opened.city), days.hexdigest()
    assert found == PINNED[name]
