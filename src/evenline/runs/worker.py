"""A process that runs SUMO episodes: one JSON job a line in, progress and one answer out.

SUMO may crash or hang without taking anyone else down, and may be of any installed version.
Run as `python -m evenline.runs.worker`; `evenline.runs.pool` talks to it.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import evenline
from evenline.city.demand import Cell
from evenline.city.tables import digest, open_city
from evenline.control.event import Batch
from evenline.control.visits import visit_table
from evenline.replay.episode import record_episode, write_episode
from evenline.rules.behaviours import Rule
from evenline.rules.explain import Unchained, Witness
from evenline.support.errors import InputError
from evenline.support.files import write_table
from evenline.worlds.sumo.runtime import runtime_version
from evenline.worlds.sumo.world import SumoWorld

PROGRESS_EVERY_S = 0.5


def run_job(job: dict[str, Any], world: SumoWorld, out: TextIO) -> dict[str, Any]:
    """Run one episode; write the files the job names; answer with outcome and provenance."""
    witness = Witness(Unchained(Rule(**job["rule"]), world.city.horizon_s))
    last = time.monotonic()

    def policy(batch: Batch) -> Any:
        nonlocal last
        if time.monotonic() - last > PROGRESS_EVERY_S:
            last = time.monotonic()
            print(json.dumps({"now_s": batch.time_s}), file=out, flush=True)
        return witness(batch)

    cell = Cell(**job["cell"])
    tokens, outcome = record_episode(world, cell, policy)
    provenance = {
        "city": job["city_digest"],
        "cell": job["cell"],
        "policy": job["rule"],
        "sumo": runtime_version(),
        "evenline": evenline.__version__,
    }
    if path := job.get("tokens"):
        write_episode(Path(path), tokens, outcome, provenance)
    if path := job.get("visits"):
        table = witness.table if job["explain"] else visit_table
        write_table(Path(path), table(world.city, world.visits))
    return {"outcome": outcome.as_dict(), **provenance}


def main() -> None:
    """Serve jobs until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but answers on the answer channel
    worlds: dict[str, tuple[SumoWorld, str]] = {}
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if job["city"] not in worlds:
                city = open_city(job["city"])
                worlds = {job["city"]: (SumoWorld(city), digest(city))}
            world, job["city_digest"] = worlds[job["city"]]
            answer: dict[str, Any] = {"done": run_job(job, world, answers)}
            world.close()
        except InputError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
