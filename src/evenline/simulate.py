"""One day on request: runs an episode and keeps what happened in a folder of its own.

The folder holds `outcome.json`, `stop_visits.parquet` and `time_space.png`. It appears whole when
the day is over, and not at all if anything fails.
"""

from pathlib import Path

from evenline.city.demand import Cell
from evenline.city.tables import open_city
from evenline.episodes import Answer, run_episodes
from evenline.errors import InputError
from evenline.files import new_folder, refuse_foreign, to_json, write_bytes, write_text
from evenline.policies.rules import named_rule
from evenline.report.figures import png, time_space_grid
from evenline.report.measure import read_visits
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
            case _:
                raise InputError(f"world {world!r}: there is sumo")
        answer |= {"city_name": opened.name, "world": world}
        write_text(aside / OUTCOME, to_json(answer))
        write_bytes(aside / "time_space.png", png(time_space_grid(read_visits(visits))))
    return answer
