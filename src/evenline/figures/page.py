"""A page of one sentence, tables and figures: one self-contained HTML file.

Figures are embedded in a light and a dark version; the browser's preference chooses. Every figure
is also described in words, and tables give the numbers. Templates escape all text.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from evenline.figures.plots import DARK, LIGHT, Theme, svg


@dataclass(frozen=True)
class Numbers:
    """A small table: its caption, the names of the columns, the rows."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A figure as a description and a function of the theme, with its numbers if any."""

    title: str
    caption: str
    alt: str
    draw: Callable[[Theme], Figure]
    numbers: Numbers | None = None

    def source(self, theme: Theme) -> str:
        """The figure in the colours of a theme, as a data URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(svg(self.draw(theme))).decode()


def rendered(folder: str, **values: object) -> str:
    """Render a template of a folder; escapes text and refuses a missing name."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=PackageLoader("evenline", folder),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html.j2").render(values)


def simple_page(
    title: str,
    lead: str,
    tables: Sequence[Numbers],
    pictures: Sequence[Picture],
    made: str,
    explained: str = "",
    last: Sequence[Numbers] = (),
) -> str:
    """Make a page of one sentence, tables and figures; `explained` follows the sentence."""
    return rendered(
        "figures/templates",
        title=title,
        lead=lead,
        explained=explained,
        tables=tables,
        pictures=pictures,
        last=last,
        made=made,
        light=LIGHT,
        dark=DARK,
    )


def signed(value: float, form: str) -> str:
    """Format a difference with its sign: a true minus, and no sign if it rounds to zero."""
    shown = format(abs(value), form)
    if not any(digit in shown for digit in "123456789"):
        return shown
    return ("+" if value > 0 else "\u2212") + shown
