"""A study's folder as plain data for its report, ready for JSON.

A reader returns None if its part does not exist, and raises `InputError` if it cannot be read.
Outcomes of a trial are read only after its analysis is written: the report never breaks a seal.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evenline.city.clock import clock_text
from evenline.city.demand import Cell
from evenline.city.model import City, Service, road_ways, streets_of_routes
from evenline.city.tables import open_city
from evenline.control.outcome import Outcome, outcome_from
from evenline.figures.measure import unended_said, unended_trips
from evenline.figures.plots import ROUTE_COLOURS
from evenline.report.policies import is_trained, spec_of, what_it_is
from evenline.support.errors import InputError
from evenline.support.files import read_json, sha256
from evenline.support.records import convert
from evenline.trial.analyse import ENDPOINTS, Key, by_block, differences, endpoints_of
from evenline.trial.packed import unpacked
from evenline.trial.records import JobRecord
from evenline.trial.registration import INPUTS
from evenline.trial.used import USED_CELLS, other_used_cells, used_by_trials
from evenline.worlds.sumo.streets import background

Part = dict[str, Any] | None
_LANE = re.compile(r"(?P<learner>.+?)-(?P<seed>\d+)(?:(?:@|-at-)(?P<at>\d+))?")
_QUANTITIES = {
    "critic_loss": "critic loss",
    "actor_loss": "actor loss",
    "q_mean": "mean value of the critics",
    "entropy": "entropy of the policy",
    "temperature": "temperature",
    "gate": "share of positive holds",
    "gradient": "norm of the gradient",
}
_CURVE_POINTS = 60
_MEASURED = (
    *("generalized_s", "waiting_each_s", "riding_each_s", "completion", "unfinished"),
    *("mean_hold_s", "denied_boardings", "trip_duration_s"),
)


@dataclass(frozen=True, eq=False)
class Study:
    """All parts of a study; None for a part that does not exist."""

    folder: Path
    city: City | None
    trial: Part
    training: Part
    fidelity: Part
    replay: Part

    @property
    def place(self) -> str:
        """The folder as one names it where the page is made."""
        folder, here = self.folder.resolve(), Path.cwd()
        return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def read_study(folder: Path) -> Study:
    """Read all parts of a study's folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; create a study with: evenline study run PLAN")
    city = open_city(str(folder / "city")) if (folder / "city").is_dir() else None
    study = Study(
        folder,
        city,
        read_trial(folder / "trial"),
        _read_training(folder / "train"),
        _json(folder / "fidelity" / "fidelity.json"),
        _json(folder / "replay-audit" / "replay.json"),
    )
    parts = (city, study.trial, study.training, study.fidelity, study.replay)
    if all(part is None for part in parts):
        raise InputError(
            f"{folder} is not a study's folder; create a study with: evenline study run PLAN"
        )
    return study


def _json(path: Path) -> Part:
    return dict(read_json(path)) if path.is_file() else None


# -- the trial ------------------------------------------------------------------------------------


def read_trial(folder: Path) -> Part:
    """Claim, verdict, means by method and the paired differences of a finished trial."""
    if not (folder / "analysis.json").is_file():
        return None
    registered, analysis = read_json(folder / "trial.json"), read_json(folder / "analysis.json")
    with unpacked(folder) as full:
        records = [read_json(path) for path in sorted((full / "records").glob("*.json"))]
        specs = {p["method"]: spec_of(full / INPUTS, p["path"]) for p in registered["policies"]}
        folder_of_city = full / INPUTS / "city"
        city = open_city(str(folder_of_city)) if folder_of_city.is_dir() else None
    plan = registered["plan"]
    blocks = sorted(tuple(block) for block in plan["blocks"])
    closeout = _json(folder / "closeout.json")
    block_differences = analysis["claim"]["primary"]["block_differences"]
    pairs = _pairs(folder, records, plan, block_differences)
    return {
        "name": registered["name"],
        "simulator": _simulator(registered),
        "jobs": registered["jobs"],
        "registered_at": registered["registered_at"],
        "sha256": sha256(folder / "trial.json"),
        "verified": (folder / "verification.json").is_file(),
        "merkle_root": closeout["merkle_root"] if closeout else None,
        "used_by": _used_by(folder, registered),
        "unended": () if city is None else _unended(city, records),
        "covered": None if city is None else _covered(city),
        "city": registered["city"],
        "claim": plan["claim"],
        "margin": float(Fraction(plan["claim"]["completion_margin"])),
        "levels": plan["levels"],
        "seeds": plan["seeds"],
        "blocks": [list(block) for block in blocks],
        "policies": registered["policies"],
        "what": {method: what_it_is(spec) for method, spec in specs.items()},
        "trained": [method for method, spec in specs.items() if is_trained(spec)],
        "gates": registered.get("gates"),
        "analysis": analysis,
        "methods": _methods(records, plan["claim"]),
        "pairs": [
            {"block": blocks.index(key.block), "level": key.level, "seed": key.seed}
            | {name: float(change) for name, change in changes.items()}
            for key, changes in pairs.items()
        ],
    }


