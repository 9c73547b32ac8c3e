"""The measured regime of a city: its days without holding.

Runs some seeds at three demand levels in SUMO and writes tables into `cities.md`, between marks,
and pictures of the city, its people and its buses next to it. For the embedded `city` it also says
whether the regime is the intended one. Finished days are stored, so an interrupted run can
continue.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from evenline.city.cells import PURPOSES
from evenline.city.clock import clock_text
from evenline.city.demand import DEMAND_LEVELS, Cell
from evenline.city.model import City
from evenline.city.tables import digest, open_city
from evenline.cli.options import (
    AddressOption,
    CityOption,
    ExecutorOption,
    WorkersOption,
    executor_of,
    print_notes,
)
from evenline.control.visits import read_visits
from evenline.figures.document import insert
from evenline.figures.measure import HOUR_S, most_bunched_service, people_setting_out, rides_of
from evenline.figures.plots import demand_profile, network_map, png, time_space_diagram
from evenline.runs.days import run_days
from evenline.runs.executors import Executor
from evenline.runs.job import Answer, Job
from evenline.runs.store import Store, day_key, setting_of
from evenline.support.columns import markdown
from evenline.support.files import write_bytes
from reproduce.day import Day, measure_day
from reproduce.door import run

Days = dict[float, list[Day]]
ROWS: tuple[tuple[str, Callable[[Day], float], str], ...] = (
    ("Generalized passenger time Y, s per departed passenger", lambda d: d.generalized_s, ",.0f"),
    ("Waiting, s per departed passenger", lambda d: d.waiting_s, ",.0f"),
    ("In vehicle, s per departed passenger", lambda d: d.riding_s, ",.0f"),
    ("Completion, share of departed passengers", lambda d: d.completion, ".4f"),
    ("Unfinished passengers", lambda d: d.unfinished, ",.0f"),
    ("of these: set out after the last bus had left", lambda d: d.after_last_bus, ",.0f"),
    ("of these: left behind by full buses, or missed a change", lambda d: d.left_waiting, ",.0f"),
    ("Denied boardings", lambda d: d.denied_boardings, ",.0f"),
    ("Headway CV (headway over the timetable's)", lambda d: d.headway_cv, ".3f"),
    ("Bunched arrivals (under 25 % of the timetable's), %", lambda d: 100 * d.bunched_share, ".1f"),
    ("Mean load of a bus leaving a stop", lambda d: d.mean_load, ".1f"),
    ("Buses leaving a stop full, %", lambda d: 100 * d.full_share, ".2f"),
    ("Mean duration of a vehicle trip, s", lambda d: d.trip_duration_s, ",.0f"),
    ("Zero-duration decisions, %", lambda d: 100 * d.zero_token_share, ".1f"),
)

# The paper's direct parent and candidate, means over blocks, seeds and demand levels: its Table 2.
PAPER = {
    "Generalized passenger time Y, s per departed passenger": ("2,484.86", "2,392.73"),
    "Completion, share of departed passengers": ("0.96185", "0.96650"),
    "Unfinished passengers": ("655.42", "578.20"),
}


@dataclass(frozen=True)
class Check:
    """A measured value and the range in which it was meant to be."""

    name: str
    value: float
    low: float
    high: float
    form: str

    @property
    def holds(self) -> bool:
        return self.low <= self.value <= self.high

    @property
    def said(self) -> str:
        value, low, high = (format(x, self.form) for x in (self.value, self.low, self.high))
        meant = "as intended" if self.holds else "NOT as intended"
        return f"{self.name}: {value}, {meant} ({low} to {high})"


def write_regime(
    city_name: str, seeds: int, out: Path, executor: Executor | None = None
) -> tuple[Path, list[Check]]:
    """Measure a city and write tables and figures to `out`; returns the document and, for the
    embedded `city`, whether the regime is as intended.
    """
    city = open_city(city_name)
    cells = PURPOSES["demo"].cells(seeds, DEMAND_LEVELS)
    shown = next(cell for cell in cells if cell.demand == 1.0)
    jobs = [_job(city, city_name, cell, "zero") for cell in cells]
    compared = {
        "no holding": _job(city, city_name, shown, "zero"),
        "headway rule": _job(city, city_name, shown, "headway-1.0"),
    }
    answers = _run_missing(city, [*jobs, compared["headway rule"]], executor)
    days: Days = {level: [] for level in DEMAND_LEVELS}
    for job in jobs:
        outcome, visits = answers[job].outcome, read_visits(_visits(job))
        days[job.cell.demand].append(measure_day(city, job.cell, outcome, visits))
    service = most_bunched_service(read_visits(_visits(compared["no holding"])))
    panels = {
        f"service {service}, {policy}": read_visits(_visits(job))
        for policy, job in compared.items()
    }
    images = out / "images"
    write_bytes(images / f"{city.name}-map.png", png(network_map(city)))
    write_bytes(
        images / f"{city.name}-time-space.png", png(time_space_diagram(panels, service, city=city))
    )
    write_bytes(images / f"{city.name}-demand.png", png(demand_profile(city)))
    checks = intended_regime(days) if city_name == "city" else []
    parts = (
        _command(city_name, seeds, answers[jobs[0]]),
        _service_table(city),
        _people(city),
        regime_tables(city, days),
        beside_the_paper(days, checks) if checks else [],
        _pictures(city, service),
    )
    text = "\n".join(line for part in parts for line in part)
    insert(out / "cities.md", f"regime of {city.name}", text)
    return out / "cities.md", checks


# -- episodes -------------------------------------------------------------------------------------


def _job(city: City, city_name: str, cell: Cell, policy: str) -> Job:
    folder = Path("results") / f"regime-{city.name}" / policy
    return Job(city=city_name, policy=policy, cell=cell, visits=folder / f"{cell.name}.parquet")


def _visits(job: Job) -> Path:
    assert job.visits is not None
    return job.visits


def _run_missing(city: City, jobs: Sequence[Job], executor: Executor | None) -> dict[Job, Answer]:
    """The answers of all jobs; reads those that an earlier run finished."""
    store, city_digest = Store(Path("results") / f"regime-{city.name}" / "days"), digest(city)
    keys = {job: day_key(setting_of(job, city_digest, ""), job.cell) for job in jobs}
    kept = {job: store.read(key, job) for job, key in keys.items()}
    answers = {job: answer for job, answer in kept.items() if answer is not None}
    if missing := [job for job in jobs if job not in answers]:
        answers |= run_days(
            missing, f"regime of {city.name}", city.horizon_s, executor,
            keep=lambda job, answer: store.keep(keys[job], job, answer),
        )  # fmt: skip
    return answers


# -- the document ---------------------------------------------------------------------------------


def regime_tables(city: City, days: Days) -> list[str]:
    """Mean and range over seeds of every measure at each level, then denied boardings by hour."""
    levels = [f"demand {level:.2f}" for level in days]
    rows = [["Mean (range over seeds)", *levels]]
    for name, measure, form in ROWS:
        cells = [_mean_and_range([measure(day) for day in days[level]], form) for level in days]
        rows.append([name, *cells])
    pairs = zip(days[1.25], days[1.0], strict=True)
    growth = [more.unfinished / max(1, base.unfinished) for more, base in pairs]
    denied = [["Denied boardings, mean over seeds, in the hour from", *levels]]
    for hour in range(len(days[1.0][0].denied_by_hour)):
        means = [statistics.mean(d.denied_by_hour[hour] for d in days[level]) for level in days]
        denied.append([clock_text(city, HOUR_S * hour), *(f"{mean:,.1f}" for mean in means)])
    said = f"Unfinished at demand 1.25 over unfinished at 1.00: {_mean_and_range(growth, '.2f')}."
    return ["", *markdown(rows), "", said, "", *markdown(denied)]


def intended_regime(days: Days) -> list[Check]:
    """The regime that the embedded `city` is meant to have without holding."""
    completion = {level: statistics.mean(d.completion for d in days[level]) for level in days}
    time_s = statistics.mean(day.generalized_s for day in days[1.0])
    return [
        Check("completion at demand 1.00", completion[1.0], 0.955, 0.970, ".4f"),
        Check("generalized time at demand 1.00, s", time_s, 2_250, 2_500, ",.0f"),
        Check(
            "completion, mean of the demand levels",
            statistics.mean(completion.values()), 0.955, 0.970, ".4f",
        ),
    ]  # fmt: skip


def beside_the_paper(days: Days, checks: Sequence[Check]) -> list[str]:
    """The checks, and means over all days next to the figures that the paper gives."""
    lines = ["", "Checked by the same command:", "", *(f"- {check.said}" for check in checks), ""]
    names = ("`city`, no holding", "the paper's parent", "the paper's candidate")
    rows = [["Mean over the demand levels", *names]]
    for name, measure, form in ROWS:
        if name in PAPER:
            own = statistics.mean(measure(day) for level in days.values() for day in level)
            rows.append([name, format(own, form), *PAPER[name]])
    return [
        *lines,
        *markdown(rows),
        "",
        "The paper reports no day without holding. Its figures are those of its Table 2: learned "
        "policies behind the parent and candidate chains, in SUMO 1.25.0.",
    ]


def _people(city: City) -> list[str]:
    """The people of the city in words and by the hour, at demand 1.00."""
    people, rides = people_setting_out(city), rides_of(city)
    legs = np.diff(city.journeys.leg_start)[city.journeys.min_demand <= 1.0]
    change = float(np.mean(legs > 1))
    return [
        "",
        f"{people.sum():,} people set out at demand 1.00; {change:.1%} of them change buses, and a "
        f"ride takes {rides.mean_share:.0%} of its line on average, counted in stops.",
        "",
        *markdown(
            [
                ["Hour from", *(clock_text(city, HOUR_S * hour) for hour in range(len(people)))],
                ["People", *(f"{count:,}" for count in people)],
            ]
        ),
        "",
        f"![People of {city.name} by time of day, and the parts of a line where they board and "
        f"alight](images/{city.name}-demand.png)",
    ]


def _mean_and_range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return f"{statistics.mean(values):{form}} ({low} to {high})"


def _service_table(city: City) -> list[str]:
    signals = {node.id for node in city.nodes if node.signal}
    roads = {road.id: road for road in city.roads}
    rows = [
        ["Service", "Stops", "Trips", "First, s", "Last, s", "Length, km", "Signals", "Bus lane"]
    ]
    for index, service in enumerate(city.services):
        starts = [city.trips[trip].departure_s for trip in city.trips_of[index]]
        way = [roads[road] for road in service.roads]
        lane_m = sum(road.length_m for road in way if road.bus_lane)
        counts = (len(service.stops), len(starts))
        lights = sum(road.to_node in signals for road in way)
        rows.append(
            [
                *(service.id, *map(str, counts), f"{starts[0]:,}", f"{starts[-1]:,}"),
                *(
                    f"{service.length_m / 1000:.1f}",
                    str(lights),
                    f"{lane_m / service.length_m:.0%}",
                ),
            ]
        )
    total = f"{len(city.stops)} stops, {sum(len(s.stops) for s in city.services)} service-stops"
    return [
        "",
        *markdown(rows),
        "",
        f"In all {total}, {len(city.trips)} trips, {city.decisions:,} decisions per day.",
    ]


def _command(city_name: str, seeds: int, answer: Answer) -> list[str]:
    command = f"python -m reproduce.regime --city {city_name} --seeds {seeds}"
    sumo = answer.simulator.version
    return [f"Made by `{command}` in SUMO {sumo}, without holding, seeds 1 to {seeds}."]


def _pictures(city: City, service: str) -> list[str]:
    name = city.name
    return [
        "",
        f"![Map of {name}: routes, stops, signals and bus lanes](images/{name}-map.png)",
        "",
        f"![Time-space diagram of service {service} of {name}: without holding buses bunch, "
        f"under the headway rule they stay apart](images/{name}-time-space.png)",
        "",
        "Both panels show seed 1 at demand 1.00; the service is the one that bunches most.",
    ]


# -- the command ----------------------------------------------------------------------------------


def main(
    city: CityOption = "city",
    seeds: Annotated[int, typer.Option(help="Number of seeds, each at three demand levels.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder that contains cities.md and images/.")] = Path(
        "docs"
    ),
    workers: WorkersOption = None,
    executor: ExecutorOption = "processes",
    address: AddressOption = None,
) -> None:
    """Measure days without holding and write the tables to cities.md. Run it again to continue.

    Exits with code 1 if the embedded city is not in its intended regime.
    """
    document, checks = write_regime(city, seeds, out, executor_of(executor, address, workers))
    for check in checks:
        print(check.said)
    print_notes(city, "sumo")
    print(document)
    if not all(check.holds for check in checks):
        raise typer.Exit(1)


if __name__ == "__main__":
    run("reproduce.regime", main)
