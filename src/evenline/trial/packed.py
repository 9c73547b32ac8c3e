"""A trial in compact form, for a repository: its registration, one file per finished block, and
what closing it added.

A file of a block is written once and never again; its name has its seeds and its own hash. Tensors
of policies stay out unless asked for, because the registration binds them by hash. A packed trial
can be verified as it is, and unpacked to continue on another machine. Nothing here shows outcomes.
"""

import hashlib
import json
import lzma
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evenline.support.errors import InputError
from evenline.support.files import (
    ScratchFolder,
    folder_files,
    new_folder,
    read_json,
    sha256,
    to_json,
    write_bytes,
)
from evenline.trial.journal import CLOSEOUT, JOURNAL
from evenline.trial.matrix import read_record, record_path, standing
from evenline.trial.records import TRIAL
from evenline.trial.registration import INPUTS, PLAN, Trial, TrialJob, read_trial
from evenline.trial.verify import BOUND, DETACHABLE, STATEMENT, Opinion, expand, is_packed

_Block = tuple[int, int]


@dataclass(frozen=True)
class Packed:
    """What a folder of a packed trial has: files of blocks, and tensors that it lacks."""

    blocks: tuple[Path, ...]
    planned: int
    detached: tuple[str, ...]
    bytes: int


def pack(folder: Path, out: Path, tensors: bool = False) -> Packed:
    """Pack the registration and every finished block of a trial; what is packed already stays.

    Our source is not compared, so a trial of an earlier version can be packed: its records are
    compared with its registration.
    """
    trial = read_trial(folder)
    if out.exists() and (out / TRIAL).is_file() and sha256(out / TRIAL) != trial.sha256:
        raise InputError(f"{out} has another trial; choose another --out")
    present = folder_files(trial.inputs)
    for name, digest in trial.registered.inputs.items():
        if present.get(name) != digest and not (name not in present and DETACHABLE.fullmatch(name)):
            raise InputError(f"{trial.inputs / name} differs from the registered file; restore it")
        if name in present and (tensors or not DETACHABLE.fullmatch(name)):
            _keep(trial.inputs / name, out / INPUTS / name)
    closed = (folder / CLOSEOUT).exists()
    for name in (TRIAL, PLAN, *(() if not closed else (*BOUND, CLOSEOUT, STATEMENT))):
        if name != JOURNAL:
            _keep(folder / name, out / name)
    _extend(folder / JOURNAL, out / JOURNAL)
    for block, jobs in _finished_blocks(trial).items():
        _pack_block(trial, block, jobs, out)
    return _packed_in(out, trial)


def _packed_in(out: Path, trial: Trial) -> Packed:
    """What the folder of a packed trial has."""
    files = [path for path in out.rglob("*") if path.is_file()]
    return Packed(
        blocks=tuple(sorted(out.glob("block-*.xz"))),
        planned=len(trial.plan.blocks),
        detached=tuple(n for n in trial.registered.inputs if not (out / INPUTS / n).is_file()),
        bytes=sum(path.stat().st_size for path in files),
    )


def blocks_done(folder: Path) -> int:
    """How many blocks of a trial are done, packed or not."""
    if is_packed(folder):
        return len(list(folder.glob("block-*.xz")))
    return len(_finished_blocks(read_trial(folder)))


def _keep(source: Path, target: Path) -> None:
    """Copy a file that never changes; refuse to replace another one."""
    content = source.read_bytes()
    if not target.exists():
        write_bytes(target, content)
    elif target.read_bytes() != content:
        raise InputError(f"{target} differs from {source}; a packed file is never replaced")


def _extend(source: Path, target: Path) -> None:
    """Copy the journal, which only grows."""
    before, content = target.read_bytes() if target.exists() else b"", source.read_bytes()
    if not content.startswith(before):
        raise InputError(f"{target} is not the beginning of {source}; a journal only grows")
    if content != before:
        write_bytes(target, content)


def _finished_blocks(trial: Trial) -> dict[_Block, dict[str, TrialJob]]:
    """The jobs of every block whose records all exist."""
    progress = standing(trial)
    open_blocks = {job.block for job in (progress.missing | progress.quarantined).values()}
    blocks: dict[_Block, dict[str, TrialJob]] = {}
    for address, job in progress.done.items():
        if job.block not in open_blocks:
            blocks.setdefault(job.block, {})[address] = job
    return blocks


def _pack_block(trial: Trial, block: _Block, jobs: dict[str, TrialJob], out: Path) -> None:
    """Write the records of a block as one file, or check that the existing file has them."""
    lines = []
    for address, job in jobs.items():
        read_record(trial, address, job)
        path = record_path(trial, address)
        value = read_json(path)
        if path.read_text() != to_json(value):
            raise InputError(f"{path} is not in the form in which it was written")
        lines.append(json.dumps(value, sort_keys=True, separators=(",", ":")))
    content = "".join(f"{line}\n" for line in lines).encode()
    name = "block-{}-{}".format(*block)
    existing = list(out.glob(f"{name}.*"))
    for path in existing:
        if lzma.decompress(path.read_bytes(), lzma.FORMAT_XZ) != content:
            raise InputError(f"{path} differs from the records; a packed block is never replaced")
    if not existing:
        small = lzma.compress(content, lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
        digest = hashlib.sha256(small).hexdigest()[:16]
        write_bytes(out / f"{name}.{digest}.jsonl.xz", small)
        os.chmod(out / f"{name}.{digest}.jsonl.xz", 0o444)


# -- unpacking -------------------------------------------------------------------------------------


def unpack(packed: Path, folder: Path, tensors: Iterable[Path] = ()) -> tuple[Trial, list[str]]:
    """Make a trial's folder from a packed one; detached tensors are found by hash in `tensors`.

    Returns the trial and the tensors that were not found. Without them it cannot continue.
    """
    if folder.exists():
        raise InputError(f"{folder} already exists; unpack a trial into a new folder")
    if not (packed / TRIAL).is_file():
        raise InputError(f"{packed} has no {TRIAL}; name the folder of a packed trial")
    with new_folder(folder) as aside:
        _expand(packed, aside)
        trial = read_trial(aside)
        missing = {
            name: digest
            for name, digest in trial.registered.inputs.items()
            if not (aside / INPUTS / name).is_file()
        }
        places = {path for place in tensors for path in place.rglob("*.safetensors")}
        known = {sha256(path): path for path in sorted(places)} if missing else {}
        for name, digest in missing.items():
            if digest in known:
                (aside / INPUTS / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(known[digest], aside / INPUTS / name)
        for address, job in standing(trial).done.items():
            read_record(trial, address, job)
    return read_trial(folder), [name for name, digest in missing.items() if digest not in known]


def _expand(packed: Path, folder: Path) -> None:
    opinion = Opinion()
    expand(packed, folder, opinion)
    for problem in opinion.problems:
        raise InputError(f"{packed}: {problem}")


@contextmanager
def unpacked(folder: Path) -> Iterator[Path]:
    """A trial's folder with its records: the folder itself, or a temporary unpacked copy."""
    if not is_packed(folder):
        yield folder
        return
    with ScratchFolder() as scratch:
        target = Path(scratch) / "trial"
        target.mkdir()
        _expand(folder, target)
        yield target
