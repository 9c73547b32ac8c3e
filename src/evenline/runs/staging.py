"""Copy the inputs of jobs into one self-contained folder, for a registration or a cluster.

City folders, calibrations, bundles and the files of the user's own rules and worlds are copied
under their hash; built-in names stay names.
"""

import ast
import importlib.util
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from evenline.city.embedded import PLANS
from evenline.policies.bundle import policy_digest, read_policy
from evenline.policies.names import parse_source
from evenline.runs.job import Job
from evenline.support.errors import InputError
from evenline.support.files import sha256
from evenline.support.own import is_own, load_own
from evenline.worlds.open import WORLDS


def stage(jobs: Sequence[Job], folder: Path) -> list[Job]:
    """Copy the inputs of jobs into a folder and return the jobs with paths relative to it."""
    return [
        replace(
            job,
            city=stage_city(job.city, folder),
            policy=stage_policy(job.policy, folder),
            world=job.world if job.world in WORLDS else stage_own(job.world, folder),
            calibration=None
            if job.calibration is None
            else _copy(Path(job.calibration), folder, "calibrations"),
        )
        for job in jobs
    ]


def located(job: Job, folder: Path) -> Job:
    """A job with the paths that are relative to a folder as paths from here."""
    if folder == Path():
        return job

    def here(source: str) -> str:
        return str(folder / source) if (folder / source.partition(":")[0]).exists() else source

    return replace(job, city=here(job.city), policy=here(job.policy), world=here(job.world))


def stage_city(source: str, folder: Path) -> str:
    """Copy a city folder under the hash of its manifest; an embedded city keeps its name."""
    if source in PLANS:
        return source
    path = f"cities/{sha256(Path(source) / 'manifest.json')[:16]}"
    if not (folder / path).exists():
        shutil.copytree(source, folder / path)
    return path


def stage_policy(source: str, folder: Path) -> str:
    """Copy a bundle or the file of the user's rule; a built-in policy keeps its name."""
    if (Path(source) / "policy.json").is_file():
        path = f"policies/{policy_digest(source)[:16]}"
        if not (folder / path).exists():
            shutil.copytree(source, folder / path)
        return path
    place = parse_source(source).place
    if not is_own(place):
        return source
    copied = stage_own(place, folder)
    if policy_digest(read_policy(source)) != policy_digest(
        read_policy(str(folder / copied) + source.removeprefix(place))
    ):
        raise InputError(
            f"{source} is not the same rule after copying; put the whole rule into one file"
        )
    return copied + source.removeprefix(place)


def stage_own(source: str, folder: Path) -> str:
    """Copy the file of the user's own code under its hash; return the path and the name inside
    it.
    """
    own = load_own(source)
    for name in sorted(_imported(own.file)):
        if not _is_installed(name):
            raise InputError(
                f"{own.file} imports {name}, which is not an installed package; code that is "
                "copied must be in one file"
            )
    return f"{_copy(own.file, folder, 'own')}:{own.name}"


def _imported(path: Path) -> set[str]:
    """The packages that a file imports; a relative import is a package that does not exist."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0] if node.level == 0 else ".")
    return found


def _is_installed(name: str) -> bool:
    """Whether a package comes with Python or is installed; not a file beside the user's own."""
    if name == "evenline" or name in sys.stdlib_module_names:
        return True
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    homes = [Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")]
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    return origin is not None and any(origin.is_relative_to(home) for home in homes)


def _copy(path: Path, folder: Path, kind: str) -> str:
    name = f"{kind}/{sha256(path)[:16]}{path.suffix}"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / name)
    return name
