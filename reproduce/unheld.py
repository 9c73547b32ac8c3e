"""Days without holding on the cells of a closed trial, and when each method's effect accrues.

Until the last bus has left its first stop, a hold moves service from some people to others. What
accrues afterwards is paid mostly by people for whom no bus comes any more: each waits until the
horizon. The days run beside the trial and are no part of it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from evenline.city.demand import Cell
from evenline.city.model import Floats
from evenline.cli.options import WorkersOption
from evenline.control.outcome import Outcome, outcome_from
from evenline.runs.executors import Executor, processes
from evenline.runs.job import Job
from evenline.support.columns import markdown
from evenline.support.records import convert, read_record
from evenline.trial.plan import Claim
from evenline.trial.registration import Trial
from reproduce.beside import Days, closed_trial, days_beside
from reproduce.door import run

FILE = "days.json"


def unheld(folder: Path, out: Path, executor: Executor | None = None) -> dict[str, Outcome]:
    """Run the missing days without holding, in the city and the SUMO of the trial."""
    trial = closed_trial(folder)
    jobs = {
        job.cell.name: Job(city="./city", policy="zero", cell=job.cell, sumo=trial.registered.sumo)
        for job in trial.jobs().values()
    }
    return days_beside(trial, jobs, out / FILE, executor)


def unheld_of(trial: Trial, folder: Path) -> dict[str, Outcome] | None:
    """The days without holding of a trial, if they are all in a folder."""
    if not (folder / FILE).is_file():
        return None
    kept = read_record(folder / FILE, Days)
    cells = {job.cell.name for job in trial.jobs().values()}
    if kept.trial != trial.sha256 or not cells <= kept.days.keys():
        return None
    return {name: answer.outcome for name, answer in kept.days.items()}


def parts(day: Outcome) -> Floats:
    """What a passenger pays until the last bus leaves and afterwards, in s, and completion."""
    assert day.service_cost is not None
    before_s = day.service_cost / max(day.departed, 1)
    return np.array([before_s, day.generalized_s - before_s, day.completion])


def accrued(
    records: Iterable[Mapping[str, Any]], claim: Claim, zero: Mapping[str, Outcome]
) -> dict[str, Floats] | None:
    """Mean parts of candidate minus parent, and of each method minus no holding on the same days.

    None if the records do not tell the parts.
    """
    paid: dict[str, dict[tuple[str, int | None], Floats]] = {}
    for record in records:
        day, cell = outcome_from(record["outcome"]), convert(Cell, record["cell"], "cell")
        if day.service_cost is None:
            return None
        paid.setdefault(record["method"], {})[cell.name, record["seed"]] = parts(day)
    parent = paid[claim.parent]
    pairs = {"candidate minus parent": (paid[claim.candidate], parent)}
    for method, days in paid.items() if zero else ():
        free = {(cell, seed): parts(zero[cell]) for cell, seed in days}
        pairs[f"{method} minus no holding"] = (days, free)
    return {
        name: np.mean([day - other[key] for key, day in days.items()], axis=0)
        for name, (days, other) in pairs.items()
    }


def effect_lines(found: Mapping[str, Floats], end_s: int, horizon_s: int) -> list[str]:
    """The parts in Markdown, and in words."""
    rows = [["", "Time, s", f"until {end_s:,} s", "after", "Share after", "Completion, points"]]
    for name, (before_s, after_s, completion) in found.items():
        whole_s = before_s + after_s
        share = f"{after_s / whole_s:.0%}" if before_s * after_s > 0 else ""
        times = (f"{time_s:+.1f}" for time_s in (whole_s, before_s, after_s))
        rows.append([name, *times, share, f"{100 * completion:+.2f}"])
    before_s, after_s, _ = next(iter(found.values()))
    return [
        *markdown(rows),
        "",
        f"The last bus leaves its first stop at {end_s:,} s. Of candidate minus parent,"
        f" {before_s:+.1f} s accrue until then and {after_s:+.1f} s afterwards, until {horizon_s:,}"
        " s: mostly time of people for whom no bus comes any more, each of whom waits to the end."
        " On a street nobody is left for so long; what accrues until the last bus leaves is the"
        " part that an operator could expect.",
    ]


# -- the command ----------------------------------------------------------------------------------


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the closed trial.")],
    out: Annotated[Path, typer.Option(help="Folder of the days, such as data/unheld-city.")],
    workers: WorkersOption = None,
) -> None:
    """Run days without holding on the cells of a closed trial. Run it again to continue."""
    print(f"{len(unheld(folder, out, processes(workers)))} days without holding")
    print(out / FILE)


if __name__ == "__main__":
    run("reproduce.unheld", main)
