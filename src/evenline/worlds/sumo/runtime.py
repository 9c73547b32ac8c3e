"""Versions of SUMO: the one installed with Evenline, and others in their own folders.

A process can load one libsumo, so another version needs another process: `runtime_environment`
returns the environment in which a worker finds that version first. Every result records the version
that SUMO itself reports.
"""

import importlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from evenline.support.cache import cached_folder
from evenline.support.errors import InputError
from evenline.support.files import LISTING

DEFAULT_VERSION = "1.27.1"
_PACKAGES = ("eclipse-sumo", "libsumo", "traci", "sumolib", "sumo-data")
# A day in SUMO uses about 300 MB of small objects. It runs faster with large pages that are
# allocated in big steps and never returned, and with more than seven freed objects kept per size
# (docs/performance.md). Systems other than Linux ignore this.
_MEMORY = (
    "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:"
    "glibc.malloc.trim_threshold=2000000000:glibc.malloc.mmap_threshold=2000000000:"
    "glibc.malloc.tcache_count=4000:glibc.malloc.tcache_max=8192"
)


def runtimes_folder() -> Path:
    """The folder of other SUMO versions, with one folder for each."""
    named = os.environ.get("EVENLINE_RUNTIMES")
    return Path(named) if named else Path.home() / ".local" / "share" / "evenline" / "runtimes"


@cache
def libsumo() -> ModuleType:
    """The libsumo of this process."""
    # Without this, libsumo prints at every import that it expects another version of pyarrow.
    os.environ.setdefault("LIBSUMO_AS_TRACI", "quiet")
    try:
        return importlib.import_module("libsumo")
    except ImportError as error:
        raise InputError(
            f"SUMO is not installed here ({error}); install it with: pip install evenline"
        ) from None


@cache
def libsumo_functions() -> ModuleType:
    """libsumo's compiled functions, such as `vehicle_getPersonNumber`, for frequent calls.

    The Python methods of the same names only forward the call, which doubles its time.
    """
    libsumo()
    return importlib.import_module("libsumo._libsumo")


@cache
def runtime_version() -> str:
    """The version that SUMO reports in this process, such as 1.27.1."""
    reported = str(libsumo().simulation.getVersion()[1])
    return reported.removeprefix("SUMO ").removeprefix("v").replace("_", ".").strip()


def binary(name: str) -> str:
    """The path of a SUMO program (`sumo`, `netconvert`) next to this process's libsumo."""
    try:
        home = Path(importlib.import_module("sumo").SUMO_HOME)
    except ImportError:
        raise InputError("SUMO is not installed; install it with: pip install evenline") from None
    return str(home / "bin" / name)


def runtime_environment(version: str | None) -> dict[str, str]:
    """The environment of a worker process that runs a SUMO version."""
    environment = {"GLIBC_TUNABLES": _MEMORY, **os.environ}
    if version is None or version == installed_version():
        return environment
    folder = runtimes_folder() / version
    if not folder.is_dir():
        raise InputError(
            f"SUMO {version} is not installed; install it with: evenline sumo {version}"
        )
    install_runtime(version)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(folder) + (os.pathsep + path if path else "")
    return environment


@cache
def installed_version() -> str | None:
    """The version of the libsumo package in our own environment, without loading it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("libsumo")
    except PackageNotFoundError:
        return None


def install_runtime(version: str) -> Path:
    """Install a SUMO version into its own folder, or again if the folder is damaged."""
    folder = runtimes_folder() / version
    _check_runtime(folder, _packages(version))
    return folder


@cache
def _check_runtime(folder: Path, packages: tuple[str, ...]) -> None:
    """Install a runtime unless its files are as they were installed; hashing them takes a second,
    so a process does it once.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LISTING).exists():
        raise InputError(
            f"{folder} was not installed by Evenline, or by an old version; remove it and run: "
            f"evenline sumo {folder.name}"
        )

    def fill(aside: Path) -> None:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--target", str(aside)),
            *(f"{package}=={folder.name}" for package in packages),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError(f"SUMO {folder.name} could not be installed: {last}")

    cached_folder(folder, fill)


def _packages(version: str) -> tuple[str, ...]:
    """`sumo-data` is a separate package since 1.26; earlier, its files are in eclipse-sumo."""
    parts = version.split(".")
    if not all(part.isdigit() for part in parts) or len(parts) != 3:
        raise InputError(f"{version!r} is not a SUMO version; write it like {DEFAULT_VERSION}")
    old = (int(parts[0]), int(parts[1])) < (1, 26)
    return tuple(package for package in _PACKAGES if not (old and package == "sumo-data"))
