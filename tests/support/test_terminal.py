"""Text from data reaches a terminal as text: no markup, no control code, nothing cut off."""

import ast
import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

import evenline
from evenline.support.errors import shown
from evenline.support.progress import progress_bar
from evenline.support.terminal import Terminal, plain_streams, stderr, words

HOSTILE = ("[red]8613[/blink]", "8613[red]", "[link=file:///etc]a[/link]", ":bomb:", "a" * 300)
CODES = ("\x1b[31mred", "\x9b31m", "a\rb", "\x1b]0;title\x07", "\u202egnp.exe", "\x00", "\udc80")


@pytest.mark.parametrize("text", [*HOSTILE, *CODES])
def test_a_name_in_a_table_is_shown_whole_and_plain(text: str) -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, width=60)
    table = Table("name", title=text)
    table.add_row(text)
    terminal.print(table)
    terminal.print(text, soft_wrap=True)
    title, rest = "".join(line.strip("│ ") for line in out.getvalue().splitlines()).split("┏", 1)
    assert title.replace(" ", "") == shown(text).replace(" ", "")
    assert rest.count(shown(text)) == 2 and rest.isprintable()


@pytest.mark.parametrize("text", [*HOSTILE, *CODES])
def test_a_bar_and_a_status_show_a_name_as_it_is(text: str) -> None:
    out = io.StringIO()
    with progress_bar() as bar:
        bar.add_task(text, total=1)
        terminal = Terminal(file=out, width=600)
        terminal.print(bar.get_renderable())
        terminal.print(terminal.status(text).renderable)
    assert out.getvalue().count(shown(text)) == 2
    assert out.getvalue().replace("\n", "").isprintable()


@given(st.text())
def test_what_is_shown_has_no_control_code_and_layout_stays(text: str) -> None:
    assert shown(text).isprintable()
    assert shown(text) == text or not text.isprintable()
    assert shown(f"{text}\n", "\n").endswith("\n")


def test_what_is_printed_is_plain_and_styles_of_ours_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with plain_streams():
        print("8613\x1b[31m\tx")
        print("\x9b31m", file=sys.stderr)
        stderr.print(words("done", "green"))
    out, err = capsys.readouterr()
    assert out == "8613\\x1b[31m\tx\n" and err == "\\x9b31m\ndone\n"


def test_nothing_else_of_ours_writes_to_a_console() -> None:
    package = Path(evenline.__file__).parent
    for path in package.rglob("*.py"):
        if path.name == "terminal.py":
            continue
        modules = [
            node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        ]
        assert "rich.console" not in modules and "rich" not in modules, path
