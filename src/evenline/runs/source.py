"""Which of our source files a trial's numbers depend on, and their hashes.

The evaluator is what makes an outcome of a cell; the analyser is what makes a verdict of the
outcomes. A test runs an episode and asserts that every module it loaded is listed here.
"""

import hashlib
from pathlib import Path

import evenline
from evenline.support.files import sha256, to_json

EVALUATOR = (
    *("__init__.py", "support/*.py"),
    *("city/*.py", "control/*.py", "rules/*.py", "policies/*.py"),
    *("worlds/**/*.py", "worlds/calibrations/*.json"),  # some policies ask the fast world
    "runs/*.py",
)
EVERYTHING = ("**/*.py", "worlds/calibrations/*.json")
ANALYSER = ("trial/plan.py", "trial/analyse.py", "trial/intervals.py")


def source_files(patterns: tuple[str, ...]) -> dict[str, str]:
    """The SHA-256 of each of our files that a pattern names, by path inside the package."""
    package = Path(evenline.__file__).parent
    paths = {path for pattern in patterns for path in package.glob(pattern)}
    return {path.relative_to(package).as_posix(): sha256(path) for path in sorted(paths)}


def source_digest(files: dict[str, str]) -> str:
    """One hash for a list of files."""
    return hashlib.sha256(to_json(files).encode()).hexdigest()


def folder_files(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}
