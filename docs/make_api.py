"""Writes the reference from the docstrings: `python docs/make_api.py` makes docs/api.md.

Nothing is imported: modules are read as text, so this runs anywhere. With `--check` it writes
nothing and exits with code 1 if the page is not what the docstrings say. Another path may be given
for the page.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
# The order in which data flows; what is not named here comes last.
ROOMS = (
    "evenline", "city", "control", "worlds", "policies", "replay", "learn", "trial", "report",
)  # fmt: skip
Named = ast.FunctionDef | ast.ClassDef


def first_line(node: ast.Module | Named) -> str:
    """The first sentence a docstring says, on one line."""
    text = (ast.get_docstring(node) or "").split("\n\n")[0]
    return " ".join(text.split())


def is_public(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")


def arguments(node: ast.FunctionDef) -> str:
    """The names a caller writes, without types."""
    a = node.args
    names = [x.arg for x in (*a.posonlyargs, *a.args)]
    if a.vararg or a.kwonlyargs:
        names.append(f"*{a.vararg.arg}" if a.vararg else "*")
    names += [x.arg for x in a.kwonlyargs] + ([f"**{a.kwarg.arg}"] if a.kwarg else [])
    return ", ".join(name for name in names if name not in ("self", "cls"))


def members(node: ast.ClassDef) -> Iterator[str]:
    """Documented methods and properties of a class."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and is_public(item) and first_line(item):
            decorators = {d.id for d in item.decorator_list if isinstance(d, ast.Name)}
            plain = decorators & {"property", "cached_property"}
            shown = item.name if plain else f"{item.name}({arguments(item)})"
            yield f"  - `{shown}`: {first_line(item)}"


def entry(node: Named) -> Iterator[str]:
    """The lines of one function or class."""
    shown = node.name if isinstance(node, ast.ClassDef) else f"{node.name}({arguments(node)})"
    said = first_line(node)
    yield f"- `{shown}`" + (f": {said}" if said else "")
    if isinstance(node, ast.ClassDef):
        yield from members(node)


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE / "evenline").parts
    return parts[0] if len(parts) > 1 else "evenline"


def page() -> str:
    """The whole reference."""
    out = ["# API", "", "Made from the docstrings by `python docs/make_api.py`.", ""]
    paths = [p for p in (SOURCE / "evenline").rglob("*.py") if not p.name.startswith("_")]
    rank = {name: i for i, name in enumerate(ROOMS)}
    paths.sort(key=lambda p: (rank.get(room_of(p), len(rank)), p.as_posix()))
    room = ""
    for path in paths:
        if room_of(path) != room:
            room = room_of(path)
            out += [f"## {room}", ""]
        module = ast.parse(path.read_text(encoding="utf-8"))
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        out += [f"### `{name}`", "", first_line(module), ""]
        lines = [
            line
            for node in module.body
            if is_public(node) and isinstance(node, ast.FunctionDef | ast.ClassDef)
            for line in entry(node)
        ]
        out += [*lines, ""] if lines else []
    return "\n".join(out).rstrip() + "\n"


def main() -> None:
    """Write the page, or compare it."""
    given = [argument for argument in sys.argv[1:] if argument != "--check"]
    target = Path(given[0]) if given else ROOT / "docs" / "api.md"
    if "--check" not in sys.argv:
        target.write_text(page(), encoding="utf-8")
        print(target)
    elif not target.exists() or target.read_text(encoding="utf-8") != page():
        sys.exit(f"{target}: not what the docstrings say; run: python docs/make_api.py")


if __name__ == "__main__":
    main()
