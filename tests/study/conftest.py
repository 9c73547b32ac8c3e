"""What tests of the study share."""

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(elsewhere: None) -> None:
    """What other trials have used is looked for in the working directory too."""
