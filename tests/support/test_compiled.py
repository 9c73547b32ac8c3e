"""The cache of compiled code never outlives the sources it was made from; our own instructions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenline
from evenline.support.compiled import clear_rows, compiled, copy_rows, lowest_bit

HELPER = "from evenline.support.compiled import inlined\n@inlined\ndef helper():\n    return {}\n"
CALLER = (
    "from evenline.support.compiled import compiled\nfrom evenline.helper import helper\n"
    "@compiled\ndef caller():\n    return helper() + {}\n"
)


def run_caller(root: Path) -> str:
    """What a fresh process gets from a compiled function that inlines one of another file."""
    return subprocess.run(
        [sys.executable, "-c", "from evenline.caller import caller; print(caller())"],
        env={**os.environ, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(root / "cache")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_a_changed_helper_is_compiled_anew_into_callers_of_other_files(tmp_path: Path) -> None:
    package, ours = tmp_path / "evenline", Path(evenline.__file__).parent
    shutil.copytree(ours / "support", package / "support")
    shutil.copy(ours / "__init__.py", package)
    (package / "caller.py").write_text(CALLER.format(0))
    (package / "helper.py").write_text(HELPER.format(41))
    assert run_caller(tmp_path) == "41"
    (package / "helper.py").write_text(HELPER.format(1042))
    assert run_caller(tmp_path) == "1042"
    (package / "caller.py").write_text(CALLER.format(1000))
    assert run_caller(tmp_path) == "2042"


@compiled
def lowest(bits: np.uint64) -> int:
    return lowest_bit(bits)


def test_the_lowest_bit_of_every_word_is_found() -> None:
    for bit in range(64):
        for above in (0, 1, 2**64 - 1):
            assert lowest(np.uint64((1 << bit) | (above << (bit + 1)) % 2**64)) == bit


@compiled
def copy(to: np.ndarray, source: np.ndarray, low: int, high: int) -> None:
    copy_rows(to, source, low, high)


@compiled
def clear(table: np.ndarray) -> None:
    clear_rows(table)


@pytest.mark.parametrize("form", [(7,), (7, 3)])
@pytest.mark.parametrize("kind", ["i2", "f8", [("a", "i4"), ("b", "f8", 2)]])
def test_rows_are_copied_and_cleared_and_no_others(form: tuple[int, ...], kind: Any) -> None:
    room = np.zeros((3, *form), np.dtype(kind))
    room.view(np.uint8)[:] = 1
    source = np.zeros(form, room.dtype)
    source.view(np.uint8)[:] = 2
    expected = room.copy()
    expected[1, 2:5] = source[2:5]
    copy(room[1], source, 2, 5)
    copy(room[1], source, 3, 3)
    assert np.array_equal(room, expected)
    clear(room[1])
    expected[1] = np.zeros_like(source)
    assert np.array_equal(room, expected)
