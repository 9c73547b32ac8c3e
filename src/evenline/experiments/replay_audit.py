"""The report of the replay audit: a page with histograms, JSON, and a table for documents."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Plot
from matplotlib.ticker import StrMethodFormatter

from evenline.city.tables import digest, open_city
from evenline.figures.document import insert
from evenline.figures.page import Numbers, Picture, simple_page
from evenline.figures.plots import Theme, png
from evenline.replay.audit import Figure, as_rows, audit_replay
from evenline.support.columns import markdown
from evenline.support.files import refuse_changed_files, to_json, write_bytes, write_listed

AUDIT, PAGE = "replay.json", "replay.html"
COLOURS = ("#0072B2", "#E69F00", "#009E73")  # told apart by colour-blind readers too


def write_audit(
    store: Path, city_name: str, out: Path, document: Path | None = None, force: bool = False
) -> list[Figure]:
    """Audit a store; write `replay.json` and `replay.html`, and the document if one is named."""
    city = open_city(city_name)
    refuse_changed_files(out, (AUDIT, PAGE), force)
    figures, pictures = audit_replay(store, city)
    table = Numbers(
        "Recomputed from the files",
        ["", "ours", "paper", "verdict"],
        [[name, ours.split(" (")[0], *rest] for name, ours, *rest in map(_row, figures)],
    )
    spread = Numbers(
        "95 % intervals of the shares, over cells",
        ["", "from", "to"],
        [
            [figure.name, f"{figure.low:.3%}", f"{figure.high:.3%}"]
            for figure in figures
            if figure.low is not None and figure.high is not None
        ],
    )
    failed = [figure.name for figure in figures if figure.passed is False]
    lead = (
        f"The replay of {city.name} fails: {', '.join(failed)}."
        if failed
        else f"Every claim about the replay of {city.name} that can fail was checked and holds."
    )
    lead += (
        " A row is one decision. Lines without a verdict are descriptive; the paper's figures "
        "are for"
        " its own city. Guard rows have a bus ahead, none behind, people still to "
        "come, a load of at"
        " most a quarter of the capacity, and are between 15 % and 75 % of "
        "the day."
    )
    page = simple_page(
        f"Replay of {city.name}",
        lead,
        [table, spread],
        [_holds(pictures), _headways(pictures), _support(pictures)],
        f"Made by: evenline replay check --city {city_name}; SUMO {pictures['sumo']}.",
    )
    found = to_json({"city_digest": digest(city), "figures": as_rows(figures), **pictures})
    write_listed(out, {AUDIT: found.encode(), PAGE: page.encode()}, force)
    if document is not None:
        _write_document(document, city_name, figures, pictures)
    return figures


def _row(figure: Figure) -> list[str]:
    verdict = {True: "pass", False: "FAIL", None: ""}[figure.passed]
    return [figure.name, figure.text(), figure.paper_text(), verdict]


def _bars(counts: list[int], width: float, label: str, theme: Theme) -> Plot:
    plot = _empty(label, theme)
    middle = np.arange(len(counts)) * width + width / 2
    plot.axes[0].bar(middle, counts, width * 0.9, color=COLOURS[0])
    return plot


def _empty(label: str, theme: Theme) -> Plot:
    plot = Plot(figsize=(7, 3), layout="constrained", facecolor=theme.paper)
    axes = plot.subplots()
    axes.set_facecolor(theme.paper)
    axes.set_xlabel(label, color=theme.ink)
    axes.set_ylabel("rows", color=theme.ink)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.tick_params(colors=theme.ink)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.ink)
    return plot


def _holds(pictures: dict[str, Any]) -> Picture:
    counts = pictures["hold_histogram"]
    return Picture(
        "Positive holds",
        "How long buses were held, without zero holds.",
        f"Histogram of {sum(counts):,} positive holds in bins of 2 s up to the 60 s cap.",
        lambda theme: _bars(counts, 2.0, "hold, s", theme),
    )


def _headways(pictures: dict[str, Any]) -> Picture:
    counts = np.trim_zeros(np.array(pictures["headway_histogram"]), "b").tolist()
    return Picture(
        "Headways",
        "Time between consecutive buses of a service at a stop.",
        f"Histogram of {sum(counts):,} headways in bins of one minute, the longest below "
        f"{len(counts)} minutes.",
        lambda theme: _bars(counts, 1.0, "headway, min", theme),
    )


def _support(pictures: dict[str, Any]) -> Picture:
    cells = pictures["support_by_cell"]

    def draw(theme: Theme) -> Plot:
        plot, held = _empty("block", theme), _by_level(cells)
        width = 0.8 / len(held)
        for i, (level, counts) in enumerate(held.items()):
            at = np.arange(1, len(counts) + 1) + (i - (len(held) - 1) / 2) * width
            plot.axes[0].bar(at, counts, width * 0.9, color=COLOURS[i % 3], label=level)
        plot.axes[0].set_xticks(range(1, max(map(len, held.values())) + 1))
        plot.legend(
            title="demand", loc="outside right upper", frameon=False, labelcolor=theme.ink
        ).get_title().set_color(theme.ink)
        return plot

    return Picture(
        "Support by cell",
        "Rows with a positive hold in each cell; cells, not rows, are independent.",
        f"Bars of the held rows in each of {len(cells)} cells, by block and demand level.",
        draw,
        Numbers(
            "Support by cell",
            ["cell", "rows", "held", "guard rows"],
            [
                [name, *(f"{row[key]:,.0f}" for key in ("rows", "held", "guard"))]
                for name, row in cells.items()
            ],
        ),
    )


def _by_level(cells: dict[str, dict[str, float]]) -> dict[str, list[int]]:
    """Held rows of each demand level, block by block; a cell's name ends in its level."""
    held: dict[str, list[int]] = {}
    for name, row in sorted(cells.items()):
        held.setdefault(name.rsplit("-", 1)[1], []).append(int(row["held"]))
    return held


def _write_document(
    document: Path, city_name: str, figures: list[Figure], pictures: dict[str, Any]
) -> None:
    from evenline.figures.plots import LIGHT

    image = document.parent / "images" / f"replay-{Path(city_name).name}-holds.png"
    write_bytes(image, png(_holds(pictures).draw(LIGHT)))
    text = [
        f"Made by `evenline replay check --city {city_name}` (SUMO {pictures['sumo']}).",
        "",
        *markdown([["Figure", "ours", "the paper's", "verdict"], *map(_row, figures)]),
        "",
        f"![{_holds(pictures).alt}](images/{image.name})",
    ]
    insert(document, f"replay of {city_name}", "\n".join(text))
