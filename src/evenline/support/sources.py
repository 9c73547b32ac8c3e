"""The source files of ours that a piece of code depends on (the closure of its imports).

We read imports, including those inside functions, from the text of the files, so nothing has to be
imported. A change outside the closure cannot change a result.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from evenline.support.files import sha256, to_json

PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^[ \t]*(?:from (evenline[\w.]*) import (\([^)]*\)|[^\n]*)|import (evenline[\w.]*))", re.M
)


@cache
def imports_of(path: Path) -> tuple[Path, ...]:
    """The files of ours that a file imports, with their packages."""
    files: dict[Path, None] = {}
    for source, names, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        module = source or plain
        parts = re.findall(r"(\w+)(?:\s+as\s+\w+)?", names)
        for name in (module, *(f"{module}.{part}" for part in parts)):
            files |= dict.fromkeys(_files_of(name))
    return tuple(files)


def _files_of(module: str) -> Iterator[Path]:
    """The file of a module and those of its packages; empty if the module does not exist."""
    parts = module.split(".")[1:]
    for end in range(len(parts) + 1):
        base = PACKAGE.joinpath(*parts[:end])
        if (base / "__init__.py").is_file():
            yield base / "__init__.py"
        elif base.with_suffix(".py").is_file():
            yield base.with_suffix(".py")


def closure(start: str | Path) -> list[Path]:
    """All files of ours that a module or a file depends on, including itself, sorted."""
    todo = list(_files_of(start)) if isinstance(start, str) else [start] * start.is_file()
    files: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in files:
            files.add(path)
            # The package itself only names what it loads on demand; a file that uses a name imports
            # it.
            todo += () if path == PACKAGE / "__init__.py" else imports_of(path)
    return sorted(files)


def package_files() -> list[Path]:
    """All files of the package except the caches of Python and Numba."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file())
    return sorted(path for path in paths if "__pycache__" not in path.parts)


def file_hashes(paths: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of files of ours, by path inside the package."""
    return {path.relative_to(PACKAGE).as_posix(): sha256(path) for path in sorted(paths)}


def digest_of(hashes: dict[str, str]) -> str:
    """One hash for a list of files."""
    return hashlib.sha256(to_json(hashes).encode()).hexdigest()
