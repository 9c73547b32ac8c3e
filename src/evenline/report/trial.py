"""What a trial came to, for a document: the verdict in words, a table of methods, a forest plot.

Reads the folder of an analysed trial and nothing else; everything is computed from its records.
"""

from pathlib import Path
from typing import Any

from evenline.errors import InputError
from evenline.files import write_bytes
from evenline.report.figures import png
from evenline.report.regime import insert
from evenline.report.study_data import read_trial
from evenline.report.study_figures import forest


def write_trial(document: Path, folder: Path) -> None:
    """Put a trial's verdict, table and figure between their marks in a document."""
    trial = read_trial(folder)
    if trial is None:
        raise InputError(f"{folder}: is not analysed yet; first: evenline trial analyse {folder}")
    image = document.parent / "images" / f"trial-{trial['name']}.png"
    write_bytes(image, png(forest(trial)))
    text = [
        f"Made by `evenline trial analyse {folder} --docs {document.name}`: {trial['jobs']:,} days,"
        f" registered as `{trial['sha256'][:12]}`, SUMO {trial['sumo']}.",
        "",
        *verdict_lines(trial["analysis"]),
        "",
        *method_table(trial),
        "",
        f"![Candidate minus parent in each block of {trial['name']}](images/{image.name})",
    ]
    insert(document, f"trial {trial['name']}", "\n".join(text))


def verdict_lines(analysis: dict[str, Any]) -> list[str]:
    """The registered claim, part by part."""
    claim, beyond = analysis["claim"], analysis["beyond_the_claim"]["generalized_s"]["bca_mean"]
    failed = [name for name, passed in analysis["gates"].items() if not passed]
    lines = [f"**{'Confirmed' if analysis['confirmed'] else 'Not confirmed'}.**"]
    for name, said in (
        ("primary", "less generalized time than its parent"),
        ("completion", "completion not inferior"),
    ):
        row = claim[name]
        lines.append(
            f"{said[0].upper()}{said[1:]} in {row['wins']} of {row['blocks']} blocks"
            f" ({row['required_wins']} required, p = {row['p']:.6f})."
        )
    lines.append(f"Gates that failed: {', '.join(failed) or 'none'}.")
    if beyond:
        lines.append(
            f"Mean difference over blocks {beyond['estimate']:+.1f} s a passenger"
            f" ({beyond['low']:+.1f} to {beyond['high']:+.1f}, descriptive)."
        )
    return lines


def method_table(trial: dict[str, Any]) -> list[str]:
    """Means of every method, and the candidate against it."""
    analysis, claim = trial["analysis"], trial["claim"]
    primary = analysis["claim"]["primary"]
    against = {
        claim["parent"]: (analysis["difference"], primary["wins"]),
        **{
            name: (row["difference"], row["favourable_blocks"])
            for name, row in analysis["controls"].items()
        },
    }
    lines = [
        "| Method | Time, s | Waiting, s | Riding, s | Completion, % | Mean hold, s |"
        " Candidate against it, s | Completion, points | Blocks with less time |",
        "| --- |" + " ---: |" * 8,
    ]
    for name, row in trial["methods"].items():
        cells = [
            f"{row['generalized_s']:,.1f}",
            f"{row['waiting_each_s']:,.1f}",
            f"{row['riding_each_s']:,.1f}",
            f"{100 * row['completion']:.2f}",
            f"{row['mean_hold_s']:.2f}",
        ]
        if name in against:
            difference, wins = against[name]
            cells += [
                f"{difference['generalized_s']:+.1f}",
                f"{100 * difference['completion']:+.2f}",
                f"{wins} of {primary['blocks']}",
            ]
        lines.append(f"| {name} | {' | '.join([*cells, *[''] * (8 - len(cells))])} |")
    return lines
