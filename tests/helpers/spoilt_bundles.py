"""Bundles changed after they were saved."""

import json
from pathlib import Path
from typing import Any

from evenline.policies.bundle import HASHES, TENSORS
from evenline.policies.names import POLICY
from evenline.support.files import sha256, to_json


def rehash(folder: Path) -> None:
    names = [name for name in (POLICY, TENSORS) if (folder / name).exists()]
    (folder / HASHES).write_text(to_json({name: sha256(folder / name) for name in names}))


def rewrite(folder: Path, change: dict[str, Any], drop: str | None = None) -> None:
    """Change a bundle's specification, hashes and all, as its author could."""
    spec = json.loads((folder / POLICY).read_text()) | change
    spec.pop(drop, None)
    (folder / POLICY).write_text(to_json(spec))
    rehash(folder)
