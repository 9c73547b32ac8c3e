"""The hamlet as a folder of tables, to be read or spoilt."""

from pathlib import Path

import pytest

# Its assertions are the tests' own: where one fails, it shall show the values that differ.
pytest.register_assert_rewrite("hamlet")

from hamlet import write_hamlet  # noqa: E402


@pytest.fixture
def hamlet(tmp_path: Path) -> Path:
    return write_hamlet(tmp_path / "hamlet")
