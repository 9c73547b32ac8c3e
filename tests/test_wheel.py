"""The wheel stands alone: its commands work outside the checkout.

It is built from a copy of the source and installed into an empty folder. Only the dependencies are
those of the test environment.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/evenline", source / "src/evenline", ignore=without_caches)
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", source, source)
    subprocess.run([*PIP, *build], check=True)
    return next(source.glob("evenline-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    subprocess.run([*PIP, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Run Python in a folder, with the wheel in front of everything else; what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    package = ROOT / "src" / "evenline"
    ours = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name} == ours


def test_the_installed_package_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    found = run(installed, tmp_path, "-c", "import evenline; print(evenline.__file__)")
    assert Path(found.strip()) == installed / "evenline" / "__init__.py"


def test_the_fast_world_opens_with_its_calibration(installed: Path, tmp_path: Path) -> None:
    """A day of it would take twenty seconds of compilation and prove no more."""
    code = "import evenline as el; print(el.open_city('city').fast_world().city.name)"
    assert run(installed, tmp_path, "-c", code) == "city\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("study run town --dry-run", "study town in results/study-town"),
        ("study status town", "to do"),
        ("study run city --dry-run", "reuse = 'data/replay-city': not found"),
        ("study plan town", 'name = "town"'),
        ("trial register town-trial", "60 jobs"),
        ("policy show zero", '"rule": "zero"'),
        ("city build town --out c", "c"),
        ("simulate", "generalized time"),
    ],
)
def test_a_command_works_in_an_empty_folder(
    installed: Path, tmp_path: Path, command: str, words: str
) -> None:
    assert words in run(installed, tmp_path, "-m", "evenline", *command.split())
