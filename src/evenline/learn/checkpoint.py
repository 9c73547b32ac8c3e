"""Checkpoints: trees of arrays in one safetensors file, with some JSON metadata.

A file is written atomically. It has everything that a run needs to continue to the same bits.
Loading refuses a file whose arrays do not fit the run.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from evenline.support.errors import InputError
from evenline.support.extras import extra
from evenline.support.files import write_bytes

with extra("train"):
    import jax
    import jax.numpy as jnp


def _names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def save_tree(path: Path, tree: Any, notes: dict[str, Any]) -> None:
    """Write a tree of arrays and some notes."""
    arrays = [np.array(leaf) for leaf in jax.tree.leaves(tree)]
    data = save(dict(zip(_names(tree), arrays, strict=True)), {"notes": json.dumps(notes)})
    write_bytes(path, data)


def load_notes(path: Path) -> dict[str, Any]:
    """The notes of a checkpoint."""
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(json.loads((file.metadata() or {})["notes"]))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: not a checkpoint ({error})") from None


def load_tree(path: Path, like: Any) -> Any:
    """Read a tree of the same structure as `like` from a file."""
    leaves, structure = jax.tree.flatten(like)
    try:
        with safe_open(path, framework="numpy") as file:
            arrays_by_name = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a checkpoint ({error})") from None
    arrays = []
    for name, leaf in zip(_names(like), leaves, strict=True):
        if name not in arrays_by_name:
            raise InputError(f"{path} has no {name}; it belongs to another architecture")
        array = arrays_by_name.pop(name)
        if array.shape != np.shape(leaf) or array.dtype != leaf.dtype:
            raise InputError(
                f"{path}: {name} is {array.dtype}{list(array.shape)}, not"
                f" {leaf.dtype}{list(np.shape(leaf))}; it belongs to another architecture"
            )
        arrays.append(array if isinstance(leaf, np.ndarray) else jnp.asarray(array))
    if arrays_by_name:
        raise InputError(f"{path} has an unexpected array {min(arrays_by_name)}")
    return jax.tree.unflatten(structure, arrays)
