"""The pieces of a report's page: sections, figures, tables and the verdict as HTML.

A figure is a frame with words, a text alternative and a button for its data; the script draws
into it. Whatever comes from a study is escaped here.
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenline.report.words import Verdict

MISSING = "not part of this study"


@dataclass(frozen=True)
class Shown:
    """A figure that the script draws: its name there, what it says, how to make its data again.

    `finding` is what it shows as it is first drawn; the script keeps it to what has been chosen.
    Kind, finding and caption together are the text alternative.
    """

    id: str
    kind: str
    finding: str
    caption: str
    redo: str
    title: str = ""
    controls: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page; without figures or body it says that the study has no such part."""

    id: str
    title: str
    intro: str = ""
    figures: Sequence[Shown] = ()
    body: str = ""
    tag: str = ""


class Code:
    """A cell that is set as code."""

    def __init__(self, text: str, wrap: bool = False) -> None:
        self.text, self.wrap = text, wrap

    def __str__(self) -> str:
        kind = ' class="wrap"' if self.wrap else ""
        return f"<code{kind}>{escaped(self.text)}</code>"


def verdict_html(found: Verdict) -> str:
    tone = {True: "yes", False: "no", None: "none"}[found.confirmed]
    checks = "".join(_check(name, passed) for name, passed in found.checks)
    limits = "".join(f"<li>{escaped(limit)}</li>" for limit in found.limits)
    return (
        f'<div class="verdict {tone}" id="verdict"><p class="word">{escaped(found.word)}</p>'
        f'<p class="lead">{escaped(found.lead)}</p>'
        + (f'<ul class="checks">{checks}</ul>' if checks else "")
        + (f'<h3>What this does not say</h3><ul class="limits">{limits}</ul>' if limits else "")
        + "</div>"
    )


def _check(name: str, passed: bool) -> str:
    kind, sign, more = ("pass", "\u2713", "") if passed else ("fail", "\u2717", " (not met)")
    return (
        f'<li class="{kind}"><b aria-hidden="true">{sign}</b>'
        f"<span>{escaped(name)}<em>{more}</em></span></li>"
    )


def contents(sections: Iterable[Section]) -> str:
    links = "".join(f'<li><a href="#{s.id}">{escaped(s.title)}</a></li>' for s in sections)
    return (
        f'<nav aria-label="Contents"><ul>{links}</ul>'
        "<p>Point at a mark for its figures; or Tab to a figure and step with the arrow keys.</p>"
        "</nav>"
    )


def section_html(section: Section) -> str:
    tag = f'<span class="tag">{escaped(section.tag)}</span>' if section.tag else ""
    parts = [f"<h2>{escaped(section.title)}{tag}</h2>"]
    if not section.figures and not section.body:
        parts.append(f'<p class="missing">{MISSING}</p>')
    elif section.intro:
        parts.append(f"<p>{escaped(section.intro)}</p>")
    if section.id == "days" and section.figures:
        parts.append('<div class="controls stick" data-shared></div>')
    parts += [_figure(shown) for shown in section.figures]
    return f'<section id="{section.id}">' + "\n".join([*parts, section.body]) + "</section>"


def _figure(shown: Shown) -> str:
    spoken = " ".join(words for words in (f"{shown.kind}.", shown.finding, shown.caption) if words)
    return (
        (f"<h3>{escaped(shown.title)}</h3>" if shown.title else "")
        + f'<figure data-figure="{shown.id}">'
        + ('<div class="controls"></div>' if shown.controls else "")
        + f'<div class="plot" role="group" data-kind="{escaped(shown.kind)}" '
        f'aria-label="{escaped(spoken)}">'
        '<noscript><p class="missing">Drawn by a script, which is switched off.</p></noscript>'
        f"</div><figcaption><span data-finding>{escaped(shown.finding)}</span> "
        f"<span data-caption>{escaped(shown.caption)}</span></figcaption>"
        f'<div class="foot"><a class="csv" href="#{shown.id}" download="{shown.id}.csv">'
        f"Data (CSV)</a><span>Again: <code>{escaped(shown.redo)}</code></span></div></figure>"
    )


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    texts: set[int] | frozenset[int] = frozenset(),
    strong: set[str] | frozenset[str] = frozenset(),
) -> str:
    """A table; columns of `texts` are words, rows named in `strong` stand out."""

    def cell(place: int, value: object) -> str:
        shown = str(value) if isinstance(value, Code) else escaped(str(value))
        kind = ' class="text"' if place in texts else ""
        return f"<td{kind}>{shown}</td>"

    def line(row: Sequence[object]) -> str:
        kind = ' class="strong"' if row[0] in strong else ""
        cells = "".join(cell(place, value) for place, value in enumerate(row) if place)
        return f'<tr{kind}><th scope="row">{escaped(str(row[0]))}</th>{cells}</tr>'

    kinds = [' class="text"' if place in texts else "" for place in range(len(head))]
    top = "".join(
        f'<th scope="col"{kind}>{escaped(name)}</th>'
        for kind, name in zip(kinds, head, strict=True)
    )
    return (
        f'<p class="note">{escaped(caption)}</p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{escaped(caption)}"><table>'
        f"<thead><tr>{top}</tr></thead>"
        f"<tbody>{''.join(map(line, rows))}</tbody></table></div>"
    )


def escaped(value: str) -> str:
    return html.escape(value, quote=True)