def _simulator(registered: Mapping[str, Any]) -> str:
    """Where the trial's days ran, in words."""
    version, world = registered["sumo"], registered.get("world", "sumo")
    return f"SUMO {version}" if world == "sumo" else f"the world {world}"


def _unended(city: City, records: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """What must be said of trips that did not reach their last stop."""
    days = [
        (convert(Cell, record["cell"], "cell"), outcome_from(record["outcome"]))
        for record in records
    ]
    return unended_said(len(city.trips), [unended_trips(city, *day) for day in days])


def _covered(city: City) -> dict[str, Any]:
    """What a day of the trial contains, in numbers that a planner knows."""
    return {
        "trips": len(city.trips),
        "routes": len({service.route for service in city.services}),
        "services": len(city.services),
        "passengers": int((city.journeys.min_demand <= 1.0).sum()),
        "hours": [clock_text(city, 0), clock_text(city, city.horizon_s)],
    }


def _used_by(folder: Path, registered: Mapping[str, Any]) -> list[str]:
    """Other trials of the same city that share a seed with this one, by name."""
    study, this = folder.parent, sha256(folder / "trial.json")
    seeds = {seed for block in registered["plan"]["blocks"] for seed in block}
    names = [
        entry.name
        for path in (study / USED_CELLS, *other_used_cells(study))
        for entry in used_by_trials(path)
        if entry.trial != this
        and (entry.subject is None or entry.subject != registered.get("subject"))
        and entry.city == registered["city"]["digest"]
        and not seeds.isdisjoint(seed for block in entry.blocks for seed in block)
    ]
    return list(dict.fromkeys(names))


def _methods(records: Iterable[Mapping[str, Any]], claim: Mapping[str, Any]) -> dict[str, Any]:
    """Means by method over all its days; candidate and parent first."""
    days: dict[str, list[Outcome]] = {}
    for record in records:
        days.setdefault(record["method"], []).append(outcome_from(record["outcome"]))
    first = [claim["candidate"], claim["parent"]]
    return {
        method: {
            name: float(np.mean([getattr(day, name) for day in days[method]])) for name in _MEASURED
        }
        | {"days": len(days[method])}
        for method in [*first, *sorted(days.keys() - set(first))]
    }


def _pairs(
    folder: Path, records: list[dict[str, Any]], plan: Mapping[str, Any], analysed: list[float]
) -> dict[Key, dict[str, Fraction]]:
    """Candidate minus parent, day by day; the blocks must be those of the verdict."""
    whole = all(
        record["outcome"][name] == getattr(outcome_from(record["outcome"]), name)
        for record in records
        for name in ENDPOINTS
    )
    claim = plan["claim"]
    try:
        typed = [convert(JobRecord, record, str(folder)) for record in records]
        endpoints = endpoints_of(typed, plan["seeds"])
        pairs = differences(endpoints, claim["candidate"], claim["parent"])
    except KeyError:  # a day of the parent is missing
        pairs = {}
    if not whole or list(map(float, by_block(pairs, "generalized_s"))) != analysed:
        raise InputError(
            f"{folder}: analysis.json disagrees with the records; "
            f"run: evenline trial verify {folder}"
        )
    return dict(
        sorted(pairs.items(), key=lambda item: (item[0].block, item[0].level, item[0].seed))
    )


# -- training -------------------------------------------------------------------------------------


def _read_training(folder: Path) -> Part:
    """The final and intermediate actors, and the metrics of their updates."""
    curve, metrics = _json(folder / "curve.json"), folder / "metrics.parquet"
    if curve is None and not metrics.is_file():
        return None
    config = _json(folder / "config.json") or {}
    learners = config.get("plan", {}).get("learners", [])
    ends, on_the_way = [], []
    for lane, row in (curve or {}).items():
        if parts := _LANE.fullmatch(lane):
            entry = {"learner": parts["learner"], "seed": int(parts["seed"]), **row}
            if parts["at"]:
                on_the_way.append(entry | {"at": int(parts["at"])})
            else:
                ends.append(entry)
    return {
        "titles": {row["name"]: row.get("title", row["name"]) for row in learners},
        "ends": ends,
        "on_the_way": on_the_way,
        "zero": (curve or {}).get("zero"),
        "quantities": _QUANTITIES,
        "metrics": _metrics(metrics) if metrics.is_file() else [],
    }


def _metrics(path: Path) -> list[dict[str, Any]]:
    """Each quantity of each learner and phase: mean and range over seeds, at a limited number of
    points.
    """
    try:
        table = pq.read_table(path, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a whole Parquet file ({error})") from None
    lanes, phases = (table.column(n).to_pylist() for n in ("lane", "phase"))
    learners = [match["learner"] if (match := _LANE.fullmatch(s)) else s for s in lanes]
    keys = np.array(["\t".join(pair) for pair in zip(phases, learners, strict=True)])
    update = table.column("update").to_numpy()
    series = []
    for key in dict.fromkeys(keys.tolist()):
        here = keys == key
        steps_of_all = np.unique(update[here])
        bins = np.array_split(steps_of_all, min(_CURVE_POINTS, len(steps_of_all)))
        phase, learner = key.split("\t")
        for name in _QUANTITIES:
            if name not in table.column_names:
                continue
            values = table.column(name).to_numpy(zero_copy_only=False)[here].astype(float)
            if np.isfinite(values).any():
                rows = [_summary(values, update[here], steps) for steps in bins]
                series.append(
                    {"phase": phase, "learner": learner, "quantity": name, "points": rows}
                )
    return series


def _summary(values: Any, update: Any, steps: Any) -> list[float | None]:
    """A bin of updates: its end, then mean, lowest and highest value."""
    chosen = values[(update >= steps[0]) & (update <= steps[-1])]
    chosen = chosen[np.isfinite(chosen)]
    if not len(chosen):
        return [int(steps[-1]), None, None, None]
    values = (chosen.mean(), chosen.min(), chosen.max())
    return [int(steps[-1]), *(float(f"{value:.4g}") for value in values)]


# -- the city -------------------------------------------------------------------------------------


def city_data(city: City) -> dict[str, Any]:
    """The network as lines and dots, in metres, y upwards."""
    ways = road_ways(city)
    streets = [
        [*start, *end, int(road.bus_lane)]
        for road in city.roads
        for start, end in pairwise(ways[road.id])
    ]
    routes = list(dict.fromkeys(service.route for service in city.services))
    return {
        "name": city.name,
        "horizon_s": city.horizon_s,
        "start_s": 0 if city.clock is None else city.clock.start_s,
        "streets": streets,
        "behind": [np.rint(line).astype(int).tolist() for line in background(city)],
        "signals": [[n.x_m, n.y_m] for n in city.nodes if n.signal],
        "stops": [[stop.name or stop.id, stop.x_m, stop.y_m] for stop in city.stops],
        "named": any(stop.name for stop in city.stops),
        "routes": {name: ROUTE_COLOURS[i % len(ROUTE_COLOURS)] for i, name in enumerate(routes)},
        "lines": _route_lines(city, routes),
        "services": [
            {
                "id": service.id,
                "route": service.route,
                "stops": list(service.stops),
                "capacity": city.capacity_of(index),
                "path": _path(city, service),
                "km": [round(at / 1000, 3) for at in service.distance_m],
                "trips": [city.trips[trip].id for trip in city.trips_of[index]],
                "starts": [city.trips[trip].departure_s for trip in city.trips_of[index]],
            }
            for index, service in enumerate(city.services)
        ],
    }


def _path(city: City, service: Service) -> list[list[float]]:
    """The points that a service passes, between its first and its last stop."""
    ways, lengths_m = road_ways(city), {road.id: road.length_m for road in city.roads}
    first, last = (city.stops[service.stops[place]] for place in (0, -1))
    points, start_m = [[first.x_m, first.y_m]], 0.0
    for road in service.roads:
        way = np.array(ways[road])
        along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(way, axis=0).T))])
        at_m = start_m + lengths_m[road] * along / max(along[-1], 1e-9)
        between = (at_m > service.distance_m[0]) & (at_m < service.distance_m[-1])
        points += way[:-1][between[:-1]].tolist()  # the next road begins where this one ends
        start_m += lengths_m[road]
    return [*points, [last.x_m, last.y_m]]


def _route_lines(city: City, routes: list[str]) -> list[list[Any]]:
    """One line per route and street, with its index among the routes that share the street."""
    lines: list[list[Any]] = []
    for way, here in streets_of_routes(city):
        beside = [route for route in routes if route in here]
        for slot, route in enumerate(beside):
            aside = slot - (len(beside) - 1) / 2
            lines += [[route, *start, *end, aside] for start, end in pairwise(way)]
    return lines
