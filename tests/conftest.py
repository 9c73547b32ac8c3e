"""Fixtures that tests of several rooms share."""

import pytest

from evenline.city.embedded import embedded_city
from evenline.city.model import City


@pytest.fixture(scope="session")
def town() -> City:
    return embedded_city("town")
