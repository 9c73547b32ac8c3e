"""Days of a trial under candidate and parent, simulated again in the fast world for the report.

The trial's own days ran in SUMO and keep totals only; these show where and when buses were held.
The page says so next to every figure that uses them.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evenline.city.clock import clock_text
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.overview import called
from evenline.control import event
from evenline.control.world import run_episode
from evenline.figures.measure import column, headway_ratios
from evenline.policies.bundle import open_policy
from evenline.policies.lookahead import Lookahead
from evenline.policies.names import parse_source
from evenline.rules.chain import ELEMENTS
from evenline.rules.explain import HOUR_S, Witness, changes
from evenline.support.own import is_own
from evenline.worlds.open import CALIBRATION, OpenCity, open_city

_VISITS = 60_000  # the most stop visits on a page, but at least one block
_ROLES = ("candidate", "parent")
_CHANGES = ("", *ELEMENTS.values())
_HELD = "hold"  # the whole decision, beside the elements of the chain that changed it


def _study_city(study: Path) -> OpenCity:
    """The study's city, with the study's own calibration or the one that its trial registered."""
    places = (study / "calibration", study / "trial" / "inputs" / "city")
    files = [place / CALIBRATION for place in places if (place / CALIBRATION).is_file()]
    return open_city(str(study / "city"), files[0] if files else None)


def simulated_days(study: Path, trial: dict[str, Any]) -> dict[str, Any] | None:
    """The first blocks of the trial at its middle demand level, under the first training seed.

    None where there is no calibration to simulate them with, and for rules of the user's own: a
    page runs no code from a folder.
    """
    opened = _study_city(study)
    of_the_user = any(is_own(parse_source(p["path"]).place) for p in trial["policies"])
    if opened.calibration is None or of_the_user:
        return None
    city, world = opened.city, opened.fast_world(keep_visits=True)
    level, seed = sorted(trial["levels"])[len(trial["levels"]) // 2], trial["seeds"][0]
    sources = {role: source_of(study, trial, trial["claim"][role], seed) for role in _ROLES}
    visits = sum(len(city.services[trip.service].stops) for trip in city.trips)
    count = max(1, min(len(trial["blocks"]), _VISITS // (2 * visits)))
    first = Cell(trial["blocks"][0][0], trial["blocks"][0][1], level)
    blocks = []
    changed: dict[str, Counter[tuple[str, str, int]]] = {role: Counter() for role in _ROLES}
    decided: Counter[tuple[str, int]] = Counter()
    for number, (sumo_seed, demand_seed) in enumerate(trial["blocks"][:count]):
        days: dict[str, Any] = {}
        for role, source in sources.items():
            witness = Witness(open_policy(source, city, opened.calibration))
            outcome = run_episode(world, Cell(sumo_seed, demand_seed, level), witness)
            table = witness.table(city, world.visits)
            days[role] = {
                "generalized_s": round(outcome.generalized_s, 1),
                "completion": round(outcome.completion, 4),
                "mean_hold_s": round(outcome.mean_hold_s, 2),
                "services": _by_service(city, table),
            }
            changed[role].update(changes(table))
            changed[role].update(_held(table))
            if role == "candidate":
                decided.update(_decisions(table))
        blocks.append({"number": number, "seeds": [sumo_seed, demand_seed], **days})
    return {
        "level": level,
        "seed": seed,
        "blocks": blocks,
        "changes": list(_CHANGES),
        "held": _HELD,
        "decision": decision_of(opened, sources["candidate"], first),
        "activations": {
            role: [[*key, times] for key, times in sorted(counts.items())]
            for role, counts in changed.items()
        },
        "decisions": [[*key, times] for key, times in sorted(decided.items())],
    }


def source_of(study: Path, trial: dict[str, Any], method: str, seed: int) -> str:
    """A registered policy: the trial's own copy of a bundle, or a built-in name."""
    for policy in trial["policies"]:
        if policy["method"] == method and policy["seed"] in (None, seed):
            copied = study / "trial" / "inputs" / policy["path"]
            return str(copied) if copied.is_dir() else str(policy["path"])
    raise AssertionError(f"{method} {seed} is not in the trial")


