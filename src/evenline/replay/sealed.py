"""The seal of a replay: a manifest with the hash of every episode, checked on every opening."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.demand import Cell
from evenline.replay.episode import RecordedRule, read_metadata, writing
from evenline.support.errors import InputError
from evenline.support.files import sha256
from evenline.support.records import Hashes, Line, Record, Sha256, Word, read_record, write_record

MANIFEST = "manifest.json"
PLAN = "plan.json"
FORMAT = "evenline-replay-1"


class ReplayPlan(Record):
    """The plan of a replay: every behaviour, with its constants, in every block."""

    format: Word
    city: Sha256
    city_name: Line
    blocks: Annotated[int, Meta(ge=1, le=PURPOSES["replay"].blocks)]
    behaviours: tuple[RecordedRule, ...]


class Manifest(Record, kw_only=True):
    """The manifest; `calibration` is the hash of the city's calibration at that time, if any."""

    format: Word
    plan: ReplayPlan
    calibration: Sha256 | None = None  # older stores do not have it
    sumo: Line
    evenline: Word
    files: Hashes


def episode_path(folder: Path, behaviour: str, cell: Cell) -> Path:
    """The path of an episode in a store."""
    return folder / "episodes" / behaviour / f"{cell.name}.parquet"


def seal(folder: Path, episodes: Sequence[Path], calibration: str | None) -> None:
    """Write the manifest and make the files read-only; `calibration` is the file's hash, if any."""
    files: dict[str, str] = {}
    versions = set()
    for path in episodes:
        versions.add(read_metadata(path).sumo)
        if len(versions) > 1:
            raise InputError(
                f"{path} was made by another version of SUMO than the other files: {versions}"
            )
        files[str(path.relative_to(folder))] = sha256(path)
        os.chmod(path, 0o444)
    manifest = Manifest(
        format=FORMAT,
        plan=read_record(folder / PLAN, ReplayPlan, FORMAT),
        calibration=calibration,
        sumo=versions.pop(),
        evenline=evenline.__version__,
        files=files,
    )
    with writing(folder / MANIFEST):
        write_record(folder / MANIFEST, manifest)
    os.chmod(folder / MANIFEST, 0o444)


def check_sealed(folder: Path) -> Manifest:
    """Read the manifest and check that every file it lists exists unchanged."""
    manifest = read_record(folder / MANIFEST, Manifest, FORMAT)
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path} is missing, but the manifest lists it")
        if sha256(path) != expected:
            raise InputError(f"{path} has changed since it was sealed (SHA-256 differs)")
        metadata = read_metadata(path)
        if (metadata.behaviour, f"{metadata.cell.name}.parquet") != (path.parent.name, path.name):
            raise InputError(
                f"{path} contains {metadata.behaviour} {metadata.cell.name}; files were swapped"
            )
        if metadata.city != manifest.plan.city:
            raise InputError(f"{path} was collected in another city than the manifest states")
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*.parquet")}
    if extra := sorted(present - set(manifest.files)):
        raise InputError(f"{folder / extra[0]} is not in the manifest; move it away")
    return manifest
