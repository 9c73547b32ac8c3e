"""The documentation is true: its code runs and prints what it shows, its commands and links exist.

Python blocks of a page are one program, run in a process and folder of their own. A `text` block
right after one is what that block prints.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

import evenline
from evenline.city.embedded import embedded_city
from evenline.city.ranges import COLUMNS, ID, RANGES, VEHICLE
from evenline.cli.main import app
from evenline.support.own import is_own
from reproduce.door import commands_of

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "-- end of block --"


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, content) of the fenced blocks of a page, in order."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """This process's environment without a screen: nothing is opened, temporary files aside."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | {"MPLBACKEND": "Agg", "TMPDIR": str(folder)}


@pytest.mark.parametrize("page", ["tutorial", "contract"])
def test_the_python_of_a_page_runs_and_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    found = blocks(ROOT / "docs" / f"{page}.md")
    codes = [content for language, content in found if language == "python"]
    assert codes
    printed = run_python(f"print('{MARK}')\n".join(codes), tmp_path).split(f"{MARK}\n")
    number = -1
    for language, content in found:
        if language == "python":
            number += 1
        elif language == "text":
            assert printed[number] == content, f"block {number + 1} of {page}.md"


def test_the_tables_of_a_city_and_their_ranges_are_those_that_are_read() -> None:
    text = (ROOT / "docs" / "own-city.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+\.csv)` \| `(.*)` \|$", text, re.MULTILINE)
    assert {name: tuple(columns.split(", ")) for name, columns in shown} == COLUMNS
    stated = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \| (.*) \|$", text, re.MULTILINE)
    assert [(name, column, said.replace("\\|", "|")) for name, column, said in stated] == [
        (name, column, str(allowed).replace(str(ID), "an id"))
        for name, columns in RANGES.items()
        for column, allowed in columns.items()
    ]
    vehicle = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|$", text, re.MULTILINE))
    town = asdict(embedded_city("town").vehicle)
    assert {name: float(value) for name, value in vehicle.items()} == {
        name: town.pop(name) for name in VEHICLE
    }
    assert len(town) == 3 and all(f"`{name}`" in text for name in town), "optional ones"


# -- commands -------------------------------------------------------------------------------------


def shown_commands(page: Path) -> list[str]:
    """Every `evenline ...` of a page, from blocks without a language and from inline code."""
    text = page.read_text(encoding="utf-8")
    lines = [line for language, body in blocks(page) if not language for line in body.splitlines()]
    inline = re.findall(r"`(evenline [^`]+)`", FENCE.sub("", text).replace("\n", " "))
    commands = [line.split(" #")[0].split(" && ")[0].strip() for line in lines + inline]
    return [
        c.removeprefix(".venv/bin/") for c in commands if re.match(r"(\.venv/bin/)?evenline ", c)
    ]


MODULE = re.compile(r"python -m ((?:reproduce|bench)\.[a-z]+)([^`#\n]*)")


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "reproduce" / "README.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_module_of_a_page_that_is_run_exists_with_its_options(page: Path) -> None:
    for name, words in MODULE.findall(page.read_text(encoding="utf-8")):
        command = typer.main.get_command(commands_of(import_module(name).main))
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        assert {word for word in words.split() if word.startswith("--")} <= known, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    for text in shown_commands(page):
        words = shlex.split(text)[1:]
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands") and words:
            name = re.split(r"[,|]", words.pop(0))[0]
            name = "own" if is_own(name) else name  # a format of one's own
            assert name in command.commands, f"{page.name}: {text}"
            command = command.commands[name]
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        for word in words:
            option = word.split("=")[0]
            assert not option.startswith("--") or option in known, f"{page.name}: {text}"


# -- links ----------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_picture_of_a_page_is_there(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name) if name else page
        assert there.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(there), f"{page.name}: {target}"


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


# -- examples -------------------------------------------------------------------------------------

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    assert run_python(example.read_text(encoding="utf-8"), tmp_path).strip()


def test_the_readme_shows_the_first_example() -> None:
    shown = [content for language, content in blocks(ROOT / "README.md") if language == "python"]
    assert len(shown) == 1 and EXAMPLES[0].read_text(encoding="utf-8").endswith(shown[0])


def test_the_notebook_is_one_and_its_cells_run(tmp_path: Path) -> None:
    """Checked against the parts of the notebook format that readers insist on."""
    book = json.loads((ROOT / "examples" / "04_notebook.ipynb").read_text(encoding="utf-8"))
    assert book["nbformat"] == 4 and book["nbformat_minor"] >= 5
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in book["cells"]]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[\w-]{1,64}", n) for n in names)
    for cell in book["cells"]:
        expected = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            expected |= {"execution_count", "outputs"}
        assert set(cell) == expected
    code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    run_python("\n".join(code), tmp_path)


# -- the site -------------------------------------------------------------------------------------


def test_the_site_is_built_without_a_broken_link_and_loads_nothing_from_a_network(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):
        loads = r'<(?:script|link|img)[^>]+(?:src|href)="https?:[^"]+\.(?:js|css|png|svg|woff2)'
        assert not re.search(loads, page.read_text(encoding="utf-8")), page.name
    commands = (tmp_path / "commands.html").read_text(encoding="utf-8")
    python = (tmp_path / "python.html").read_text(encoding="utf-8")
    assert "evenline trial register" in commands
    assert all(f"el.{name}" in python for name in evenline.__all__)


# -- modules --------------------------------------------------------------------------------------


def test_every_module_says_what_it_is_for() -> None:
    for path in (ROOT / "src" / "evenline").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not text or ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
