"""The page that compares two policies: one HTML file that needs nothing else, not even a network.

Figures are embedded in a light and a dark version; the browser's preference chooses. Every
figure carries its meaning in words too, and the tables hold the numbers.
"""

import base64
import html
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """A figure in words and as a function of the theme, with the numbers behind it if any."""

    title: str
    caption: str
    alt: str
    draw: Callable[[Theme], Figure]
    numbers: Numbers | None = None


def comparison_page(
    city: str, base: str, other: str, pairs: Sequence[Pair], pictures: Sequence[Picture], made: str
) -> str:
    """The whole page: one sentence, the figures, the table of cells, how it was made."""
    title = f"{base} and {other} in {city}"
    return _document(
        title[0].upper() + title[1:],
        [
            f'<p class="lead">{_text(first_sentence(base, other, pairs))}</p>',
            f"<p>{_text(EXPLAINED)}</p>",
            _means(base, other, pairs),
            *(_figure(picture) for picture in pictures),
            _cells(base, other, pairs),
        ],
        made,
    )


def simple_page(
    title: str, lead: str, tables: Sequence[Numbers], pictures: Sequence[Picture], made: str
) -> str:
    """A page of one sentence, tables and figures."""
    body = [f'<p class="lead">{_text(lead)}</p>', *(_table(table) for table in tables)]
    return _document(title, [*body, *(_figure(picture) for picture in pictures)], made)


def _document(title: str, body: Sequence[str], made: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join([f"<h1>{_text(title)}</h1>", *body, f"<footer><p>{_text(made)}</p></footer>"])
        + "\n</main>\n</body>\n</html>\n"
    )


EXPLAINED = (
    "Generalized passenger time counts each second of waiting at a stop twice and each second on "
    "board once, over all passengers who set out, those included who never arrive; it is given "
    "per passenger. Each day is run under both policies with the same passengers, cars and signals."
)


def first_sentence(base: str, other: str, pairs: Sequence[Pair]) -> str:
    """What came out, in words."""
    before, after = _mean(pairs, lambda o: o.generalized_s)
    better = sum(pair.other.generalized_s < pair.base.generalized_s for pair in pairs)
    if round(before) == round(after):
        change = f"left generalized passenger time at {before:,.0f} s per passenger"
    else:
        change = (
            f"{'cut' if after < before else 'raised'} generalized passenger time from "
            f"{before:,.0f} to {after:,.0f} s per passenger "
            f"({_signed(100 * (after / before - 1), '.1f')} %)"
        )
    waiting_s, riding_s = (
        _signed(after - before, ".1f")
        for before, after in (_mean(pairs, waiting_each_s), _mean(pairs, riding_each_s))
    )
    return (
        f"Compared with {base}, {other} {change} on average over {len(pairs)} simulated days, "
        f"and was better on {better} of them: waiting changed by {waiting_s} s and time on board "
        f"by {riding_s} s per passenger."
    )


def _mean(pairs: Sequence[Pair], measure: Measure) -> tuple[float, float]:
    """A measure's mean over the cells, under the one policy and under the other."""
    return (
        statistics.mean(measure(pair.base) for pair in pairs),
        statistics.mean(measure(pair.other) for pair in pairs),
    )


def waiting_each_s(outcome: Outcome) -> float:
    """Seconds of waiting per departed passenger."""
    return outcome.waiting_s / max(1, outcome.departed)


def riding_each_s(outcome: Outcome) -> float:
    """Seconds on board per departed passenger."""
    return outcome.riding_s / max(1, outcome.departed)


# -- tables ---------------------------------------------------------------------------------------

MEASURES: tuple[tuple[str, Measure, str], ...] = (
    ("Generalized time, s per passenger", lambda o: o.generalized_s, ",.1f"),
    ("Waiting, s per passenger", waiting_each_s, ",.1f"),
    ("On board, s per passenger", riding_each_s, ",.1f"),
    ("Journeys completed, %", lambda o: 100 * o.completion, ".2f"),
    ("Journeys unfinished", lambda o: o.unfinished, ",.1f"),
    ("Boardings denied by full buses", lambda o: o.denied_boardings, ",.1f"),
    ("Mean hold, s per stop visit", lambda o: o.mean_hold_s, ".1f"),
    ("Vehicle trip, s", lambda o: o.trip_duration_s, ",.0f"),
)


def _means(base: str, other: str, pairs: Sequence[Pair]) -> str:
    rows = []
    for name, measure, form in MEASURES:
        before, after = _mean(pairs, measure)
        rows.append(
            [name, format(before, form), format(after, form), _signed(after - before, form)]
        )
    caption = f"Mean over {len(pairs)} days"
    return _table(Numbers(caption, ["", base, other, "difference"], rows))


def _cells(base: str, other: str, pairs: Sequence[Pair]) -> str:
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
                _signed(after - before, ",.1f"),
                f"{pair.base.unfinished:,}",
                f"{pair.other.unfinished:,}",
            ]
        )
    return _table(Numbers("Day by day: generalized time in s per passenger", head, rows))


def _table(numbers: Numbers) -> str:
    top = "".join(f'<th scope="col">{_text(name)}</th>' for name in numbers.head)
    lines = [
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(f"<td>{_text(value)}</td>" for value in row[1:])
        + "</tr>"
        for row in numbers.rows
    ]
    return (
        f'<div class="wide"><table><caption>{_text(numbers.caption)}</caption>\n'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody></table></div>"
    )


# -- pieces ---------------------------------------------------------------------------------------


def _figure(picture: Picture) -> str:
    light, dark = (_data(svg(picture.draw(theme))) for theme in (LIGHT, DARK))
    return (
        f"<h2>{_text(picture.title)}</h2>\n<figure><picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{_text(picture.alt)}"></picture>'
        f"<figcaption>{_text(picture.caption)}</figcaption></figure>"
        + (_table(picture.numbers) if picture.numbers else "")
    )


def _data(image: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(image).decode()


def _signed(value: float, form: str) -> str:
    """A difference with its sign; a true minus, and no sign for what rounds to zero."""
    shown = format(abs(value), form)
    if not any(digit in shown for digit in "123456789"):
        return shown
    return ("+" if value > 0 else "\u2212") + shown


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def _variables(theme: Theme) -> str:
    names = ("paper", "ink", "muted", "faint")
    return ":root { " + " ".join(f"--{name}: {getattr(theme, name)};" for name in names) + " }"


STYLE = f"""
{_variables(LIGHT)}
@media (prefers-color-scheme: dark) {{ {_variables(DARK)} }}
"""
STYLE += """
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
.lead { font-size: 1.15rem; }
figure { margin: 0; }
img { width: 100%; height: auto; display: block; }
figcaption, footer { color: var(--muted); font-size: .9rem; }
.wide { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .95rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--faint); text-align: right;
  vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; }
th { font-weight: 500; }
td { white-space: nowrap; }
thead th { color: var(--muted); }
"""
