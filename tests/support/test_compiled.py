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
from evenline.support.compiled import (
    COMPILING,
    clear_rows,
    compiled,
    copy_rows,
    inlined,
    lowest_bit,
)

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


FOUR = "from evenline.support.compiled import compiled\n" + "".join(
    f"@compiled\ndef f{n}(x):\n    return x + {n}\n" for n in range(5)
)


def test_a_damaged_file_of_the_cache_is_compiled_again_and_a_line_says_so(tmp_path: Path) -> None:
    """Numba ends with UnpicklingError, or runs another function's code without a word."""
    (tmp_path / "four.py").write_text(FOUR)

    def run() -> tuple[str, list[str]]:
        code = "import four; print([getattr(four, f'f{n}')(10) for n in range(5)])"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "c")},
            capture_output=True,
            text=True,
        )
        return done.stdout.strip(), done.stderr.splitlines()

    right = "[10, 11, 12, 13, 14]"
    assert run() == (right, []) and run() == (right, [])
    empty, half, foreign, other, folder = sorted((tmp_path / "c").rglob("*.nbc"))
    empty.write_bytes(b"")
    half.write_bytes(half.read_bytes()[:1000])
    foreign.write_bytes(b"x" * 1000)
    shutil.copy(folder, other)
    folder.unlink()
    folder.mkdir()
    again = "is not what was put there; it is compiled again"
    output = [f"evenline: {path} {again}" for path in (empty, half, foreign, other)]
    never = f"evenline: {folder} cannot be written (Is a directory); it will be compiled each time"
    assert run() == (right, [*output, never])
    assert run() == (right, [never])


def test_the_user_is_told_of_a_long_compilation_and_of_no_short_one(tmp_path: Path) -> None:
    (tmp_path / "four.py").write_text(FOUR)

    def output(patience_s: float) -> str:
        code = (
            "import time; from evenline.support import compiled as c; "
            f"c.PATIENCE_S = {patience_s}; import four; four.f0(1); four.f1(1); time.sleep(0.1)"
        )
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "c")},
            capture_output=True,
            text=True,
        ).stderr

    assert output(0.0) == f"evenline: {COMPILING}\n"
    assert output(0.0) == "", "nothing is compiled"
    shutil.rmtree(tmp_path / "c")
    assert output(60.0) == ""


@inlined
def twice(number: float) -> float:
    return 2.0 * number


@compiled
def four_times(number: float) -> float:
    return twice(twice(number))


def test_a_helper_has_no_code_for_python_which_takes_long_to_compile() -> None:
    assert four_times(10.0) == 40.0
    with pytest.raises(TypeError, match="is inlined"):
        twice(10.0)
    (helper,) = twice.inspect_llvm().values()
    (caller,) = four_times.inspect_llvm().values()
    assert "cpython" not in helper and "cfunc" not in helper
    assert "cpython" in caller and "cfunc" not in caller


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
