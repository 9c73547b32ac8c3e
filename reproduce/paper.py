"""The numbers that the paper prints, from `paper.toml`, for every comparison with the paper."""

from functools import cache
from pathlib import Path
from typing import Any

from evenline.support.records import read_toml


@cache
def paper() -> dict[str, Any]:
    """The numbers by table; do not change them."""
    return read_toml(Path(__file__).with_suffix(".toml"))
