"""Close a trial: hash source, plan, cells, methods, records and both analyses under one Merkle
root.

A leaf is a line of `sha256sum` (hash, two spaces, path), leaves are in order of path, and the tree
is that of RFC 6962. With the root, anyone can check later whether anything was changed. The same
facts are written as an in-toto statement with SLSA provenance.
"""

import hashlib
import os
import re
from pathlib import Path

import evenline
from evenline.support.errors import InputError
from evenline.support.files import folder_files, read_json, sha256, to_json, write_text
from evenline.support.records import read_record, write_record
from evenline.support.sources import file_hashes, package_files
from evenline.trial.evidence import ANALYSIS, analysis_of, read_analysis
from evenline.trial.journal import CLOSEOUT, journal, now
from evenline.trial.matrix import MATRIX, QUARANTINE, RECORDS, read_matrix
from evenline.trial.records import CLOSEOUT_FORMAT, TRIAL, Closeout
from evenline.trial.registration import INPUTS, Trial, notices, open_trial
from evenline.trial.verify import BOUND, STATEMENT, VERIFICATION, strangers, verify

_NAMES = "|".join(map(re.escape, (*BOUND, CLOSEOUT, STATEMENT)))
_LEFT_ASIDE = re.compile(rf"\.({_NAMES})\.[a-z0-9_]{{8}}")  # as temporary files are named


def merkle_root(leaves: list[bytes]) -> str:
    """The root of RFC 6962: leaves and nodes have different prefixes, so one cannot pass as the
    other.
    """
    return _subtree([hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves]).hex()


def _subtree(hashes: list[bytes]) -> bytes:
    if not hashes:
        return hashlib.sha256().digest()
    if len(hashes) == 1:
        return hashes[0]
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _subtree(hashes[:half]) + _subtree(hashes[half:])).digest()


def root_of(files: dict[str, str]) -> str:
    """The Merkle root over files by path."""
    return merkle_root([f"{files[path]}  {path}\n".encode() for path in sorted(files)])


def closeout(folder: Path) -> Closeout:
    """Close a trial: check everything again, write the manifest, make the folder read-only."""
    trial = open_trial(folder)
    if (folder / CLOSEOUT).exists():
        _refuse(verify(folder).problems)
        return read_record(folder / CLOSEOUT, Closeout, CLOSEOUT_FORMAT)
    _remove_left_aside(folder)
    _check_analyses(trial)
    files = _bound_files(folder)
    for name in strangers(folder, files):
        raise InputError(f"{folder / name} is no part of the trial; move it to another folder")
    manifest = Closeout(
        format=CLOSEOUT_FORMAT,
        trial=trial.sha256,
        name=trial.registered.name,
        closed_at=now(),
        evenline=evenline.__version__,
        confirmed=read_analysis(folder).confirmed,
        results_sha256=read_matrix(trial).results_sha256,
        notices=tuple(notices(folder)),
        files=files,
        merkle_root=root_of(files),
    )
    write_text(folder / STATEMENT, to_json(statement(trial, manifest)))
    write_record(folder / CLOSEOUT, manifest)
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):  # locks are not evidence
            os.chmod(path, 0o444)
    return manifest


def _remove_left_aside(folder: Path) -> None:
    """Remove what killed processes have left: temporary files, and the statement of a closeout
    that did not finish.
    """
    for path in folder.iterdir():
        ours = path.name == STATEMENT or _LEFT_ASIDE.fullmatch(path.name)
        if ours and path.is_file():
            path.unlink()


def _check_analyses(trial: Trial) -> None:
    """Check that both analyses exist, follow from the records, and agree."""
    for name, command in ((ANALYSIS, "analyse"), (VERIFICATION, "verify")):
        if not (trial.folder / name).exists():
            raise InputError(f"{trial.folder} has no {name} yet; run: evenline trial {command}")
    if read_analysis(trial.folder) != analysis_of(trial):
        raise InputError(
            f"{trial.folder / ANALYSIS} disagrees with the records; run: evenline trial analyse"
        )
    again = verify(trial.folder)
    _refuse(again.problems)
    if read_json(trial.folder / VERIFICATION) != again.report:
        raise InputError(
            f"{trial.folder / VERIFICATION} is out of date; run: evenline trial verify"
        )


def _refuse(problems: list[str]) -> None:
    if problems:
        raise InputError(f"{problems[0]} (of {len(problems)} problems; see: evenline trial verify)")


def _bound_files(folder: Path) -> dict[str, str]:
    """Every file of the trial, by path; our current source is under `source/`."""
    files = {name: sha256(folder / name) for name in BOUND}
    for part in (INPUTS, RECORDS, QUARANTINE):
        files |= {f"{part}/{name}": digest for name, digest in folder_files(folder / part).items()}
    return files | {
        f"source/{name}": digest for name, digest in file_hashes(package_files()).items()
    }


def statement(trial: Trial, manifest: Closeout) -> dict[str, object]:
    """The provenance as an in-toto Statement v1 with a SLSA v1 predicate."""
    registered, files = trial.registered, manifest.files
    plan = read_json(trial.folder / TRIAL)["plan"]  # as registered, without later defaults
    subjects = (MATRIX, ANALYSIS, VERIFICATION)
    inputs = {n: h for n, h in files.items() if n.startswith((f"{INPUTS}/", "source/"))}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            *({"name": name, "digest": {"sha256": files[name]}} for name in subjects),
            {"name": "merkle-root", "digest": {"sha256": manifest.merkle_root}},
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:evenline:trial:1",
                "externalParameters": {"plan": plan, "trial": trial.sha256},
                "internalParameters": {"sumo": registered.sumo, "jobs": registered.jobs},
                "resolvedDependencies": [
                    {"name": name, "digest": {"sha256": digest}} for name, digest in inputs.items()
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:evenline", "version": {"evenline": evenline.__version__}},
                "metadata": {
                    "invocationId": trial.sha256,
                    "startedOn": journal(trial.folder)[0].at,
                    "finishedOn": manifest.closed_at,
                },
            },
        },
    }
