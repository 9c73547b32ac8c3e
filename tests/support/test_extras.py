"""A plain installation does all but what needs an extra, and then names the extra in one line."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import evenline
from evenline.support.compiled import COMPILING

ROOT, PACKAGE = Path(__file__).parents[2], Path(evenline.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DONE_WITHOUT = {"tensorboardX"}  # a second log
PACKAGES = {
    "train": ("jax", "optax"),
    "onnx": ("onnx", "onnx_ir", "onnxscript", "onnxruntime"),
    "import": ("osmium",),
    "live": ("google.transit", "httpx2", "starlette", "uvicorn"),
    "minari": ("minari",),
    "ray": ("ray",),
}


def named(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def installed_with(requirements: list[str]) -> set[str]:
    """All distributions that come with some requirements."""
    reached, todo = set[tuple[str, str]](), [Requirement(text) for text in requirements]
    while todo:
        wanted = todo.pop()
        for part in ("", *wanted.extras):
            key = (named(wanted.name), part)
            if key in reached or wanted.name == "evenline":
                continue
            reached.add(key)
            deeper = [Requirement(text) for text in requires(wanted.name) or []]
            todo += [r for r in deeper if r.marker is None or r.marker.evaluate({"extra": part})]
    return {name for name, _ in reached}


def imports(tree: ast.AST, within: str = "") -> Iterator[tuple[str, str]]:
    """Every import of a source: its first name, and the extra whose block it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], within) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).split(".")[0], within
        elif isinstance(node, ast.With) and "extra(" in (asked := ast.unparse(node.items[0])):
            yield from imports(node, asked.split("'")[1])
        else:
            yield from imports(node, within)


def test_what_a_plain_installation_lacks_is_imported_only_in_the_block_of_its_extra() -> None:
    plain = installed_with(PROJECT["dependencies"])
    with_extra = {name: plain | installed_with(EXTRAS[name]) for name in PACKAGES}
    homes = {
        module: {named(name) for name in names}
        for module, names in packages_distributions().items()
    }
    faults = []
    for path in PACKAGE.rglob("*.py"):
        for module, within in imports(ast.parse(path.read_text())):
            if module in {*sys.stdlib_module_names, "evenline", "sumo", *DONE_WITHOUT}:
                continue
            if not homes[module] & (with_extra[within] if within else plain):
                faults.append(f"{path.name}: {module} in extra {within!r}")
    assert faults == []
    assert not {"jax", "optax", "ray", "onnx"} & plain


def run_without(
    hidden: tuple[str, ...], code: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python where some packages are not installed."""
    hide = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == gone or name.startswith(gone + ".") for gone in {hidden!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""
    return subprocess.run(
        [sys.executable, "-c", hide + code],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


COMMAND = "sys.argv = {argv!r}\nfrom evenline.cli.main import main\nmain()"
REFUSED = """
from evenline.support.errors import InputError
try:
    {door}
except InputError as error:
    sys.exit(f"evenline: {{error}}")
"""
PYTHON = {  # the doors that a command reaches only with data
    "import": "from evenline.importing.maps import _osmium; _osmium()",
    "live": "from evenline.live import feed, serve, server; feed.bindings(); "
    "serve.server_of(None, 'localhost', 1)",
    "minari": "from evenline.replay.export import export_minari; export_minari(None, 'a/b', None)",
}
COMMANDS = {
    "train": "train --city town",
    "onnx": "policy export zero --onnx x.onnx",
    "ray": "compare --executor ray --blocks 1",
}


@pytest.mark.parametrize(
    ("extra", "package"), [(name, package) for name in PACKAGES for package in PACKAGES[name]]
)
def test_a_missing_package_is_one_line_with_the_command(
    extra: str, package: str, tmp_path: Path
) -> None:
    if extra in PYTHON:
        code = REFUSED.format(door=PYTHON[extra])
    else:
        code = COMMAND.format(argv=["evenline", *COMMANDS[extra].split()])
    ended = run_without((package,), code, tmp_path)
    assert ended.returncode == (1 if extra in PYTHON else 2)
    lines = [line for line in ended.stderr.splitlines() if COMPILING not in line]  # a busy machine
    assert lines == [
        f"evenline: {package.split('.')[0]} is not installed; "
        f"install it with: pip install 'evenline[{extra}]'"
    ]
    assert not list(tmp_path.iterdir()), "refused before anything is written"


def test_all_else_works_without_any_extra(tmp_path: Path) -> None:
    every = tuple(package for packages in PACKAGES.values() for package in packages)
    code = (
        "from evenline.checks import check_city, check_learner, check_policy, check_world\n"
        "from evenline.experiments import compare, train, whatif\n"
    )
    for command in ("study status city", "policy check zero"):
        ended = run_without(
            every, code + COMMAND.format(argv=["evenline", *command.split()]), tmp_path
        )
        assert ended.returncode == 0, ended.stderr


def test_a_study_that_trains_is_refused_before_it_collects_days(tmp_path: Path) -> None:
    code = COMMAND.format(argv=["evenline", "study", "run", "town-paper", "--out", "mine"])
    ended = run_without(("jax",), code, tmp_path)
    assert ended.returncode == 2 and "pip install 'evenline[train]'" in ended.stderr
    assert not (tmp_path / "mine" / "replay").exists()


def test_the_readme_lists_every_extra_with_its_packages() -> None:
    text = (ROOT / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE))
    listed = {name: set(re.findall(r"`([\w-]+)`", packages)) for name, packages in rows.items()}
    assert listed == {
        name: {Requirement(requirement).name for requirement in needed} - {"evenline"}
        for name, needed in EXTRAS.items()
        if name != "dev"
    }
    assert {Requirement(requirement) for requirement in EXTRAS["dev"]} >= {
        Requirement(f"evenline[{','.join(sorted({*EXTRAS} - {'dev', 'cuda'}))}]")
    }
