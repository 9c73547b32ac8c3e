"""The result of a trial for a document: the verdict in words, a table of methods, a forest plot.

Everything is computed from the records of an analysed trial. Early looks and deviations are shown
with the verdict.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evenline.figures.document import insert
from evenline.figures.plots import LIGHT, label, new_figure, png
from evenline.report.data import read_trial
from evenline.report.words import on_record
from evenline.support.columns import markdown
from evenline.support.errors import InputError
from evenline.support.files import write_bytes


def write_trial(document: Path, folder: Path) -> None:
    """Write a trial's verdict, table and figure between their marks in a document."""
    trial = read_trial(folder)
    if trial is None:
        raise InputError(f"{folder}: not analysed yet; run: evenline trial analyse {folder}")
    image = document.parent / "images" / f"trial-{trial['name']}.png"
    text = [
        f"Made by `evenline trial analyse {folder} --docs {document}`: {trial['jobs']:,} days,"
        f" {trial['simulator']}, registered as `{trial['sha256']}`"
        + (f", closed under `{trial['merkle_root']}`." if trial["merkle_root"] else "."),
        "",
        *verdict_lines(trial["analysis"]),
        *on_record(trial),
        "",
        *_method_table(trial),
        "",
        f"![Candidate minus parent in each block of {trial['name']}](images/{image.name})",
    ]
    insert(document, f"trial {trial['name']}", "\n".join(text))
    write_bytes(image, png(forest(trial)))


def verdict_lines(analysis: dict[str, Any]) -> list[str]:
    """The registered claim, part by part."""
    claim, beyond = analysis["claim"], analysis["beyond_the_claim"]["generalized_s"]["bca_mean"]
    lines = [f"**{'Confirmed' if analysis['confirmed'] else 'Not confirmed'}.**"]
    for name, words in (
        ("primary", "Less generalized time than its parent"),
        ("completion", "Completion not inferior"),
    ):
        row = claim[name]
        lines.append(
            f"{words} in {row['wins']} of {row['blocks']} blocks"
            f" ({row['required_wins']} required, p = {row['p']:.6f})."
        )
    lines.append(f"Gates that failed: {_failed(analysis['gates'])}.")
    if beside := analysis.get("robustness"):
        lines.append(f"Robustness gates, beside the claim, that failed: {_failed(beside)}.")
    by_level = [
        f"{row['generalized_s']:+.1f} s at demand {level}"
        for level, row in analysis["by_level"].items()
    ]
    lines.append(f"Candidate minus parent: {', '.join(by_level)}.")
    if beyond:
        lines.append(
            f"Mean difference over blocks {beyond['estimate']:+.1f} s per passenger"
            f" ({beyond['low']:+.1f} to {beyond['high']:+.1f}, descriptive)."
        )
    return lines


def _failed(gates: dict[str, bool]) -> str:
    return ", ".join(name for name, passed in gates.items() if not passed) or "none"


def _method_table(trial: dict[str, Any]) -> list[str]:
    """Means of every method, and candidate minus method."""
    analysis, claim = trial["analysis"], trial["claim"]
    primary = analysis["claim"]["primary"]
    against = {
        claim["parent"]: (analysis["difference"], primary["wins"]),
        **{
            name: (row["difference"], row["favourable_blocks"])
            for name, row in analysis["controls"].items()
        },
    }
    rows = [
        [
            *("Method", "Time, s", "Waiting, s", "Riding, s", "Completion, %", "Mean hold, s"),
            *("Candidate minus method, s", "Completion, points", "Blocks with less time"),
        ]
    ]
    for name, mean in trial["methods"].items():
        compared = ["", "", ""]
        if name in against:
            difference, wins = against[name]
            compared = [
                f"{difference['generalized_s']:+.1f}",
                f"{100 * difference['completion']:+.2f}",
                f"{wins} of {primary['blocks']}",
            ]
        rows.append(
            [
                name,
                f"{mean['generalized_s']:,.1f}",
                f"{mean['waiting_each_s']:,.1f}",
                f"{mean['riding_each_s']:,.1f}",
                f"{100 * mean['completion']:.2f}",
                f"{mean['mean_hold_s']:.2f}",
                *compared,
            ]
        )
    return markdown(rows)


def forest(trial: dict[str, Any]) -> Figure:
    """Block differences of generalized time, the range of their days, and the mean over blocks."""
    names = [f"block {block + 1}" for block in range(len(trial["blocks"]))]
    figure = new_figure(6.0, 0.26 * len(names) + 1.3)
    axes = figure.add_subplot()
    for row in range(len(names)):
        days = [pair["generalized_s"] for pair in trial["pairs"] if pair["block"] == row]
        mean = float(np.mean(days))
        colour, shape = (LIGHT.policies[0], "o") if mean < 0 else (LIGHT.policies[1], "s")
        axes.plot([min(days), max(days)], [row, row], color=LIGHT.muted, linewidth=1)
        axes.plot(mean, row, shape, color=colour, markersize=6)
    whole = trial["analysis"]["beyond_the_claim"]["generalized_s"]["bca_mean"]
    if whole:  # no estimate from one block, or if all are equal
        axes.errorbar(
            whole["estimate"], len(names), fmt="D", color=LIGHT.ink, markersize=6,
            xerr=[[whole["estimate"] - whole["low"]], [whole["high"] - whole["estimate"]]],
        )  # fmt: skip
        names.append("mean, 95 %")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    low, high = axes.get_xlim()
    if low < 0 < high:
        axes.axvline(0, color=LIGHT.ink, linewidth=1)
    label(
        axes, LIGHT, x="generalized time, candidate minus parent, s per passenger (less is better)"
    )
    return figure
