"""The learning commands refuse bad input in one line and write nothing."""

from pathlib import Path

import pytest

from door import Door

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ("1-99999999999", "seeds 1-99999999999: give at most 1000"),
        (f"{2**32}", f"seed {2**32}: must be from 0 to 4294967295"),
    ],
)
def test_training_needs_seeds_that_it_can_use(
    evenline: Door, tmp_path: Path, seeds: str, said: str
) -> None:
    evenline("train", "--seeds", seeds).refused(said)
    assert list(tmp_path.iterdir()) == []