def decision_of(opened: OpenCity, source: str, cell: Cell) -> dict[str, Any] | None:
    """The decision of a day between two buses that saves most, with the cost of every hold tried.

    None for a policy that does not look ahead.
    """
    policy = open_policy(source, opened.city, opened.calibration)
    if not isinstance(policy, Lookahead):
        return None
    world, most, shown = opened.fast_world(), 0.0, None
    batch = world.reset(cell)
    while batch is not None:
        policy.follow(batch)
        holds_s = []
        for i, (trip, raw) in enumerate(zip(batch.trips.tolist(), batch.raw, strict=True)):
            costs = policy.costs(trip, raw)
            best = int(np.argmin(costs))
            holds_s.append(float(policy.kept_s[best]))
            policy.note(trip, raw, holds_s[-1])
            between = raw[event.BUS_AHEAD] == raw[event.BUS_BEHIND] == 1.0
            if between and costs[0] - costs[best] > most:
                most = float(costs[0] - costs[best])
                shown = _situation(opened.city, policy, batch, i) | {
                    "costs": np.round(costs - costs[0]).tolist(),
                    "chosen_s": holds_s[-1],
                }
        batch = world.step(holds_s)
    return shown


def _situation(city: City, policy: Lookahead, batch: event.Batch, i: int) -> dict[str, Any]:
    """What is known of a bus that decides: where and when, its neighbours, its passengers."""
    raw, (trip, stop) = batch.raw[i], event.place(city, batch, i)
    numbers = {
        "ahead_s": event.HEADWAY_AHEAD, "behind_s": event.HEADWAY_BEHIND,
        "planned_s": event.TARGET_AHEAD, "waiting": event.WAITING, "on_board": event.ON_BOARD,
    }  # fmt: skip
    return {
        "trip": trip,
        "stop": called(next(s for s in city.stops if s.id == stop)),
        "service": city.services[int(raw[event.SERVICE])].id,
        "clock": clock_text(city, batch.time_s, seconds=True),
        "holds_s": policy.holds_s.tolist(),
        **{name: float(raw[feature]) for name, feature in numbers.items()},
    }


def _held(table: pa.Table) -> Counter[tuple[str, str, int]]:
    """How many buses were held, by service and hour."""
    names = ("hold_s", "service", "arrival_s")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return Counter((_HELD, service, at // HOUR_S) for hold, service, at in rows if hold)


def _by_service(city: City, table: pa.Table) -> dict[str, dict[str, list[Any]]]:
    """Stop visits as short columns: trip, stop, arrival, departure, load, hold, headway, change."""
    ratio = headway_ratios(table)
    service = column(table, "service").astype(str)
    numbers = {
        city.trips[trip].id: place for trips in city.trips_of for place, trip in enumerate(trips)
    }
    load = column(table, "load") - column(table, "alighted") + column(table, "boarded")
    change = [_CHANGES.index(name or "") for name in table.column("changed_by").to_pylist()]
    columns: dict[str, list[Any]] = {
        "t": [numbers[name] for name in column(table, "trip").tolist()],
        "q": column(table, "stop_sequence").tolist(),
        "a": column(table, "arrival_s").tolist(),
        "d": column(table, "departure_s").tolist(),
        "l": load.tolist(),
        "h": np.round(column(table, "hold_s"), 1).tolist(),
        "r": [round(float(r), 2) if np.isfinite(r) else None for r in ratio],
        "c": change,
    }
    parts: dict[str, dict[str, list[Any]]] = {}
    for name in (s.id for s in city.services):
        rows = np.flatnonzero(service == name).tolist()
        parts[name] = {key: [values[i] for i in rows] for key, values in columns.items()}
    return parts


def _decisions(table: pa.Table) -> Counter[tuple[str, int]]:
    """How many decisions there were, by service and hour."""
    names = ("proposal_s", "service", "arrival_s")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return Counter((service, at // HOUR_S) for asked, service, at in rows if asked is not None)
