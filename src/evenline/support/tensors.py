"""Safetensors files of arrays by name.

Float32 arrays are stored as bfloat16, in half the bytes, if that loses nothing: if every value of
every array is a bfloat16. So equal arrays always give equal bytes, and reading returns the arrays
exactly.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from evenline.support.errors import InputError

Tensors = dict[str, npt.NDArray[Any]]


def to_bfloat16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The nearest bfloat16 of finite values (ties to even), as float32."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def tensors_bytes(tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The content of the file of these arrays."""
    # Contiguous copies: the format keeps bytes, not strides.
    kept = {name: np.ascontiguousarray(tensor) for name, tensor in sorted(tensors.items())}
    if kept and all(_is_bfloat16(tensor) for tensor in kept.values()):
        halves = {name: (t.view(np.uint32) >> 16).astype(np.uint16) for name, t in kept.items()}
        return _with_type(save(halves), "U16", "BF16")
    return save(kept)


def tensors_of(path: Path, content: bytes) -> Tensors:
    """The arrays of a file's content; bfloat16 becomes float32."""
    try:
        header, _ = _split(content)
        halves = {name for name, entry in header.items() if entry.get("dtype") == "BF16"}
        tensors = load(_with_type(content, "BF16", "U16") if halves else content)
    except (SafetensorError, AttributeError, KeyError, RecursionError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    return {
        name: (t.astype(np.uint32) << 16).view(np.float32) if name in halves else t
        for name, t in tensors.items()
    }


def read_tensors(path: Path) -> Tensors:
    """The arrays of a file."""
    return tensors_of(path, path.read_bytes())


def _is_bfloat16(tensor: npt.NDArray[Any]) -> bool:
    return tensor.dtype == np.float32 and not (tensor.view(np.uint32) & 0xFFFF).any()


def _split(content: bytes) -> tuple[dict[str, dict[str, Any]], bytes]:
    """What a file says of its tensors, and their data."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    return header, content[8 + size :]


def _with_type(content: bytes, old: str, new: str) -> bytes:
    """The same file with another name for a type of the same width."""
    header, data = _split(content)
    for entry in header.values():
        if entry.get("dtype") == old:
            entry["dtype"] = new
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns its data
    return len(text).to_bytes(8, "little") + text + data
