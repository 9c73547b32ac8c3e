"""One day on request: runs an episode and keeps what happened in a folder of its own.

The folder holds `outcome.json`, `stop_visits.parquet` and `time_space.png`. It appears whole when
the day is over, and not at all if anything fails.
"""

from dataclasses import asdict
from pathlib import Path

import evenline
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.tables import digest, open_city
from evenline.control.visits import visit_table
from evenline.episodes import Answer, run_episodes
from evenline.errors import InputError
from evenline.files import (
    new_folder,
    refuse_foreign,
    to_json,
    write_bytes,
    write_table,
    write_text,
)
from evenline.policies.rules import Rule, named_rule
from evenline.report.figures import png, time_space_grid
from evenline.report.measure import read_visits
from evenline.worlds.calibration import embedded_calibration
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.sumo.pool import Job

OUTCOME = "outcome.json"


def simulate(
    city: str, world: str, policy: str, cell: Cell, out: Path, sumo: str | None = None
) -> Answer:
    """Run a cell under a policy; returns outcome and provenance as `outcome.json` holds them."""
    opened, rule = open_city(city), named_rule(policy)
    refuse_foreign(out, OUTCOME)
    with new_folder(out) as aside:
        visits = aside / "stop_visits.parquet"
        match world:
            case "sumo":
                job = Job(city, cell, rule, visits=visits)
                label = f"{city} {rule.name} in SUMO"
                answer = run_episodes([job], label, opened.horizon_s, sumo=sumo)[job]
            case "fast":
                answer = _simulate_fast(opened, rule, cell, visits)
            case _:
                raise InputError(f"world {world!r}: there are sumo and fast")
        answer |= {"city_name": opened.name, "world": world}
        write_text(aside / OUTCOME, to_json(answer))
        write_bytes(aside / "time_space.png", png(time_space_grid(read_visits(visits))))
    return answer


def _simulate_fast(city: City, rule: Rule, cell: Cell, visits: Path) -> Answer:
    """The same day in the fast world, with the calibration that comes with the city."""
    world = FastWorld(city, embedded_calibration(city), keep_visits=True)
    outcome = world.run_rule(cell, rule)
    write_table(visits, visit_table(city, world.visits))
    return {
        "outcome": outcome.as_dict(),
        "city": digest(city),
        "cell": asdict(cell),
        "policy": asdict(rule),
        "evenline": evenline.__version__,
    }
