"""The user's own code, named on the command line or in a plan: `FILE.py:NAME`, `MODULE:NAME`.

We load only code that the user names, never code that a data file names. The source is hashed, so
that results can say which code made them.
"""

import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from evenline.support.errors import InputError


@dataclass(frozen=True, eq=False)
class Own:
    """An object from the user's code: its name, its file, and the hash of that file."""

    name: str
    thing: Any
    file: Path
    sha256: str


def is_own(source: str) -> bool:
    """Whether a name means the user's own code: it ends in `.py`, or has a colon and a name."""
    place, colon, name = source.partition(":")
    return place.endswith(".py") or bool(colon and name.isidentifier() and place)


def load_own(source: str) -> Own:
    """Load the object that `FILE.py:NAME` or `MODULE:NAME` names; NAME may be left out if it is the
    only public one.
    """
    place, _, name = source.partition(":")
    module = _of_file(Path(place)) if place.endswith(".py") else _of_module(place)
    file = Path(str(module.__file__))
    if not name:
        names = [n for n, v in vars(module).items() if _defined_in(module, n, v)]
        if len(names) != 1:
            raise InputError(f"{source}: name the object to use, as in {source}:NAME")
        name = names[0]
    if not hasattr(module, name):
        raise InputError(f"{place} has no {name!r}; check the name")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Own(name, getattr(module, name), file, digest)


def _defined_in(module: ModuleType, name: str, value: Any) -> bool:
    """Whether a module itself defines something public and callable."""
    home = getattr(getattr(value, "formula", value), "__module__", None)
    return (
        not name.startswith("_")
        and home == module.__name__
        and callable(getattr(value, "formula", value))
    )


def _of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    return _load(path.resolve(), path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _load(path: Path, _changed: int) -> ModuleType:
    """Run a file as a module once, and again only after it has changed."""
    name = f"evenline_own_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        reason = (f"{type(error).__name__}: {error}").splitlines()[0]
        raise InputError(f"{path}: cannot be loaded ({reason})") from error
    return module


def _of_module(name: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except Exception as error:
        reason = (f"{type(error).__name__}: {error}").splitlines()[0]
        raise InputError(f"module {name}: cannot be imported ({reason})") from error
    if getattr(module, "__file__", None) is None:
        raise InputError(f"module {name} has no source file")
    return module
