"""The seal of a replay: a manifest with the hash of every episode, checked at every opening."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import evenline
from evenline.city.demand import Cell
from evenline.replay.episode import read_metadata, writing
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256, to_json, write_text

MANIFEST = "manifest.json"
PLAN = "plan.json"
FORMAT = "evenline-replay-1"


def episode_path(folder: Path, behaviour: str, cell: Cell) -> Path:
    """Where an episode lies in a store."""
    return folder / "episodes" / behaviour / f"{cell.name}.parquet"


def seal(folder: Path, episodes: Sequence[Path], calibration: str | None) -> None:
    """Write the manifest and make the files read-only; `calibration` is the file's hash, if any."""
    files: dict[str, Any] = {}
    versions = set()
    for path in episodes:
        versions.add(read_metadata(path)["sumo"])
        if len(versions) > 1:
            raise InputError(f"{path}: made by another SUMO than the rest: {versions}")
        files[str(path.relative_to(folder))] = sha256(path)
        os.chmod(path, 0o444)
    manifest = {
        "format": FORMAT,
        "plan": read_json(folder / PLAN),
        "calibration": calibration,
        "sumo": versions.pop(),
        "evenline": evenline.__version__,
        "files": files,
    }
    with writing(folder / MANIFEST):
        write_text(folder / MANIFEST, to_json(manifest))
    os.chmod(folder / MANIFEST, 0o444)


def check_sealed(folder: Path) -> dict[str, Any]:
    """The manifest, once every file it names has been found whole and unchanged."""
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{folder / MANIFEST}: format is not {FORMAT!r}")
    fitted = manifest.get("calibration")  # older stores do not have the key
    if fitted is not None and not re.fullmatch("[0-9a-f]{64}", str(fitted)):
        raise InputError(f"{folder / MANIFEST}: calibration is neither a SHA-256 nor null")
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path}: missing, though the manifest names it")
        if sha256(path) != expected:
            raise InputError(f"{path}: changed since it was sealed (SHA-256 differs)")
        metadata = read_metadata(path)
        cell = Cell(**metadata["cell"])
        if (metadata["policy"]["name"], f"{cell.name}.parquet") != (path.parent.name, path.name):
            raise InputError(f"{path}: holds {metadata['policy']['name']} {cell.name}")
        if metadata["city"] != manifest["plan"]["city"]:
            raise InputError(f"{path}: was collected in another city than the manifest says")
    strangers = {p.relative_to(folder).as_posix() for p in folder.rglob("*.parquet")}
    if extra := sorted(strangers - set(manifest["files"])):
        raise InputError(f"{folder / extra[0]}: not in the manifest")
    return manifest
