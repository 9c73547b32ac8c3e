"""A room knows the rooms before it and none after it: every import is read, lazy ones included."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import evenline

ROOMS = (
    *("support", "city", "control", "rules", "worlds", "policies", "importing", "replay", "runs"),
    "records",
    *("learn", "checks", "figures", "experiments", "trial", "live", "report", "study"),
    *("cli",),
    *("interface", "gym"),
)
PACKAGE = Path(evenline.__file__).parent
ROOT = {"__init__.py", "__main__.py"}  # the doors, which know every room


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Every module of ours that a source imports, with the line; also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the whole name of the module"
            if node.module == "evenline":
                yield from ((node.lineno, f"evenline.{alias.name}") for alias in node.names)
            elif node.module and node.module.startswith("evenline."):
                yield node.lineno, node.module
        elif isinstance(node, ast.Import):
            yield from (
                (node.lineno, alias.name)
                for alias in node.names
                if alias.name.startswith("evenline.")
            )


def upward(room: str, source: str) -> list[str]:
    """The imports of a source that lead to a room after its own, or to none."""
    found = []
    for line, module in imported(source):
        other = module.split(".")[1]
        if other not in ROOMS or ROOMS.index(other) > ROOMS.index(room):
            found.append(f"line {line}: {module}")
    return found


SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in ROOT]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_nothing_of_a_later_room(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert room in ROOMS
    assert upward(room, path.read_text()) == []


def test_a_lazy_import_upward_is_found() -> None:
    lazy = "def late():\n    from evenline.trial.plan import Plan\n    return Plan"
    assert upward("learn", lazy) == ["line 2: evenline.trial.plan"]
    assert upward("study", lazy) == []


INSIDE = {f"evenline.worlds.fast.{name}" for name in ("kernel", "layout", "tables")}


def reached_inside(source: str) -> list[str]:
    """The imports of a source that lead into the memory of the fast world."""
    named = ast.walk(ast.parse(source))
    by_name = {
        f"{node.module}.{alias.name}"
        for node in named
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return sorted(INSIDE & ({module for _, module in imported(source)} | by_name))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_fast_world_knows_how_its_days_lie_in_memory(path: Path) -> None:
    if path.parent != PACKAGE / "worlds" / "fast":
        assert reached_inside(path.read_text()) == []


def test_a_way_into_the_fast_world_is_found_however_it_is_written() -> None:
    assert reached_inside("from evenline.worlds.fast import kernel as k") == [
        "evenline.worlds.fast.kernel"
    ]
    assert reached_inside("def late():\n    import evenline.worlds.fast.tables")
    assert reached_inside("from evenline.worlds.fast.layout import Day")
    assert not reached_inside("from evenline.worlds.fast.world import FastWorld")


def test_the_verifier_imports_nothing_of_ours() -> None:
    assert list(imported((PACKAGE / "trial" / "verify.py").read_text())) == []


def test_the_list_of_rooms_is_the_one_that_contributors_read() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    named = [line.split("/")[0] for line in text.splitlines() if line.split("/")[0] in ROOMS]
    assert named == [room for room in ROOMS if room not in ("interface", "gym")]
