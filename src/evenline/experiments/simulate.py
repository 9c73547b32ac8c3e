"""One day on request: runs an episode and keeps what happened in a folder of its own.

The folder holds `outcome.json` (with the count of what changed proposals), `stop_visits.parquet`
(with the account of every decision) and `time_space.png`. It appears whole when the day is over,
and not at all if anything fails.
"""

from dataclasses import asdict
from pathlib import Path

import evenline
from evenline.city.demand import Cell
from evenline.city.model import City
from evenline.city.tables import digest, open_city
from evenline.control.outcome import Outcome
from evenline.control.visits import read_visits
from evenline.control.world import run_episode
from evenline.figures.plots import png, time_space_grid
from evenline.policies.bundle import open_policy, policy_digest
from evenline.rules.behaviours import BEHAVIOURS, named_rule
from evenline.rules.explain import Witness, activations
from evenline.runs.days import Day, explained_day
from evenline.runs.episodes import Answer, run_episodes
from evenline.runs.pool import Job
from evenline.support.errors import InputError
from evenline.support.files import (
    new_folder,
    refuse_foreign,
    to_json,
    write_bytes,
    write_table,
    write_text,
)
from evenline.worlds.calibration import embedded_calibration
from evenline.worlds.fast.world import FastWorld
from evenline.worlds.sumo.runtime import installed_version

OUTCOME = "outcome.json"
PLAIN = (*BEHAVIOURS, "headway")  # rules without a chain, which SUMO jobs run as they are


def simulate(
    city: str, world: str, policy: str, cell: Cell, out: Path, sumo: str | None = None
) -> Answer:
    """Run a cell under a policy; returns outcome and provenance as `outcome.json` holds them.

    Another SUMO version is there for the plain rules alone.
    """
    opened = open_city(city)
    deciding = open_policy(policy, opened)
    refuse_foreign(out, OUTCOME)
    with new_folder(out) as aside:
        visits = aside / "stop_visits.parquet"
        match world:
            case "sumo" if policy in PLAIN:
                job = Job(city, cell, named_rule(policy), visits=visits, explain=True)
                label = f"{city} {policy} in SUMO"
                answer = run_episodes([job], label, opened.horizon_s, sumo=sumo)[job]
            case "sumo" if sumo is not None:
                raise InputError(f"policy {policy}: runs in the SUMO that comes with evenline only")
            case "sumo":
                outcome = explained_day(city, Day(policy, cell), visits)
                answer = _answer(opened, policy, cell, outcome) | {"sumo": installed_version()}
            case "fast":
                fast, witness = _fast_world(opened), Witness(deciding)
                outcome = run_episode(fast, cell, witness)
                write_table(visits, witness.table(opened, fast.visits))
                answer = _answer(opened, policy, cell, outcome)
            case _:
                raise InputError(f"world {world!r}: there are sumo and fast")
        table = read_visits(visits)
        answer |= {"city_name": opened.name, "world": world, "activations": activations(table)}
        write_text(aside / OUTCOME, to_json(answer))
        write_bytes(aside / "time_space.png", png(time_space_grid(table)))
    return answer


def _fast_world(city: City) -> FastWorld:
    """The fast world with the calibration that comes with the city."""
    return FastWorld(city, embedded_calibration(city), keep_visits=True)


def _answer(city: City, policy: str, cell: Cell, outcome: Outcome) -> Answer:
    """Outcome and provenance of a day that was not run by a SUMO job."""
    plain = asdict(named_rule(policy)) if policy in PLAIN else {"name": policy}
    return {
        "outcome": outcome.as_dict(),
        "city": digest(city),
        "cell": asdict(cell),
        "policy": plain,
        "policy_sha256": policy_digest(policy),
        "evenline": evenline.__version__,
    }
