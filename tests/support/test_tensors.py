"""Files of tensors: what is a bfloat16 takes half the bytes, and nothing is ever lost."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from evenline.support.errors import InputError
from evenline.support.tensors import read_tensors, tensors_bytes, tensors_of, to_bfloat16

HERE = Path("x.safetensors")
FINITE = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120
)
FLOATS = arrays.arrays(np.float32, arrays.array_shapes(max_dims=2), elements=FINITE)


@given(FLOATS)
def test_rounding_is_that_of_ml_dtypes(array: np.ndarray) -> None:
    expected = array.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(to_bfloat16(array), expected)


@given(st.dictionaries(st.sampled_from("abc"), FLOATS, min_size=1), st.booleans())
def test_tensors_come_back_to_the_bit(tensors: dict[str, np.ndarray], rounded: bool) -> None:
    if rounded:
        tensors = {name: to_bfloat16(tensor) for name, tensor in tensors.items()}
    again = tensors_of(HERE, tensors_bytes(tensors))
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == np.float32 and again[name].tobytes() == tensor.tobytes()


def test_rounded_tensors_take_half_the_bytes_and_say_so_in_the_format(tmp_path: Path) -> None:
    tensors = {"w": to_bfloat16(np.linspace(-1, 1, 4_000, dtype=np.float32).reshape(40, 100))}
    path = tmp_path / "half.safetensors"
    path.write_bytes(tensors_bytes(tensors))
    assert 8_000 < path.stat().st_size < 8_200
    with safetensors.safe_open(path, framework="numpy") as file:  # its own reader agrees
        assert file.get_slice("w").get_dtype() == "BF16"
        assert file.get_slice("w").get_shape() == [40, 100]
    np.testing.assert_array_equal(read_tensors(path)["w"], tensors["w"])


def test_other_tensors_are_kept_as_safetensors_keeps_them() -> None:
    exact = {"w": np.full((2, 3), 0.1, np.float32), "b": np.zeros(3, np.float32)}
    assert tensors_bytes(exact) == safetensors.numpy.save(exact)
    doubles = {"t": np.zeros(3)}
    assert tensors_bytes(doubles) == safetensors.numpy.save(doubles)


@pytest.mark.parametrize(
    "content",
    [b"", b"short", b"\xff" * 40, (9).to_bytes(8, "little") + b'{"a": 12}', tensors_bytes({})[:-2]],
    ids=["empty", "short", "noise", "not a table", "cut"],
)
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.safetensors: cannot be read"):
        tensors_of(HERE, content)
