"""The stop-visit table on disk."""

from pathlib import Path

import pytest

from evenline.control.visits import read_visits
from evenline.support.errors import InputError


def test_a_broken_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    with pytest.raises(InputError, match=r"visits.parquet: no such file"):
        read_visits(path)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"visits.parquet: not a stop-visit table"):
        read_visits(path)
