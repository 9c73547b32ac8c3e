"""What the site adds to the written pages: the reference of commands and of Python.

Both come from the source at each build, so they cannot be stale. Links to files of the repository
outside `docs` become plain code, because a site in a folder does not have them.
"""

import re

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

import evenline
from evenline.cli.main import app

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in (("commands.md", _commands()), ("python.md", _python())):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name files outside `docs` without a link."""
    return OUTSIDE.sub(r"\1 (`\2`)", markdown)


def _commands() -> str:
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="evenline")
    return text.replace("# `evenline`", "# Commands", 1)


def _python() -> str:
    lines = ["# Python", "", "`import evenline as el` offers these names.", ""]
    for name in sorted(evenline.__all__):
        home = evenline._HOMES.get(name, "evenline.interface.days")
        lines += [f"::: {home}.{name}", "    options:", f"      heading: el.{name}", ""]
    return "\n".join(lines)
