"""The closure of imports: everything that is loaded is in it, and what is not cannot matter."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from evenline.support.sources import PACKAGE, closure, imports_of

SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_imports_read_from_a_text_are_those_that_python_would_find(path: Path) -> None:
    expected = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "evenline":
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "evenline"]
        else:
            continue
        for name in names:
            file = PACKAGE.parent.joinpath(*str(name).split("."))
            expected |= {p for p in (file.with_suffix(".py"), file / "__init__.py") if p.is_file()}
    assert expected <= set(imports_of(path))


@pytest.mark.parametrize("module", ["evenline.worlds.fast.kernel", "evenline.policies.bundle"])
def test_every_module_that_an_import_loads_is_in_the_closure(module: str) -> None:
    script = f"import sys, {module}\nfor m in list(sys.modules.values()):\n"
    script += "    if m.__name__.split('.')[0] == 'evenline': print(m.__file__)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0
    assert {Path(line) for line in ended.stdout.split()} <= set(closure(module))


def test_what_is_not_imported_is_outside() -> None:
    named = {
        path.relative_to(PACKAGE).as_posix() for path in closure("evenline.worlds.fast.kernel")
    }
    assert "control/event.py" in named
    assert not any(name.startswith(("cli/", "report/", "trial/", "learn/")) for name in named)
