"""Run one day and write its results to a folder.

The folder contains `outcome.json` (with the number of changed proposals), `stop_visits.parquet`
(with the explanation of every decision) and `time_space.png`. It is written atomically when the day
is over.
"""

from pathlib import Path

import evenline
from evenline.city.demand import Cell
from evenline.control.outcome import Outcome
from evenline.control.visits import read_visits
from evenline.figures.measure import unended_said, unended_trips
from evenline.figures.plots import png, time_space_grid
from evenline.runs.days import run_days
from evenline.runs.executors import Executor, processes
from evenline.runs.job import Answer, Job, answer_json
from evenline.support.files import result_folder, to_json, write_bytes, write_text
from evenline.worlds.open import OpenCity, check_world_name, open_city

OUTCOME = "outcome.json"


def day_notes(opened: OpenCity, world: str, cell: Cell, outcome: Outcome) -> tuple[str, ...]:
    """What a day's result must say: the notes of its city, and of trips that did not end."""
    unended = unended_trips(opened.city, cell, outcome)
    return (*opened.notes(world), *unended_said(len(opened.city.trips), [unended]))


def simulate(
    city: str,
    world: str,
    policy: str,
    cell: Cell,
    out: Path,
    sumo: str | None = None,
    calibration: Path | None = None,
    executor: Executor | None = None,
    force: bool = False,
) -> Answer:
    """Run a cell under a policy in a world, with another SUMO version if one is named.

    An earlier result is replaced if nothing in its folder was added or changed, or by `force`.
    """
    check_world_name(world)
    opened = open_city(city, calibration)
    with result_folder(out, force, keep=True) as aside:
        visits = aside / "stop_visits.parquet"
        job = Job(
            city=city,
            policy=policy,
            cell=cell,
            world=world,
            sumo=sumo,
            calibration=None if calibration is None else str(calibration),
            visits=visits,
            explain=True,
        )
        label = f"{opened.name}, {policy}, in {'SUMO' if world == 'sumo' else world}"
        execute = executor or processes()
        answer = run_days([job], label, opened.city.horizon_s, execute)[job]
        told = answer_json(answer) | {
            "city_name": opened.name,
            "policy_name": policy,
            "evenline": evenline.__version__,
        }
        if notes := day_notes(opened, world, cell, answer.outcome):
            told["notes"] = notes
        write_text(aside / OUTCOME, to_json(told))
        write_bytes(
            aside / "time_space.png", png(time_space_grid(read_visits(visits), city=opened.city))
        )
    return answer
