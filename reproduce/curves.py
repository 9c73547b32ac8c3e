"""Report a training run: a table of learners, and learning curves.

Reads the files of a finished run (`curve.json`, `summary.json`, `metrics.parquet`)
and nothing else, so that it can report a run from another machine.
"""

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import typer
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from evenline.cli.options import CityOption
from evenline.figures.document import insert
from evenline.figures.plots import png
from evenline.support.columns import markdown
from evenline.support.files import read_json, write_bytes
from reproduce.door import run


def by_learner(curve: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """The final actors, seed by seed."""
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name, row in curve.items():
        if "-at-" not in name:
            rows[name.rsplit("-", 1)[0]].append(row)
    return dict(rows)


def learning_table(folder: Path) -> str:
    """Generalized time, completion and mean hold of every learner, in Markdown."""
    curve = read_json(folder / "curve.json")
    zero = curve["zero"]["generalized_s"]
    head = ["learner", "generalized time, s", "against zero hold", "completion", "mean hold, s"]
    table = [head]
    for name, rows in by_learner(curve).items():
        y, c, h = (
            np.array([row[key] for row in rows])
            for key in ("generalized_s", "completion", "mean_hold_s")
        )
        spread = f" ({y.min():,.0f} to {y.max():,.0f})" if len(y) > 1 else ""
        change = 100 * (y.mean() / zero - 1)
        time_s = f"{y.mean():,.1f}{spread}"
        table.append([name, time_s, f"{change:+.1f} %", f"{c.mean():.4f}", f"{h.mean():.1f}"])
    return "\n".join(markdown(table))


def value_line(folder: Path) -> str:
    """Say how much of the return the values of IQL contain."""
    metrics = pq.read_table(folder / "metrics.parquet").to_pylist()
    offline = [row for row in metrics if row["phase"] == "iql"]
    last = max(row["update"] for row in offline)
    value = np.mean([row["v_mean"] for row in offline if row["update"] == last])
    total = read_json(folder / "summary.json")["mean_return"]
    return (
        f"In the trainer's units the rewards from a decision to the end of its day add up to "
        f"{total:,.1f} on average over the replay; the value of IQL ends at {value:,.1f} on "
        "average over its minibatches."
    )


def rounding_line(folder: Path) -> str:
    """Say what the rounding of stored actors changes about their proposals."""
    effects = read_json(folder / "rounding.json").values()
    changed, mean_s, p99_s = (
        [row[key] for row in effects] for key in ("gates_changed", "mean_change_s", "p99_change_s")
    )
    return (
        "Rounding to bfloat16 changes whether an actor would hold in"
        f" {100 * np.mean(changed):.2f} % of 4,096 states of the replay (at most"
        f" {100 * max(changed):.2f} %), and"
        f" what it proposes by {np.mean(mean_s):.2f} s on average (99th percentile at most"
        f" {max(p99_s):.2f} s)."
    )


def learning_figure(folder: Path, learner: str) -> Figure:
    """Plot generalized time from the IQL start on, and the learner's metrics."""
    curve = read_json(folder / "curve.json")
    metrics = pq.read_table(folder / "metrics.parquet").to_pylist()
    figure = Figure(figsize=(11, 6), layout="constrained")
    time, hold, gate, heat = figure.subplots(2, 2).flat
    seeds = sorted({n.split("-")[1] for n in curve if n.startswith(f"{learner}-")})
    for seed in seeds:
        points = sorted(
            (int(name.rsplit("-", 1)[1]), row)
            for name, row in curve.items()
            if name.startswith(f"{learner}-{seed}-at-")
        )
        if f"iql-{seed}" in curve:
            points.insert(0, (0, curve[f"iql-{seed}"]))
        events = [event for event, _ in points]
        time.plot(events, [row["generalized_s"] for _, row in points], ".-", label=seed)
        hold.plot(events, [row["mean_hold_s"] for _, row in points], ".-")
        own = [r for r in metrics if r["lane"] == f"{learner}-{seed}" and r["phase"] == "online"]
        updates = [row["update"] for row in own]
        gate.plot(updates, [row["gate"] for row in own], lw=0.8)
        heat.plot(updates, [row["temperature"] for row in own], lw=0.8)
    time.axhline(curve["zero"]["generalized_s"], color="0.5", lw=0.8, label="zero hold")
    time.set(title="Generalized time on fresh days, fast world", ylabel="s per passenger")
    time.legend(frameon=False, fontsize=8)
    hold.set(title="Mean hold", ylabel="s")
    gate.set(title="Share of buses the policy would hold", xlabel="simulated events")
    heat.set(title="Temperature", xlabel="simulated events", yscale="log")
    heat.yaxis.set_major_formatter(LogFormatter())  # the usual one writes mathematics
    heat.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
    return figure


def write_learning(folder: Path, city: str, learner: str, document: Path) -> None:
    """Write tables and figure of a run to a document, between its marks."""
    image = document.parent / "images" / f"learning-{city}.png"
    write_bytes(image, png(learning_figure(folder, learner)))
    seconds = read_json(folder / "summary.json")["seconds"]
    phases = {"iql": "IQL", "compiling": "compiling", "continuation": "continuation"}
    took = [f"{said} {seconds[key]:,.0f} s" for key, said in phases.items() if key in seconds]
    parts = [f"Training took {', '.join(took)}.", learning_table(folder), value_line(folder)]
    if (folder / "rounding.json").exists():
        parts.append(rounding_line(folder))
    parts.append(f"![Learning curves of {learner} in {city}](images/{image.name})")
    insert(document, f"learning-{city}", "\n\n".join(parts))


def main(
    folder: Annotated[Path, typer.Argument(help="A finished training run.")],
    docs: Annotated[Path, typer.Option(help="Document to write the tables and figure to.")],
    city: CityOption = "city",
    learner: Annotated[str, typer.Option(help="Learner to draw the curve of.")] = "v14",
) -> None:
    """Report a training run: a table of learners, and learning curves."""
    write_learning(folder, Path(city).name, learner, docs)
    print(docs)


if __name__ == "__main__":
    run("reproduce.curves", main)
