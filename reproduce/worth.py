"""What knowledge is worth, as a folder, tables in Markdown and one figure.

The folder has `worth.json` and `worth.png`. A document gets a section with every table.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import evenline
from evenline.city.cells import PURPOSES
from evenline.cli.options import (
    AddressOption,
    BlocksOption,
    CalibrationOption,
    CityOption,
    DocsOption,
    ExecutorOption,
    ForceOption,
    OutOption,
    WorkersOption,
    executor_of,
    print_notes,
)
from evenline.experiments.compare import PURPOSE
from evenline.experiments.experiment import Arm, Variant, run_arms
from evenline.experiments.frame import draw_differences, label_rows
from evenline.experiments.measures import CONFIDENCE, number, signed
from evenline.figures.document import insert
from evenline.figures.plots import LIGHT, png
from evenline.policies.bundle import policy_digest
from evenline.runs.executors import Executor
from evenline.support.columns import aligned, markdown
from evenline.support.files import (
    ScratchFolder,
    refuse_changed_files,
    refuse_foreign,
    to_json,
    write_bytes,
    write_listed,
)
from evenline.worlds.open import open_city
from reproduce.door import run
from reproduce.knowledge import (
    BASE,
    CONTROLLER,
    KNOWLEDGE,
    LENGTH,
    NOBODY,
    PRICE,
    RIVALS,
    STEP,
    Worth,
    settings,
    worths,
)

PLAN, RESULT, PICTURE = "plan.json", "worth.json", "worth.png"
FILES = (PLAN, PICTURE, RESULT)


def worth(
    city_name: str,
    out: Path,
    blocks: int = 5,
    docs: Path | None = None,
    calibration: Path | None = None,
    force: bool = False,
    executor: Executor | None = None,
    policies: Sequence[str] = (),
    bases: Sequence[str] = (),
) -> list[Worth]:
    """Run all settings, write the folder, and the section of a document if one is named."""
    refuse_foreign(out, PLAN, force=force)
    refuse_changed_files(out, FILES, force)
    opened, cells = open_city(city_name, calibration), PURPOSES[PURPOSE].cells(blocks)
    opened.fitted()
    with ScratchFolder() as scratch:
        listed = settings(opened, Path(scratch), policies, bases)
        variant = Variant(opened, source=city_name, calibration=calibration)
        asked = {f"{each.group}: {each.name}": policy_digest(each.source) for each in listed}
        named = {"city": variant.digest, "settings": asked, "cells": [c.name for c in cells]}
        plan = to_json(named).encode()
        arms = [Arm(variant, setting.source) for setting in listed]
        days = run_arms(
            arms, cells, out, executor, begin=lambda: write_listed(out, {PLAN: plan}, force)
        )
    found = worths(listed, cells, days)
    picture = png(figure(found, f"{opened.name}, fast world, {len(cells)} days"))
    result = {
        "city": variant.digest,
        "calibration": variant.calibration_digest,
        "evenline": evenline.__version__,
        "blocks": blocks,
        "settings": [asdict(each) for each in found],
    }
    made = {PLAN: plan, PICTURE: picture, RESULT: to_json(result).encode()}
    write_listed(out, made, force, FILES)
    if docs is not None:
        name = f"{docs.stem}-{opened.name}.png"
        write_bytes(docs.parent / "images" / name, picture)
        command = f"python -m reproduce.worth --city {city_name} --blocks {blocks}"
        command += "".join(f" --policy {name}" for name in policies)
        command += "".join(f" --base {name}" for name in bases)
        insert(docs, f"worth {opened.name}", document(found, command, len(cells), name))
    return found


# -- as text and figure ---------------------------------------------------------------------------


HEAD = (
    "Setting", "Time, s", "Change, s", "Completion, %", "Change, points", "At the worst level",
    "Share of the clairvoyant's gain, %",
)  # fmt: skip


def rows(found: Sequence[Worth], group: str) -> list[list[str]]:
    """A table: the head, then one row for each setting of a group."""
    lines = [list(HEAD)]
    for each in (each for each in found if each.group == group):
        usual = each.name == NOBODY
        lines.append(
            [
                each.name,
                number(each.generalized_s, ",.1f"),
                "" if usual else signed(each.time_change_s, ",.1f"),
                number(100 * each.completion, ".2f"),
                "" if usual else signed(each.completion_change, ".2f", 100.0),
                "" if usual else number(100 * each.least_completion_change, "+.2f"),
                "" if usual else number(round(100 * each.share), "d"),
            ]
        )
    return lines


TITLES = {
    CONTROLLER: "Controllers, and the clairvoyant:",
    KNOWLEDGE: "The look-ahead with other knowledge:",
    BASE: "The look-ahead with another base for the buses of its forecast:",
    LENGTH: "The look-ahead with more or fewer buses behind computed in full (`behind`):",
    PRICE: "The look-ahead with other prices of a passenger who is left (`price_s`):",
    STEP: "The look-ahead with a coarser or finer grid of holds (`step_s`):",
}


def document(found: Sequence[Worth], command: str, days: int, picture: str) -> str:
    """The result for a document in Markdown."""
    lines = [
        f"Made by `{command}` (Evenline {evenline.__version__}), {days} days of the fast world on "
        f"the {PURPOSE} seeds. Changes are differences from no holding (`{NOBODY}`), with "
        f"{CONFIDENCE:.0%} intervals over blocks."
    ]
    for group, title in TITLES.items():
        lines += ["", title, "", *markdown(rows(found, group))]
    alt = "Change of time by setting, and time against completion"
    return "\n".join([*lines, "", f"![{alt}](images/{picture})"])


def figure(found: Sequence[Worth], title: str) -> Figure:
    """Change of time by setting on the left, time against completion on the right."""
    result = Figure(figsize=(12.0, 6.2), layout="constrained", facecolor=LIGHT.paper)
    left, right = result.subplots(1, 2, width_ratios=(1.0, 1.1))
    shown = (CONTROLLER, KNOWLEDGE)
    _draw_changes(left, [e for e in found if e.group in shown and e.name != NOBODY])
    _draw_front(right, found)
    for axis in (left, right):
        axis.grid(color=LIGHT.faint, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, labelsize=9)
    result.suptitle(title, fontsize=11, color=LIGHT.ink)
    return result


COLOURS = {CONTROLLER: LIGHT.policies[0], KNOWLEDGE: LIGHT.policies[1], PRICE: LIGHT.held}
MARKERS = {CONTROLLER: "o", KNOWLEDGE: "s", PRICE: "D"}


def _draw_changes(axis: Axes, shown: Sequence[Worth]) -> None:
    """The change of time of each setting with its interval, the largest gain at the bottom."""
    order = sorted(shown, key=lambda each: each.time_change_s.mean, reverse=True)
    draw_differences(axis, [each.time_change_s for each in order])
    label_rows(axis, [each.name for each in order])
    axis.set_xlabel(f"change of time from no holding, s ({CONFIDENCE:.0%} interval over blocks)")


def _draw_front(axis: Axes, found: Sequence[Worth]) -> None:
    """Mean time against completion: a line joins the prices, beside what competes with them."""
    near = [each for each in found if each.group == CONTROLLER and each.name in RIVALS]
    prices = [each for each in found if each.group == PRICE]
    times_s = [each.generalized_s for each in (*near, *prices)]
    apart_s, labelled_s = (max(times_s) - min(times_s)) / 30, -1.0
    for members, line in ((near, ""), (prices, "-")):
        colour, marker = COLOURS[members[0].group], MARKERS[members[0].group]
        for each in members:
            if line and abs(each.generalized_s - labelled_s) < apart_s:
                continue  # its label would cover another
            labelled_s, left = each.generalized_s, bool(line)
            axis.annotate(
                each.name,
                (100 * each.completion, each.generalized_s),
                (-7 if left else 7, -3),
                textcoords="offset points",
                fontsize=8,
                color=LIGHT.ink,
                ha="right" if left else "left",
            )
        completed = [100 * each.completion for each in members]
        axis.plot(
            completed, [each.generalized_s for each in members], marker + line, color=colour,
            markersize=5, linewidth=1.2, label="look-ahead, by price" if line else "controller",
        )  # fmt: skip
    axis.plot(
        [], [], MARKERS[KNOWLEDGE], color=COLOURS[KNOWLEDGE], markersize=5,
        label="look-ahead, other knowledge (left)",
    )  # fmt: skip
    axis.margins(x=0.35)
    axis.set_xlabel("completion, %")
    axis.set_ylabel("generalized time, s a passenger")
    axis.legend(frameon=False, fontsize=9)


# -- the command ----------------------------------------------------------------------------------


def main(
    city: CityOption = "city",
    blocks: BlocksOption = 5,
    out: OutOption = None,
    force: ForceOption = False,
    docs: DocsOption = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="A further controller to measure; repeatable.")
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(help="A further base of the forecast, such as a tuned rule; repeatable."),
    ] = None,
    calibration: CalibrationOption = None,
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Measure what each piece of knowledge is worth to the look-ahead, and how near it comes to a
    clairvoyant, in the fast world.
    """
    folder = out or Path("results") / f"worth-{Path(city).name}"
    runs = executor_of(executor, address, workers)
    found = worth(city, folder, blocks, docs, calibration, force, runs, policy or (), base or ())
    for group, title in TITLES.items():
        print(title, *aligned(rows(found, group)), sep="\n")
    print_notes(city, "fast", calibration)
    print(folder)


if __name__ == "__main__":
    run("reproduce.worth", main)
