"""Fixtures of the SUMO world. libsumo is one a process, so a test's worlds are closed after it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from evenline.city.model import City
from evenline.worlds.sumo.world import SumoWorld

# Its assertions are the tests' own: where one fails, it shall show the values that differ.
pytest.register_assert_rewrite("side_by_side")

OpenWorld = Callable[..., SumoWorld]


@pytest.fixture
def open_world() -> Iterator[OpenWorld]:
    """Makes SUMO worlds; whatever becomes of the test, they are closed."""
    with ExitStack() as worlds:

        def make(city: City, **options: Any) -> SumoWorld:
            return worlds.enter_context(SumoWorld(city, **options))

        yield make
