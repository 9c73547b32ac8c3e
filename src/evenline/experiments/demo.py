"""The demo for a newcomer: compares a city without holding and with the headway rule.

A few days at three demand levels run in SUMO under both policies. The result is a folder with one
HTML page (`index.html`), its outcomes and its days.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import evenline
from evenline.city.cells import PURPOSES
from evenline.city.clock import clock_text
from evenline.city.demand import check_somebody
from evenline.city.model import City, Floats
from evenline.city.tables import open_city
from evenline.control.regularity import BUNCHED, bunched_share
from evenline.control.visits import read_visits
from evenline.figures import plots as figures
from evenline.figures.measure import (
    HOUR_S,
    headway_ratios,
    most_bunched_service,
    people_waiting,
)
from evenline.figures.page import Numbers, Pair, Picture, comparison_page
from evenline.replay.episode import read_tokens
from evenline.runs.days import run_days
from evenline.runs.executors import Executor
from evenline.runs.job import Answer, Job, answer_json
from evenline.support.files import result_folder, to_json, write_text

PAGE = "index.html"
BASE, OTHER = "no holding", "the headway rule"
POLICIES = {BASE: "zero", OTHER: "headway"}
WAITING_BIN_S = 600


def demo(
    city_name: str, blocks: int, out: Path, executor: Executor | None = None, force: bool = False
) -> Path:
    """Run the comparison and write the page; returns its path.

    An earlier result is replaced if nothing in its folder was added or changed, or by `force`.
    """
    city, cells = open_city(city_name), PURPOSES["demo"].cells(blocks)
    check_somebody(city)
    with result_folder(out, force, keep=True) as aside:
        jobs = {
            policy: [
                Job(
                    city=city_name,
                    policy=rule,
                    cell=cell,
                    tokens=aside / "tokens" / rule / f"{cell.name}.parquet",
                    visits=aside / "stop_visits" / rule / f"{cell.name}.parquet",
                )
                for cell in cells
            ]
            for policy, rule in POLICIES.items()
        }
        every = [job for row in zip(*jobs.values(), strict=True) for job in row]
        answers = run_days(every, f"{city.name}, two policies", city.horizon_s, executor)
        pairs = [
            Pair(base.cell, answers[base].outcome, answers[other].outcome)
            for base, other in zip(jobs[BASE], jobs[OTHER], strict=True)
        ]
        made = _how_made(city_name, blocks, answers[every[0]])
        made = " ".join([made, *(f"Note: {note}." for note in city.notes)])
        page = comparison_page(city.name, BASE, OTHER, pairs, _pictures(city, jobs), made)
        write_text(aside / "outcomes.json", to_json([answer_json(answers[job]) for job in every]))
        write_text(aside / PAGE, page)
    return out / PAGE


def _pictures(city: City, jobs: dict[str, list[Job]]) -> list[Picture]:
    return [_time_space(city, jobs), _headways(jobs), _waiting(city, jobs)]


def _time_space(city: City, jobs: dict[str, list[Job]]) -> Picture:
    """The most bunched service of the first day at demand 1.00, under both policies."""
    shown = {policy: _at_demand_one(row)[0] for policy, row in jobs.items()}
    panels = {policy: read_visits(_named(job.visits)) for policy, job in shown.items()}
    service, cell = most_bunched_service(panels[BASE]), shown[BASE].cell
    return Picture(
        title=f"The buses of service {service}, seed {cell.sumo_seed}",
        caption=f"Each line is a bus on its way from the first stop to the last, at demand "
        f"{cell.demand:.2f}. Lines that touch are buses that run together.",
        alt=f"Two time-space diagrams of service {service}: above with {BASE}, below with {OTHER}, "
        "where holds are marked.",
        draw=lambda theme: figures.time_space_diagram(panels, service, theme, 5.8, city),
    )


def _headways(jobs: dict[str, list[Job]]) -> Picture:
    ratios: dict[str, Floats] = {}
    for policy, row in jobs.items():
        found = np.concatenate([headway_ratios(read_visits(_named(job.visits))) for job in row])
        ratios[policy] = found[np.isfinite(found)]
    said = " and ".join(
        f"{bunched_share(values):.1%} with {policy}" for policy, values in ratios.items()
    )
    return Picture(
        title="How evenly the buses came",
        caption=f"All days. The share of bunched buses, with less than {BUNCHED:.0%} of the "
        ""
        f"timetable's headway to the bus ahead, is {said}.",
        alt=f"Histogram of headways divided by the timetable's. Bunched: {said}.",
        draw=lambda theme: figures.headway_histogram(ratios, theme),
    )


def _waiting(city: City, jobs: dict[str, list[Job]]) -> Picture:
    def curves(bin_s: int) -> dict[str, Floats]:
        return {
            policy: np.mean(
                [
                    people_waiting(read_tokens(_named(job.tokens)), city.horizon_s, bin_s)
                    for job in _at_demand_one(row)
                ],
                axis=0,
            )
            for policy, row in jobs.items()
        }

    fine, hourly = curves(WAITING_BIN_S), curves(HOUR_S)
    said = " and ".join(f"{curve.max():.0f} with {policy}" for policy, curve in fine.items())
    hours = zip(*hourly.values(), strict=True)
    rows = [
        [clock_text(city, HOUR_S * hour), *(f"{count:.1f}" for count in row)]
        for hour, row in enumerate(hours)
    ]
    return Picture(
        title="Who waits when",
        caption=f"People at the stops, mean of each {WAITING_BIN_S // 60} minutes, days at demand "
        "1.00. The area under a line is the time that passengers wait.",
        alt=f"People waiting over the day; the highest numbers are {said}.",
        draw=lambda theme: figures.waiting_through_day(city, fine, WAITING_BIN_S, theme),
        numbers=Numbers("People waiting, mean of the hour that begins at", ["", *hourly], rows),
    )


def _at_demand_one(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.cell.demand == 1.0]


def _named(path: Path | None) -> Path:
    assert path is not None
    return path


def _how_made(city_name: str, blocks: int, answer: Answer) -> str:
    return (
        f"Made by: evenline demo --city {city_name} --blocks {blocks}. "
        f"Evenline {evenline.__version__}, SUMO {answer.simulator.version}."
    )
