"""The page that compares two policies: one self-contained HTML file.

Figures are embedded in a light and a dark version; the browser's preference chooses. Every figure
is also described in words, and tables give the numbers. Templates escape all text.
"""

import base64
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from evenline.city.demand import Cell
from evenline.control.outcome import Outcome
from evenline.figures.plots import DARK, LIGHT, Theme, svg

Measure = Callable[[Outcome], float]


@dataclass(frozen=True)
class Pair:
    """One cell under both policies: the same passengers, cars and signals."""

    cell: Cell
    base: Outcome
    other: Outcome


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


def comparison_page(
    city: str, base: str, other: str, pairs: Sequence[Pair], pictures: Sequence[Picture], made: str
) -> str:
    """Make the page: one sentence, the figures, the table of cells, how it was made."""
    title = f"{base} and {other} in {city}"
    return simple_page(
        title[0].upper() + title[1:],
        first_sentence(base, other, pairs),
        [_means(base, other, pairs)],
        pictures,
        made,
        explained=EXPLAINED,
        last=[_cells(base, other, pairs)],
    )


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


EXPLAINED = (
    "Generalized passenger time counts each second of waiting at a stop twice and each second on "
    "board once, over all passengers who set out, including those who never arrive; it is given "
    "per passenger. Each day runs under both policies with the same passengers, cars and signals."
)


def first_sentence(base: str, other: str, pairs: Sequence[Pair]) -> str:
    """The result in words."""
    before, after = _mean(pairs, lambda o: o.generalized_s)
    better = sum(pair.other.generalized_s < pair.base.generalized_s for pair in pairs)
    if round(before) == round(after):
        change = f"left generalized passenger time at {before:,.0f} s per passenger"
    else:
        change = (
            f"{'cut' if after < before else 'raised'} generalized passenger time from "
            f"{before:,.0f} to {after:,.0f} s per passenger "
            f"({signed(100 * (after / before - 1), '.1f')} %)"
        )
    waiting_s, riding_s = (
        signed(after - before, ".1f")
        for before, after in (
            _mean(pairs, lambda o: o.waiting_each_s),
            _mean(pairs, lambda o: o.riding_each_s),
        )
    )
    return (
        f"Compared with {base}, {other} {change} on average over {len(pairs)} simulated days, "
        f"and was better on {better} of them: waiting changed by {waiting_s} s and time on board "
        f"by {riding_s} s per passenger."
    )


def _mean(pairs: Sequence[Pair], measure: Measure) -> tuple[float, float]:
    """A measure's mean over the cells, under each of the two policies."""
    return (
        statistics.mean(measure(pair.base) for pair in pairs),
        statistics.mean(measure(pair.other) for pair in pairs),
    )


MEASURES: tuple[tuple[str, Measure, str], ...] = (
    ("Generalized time, s per passenger", lambda o: o.generalized_s, ",.1f"),
    ("Waiting, s per passenger", lambda o: o.waiting_each_s, ",.1f"),
    ("On board, s per passenger", lambda o: o.riding_each_s, ",.1f"),
    ("Journeys completed, %", lambda o: 100 * o.completion, ".2f"),
    ("Journeys unfinished", lambda o: o.unfinished, ",.1f"),
    ("Boardings denied by full buses", lambda o: o.denied_boardings, ",.1f"),
    ("Mean hold, s per stop visit", lambda o: o.mean_hold_s, ".1f"),
    ("Vehicle trip, s", lambda o: o.trip_duration_s, ",.0f"),
)


def _means(base: str, other: str, pairs: Sequence[Pair]) -> Numbers:
    rows = []
    for name, measure, form in MEASURES:
        before, after = _mean(pairs, measure)
        rows.append([name, format(before, form), format(after, form), signed(after - before, form)])
    caption = f"Mean over {len(pairs)} days"
    return Numbers(caption, ["", base, other, "difference"], rows)


def _cells(base: str, other: str, pairs: Sequence[Pair]) -> Numbers:
    head = ["seed", "demand"]
    head += [f"time, {base}", f"time, {other}", "difference"]
    head += [f"unfinished, {base}", f"unfinished, {other}"]
    rows = []
    for pair in pairs:
        before, after = pair.base.generalized_s, pair.other.generalized_s
        rows.append(
            [
                str(pair.cell.sumo_seed),
                f"{pair.cell.demand:.2f}",
                f"{before:,.1f}",
                f"{after:,.1f}",
                signed(after - before, ",.1f"),
                f"{pair.base.unfinished:,}",
                f"{pair.other.unfinished:,}",
            ]
        )
    return Numbers("Day by day: generalized time in s per passenger", head, rows)


def signed(value: float, form: str) -> str:
    """Format a difference with its sign: a true minus, and no sign if it rounds to zero."""
    shown = format(abs(value), form)
    if not any(digit in shown for digit in "123456789"):
        return shown
    return ("+" if value > 0 else "\u2212") + shown
